"""The commands that make decisions and record rewards: campaign decide, reward and reward-total."""

from __future__ import annotations

import csv
import json
from typing import IO, TYPE_CHECKING, Any

import click

from kofn.cli.campaigns.options import FOR_WHOM, NAME, open_campaign
from kofn.cli.options import AS_JSON, STORE, Count
from kofn.cli.output import echo_json

if TYPE_CHECKING:
    from kofn.campaigns import Decision, Rewarded

NEGATIVE = {"ignore_unknown_options": True}  # -0.5 is a reward


@click.command()
@NAME
@click.option("--count", type=Count(), default=1, show_default=True, help="Number of decisions.")
@click.option("--key", help="Key of the visitor or the call: the same key gets the same decisions.")
@click.option("--metadata", metavar="JSON", help="A small JSON object that comes back in the export of decisions.")
@FOR_WHOM
@STORE
@AS_JSON
def decide(
    name: str,
    count: int,
    key: str | None,
    metadata: str | None,
    context: dict[str, str] | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Make decisions: one line each, with the id and the arms, separated by tabs.

    \b
    kofn campaign decide front --count 100 --json
    kofn campaign decide front --key visitor-42 --metadata '{"page": "home"}'
    kofn campaign decide front --context device=phone --context country=de
    """
    try:
        given = None if metadata is None else json.loads(metadata)
    except ValueError:
        raise click.UsageError(f"--metadata must be a JSON object; got {metadata!r:.60}") from None
    decisions = open_campaign(name, store).decide(count, key=key, metadata=given, context=context)
    if as_json:
        echo_json([{"id": each.id, "arms": each.arms, "group": each.group} | _context(each) for each in decisions])
    else:
        click.echo("\n".join("\t".join([each.id, *each.arms]) for each in decisions))


def _context(decision: Decision) -> dict[str, Any]:
    return {} if decision.context is None else {"context": decision.context}


@click.command(context_settings=NEGATIVE)
@NAME
@click.argument("id", required=False)
@click.argument("value", type=float, required=False)
@click.option("--from", "file", type=click.File(encoding="utf-8"), help="CSV file with lines ID,REWARD; - is stdin.")
@click.option("--partial", is_flag=True, help="Record the others if some are refused, and exit with 1.")
@STORE
@AS_JSON
def reward(
    name: str,
    id: str | None,
    value: float | None,
    file: IO[str] | None,
    partial: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Record the reward VALUE of the decision ID, or rewards from a file. Repeating it is harmless.

    \b
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign reward front --from rewards.csv
    """
    if (file is None) == (value is None):
        raise click.UsageError("give ID and VALUE, or --from with a CSV file of them")
    rewards = [(id or "", value or 0.0)] if file is None else _lines(file)
    rewarded = open_campaign(name, store).rewards(rewards, partial=partial)
    _echo_rewarded(rewarded, as_json)
    if rewarded.refused:
        raise SystemExit(1)


def _lines(file: IO[str]) -> list[tuple[str, float]]:
    """Return the ids and rewards of a CSV file; an error names the line."""
    found = []
    for number, row in enumerate(csv.reader(file), start=1):
        if not row or (number == 1 and row[-1].strip() == "reward"):
            continue
        try:
            id, value = row
            found.append((id.strip(), float(value)))
        except ValueError:
            raise click.UsageError(f"line {number} is not ID,REWARD: {','.join(row)[:60]}") from None
    return found


def _echo_rewarded(rewarded: Rewarded, as_json: bool) -> None:
    if as_json:
        echo_json(rewarded.to_dict())
    else:
        click.echo(f"accepted {rewarded.accepted:,}, repeated {rewarded.repeated:,}")
        if rewarded.forgotten:
            reason = "these decisions are no longer stored, so their rewards were not recorded"
            click.echo(f"forgotten {rewarded.forgotten:,}: {reason}", err=True)
        for each in rewarded.refused:
            click.echo(f"refused {each.id}: {each.reason}", err=True)


@click.command("reward-total", context_settings=NEGATIVE)
@NAME
@click.argument("count", type=Count())
@click.argument("total", type=float)
@click.option("--arm", "arms", multiple=True, metavar="NAME", required=True, help="Arm of the subset; repeatable.")
@click.option("--squares", type=float, help="Sum of the squared rewards, if known.")
@click.option("--key", help="Key of this total: it is recorded once per key.")
@FOR_WHOM
@STORE
@AS_JSON
def reward_total(
    name: str,
    count: int,
    total: float,
    arms: tuple[str, ...],
    squares: float | None,
    key: str | None,
    context: dict[str, str] | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Record what COUNT plays of one subset earned together (TOTAL), from logs that hold sums.

    \b
    kofn campaign reward-total front 1200 310.5 --arm mug --arm tray --key 2026-11-14
    """
    found = open_campaign(name, store)
    _echo_rewarded(found.reward_total(arms, count, total, squares, key=key, context=context), as_json)
