"""A griffe extension for the site: show the doctests of docstrings as code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

DOCTEST = re.compile(r"^>>> .*\n?(?:^\S.*\n?)*", re.MULTILINE)


class DoctestsAsCode(Extension):
    """Put every doctest of a docstring into a fenced block, which ends at the first blank line."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Change the docstring of an object that griffe has loaded."""
        if obj.docstring:
            obj.docstring.value = DOCTEST.sub(lambda found: fenced(found[0]), obj.docstring.value)


def fenced(doctest: str) -> str:
    """Return a doctest as a fenced block."""
    return f"```pycon\n{doctest.rstrip()}\n```\n"
