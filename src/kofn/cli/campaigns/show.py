"""The commands that show what campaigns have learned: campaign list, show and segments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kofn.cli.campaigns.options import NAME, open_campaign
from kofn.cli.options import AS_JSON, STORE, Count
from kofn.cli.output import echo_json, new_table, pairs, show

if TYPE_CHECKING:
    from kofn.campaigns import CampaignInsight
    from kofn.core.responses import Lift, MetricReport


@click.command("list")
@click.option("--archived", is_flag=True, help="List the archived campaigns.")
@STORE
@AS_JSON
def list_(archived: bool, store: str | None, as_json: bool) -> None:
    """List the campaigns of a store. Archived ones are listed with --archived only."""
    from kofn.campaigns import campaigns

    found = [each for each in campaigns(store) if (each.state == "archived") == archived]
    if as_json:
        echo_json([each.to_dict() for each in found])
        return
    if not found:
        click.echo(
            "There are no archived campaigns."
            if archived
            else "There are no campaigns: create one with `kofn campaign create`."
        )
        return
    table = new_table("", "campaign", "state", "policy", "arms", "K", "plays", "rewards", "mean", "in flight")
    for each in found:
        mean = "" if each.mean is None else f"{each.mean:.4g}"
        counts = f"{each.arms:,}", f"{each.k:,}", f"{each.plays:,}", f"{each.rewards:,}", mean, f"{each.in_flight:,}"
        table.add_row(each.name, each.state, each.policy, *counts)
    show(table)


@click.command("show")
@NAME
@click.option("--arms", "most", type=Count(), default=30, show_default=True, help="Number of arms to list, best first.")
@STORE
@AS_JSON
def show_(name: str, most: int, store: str | None, as_json: bool) -> None:
    """Show what the campaign NAME has learned: the best subset, and the effect of each arm.

    \b
    kofn campaign show front --arms 10
    """
    known = open_campaign(name, store).insight()
    if as_json:
        echo_json(known.to_dict())
        return
    show(_facts(known), _arms(known, most))


def _facts(known: CampaignInsight) -> Any:
    at = known.summary
    unit = f" {known.settings.unit}" if known.settings and known.settings.unit else ""
    worth = None if known.value is None else f"{known.value:.4g}{unit} ({known.low:.4g} to {known.high:.4g})"
    rows = {
        "state": f"{at.state}, {at.policy}, N = {at.arms:,}, K = {at.k:,}",
        "best": ", ".join(known.best) if at.rewards else None,
        "shipped": ", ".join(known.shipped) if at.state == "shipped" and known.shipped else None,
        "probability that no swap improves it": None
        if known.probability_best is None
        else f"{known.probability_best:.0%}",
        "expected loss of shipping now": _loss(known, unit),
        "rules": _rules(known),
        "costs": _costs(known),
        "ready to ship": None if known.stop is None else f"{'yes' if known.stop.ready else 'no'}: {known.stop.reason}",
        "earned over control so far": _lift(known, known.lift, unit),
        "shipping is estimated to earn": _winner(known, unit),
        **{f"metric {each.name}": _metric(each) for each in known.metrics},
        "alarms": _alarms(known),
        "policy failed": known.failure,
        "estimated reward": worth,
        "average reward so far": None if known.average is None else f"{known.average:.4g}{unit}",
        "gain per play": None if known.gain is None else f"{known.gain:+.4g}{unit}",
        "plays": _plays(known),
        "clipped rewards": f"{known.clipped:,}" if known.clipped else None,
    }
    return pairs(at.name, rows)


def _rules(known: CampaignInsight) -> str | None:
    from kofn.constraints import Constraints

    given = known.settings.constraints if known.settings else []
    return "\n".join(map(str, Constraints.of(given))) or None


def _costs(known: CampaignInsight) -> str | None:
    costs = known.settings.costs if known.settings else {}
    listed = ", ".join(f"{arm} {cost:g}" for arm, cost in costs.items() if cost)
    return f"{listed}; rewards are net of them" if listed else None


def _loss(known: CampaignInsight, unit: str) -> str | None:
    if known.expected_loss is None:
        return None
    return f"{known.expected_loss:.4g}{unit} a play{_monthly(known, known.expected_loss, unit)}"


def _monthly(known: CampaignInsight, value: float, unit: str) -> str:
    """Return what a number per play is in a month; nothing while the traffic is not known."""
    month = known.plays_per_month
    return "" if month is None else f", about {value * month:,.3g}{unit} a month at this traffic"


def _lift(known: CampaignInsight, lift: Lift | None, unit: str) -> str | None:
    if lift is None:
        return None
    if lift.difference is None:
        return "no rewards of both groups yet"
    return f"{lift.difference:+.4g}{unit} a play{_limits(lift)}{_monthly(known, lift.difference, unit)}"


def _limits(lift: Lift) -> str:
    return f" ({' to '.join('' if limit is None else f'{limit:+.4g}' for limit in (lift.low, lift.high))})"


def _winner(known: CampaignInsight, unit: str) -> str | None:
    if known.winner is None:
        return None
    return f"{_lift(known, known.winner.lift, unit)}, with {', '.join(known.winner.arms)}"


def _metric(metric: MetricReport) -> str:
    groups = {"learned": metric.learned, "control": metric.control}
    facts = [f"{estimate.mean:.4g} {group}" for group, estimate in groups.items() if estimate]
    if metric.lift is not None and metric.lift.difference is not None:
        facts.append(f"{metric.lift.difference:+.4g}{_limits(metric.lift)}")
    if metric.guardrail:
        facts.append(f"{metric.guardrail} is {'broken' if metric.broken else 'not certainly broken'}")
    return ", ".join(facts) or "no settled plays yet"


def _plays(known: CampaignInsight) -> str:
    at = known.summary
    if known.settings is None or known.settings.window is None:
        return f"{at.plays:,}: {at.rewards:,} with a reward, {at.in_flight:,} in flight, {at.expired:,} expired"
    until = f"; the next settles at {known.settles:%Y-%m-%d %H:%M:%S} UTC" if known.settles else ""
    return f"{at.plays:,}: {at.rewards:,} settled, {at.in_flight:,} with an open window{until}"


def _alarms(known: CampaignInsight) -> str | None:
    if known.alarms is None:
        return None
    return "\n".join(f"{alarm.kind}: {alarm.message}; {alarm.advice}" for alarm in known.alarms) or "none"


def _arms(known: CampaignInsight, most: int) -> Any:
    better = 1.0 if known.summary.direction == "maximize" else -1.0
    ranked = sorted(known.arms, key=lambda arm: (arm.retired, -better * (arm.effect or 0.0), -arm.plays))
    table = new_table("arms, best first", "arm", "effect", "95 % low", "high", "plays", "")
    for arm in ranked[:most]:
        numbers = ["" if each is None else f"{each:+.4g}" for each in (arm.effect, arm.low, arm.high)]
        mark = "retired" if arm.retired else "best" if arm.best and known.summary.rewards else ""
        table.add_row(arm.name, *numbers, f"{arm.plays:,}", mark)
    return table


@click.command()
@NAME
@STORE
@AS_JSON
def segments(name: str, store: str | None, as_json: bool) -> None:
    """Show what is best for each segment of the campaign NAME, and which attributes of the context matter.

    \b
    kofn campaign segments front
    """
    known = open_campaign(name, store).segments()
    if as_json:
        echo_json(known.to_dict())
        return
    table = new_table("segments, most plays first", "segment", "plays", "best", "estimated reward", "expected loss")
    for each in known.segments:
        value = "" if each.value is None else f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})"
        loss = "" if each.expected_loss is None else f"{each.expected_loss:.2g}"
        table.add_row(each.words, f"{each.plays:,}", ", ".join(each.best), value, loss)
    matter = new_table("attributes", "attribute", "values", "probability that it matters", "gain per play")
    for one in known.attributes:
        values = f"{', '.join(one.values[:5])}{', ...' if len(one.values) > 5 else ''}"
        matter.add_row(one.attribute, values, f"{one.probability:.0%}", f"{one.gain:.2g}")
    show(table, matter)
