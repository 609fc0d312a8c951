"""The commands of campaigns: real decisions from scripts and cron jobs. Parse, call, print."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import click

from kofn.cli.options import AS_JSON, Count, setting
from kofn.cli.output import echo_json, new_table, pairs, show

if TYPE_CHECKING:
    from kofn.campaigns import Campaign, CampaignInsight, Rewarded

STORE = click.option(
    "--store",
    metavar="URL",
    help="Where campaigns are kept: sqlite:///shop.db, postgresql://...; KOFN_STORE, or sqlite:///kofn.db, without it.",
)
NAME = click.argument("name")
NEGATIVE = {"ignore_unknown_options": True}  # -0.5 is a reward
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A length of time such as 30s, 15m, 12h or 7d, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds, or click's error that names the option."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", str(value).strip())
        if not match:
            self.fail(f"{value!r} is not a duration such as 30s, 15m, 12h or 7d", param, ctx)
        return float(match[1]) * UNITS[match[2]]


@click.group()
def campaign() -> None:
    """Make real decisions, and learn from their rewards: a policy with a store behind it.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2
    kofn campaign decide front
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign show front
    """


def _open(name: str, store: str | None) -> Campaign:
    from kofn.campaigns import Campaign

    return Campaign.open(name, store=store)


@campaign.command()
@NAME
@click.option("--arm", "arms", multiple=True, metavar="NAME", help="The name of an arm; repeatable.")
@click.option("--arms-from", type=click.File(encoding="utf-8"), help="A file of names, one per line; - is stdin.")
@click.option("--k", type=Count(), default=5, show_default=True, help="K, the places that a decision fills.")
@click.option(
    "--range", "reward_range", nargs=2, type=float, default=(0.0, 1.0), metavar="LOW HIGH", help="Of rewards."
)
@click.option("--minimize", is_flag=True, help="Rewards are costs: the lower, the better.")
@click.option("--policy", default="thompson", show_default=True, help="A policy that `kofn policies` lists.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="A parameter of the policy; repeatable.")
@click.option("--horizon", type=Count(), help="For a policy that needs one.")
@click.option("--seed", type=Count(least=0), help="The same seed gives the same decisions.")
@click.option(
    "--expire-after", type=Duration(), default="7d", show_default=True, help="When a decision is tried again."
)
@click.option("--keep", type=Count(least=0), default=100_000, show_default=True, help="Answered decisions to keep.")
@STORE
@AS_JSON
def create(
    name: str,
    arms: tuple[str, ...],
    arms_from: IO[str] | None,
    k: int,
    reward_range: tuple[float, float],
    minimize: bool,
    policy: str,
    settings: tuple[str, ...],
    horizon: int | None,
    seed: int | None,
    expire_after: float,
    keep: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Create the campaign NAME over some arms.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2 --range 0 40
    kofn campaign create front --arms-from goods.txt --store postgresql://shop@db/shop
    """
    from kofn.campaigns import Campaign

    names = [*arms, *(line.strip() for line in arms_from or () if line.strip())]
    made = Campaign.create(
        name,
        names,
        k,
        policy=policy,
        params=dict(map(setting, settings)) | ({} if horizon is None else {"horizon": horizon}),
        reward_range=reward_range,
        direction="minimize" if minimize else "maximize",
        seed=seed,
        store=store,
        expire_after=expire_after,
        keep_decisions=keep,
    )
    if as_json:
        echo_json(made.summary().to_dict())
    else:
        click.echo(f"created {name}: {len(names):,} arms, {k:,} places, {policy}, in {made.store}")


@campaign.command("list")
@STORE
@AS_JSON
def list_(store: str | None, as_json: bool) -> None:
    """List the campaigns of a store."""
    from kofn.campaigns import campaigns

    found = campaigns(store)
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
@click.option("--arms", "most", type=Count(), default=30, show_default=True, help="Arms to list, the best first.")
@STORE
@AS_JSON
def show_(name: str, most: int, store: str | None, as_json: bool) -> None:
    """Show what the campaign NAME has learned: the best subset, and what each arm is worth.

    \b
    kofn campaign show front --arms 10
    """
    known = _open(name, store).insight()
    if as_json:
        echo_json(known.to_dict())
        return
    show(_facts(known), _arms(known, most))


def _facts(known: CampaignInsight) -> Any:
    from rich.markup import escape  # a name may look like markup

    at = known.summary
    worth = None if known.value is None else f"{known.value:.4g} ({known.low:.4g} to {known.high:.4g})"
    rows = {
        "state": f"{at.state}, {at.policy}, N = {at.arms:,}, K = {at.k:,}",
        "best": escape(", ".join(known.best)),
        "sure": None if known.probability_best is None else f"{known.probability_best:.0%}",
        "its reward, estimated": worth,
        "average so far": None if known.average is None else f"{known.average:.4g}",
        "gain per play": None if known.gain is None else f"{known.gain:+.4g}",
        "plays": f"{at.plays:,}: {at.rewards:,} with a reward, {at.in_flight:,} out, {at.expired:,} expired",
    }
    return pairs(at.name, rows)


def _arms(known: CampaignInsight, most: int) -> Any:
    from rich.markup import escape

    better = 1.0 if known.summary.direction == "maximize" else -1.0
    ranked = sorted(known.arms, key=lambda arm: (arm.retired, -better * (arm.effect or 0.0), -arm.plays))
    table = new_table("arms, the best first", "arm", "effect", "95 % low", "high", "plays", "")
    for arm in ranked[:most]:
        numbers = ["" if each is None else f"{each:+.4g}" for each in (arm.effect, arm.low, arm.high)]
        table.add_row(
            escape(arm.name), *numbers, f"{arm.plays:,}", "retired" if arm.retired else "best" if arm.best else ""
        )
    return table


@campaign.command()
@NAME
@click.option("--count", type=Count(), default=1, show_default=True, help="How many decisions.")
@STORE
@AS_JSON
def decide(name: str, count: int, store: str | None, as_json: bool) -> None:
    """Make decisions: a line each, with the id and the arms, separated by tabs.

    \b
    kofn campaign decide front --count 100 --json
    """
    decisions = _open(name, store).decide(count)
    if as_json:
        echo_json([{"id": each.id, "arms": each.arms} for each in decisions])
    else:
        click.echo("\n".join("\t".join([each.id, *each.arms]) for each in decisions))


@campaign.command(context_settings=NEGATIVE)
@NAME
@click.argument("id", required=False)
@click.argument("value", type=float, required=False)
@click.option("--from", "file", type=click.File(encoding="utf-8"), help="Lines of ID,REWARD; - is stdin.")
@STORE
@AS_JSON
def reward(
    name: str, id: str | None, value: float | None, file: IO[str] | None, store: str | None, as_json: bool
) -> None:
    """Tell what the decision ID earned, or many at once. Telling it again is harmless.

    \b
    kofn campaign reward front 1a-0-5f3c0d2e9b1c4a7d6e8f0a1b 0.5
    kofn campaign reward front --from rewards.csv
    """
    if (file is None) == (value is None):
        raise click.UsageError("give ID and VALUE, or --from a file of them")
    told = [(id or "", value or 0.0)] if file is None else _lines(file)
    _told(_open(name, store).rewards(told), as_json)


def _lines(file: IO[str]) -> list[tuple[str, float]]:
    """The ids and rewards of a file, or an error that names the line."""
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


def _told(told: Rewarded, as_json: bool) -> None:
    if as_json:
        echo_json(told.to_dict())
    else:
        click.echo(f"accepted {told.accepted:,}, repeated {told.repeated:,}")


@campaign.command("reward-total", context_settings=NEGATIVE)
@NAME
@click.argument("count", type=Count())
@click.argument("total", type=float)
@click.option("--arm", "arms", multiple=True, metavar="NAME", required=True, help="An arm of the subset; repeatable.")
@click.option("--squares", type=float, help="The total of the squares, if it is known.")
@click.option("--key", help="What this total is known by: under the same key it is counted once.")
@STORE
@AS_JSON
def reward_total(
    name: str,
    count: int,
    total: float,
    arms: tuple[str, ...],
    squares: float | None,
    key: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Tell what COUNT plays of one subset earned together, for logs that hold sums.

    \b
    kofn campaign reward-total front 1200 310.5 --arm mug --arm tray --key 2026-11-14
    """
    _told(_open(name, store).reward_total(arms, count, total, squares, key=key), as_json)


@campaign.command("add-arm")
@NAME
@click.argument("arm")
@STORE
def add_arm(name: str, arm: str, store: str | None) -> None:
    """Add ARM to the campaign NAME. What was learned of the others stays."""
    _open(name, store).add_arm(arm)
    click.echo(f"{name}: added {arm}")


@campaign.command("retire-arm")
@NAME
@click.argument("arm")
@STORE
def retire_arm(name: str, arm: str, store: str | None) -> None:
    """Never show ARM again. What was learned of the others stays."""
    _open(name, store).retire_arm(arm)
    click.echo(f"{name}: retired {arm}")


@campaign.command()
@NAME
@STORE
def pause(name: str, store: str | None) -> None:
    """Stop deciding until it is resumed. Rewards are welcome."""
    _open(name, store).pause()
    click.echo(f"{name}: paused")


@campaign.command()
@NAME
@STORE
def resume(name: str, store: str | None) -> None:
    """Go on deciding."""
    _open(name, store).resume()
    click.echo(f"{name}: running")


@campaign.command()
@NAME
@STORE
def finish(name: str, store: str | None) -> None:
    """Stop deciding for good, and print the best subset."""
    finished = _open(name, store)
    finished.finish()
    click.echo(f"{name}: finished; the best are {', '.join(finished.best())}")


@campaign.command()
@NAME
@click.option("--yes", is_flag=True, help="Do not ask.")
@STORE
def delete(name: str, yes: bool, store: str | None) -> None:
    """Delete the campaign NAME and all that it knows."""
    doomed = _open(name, store)
    if not yes:
        click.confirm(f"delete {name} with its {doomed.summary().plays:,} plays?", abort=True, err=True)
    doomed.delete()
    click.echo(f"{name}: deleted")


@campaign.command()
@NAME
@click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="A file; stdout without it.")
@STORE
def export(name: str, out: Path | None, store: str | None) -> None:
    """Write all of the campaign NAME as JSON: its record, its decisions, its rewards.

    \b
    kofn campaign export front --out front.json
    """
    text = json.dumps(_open(name, store).export(), allow_nan=False)
    if out is None:
        click.echo(text)
    else:
        out.write_text(text + "\n", encoding="utf-8")
        click.echo(f"wrote {out}", err=True)


@campaign.command("import")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--name", help="A name of its own; the exported one without it.")
@STORE
def import_(file: IO[str], name: str | None, store: str | None) -> None:
    """Bring back the campaign that `export` wrote to FILE. It goes on where it was.

    \b
    kofn campaign import front.json --store postgresql://shop@db/shop
    """
    from kofn.campaigns import Campaign
    from kofn.core import BadRecord

    try:
        exported = json.load(file)
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as why:
        raise BadRecord(f"{file.name} is not the JSON of an exported campaign: {why}") from None
    made = Campaign.import_(exported, store=store, name=name)
    click.echo(f"imported {made.name}: {made.summary().plays:,} plays")
