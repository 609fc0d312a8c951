"""Write the pages made from code, docs/reference/cli.md and docs/reference/policies/index.md: `make docs`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from kofn.cli import cli
from kofn.policies.registry import POLICIES

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
OPENING = """\
# The command line

This page is made from the help texts by `make docs`, and a test fails when it is out of date.

Whole numbers may be written as 1000000, 1_000_000, 1,000,000 or 1e6. Bad input is one line on stderr and exit code 2.
"""


def main() -> None:
    """Write the pages."""
    (REFERENCE / "cli.md").write_text(page(), encoding="utf-8")
    (REFERENCE / "policies" / "index.md").write_text(policies_page(), encoding="utf-8")


def page() -> str:
    """The whole page: `kofn` itself, then its commands by name."""
    return "\n".join([OPENING, *sections("kofn", cli)])


def sections(path: str, command: click.Command) -> Iterator[str]:
    """The section of a command, and those of its own commands after it."""
    yield section(path, command)
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from sections(f"{path} {name}", each)


def section(path: str, command: click.Command) -> str:
    """What a command does, how it is called, and what it takes."""
    parts = [f"## {path}", *paragraphs(command.help or ""), f"```text\n{usage(path, command)}\n```", options(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def paragraphs(text: str) -> Iterator[str]:
    """The paragraphs of a help text; those that click leaves alone (after a backspace) are programs."""
    for each in inspect.cleandoc(text).split("\n\n"):
        program = each.removeprefix("\b\n")
        if program == each:
            yield " ".join(each.split())
        else:
            yield "```sh\n" + "\n".join(map(shell_line, program.splitlines())) + "\n```"


def shell_line(line: str) -> str:
    """A line of an example, with its explanation as a comment."""
    program, gap, says = line.strip().partition("   ")
    return f"{program}{gap}{' ' * (len(says) - len(says.lstrip()))}# {says.strip()}" if says else program


def usage(path: str, command: click.Command) -> str:
    """The line that says what may come after what."""
    if isinstance(command, click.Group):
        return f"{path} [OPTIONS] COMMAND [ARGS]..."
    arguments = [argument(each) for each in command.params if isinstance(each, click.Argument)]
    return " ".join([path, "[OPTIONS]", *arguments])


def argument(each: click.Argument) -> str:
    """What is to be written in its place."""
    name = "|".join(map(str, each.type.choices)) if isinstance(each.type, click.Choice) else f"{each.name}".upper()
    return name if each.required else f"[{name}]"


def options(command: click.Command) -> str:
    """A table of the options; nothing when there are none."""
    rows = [row(each) for each in command.params if isinstance(each, click.Option)]
    return "\n".join(["| option | means |", "| --- | --- |", *rows]) if rows else ""


def row(option: click.Option) -> str:
    """One option: how it is written, what it means, and what happens without it."""
    names = ", ".join(f"`{name}`" for name in option.opts)
    kind = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    without = "; required" if option.required else f"; default {option.default}" if option.show_default else ""
    return f"| {names}{kind} | {(option.help or '').rstrip('.')}{without} |"


POLICIES_OPENING = """\
# The policies

This page is made from the policies by `make docs`, and a test fails when it is out of date. `kofn policies` prints the
same. [`kofn compare`](../../guides/compare.md) tells which is best on your problem.
[Adding a policy](../../guides/adding-a-policy.md) shows how to add one.

A policy that needs more than one number per play says so: `best` (to be told the best subset), `arms` (to see what each
arm earned) or `fewer` (to play fewer than K arms).

| policy | what it does | horizon | memory | also needs |
| --- | --- | --- | --- | --- |
"""


def policies_page() -> str:
    """All policies, a row each, with a link to the page of each."""
    return POLICIES_OPENING + "".join(map(policy_row, sorted(POLICIES)))


def policy_row(name: str) -> str:
    """One policy: its page, the first line of its docstring, and what it needs."""
    policy = POLICIES[name]
    says = (policy.__doc__ or "").strip().splitlines()[0].rstrip(".")
    horizon = "needs it" if policy.needs_horizon else "any"
    memory = "O(N)" if policy.linear_memory else "all subsets" if policy.keeps_subsets else "O(N^2)"
    return f"| [`{name}`]({name}.md) | {says} | {horizon} | {memory} | {', '.join(sorted(policy.needs))} |\n"


if __name__ == "__main__":
    main()
