"""API tokens. The store keeps only their hashes, so reading the store does not reveal a token."""

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
"""Prefix of every token, so that secret scanners recognize leaked ones."""

_COLUMNS = [TOKENS.c[name] for name in ("id", "name", "scope", "campaign", "created", "used")]


@dataclass(frozen=True)
class Token(Response):
    """What the store knows about a token, without the token itself. `campaign` is None for all campaigns."""

    id: int
    name: str
    scope: str
    campaign: str | None
    created: datetime
    used: datetime | None


def token_hash(token: str) -> str:
    """Return the hash that the store keeps. One round of SHA-256 suffices, because tokens are long and random."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(store: Store, name: str, scope: Scope = "full", campaign: str | None = None) -> tuple[str, Token]:
    """Create a token. Return the token, which cannot be shown again, and what the store knows about it."""
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise BadInput(f"the name of a token must have 1 to 100 printable characters; got {name!r:.60}")
    if scope not in ("read", "full"):
        raise BadInput(f"the scope of a token must be read or full; got {scope!r}")
    if campaign is not None:
        Campaign.open(campaign, store)
    token = PREFIX + secrets.token_urlsafe(32)
    row = {"name": name, "scope": scope, "campaign": campaign, "created": store.clock(), "used": None}
    with store.write() as connection:
        key = connection.execute(TOKENS.insert().values(row | {"hash": token_hash(token)})).inserted_primary_key
    assert key is not None
    return token, _token((key[0], *row.values()))


def tokens(store: Store) -> list[Token]:
    """Return all tokens, oldest first."""
    with store.read() as connection:
        return [_token(row) for row in connection.execute(select(*_COLUMNS).order_by(TOKENS.c.id))]


def revoke_token(store: Store, id: int) -> Token:
    """Delete a token. Return what the store knew about it."""
    with store.write() as connection:
        row = connection.execute(select(*_COLUMNS).where(TOKENS.c.id == id)).one_or_none()
        if row is None:
            raise BadInput(f"there is no token with the number {id}: list the tokens with `kofn token list`")
        connection.execute(TOKENS.delete().where(TOKENS.c.id == id))
    return _token(row)


def find_token(store: Store, token: str) -> Token | None:
    """Return what the store knows about a token, or None if it is unknown or revoked."""
    with store.read() as connection:
        row = connection.execute(select(*_COLUMNS).where(TOKENS.c.hash == token_hash(token))).one_or_none()
    return None if row is None else _token(row)


def has_tokens(store: Store) -> bool:
    """Return whether the store has any token."""
    with store.read() as connection:
        return bool(connection.execute(select(func.count()).select_from(TOKENS)).scalar_one())


def mark_used(store: Store, id: int) -> None:
    """Record the current time as the last use of a token."""
    with store.write() as connection:
        connection.execute(TOKENS.update().where(TOKENS.c.id == id).values(used=store.clock()))


def _token(row: Any) -> Token:
    id, name, scope, campaign, created, used = row
    return Token(int(id), name, scope, campaign, moment(created), None if used is None else moment(used))
