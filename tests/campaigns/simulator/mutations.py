"""Safeties that can be taken out, to see whether the simulator finds that they are missing: `--without NAME`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from sqlalchemy import false, select, text

from kofn.campaigns import append, fold, tally
from kofn.campaigns.append import Decide, Group, Report
from kofn.campaigns.change import Change
from kofn.campaigns.fold import Row, Transaction
from kofn.campaigns.names import Place, read_id
from kofn.campaigns.progress import Progress
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import PLANS
from kofn.campaigns.store.statements import Statement
from kofn.campaigns.store.writers import PostgresWriter, SqliteWriter

Mutation = Callable[[], Any]


def _by(target: Any, name: str, by: Any) -> Mutation:
    """Return a mutation that replaces a function."""
    return lambda: patch.object(target, name, by)


def _around(target: Any, name: str, around: Callable[..., Any]) -> Mutation:
    """Return a mutation that calls `around` with the original function and its arguments."""
    found = getattr(target, name)

    def replaced(*values: Any, **more: Any) -> Any:
        return around(found, *values, **more)

    return lambda: patch.object(target, name, replaced)


class _Edited(Statement):
    """A statement with another text."""

    def __init__(self, statement: Statement, old: str, new: str) -> None:
        self._statement, self._old, self._new = statement, old, new

    def compiled(self, dialect: Any) -> Any:
        sql, bind = self._statement.compiled(dialect)
        assert self._old in sql
        return sql.replace(self._old, self._new), bind


def _in_sql(name: str, old: str, new: str) -> Mutation:
    """Return a mutation that changes a query of folds."""

    def queries(found: Any, remote: bool) -> Any:
        known = found(remote)
        return {**known, name: _Edited(known[name], old, new)}

    return _around(tally, "_queries", queries)


def _publish(what: tuple[str, ...], found: Any, store: Store, task: Any, learned: Any) -> Any:
    """Publish a task as if it had been read now."""
    with store.read() as connection:
        tx = Transaction.open(store, connection, task.campaign)
        steps = fold.read_steps(connection, task.campaign, tx.learned, tx.row.step - 1)
    now = {"step": tx.row.step, "stamp": tx.row.stamp, "job": replace(task.job, steps=steps)}
    return found(store, replace(task, **{name: now[name] for name in what}), learned)


def _write_change(found: Any, change: Change, work: Any) -> None:
    """Write a change as if the campaign had been read now."""
    with change.store.read() as connection:
        row = Transaction.open(change.store, connection, change.campaign).row
    change.row.version, change.row.stamp, change.row.step = row.version, row.stamp, row.step
    found(change, work)


def _present_plan(found: Any, change: Change, what: Any) -> Any:
    with change.store.read() as connection:
        plan = connection.execute(select(PLANS.c.plan).where(PLANS.c.campaign == change.campaign)).scalar_one()
    return found(change, what)[0], ServedPlan.from_text(plan)


def _open_now(found: Any, tx: Transaction, store: Store, connection: Any, row: Any, now: float, *more: Any) -> None:
    found(tx, store, connection, row, now, *more)
    tx.now = now


class _AnySalt(int):
    """A salt that every decision has."""

    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False


def _any_salt(secret: bytes, id: Any) -> Any:
    place = read_id(secret, id)
    return place._replace(salt=_AnySalt(place.salt)) if isinstance(place, Place) else place


def _expire(progress: Progress, expired: Any) -> None:
    progress.expired += sum(each.plays for each in expired)


def _limited(name: str, found: Any, connection: Any, campaign: int, before: Any, after: Any) -> Any:
    """Count up to an end of the log although the rest waits."""
    cut, more = found(connection, campaign, before, after)
    return (after._replace(decisions=cut.decisions) if name == "all" else cut._replace(time=after.time)), more


def _refuse(report: Report, id: object, why: Exception) -> None:
    report.refused.append(append.Refusal(str(id), str(why)))  # type: ignore[attr-defined]


def _raise(store: Store, campaign: int, task: Any, why: Exception) -> None:
    raise append.BadInput(str(why))  # type: ignore[attr-defined]


def _change(row: Row) -> None:
    failure = row.failure
    _changed(row)
    row.failure = failure


_changed = Row.change


@contextmanager
def _ignored_commits() -> Iterator[None]:
    """Calls are acknowledged although their commit has failed."""

    def commit(found: Any, writer: Any) -> None:
        with suppress(Exception):
            found(writer)

    with ExitStack() as stack:
        for kind in (SqliteWriter, PostgresWriter):
            stack.enter_context(_around(kind, "_commit", commit)())
        yield


def _early_numbers(found: Any, group: Group, driver: Any) -> None:
    """Draw numbers before the locks are taken."""
    numbers = driver.rows(append._NUMBERS, {"n": sum(job.numbers for job in group._jobs)})
    found(group, driver)
    drawn = iter([row[0] for row in numbers])
    group._numbers = dict.fromkeys(("decision", "event"), lambda campaign: next(drawn))


def _same_version(group: Group, campaign: int) -> bool:
    return group._heads[campaign].version == group._servings[campaign].version


_KEPT = lambda decision, row, last: decision.number <= last  # noqa: E731
_EVERY = lambda *values, **more: True  # noqa: E731
_NONE = lambda *values, **more: False  # noqa: E731

MUTATIONS: dict[str, Mutation] = {
    # Decisions and events.
    "versions": _by(Group, "is_present", _EVERY),
    "stamps": _by(Group, "is_present", _same_version),
    "cut-time": _by(Group, "now", lambda self, campaign: self._clock),
    "late": _by(Report, "_is_late", _NONE),
    "salts": _by(append, "read_id", _any_salt),
    "secrets": _by(
        append,
        "_servings",
        lambda store, jobs, outcomes, again: {job.campaign: store.serving(job.campaign, again=again) for job in jobs},
    ),
    "keys": _by(Group, "made", lambda self, campaign, request: []),
    "keys-that-end": _by(Decide, "_is_over", _NONE),
    "keys-that-last": _by(Decide, "_is_over", _EVERY),
    "all-or-nothing": _by(Report, "refuse", _refuse),
    "known-events": _by(Report, "_is_known", _NONE),
    "commits": _ignored_commits,
    # Folds.
    "fold-time": _around(Transaction, "__init__", _open_now),
    "counts": _in_sql("ended", "kofn_events.counts = ", "1 = "),
    "due": _in_sql("rewarded", "kofn_decisions.windowed = ", "0 = "),
    "boundaries": _in_sql("rewarded", "kofn_events.number > ", "kofn_events.number >= "),
    "expired": _by(Progress, "expire", _expire),
    "decisions-first": _around(fold, "_limited", partial(_limited, "all")),
    "events-first": _around(fold, "_limited", partial(_limited, "time")),
    "open-decisions": _by(fold, "_is_old", _KEPT),
    "whole-calls": _by(fold, "not_", lambda _: false()),
    # Learners and changes.
    "learners": _around(fold, "publish", partial(_publish, ("step", "stamp", "job"))),
    "learner-stamps": _around(fold, "publish", partial(_publish, ("stamp",))),
    "learner-steps": _around(fold, "publish", partial(_publish, ("job",))),
    "changes": _around(Change, "write", _write_change),
    "plans-of-rules": _around(Change, "after", _present_plan),
    "logged-changes": _around(Transaction, "close_step", lambda found, tx, change=None: found(tx)),
    "failures-refuse": _by(fold, "fail", _raise),
    "failures-told": _by(fold, "fail", lambda *values: None),
    "failures-end": _by(Row, "change", _change),
    # PostgreSQL.
    "exclusive-locks": _by(Store, "locked", lambda self, campaign, work: self.transact(work)),
    "shared-locks": _by(append, "_LOCK", Statement(text("SELECT CAST(:ids AS int[])"))),
    "numbers-in-locks": _around(Group, "read", _early_numbers),
    "collisions": _by(append, "_COLLISIONS", ()),
}
"""Each safety by name; calling it takes the safety out for the length of a `with` block."""

ON_POSTGRES = ("exclusive-locks", "shared-locks", "numbers-in-locks", "collisions")
"""Safeties that only PostgreSQL needs: SQLite has one writer."""
