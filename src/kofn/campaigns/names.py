"""Names of campaigns and arms, keys, and ids of decisions: checked where they enter.

A decision id is `<number>-<salt><proof>` in hexadecimal: the decision's number, a random number that the store has
beside it, and a keyed hash of both under the campaign's secret. Because of the salt, an id never refers to another
decision after a backup has been restored. Because of the hash, a campaign accepts its own ids only.

A decision of a shipped subset may be made without storing it. Its id is `s<shipment>-<time>-<nonce><proof>`: a hash of
the subset that was shown, when (in milliseconds since 1970), and a random number. It is stored with its reward.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from hmac import compare_digest
from typing import NamedTuple

from kofn.core import BadInput, UnknownDecision
from kofn.core.checks import MAX_LENGTH, shown
from kofn.core.checks import campaign_name as campaign_name
from kofn.core.checks import is_campaign_name as is_campaign_name

MAX_ARMS = 1_000_000
"""Most arms of a campaign. Its record and the time of an update grow in proportion to the arms."""

_ID = re.compile(r"([0-9a-f]{1,15})-([0-9a-f]{8})([0-9a-f]{16})")
_UNSTORED_ID = re.compile(r"s([0-9a-f]{1,8})-([0-9a-f]{1,14})-([0-9a-f]{16})([0-9a-f]{16})")


def arm_name(name: object) -> str:
    """Return the name of an arm, or raise BadInput. Any printable text on one line is accepted."""
    if isinstance(name, str) and 0 < len(name) <= MAX_LENGTH and name.isprintable() and name == name.strip():
        return name
    raise BadInput(f"an arm's name must be one line of text, at most {MAX_LENGTH} characters; got {shown(name)}")


def arm_names(names: object) -> list[str]:
    """Return the names of all arms; a name that is listed twice is refused."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise BadInput(f"arms must be a list of names; got {shown(names)}")
    found = [arm_name(name) for name in names]
    if not found:
        raise BadInput(
            "a campaign must have more arms than k; got none: give their names (arms=, --arm or --arms-from)"
        )
    if len(found) > MAX_ARMS:
        raise BadInput(f"a campaign can have at most {MAX_ARMS:,} arms; got {len(found):,}")
    seen: set[str] = set()
    for name in found:
        if name in seen:
            raise BadInput(f"arm {name!r} is listed twice: give each arm its own name")
        seen.add(name)
    return found


def check_key(key: object) -> None:
    """Raise BadInput if this cannot be the key of a call."""
    if not (isinstance(key, str) and 0 < len(key) <= MAX_LENGTH and key.isprintable()):
        raise BadInput(f"a key must be text of 1 to {MAX_LENGTH} printable characters; got {shown(key)}")


class Place(NamedTuple):
    """Where a decision is stored: its number, and the salt beside it."""

    number: int
    salt: int


class UnstoredPlace(NamedTuple):
    """A decision that is not stored before its reward: a hash of the subset, when it was made, and a random number."""

    shipment: int
    milliseconds: int
    nonce: int

    @property
    def request(self) -> int:
        """The hash under which it is found once it is stored."""
        return self.nonce - (self.nonce >> 63 << 64)


def write_unstored_id(secret: bytes, place: UnstoredPlace) -> str:
    """Return the id of a decision that is not stored."""
    return _signed(secret, f"s{place.shipment:x}-{place.milliseconds:x}-{place.nonce:016x}")


def _signed(secret: bytes, where: str) -> str:
    return where + blake2b(where.encode(), digest_size=8, key=secret).hexdigest()


def write_id(secret: bytes, number: int, salt: int) -> str:
    """Return the id of a decision.

    >>> write_id(b"secret", 26, 7)
    '1a-000000073dcaedc3d3e81d29'
    """
    return _signed(secret, f"{number:x}-{salt:08x}")


def read_id(secret: bytes, text: object) -> Place | UnstoredPlace:
    """Return the place that an id names, or raise UnknownDecision."""
    for pattern, kind in ((_ID, Place), (_UNSTORED_ID, UnstoredPlace)):
        match = pattern.fullmatch(text) if isinstance(text, str) else None
        if match and compare_digest(_signed(secret, match[0][:-16]), match[0]):
            return kind(*(int(part, 16) for part in match.groups()[:-1]))
    raise UnknownDecision(f"{shown(text)} is not a decision of this campaign: pass the id that decide() returned")


def request_of(secret: bytes, key: str) -> int:
    """Return the hash under which the decisions of calls with this key are found."""
    return int.from_bytes(blake2b(key.encode(), digest_size=8, key=secret).digest(), signed=True)
