"""The commands that set up a campaign and change its settings: campaign create and campaign configure."""

from __future__ import annotations

from typing import IO, Any

import click

from kofn.cli.campaigns.options import NAME, open_campaign, with_options
from kofn.cli.options import AS_JSON, STORE, Count, Duration, setting
from kofn.cli.output import echo_json, pairs, show


@click.command()
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
@click.option("--seed", type=Count(least=0), help="Seed of the policy.")
@click.option(
    "--expire-after",
    type=Duration(),
    default="7d",
    show_default=True,
    help="When a decision without a reward expires, unless there is a window.",
)
@click.option(
    "--keep",
    "keep_decisions",
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
    settings: tuple[str, ...],
    horizon: int | None,
    options: dict[str, Any],
    store: str | None,
    as_json: bool,
    **more: Any,
) -> None:
    """Create the campaign NAME.

    \b
    kofn campaign create front --arm mug --arm tray --arm pan --k 2 --range 0 40
    kofn campaign create front --arms-from goods.txt --store postgresql://shop@db/shop
    kofn campaign create front --arms-from goods.txt --control mug --control pan --k 2 --stop-when "loss<0.01"
    kofn campaign create front --arms-from goods.txt --window 1d --control mug --guardrail "returns<=+2%"
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
            params=dict(map(setting, settings)) | ({} if horizon is None else {"horizon": horizon}),
            reward_range=None if learn_range else reward_range,
            direction="minimize" if minimize else "maximize",
            store=store,
            **more,
            **options,
        )
    if as_json:
        echo_json(made.summary().to_dict())
    else:
        click.echo(f"created {name}: {len(names):,} arms, {k:,} places, {more['policy']}, in {made.store}")


CLEARED: dict[str, dict[str, Any]] = {
    "no_half_life": {"half_life": None},
    "no_control": {"control": None},
    "no_sticky": {"sticky": None},
    "no_window": {"window": None},
    "no_guardrails": {"guardrails": None},
    "no_stop_rule": {"stop_when": None, "ship_when_ready": False},
    "no_constraints": {"constraints": None},
    "no_costs": {"costs": None},
}
"""What each flag of `configure` resets."""


@click.command()
@NAME
@click.option("--range", "reward_range", nargs=2, type=float, metavar="LOW HIGH", help="A wider range of rewards.")
@click.option("--half-life", type=Count(), help="Plays after which a reward counts half.")
@click.option("--no-half-life", is_flag=True, help="All rewards count alike.")
@click.option("--no-control", is_flag=True, help="Remove the control.")
@click.option("--no-sticky", is_flag=True, help="Keys do not keep their arms.")
@click.option("--no-window", is_flag=True, help="The first reward of a decision is final.")
@click.option("--no-guardrails", is_flag=True, help="Remove all guardrails.")
@click.option("--no-stop-rule", is_flag=True, help="Remove the stop rule.")
@click.option("--no-constraints", is_flag=True, help="Remove all rules.")
@click.option("--no-costs", is_flag=True, help="Remove all costs.")
@click.option("--expire-after", type=Duration(), help="When a decision without a reward expires.")
@click.option("--keep", "keep_decisions", type=Count(least=0), help="Rewarded decisions to keep.")
@with_options
@STORE
@AS_JSON
def configure(name: str, options: dict[str, Any], store: str | None, as_json: bool, **more: Any) -> None:
    """Change settings of the campaign NAME while it runs, and show them all. What was learned is kept.

    \b
    kofn campaign configure front --half-life 20000
    kofn campaign configure front --control mug --control pan --control-share 0.2
    kofn campaign configure front --rule "at most 1 of mug, cup" --rule "always tray"
    kofn campaign configure front --cost mug=0.5 --cost pan=2
    kofn campaign configure front --window 2d --metric-window 30d
    """
    cleared = [reset for flag, reset in CLEARED.items() if more.pop(flag)]
    changes = options | {key: value for key, value in more.items() if value is not None}
    for reset in cleared:
        changes |= reset
    found = open_campaign(name, store)
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
