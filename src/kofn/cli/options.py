"""Options that several commands share."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click


def help_if_alone(context: click.Context) -> None:
    """Print the help of a group that is called without a command, and exit with 2."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
        context.exit(2)


class Count(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A whole number from `least` to `most`, also written as 1e6, 1_000_000 or 1,000,000."""

    name = "count"

    def __init__(self, least: int = 1, most: int | None = None) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number, or fail with an error that names the option."""
        plain = str(value).strip().replace("_", "")
        if re.fullmatch(r"\d{1,3}(,\d{3})+", plain):  # 2,5 is not 25
            plain = plain.replace(",", "")
        try:
            number = int(plain) if plain.isdecimal() else float(plain)
            if not (number >= self.least and number == int(number)):
                raise ValueError
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a whole number of at least {self.least}, such as 24 or 1e6", param, ctx)
        if self.most is not None and number > self.most:
            self.fail(f"{value!r} is too large: the maximum is {self.most:.1e}", param, ctx)
        return int(number)


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A duration such as 30s, 15m, 12h or 7d, converted to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; fail with an error that names the option."""
        from kofn.campaigns.settings import duration
        from kofn.core import BadInput

        try:
            return duration("it", value)
        except BadInput:
            self.fail(f"{value!r} is not a duration such as 30s, 15m, 12h or 7d", param, ctx)


MAX_PLAYS = 2**62
"""The longest horizon, as in `kofn.core.checks`; a number here, so that `--help` does not import NumPy."""
HORIZON = Count(most=MAX_PLAYS)

STORE = click.option(
    "--store",
    metavar="URL",
    help="URL of the store: sqlite:///shop.db, postgresql://...  [default: KOFN_STORE, else sqlite:///kofn.db]",
)
PICTURE = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the picture to OUT.png and OUT.svg. Default: the folder out; no picture with --json or --csv.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
WORKERS = click.option("--workers", type=Count(), help="Number of processes on this machine. Default: all cores.")
BACKEND = click.option(
    "--backend",
    default="local",
    show_default=True,
    help="Where runs are computed: local, dask, or dask:ADDRESS of a running cluster (dask:tcp://10.0.0.1:8786).",
)
ARCHIVE = click.option(
    "--archive",
    type=click.Path(path_type=Path),
    help="Archive finished runs in this folder; archived runs are not repeated.",
)
TAKEN = {"name": "the argument POLICY", "n_arms": "--arms", "k": "--k", "horizon": "--horizon", "seed": "--seed"}
SEED = click.option(
    "--seed", type=Count(least=0), default=2021, show_default=True, help="The same seed gives the same results."
)


def setting(text: str) -> tuple[str, Any]:
    """Split NAME=VALUE into a name and a value. The value is parsed as JSON if possible, else it is text."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--set takes NAME=VALUE, such as resolution=0.05; got {text!r}")
    if name in TAKEN:
        raise click.UsageError(f"--set is for the policy's own parameters: use {TAKEN[name]} for {name}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
