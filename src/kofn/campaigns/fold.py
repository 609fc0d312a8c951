"""Folds: what has settled is counted, and told to the policy when a learning step is complete.

A fold is one short transaction that has the campaign's log alone. It counts a limited number of rows, so callers wait
for milliseconds at most. It adds them to the open learning step, and closes the step when the plan's plays have
settled. The policy then learns from the closed steps outside of any transaction (`learning`), and `publish` writes what
it has learned and its next plan: only if nothing else has changed the campaign meanwhile.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sqlalchemy import (
    ColumnElement,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    func,
    not_,
    or_,
    select,
    text,
    update,
)

from kofn import __version__
from kofn.campaigns.evidence import Lift, lift
from kofn.campaigns.learning import Job, Learned, Step, learn, readable, record_from, record_text
from kofn.campaigns.progress import Progress
from kofn.campaigns.roster import Roster, subset_from
from kofn.campaigns.serving import ServedPlan
from kofn.campaigns.settings import MAX_SHIPPED, UNIFORM, Guardrail, Settings, listed_names, settings_from
from kofn.campaigns.store.database import Store
from kofn.campaigns.store.schema import (
    ARMS,
    CAMPAIGNS,
    DECISIONS,
    ESTIMATES,
    EVENTS,
    FOLDS,
    HISTORY,
    JOURNAL,
    PLANS,
    STATES,
    TOTALS,
    VERSION,
)
from kofn.campaigns.store.stamps import new_stamp
from kofn.campaigns.store.statements import Driver, Statement, chunks
from kofn.campaigns.store.version import check_version
from kofn.campaigns.tally import NEWEST, Cut, Slot, Tally, merged, tally, written
from kofn.core import Alarm, CampaignError, Insight, KofnError, NoSuchCampaign, StateError, Subset
from kofn.core.checks import LARGEST_REWARD
from kofn.core.open_plan import MOST_UNPLANNED

MOST_ROWS = 5000
"""Decisions, and events, that one fold counts, and decisions that it deletes. Higher: fewer folds after an outage, and
callers wait for longer."""

MAX_POINTS = 2000
"""Most slots of the history. When there are more, slots are made twice as wide until half as many are left."""

MAX_JOURNAL = 1000
"""Entries of the journal that are kept; older ones are deleted."""

SLACK, LEAST_SLACK = 0.1, 100
"""Share of `keep_decisions`, and decisions, by which stored decisions may exceed it before they are deleted. A higher
value deletes less often, and more rows at once."""

MIN_TOTALS = 1000
"""Totals that are stored one by one whatever `keep_decisions` is, so that a repeated one is recognized by its key."""

CHECKPOINT, MAX_STEPS = 512, 2048
"""Learning steps between two checkpoints of the policy's record, and steps that are kept one by one. Older ones are
merged: a million plays make some 140."""

ESTIMATE_GROWTH, ESTIMATE_AGE = 1.2, 60.0
"""An estimate is written if there are this many times the rewards of the last one, or after this many seconds."""

MAX_ESTIMATES = 1000
"""Estimates that are kept. A million plays in one minute make about 60."""

MAX_EFFECTS = 200
"""Arms up to which estimates have the effect of each arm."""

TRIES = 5
"""How often learning is repeated in the thread of a caller while the campaign changes."""

_C, _D, _E = CAMPAIGNS.c, DECISIONS.c, EVENTS.c


_MANY_DUE = Statement(
    select(_D.due)
    .where(_D.campaign == bindparam("c"), _D.due > bindparam("t0"), _D.due <= bindparam("t1"))
    .order_by(_D.due)
    .offset(bindparam("most"))
    .limit(1)
)

_COLUMNS = tuple(column.name for column in CAMPAIGNS.columns)
_OPEN = Statement(
    select(
        *CAMPAIGNS.columns,
        STATES.c.step.label("learned"),
        FOLDS.c.tallies,
        select(VERSION.c.version).limit(1).scalar_subquery(),
    )
    .select_from(
        CAMPAIGNS.join(STATES, STATES.c.campaign == _C.id).outerjoin(
            FOLDS, and_(FOLDS.c.campaign == _C.id, FOLDS.c.step == _C.step)
        )
    )
    .where(_C.id == bindparam("c"))
)
_CLOCK = Statement(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
_WRITTEN = tuple(
    name for name in _COLUMNS if name not in ("id", "notified")
)  # the webhook writes `notified`, at any time
_WRITE = Statement(
    update(CAMPAIGNS).where(_C.id == bindparam("c")).values({name: bindparam(f"v_{name}") for name in _WRITTEN})
)
_NOTE = Statement(JOURNAL.insert())
_OF_STEP = FOLDS.c.campaign == bindparam("c"), FOLDS.c.step == bindparam("s")
_WRITE_STEP = Statement(
    update(FOLDS)
    .where(*_OF_STEP)
    .values(at=bindparam("v_at"), tallies=bindparam("v_tallies"), change=bindparam("v_change"))
)
_INSERT_STEP = Statement(FOLDS.insert(), columns=("campaign", "step", "at", "tallies", "change"))
_ADD_SLOT = Statement(
    text(
        "INSERT INTO kofn_history (campaign, slot, decided, rewarded, arrived, total, waited) "
        "VALUES (:campaign, :slot, :decided, :rewarded, :arrived, :total, :waited) "
        "ON CONFLICT (campaign, slot) DO UPDATE SET decided = kofn_history.decided + excluded.decided, "
        "rewarded = kofn_history.rewarded + excluded.rewarded, arrived = kofn_history.arrived + excluded.arrived, "
        "total = kofn_history.total + excluded.total, waited = kofn_history.waited + excluded.waited"
    )
)


@dataclass
class Row:
    """A campaign's row, parsed. It is changed in memory, and written back as a whole."""

    name: str
    secret: str
    settings: Settings
    stamp: int
    created: float
    changed: float
    cut: Cut
    id: int = 0
    state: str = "running"
    version: int = 1
    arms_version: int = 0
    next_due: float | None = None
    step: int = 1
    journal: int = 0
    notified: int = 0
    folds: int = 0
    progress: Progress = field(default_factory=Progress)
    failure: dict[str, str] | None = None
    made_by: str = ""

    @classmethod
    def of(cls, values: Any) -> Row:
        """Return the row of a mapping of all columns; raise StateError if it cannot be read."""
        cut = Cut(values["cut_decisions"], values["cut_events"], values["cut_totals"], values["cut"])
        parsed = ("settings", "progress", "failure", "cut", "cut_decisions", "cut_events", "cut_totals")
        others = {name: value for name, value in values.items() if name not in (*parsed, *_COUNTED)}
        try:
            progress = Progress.from_text(values["progress"])
            failure = None if values["failure"] is None else json.loads(values["failure"])
            return cls(
                settings=settings_from(values["settings"]), progress=progress, cut=cut, failure=failure, **others
            )
        except (ValueError, LookupError, TypeError, AttributeError) as why:
            raise StateError(f"what the campaign {values['name']!r} has stored cannot be read: {why}") from why

    def values(self) -> dict[str, Any]:
        """Return the columns."""
        own = {name: value for name, value in vars(self).items() if name not in ("settings", "progress", "cut")}
        cut = self.cut
        numbers = {"cut_decisions": cut.decisions, "cut_events": cut.events, "cut_totals": cut.totals, "cut": cut.time}
        progress = self.progress
        counted = {"plays": progress.plays, "rewards": progress.rewards}
        counted |= {"in_flight": progress.open, "expired": progress.expired}
        texts = {"settings": self.settings.to_text(), "progress": progress.to_text()}
        texts["failure"] = None if self.failure is None else json.dumps(self.failure)  # type: ignore[assignment]
        return {**own, **numbers, **counted, **texts}

    def change(self) -> None:
        """Begin a new version: decisions that were drawn from the one before are not stored any more."""
        self.version, self.failure = self.version + 1, None
        self.stamp = new_stamp()


_COUNTED = ("plays", "rewards", "in_flight", "expired")


class Transaction:
    """A transaction that has a campaign's log alone: its row, and what is written of it."""

    def __init__(
        self, store: Store, connection: Connection, row: Row, now: float, learned: int = 0, tallies: str | None = None
    ) -> None:
        self.store, self.connection, self.row, self.driver = store, connection, row, Driver(connection)
        self.now = max(now, row.cut.time)
        self.learned = learned  # the last step that the policy has learned
        self._tallies = tallies  # of the open step; None if it has no row yet
        self.end = row.cut  # of the log

    @classmethod
    def open(cls, store: Store, connection: Connection, campaign: int) -> Transaction:
        """Read the campaign's row, the open learning step, and where the log ends: in one round trip."""
        driver = Driver(connection)
        with driver.batch():
            answer = driver.ask(_OPEN, {"c": campaign})
            last = driver.ask(NEWEST, {"c": campaign})
            clock = driver.ask(_CLOCK, {}) if store.uses_server_clock else None
        found = answer()
        if not found:
            raise NoSuchCampaign("this campaign has been deleted")
        *values, learned, tallies, version = found[0]
        check_version(version)
        row = Row.of(dict(zip(_COLUMNS, values, strict=True)))
        for rail in map(Guardrail.parse, row.settings.guardrails):  # it counts from the start, recorded or not
            row.progress.metrics.setdefault(rail.metric, {})
        tx = cls(store, connection, row, store.clock() if clock is None else clock()[0][0], learned, tallies)
        decisions, events, totals = (each or 0 for each in last()[0])
        cut = row.cut
        tx.end = Cut(max(decisions, cut.decisions), max(events, cut.events), max(totals, cut.totals), tx.now)
        return tx

    def note(self, kind: str, message: str = "") -> None:
        """Write an entry of the journal."""
        self.row.journal += 1
        entry = {"campaign": self.row.id, "number": self.row.journal, "at": self.now, "kind": kind, "message": message}
        self.driver.run(_NOTE, entry)
        if self.row.journal % 100 == 0:
            old = JOURNAL.c.campaign == self.row.id, JOURNAL.c.number <= self.row.journal - MAX_JOURNAL
            self.connection.execute(delete(JOURNAL).where(*old))

    def write(self) -> None:
        """Write the campaign's row."""
        row = self.row
        row.changed = max(self.now, row.changed)
        row.folds += 1  # it tells viewers that something has changed
        values = row.values()
        self.driver.run(_WRITE, {"c": row.id, **{f"v_{name}": values[name] for name in _WRITTEN}})

    def roster(self) -> Roster:
        """Return the campaign's arms."""
        arms = self.connection.execute(select(ARMS).where(ARMS.c.campaign == self.row.id)).one()
        return Roster.read(arms.names, arms.active, self.row.arms_version)

    def open_step(self) -> list[list[Any]]:
        """Return the tallies of the open learning step."""
        return [] if self._tallies is None else list(json.loads(self._tallies))

    def write_step(self, tallies: list[list[Any]], change: dict[str, Any] | None = None) -> None:
        """Write the open learning step."""
        plain = json.dumps(tallies, separators=(",", ":"), ensure_ascii=False)
        values = {"at": self.now, "tallies": plain, "change": None if change is None else json.dumps(change)}
        if self._tallies is None:
            self.driver.run(_INSERT_STEP, {"campaign": self.row.id, "step": self.row.step, **values})
        else:
            of = {"c": self.row.id, "s": self.row.step}
            self.driver.run(_WRITE_STEP, of | {f"v_{name}": value for name, value in values.items()})
        self._tallies = plain

    def close_step(self, change: dict[str, Any] | None = None) -> None:
        """Close the open learning step, perhaps with a change of the policy."""
        if change is not None:
            self.write_step(self.open_step(), change)
        self.row.step += 1
        self._tallies = None

    @property
    def pending(self) -> bool:
        """Whether the policy has closed steps to learn."""
        return self.learned < self.row.step - 1

    def plan(self) -> ServedPlan:
        """Return what is played."""
        text = self.connection.execute(select(PLANS.c.plan).where(PLANS.c.campaign == self.row.id)).scalar_one()
        return ServedPlan.from_text(text)

    def serve(self, plan: ServedPlan) -> None:
        """Play this plan from now on."""
        self.connection.execute(update(PLANS).where(PLANS.c.campaign == self.row.id).values(plan=plan.to_text()))
        self.row.progress.plan(plan.rows)
        self.row.change()

    def ship(self, subset: Subset, of_segments: dict[str, Subset], *, store: bool = True) -> None:
        """Give everyone this subset from now on, or each segment its own. The second time, nothing changes."""
        known, to = self.row.settings, tuple(of_segments.items())
        before = tuple(each for each in known.shipped if each != subset)
        before_to = tuple(each for each in (*known.shipped_before, *known.shipped_to) if each not in to)
        settings = replace(
            known,
            shipped=(*before, subset)[-MAX_SHIPPED:],
            by_segment=bool(to),
            shipped_to=to,
            shipped_before=before_to[-2 * MAX_SHIPPED :],
            store_shipped=store,
        )
        if self.row.state == "shipped" and settings == known:
            return
        self.row.settings, self.row.state = settings, "shipped"
        self.row.change()
        of = f"; each of {len(to)} segments gets its own best subset" if to else ""
        self.note("shipped", listed_names(self.roster().names_of(subset)) + of)


# Counting.


def fold(store: Store, campaign: int) -> bool:
    """Count what is new in a campaign's log, until nothing is. Return whether the policy has something to learn."""
    while True:
        more, pending = store.locked(campaign, lambda connection: _fold(store, connection, campaign))
        if not more:
            return pending


def _fold(store: Store, connection: Connection, campaign: int) -> tuple[bool, bool]:
    tx = Transaction.open(store, connection, campaign)
    row = tx.row
    after, more = _limited(connection, campaign, row.cut, tx.end)
    if after[:3] == row.cut[:3] and (row.next_due is None or tx.now < row.next_due) and not _is_crowded(row):
        return False, tx.pending
    found = tally(connection, campaign, row.settings, row.progress, row.cut, after)
    with tx.driver.batch():
        _count(tx, found, after)
        reads = _reads(row)
        if not reads:
            _finish(tx, more)
    if reads:
        _finish(tx, more)
    return more or _is_crowded(row), tx.pending


def _reads(row: Row) -> bool:
    """Return whether the end of a fold has to read, which it cannot in a batch."""
    settings = row.settings
    return _is_crowded(row) or row.progress.slots > MAX_POINTS or settings.breaker or not settings.learns_from_all


def _finish(tx: Transaction, more: bool) -> None:
    """Do what follows from the new counters."""
    _shorten_history(tx)
    if not more:  # else a decision may have a reward that is not counted yet
        _compact(tx)
    if not tx.pending and _is_due(tx):
        tx.close_step()
    _break(tx)
    tx.write()


def _limited(connection: Connection, campaign: int, before: Cut, after: Cut) -> tuple[Cut, bool]:
    """Return how far one fold counts, and whether more is left.

    Decisions are counted before their events, and events before the time: else decisions would expire, and be deleted,
    whose reward is not counted yet.
    """

    def at_most(table: Any, number: int, end: int) -> int:
        if end - number <= MOST_ROWS:
            return end
        rows = select(table.c.number).where(table.c.campaign == campaign, table.c.number > number)
        found = connection.execute(rows.order_by(table.c.number).offset(MOST_ROWS).limit(1)).scalar()
        return end if found is None else found - 1

    decisions = at_most(DECISIONS, before.decisions, after.decisions)
    if decisions < after.decisions:
        return before._replace(decisions=decisions), True
    events = at_most(EVENTS, before.events, after.events)
    if events < after.events:
        return Cut(decisions, events, after.totals, before.time), True
    due = Driver(connection).rows(_MANY_DUE, {"c": campaign, "t0": before.time, "t1": after.time, "most": MOST_ROWS})
    time = due[0][0] if due else after.time
    return Cut(decisions, events, after.totals, time), time < after.time


def _count(tx: Transaction, found: Tally, after: Cut) -> None:
    """Count a tally, and move the cut."""
    row, settings = tx.row, tx.row.settings
    if settings.outside == "widen" and found.least is not None and found.most is not None:
        _widen(tx, found.least, found.most)
    found.add_to(row.progress, settings.sign)
    plays = found.plays()
    if plays:
        tx.write_step(written(merged(tx.open_step(), plays)))
    _write_history(tx, found.slots)
    row.cut = after
    row.next_due = found.next_due


def _widen(tx: Transaction, least: float, most: float) -> None:
    """Widen the range to rewards outside it, and as far again, so that it is rarely widened."""
    low, high = tx.row.settings.reward_range
    if low <= least and most <= high:
        return
    span = max(most, high) - min(least, low)
    new_low = low if least >= low else max(least - span, -LARGEST_REWARD)
    new_high = high if most <= high else min(most + span, LARGEST_REWARD)
    tx.row.settings = replace(tx.row.settings, reward_range=(new_low, new_high))
    tx.close_step({"params": {"reward_range": [new_low, new_high]}})
    tx.row.change()
    tx.note("changed", f"reward_range is {new_low:g} to {new_high:g}")


def _is_due(tx: Transaction) -> bool:
    """Return whether the plan's plays have settled, so that the policy can learn."""
    tallies, progress = tx.open_step(), tx.row.progress
    if tx.row.settings.learns_from_all:
        settled = sum(count for _, _, count, _, _ in tallies)
        return settled >= max(1, progress.planned) or len(tallies) >= progress.plan_rows + MOST_UNPLANNED
    if sum(count for _, _, count, _, _ in tallies) < max(1, progress.planned):
        return False
    counts = {(subset, context): count for subset, context, count, _, _ in tallies}
    return all(counts.get((subset, context), 0) >= times for subset, times, context in tx.plan().rows)


def _break(tx: Transaction) -> None:
    """Return to the control if learning certainly loses, and the campaign is set up for that."""
    settings = tx.row.settings
    if tx.row.state == "running" and settings.breaker and isinstance(settings.control, tuple):
        found = lift_of(settings, tx.row.progress)
        if found is not None and found.harmful:
            tx.note("breaker", f"learning loses at least {-(found.high or 0.0):.4g} per play against the control")
            tx.ship(settings.control, {})


def lift_of(settings: Settings, progress: Progress) -> Lift | None:
    """Return what learning has earned beyond the control so far; None without a control."""
    if settings.control is None:
        return None
    return lift(progress.learned, progress.control, reward_range=settings.net_range, direction=settings.direction)


def _write_history(tx: Transaction, slots: dict[int, Slot]) -> None:
    """Add to the slots of the history."""
    row, progress = tx.row, tx.row.progress
    tx.driver.run_many(
        _ADD_SLOT, [{"campaign": row.id, "slot": slot, **slots[slot]._asdict()} for slot in sorted(slots)]
    )
    progress.slots += sum(slot > progress.last_slot for slot in slots)
    progress.last_slot = max(progress.last_slot, *slots) if slots else progress.last_slot


def _shorten_history(tx: Transaction) -> None:
    """Make the slots of the history wider if there are too many."""
    row, progress = tx.row, tx.row.progress
    if progress.slots > MAX_POINTS:
        width, merged_slots = merge_slots(read_slots(tx.connection, row.id), MAX_POINTS // 2)
        progress.slot_width *= width
        progress.slots, progress.last_slot = len(merged_slots), max(merged_slots)
        tx.connection.execute(delete(HISTORY).where(HISTORY.c.campaign == row.id))
        rows = [{"campaign": row.id, "slot": slot, **each._asdict()} for slot, each in merged_slots.items()]
        tx.connection.execute(HISTORY.insert(), rows)


def read_slots(connection: Connection, campaign: int) -> dict[int, Slot]:
    """Return the history, oldest slot first."""
    chosen = select(HISTORY).where(HISTORY.c.campaign == campaign).order_by(HISTORY.c.slot)
    return {each.slot: Slot(*(getattr(each, name) for name in Slot._fields)) for each in connection.execute(chosen)}


def merge_slots(slots: dict[int, Slot], most: int) -> tuple[int, dict[int, Slot]]:
    """Merge neighbouring slots, 2, 4, 8... at a time, until at most `most` are left; return that number too."""
    by, found = 1, dict(slots)
    while len(found) > most:
        by *= 2
        found = {}
        for slot, here in slots.items():
            found[slot // by] = found.get(slot // by, Slot()) + here
    return by, found


def _is_crowded(row: Row) -> bool:
    """Return whether more decisions are stored than shall be kept."""
    stored, keep = row.progress.decided - row.progress.deleted, row.settings.keep_decisions
    return stored > keep * (1 + SLACK) + LEAST_SLACK + row.progress.undeletable


def _compact(tx: Transaction) -> None:
    """Delete the oldest decisions if there are too many: those whose reward is settled or missing.

    Those of a call with a key stay until all of them can be deleted: its repetition gets all of them, or new ones.
    """
    row, connection, progress = tx.row, tx.connection, tx.row.progress
    keep = row.settings.keep_decisions
    if _is_crowded(row):
        newer = select(_D.number).where(_D.campaign == row.id).order_by(_D.number.desc()).offset(keep).limit(1)
        last = min(connection.execute(newer).scalar() or 0, row.cut.decisions)
        last = min(last, progress.matured) if progress.metrics else last
        other = DECISIONS.alias().c
        call = other.campaign == _D.campaign, other.request == _D.request, other.turn == _D.turn
        whole = or_(_D.request.is_(None), ~exists().where(*call, not_(_is_old(other, row, last))))
        old = and_(_D.campaign == row.id, _is_old(_D, row, last), whole)
        some = select(_D.number).where(old).order_by(_D.number).offset(MOST_ROWS - 1).limit(1)
        limit = connection.execute(some).scalar()
        if limit is not None:
            old = and_(old, or_(_D.number <= limit, exists().where(*call, other.number <= limit)))
        summed = select(func.count(), func.max(_D.number), func.max(_D.at)).where(old)
        removed, newest, at = connection.execute(summed).one()
        if removed:
            connection.execute(delete(DECISIONS).where(old))
            gone = ~exists().where(_D.campaign == _E.campaign, _D.number == _E.decision)
            connection.execute(delete(EVENTS).where(_E.campaign == row.id, _E.decision <= newest, gone))
            progress.deleted += removed
            progress.kept_at = max(progress.kept_at, at)
        if limit is None:
            progress.undeletable = max(0, progress.decided - progress.deleted - keep)
    if row.cut.totals > max(keep, MIN_TOTALS):
        oldest = row.cut.totals - max(keep, MIN_TOTALS)
        connection.execute(delete(TOTALS).where(TOTALS.c.campaign == row.id, TOTALS.c.number <= oldest))


def _is_old(decision: Any, row: Row, last: int) -> ColumnElement[bool]:
    """Return whether a decision may be deleted, as an expression."""
    rewarded = exists().where(_E.campaign == decision.campaign, _E.decision == decision.number, _E.kind == 0)
    return and_(decision.number <= last, or_(decision.due <= row.cut.time, and_(decision.windowed == 0, rewarded)))


# Learning.


@dataclass
class Task:
    """What to learn, and of which campaign: as it was when that was read."""

    campaign: int
    step: int
    stamp: int
    job: Job


def read_task(store: Store, campaign: int) -> Task | None:
    """Return what the policy has to learn; None if nothing."""
    with store.read() as connection:
        tx = Transaction.open(store, connection, campaign)
        row, learned = tx.row, tx.learned
        if not tx.pending or (row.failure is not None and row.failure["kofn"] == __version__):
            return None
        state = connection.execute(select(STATES).where(STATES.c.campaign == campaign)).one()
        record, active, before = read_record(connection, campaign, record_from(state.record), learned)
        steps = before + read_steps(connection, campaign, learned, row.step - 1)
        job = Job(record, active, steps, dict(row.progress.in_flight), row.settings.control == UNIFORM)
        return Task(campaign, row.step, row.stamp, job)


def read_record(
    connection: Connection, campaign: int, known: tuple[dict[str, Any], list[int]], learned: int
) -> tuple[dict[str, Any], list[int], list[Step]]:
    """Return a policy's record, its arms, and no steps; of another version, the oldest record and all steps since."""
    if readable(known[0]):
        return *known, []
    first = FOLDS.c.campaign == campaign, FOLDS.c.record.is_not(None)
    base = connection.execute(select(FOLDS).where(*first).order_by(FOLDS.c.step).limit(1)).one()
    return *record_from(base.record), read_steps(connection, campaign, base.step - 1, learned)


def read_steps(connection: Connection, campaign: int, after: int, until: int) -> list[Step]:
    """Return the learning steps after one step, up to another; or raise StateError."""
    chosen = FOLDS.c.campaign == campaign, FOLDS.c.step > after, FOLDS.c.step <= until
    found = connection.execute(select(FOLDS).where(*chosen).order_by(FOLDS.c.step))
    try:
        return [
            Step(row.step, json.loads(row.tallies), None if row.change is None else json.loads(row.change))
            for row in found
        ]
    except ValueError as why:
        raise StateError(f"the learning steps cannot be read: {why}") from why


def learn_now(store: Store, campaign: int) -> bool:
    """Fold, and let the policy learn in this thread if it is due. Return whether it has learned."""
    for _ in range(TRIES):
        if not fold(store, campaign):
            return False
        task = None
        try:
            task = read_task(store, campaign)
            if task is None:
                return False
            learned = learn(task.job)
        except Exception as why:
            if is_of_store(why):
                raise
            fail(store, campaign, task, why)
            return False
        if publish(store, task, learned):
            return True
    return False


def is_of_store(why: Exception) -> bool:
    """Return whether this is an error of the database, or of a campaign that was deleted, and not of a policy."""
    return isinstance(why, CampaignError) and not isinstance(why, StateError)


def fail(store: Store, campaign: int, task: Task | None, why: Exception) -> None:
    """Record that the policy failed, or that its state cannot be read (without a task).

    The campaign goes on with its last plan, and tries again when it changes.
    """
    reason = f"{type(why).__name__}: {why}"[:500] if not isinstance(why, KofnError) else str(why)[:500]

    def work(connection: Connection) -> None:
        tx = Transaction.open(store, connection, campaign)
        same = task is None or (tx.row.step, tx.row.stamp) == (task.step, task.stamp)
        if same and tx.row.failure is None:
            tx.row.failure = {"reason": reason, "kofn": __version__}
            tx.note("policy failed", f"{reason}. Decisions follow the last plan, and rewards are recorded")
            tx.write()

    store.locked(campaign, work)


def publish(store: Store, task: Task, learned: Learned) -> bool:
    """Write what the policy has learned, and its plan. Return False if the campaign has changed since the task."""

    def work(connection: Connection) -> bool:
        tx = Transaction.open(store, connection, task.campaign)
        row = tx.row
        if (row.step, row.stamp) != (task.step, task.stamp) or not tx.pending:
            return False
        if read_steps(connection, row.id, task.job.steps[0].step - 1, row.step - 1) != task.job.steps:
            return False  # a backup was restored, and the campaign has come to the same step by other rewards
        states = states_of(learned)
        connection.execute(update(STATES).where(STATES.c.campaign == row.id).values(step=row.step - 1, **states))
        row.progress.choose(learned.best, row.step - 1, tx.now)
        tx.serve(ServedPlan(row.step - 1, after=row.cut.decisions, **learned.plan))
        if learned.moved:
            names = tx.roster().names_of(subset_from(learned.best))
            tx.note("learned", f"after {row.progress.rewards:,} rewards, the best are {listed_names(names)}")
        write_estimate(tx, learned)
        _look(tx, learned)
        _checkpoint(tx, row.step - 1, states["record"])
        if _is_due(tx):  # more has settled meanwhile
            tx.close_step()
        tx.write()
        return True

    if store.locked(task.campaign, work):
        store.serving(task.campaign, again=True)
        return True
    return False


def states_of(learned: Learned) -> dict[str, Any]:
    """Return what was learned as the columns of a row of `states`."""
    known = {name: getattr(learned, name) for name in ("best", "updates", "plays", "seconds")}
    return {
        "record": record_text(learned.record, learned.active),
        "insight": json.dumps({**known, "known": learned.insight}),
        "segments": None if learned.of_segments is None else json.dumps(learned.of_segments),
    }


def _look(tx: Transaction, learned: Learned) -> None:
    """Apply the stop rule: note when the campaign becomes ready, and ship if it is to."""
    row, stop = tx.row, tx.row.settings.stop
    before = row.progress.look
    if row.state != "running" or stop is None or (before is not None and before.plays >= learned.plays):
        return
    now = stop.look(insight_from(learned.insight), learned.plays, before)
    row.progress.look = now
    if now.ready and not (before is not None and before.ready):
        tx.note("ready", now.reason)
    if now.ready and row.settings.ship_when_ready:
        segments = (learned.of_segments or {}).get("segments", ())
        tx.ship(subset_from(learned.best), {each["key"]: subset_from(each["best"]) for each in segments})


def insight_from(known: dict[str, Any] | None) -> Insight | None:
    """Return the insight that a policy's `to_dict` described."""
    if known is None:
        return None
    effects, lows, highs = (np.array([arm[name] for arm in known["arms"]]) for name in ("effect", "low", "high"))
    alarms = None if known["alarms"] is None else tuple(Alarm(**each) for each in known["alarms"])
    probability = known["probability_best"]
    return Insight(
        known["value"],
        known["low"],
        known["high"],
        effects,
        lows,
        highs,
        lambda: probability,
        known["expected_loss"],
        alarms,
        known["loss_high"],
    )


def _checkpoint(tx: Transaction, step: int, record: str) -> None:
    """Keep the policy's record at some steps, and merge the steps before an older one if there are many."""
    campaign = tx.row.id
    if step % CHECKPOINT:
        return
    ours = FOLDS.c.campaign == campaign
    tx.connection.execute(update(FOLDS).where(ours, FOLDS.c.step == step).values(record=record))
    last = step - MAX_STEPS
    base = select(FOLDS).where(ours, FOLDS.c.step <= last, FOLDS.c.record.is_not(None)).order_by(FOLDS.c.step.desc())
    known = (each for each in tx.connection.execute(base).all() if readable(record_from(each.record)[0]))
    found = next(known, None)  # a policy that was made again from its steps is compared with the same steps
    if found is None or not found.step:
        return
    sums = merged((), {})
    for each in read_steps(tx.connection, campaign, -1, found.step):
        sums = merged(written(sums), {(t[0], t[1]): (t[2], t[3], t[4]) for t in each.tallies})
    tx.connection.execute(delete(FOLDS).where(ours, FOLDS.c.step < found.step))
    plain = json.dumps(written(sums), separators=(",", ":"))
    tx.connection.execute(update(FOLDS).where(ours, FOLDS.c.step == found.step).values(tallies=plain, change=None))


# Estimates over time.


def write_estimate(tx: Transaction, learned: Learned) -> None:
    """Keep what is estimated now, for the history, unless little has changed since the last estimate."""
    row = tx.row
    ours = ESTIMATES.c.campaign == row.id
    latest = select(ESTIMATES.c.step, ESTIMATES.c.at, ESTIMATES.c.rewards).where(ours)
    last = tx.connection.execute(latest.order_by(ESTIMATES.c.step.desc()).limit(1)).one_or_none()
    if last is not None:
        if row.progress.rewards < ESTIMATE_GROWTH * last.rewards and tx.now < last.at + ESTIMATE_AGE:
            return
        if last.step // 100 < row.step // 100:
            _thin_estimates(tx)
    estimate = estimate_of(row.settings, row.progress, learned.insight, learned.best, learned.active)
    if estimate is not None:
        tx.connection.execute(ESTIMATES.insert(), {"campaign": row.id, "step": row.step, "at": tx.now, **estimate})


def estimate_of(
    settings: Settings, progress: Progress, known: dict[str, Any] | None, best: str, active: list[int]
) -> dict[str, Any] | None:
    """Return what is estimated, as the table of estimates has it; None without an expected loss and a lift."""
    found = lift_of(settings, progress)
    if (known is None or known["expected_loss"] is None) and (found is None or found.difference is None):
        return None
    numbers: dict[str, float | None] = dict.fromkeys(("value", "low", "high", "loss", "lift", "lift_low", "lift_high"))
    effects = ""
    if known is not None:
        numbers |= {name: known[name] for name in ("value", "low", "high")} | {"loss": known["expected_loss"]}
        if len(active) <= MAX_EFFECTS:
            pairs = zip(active, known["arms"], strict=True)
            effects = json.dumps({arm: float(f"{each['effect']:.4g}") for arm, each in pairs}, separators=(",", ":"))
    if found is not None:
        numbers |= {"lift": found.difference, "lift_low": found.low, "lift_high": found.high}
    return numbers | {"rewards": progress.rewards, "best": best, "effects": effects}


def _thin_estimates(tx: Transaction) -> None:
    """Delete every other one of the older half of the estimates while there are too many."""
    ours = ESTIMATES.c.campaign == tx.row.id
    steps = list(tx.connection.execute(select(ESTIMATES.c.step).where(ours).order_by(ESTIMATES.c.step)).scalars())
    kept = steps
    while len(kept) > MAX_ESTIMATES:
        half = len(kept) // 2
        kept = kept[:half:2] + kept[half:]
    for some in chunks(sorted(set(steps) - set(kept))):
        tx.connection.execute(delete(ESTIMATES).where(ours, ESTIMATES.c.step.in_(some)))


def missing(tx: Transaction) -> int:
    """Return how many rewards the policy waits for, at least one."""
    return max(1, tx.row.progress.planned - sum(int(count) for _, _, count, _, _ in tx.open_step()))
