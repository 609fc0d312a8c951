"""The command that evaluates a log: replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.options import AS_JSON, SEED, Count, setting
from kofn.cli.output import echo_json, new_table, pairs, show

if TYPE_CHECKING:
    from rich.table import Table

    from kofn.logs import Evaluation, Log
    from kofn.logs.replay import Replayed


@click.command()
@click.argument("log", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--subset", "subsets", multiple=True, metavar="ARMS", help='Evaluate this subset: "1 4 8"; repeatable.')
@click.option("--uniform", is_flag=True, help="All subsets were equally likely.")
@click.option("--arms", type=Count(), help="N, the number of arms, if the last ones were never played.")
@click.option("--top", type=Count(), default=10, show_default=True, help="Subsets to show if no --subset is given.")
@click.option("--minimize", is_flag=True, help="Smaller rewards are better.")
@click.option("--policy", help="Replay this policy on the log.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the policy; repeatable.")
@SEED
@AS_JSON
def replay(
    log: Path,
    subsets: tuple[str, ...],
    uniform: bool,
    arms: int | None,
    top: int,
    minimize: bool,
    policy: str | None,
    settings: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Evaluate a LOG of past decisions: estimate what subsets earn, or replay a policy on it.

    LOG is a CSV file with the columns subset (arms separated by spaces), reward and, unless the choices were uniform,
    propensity (the probability with which the subset was chosen).

    \b
    kofn replay log.csv --uniform                       the best subsets, with errors
    kofn replay log.csv --subset "1 4 8"                one subset
    kofn replay log.csv --uniform --policy thompson     what a policy would have earned
    """
    from kofn.logs import Log, evaluate, evaluate_all

    past = Log.read(log, uniform=uniform, n_arms=arms)
    if policy is not None:
        result = _replayed(policy, dict(setting(each) for each in settings), past, minimize, seed)
        if as_json:
            echo_json(result.to_dict())
        else:
            show(_replay_table(result, past))
        return
    if subsets:
        found, of = [evaluate(past, past.subset_of_names(each.split())) for each in subsets], len(subsets)
    else:
        every = evaluate_all(past)
        found, of = (every[::-1] if minimize else every)[:top], len(every)
    if as_json:
        echo_json([{**each.to_dict(), "interval": list(each.dr.interval(of=of)), "of": of} for each in found])
        return
    note = f"The intervals hold for all {of:,} subsets at once, with 95 % confidence." if of > 1 else ""
    show(_table(found, past, of), note)


def _replayed(policy: str, params: dict[str, Any], log: Log, minimize: bool, seed: int) -> Replayed:
    from kofn.logs.replay import replay as replay_log
    from kofn.policies import make_policy

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
        "found": " ".join(map(log.name, result.final)),
        "not in the rest of the log": " ".join(map(log.name, result.unmatched)),
    }
    return pairs(f"{result.policy} replayed on the log", rows)


def _table(found: list[Evaluation], log: Log, of: int) -> Table:
    title = f"{log!r}, mean reward {log.rewards.mean():.4g}"[1:].replace(">", "")
    table = new_table(
        title, "subset", "plays", "doubly robust", "95 % low", "high", "self-normalised", "inverse prop.", "weight"
    )
    for each in found:
        low, high = each.dr.interval(of=of)
        table.add_row(
            " ".join(map(log.name, each.subset)),
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
