"""The commands that make decisions, and report about them: campaign decide, reward, add, record and reward-total."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
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


def _reported(columns: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return what gives a command the options for reports from a file with these columns."""
    options = (
        click.option(
            "--from", "file", type=click.File(encoding="utf-8"), help=f"CSV file with lines {columns}; - is stdin."
        ),
        click.option("--partial", is_flag=True, help="Record the others if some are refused, and exit with 1."),
        STORE,
        AS_JSON,
    )

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@click.command(context_settings=NEGATIVE)
@NAME
@click.argument("id", required=False)
@click.argument("value", type=float, required=False)
@_reported("ID,REWARD")
def reward(name: str, id: str | None, value: float | None, **more: Any) -> None:
    """Record the reward VALUE of the decision ID, or rewards from a file. Repeating it is harmless.

    \b
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign reward front --from rewards.csv
    """
    _report(name, "rewards", "ID,REWARD", (id, value), **more)


@click.command(context_settings=NEGATIVE)
@NAME
@click.argument("id", required=False)
@click.argument("value", type=float, required=False)
@click.option("--event", help="Name of the event, such as order-17: the same event counts once.")
@_reported("ID,VALUE,EVENT")
def add(name: str, id: str | None, value: float | None, event: str | None, **more: Any) -> None:
    """Add VALUE to the reward of the decision ID, for an event in its window. Repeating it is harmless.

    \b
    kofn campaign add front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 12.5 --event order-17
    kofn campaign add front --from orders.csv
    """
    _report(name, "adds", "ID,VALUE,EVENT", (id, value, event), **more)


@click.command(context_settings=NEGATIVE)
@NAME
@click.argument("id", required=False)
@click.argument("metric", required=False)
@click.argument("value", type=float, required=False)
@_reported("ID,METRIC,VALUE")
def record(name: str, id: str | None, metric: str | None, value: float | None, **more: Any) -> None:
    """Record a METRIC of the decision ID beside its reward. It is compared with the control, and never optimised.

    \b
    kofn campaign record front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b returns 1
    kofn campaign record front --from returns.csv
    """
    _report(name, "records", "ID,METRIC,VALUE", (id, metric, value), **more)


def _report(
    name: str,
    method: str,
    columns: str,
    given: tuple[str | float | None, ...],
    file: IO[str] | None,
    partial: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Report what was given, or each line of a file, by a method of the campaign."""
    if file is None and None in given:
        raise click.UsageError(f"give {columns.replace(',', ', ')}, or --from with a CSV file of them")
    if file is not None and any(each is not None for each in given):
        raise click.UsageError("give --from alone: the file has everything")
    items = [given] if file is None else _lines(file, columns)
    rewarded = getattr(open_campaign(name, store), method)(items, partial=partial)
    _echo_rewarded(rewarded, as_json)
    if rewarded.refused:
        raise SystemExit(1)


def _lines(file: IO[str], columns: str) -> list[tuple[str | float, ...]]:
    """Return what the lines of a CSV file report; an error names the line. The first one may have the columns."""
    names = columns.lower().split(",")
    found: list[tuple[str | float, ...]] = []
    for number, row in enumerate(csv.reader(file), start=1):
        values = [each.strip() for each in row]
        if not row or (number == 1 and [each.lower() for each in values] == names):
            continue
        try:
            if len(values) != len(names):
                raise ValueError
            pairs = zip(names, values, strict=True)
            found.append(tuple(float(each) if name in ("reward", "value") else each for name, each in pairs))
        except ValueError:
            raise click.UsageError(f"line {number} is not {columns}: {','.join(row)[:60]}") from None
    return found


def _echo_rewarded(rewarded: Rewarded, as_json: bool) -> None:
    if as_json:
        echo_json(rewarded.to_dict())
    else:
        click.echo(f"accepted {rewarded.accepted:,}, repeated {rewarded.repeated:,}")
        if rewarded.late:
            click.echo(f"late {rewarded.late:,}: their windows are over, so they do not count", err=True)
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
