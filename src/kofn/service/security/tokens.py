"""API tokens. The store keeps only their hashes, so reading the store does not reveal a token."""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal, get_args

from sqlalchemy import func, select, text

from kofn.campaigns import Campaign, Store, store_at
from kofn.campaigns.store.schema import SETTINGS, TOKENS
from kofn.core import BadInput
from kofn.core.responses import Response, moment

Scope = Literal["browser", "read", "decide", "full"]
SCOPES: tuple[str, ...] = get_args(Scope)
"""What a token may do. `browser`: make decisions, report rewards, events and metrics, in one campaign, read nothing;
`decide`: the same and totals, and read; `full`: everything."""

PREFIX = "kofn_"
"""Prefix of every token, so that secret scanners recognize leaked ones."""

MAX_LIFETIME = timedelta(days=36_500)
"""Longest lifetime of a token that expires. A longer one is taken for a mistake."""

_COLUMNS = [TOKENS.c[name] for name in ("id", "name", "scope", "campaign", "created", "used", "expires")]


@dataclass(frozen=True)
class Token(Response):
    """What the store knows about a token, without the token itself. `campaign` is None for all campaigns."""

    id: int
    name: str
    scope: str
    campaign: str | None
    created: datetime
    used: datetime | None
    expires: datetime | None = None


def new_token() -> str:
    """Return a random token that no store knows."""
    return PREFIX + secrets.token_urlsafe(32)


def token_hash(token: str) -> str:
    """Return the hash that the store keeps. One round of SHA-256 suffices, because tokens are long and random."""
    return sha256(token.encode("utf-8", "surrogateescape")).hexdigest()


def create_token(
    store: Store | str | None,
    name: str,
    scope: Scope = "full",
    campaign: str | None = None,
    *,
    expires_after: timedelta | float | None = None,
) -> tuple[str, Token]:
    """Create a token. Return the token, which cannot be shown again, and what the store knows about it.

    `store` is a store or its URL; one that does not exist is created, unless the token is refused or limited to a
    campaign. `expires_after` is a timedelta or a number of seconds; by default the token does not expire. From the
    first token on, the store requires tokens, also when all have been revoked.
    """
    if not (isinstance(name, str) and 0 < len(name) <= 100 and name.isprintable()):
        raise BadInput(f"the name of a token must have 1 to 100 printable characters; got {name!r:.60}")
    if scope not in SCOPES:
        raise BadInput(f"the scope of a token must be browser, read, decide or full; got {scope!r}")
    if scope == "browser" and campaign is None:
        raise BadInput("a token with scope browser must be limited to one campaign: everyone who opens the page has it")
    lifetime = None if expires_after is None else _lifetime(expires_after)
    store = store_at(store, create=campaign is None)
    if campaign is not None:
        Campaign.open(campaign, store)
    now, token = store.clock(), new_token()
    expires = None if lifetime is None else now + lifetime
    row = {"name": name, "scope": scope, "campaign": campaign, "created": now, "used": None, "expires": expires}
    with store.write() as connection:
        key = connection.execute(TOKENS.insert().values(row | {"hash": token_hash(token)})).inserted_primary_key
        connection.execute(
            text("INSERT INTO kofn_settings (name, value) VALUES ('tokens', 'required') ON CONFLICT (name) DO NOTHING")
        )
    assert key is not None
    return token, _token((key[0], *row.values()))


def _lifetime(given: timedelta | float) -> float:
    seconds = given.total_seconds() if isinstance(given, timedelta) else given
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not known or not (math.isfinite(seconds) and 0 < seconds <= MAX_LIFETIME.total_seconds()):
        raise BadInput(f"a token must expire after a positive time of at most 100 years; got {given!r:.60}")
    return float(seconds)


def tokens(store: Store) -> list[Token]:
    """Return all tokens, oldest first. Expired tokens are listed until they are revoked."""
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
    """Return what the store knows about a token, or None if it is unknown, revoked or expired."""
    return find_hash(store, token_hash(token))


def find_hash(store: Store, hashed: str) -> Token | None:
    """Return what the store knows about the token with this hash, or None if it is not valid."""
    with store.read() as connection:
        row = connection.execute(select(*_COLUMNS).where(TOKENS.c.hash == hashed)).one_or_none()
    found = None if row is None else _token(row)
    return None if found is None or has_expired(found, store.clock()) else found


def has_expired(token: Token, now: float) -> bool:
    """Return whether a token is no longer valid at a time, in seconds since 1970."""
    return token.expires is not None and token.expires.timestamp() <= now


def has_tokens(store: Store) -> bool:
    """Return whether the store has any token."""
    with store.read() as connection:
        return bool(connection.execute(select(func.count()).select_from(TOKENS)).scalar_one())


def tokens_required(store: Store) -> bool:
    """Return whether the store has or once had a token."""
    with store.read() as connection:
        setting = connection.execute(select(SETTINGS.c.value).where(SETTINGS.c.name == "tokens")).scalar()
    return setting == "required" or has_tokens(store)


def mark_used(store: Store, id: int) -> None:
    """Record the current time as the last use of a token."""
    with store.write() as connection:
        connection.execute(TOKENS.update().where(TOKENS.c.id == id).values(used=store.clock()))


def _token(row: Any) -> Token:
    id, name, scope, campaign, created, used, expires = row
    used, expires = (None if at is None else moment(at) for at in (used, expires))
    return Token(int(id), name, scope, campaign, moment(created), used, expires)
