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

    from kofn.lab.logs import DecisionLog, OffPolicyEstimate
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
    own (--context); the policy contextual-thompson uses them.

    \b
    kofn campaign decisions front --out log.csv; kofn replay log.csv
    kofn replay log.csv --uniform                       the best subsets, with errors
    kofn replay log.csv --subset "1 4 8"                one subset
    kofn replay log.csv --uniform --policy thompson     what a policy would have earned
    """
    from kofn.lab.logs import DecisionLog, evaluate, evaluate_all

    past = DecisionLog.read(log, uniform=uniform, n_arms=arms, adaptive=adaptive, context=attributes or None)
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
    _report(as_json, rows, _table(found, past, of), _skipped(past), notes)


def _report(as_json: bool, values: Any, table: Table, skipped: Sequence[str], notes: Sequence[str] = ()) -> None:
    """Print a table with notes, or JSON; then what was skipped is on stderr."""
    if as_json:
        echo_json(values)
        for note in skipped:
            click.echo(f"kofn: note: {note}", err=True)
    else:
        show(table, *skipped, *notes)


def _values(each: OffPolicyEstimate, log: DecisionLog, of: int) -> dict[str, Any]:
    """Return the evaluation of a subset for JSON."""
    more = {"interval": list(each.estimate.interval(of=of)), "of": of, "arms": [log.name(arm) for arm in each.subset]}
    return each.to_dict() | more


def _arms(text: str) -> list[str]:
    """Return the arms of an option: separated by commas, or by spaces if it has no comma."""
    return [arm.strip() for arm in text.split(",")] if "," in text else text.split()


def _skipped(log: DecisionLog) -> list[str]:
    """Return what was left out, as sentences."""
    notes = [f"Skipped {log.unrewarded:,} rows without a reward."] if log.unrewarded else []
    if log.propensity is not None and (unknown := int((~log.known).sum())):
        notes.append(f"{unknown:,} plays have no propensity: they count for means only.")
    return notes


def _adaptive_notes(left_out: int, log: DecisionLog) -> list[str]:
    notes = []
    if left_out:
        notes.append(f"{left_out:,} subsets with too few plays are left out.")
    notes.append(
        "The policy learned meanwhile: the mean is right only if rewards do not depend on time, and intervals hold a "
        "little less often than they say."
    )
    if log.segments is not None:
        notes.append("Who got a subset may depend on the context: its mean holds only for these visitors.")
    return notes


def _replayed(policy: str, params: dict[str, Any], log: DecisionLog, minimize: bool, seed: int) -> Replayed:
    from kofn.lab.logs.replay import replay as replay_log
    from kofn.policies.registry import make_policy

    defaults: dict[str, Any] = {"n_arms": log.n_arms, "k": log.k, "horizon": len(log), "seed": seed}
    defaults["direction"] = "minimize" if minimize else "maximize"
    if log.reward_range != (0.0, 1.0):
        defaults["reward_range"] = log.reward_range
    return replay_log(make_policy(policy, **defaults | params), log, seed)


def _replay_table(result: Replayed, log: DecisionLog) -> Table:
    rows = {
        "used": f"{result.plays:,} of {result.events:,} plays",
        "mean reward": f"{result.mean:.4g} ± {result.error:.2g}",
        "mean reward of the log": f"{log.rewards.mean():.4g}",
        "found": log.label(result.final),
        "not in the rest of the log": log.label(result.unmatched),
    }
    return pairs(f"{result.policy} replayed on the log", rows)


def _table(found: list[OffPolicyEstimate], log: DecisionLog, of: int) -> Table:
    title = f"{log!r}, mean reward {log.rewards.mean():.4g}"[1:].replace(">", "")
    others = {} if log.adaptive else {"snips": "self-normalised", "ips": "inverse prop.", "weight": "weight"}
    used = "mean" if log.adaptive else "doubly robust"
    table = new_table(title, "subset", "plays", used, "95 % low", "high", *others.values())
    for each in found:
        limits = (f"{limit:.3g}" for limit in each.estimate.interval(of=of))
        more = (_cell(getattr(each, name)) for name in others)
        table.add_row(log.label(each.subset), f"{each.plays:,}", _cell(each.estimate), *limits, *more)
    return table


def _cell(estimate: Any) -> str:
    return f"{estimate.value:.3g} ± {estimate.error:.2g}"
