"""Write what pages have from code and from results/: `make docs`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from kofn.cli import cli
from kofn.policies.registry import POLICIES
from tools import results_in_pages

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
    results_in_pages.main()


def page() -> str:
    """Return the whole page: `kofn` itself, then its commands by name."""
    return "\n".join([OPENING, *sections("kofn", cli)])


def sections(path: str, command: click.Command) -> Iterator[str]:
    """Yield the section of a command, then those of its subcommands."""
    yield section(path, command)
    if isinstance(command, click.Group):
        for name, each in sorted(command.commands.items()):
            yield from sections(f"{path} {name}", each)


def section(path: str, command: click.Command) -> str:
    """Return the section of one command: description, usage and options."""
    parts = [f"## {path}", *paragraphs(command.help or ""), f"```text\n{usage(path, command)}\n```", options(command)]
    return "\n\n".join(part for part in parts if part) + "\n"


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a help text; those that click does not wrap (after a backspace) are programs."""
    for each in inspect.cleandoc(text).split("\n\n"):
        program = each.removeprefix("\b\n")
        if program == each:
            yield " ".join(each.split())
        else:
            yield "```sh\n" + "\n".join(map(shell_line, program.splitlines())) + "\n```"


def shell_line(line: str) -> str:
    """Return a line of an example, with its explanation as a comment."""
    program, gap, text = line.strip().partition("   ")
    return f"{program}{gap}{' ' * (len(text) - len(text.lstrip()))}# {text.strip()}" if text else program


def usage(path: str, command: click.Command) -> str:
    """Return the usage line of a command."""
    if isinstance(command, click.Group):
        return f"{path} [OPTIONS] COMMAND [ARGS]..."
    arguments = [argument(each) for each in command.params if isinstance(each, click.Argument)]
    return " ".join([path, "[OPTIONS]", *arguments])


def argument(each: click.Argument) -> str:
    """Return an argument as the usage line shows it."""
    name = "|".join(map(str, each.type.choices)) if isinstance(each.type, click.Choice) else f"{each.name}".upper()
    return name if each.required else f"[{name}]"


def options(command: click.Command) -> str:
    """Return a table of the options; an empty text if there are none."""
    rows = [row(each) for each in command.params if isinstance(each, click.Option)]
    return "\n".join(["| option | means |", "| --- | --- |", *rows]) if rows else ""


def row(option: click.Option) -> str:
    """Return one option as a row of the table: its names, its meaning and its default."""
    names = ", ".join(f"`{name}`" for name in option.opts)
    kind = "" if option.is_flag else f" {option.metavar or option.type.name.upper()}"
    without = "; required" if option.required else f"; default {option.default}" if option.show_default else ""
    return f"| {names}{kind} | {(option.help or '').rstrip('.')}{without} |"


POLICIES_OPENING = """\
# The policies

This page is made from the policies by `make docs`, and a test fails when it is out of date. `kofn policies` prints the
same. [`kofn compare`](../../guides/compare.md) shows which policy is best on your problem.
[Adding a policy](../../guides/adding-a-policy.md) shows how to add one.

Each page names the paper and says which sources could be read: the paper in full, its abstract, the authors' code, or
others that describe it. Where the paper itself was not read, a policy follows the description, and its page says so.

The last column lists what a policy needs beyond one number per play: `best` (the best subset), `arms` (the reward of
each arm) or `fewer` (plays of fewer than K arms).

| policy | what it does | horizon | memory | also needs |
| --- | --- | --- | --- | --- |
"""


def policies_page() -> str:
    """Return the page of all policies: a table with a link to the page of each."""
    return POLICIES_OPENING + "".join(map(policy_row, sorted(POLICIES)))


def policy_row(name: str) -> str:
    """Return the row of one policy: its page, the first line of its docstring, and what it needs."""
    policy = POLICIES[name]
    summary = (policy.__doc__ or "").strip().splitlines()[0].rstrip(".")
    horizon = "needs it" if policy.needs_horizon else "any"
    memory = "O(N)" if policy.linear_memory else "all subsets" if policy.keeps_subsets else "O(N^2)"
    return f"| [`{name}`]({name}.md) | {summary} | {horizon} | {memory} | {', '.join(sorted(policy.needs))} |\n"


if __name__ == "__main__":
    main()
