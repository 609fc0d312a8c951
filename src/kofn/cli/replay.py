"""The command that evaluates a log: replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.options import AS_JSON, SEED, Count, setting
from kofn.cli.output import echo_json, new_table, pairs, show

if TYPE_CHECKING:
    from rich.table import Table

    from kofn.lab.logs import BySegment, Evaluation, Log
    from kofn.lab.logs.replay import Replayed


@click.command()
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--subset",
    "subsets",
    multiple=True,
    metavar="ARMS",
    help='Evaluate this subset: "1 4 8", or names separated by commas; repeatable.',
)
@click.option("--uniform", is_flag=True, help="All subsets were equally likely.")
@click.option(
    "--adaptive/--no-adaptive",
    default=None,
    help="Whether choices depended on earlier rewards.  [default: only in an export of a campaign]",
)
@click.option("--arms", type=Count(), help="N, the number of arms, if the last ones were never played.")
@click.option("--top", type=Count(), default=10, show_default=True, help="Subsets to show if no --subset is given.")
@click.option(
    "--context",
    "attributes",
    multiple=True,
    metavar="COLUMN",
    help="A column that is an attribute of contexts; repeatable.  [default: the column context, if there is one]",
)
@click.option("--by-segment", is_flag=True, help="Show what one subset for all and the best of each segment earn.")
@click.option("--minimize", is_flag=True, help="Smaller rewards are better.")
@click.option("--policy", help="Replay this policy on the log.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the policy; repeatable.")
@SEED
@AS_JSON
def replay(
    log: Path,
    subsets: tuple[str, ...],
    uniform: bool,
    adaptive: bool | None,
    arms: int | None,
    top: int,
    attributes: tuple[str, ...],
    by_segment: bool,
    minimize: bool,
    policy: str | None,
    settings: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Evaluate a LOG of past decisions: estimate what subsets earn, or replay a policy on it.

    LOG is a file that `kofn campaign decisions` wrote, or any CSV, JSON lines or Parquet file with the columns subset
    (arms separated by spaces), reward and, unless the choices were uniform, propensity (the probability with which the
    subset was chosen). Rows without a reward are skipped. Contexts are JSON in a column context, or columns of their
    own (--context); the policy contextual-thompson and --by-segment use them.

    \b
    kofn campaign decisions front --out log.csv; kofn replay log.csv
    kofn replay log.csv --uniform                       the best subsets, with errors
    kofn replay log.csv --subset "1 4 8"                one subset
    kofn replay log.csv --uniform --policy thompson     what a policy would have earned
    kofn replay log.csv --uniform --by-segment          are contexts worth it?
    """
    from kofn.lab.logs import Log, evaluate, evaluate_all, evaluate_by_segment

    past = Log.read(log, uniform=uniform, n_arms=arms, adaptive=adaptive, context=attributes or None)
    if by_segment:
        segments = evaluate_by_segment(past, direction="minimize" if minimize else "maximize")
        _report(as_json, segments.to_dict(), _segment_table(segments, past), _skipped(past), _gains(segments))
        return
    if policy is not None:
        result = _replayed(policy, dict(setting(each) for each in settings), past, minimize, seed)
        _report(as_json, result.to_dict(), _replay_table(result, past), _skipped(past))
        return
    left_out = 0
    if subsets:
        found, of = [evaluate(past, past.subset_of_names(_arms(each))) for each in subsets], len(subsets)
    else:
        every = evaluate_all(past)
        left_out = len(past.groups.subsets) - len(every)
        found, of = (every[::-1] if minimize else every)[:top], len(every)
    rows = [_values(each, past, of) for each in found]
    notes = _adaptive_notes(left_out, past) if past.adaptive else []
    if of > 1:
        notes.append(f"The intervals hold for all {of:,} subsets at once, with 95 % confidence.")
    _report(as_json, rows, (_means if past.adaptive else _table)(found, past, of), _skipped(past), notes)


def _report(as_json: bool, values: Any, table: Table, skipped: Sequence[str], notes: Sequence[str] = ()) -> None:
    """Print a table with notes, or JSON; then what was skipped is on stderr."""
    if as_json:
        echo_json(values)
        for note in skipped:
            click.echo(f"kofn: note: {note}", err=True)
    else:
        show(table, *skipped, *notes)


def _values(each: Evaluation, log: Log, of: int) -> dict[str, Any]:
    """Return the evaluation of a subset for JSON."""
    more = {"interval": list(each.estimate.interval(of=of)), "of": of, "arms": [log.name(arm) for arm in each.subset]}
    return each.to_dict() | more


def _arms(text: str) -> list[str]:
    """Return the arms of an option: separated by commas, or by spaces if it has no comma."""
    return [arm.strip() for arm in text.split(",")] if "," in text else text.split()


def _skipped(log: Log) -> list[str]:
    """Return what was left out, as sentences."""
    notes = [f"Skipped {log.unrewarded:,} rows without a reward."] if log.unrewarded else []
    if log.propensity is not None and (unknown := int((~log.known).sum())):
        notes.append(f"{unknown:,} plays have no propensity: they count for means only.")
    return notes


def _adaptive_notes(left_out: int, log: Log) -> list[str]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} subsets with too few plays are left out.")
    notes.append("The policy learned meanwhile, so the mean is right only if rewards do not depend on time.")
    if log.segments is not None:
        notes.append(
            "Who got a subset may depend on the context: its mean is that of these visitors. See --by-segment."
        )
    return notes


def _segment_table(found: BySegment, log: Log) -> Table:
    from kofn.core.contexts import words_of

    title = f"{len(found.segments)} segments; subsets chosen by half of the plays, valued by the others"
    table = new_table(title, "segment", "share", "best subset", "earns", "more than the one for all", names=1)
    share = 1 - found.unknown if log.adaptive else 1.0
    table.add_row("all", f"{share:.0%}", log.label(found.for_all), _cell(found.value), "")
    for each in found.segments:
        known = ("too few plays", "", "")
        if each.best is not None:
            gain = "too few plays of it" if each.gain is None else _cell(each.gain)
            known = (log.label(each.best), _cell(each.value), gain)
        table.add_row(words_of(each.segment), f"{each.share:.0%}", *known)
    return table


def _gains(found: BySegment) -> list[str]:
    """Return what the log says about contexts, as sentences."""
    if found.unknown > 0.999:
        return ["No segment has enough plays of enough subsets: the log cannot say whether contexts matter."]
    low, high = found.gain.interval()
    notes = [
        f"The best subset of each segment earns {found.gain.value:+.3g} per play beyond the one for all "
        f"(95 %: {low:+.3g} to {high:+.3g})."
    ]
    if low <= 0:
        notes.append("That is within the error: the log cannot say that contexts matter.")
    if found.unknown > 0:
        notes.append(
            f"{found.unknown:.0%} of the plays are in segments with too few plays, of the one for all or of others: "
            "they get the one for all."
        )
    return notes


def _replayed(policy: str, params: dict[str, Any], log: Log, minimize: bool, seed: int) -> Replayed:
    from kofn.lab.logs.replay import replay as replay_log
    from kofn.policies.registry import make_policy

    defaults: dict[str, Any] = {"n_arms": log.n_arms, "k": log.k, "horizon": len(log), "seed": seed}
    defaults["direction"] = "minimize" if minimize else "maximize"
    if log.reward_range != (0.0, 1.0):
        defaults["reward_range"] = log.reward_range
    return replay_log(make_policy(policy, **defaults | params), log, seed)


def _replay_table(result: Replayed, log: Log) -> Table:
    rows = {
        "used": f"{result.plays:,} of {result.events:,} plays",
        "mean reward": f"{result.mean:.4g} ± {result.error:.2g}",
        "mean reward of the log": f"{log.rewards.mean():.4g}",
        "found": log.label(result.final),
        "not in the rest of the log": log.label(result.unmatched),
    }
    return pairs(f"{result.policy} replayed on the log", rows)


def _means(found: list[Evaluation], log: Log, of: int) -> Table:
    """Return the table of an adaptive log."""
    title = f"{log!r}, mean reward {log.rewards.mean():.4g}"[1:].replace(">", "")
    table = new_table(title, "subset", "plays", "mean", "95 % low", "high")
    for each in found:
        limits = (f"{limit:.3g}" for limit in each.mean.interval(of=of))
        table.add_row(log.label(each.subset), f"{each.plays:,}", _cell(each.mean), *limits)
    return table


def _table(found: list[Evaluation], log: Log, of: int) -> Table:
    title = f"{log!r}, mean reward {log.rewards.mean():.4g}"[1:].replace(">", "")
    table = new_table(
        title, "subset", "plays", "doubly robust", "95 % low", "high", "self-normalised", "inverse prop.", "weight"
    )
    for each in found:
        low, high = each.dr.interval(of=of)
        table.add_row(
            log.label(each.subset),
            f"{each.plays:,}",
            _cell(each.dr),
            f"{low:.3g}",
            f"{high:.3g}",
            _cell(each.snips),
            _cell(each.ips),
            _cell(each.weight),
        )
    return table


def _cell(estimate: Any) -> str:
    return f"{estimate.value:.3g} ± {estimate.error:.2g}"
