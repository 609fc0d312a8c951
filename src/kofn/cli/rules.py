"""The options for constraints: rules as text, and files of rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import IO, Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


class RuleType(click.ParamType):  # type: ignore[type-arg]  # generic since click 8.4 only
    """A rule such as "at most 1 of mug, cup", converted to its plain values."""

    name = "rule"
    counted = re.compile(r"(at most|at least) (\d+) of (.+)")
    others = re.compile(r"(always|never together|only together|never) (.+)")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        """Return the rule; fail with an error that lists the forms."""
        text = str(value).strip()
        if match := self.counted.fullmatch(text):
            return {"rule": match[1].replace(" ", "-"), "count": int(match[2]), "arms": _listed(match[3])}
        if not (match := self.others.fullmatch(text)):
            forms = "at most 2 of A, B; at least 1 of A, B; never together A, B; only together A, B; always A; never A"
            self.fail(f"{value!r} is not a rule. Rules: {forms}. Others: --constraints with a JSON file", param, ctx)
        return {"rule": match[1].replace(" ", "-"), "arms": _listed(match[2])}


def _listed(arms: str) -> list[str]:
    return [arm.strip() for arm in arms.split(",")]


RULES = click.option(
    "--rule",
    "rules",
    multiple=True,
    type=RuleType(),
    metavar="RULE",
    help='Rule that every subset obeys, such as "at most 1 of mug, cup" or "always tray"; repeatable.',
)


def rules_file(like: str) -> Callable[[Command], Command]:
    """Return the option for a file of rules; `like` says what such a file looks like."""
    return click.option("--constraints", "rules_file", type=click.File(encoding="utf-8"), help=f"{like}; - is stdin.")


def all_rules(rules: tuple[dict[str, Any], ...], file: IO[str] | None) -> list[Any] | None:
    """Return the rules of both options; None if there are none."""
    return [*rules, *_rules_of(file)] or None


def _rules_of(file: IO[str] | None) -> list[Any]:
    """Return the rules of a JSON file."""
    if file is None:
        return []
    try:
        found = json.load(file)
    except ValueError as why:
        raise click.UsageError(f"--constraints must be a JSON file with a list of rules: {why}") from None
    if not isinstance(found, list):
        raise click.UsageError(f"--constraints must be a JSON file with a list of rules; got {found!r:.60}")
    return found
