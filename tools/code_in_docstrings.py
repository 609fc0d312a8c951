"""A griffe extension for the site: show the code in docstrings (doctests, and blocks after `::`) as code."""

from __future__ import annotations

import ast
import re
from textwrap import dedent
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*\n?(?:^\S.*\n?)*", re.MULTILINE)
"""A doctest; it ends at the first blank line."""

BLOCK = re.compile(r"::\n\n((?:(?: +.*)?\n)*(?: +.*))", re.MULTILINE)
"""An indented block after `::`; it ends before the first line that is not indented."""


class CodeInDocstrings(Extension):
    """Put every doctest and every block after `::` into a fenced block."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that griffe has loaded."""
        if obj.docstring:
            obj.docstring.value = with_fences(obj.docstring.value)


def with_fences(docstring: str) -> str:
    """Return a docstring whose code is in fenced blocks."""
    docstring = BLOCK.sub(lambda found: f":\n\n{fenced(dedent(found[1]), language(dedent(found[1])))}", docstring)
    return DOCTEST.sub(lambda found: fenced(found[0], "pycon"), docstring)


def fenced(code: str, language: str) -> str:
    """Return code as a fenced block."""
    return f"```{language}\n{code.rstrip()}\n```\n"


def language(block: str) -> str:
    """Return the language of a block: Python, if it parses."""
    try:
        ast.parse(block)
    except SyntaxError:
        return "text"
    return "python"
