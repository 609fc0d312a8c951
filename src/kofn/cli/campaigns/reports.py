"""The commands that show a campaign over time: campaign events and campaign estimates."""

from __future__ import annotations

import click

from kofn.cli.campaigns.options import NAME, open_campaign
from kofn.cli.options import AS_JSON, STORE, Count
from kofn.cli.output import echo_json, new_table, show


@click.command()
@NAME
@click.option("--limit", type=Count(), default=20, show_default=True, help="Number of events, newest first.")
@STORE
@AS_JSON
def events(name: str, limit: int, store: str | None, as_json: bool) -> None:
    """List what happened to the campaign NAME: new best subsets, alarms, changes of state and settings.

    \b
    kofn campaign events front --limit 100
    """
    found = open_campaign(name, store).events(limit)
    if as_json:
        echo_json([each.to_dict() for each in found])
        return
    table = new_table("", "at (UTC)", "event", "")
    for each in found:
        table.add_row(f"{each.at:%Y-%m-%d %H:%M:%S}", each.kind, each.message)
    show(table)


@click.command()
@NAME
@click.option("--points", type=Count(), default=20, show_default=True, help="Number of rows at most.")
@click.option("--arm", "arms", multiple=True, metavar="ARM", help="Also show the effect of this arm; repeatable.")
@STORE
@AS_JSON
def estimates(name: str, points: int, arms: tuple[str, ...], store: str | None, as_json: bool) -> None:
    """Show the expected loss, the reward of the best subset and the lift over the control over time.

    \b
    kofn campaign estimates front --arm mug
    """
    found = open_campaign(name, store).estimates(points, arms=arms)
    if as_json:
        echo_json([each.to_dict() for each in found])
        return
    heads = "at (UTC)", "rewards", "expected loss", "estimated reward", "lift over control"
    table = new_table("", *heads, *(f"effect of {arm}" for arm in arms))
    for each in found:
        at = f"{each.at:%Y-%m-%d %H:%M:%S}", f"{each.rewards:,}"
        worth = _number(each.value) + _interval(each.low, each.high)
        lift = _number(each.lift, "+") + _interval(each.lift_low, each.lift_high, "+")
        effects = (_number(each.effects.get(arm), "+") for arm in arms)
        table.add_row(*at, _number(each.expected_loss), worth, lift, *effects)
    show(table)


def _number(value: float | None, sign: str = "") -> str:
    return "" if value is None else f"{value:{sign}.4g}"


def _interval(low: float | None, high: float | None, sign: str = "") -> str:
    return "" if low is None or high is None else f" ({_number(low, sign)} to {_number(high, sign)})"
