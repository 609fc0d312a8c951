"""The command that reads a log: replay."""

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
@click.option("--subset", "subsets", multiple=True, metavar="ARMS", help='What would "1 4 8" earn? Repeatable.')
@click.option("--uniform", is_flag=True, help="Every subset was as likely as any other.")
@click.option("--arms", type=Count(), help="N, if the last arms were never played.")
@click.option("--top", type=Count(), default=10, show_default=True, help="How many subsets to show, without --subset.")
@click.option("--minimize", is_flag=True, help="Small rewards are better.")
@click.option("--policy", help="Let this policy walk through the log.")
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
    """Say what a LOG of past decisions knows: what subsets would earn, and how a policy would have done.

    LOG is a CSV with the columns subset (arms with spaces between), reward and, unless the choice was uniform,
    propensity: the probability with which that subset was chosen.

    \b
    kofn replay log.csv --uniform                       the best subsets, with their errors
    kofn replay log.csv --subset "1 4 8"                one of them
    kofn replay log.csv --uniform --policy thompson     a policy in the place of the one that decided
    """
    from kofn.logs import Log, evaluate, evaluate_all

    past = Log.read(log, uniform=uniform, n_arms=arms)
    if policy is not None:
        walked = _walked(policy, dict(setting(each) for each in settings), past, minimize, seed)
        if as_json:
            echo_json(walked.to_dict())
        else:
            show(_walk_table(walked, past))
        return
    if subsets:
        found, of = [evaluate(past, past.named(each.split())) for each in subsets], len(subsets)
    else:
        every = evaluate_all(past)
        found, of = (every[::-1] if minimize else every)[:top], len(every)
    if as_json:
        echo_json([{**each.to_dict(), "interval": list(each.dr.interval(of=of)), "of": of} for each in found])
        return
    show(_table(found, past, of), f"Intervals hold for all {of:,} subsets at once, 95 times in 100." if of > 1 else "")


def _walked(policy: str, params: dict[str, Any], log: Log, minimize: bool, seed: int) -> Replayed:
    from kofn.logs.replay import replay as replay_log
    from kofn.policies import make_policy

    low, high = min(0.0, float(log.rewards.min())), max(1.0, float(log.rewards.max()))
    told: dict[str, Any] = {"horizon": len(log), "seed": seed, "direction": "minimize" if minimize else "maximize"}
    told |= {} if (low, high) == (0.0, 1.0) else {"reward_range": (low, high)}
    return replay_log(make_policy(policy, **{"n_arms": log.n_arms, "k": log.k} | told | params), log, seed)


def _walk_table(walked: Replayed, log: Log) -> Table:
    rows = {
        "taken": f"{walked.plays:,} of {walked.events:,} plays",
        "earned on average": f"{walked.mean:.4g} ± {walked.error:.2g}",
        "the log itself": f"{log.rewards.mean():.4g}",
        "found": " ".join(map(log.name, walked.final)),
        "ended waiting for": " ".join(map(log.name, walked.waiting)),
    }
    return pairs(f"{walked.policy} in the log", rows)


def _table(found: list[Evaluation], log: Log, of: int) -> Table:
    title = f"{log!r}, on average {log.rewards.mean():.4g}"[1:].replace(">", "")
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
