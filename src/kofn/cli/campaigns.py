"""The `kofn campaign` commands: real decisions from scripts and cron jobs. Parse, call, print."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kofn.cli.options import AS_JSON, Count, setting
from kofn.cli.output import echo_json, new_table, pairs, show
from kofn.cli.rules import RULES, all_rules, rules_file

if TYPE_CHECKING:
    from kofn.campaigns import Campaign, CampaignInsight, Decision, Rewarded

STORE = click.option(
    "--store",
    metavar="URL",
    help="URL of the store: sqlite:///shop.db, postgresql://...  [default: KOFN_STORE, else sqlite:///kofn.db]",
)
NAME = click.argument("name")


def _read_context(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str] | None:
    """Return the attributes that were given as NAME=VALUE."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise click.UsageError(f"--context takes NAME=VALUE, such as device=phone; got {text!r}")
        if name in found:
            raise click.UsageError(f"--context gives {name!r} twice: {found[name]!r} and {value!r}")
        found[name] = value
    return found or None


FOR_WHOM = click.option(
    "--context",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_read_context,
    help="Attribute of the visitor, for contextual-thompson, such as device=phone; repeatable.",
)
NEGATIVE = {"ignore_unknown_options": True}  # -0.5 is a reward
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A duration such as 30s, 15m, 12h or 7d, converted to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail with an error that names the option."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(value).strip())
        if not match:
            self.fail(f"{value!r} is not a duration such as 30s, 15m, 12h or 7d", param, ctx)
        return float(match[1]) * UNITS[match[2]]


class ArmCost(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """What an arm costs, such as mug=0.5, converted to the arm and the number."""

    name = "cost"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, float]:
        """Return the arm and its cost; fail with an error that names the option."""
        if isinstance(value, tuple):
            return value
        arm, equals, cost = str(value).rpartition("=")
        try:
            if not (arm and equals):
                raise ValueError
            return arm, float(cost)
        except ValueError:
            self.fail(f"{value!r} is not an arm and its cost, such as mug=0.5", param, ctx)


@click.group()
def campaign() -> None:
    """Make real decisions and learn from their rewards, with a policy whose state is in a store.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2
    kofn campaign decide front
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign show front
    """


def _open(name: str, store: str | None) -> Campaign:
    from kofn.campaigns import Campaign

    return Campaign.open(name, store=store)


OPTIONS = (
    click.option("--control", "control", multiple=True, metavar="ARM", help="Arm of the control group; repeatable."),
    click.option("--uniform-control", is_flag=True, help="The control group gets random arms."),
    click.option("--control-share", type=float, help="Share of the decisions for the control.  [default: 0.1]"),
    click.option("--sticky", type=Duration(), help="How long a key keeps its arms, such as 30d."),
    click.option(
        "--outside",
        type=click.Choice(["refuse", "clip", "widen"]),
        help="What happens to rewards outside the range.  [default: refuse]",
    ),
    click.option("--stop-when", metavar="RULE", help='When it is ready: "loss<0.01", "value<500 over 100000".'),
    click.option("--ship-when-ready/--no-ship-when-ready", default=None, help="Ship by itself when it is ready."),
    click.option("--breaker/--no-breaker", default=None, help="Return to the control when learning certainly loses."),
    click.option("--unit", help="Unit of the reward, such as EUR."),
    click.option(
        "--cost",
        "costs",
        multiple=True,
        type=ArmCost(),
        metavar="ARM=COST",
        help="What an arm costs, for the policy thompson-sizes; repeatable. Others cost nothing.",
    ),
    RULES,
    rules_file("JSON file with a list of such rules, as `kofn campaign configure NAME --json` shows them"),
)
"""The options that `create` and `configure` share."""


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a campaign, as one argument `options`."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        uniform, control = given.pop("uniform_control"), given.pop("control")
        if uniform and control:
            raise click.UsageError("give --control or --uniform-control, not both")
        options = {name: given.pop(name) for name in _OPTION_NAMES}
        options["costs"] = dict(given.pop("costs")) or None
        options["constraints"] = all_rules(given.pop("rules"), given.pop("rules_file"))
        options["control"] = "uniform" if uniform else list(control) or None
        command(options={name: value for name, value in options.items() if value is not None}, **given)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped


_OPTION_NAMES = ("control_share", "sticky", "outside", "stop_when", "ship_when_ready", "breaker", "unit")


@campaign.command()
@NAME
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Name of an arm; repeatable.")
@click.option("--arms-from", type=click.File(encoding="utf-8"), help="File with one name per line; - is stdin.")
@click.option("--k", type=Count(), default=5, show_default=True, help="Number of arms per decision.")
@click.option(
    "--range", "reward_range", nargs=2, type=float, default=(0.0, 1.0), metavar="LOW HIGH", help="Range of rewards."
)
@click.option("--learn-range", is_flag=True, help="The range of rewards is not known: learn it.")
@click.option("--minimize", is_flag=True, help="Rewards are costs: lower is better.")
@click.option("--policy", default="thompson", show_default=True, help="Name of a policy; `kofn policies` lists them.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Parameter of the policy; repeatable.")
@click.option("--horizon", type=Count(), help="Number of plays, for a policy that needs it.")
@click.option("--seed", type=Count(least=0), help="Seed of the policy; the same seed gives the same decisions.")
@click.option(
    "--expire-after",
    type=Duration(),
    default="7d",
    show_default=True,
    help="When a decision without a reward is planned again.",
)
@click.option(
    "--keep",
    type=Count(least=0),
    default=100_000,
    show_default=True,
    help="Rewarded decisions to keep.",
)
@with_options
@STORE
@AS_JSON
def create(
    name: str,
    arms: tuple[str, ...],
    arms_from: IO[str] | None,
    k: int,
    reward_range: tuple[float, float],
    learn_range: bool,
    minimize: bool,
    policy: str,
    settings: tuple[str, ...],
    horizon: int | None,
    seed: int | None,
    expire_after: float,
    keep: int,
    options: dict[str, Any],
    store: str | None,
    as_json: bool,
) -> None:
    """Create the campaign NAME.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2 --range 0 40
    kofn campaign create front --arms-from goods.txt --store postgresql://shop@db/shop
    kofn campaign create front --arms-from goods.txt --control mug --control pan --k 2 --stop-when "loss<0.01"
    kofn campaign create front --arms-from goods.txt --rule "at most 1 of mug, cup" --constraints brands.json
    """
    from kofn.campaigns import Campaign
    from kofn.cli.stores import noting_new_store

    names = [*arms, *(line.strip() for line in arms_from or () if line.strip())]
    with noting_new_store(store):
        made = Campaign.create(
            name,
            names,
            k,
            policy=policy,
            params=dict(map(setting, settings)) | ({} if horizon is None else {"horizon": horizon}),
            reward_range=None if learn_range else reward_range,
            direction="minimize" if minimize else "maximize",
            seed=seed,
            store=store,
            expire_after=expire_after,
            keep_decisions=keep,
            **options,
        )
    if as_json:
        echo_json(made.summary().to_dict())
    else:
        click.echo(f"created {name}: {len(names):,} arms, {k:,} places, {policy}, in {made.store}")


@campaign.command("list")
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
    table = new_table("", "campaign", "state", "policy", "arms", "K", "plays", "rewards", "mean", "in flight")
    for each in found:
        mean = "" if each.mean is None else f"{each.mean:.4g}"
        counts = f"{each.arms:,}", f"{each.k:,}", f"{each.plays:,}", f"{each.rewards:,}", mean, f"{each.in_flight:,}"
        table.add_row(each.name, each.state, each.policy, *counts)
    show(table)


@campaign.command("show")
@NAME
@click.option("--arms", "most", type=Count(), default=30, show_default=True, help="Number of arms to list, best first.")
@STORE
@AS_JSON
def show_(name: str, most: int, store: str | None, as_json: bool) -> None:
    """Show what the campaign NAME has learned: the best subset, and the effect of each arm.

    \b
    kofn campaign show front --arms 10
    """
    known = _open(name, store).insight()
    if as_json:
        echo_json(known.to_dict())
        return
    show(_facts(known), _arms(known, most))


def _facts(known: CampaignInsight) -> Any:
    from rich.markup import escape  # names may contain markup

    at = known.summary
    unit = f" {known.settings.unit}" if known.settings and known.settings.unit else ""
    worth = None if known.value is None else f"{known.value:.4g}{unit} ({known.low:.4g} to {known.high:.4g})"
    rows = {
        "state": f"{at.state}, {at.policy}, N = {at.arms:,}, K = {at.k:,}",
        "best": escape(", ".join(known.best)) if at.rewards else None,
        "shipped": escape(", ".join(known.shipped)) if at.state == "shipped" and known.shipped else None,
        "probability of being best": None if known.probability_best is None else f"{known.probability_best:.0%}",
        "expected loss of shipping now": _loss(known, unit),
        "rules": _rules(known),
        "costs": _costs(known),
        "ready to ship": None if known.stop is None else f"{'yes' if known.stop.ready else 'no'}: {known.stop.reason}",
        "lift over control": _lift(known, unit),
        "alarms": _alarms(known),
        "estimated reward": worth,
        "average reward so far": None if known.average is None else f"{known.average:.4g}{unit}",
        "gain per play": None if known.gain is None else f"{known.gain:+.4g}{unit}",
        "plays": f"{at.plays:,}: {at.rewards:,} with a reward, {at.in_flight:,} in flight, {at.expired:,} expired",
        "clipped rewards": f"{known.clipped:,}" if known.clipped else None,
    }
    return pairs(at.name, rows)


def _rules(known: CampaignInsight) -> str | None:
    from rich.markup import escape

    from kofn.constraints import Constraints

    given = known.settings.constraints if known.settings else []
    return escape("\n".join(map(str, Constraints.of(given)))) or None


def _costs(known: CampaignInsight) -> str | None:
    from rich.markup import escape

    costs = known.settings.costs if known.settings else {}
    listed = escape(", ".join(f"{arm} {cost:g}" for arm, cost in costs.items() if cost))
    return f"{listed}; rewards are net of them" if listed else None


def _loss(known: CampaignInsight, unit: str) -> str | None:
    if known.expected_loss is None:
        return None
    return f"{known.expected_loss:.4g}{unit} a play{_monthly(known, known.expected_loss, unit)}"


def _monthly(known: CampaignInsight, value: float, unit: str) -> str:
    """Return what a number per play is in a month; nothing while the traffic is not known."""
    month = known.plays_per_month
    return "" if month is None else f", about {value * month:,.3g}{unit} a month at this traffic"


def _lift(known: CampaignInsight, unit: str) -> str | None:
    if known.lift is None:
        return None
    if known.lift.difference is None:
        return "no rewards of both groups yet"
    limits = ("" if limit is None else f"{limit:+.4g}" for limit in (known.lift.low, known.lift.high))
    monthly = _monthly(known, known.lift.difference, unit)
    return f"{known.lift.difference:+.4g}{unit} a play ({' to '.join(limits)}){monthly}"


def _alarms(known: CampaignInsight) -> str | None:
    if known.alarms is None:
        return None
    return "\n".join(f"{alarm.kind}: {alarm.message}; {alarm.advice}" for alarm in known.alarms) or "none"


def _arms(known: CampaignInsight, most: int) -> Any:
    from rich.markup import escape

    better = 1.0 if known.summary.direction == "maximize" else -1.0
    ranked = sorted(known.arms, key=lambda arm: (arm.retired, -better * (arm.effect or 0.0), -arm.plays))
    table = new_table("arms, best first", "arm", "effect", "95 % low", "high", "plays", "")
    for arm in ranked[:most]:
        numbers = ["" if each is None else f"{each:+.4g}" for each in (arm.effect, arm.low, arm.high)]
        mark = "retired" if arm.retired else "best" if arm.best and known.summary.rewards else ""
        table.add_row(escape(arm.name), *numbers, f"{arm.plays:,}", mark)
    return table


@campaign.command()
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
    decisions = _open(name, store).decide(count, key=key, metadata=given, context=context)
    if as_json:
        echo_json([{"id": each.id, "arms": each.arms, "group": each.group} | _context(each) for each in decisions])
    else:
        click.echo("\n".join("\t".join([each.id, *each.arms]) for each in decisions))


def _context(decision: Decision) -> dict[str, Any]:
    return {} if decision.context is None else {"context": decision.context}


@campaign.command()
@NAME
@STORE
@AS_JSON
def segments(name: str, store: str | None, as_json: bool) -> None:
    """Show what is best for each segment of the campaign NAME, and which attributes of the context matter.

    \b
    kofn campaign segments front
    """
    from rich.markup import escape

    known = _open(name, store).segments()
    if as_json:
        echo_json(known.to_dict())
        return
    table = new_table("segments, most plays first", "segment", "plays", "best", "estimated reward", "expected loss")
    for each in known.segments:
        value = "" if each.value is None else f"{each.value:.4g} ({each.low:.4g} to {each.high:.4g})"
        loss = "" if each.expected_loss is None else f"{each.expected_loss:.2g}"
        table.add_row(escape(each.words), f"{each.plays:,}", escape(", ".join(each.best)), value, loss)
    matter = new_table("attributes", "attribute", "values", "probability that it matters", "gain per play")
    for one in known.attributes:
        values = f"{', '.join(one.values[:5])}{', ...' if len(one.values) > 5 else ''}"
        matter.add_row(escape(one.attribute), escape(values), f"{one.probability:.0%}", f"{one.gain:.2g}")
    show(table, matter)


@campaign.command(context_settings=NEGATIVE)
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
    rewarded = _open(name, store).rewards(rewards, partial=partial)
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


@campaign.command("reward-total", context_settings=NEGATIVE)
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
    found = _open(name, store)
    _echo_rewarded(found.reward_total(arms, count, total, squares, key=key, context=context), as_json)


@campaign.command("add-arm")
@NAME
@click.argument("arm")
@click.option("--group", "groups", multiple=True, metavar="RULE", help="Name of a rule that it joins; repeatable.")
@STORE
def add_arm(name: str, arm: str, groups: tuple[str, ...], store: str | None) -> None:
    """Add ARM to the campaign NAME. What was learned about the others is kept."""
    _open(name, store).add_arm(arm, groups)
    click.echo(f"{name}: added {arm}")


@campaign.command("retire-arm")
@NAME
@click.argument("arm")
@STORE
def retire_arm(name: str, arm: str, store: str | None) -> None:
    """Retire ARM: it is not shown until it is added again. What was learned about the others is kept."""
    _open(name, store).retire_arm(arm)
    click.echo(f"{name}: retired {arm}")


@campaign.command()
@NAME
@STORE
def pause(name: str, store: str | None) -> None:
    """Refuse decisions until the campaign is resumed. Rewards are still accepted."""
    _open(name, store).pause()
    click.echo(f"{name}: paused")


@campaign.command()
@NAME
@STORE
def resume(name: str, store: str | None) -> None:
    """Resume a paused or shipped campaign: it decides and learns again."""
    _open(name, store).resume()
    click.echo(f"{name}: running")


@campaign.command()
@NAME
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="Arm to ship; repeatable.  [default: the best]")
@click.option("--no-store", is_flag=True, help="Do not store decisions when they are made, but with their rewards.")
@STORE
def ship(name: str, arms: tuple[str, ...], no_store: bool, store: str | None) -> None:
    """Give everyone the best subset, or these arms, from now on. Rewards are still counted.

    With contextual-thompson, each segment gets its own best subset.

    \b
    kofn campaign ship front
    """
    from kofn.policies.registry import policy_named

    shipped = _open(name, store)
    shipped.ship(list(arms) or None, store=not no_store)
    known = shipped.insight()
    by_segment = not arms and policy_named(known.summary.policy).takes_context
    own = "; each segment gets its own best subset" if by_segment else ""
    click.echo(f"{name}: shipped {', '.join(known.shipped or [])}{own}")


@campaign.command()
@NAME
@STORE
def stop(name: str, store: str | None) -> None:
    """Refuse decisions for good, and print the best subset. Late rewards are still accepted."""
    stopped = _open(name, store)
    stopped.stop()
    click.echo(f"{name}: stopped; the best are {', '.join(stopped.best())}")


@campaign.command()
@NAME
@STORE
def archive(name: str, store: str | None) -> None:
    """Refuse decisions and rewards for good, and leave the list. All data is kept."""
    _open(name, store).archive()
    click.echo(f"{name}: archived")


@campaign.command()
@NAME
@click.option("--range", "reward_range", nargs=2, type=float, metavar="LOW HIGH", help="A wider range of rewards.")
@click.option("--half-life", type=Count(), help="Plays after which a reward counts half.")
@click.option("--no-half-life", is_flag=True, help="All rewards count alike.")
@click.option("--guarantee/--no-guarantee", default=None, help="Compare arms directly, so that decisions are proved.")
@click.option("--no-control", is_flag=True, help="No control any more.")
@click.option("--no-sticky", is_flag=True, help="Keys no longer keep their arms.")
@click.option("--no-stop-rule", is_flag=True, help="No stop rule any more.")
@click.option("--no-constraints", is_flag=True, help="No rules any more.")
@click.option("--no-costs", is_flag=True, help="No costs any more.")
@click.option("--expire-after", type=Duration(), help="When a decision without a reward is planned again.")
@click.option("--keep", "keep_decisions", type=Count(least=0), help="Rewarded decisions to keep.")
@with_options
@STORE
@AS_JSON
def configure(
    name: str,
    no_half_life: bool,
    no_control: bool,
    no_sticky: bool,
    no_stop_rule: bool,
    no_constraints: bool,
    no_costs: bool,
    options: dict[str, Any],
    store: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Change settings of the campaign NAME while it runs, and show them all. What was learned is kept.

    \b
    kofn campaign configure front --half-life 20000
    kofn campaign configure front --control mug --control pan --control-share 0.2
    kofn campaign configure front --rule "at most 1 of mug, cup" --rule "always tray"
    kofn campaign configure front --cost mug=0.5 --cost pan=2
    """
    changes = options | {key: value for key, value in more.items() if value is not None}
    changes |= {"half_life": None} if no_half_life else {}
    changes |= {"control": None} if no_control else {}
    changes |= {"sticky": None} if no_sticky else {}
    changes |= {"stop_when": None, "ship_when_ready": False} if no_stop_rule else {}
    changes |= {"constraints": None} if no_constraints else {}
    changes |= {"costs": None} if no_costs else {}
    found = _open(name, store)
    settings = (found.configure(**changes) if changes else found.settings()).to_dict()
    if as_json:
        echo_json(settings)
    else:
        from kofn.constraints import Constraints

        settings["constraints"] = "\n".join(map(str, Constraints.of(settings["constraints"])))
        settings["costs"] = [f"{arm} {cost:g}" for arm, cost in settings["costs"].items()]
        show(pairs(name, {key.replace("_", " "): _setting(value) for key, value in settings.items()}))


def _setting(value: Any) -> str | None:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else None if value in (None, "") else str(value)


@campaign.command()
@NAME
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@STORE
def delete(name: str, yes: bool, store: str | None) -> None:
    """Delete the campaign NAME and all its data."""
    doomed = _open(name, store)
    if not yes:
        click.confirm(f"delete {name} with its {doomed.summary().plays:,} plays?", abort=True, err=True)
    doomed.delete()
    click.echo(f"{name}: deleted")


@campaign.command()
@NAME
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="File to write.  [default: stdout]")
@click.option("--with-secret", is_flag=True, help="Include the secret key, so that decisions in flight stay valid.")
@STORE
def export(name: str, out: Path | None, with_secret: bool, store: str | None) -> None:
    """Write the whole campaign NAME as JSON, to move it: `kofn campaign import` reads the file.

    Without the secret key, the imported campaign refuses rewards of decisions that were made before. A file with the
    key is secret. For analysis, `kofn campaign decisions` writes a table.

    \b
    kofn campaign export front --out front.json
    kofn campaign export front --with-secret --out front.json
    """
    text = json.dumps(_open(name, store).export(with_secret=with_secret), allow_nan=False)
    if out is None:
        click.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        click.echo(f"wrote {out}", err=True)


@campaign.command()
@NAME
@STORE
@AS_JSON
@click.pass_context
def verify(ctx: click.Context, name: str, store: str | None, as_json: bool) -> None:
    """Check that the state of the campaign NAME follows from its log of rewards. Exit with 1 if it does not.

    \b
    kofn campaign verify front --json
    """
    verified = _open(name, store).verify()
    if as_json:
        echo_json(verified.to_dict())
    else:
        counts = f"{verified.rewards:,} rewards and {verified.steps:,} updates"
        click.echo(f"{name}: {'ok' if verified.ok else 'differs'}; compared {', '.join(verified.compared)} ({counts})")
        for line in [*verified.differences, *([verified.reason] if verified.reason else [])]:
            click.echo(f"  {line}")
    if not verified.ok:
        ctx.exit(1)


@campaign.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--name", help="Name of the imported campaign.  [default: the exported name]")
@STORE
def import_(file: IO[str], name: str | None, store: str | None) -> None:
    """Import the campaign that `export` wrote to FILE. It resumes where it was.

    \b
    kofn campaign import front.json --store postgresql://shop@db/shop
    """
    from kofn.campaigns import Campaign
    from kofn.cli.stores import noting_new_store
    from kofn.core import BadRecord

    try:
        exported = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as why:
        raise BadRecord(f"{file.name} is not the JSON of an exported campaign: {why}") from None
    with noting_new_store(store):
        made = Campaign.import_(exported, store=store, name=name)
    click.echo(f"imported {made.name}: {made.summary().plays:,} plays")
