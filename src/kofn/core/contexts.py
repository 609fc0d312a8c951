"""Contexts: what is known about who a subset is for, as a few discrete attributes, and the segments that they make.

A context is a dict such as {"device": "phone", "country": "de"}. A segment is all contexts with the same values; its
key is the context as JSON, with the names in order. Numeric features of visitors would enter here too: as attributes
whose values have numbers beside their names, so that the model (policies/contextual) can compare them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from kofn.core.checks import shown
from kofn.core.errors import BadInput

MISSING, OTHER = "(missing)", "(other)"
"""The value of an attribute that a context does not have, and of all values that share a segment."""

MOST_SEGMENTS, MOST_WITH_OTHER = 64, 96
"""Most separate segments: once there are MOST_SEGMENTS, values that were not seen before count as OTHER; once there are
MOST_WITH_OTHER, new combinations of values are all one segment. Higher: more memory, and slower."""

MOST_ATTRIBUTES, LONGEST = 8, 100
"""Most attributes of a context, and the longest name or value in characters."""


class Attributes:
    """Which attributes a context has, and which values.

    `declared` is a dict of names and lists of values, or a list of names, whose values are then learned from the plays;
    None takes all names and values that are seen. Values that are not declared count as OTHER.

    >>> attributes = Attributes({"device": ["phone", "desktop"], "country": None})
    >>> attributes.complete({"device": "fridge"})
    {'country': '(missing)', 'device': '(other)'}
    >>> attributes.key({"device": "phone", "country": "de"}, known=())
    '{"country":"de","device":"phone"}'
    """

    def __init__(self, declared: Mapping[str, Sequence[str] | None] | Sequence[str] | None = None) -> None:
        self._values: dict[str, tuple[str, ...] | None] | None = None
        if declared is not None:
            self._values = _declared(declared)

    @property
    def are_closed(self) -> bool:
        """Whether all names and all values are declared, so that nobody can invent segments."""
        return self._values is not None and None not in self._values.values()

    def to_dict(self) -> dict[str, list[str] | None] | None:
        """Return the declaration as plain values."""
        if self._values is None:
            return None
        return {name: None if values is None else list(values) for name, values in self._values.items()}

    def complete(self, context: Mapping[str, Any] | None) -> dict[str, str]:
        """Return the context with its names in order, all values as text, and a value for each declared attribute."""
        given = _checked(context)
        if self._values is None:
            return given
        if unknown := sorted(given.keys() - self._values.keys()):
            raise BadInput(
                f"the context has {', '.join(unknown)}, which is not declared; the attributes are: "
                f"{', '.join(self._values) or 'none'}"
            )
        return {name: _value(given.get(name, MISSING), self._values[name]) for name in sorted(self._values)}

    def key(self, context: Mapping[str, Any] | None, known: Collection[str]) -> str:
        """Return the key of the segment that the context belongs to; `known` are the keys of all segments so far."""
        return bounded(key_of(self.complete(context)), known)


def key_of(context: Mapping[str, str]) -> str:
    """Return the key of the segment of a complete context."""
    return json.dumps(dict(sorted(context.items())), separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=4096)
def _context(key: str) -> dict[str, str]:
    found = json.loads(key)
    if not isinstance(found, dict) or key_of(_checked(found)) != key:
        raise BadInput(f"a segment's key must be a context as kofn writes it; got {shown(key)}")
    return found


def context_of(key: str) -> dict[str, str]:
    """Return the context of a segment's key, or raise BadInput."""
    try:
        return dict(_context(key))
    except (TypeError, ValueError):
        raise BadInput(f"a segment's key must be a context as JSON; got {shown(key)}") from None


def words_of(key: str) -> str:
    """Return the segment for people to read.

    >>> words_of('{"country":"de","device":"phone"}')
    'country de, device phone'
    """
    return ", ".join(f"{name} {value}" for name, value in context_of(key).items()) or "everyone"


def bounded(key: str, known: Collection[str]) -> str:
    """Return the key itself, or the key of a segment that rare values share; this limits the number of segments."""
    if key in known or len(known) < MOST_SEGMENTS:
        return key
    shared = with_other(key, known)
    if shared in known or len(known) < MOST_WITH_OTHER:
        return shared
    return "{}"


def with_other(key: str, known: Collection[str]) -> str:
    """Return the key with OTHER in place of each value that no known segment has."""
    seen = {pair for each in known for pair in context_of(each).items()}
    return key_of({name: value if (name, value) in seen else OTHER for name, value in context_of(key).items()})


def _declared(declared: Any) -> dict[str, tuple[str, ...] | None]:
    if isinstance(declared, str) or not isinstance(declared, Mapping | Sequence):
        raise BadInput(
            f"attributes must be a dict of names and lists of values, or a list of names; got {shown(declared)}"
        )
    pairs = declared.items() if isinstance(declared, Mapping) else ((name, None) for name in declared)
    found: dict[str, tuple[str, ...] | None] = {}
    for name, values in pairs:
        name = _text("the name of an attribute", name)
        if name in found:
            raise BadInput(f"the attribute {name!r} is declared twice")
        found[name] = None if values is None else _values(name, values)
    if len(found) > MOST_ATTRIBUTES:
        raise BadInput(f"there can be at most {MOST_ATTRIBUTES} attributes; got {len(found)}")
    return found


def _values(name: str, values: Any) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise BadInput(f"the values of the attribute {name!r} must be a list; got {shown(values)}")
    found = tuple(_text(f"a value of {name!r}", value) for value in values)
    if not found or len(set(found)) < len(found):
        raise BadInput(f"the attribute {name!r} must have at least one value, and none twice; got {shown(found)}")
    return found


def _value(value: str, declared: tuple[str, ...] | None) -> str:
    return value if declared is None or value in declared or value == MISSING else OTHER


def _checked(context: Any) -> dict[str, str]:
    """Return the context with names in order and values as text, or raise."""
    if context is None:
        return {}
    if not isinstance(context, Mapping):
        raise BadInput(f"context must be a dict of attributes and their values; got {shown(context)}")
    if len(context) > MOST_ATTRIBUTES:
        raise BadInput(f"a context can have at most {MOST_ATTRIBUTES} attributes; got {len(context)}")
    names = [_text("the name of an attribute", name) for name in context]
    return {name: _text(f"the value of {name!r}", context[name]) for name in sorted(names)}


def _text(what: str, value: Any) -> str:
    if value is None:
        return MISSING
    if isinstance(value, bool | int):
        value = str(value).lower()
    if not isinstance(value, str):
        raise BadInput(
            f"{what} must be text, a whole number or true or false; got {shown(value)}. For a number such as an age, "
            "give a class, such as '18-25'"
        )
    if not value or len(value) > LONGEST or not value.isprintable():
        raise BadInput(f"{what} must be 1 to {LONGEST} printable characters; got {shown(value)}")
    return value
