"""Decision ids: where a decision is stored, and proof that this campaign handed it out.

An id is `<first>-<place>-<salt><proof>` in hexadecimal: the run, the place in it, a random number that the run keeps,
so that after a restored backup an id never means another decision, and a keyed hash of the three under the campaign's
secret, so that ids of one campaign say nothing of another's.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from kofn.core import UnknownDecision

_SHAPE = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{1,15})-([0-9a-f]{8})([0-9a-f]{16})")


class Place(NamedTuple):
    """Where a decision is: the run that starts at `first`, the place in it, and the run's salt."""

    first: int
    place: int
    salt: int


def write_id(secret: bytes, first: int, place: int, salt: int) -> str:
    """The id of a decision.

    >>> write_id(b"secret", 26, 3, 7)
    '1a-3-00000007b2ca33f543018a45'
    """
    where = f"{first:x}-{place:x}-{salt:08x}"
    return where + blake2b(where.encode(), digest_size=8, key=secret).hexdigest()


def read_id(secret: bytes, text: str) -> Place:
    """Where the decision of that id is, or UnknownDecision."""
    match = _SHAPE.fullmatch(text) if isinstance(text, str) else None
    if match:
        first, place, salt = (int(part, 16) for part in match.groups()[:3])
        if compare_digest(write_id(secret, first, place, salt), text):
            return Place(first, place, salt)
    raise UnknownDecision(f"{shown(text)} is not a decision of this campaign: give the id that decide() gave")


def shown(thing: object) -> str:
    """A thing as it came, cut to what a message can hold."""
    text = repr(thing)
    return text if len(text) <= 60 else f"{text[:57]}..."
