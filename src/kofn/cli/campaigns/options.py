"""Options and arguments of the `kofn campaign` commands."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from kofn.cli.options import Duration
from kofn.cli.rules import RULES, all_rules, rules_file

if TYPE_CHECKING:
    from kofn.campaigns import Campaign


NAME = click.argument("name")


def open_campaign(name: str, store: str | None) -> Campaign:
    """Return the campaign of that name in the store."""
    from kofn.campaigns import Campaign

    return Campaign.open(name, store=store)


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


OPTIONS = (
    click.option("--control", "control", multiple=True, metavar="ARM", help="Arm of the control group; repeatable."),
    click.option("--uniform-control", is_flag=True, help="The control group gets random arms."),
    click.option("--control-share", type=float, help="Share of the decisions for the control.  [default: 0.1]"),
    click.option("--sticky", type=Duration(), help="How long a key keeps its arms, such as 30d."),
    click.option(
        "--window",
        type=Duration(),
        help="How long after a decision its events count, such as 30m. Without it, the first reward is final.",
    ),
    click.option("--silence", type=float, help="Reward of a decision without events in its window.  [default: 0]"),
    click.option(
        "--guardrail",
        "guardrails",
        multiple=True,
        metavar="RULE",
        help='Limit of a metric beside the control\'s, such as "returns<=+2%"; repeatable.',
    ),
    click.option(
        "--metric-window",
        type=Duration(),
        help="How long after a decision its metrics count.  [default: as the window, else until it expires]",
    ),
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

_OPTION_NAMES = (
    *("control_share", "sticky", "window", "silence", "metric_window", "outside", "stop_when", "ship_when_ready"),
    *("breaker", "unit"),
)


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a campaign, as one argument `options`."""

    @wraps(command)
    def wrapped(**given: Any) -> None:
        uniform, control = given.pop("uniform_control"), given.pop("control")
        if uniform and control:
            raise click.UsageError("give --control or --uniform-control, not both")
        options = {name: given.pop(name) for name in _OPTION_NAMES}
        options["costs"] = dict(given.pop("costs")) or None
        options["guardrails"] = list(given.pop("guardrails")) or None
        options["constraints"] = all_rules(given.pop("rules"), given.pop("rules_file"))
        options["control"] = "uniform" if uniform else list(control) or None
        command(options={name: value for name, value in options.items() if value is not None}, **given)

    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped
