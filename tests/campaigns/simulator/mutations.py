"""Mends that can be taken out again, to see whether the simulator finds the defect: `--without NAME`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from kofn.campaigns import Campaign, configure, decide, expiry, learn, reward
from kofn.campaigns.records import rows, transaction
from kofn.campaigns.records.batches import Batches
from kofn.campaigns.records.costs import Costs
from kofn.campaigns.records.names import DecisionPlace, UnstoredPlace, read_id
from kofn.campaigns.records.plan_rows import PlanRows
from kofn.campaigns.records.rows import subset_text
from kofn.campaigns.records.transaction import Transaction
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import BATCHES
from kofn.campaigns.store.writers import PostgresWriter

Mutation = Callable[[], Any]


def _policies_are_found_by_their_step() -> Any:
    """A cached policy of a lost timeline is used, because its step has the same number (issue 14, defect 3)."""
    found = learn.begin_plan

    def begin(row: Any, snapshot: Any) -> None:
        found(row, snapshot)
        row.stamp = row.step

    return patch.object(learn, "begin_plan", begin)


def _rows_are_found_by_their_version() -> Any:
    """A campaign's row of a lost timeline is used, because its version has the same number (defect 3)."""
    found: Any = vars(transaction)["update_row"]

    def update(driver: Any, row: Any, now: float) -> None:
        with patch.object(rows, "new_stamp", lambda bits=62: row.version):
            found(driver, row, now)

    return patch.object(transaction, "update_row", update)


def _forgotten_rewards_count_as_repeated() -> Any:
    """First rewards of decisions that are no longer stored are answered as repeated (defect 4)."""
    found = reward._new_rewards

    def new_rewards(tx: Any, batches: Any, rewards: Any, refused: Any) -> Any:
        return found(tx, batches, rewards, refused)[0], 0

    return patch.object(reward, "_new_rewards", new_rewards)


def _keys_of_decides_are_ignored() -> Any:
    """A repeated decide makes decisions again (defect 5)."""
    return patch.object(Batches, "of_request", lambda self, tx, request: [])


def _keys_keep_a_part_of_their_decisions() -> Any:
    """Decisions are forgotten without the others of the same call, so a repeated call finds a part of them."""

    def delete_batches(tx: Transaction, chosen: Any) -> None:
        tx.execute(BATCHES.delete().where(*chosen))
        tx.forget_batches()

    return patch.object(expiry, "_delete_batches", delete_batches)


def _plans_wait_for_lost_rewards() -> Any:
    """A plan waits for its last reward until the decision expires (defect 5)."""
    return patch.object(decide, "plan_missing_again", lambda tx: None)


def _policies_are_never_read_again() -> Any:
    """The cached arms and policy are used although another process has changed them."""

    def recall(store: Store, campaign: int, stamp: int) -> Any:
        known = store._policies.get(campaign)
        return None if known is None else known[1:]

    return patch.object(Store, "recall", recall)


def _rows_are_never_read_again() -> Any:
    """The row of this process's last transaction is used although another process has written to it."""
    ask: Any = vars(transaction)["ask_row"]

    def ask_row(driver: Any, campaign: int, known: Any = None, *, lock: bool = False) -> Any:
        answer = ask(driver, campaign, lock=lock)
        return lambda: known or answer()

    return patch.object(transaction, "ask_row", ask_row)


def _rows_are_kept_after_a_failure() -> Any:
    """The row and the plan that a failed transaction has changed are used by the next one."""
    return patch.object(Store, "take_working", lambda self, campaign: self._working.get(campaign))


class _AnySalt(int):
    """A salt that every batch has."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _salts_are_not_compared() -> Any:
    """A reward of a decision that a restored backup does not have is counted for another decision."""

    def read(secret: bytes, text: str) -> DecisionPlace | UnstoredPlace:
        place = read_id(secret, text)
        return place._replace(salt=_AnySalt(place.salt)) if isinstance(place, DecisionPlace) else place

    return patch.object(reward, "read_id", read)


def _rewards_are_recorded_again() -> Any:
    """A repeated reward is treated as new."""

    def new_rewards(tx: Any, batches: Any, rewards: Any, refused: Any) -> Any:
        del tx, refused
        stored = {place: given for place, given in rewards.given.items() if getattr(place, "first", None) in batches}
        return [reward._New(place, value, clipped=False) for place, (_, value) in stored.items()], 0

    return patch.object(reward, "_new_rewards", new_rewards)


def _totals_are_recorded_again() -> Any:
    """The key of a total is not looked up."""
    return patch.object(reward, "_total_under", lambda tx, key: None)


def _rewards_are_committed_early() -> Any:
    """Rewards are committed before the campaign's row, in a transaction of their own."""
    found = reward._record

    def record(tx: Transaction, batches: Any, new: Any) -> None:
        found(tx, batches, new)
        tx.flush()
        tx.connection.exec_driver_sql("COMMIT")
        tx.connection.exec_driver_sql("BEGIN IMMEDIATE")

    return patch.object(reward, "_record", record)


@contextmanager
def _expired_plays_stay_in_flight() -> Iterator[None]:
    """The plays of expired decisions are not planned again."""
    found = expiry._give_up

    def give_up(tx: Transaction, batches: Any) -> None:
        with patch.object(PlanRows, "landed", lambda *_: None):
            found(tx, batches)

    with patch.object(expiry, "_give_up", give_up):
        yield


def _rules_do_not_reach_the_policy() -> Any:
    """Constraints that change are stored, but the plan stays that of the rules before."""
    return patch.object(configure, "policy_rules", lambda rules, roster, k: None)


def _shipped_decisions_are_given_again() -> Any:
    """A sticky key gets the decision of what is shipped again, although it has its reward."""
    is_over = decide._is_over

    def over(tx: Transaction, made: Any) -> bool:
        if tx.row.state == "shipped":
            return any(batch.subset != subset_text(tx.options.shipped_for(batch.context)) for batch in made)
        return is_over(tx, made)

    return patch.object(decide, "_is_over", over)


def _costs_of_now_count() -> Any:
    """Rewards are net of what arms cost when they arrive, not when they were decided."""
    net = Costs.net
    return patch.object(Costs, "net", lambda self, value, subset, step: net(self, value, subset, sys.maxsize))


def _clipped_rewards_are_stored_as_given() -> Any:
    """Rewards outside the range are recorded as they are, although the campaign clips them."""

    def taken(tx: Transaction, id: str, value: float) -> float:
        del tx, id
        return value

    return patch.object(reward, "_taken", taken)


def _failed_commits_leave_a_transaction_open() -> Any:
    """On PostgreSQL, a connection whose commit failed goes back to the pool with its transaction, and its lock."""

    def commit(self: Any) -> None:
        self._connection.commit()

    return patch.object(PostgresWriter, "_commit", commit)


def _secrets_are_not_compared() -> Any:
    """A process that has a deleted campaign open works on another one that has its id after a restored backup."""
    return patch.object(Campaign, "_same", lambda self, work: work)


MUTATIONS: dict[str, Mutation] = {
    "stamps": _policies_are_found_by_their_step,
    "marks": _rows_are_found_by_their_version,
    "forgotten": _forgotten_rewards_count_as_repeated,
    "keys": _keys_of_decides_are_ignored,
    "whole-keys": _keys_keep_a_part_of_their_decisions,
    "stuck": _plans_wait_for_lost_rewards,
    "fresh-policies": _policies_are_never_read_again,
    "fresh-rows": _rows_are_never_read_again,
    "dropped-rows": _rows_are_kept_after_a_failure,
    "salts": _salts_are_not_compared,
    "idempotent-rewards": _rewards_are_recorded_again,
    "idempotent-totals": _totals_are_recorded_again,
    "one-transaction": _rewards_are_committed_early,
    "expired-plays": _expired_plays_stay_in_flight,
    "rules": _rules_do_not_reach_the_policy,
    "sticky-shipped": _shipped_decisions_are_given_again,
    "costs-of-then": _costs_of_now_count,
    "clipped": _clipped_rewards_are_stored_as_given,
    "same-campaign": _secrets_are_not_compared,
    "failed-commits": _failed_commits_leave_a_transaction_open,
}
"""Each mend by name; calling it takes the mend out for the length of a `with` block."""
