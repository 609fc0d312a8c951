"""What must be true of a campaign after each call. The model reads the database; it never asks the code under test.

The promises: every acknowledged decision and event is recorded once, and a refused call leaves nothing. A repeated key
gives the same decisions. A subset obeys the arms, the rules and the state of its commit, and is of the plan of then.
What is counted and learned are the rewards of the decisions that have settled, each once. After a restored backup,
nothing of the lost timeline is left.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from kofn.campaigns.names import UnstoredPlace, read_id, write_id
from kofn.campaigns.roster import shipment_of, subset_from
from kofn.campaigns.serving import SHIPPED_FOR
from kofn.campaigns.settings import CONTROL, LEARNED, SHIPPED, WEEK
from kofn.core import BadInput, BadReward, BadTally, Conflict, KofnError, NotRunning, UnknownDecision
from tests.campaigns.simulator.calls import (
    Call,
    ChangeArm,
    Configure,
    Decide,
    Enter,
    Learn,
    Outcome,
    Publish,
    Read,
    ReadTask,
    Report,
    Total,
)
from tests.campaigns.simulator.world import RECORDED, Setting, World

ALLOWED: dict[str, tuple[str, ...]] = {"paused": ("running", "shipped"), "running": ("paused", "shipped")}
ALLOWED |= dict.fromkeys(("stopped", "shipped"), ("running", "paused", "shipped"))
ALLOWED |= {"archived": ("running", "paused", "shipped", "stopped")}
"""From which states a campaign enters another."""

MAX_EVENTS, MIN_TOTALS = 4, 3
"""The limits of the code under test in simulations."""

REWARD, ADD, RECORD = range(3)
KINDS = {"reward": REWARD, "add": ADD, "record": RECORD}

Decided = namedtuple("Decided", RECORDED["kofn_decisions"])  # type: ignore[misc]
Reported = namedtuple("Reported", RECORDED["kofn_events"])  # type: ignore[misc]
Totalled = namedtuple("Totalled", RECORDED["kofn_totals"])  # type: ignore[misc]

Subset = tuple[int, ...]
Pair = tuple[Call, Outcome]


class Violation(Exception):
    """A broken promise."""


def check(holds: object, message: str, *values: object) -> None:
    """Raise Violation unless a promise holds."""
    if not holds:
        raise Violation(message.format(*values))


class Cut(NamedTuple):
    """Up to where the log is counted."""

    decisions: float
    events: float
    totals: float
    time: float


_COLUMNS = [
    *("state", "settings", "version", "stamp", "step", "failure", "progress", "plays", "rewards", "in_flight"),
    *("expired", "cut_decisions", "cut_events", "cut_totals", "cut"),
]
_LOOK = (
    f"SELECT {', '.join(f'c.{each}' for each in _COLUMNS)}, a.names, a.active, p.plan, s.step FROM kofn_campaigns c "
    "JOIN kofn_arms a ON a.campaign = c.id JOIN kofn_plans p ON p.campaign = c.id "
    "JOIN kofn_states s ON s.campaign = c.id WHERE c.id = ?"
)
_Row = namedtuple("_Row", (*_COLUMNS, "names", "active", "plan", "learned"))  # type: ignore[misc]


class Seen:
    """What the database has of a campaign at some moment."""

    def __init__(self, world: World, id: int) -> None:
        row: Any = _Row(*world.rows(_LOOK, id)[0])
        self.row = row
        self.cut = Cut(row.cut_decisions, row.cut_events, row.cut_totals, row.cut)
        self.plan, self.progress = json.loads(row.plan), json.loads(row.progress)
        self.stored = dict(world.rows("SELECT number, salt FROM kofn_decisions WHERE campaign = ?", id))
        self.keys = {key for (key,) in world.rows("SELECT key FROM kofn_totals WHERE campaign = ?", id)}
        found = json.loads(row.settings)
        known: dict[str, Any] = dict.fromkeys(("window", "metric_window", "keep_decisions", "control", "sticky"))
        known |= {"silence": 0.0, "outside": "refuse", "unit": "", "store_shipped": True, "costs": {}}
        known["expire_after"] = WEEK
        self.config = {name: found.get(name, default) for name, default in known.items()}
        self.config |= {
            "state": row.state,
            "names": json.loads(row.names),
            "active": json.loads(row.active),
            "reward_range": tuple(found["reward_range"]),
            "constraints": plain_rules(found.get("constraints") or []),
            "shipped": [tuple(each) for each in found.get("shipped", [])],
            "before": found.get("shipped_before", []),
            "shipped_to": [(key, tuple(subset)) for key, subset in found.get("shipped_to", [])],
        }


def plain_rules(rules: Sequence[Mapping[str, Any]]) -> list[tuple[str, tuple[str, ...]]]:
    """Return rules in a form that can be compared."""
    return sorted((each["rule"], tuple(sorted(each["arms"]))) for each in rules)


@dataclass
class Truth:
    """What is true in a timeline."""

    config: dict[str, Any]
    secret: bytes
    decisions: dict[int, Any] = field(default_factory=dict)
    events: dict[int, dict[tuple[int, str], Any]] = field(default_factory=dict)
    totals: dict[int, Any] = field(default_factory=dict)
    settled: dict[int, float] = field(default_factory=dict)  # what the decision was worth, gross
    turns: dict[str, list[list[int]]] = field(default_factory=dict)  # the calls with new decisions of each key
    revalued: bool = False  # the export shows other rewards than were learned: silence or the range has changed
    unstored: dict[int, int] = field(default_factory=dict)  # by request: decisions that were stored with their reward

    def copy(self) -> Truth:
        """Return a copy that keeps what is true now."""
        own: dict[str, Any] = {
            name: value.copy() if isinstance(value, dict) else value for name, value in vars(self).items()
        }
        own["events"] = {number: events.copy() for number, events in self.events.items()}
        own["turns"] = {key: [*turns] for key, turns in self.turns.items()}
        return Truth(**own)

    def obeys(self, subset: Sequence[int]) -> bool:
        """Return whether a subset has active arms only, and obeys the rules."""
        if not set(subset) <= set(self.config["active"]):
            return False
        shown = {self.config["names"][arm] for arm in subset}
        for kind, arms in self.config["constraints"]:
            count = len(shown.intersection(arms))
            if not {"at-most": count <= 1, "never": count == 0, "always": count == len(arms)}[kind]:
                return False
        return True

    def value(self, number: int) -> float | None:
        """Return the sum of the events of a decision that count; None if there are none."""
        events = self.events.get(number, {})
        counted = [each.value for (kind, _), each in events.items() if kind != RECORD and each.counts]
        return sum(counted) if counted else None


class Model:
    """The promises of one campaign."""

    def __init__(self, world: World, campaign: int, setting: Setting) -> None:
        self.world, self.campaign, self.setting = world, campaign, setting
        self.shipped_ever: set[Subset] = set()
        self.unstored_at: list[float] = []  # when decisions were not to be stored
        self.failed_at: set[int] = set()  # the stamps at which the policy failed
        self.given: set[str] = set()  # ids of decisions that were not stored
        self.find()
        self.truth = Truth(self.last.config, self.secret)

    # What is in the database.

    def find(self) -> None:
        """Find the campaign by its name."""
        self.id, secret = self.world.rows("SELECT id, secret FROM kofn_campaigns WHERE name = ?", self.setting.name)[0]
        self.secret, self.last = bytes.fromhex(secret), Seen(self.world, self.id)
        self.seqs = {
            table: self.world.rows(f"SELECT max(seq) FROM {table.replace('kofn', 'record')}")[0][0] or 0
            for table in RECORDED
        }

    def is_there(self) -> bool:
        """Return whether the campaign exists."""
        return bool(self.world.rows("SELECT 1 FROM kofn_campaigns WHERE name = ?", self.setting.name))

    def restore(self, truth: Truth) -> None:
        """Follow a restored backup or an import. Without the secret, keys are unknown."""
        self.truth = truth.copy()
        self.find()
        if truth.secret not in (b"", self.secret):
            self.truth.turns = {}
        self.truth.secret = self.secret

    def _new(self, table: str, kind: Callable[..., Any]) -> list[Any]:
        """Return the rows that were inserted since the last call."""
        columns = ", ".join(f'"{column}"' for column in RECORDED[table])
        query = f"SELECT seq, {columns} FROM {table.replace('kofn', 'record')} WHERE campaign = ? AND seq > ?"
        rows = self.world.rows(f"{query} ORDER BY seq", self.id, self.seqs[table])
        self.seqs[table] = max([self.seqs[table], *(row[0] for row in rows)])
        return [kind(*row[1:]) for row in rows]

    # After each call.

    def follow(self, pairs: Sequence[Pair], clock: float, fired: str, failures: int) -> None:
        """Check what calls did that were made together, by a process with this clock, while this fault fired."""
        before, after = self.last, Seen(self.world, self.id)
        self.last, self.now, self.clock, self.fired = after, max(clock, before.cut.time), clock, fired
        self._decided: dict[int, list[Any]] = defaultdict(list)
        self._late_stored: dict[int, Any] = {}
        numbers: dict[int, int] = {}
        for row in self._new("kofn_decisions", Decided):
            if row.metadata is not None:
                numbers[row.call] = json.loads(row.metadata)["n"]
            if row.call in numbers:
                self._decided[numbers[row.call]].append(row)
            else:
                self._late_stored[row.request] = row
        self._reported = {(row.decision, row.kind, row.name): row for row in self._new("kofn_events", Reported)}
        self._totalled = {row.key: row for row in self._new("kofn_totals", Totalled)}
        self._fresh = {row.decision for row in self._reported.values()}
        for call, outcome in pairs:
            self._check_call(call, outcome, before, after)
        left = [*self._decided, *self._late_stored, *self._reported, *self._totalled]
        check(not left, "nobody asked for {}", left)
        self._check_config(pairs, before, after)
        back = [one for one, more in zip(before.cut, after.cut, strict=True) if more < one]
        check(not back, "the cut goes back from {} to {}", before.cut, after.cut)
        if after.plan != before.plan or after.config != before.config:
            shown = [row[0] for row in (*after.plan["rows"], *after.plan["fallback"])] + after.plan["control"]
            for subset in map(subset_from, shown):
                check(self.truth.obeys(subset), "the plan has {}, which the rules or arms forbid", subset)
        self._check_failure(pairs, after, failures)
        self._check_counters(after)
        lost = {number for number in self.truth.decisions if number not in after.stored}
        check(lost <= self.truth.settled.keys() | self._expired(after.cut), "open decisions were deleted: {}", lost)

    def _check_call(self, call: Call, outcome: Outcome, before: Seen, after: Seen) -> None:
        if isinstance(call, Decide):
            self._check_decide(call, outcome, before)
        elif isinstance(call, Report):
            self._check_report(call, outcome, before)
        elif isinstance(call, Total):
            self._check_total(call, outcome, before)
        elif isinstance(call, Read) and outcome.answered and not self.fired:
            self._check_read(call, outcome.value, after)
        elif isinstance(call, Learn) and outcome.answered:
            found, all = (self._counted(cut) for cut in (after.cut, self._end(self.clock)))
            check(found == all, "a fold has counted {}, and the log has {}", found, all)
        elif isinstance(call, Read | Learn | Publish):
            lost = isinstance(call, Publish) and call.task.campaign != self.id
            check(outcome.refused is None or lost, "refused: {}", outcome)

    # Decisions.

    def _check_decide(self, call: Decide, outcome: Outcome, before: Seen) -> None:
        rows = sorted(self._decided.pop(call.number, []), key=lambda row: row.place)
        known = self._known(call.key, before)
        if outcome.answered and outcome.value[0].id.startswith("s"):
            check(not rows, "decisions that are not stored are recorded: {}", rows)
            self._check_unstored(call, outcome)
            return
        serves = self.truth.config["state"] in ("running", "shipped")
        check(serves or not (rows or outcome.answered), "a campaign that does not run decided: {}", outcome)
        fits = outcome.refused is None or (isinstance(outcome.refused, NotRunning) and not serves)
        check(fits, "refused: {}", outcome)
        is_over = {self._is_over(known, fresh) for fresh in (set(), self._fresh)} if known else {True}
        if known and self.setting.takes_context and self.truth.config["state"] == "shipped":
            is_over = {True, False}  # which segments are served as which others is not modelled
        if not rows:
            if outcome.answered:
                check(False in is_over, "{} got decisions that are over, or not recorded: {}", call, outcome)
                ids = [self.id_of(number) for number in known]
                check([each.id for each in outcome.value] == ids, "{} had {}, and got {}", call.key, ids, outcome)
            return
        check(outcome.refused is None, "a refused call is recorded: {}", rows)
        check(True in is_over, "{} has decisions already: {}", call.key, known)
        check(len(rows) == call.count, "{} decisions instead of {}", len(rows), call.count)
        self._check_rows(call, rows, known, before)
        for row in rows:
            check(row.number not in self.truth.decisions, "the number {} is used twice", row.number)
            self.truth.decisions[row.number] = row
        if call.key is not None:
            self.truth.turns.setdefault(call.key, []).append([row.number for row in rows])
        if outcome.answered:
            found = [(each.id, each.subset, each.at.timestamp()) for each in outcome.value]
            ours = [(self.id_of(row.number), subset_from(row.subset), row.at) for row in rows]
            check([each[:2] for each in found] == [each[:2] for each in ours], "{} is recorded as {}", found, ours)

    def _check_rows(self, call: Decide, rows: Sequence[Any], known: Sequence[int], before: Seen) -> None:
        """Check decisions against the arms, the rules, the plan and the settings of now."""
        config, planned = self.truth.config, {row[0] for row in (*before.plan["rows"], *before.plan["fallback"])}
        sticky = self._sticky(rows[0], known)
        for place, row in enumerate(rows):
            subset = subset_from(row.subset)
            check((row.place, row.call, row.at) == (place, rows[0].call, self.now), "{}, and it is {}", row, self.now)
            window = config["window"]
            due = row.at + (config["expire_after"] if window is None else window)
            check((row.windowed, row.due) == (window is not None, due), "{} has a wrong window: {}", row, config)
            check(self.truth.obeys(subset), "{} breaks a rule, or has a retired arm: {}", row, config)
            check(row.cost == self._cost(subset), "{} has a wrong cost", row)
            shipped = config["state"] == "shipped"
            check(sticky or (row.group == SHIPPED) == shipped, "{} in the state {}", row, config["state"])
            if shipped:
                served = [config["shipped"][-1], *(each for _, each in config["shipped_to"])]
                check(subset in served, "{} is not what was shipped: {}", row, served)
            elif sticky is not None:
                check(subset == sticky, "a visitor had {} and gets {}", sticky, row)
            elif row.group == CONTROL:
                check(list(subset) == config["control"], "{} is not the control {}", row, config["control"])
            else:
                check(row.step == before.plan["step"], "{} is of another step: {}", row, before.plan)
                check(row.subset in planned, "{} is not in the plan: {}", row, planned)

    def _cost(self, subset: Sequence[int]) -> float:
        costs, names = self.truth.config["costs"] or {}, self.truth.config["names"]
        return float(sum(costs.get(names[arm], 0.0) for arm in subset))

    def id_of(self, number: int) -> str:
        """Return the id of a stored decision."""
        return write_id(self.secret, number, self.truth.decisions[number].salt)

    def _known(self, key: str | None, before: Seen) -> list[int]:
        """Return the decisions of the last call of this key that the store has."""
        turns = self.truth.turns.get(key or "", [])
        made_now = self._made_now(before)
        kept = [[number for number in turn if number in before.stored or number in made_now] for turn in turns]
        return next((turn for turn in reversed(kept) if turn), [])

    def _is_over(self, known: Sequence[int], fresh: set[int]) -> bool:
        """Return whether the key of these decisions gets new ones; `fresh` ones may have been rewarded too late."""
        made, config = [self.truth.decisions[number] for number in known], self.truth.config
        told = {row.number for row in made if self._is_told(row.number)} - fresh
        settled = all(row.due <= self.now if row.windowed else row.number in told for row in made)
        if settled and config["sticky"] is not None:
            return True
        subsets = [subset_from(row.subset) for row in made]
        if config["state"] == "shipped":
            to = dict(config["shipped_to"])
            served = [to.get(row.context, config["shipped"][-1]) for row in made]
            return subsets != served
        return not all(map(self.truth.obeys, subsets))

    def _is_told(self, number: int) -> bool:
        return any(kind != RECORD for kind, _ in self.truth.events.get(number, ()))

    def _sticky(self, row: Any, known: Sequence[int]) -> Subset | None:
        """Return the subset that a visitor keeps."""
        sticky, config = self.truth.config["sticky"], self.truth.config
        if not known or sticky is None or config["state"] == "shipped":
            return None
        last = self.truth.decisions[known[-1]]
        subset = subset_from(last.subset)
        kept = self.now - last.at <= sticky and last.context == row.context and self.truth.obeys(subset)
        return subset if kept else None

    def _check_unstored(self, call: Decide, outcome: Outcome) -> None:
        now = self._is_unstored()
        near = [at for at in self.unstored_at if abs(self.clock - at) <= SHIPPED_FOR]
        check(now or near, "decisions are not stored, but should be: {}", outcome)
        check(len(outcome.value) == call.count, "{} decisions instead of {}", len(outcome.value), call.count)
        for each in outcome.value:
            check(each.subset in self.shipped_ever, "{} was never shipped", each)
            check(each.id not in self.given, "two decisions have the id {}", each.id)
            self.given.add(each.id)

    def _is_unstored(self) -> bool:
        return self.truth.config["state"] == "shipped" and not self.truth.config["store_shipped"]

    # Events.

    def _check_report(self, call: Report, outcome: Outcome, before: Seen) -> None:
        kind, config = KINDS[call.kind], self.truth.config
        whole: set[type[KofnError]] = {NotRunning} if config["state"] == "archived" else set()
        new: list[tuple[int | UnstoredPlace, str, float, bool]] = []
        counts: Counter[str] = Counter()
        refused: dict[str, set[type[KofnError]]] = defaultdict(set)
        for id, name, value in call.items:
            verdict, place = self._verdict(kind, id, name, value, before, new)
            if isinstance(verdict, str):
                counts[verdict] += 1
                if place is not None:
                    new.append((place, name, value, verdict == "late"))
            else:
                refused[id].add(verdict)
        if whole or (refused and not call.partial):
            check(not outcome.answered, "{} was taken, and should be refused: {}", call, [*whole, refused])
            fits = outcome.refused is None or isinstance(outcome.refused, tuple(whole.union(*refused.values())))
            check(fits, "refused for another reason: {}, not {}", outcome, refused)
            return
        check(outcome.refused is None, "refused: {}", outcome)
        keys = [self._key(kind, place, name) for place, name, *_ in new]
        found = [self._reported.pop(key, None) if key else None for key in keys]
        if outcome.answered:
            answer = outcome.value
            check({each.id for each in answer.refused} == refused.keys(), "{} instead of {}", answer, refused)
            numbers = {name: getattr(answer, name) for name in ("accepted", "repeated", "forgotten", "late")}
            check(numbers == {name: counts[name] for name in numbers}, "{} instead of {}", answer, counts)
        check(all(found) or not (outcome.answered or any(found)), "{} is recorded in part: {}", call, found)
        for (_, name, value, late), row in zip(new, found, strict=True):
            if row is not None:
                self._check_event(row, value, late)
                self.truth.events.setdefault(row.decision, {})[kind, name] = row

    def _key(self, kind: int, place: int | UnstoredPlace, name: str) -> tuple[int, int, str] | None:
        """Return what an event is recorded under; None if its decision was not stored. A new one is, if it is now."""
        if isinstance(place, int):
            return place, kind, name
        if (row := self._late_stored.pop(place.request, None)) is not None:
            arms = subset_from(row.subset)
            shipment = shipment_of(arms, row.context)
            check((row.group, shipment) == (SHIPPED, place.shipment), "{} was never shipped", row)
            due = self.now + self.truth.config["expire_after"]
            fits = (row.at, row.due, row.windowed, row.cost) == (place.milliseconds / 1000, due, 0, self._cost(arms))
            check(fits, "{} is stored wrongly, of {}", row, place)
            self.truth.decisions[row.number] = row
            self.truth.unstored[place.request] = row.number
        number = self.truth.unstored.get(place.request)
        return None if number is None else (number, kind, name)

    def _verdict(
        self, kind: int, id: str, name: str, value: float, before: Seen, new: Sequence[Any]
    ) -> tuple[str | type[KofnError], int | UnstoredPlace | None]:
        """Return what must be answered about an item, and its decision if the event is new."""
        try:
            place = read_id(self.secret, id)  # it checks the signature only
        except UnknownDecision:
            return UnknownDecision, None
        if isinstance(place, UnstoredPlace):
            if place.shipment not in self._shipments():
                return UnknownDecision, None
            number = self.truth.unstored.get(place.request)
            if number not in before.stored and number not in self._made_now(before):
                made, kept = place.milliseconds / 1000, before.progress.get("kept_at", 0.0)
                if self.now - made > self.truth.config["expire_after"] or made <= kept:
                    return "forgotten", None
                number = None
        else:
            number = place.number
            salt = before.stored.get(number)
            if number in self._made_now(before):
                salt = self.truth.decisions[number].salt
            if salt is None and number <= before.cut.decisions:
                return "forgotten", None
            if salt != place.salt:
                return UnknownDecision, None
        return self._verdict_of_value(kind, number, place, name, value, new)

    def _made_now(self, before: Seen) -> set[int]:
        """Return the decisions that calls before this one, in the same transaction, have made."""
        return {number for number in self.truth.decisions if number > before.cut.decisions} - before.stored.keys()

    def _shipments(self) -> set[int]:
        config = self.truth.config
        of_segments = {shipment_of(tuple(subset), key) for key, subset in (*config["shipped_to"], *config["before"])}
        return {*map(shipment_of, config["shipped"]), *of_segments}

    def _verdict_of_value(
        self, kind: int, number: int | None, place: Any, name: str, value: float, new: Sequence[Any]
    ) -> tuple[str | type[KofnError], int | UnstoredPlace | None]:
        config, known = self.truth.config, self.truth.events.get(-1 if number is None else number, {})
        if (kind, name) in known:
            return ("repeated" if known[kind, name].value == value else Conflict), None
        same = [each for each in new if each[0] == (place if number is None else number)]
        if len(known) + len(same) >= MAX_EVENTS:
            return BadInput, None
        windowed = number is not None and bool(self.truth.decisions[number].windowed)
        sums = config["window"] is not None if isinstance(place, UnstoredPlace) else windowed
        if kind == ADD and not sums:
            return BadInput, None
        low, high = config["reward_range"]
        total = value + sum(row.value for (of, _), row in known.items() if of != RECORD)
        total += sum(each[2] for each in same)
        if kind != RECORD and config["outside"] == "refuse" and not low <= total <= high:
            return BadReward, None
        if number is None:
            return "accepted", place
        row = self.truth.decisions[number]
        if kind == RECORD:
            late = row.at + (config["metric_window"] or config["window"] or config["expire_after"]) <= self.now
        else:
            late = windowed and row.due <= self.now
        return ("late" if late else "accepted"), number

    def _check_event(self, row: Any, value: float, late: bool) -> None:
        counts = not late
        if row.decision in self.truth.unstored.values():  # nobody sees the silence of the others
            counts = counts and self.truth.config["window"] is None
        check((row.value, row.at, row.counts) == (value, self.now, counts), "{} of {}, at {}", row, value, self.now)
        settled = self.truth.decisions[row.decision].windowed and row.decision in self.truth.settled
        check(row.kind == RECORD or not (settled and counts), "{} counts, but its decision has settled", row)

    def _check_total(self, call: Total, outcome: Outcome, before: Seen) -> None:
        row, config = self._totalled.pop(call.key, None), self.truth.config
        fits: list[type[KofnError]] = []
        low, high = config["reward_range"]
        if config["state"] == "archived":
            fits.append(NotRunning)
        if not set(call.arms) <= set(config["active"]):
            fits.append(BadInput)
        if config["outside"] != "widen" and not low * call.count <= call.total <= high * call.count:
            fits.append(BadReward)
        if fits:
            check(not outcome.answered and row is None, "{} was taken", call)
        if outcome.refused is not None:
            exact = [] if self.setting.learns_from_all else [BadTally]
            check(isinstance(outcome.refused, (*fits, *exact)), "refused: {}", outcome)
        known = call.key in before.keys
        check(row is None or (outcome.refused is None and not known), "{} is recorded: {}", call, row)
        if row is not None:
            check(subset_from(row.subset) == call.arms, "{} is recorded as {}", call, row)
            given = call.count, call.total, self._cost(call.arms), self.now
            check((row.count, row.total, row.cost, row.at) == given, "{} is recorded as {}", call, row)
            self.truth.totals[row.number] = row
        if outcome.answered:
            check(outcome.value.accepted == (0 if known else call.count), "{} of {}", outcome, call)

    # Settings.

    def _check_config(self, pairs: Sequence[Pair], before: Seen, after: Seen) -> None:
        truth, (call, outcome) = self.truth, pairs[0]
        if truth.config["outside"] == "widen":
            (low, high), (least, most) = truth.config["reward_range"], after.config["reward_range"]
            check(least <= low and high <= most, "the range shrinks from {} to {}", truth.config, after.config)
            truth.config = {**truth.config, "reward_range": (least, most)}
        if isinstance(call, ChangeArm | Configure | Enter):
            changed = self._changed(call, after)
            if outcome.answered:
                check(changed is not None, "{} was not possible", call)
                check(after.config == changed, "after {}, the settings are {}, not {}", call, after.config, changed)
            elif outcome.refused is not None:
                check(changed is None, "refused: {}", outcome)
            if changed is not None and after.config == changed:
                truth.revalued |= any(changed[name] != truth.config[name] for name in ("silence", "reward_range"))
                truth.config = changed
        check(after.config == truth.config, "the settings are {}, not {}", after.config, truth.config)
        if truth.config["shipped"]:
            self.shipped_ever |= {*truth.config["shipped"], *(subset for _, subset in truth.config["shipped_to"])}
        if self._is_unstored():
            self.unstored_at.append(self.clock)

    def _changed(self, call: ChangeArm | Configure | Enter, after: Seen) -> dict[str, Any] | None:
        """Return the settings after a change; None if it must be refused."""
        config = self.truth.config
        if isinstance(call, Enter):
            return self._entered(call, config, after)
        new = Truth({**config}, b"")
        if config["state"] == "archived":
            return None
        used = {*(config["control"] or ())}
        shipped = config["state"] == "shipped"
        served = [config["shipped"][-1], *(each for _, each in config["shipped_to"])] if shipped else []
        if isinstance(call, ChangeArm):
            numbers = {config["names"][arm]: arm for arm in config["active"]}
            if call.add == (call.name in numbers) or self.setting.policy == "cmab-sm":
                return None
            if not self.setting.learns_from_all:
                return None
            if call.add:
                new.config |= {"names": [*config["names"], call.name]}
                new.config |= {"active": [*config["active"], len(config["names"])]}
            else:
                gone = numbers[call.name]
                if len(numbers) <= self.setting.k + 1 or gone in used or any(gone in each for each in served):
                    return None
                new.config["active"] = [arm for arm in config["active"] if arm != gone]
        else:
            value = call.value
            if call.name == "constraints":
                value = plain_rules(value)
            elif call.name == "reward_range":
                (low, high), (least, most) = config["reward_range"], value
                if least > low or most < high:
                    return None
            new.config[call.name] = value
        shown = [*served, *([config["control"]] if config["control"] else [])]
        possible = any(map(new.obeys, combinations(new.config["active"], self.setting.k)))
        return new.config if possible and all(map(new.obeys, shown)) else None

    def _entered(self, call: Enter, config: dict[str, Any], after: Seen) -> dict[str, Any] | None:
        if call.state == config["state"] != "shipped":
            return config
        if config["state"] not in ALLOWED[call.state]:
            return None
        if call.state != "shipped":
            return {**config, "state": call.state}
        if not self._counted(self._end(self.clock))["rewards"]:
            return None
        new = after.config["shipped"]
        if after.config["state"] != "shipped" or not new:
            return {**config, "state": "shipped"}  # it was not done
        check(self.truth.obeys(new[-1]), "{} was shipped, and breaks a rule", new[-1])
        kept = [each for each in config["shipped"] if each != new[-1]]
        own = {"state": "shipped", "shipped": [*kept, new[-1]], "store_shipped": call.stored}
        return {**config, **own, **{name: after.config[name] for name in ("shipped_to", "before")}}

    def _check_failure(self, pairs: Sequence[Pair], after: Seen, failures: int) -> None:
        """A campaign whose policy has failed says so until something changes; others never do."""
        if failures:
            self.failed_at.add(after.row.stamp)
            told = any(outcome.answered and not isinstance(call, ReadTask) for call, outcome in pairs)
            check(after.row.failure or self.fired or not told, "the policy has failed, and nothing says so")
        for call, outcome in pairs:
            if isinstance(call, Publish) and isinstance(call.learned, Exception) and outcome.answered:
                same = (after.row.step, after.row.stamp) == (call.task.step, call.task.stamp)
                check(after.row.failure or not same, "the policy has failed, and nothing says so")
        stale = after.row.failure and after.row.stamp not in self.failed_at
        check(not stale, "the policy has not failed since the last change: {}", after.row.failure)

    # What was counted.

    def _end(self, clock: float) -> Cut:
        """Return the present end of the log."""
        truth = self.truth
        events = [each.number for events in truth.events.values() for each in events.values()]
        return Cut(
            max(truth.decisions, default=0),
            max(events, default=0),
            max(truth.totals, default=0),
            max(clock, self.last.cut.time),
        )

    def _settling(self, cut: Cut) -> Iterator[tuple[int, float]]:
        """Yield the decisions that have settled up to a cut and were not counted yet, and their rewards."""
        truth, config = self.truth, self.truth.config
        low, high = config["reward_range"]
        for number, row in truth.decisions.items():
            if number in truth.settled or number > cut.decisions:
                continue
            if row.windowed:
                if row.due > cut.time:
                    continue
                value = truth.value(number)
                value = config["silence"] if value is None else value
            else:
                reward = truth.events.get(number, {}).get((REWARD, ""))
                if reward is None or not reward.counts or reward.number > cut.events:
                    continue
                value = reward.value
            yield number, value if config["outside"] == "widen" else min(max(value, low), high)

    def _expired(self, cut: Cut) -> set[int]:
        """Return the decisions without a window and without a reward that have expired at a cut."""
        rows = self.truth.decisions.items()
        late = {number for number, row in rows if not row.windowed and row.due <= cut.time and number <= cut.decisions}
        return late - self.truth.settled.keys()

    def _counted(self, cut: Cut) -> dict[str, Any]:
        """Return the counters at a cut."""
        truth, sign = self.truth, 1.0 if self.setting.direction == "maximize" else -1.0
        settled = {**truth.settled, **dict(self._settling(cut))}
        decided = [row for number, row in truth.decisions.items() if number <= cut.decisions]
        expired = self._expired(cut) - settled.keys()
        totals = [row for number, row in truth.totals.items() if number <= cut.totals]
        net = {number: value - sign * truth.decisions[number].cost for number, value in settled.items()}
        totalled = sum(row.count for row in totals)
        flying = Counter(
            (row.subset, row.context) for row in decided if row.number not in settled and row.number not in expired
        )
        plays: dict[tuple[str, str | None], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for number, value in settled.items():
            row = truth.decisions[number]
            _add(plays[row.subset, row.context], 1, value, value * value)
        for row in totals:
            _add(plays[row.subset, row.context], row.count, row.total, row.squares)
        groups = {}
        for name, group in (("learned", LEARNED), ("control", CONTROL)):
            values = [net[n] for n in settled if truth.decisions[n].group == group and truth.decisions[n].compared]
            groups[name] = [len(values), sum(values), sum(value * value for value in values)]
        return {
            "plays": len(decided) + totalled,
            "rewards": len(settled) + totalled,
            "in_flight": sum(flying.values()),
            "expired": len(expired),
            "total": sum(net.values()) + sum(row.total - sign * row.count * row.cost for row in totals),
            "flying": dict(flying),
            "told": {play: sums for play, sums in plays.items() if sums[0]},
            **groups,
        }

    def _check_counters(self, after: Seen) -> None:
        """The counters and the learning steps are those of all decisions that have settled up to the cut."""
        expected = self._counted(after.cut)
        self.truth.settled.update(self._settling(after.cut))
        row, progress = after.row, after.progress
        found: dict[str, Any] = {name: getattr(row, name) for name in ("plays", "rewards", "in_flight", "expired")}
        found["total"] = progress.get("total", 0.0)
        found["flying"] = {(subset, context): count for subset, context, count in progress.get("in_flight", [])}
        found |= {name: progress.get(name, [0, 0.0, 0.0]) for name in ("learned", "control")}
        told: dict[tuple[str, str | None], list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for (tallies,) in self.world.rows("SELECT tallies FROM kofn_folds WHERE campaign = ?", self.id):
            for subset, context, *sums in json.loads(tallies):
                _add(told[subset, context], *sums)
        found["told"] = dict(told)
        for name, value in expected.items():
            check(_same(found[name], value), "{} is {}, not {}", name, found[name], value)

    # Reports.

    def _check_read(self, call: Read, answer: Any, after: Seen) -> None:
        config = self.truth.config
        names = [config["names"][arm] for arm in config["active"]]
        if call.what == "arms":
            check(answer == names, "the arms are {}, not {}", answer, names)
        elif call.what == "best" and after.row.learned == after.row.step - 1:
            best = [config["active"][names.index(name)] for name in answer]
            check(self.truth.obeys(best), "the best arms {} break a rule", answer)
        elif call.what == "summary":
            expected = self._counted(self._end(self.clock))
            found = {name: getattr(answer, name) for name in ("plays", "rewards", "in_flight", "expired")}
            found["total"] = (answer.mean or 0.0) * answer.rewards
            for name, value in found.items():
                check(_same(value, expected[name]), "{} is {}, not {}", name, value, expected[name])
            check(answer.failing == bool(after.row.failure), "failing is {}", answer.failing)
        elif call.what == "decisions":
            self._check_logged(answer, after)

    def _check_logged(self, answer: Sequence[Any], after: Seen) -> None:
        """The export of decisions has what was recorded."""
        truth, settled = self.truth, {**self.truth.settled, **dict(self._settling(self._end(self.clock)))}
        found = {int(each.id.partition("-")[0], 16): each for each in answer}
        check(found.keys() == after.stored.keys(), "the export has {}, not {}", [*found], [*after.stored])
        for number, each in found.items():
            row, events = truth.decisions[number], truth.events.get(number, {})
            metrics = {name: event.value for (kind, name), event in events.items() if kind == RECORD}
            check(each.metrics == metrics, "{} has the metrics {}", each, metrics)
            told = (REWARD, "") in events if not row.windowed else row.due <= max(self.clock, after.cut.time)
            check(each.settled == told, "{} has settled: {}", each, told)
            if number in settled and not truth.revalued:
                check(each.reward == settled[number], "{} was worth {}", each, settled[number])


def _add(sums: list[float], *more: float) -> None:
    for index, value in enumerate(more):
        sums[index] += value


def _same(one: Any, other: Any) -> bool:
    """Return whether two numbers are the same up to rounding, also in lists and dicts."""
    if isinstance(one, dict):
        return bool(one.keys() == other.keys()) and all(_same(value, other[name]) for name, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(abs(one - other) <= 1e-9 * max(1.0, abs(one)))
