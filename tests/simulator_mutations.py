"""Mends that can be taken out again, to see whether the simulator finds the defect: `--without NAME`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kofn.campaigns import expiry, reward, transaction
from kofn.campaigns.names import DecisionPlace, read_id
from kofn.campaigns.rows import PolicySnapshot, Roster
from kofn.campaigns.transaction import Transaction

Mutation = Callable[[], Any]


class _AnySalt(int):
    """A salt that every batch has."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True


def _salts_are_not_compared() -> Any:
    """A reward of a decision that a restored backup does not have is counted for another decision."""

    def read(secret: bytes, text: str) -> DecisionPlace:
        place = read_id(secret, text)
        return place._replace(salt=_AnySalt(place.salt))

    return patch.object(reward, "read_id", read)


def _rewards_are_recorded_again() -> Any:
    """A repeated reward is treated as new."""

    def new_rewards(tx: Any, batches: Any, rewards: Any) -> Any:
        return [(place, value) for place, (_, value) in rewards.items() if place.first in batches]

    return patch.object(reward, "_new_rewards", new_rewards)


def _totals_are_recorded_again() -> Any:
    """The key of a total is not looked up."""
    return patch.object(reward, "_total_under", lambda tx, key: None)


@contextmanager
def _policies_are_cached_before_the_commit() -> Iterator[None]:
    """A policy is cached although its transaction may be rolled back."""
    found: Any = Transaction.snapshot

    def keep(tx: Transaction, snapshot: PolicySnapshot) -> None:
        found.fset(tx, snapshot)
        tx.store.remember(tx.id, snapshot)

    with patch.object(Transaction, "snapshot", found.setter(keep)):
        yield


@contextmanager
def _arms_are_never_read_again() -> Iterator[None]:
    """The cached names of arms are used although another process has changed the arms."""
    found: Any = Transaction.roster

    def roster(tx: Transaction) -> Roster:
        cached = tx.store.cache.get(tx.id)
        kept = cached.roster if isinstance(cached, PolicySnapshot) else cached
        return kept if isinstance(kept, Roster) and tx._roster is None else found.fget(tx)

    with patch.object(Transaction, "roster", property(roster)):
        yield


def _rewards_are_committed_early() -> Any:
    """Rewards are committed before the campaign's row, in a transaction of their own."""
    found = reward._record

    def record(tx: Transaction, batches: Any, new: Any) -> None:
        found(tx, batches, new)
        tx.connection.exec_driver_sql("COMMIT")
        tx.connection.exec_driver_sql("BEGIN IMMEDIATE")

    return patch.object(reward, "_record", record)


def _expired_plays_stay_in_flight() -> Any:
    """The plays of expired decisions are not planned again."""
    return patch.object(expiry, "_take_back", lambda tx, number, count: 0)


def _rows_are_not_locked() -> Any:
    """A transaction starts from the campaign's row of the transaction before, not from the stored one."""
    found: Any = vars(transaction)["read_row"]
    rows: dict[tuple[int, int], Any] = {}

    def read(connection: Any, campaign: int, *, lock: bool = False) -> Any:
        where = id(connection.engine), campaign
        if not lock or where not in rows:
            rows[where] = found(connection, campaign, lock=lock)
        return rows[where]

    return patch.object(transaction, "read_row", read)


MUTATIONS: dict[str, Mutation] = {
    "salts": _salts_are_not_compared,
    "idempotent-rewards": _rewards_are_recorded_again,
    "idempotent-totals": _totals_are_recorded_again,
    "cache-after-commit": _policies_are_cached_before_the_commit,
    "roster-version": _arms_are_never_read_again,
    "one-transaction": _rewards_are_committed_early,
    "expired-plays": _expired_plays_stay_in_flight,
    "fresh-rows": _rows_are_not_locked,
}
"""Each mend by name; calling it takes the mend out for the length of a `with` block."""
