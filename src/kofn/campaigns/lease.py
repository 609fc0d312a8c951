"""A lease: work that one of all processes on a store does at a time."""

from __future__ import annotations

import secrets

from sqlalchemy import select, text

from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import SETTINGS

LEASE_SECONDS = 60.0
"""Default of the seconds after which another process takes over from one that has died. Lower: sooner, and more writes,
because a lease is renewed after half of this time. The clocks of all machines must differ by less."""

_INSERT = text(f"INSERT INTO {SETTINGS.name} (name, value) VALUES (:name, :value) ON CONFLICT (name) DO NOTHING")


class Lease:
    """The right to do some work, which one process has at a time. The store has who, and until when."""

    def __init__(self, store: Store, name: str, seconds: float = LEASE_SECONDS) -> None:
        self._store, self._name, self._owner = store, f"lease of {name}", secrets.token_hex(8)
        self._seconds = seconds
        self._until = 0.0

    def held(self) -> bool:
        """Return whether this process has the lease. Take it if it is free, and renew it in time."""
        now = self._store.clock()
        if self._seconds / 2 < self._until - now <= self._seconds:  # more: the clock was set back, others take over
            return True
        self._until = 0.0
        named = SETTINGS.c.name == self._name
        with self._store.read() as connection:
            before = connection.execute(select(SETTINGS.c.value).where(named)).scalar()
        owner, _, until = (before or "").partition(" ")
        if before and owner != self._owner and now < float(until) <= now + 2 * self._seconds:
            return False
        until_now = now + self._seconds
        if self._swap(before, f"{self._owner} {until_now!r}"):
            self._until = until_now
        return self._until > 0.0

    def release(self) -> None:
        """Let another process do the work at once."""
        self._until = 0.0
        ours = SETTINGS.c.name == self._name, SETTINGS.c.value.startswith(self._owner)
        with self._store.write() as connection:
            connection.execute(SETTINGS.delete().where(*ours))

    def _swap(self, before: str | None, value: str) -> bool:
        """Write a value if the store still has the one before; return whether it did."""
        with self._store.write() as connection:
            if before is None:
                return connection.execute(_INSERT, {"name": self._name, "value": value}).rowcount == 1
            same = SETTINGS.c.name == self._name, SETTINGS.c.value == before
            return connection.execute(SETTINGS.update().where(*same).values(value=value)).rowcount == 1
