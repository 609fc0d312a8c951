"""Options that several commands share."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click


class Count(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A whole number of at least `least`, also as 1e6, 1_000_000 or 1,000,000."""

    name = "count"

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number, or click's error that names the option."""
        plain = str(value).strip().replace("_", "")
        if re.fullmatch(r"\d{1,3}(,\d{3})+", plain):  # 2,5 is not 25
            plain = plain.replace(",", "")
        try:
            number = int(plain) if plain.isdecimal() else float(plain)
            if number >= self.least and number == int(number):
                return int(number)
        except (ValueError, OverflowError):
            pass
        return self.fail(f"{value!r} is not a whole number of at least {self.least}, such as 24 or 1e6", param, ctx)


PICTURE = click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write the picture to OUT.png and OUT.svg; into the folder out by default, but not beside JSON or CSV.",
)
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
WORKERS = click.option("--workers", type=Count(), help="Processes to use on this machine; all cores by default.")
BACKEND = click.option(
    "--backend",
    default="local",
    show_default=True,
    help="Where runs are done: local, dask, or dask:ADDRESS of a running cluster, such as dask:tcp://10.0.0.1:8786.",
)
STORE = click.option(
    "--store",
    type=click.Path(path_type=Path),
    help="Keep the runs in this folder as they come: what is there is not done again.",
)
PROBLEMS = "mean, max, min, cross-selling, close, rare, dominant, equal, likely-min, threshold or correlated"
APPLICATIONS = (
    "karate, influence, influence-threshold, storage, interactions, recommendations or catalogue, of the applications"
)
TAKEN = {"name": "the argument POLICY", "n_arms": "--arms", "k": "--k", "horizon": "--horizon", "seed": "--seed"}
SEED = click.option(
    "--seed", type=Count(least=0), default=2021, show_default=True, help="The same seed gives the same numbers."
)


def setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE as a name and a value, which is JSON where it can be read as such."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--set takes NAME=VALUE, such as resolution=0.05, not {text!r}")
    if name in TAKEN:
        raise click.UsageError(f"--set is for the policy's own parameters: give {name} by {TAKEN[name]}")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
