"""Tokens: who may use the service. The store has their hashes only, so whoever reads it cannot use them."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Literal

from sqlalchemy import func, select

from kofn.campaigns import Campaign, Store
from kofn.campaigns.schema import TOKENS
from kofn.core import BadInput
from kofn.responses import Response, moment

Scope = Literal["read", "full"]
PREFIX = "kofn_"
"""How a token begins, so that scanners find those that were published by mistake."""

_COLUMNS = [TOKENS.c[name] for name in ("id", "name", "scope", "campaign", "created", "used")]


@dataclass(frozen=True)
class Token(Response):
    """What is known of a token; not the token itself. `campaign` is the only one it is for, None for all."""

    id: int
    name: str
    scope: str
    campaign: str | None
    created: datetime
    used: datetime | None


def hashed(token: str) -> str:
    """What the store keeps. Tokens are long and random, so one round of a plain hash keeps them safe."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(store: Store, name: str, scope: Scope = "full", campaign: str | None = None) -> tuple[str, Token]:
    """A new token, which is shown this once, and what is known of it."""
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise BadInput(f"a token's name says who uses it, in 1 to 100 characters, not {name!r:.60}")
    if scope not in ("read", "full"):
        raise BadInput(f"a token's scope is read or full, not {scope!r}")
    if campaign is not None:
        Campaign.open(campaign, store)
    token = PREFIX + secrets.token_urlsafe(32)
    row = {"name": name, "scope": scope, "campaign": campaign, "created": store.clock(), "used": None}
    with store.write() as connection:
        key = connection.execute(TOKENS.insert().values(row | {"hash": hashed(token)})).inserted_primary_key
    assert key is not None
    return token, _token((key[0], *row.values()))


def tokens(store: Store) -> list[Token]:
    """All tokens, the oldest first."""
    with store.read() as connection:
        return [_token(row) for row in connection.execute(select(*_COLUMNS).order_by(TOKENS.c.id))]


def revoke_token(store: Store, id: int) -> Token:
    """Make a token useless; what was known of it."""
    with store.write() as connection:
        row = connection.execute(select(*_COLUMNS).where(TOKENS.c.id == id)).one_or_none()
        if row is None:
            raise BadInput(f"there is no token with the number {id}: `kofn token list` shows them")
        connection.execute(TOKENS.delete().where(TOKENS.c.id == id))
    return _token(row)


def find_token(store: Store, token: str) -> Token | None:
    """What is known of a token, None if nothing is."""
    with store.read() as connection:
        row = connection.execute(select(*_COLUMNS).where(TOKENS.c.hash == hashed(token))).one_or_none()
    return None if row is None else _token(row)


def any_token(store: Store) -> bool:
    """Whether there is a token at all."""
    with store.read() as connection:
        return bool(connection.execute(select(func.count()).select_from(TOKENS)).scalar_one())


def mark_used(store: Store, id: int) -> None:
    """Remember that a token was used at this moment."""
    with store.write() as connection:
        connection.execute(TOKENS.update().where(TOKENS.c.id == id).values(used=store.clock()))


def _token(row: Any) -> Token:
    id, name, scope, campaign, created, used = row
    return Token(int(id), name, scope, campaign, moment(created), None if used is None else moment(used))
