"""Decisions and events are appended: all calls that wait, of all campaigns, in one transaction.

A transaction first takes the locks of its campaigns, shared (PostgreSQL) or as the one writer (SQLite). Then it draws
numbers and reads the clock, so a fold, which has the lock alone, sees everything up to a number. Everything that the
calls need is read at once; each call is checked as a whole; then all is written at once. A call whose campaign has
changed since its decisions were drawn is done again with the present settings and plan.

No policy and no solver runs here.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection, Select, func, null, select, text

from kofn.campaigns.names import Place, UnstoredPlace, read_id, request_of, write_id
from kofn.campaigns.roster import subset_from
from kofn.campaigns.serving import Drawn, Serving
from kofn.campaigns.settings import GROUPS, SHIPPED, Settings, metric_name
from kofn.campaigns.store.database import LOCKS
from kofn.campaigns.store.group_commit import Job, Outcome
from kofn.campaigns.store.schema import CAMPAIGNS, DECISIONS, EVENTS, VERSION
from kofn.campaigns.store.stamps import new_stamp
from kofn.campaigns.store.statements import Among, Driver, Insert, ListStatement, Statement
from kofn.campaigns.store.version import check_version
from kofn.core import (
    BadInput,
    BadReward,
    Conflict,
    KofnError,
    NoSuchCampaign,
    NotRunning,
    StoreError,
    UnknownDecision,
)
from kofn.core.checks import LARGEST_REWARD, MAX_LENGTH, outside_range, reward_number, shown
from kofn.core.contexts import context_of
from kofn.core.plan import ROUNDING
from kofn.core.responses import Decision, Refusal, Rewarded, moment

if TYPE_CHECKING:
    from kofn.campaigns.store.database import Store

TRIES = 20
"""How often a call is tried while its campaign changes, or while another process writes under the same keys."""

HEAVY = 1000
"""Decisions or events from which a call has a separate transaction, so that small calls do not wait for it."""

MAX_METADATA = 2000
"""Longest metadata of a call, in characters of JSON."""

MAX_EVENTS = 100
"""Most events of one decision. Higher: a caller can store more without limit."""

WIDEST = 1e6
"""Times the range by which a reward may be outside it, if the range is learned. A higher value lets one wrong reward
make all others look alike."""

REWARD, ADD, RECORD = range(3)
KINDS = {"reward": REWARD, "add": ADD, "record": RECORD}

_C, _D, _E = CAMPAIGNS.c, DECISIONS.c, EVENTS.c


def _newest(table: Any) -> Any:
    return select(func.max(table.c.number)).where(table.c.campaign == _C.id).scalar_subquery()


def _heads(among: Among, *numbers: Any) -> Select[Any]:
    version = select(VERSION.c.version).limit(1).scalar_subquery()
    columns = _C.id, _C.version, _C.stamp, _C.cut, _C.cut_decisions, _C.cut_events, version
    return select(*columns, *numbers).where(among(_C.id, "ids"))


_HEADS = ListStatement(lambda among: _heads(among, null(), null()))
_COUNTED_HEADS = ListStatement(lambda among: _heads(among, _newest(DECISIONS), _newest(EVENTS)))
_LOCK = Statement(text(f"SELECT pg_advisory_xact_lock_shared({LOCKS}, id) FROM unnest(CAST(:ids AS int[])) AS id"))
_CLOCK = Statement(text("SELECT extract(epoch FROM clock_timestamp())::float8"))
_NUMBERS = Statement(text("SELECT nextval('kofn_numbers') FROM generate_series(1, :n)"))
_STORED = ("number", "salt", "subset", "windowed", "at", "due")
_EVENTS_OF = (_E.campaign == _D.campaign) & (_E.decision == _D.number)
_BY_NUMBER = ListStatement(
    lambda among: (
        select(_D.campaign, *(_D[name] for name in _STORED), _E.kind, _E.name, _E.value)
        .select_from(DECISIONS.outerjoin(EVENTS, _EVENTS_OF))
        .where(among(_D.campaign, "ids"), among(_D.number, "values"))
    )
)
_KEYED = ("number", "salt", "turn", "subset", "group", "propensity", "at", "due", "windowed", "request", "context")
_REWARDED = select(func.count()).where(_EVENTS_OF, _E.kind != RECORD).correlate(DECISIONS).scalar_subquery()
_BY_REQUEST = ListStatement(
    lambda among: (
        select(_D.campaign, *(_D[name] for name in _KEYED), _REWARDED)
        .where(among(_D.campaign, "ids"), among(_D.request, "values"))
        .order_by(_D.turn, _D.place)
    )
)
_UNSTORED_EVENTS = ListStatement(
    lambda among: (
        select(_D.campaign, _D.number, _E.kind, _E.name, _E.value)
        .join(EVENTS, _EVENTS_OF)
        .where(among(_D.campaign, "ids"), among(_D.request, "values"))
    )
)
_PROGRESS = ListStatement(lambda among: select(_C.id, _C.progress).where(among(_C.id, "ids")))
_INSERT_DECISIONS, _INSERT_EVENTS = Insert(DECISIONS), Insert(EVENTS)

_COLLISIONS = ("23505", "40P01", "40001")
"""PostgreSQL's codes of errors after which the transaction is done again: another process wrote under the same key, or
the two waited for each other."""


class Stored(NamedTuple):
    """A stored decision, as far as events need it."""

    number: int
    salt: int
    subset: str
    windowed: int
    at: float
    due: float


class Keyed(NamedTuple):
    """A decision of a call with a key."""

    number: int
    salt: int
    turn: int
    subset: str
    group: int
    propensity: float | None
    at: float
    due: float
    windowed: int
    request: int
    context: str | None
    rewarded: int


# The calls.


@dataclass(eq=False)
class Append(Job):
    """A call that appends to the log of one campaign."""

    campaign: int
    secret: bytes

    @property
    def numbers(self) -> int:
        """An upper limit of the numbers that it needs."""
        raise NotImplementedError

    def perform(self, group: Group, serving: Serving) -> Any:
        """Check the call, append to the group, and return the result; or raise, and append nothing."""
        raise NotImplementedError


@dataclass(eq=False)
class Decide(Append):
    """A call of `decide`."""

    count: int
    key: str | None
    metadata: str | None
    context: Mapping[str, Any] | None
    source: str | None
    request: int | None = None

    def __post_init__(self) -> None:
        self.heavy = self.count >= HEAVY
        if self.key is not None:
            self.request = request_of(self.secret, self.key)

    @property
    def numbers(self) -> int:
        """One for each decision."""
        return self.count

    def perform(self, group: Group, serving: Serving) -> list[Decision]:
        """Append the decisions; a call with a known key gets its decisions again."""
        serving.check_serves()
        segment = serving.segment_of(self.context)
        if self.source is not None and self.context:
            serving.check_declared()
        if serving.state == "shipped" and not serving.settings.store_shipped:
            serving.seen = group.store.clock()
            return serving.unstored(self.count, segment, serving.seen)
        made, now = group.made(self.campaign, self.request), group.now(self.campaign)
        if made and not self._is_over(made, serving, now):
            if len(made) != self.count:
                raise Conflict(
                    f"the key {self.key!r} was used for {len(made)} decisions, and this call asks for {self.count}: "
                    "use a new key"
                )
            return [_decision(serving, each.number, each.salt, each, each.at, each.context) for each in made]
        drawn = self._sticky(made, serving, segment, now) or serving.draw(self.count, self.key, segment)
        return group.decide(self, serving, drawn, made[-1].turn + 1 if made else 0, segment)

    @staticmethod
    def _is_over(made: Sequence[Keyed], serving: Serving, now: float) -> bool:
        """Return whether a call with the key of these decisions gets new ones."""
        settled = all(each.due <= now if each.windowed else each.rewarded for each in made)
        if settled and serving.settings.sticky is not None:
            return True
        if serving.state == "shipped":
            served = [serving.settings.shipped_for(serving.served_segment(each.context)) for each in made]
            return any(subset_from(each.subset) != subset for each, subset in zip(made, served, strict=True))
        return not all(serving.may_show(subset) for subset in {each.subset for each in made})

    def _sticky(self, made: Sequence[Keyed], serving: Serving, segment: str | None, now: float) -> list[Drawn] | None:
        """Return plays of the arms that this key had before.

        None if there are none, or if that was too long ago or in another segment, an arm is retired, the rules forbid
        them, the control has changed since, or another subset is shipped.
        """
        sticky = serving.settings.sticky
        if not made or sticky is None or serving.state == "shipped":
            return None
        last = made[-1]
        if now - last.at > sticky or last.number <= serving.settings.control_from or last.context != segment:
            return None
        if not serving.may_show(last.subset):
            return None
        return [Drawn(last.subset, last.group, last.propensity)] * self.count


Item = tuple[str, str, float]
"""An event as it was given: the id of the decision, the name of the event or metric, and the value."""


@dataclass(eq=False)
class Report(Append):
    """A call of `rewards`, `adds` or `records`: events of decisions, by place, and those that are refused.

    With `partial`, the others are recorded although some are refused.
    """

    kind: int
    partial: bool
    given: dict[tuple[Place | UnstoredPlace, str], tuple[str, float]] = field(default_factory=dict)
    refused: list[Refusal] = field(default_factory=list)

    @classmethod
    def of(cls, campaign: int, secret: bytes, kind: str, items: Iterable[Any], *, partial: bool) -> Report:
        """Return the call with these items, each checked by itself."""
        report = cls(campaign, secret, KINDS[kind], partial)
        try:
            for id, name, value in _named(report.kind, items):
                try:
                    report._add(id, name, value)
                except KofnError as why:
                    report.refuse(id, why)
        except (TypeError, ValueError) as why:
            if isinstance(why, BadInput):
                raise
            raise BadInput(_ITEMS[report.kind]) from None
        report.heavy = len(report.given) >= HEAVY
        return report

    def _add(self, id: Any, name: Any, value: Any) -> None:
        if isinstance(id, Decision):
            id = id.id
        number = reward_number(value)
        if math.isnan(number) or abs(number) > LARGEST_REWARD:
            raise BadReward(f"a reward must be one number; got {shown(value)}")
        place = read_id(self.secret, id)
        first = self.given.setdefault((place, check_event_name(self.kind, name)), (id, number))[1]
        if first != number:
            raise Conflict(f"the batch has two values for the decision {id}: {first:g} and {number:g}")

    def refuse(self, id: object, why: KofnError) -> None:
        """Refuse one item for this reason; without `partial`, raise the error."""
        if not self.partial or isinstance(why, StoreError):
            raise why
        self.refused.append(Refusal(str(id)[:MAX_LENGTH], str(why)))

    @property
    def numbers(self) -> int:
        """One for each event, and one for each decision that was not stored."""
        return 2 * len(self.given)

    def perform(self, group: Group, serving: Serving) -> Rewarded:
        """Append the new events."""
        if serving.state == "archived":
            raise NotRunning(f"the campaign {serving.name!r} is archived: it takes no rewards")
        again = Report(self.campaign, self.secret, self.kind, self.partial, refused=list(self.refused))
        counts: Counter[str] = Counter()
        new: list[tuple[Stored | UnstoredPlace, str, float, bool]] = []
        pending: dict[Place | UnstoredPlace, dict[tuple[int, str], float]] = defaultdict(dict)
        for (place, name), (id, value) in self.given.items():
            try:
                found = self._find(group, serving, id, place)
                if found is None:
                    counts["forgotten"] += 1
                    continue
                known, seen = pending[place], isinstance(place, Place)
                windowed = serving.settings.window is not None
                if isinstance(found, Stored):
                    known.update(group.events.get((self.campaign, found.number), ()))
                    windowed = bool(found.windowed) if seen else windowed
                if self._is_known(id, known, name, value):
                    counts["repeated"] += 1
                    continue
                self._check(serving.settings, id, windowed, known, value)
                late = self._is_late(group, serving, found)
                counts["late" if late else "accepted"] += 1
                known[self.kind, name] = value
                new.append((found, name, value, not late and (seen or not windowed)))
            except KofnError as why:
                again.refuse(id, why)
        group.report(self, serving, new)
        return Rewarded(counts["accepted"], counts["repeated"], counts["forgotten"], again.refused, late=counts["late"])

    def _find(
        self, group: Group, serving: Serving, id: str, place: Place | UnstoredPlace
    ) -> Stored | UnstoredPlace | None:
        """Return the decision; None if it is no longer stored. Raise UnknownDecision if it was never made."""
        if isinstance(place, Place):
            stored = group.stored.get((self.campaign, place.number))
            if stored is not None and stored.salt == place.salt:
                return stored
            if stored is None and place.number <= group.cut_decisions(self.campaign):
                return None
            raise UnknownDecision(
                f"{id} is not a decision of this campaign, or it was made after the backup that was restored"
            )
        if place.shipment not in serving.shipments:
            raise UnknownDecision(
                f"{id} is of a subset that this campaign did not ship, or it was made after the backup"
            )
        if made := group.made(self.campaign, place.request):
            one = made[0]
            return Stored(one.number, one.salt, one.subset, one.windowed, one.at, one.due)
        at = place.milliseconds / 1000
        if group.now(self.campaign) - at > serving.settings.expire_after or at <= group.kept_at.get(self.campaign, 0.0):
            return None
        return place

    def _is_known(self, id: str, known: Mapping[tuple[int, str], float], name: str, value: float) -> bool:
        """Return whether this event is recorded already; raise Conflict if another value is."""
        before = known.get((self.kind, name))
        if before is None or before == value:
            return before is not None
        what = ("the reward", f"the event {name!r} with", f"the metric {name!r} with")[self.kind]
        raise Conflict(f"the decision {id} already has {what} {before:g}; got {value:g}")

    def _check(
        self, settings: Settings, id: str, windowed: bool, known: Mapping[tuple[int, str], float], value: float
    ) -> None:
        """Raise BadInput if a decision with these events cannot have this one, too."""
        if len(known) >= MAX_EVENTS:
            raise BadInput(f"the decision {id} has {MAX_EVENTS} events already, the most that one can have")
        if self.kind == ADD and not windowed:
            raise BadInput(
                f"add needs a window, after which the sum settles, and the decision {id} has none: "
                "configure(window='30m') gives new decisions one; or use reward"
            )
        if self.kind != RECORD:
            _check_value(settings, id, value + sum(each for (kind, _), each in known.items() if kind != RECORD))

    def _is_late(self, group: Group, serving: Serving, found: Stored | UnstoredPlace) -> bool:
        """Return whether the window of the decision is over."""
        if isinstance(found, UnstoredPlace):
            return False
        now = group.now(self.campaign)
        if self.kind == RECORD:
            return found.at + serving.settings.metrics_after <= now
        return bool(found.windowed) and found.due <= now


_ITEMS = (
    "rewards must be a dict {id: reward} or pairs (id, reward)",
    "events must be triples (id, value, event)",
    "records must be triples (id, name, value)",
)


def _named(kind: int, items: Any) -> Iterator[Any]:
    """Yield the id, the name and the value of each item."""
    if kind == REWARD:
        return ((id, "", value) for id, value in (items.items() if isinstance(items, Mapping) else items))
    if kind == ADD:
        return ((id, name, value) for id, value, name in items)
    return ((id, name, value) for id, name, value in items)


def check_event_name(kind: int, name: Any) -> str:
    """Return the name of an event, or raise BadInput."""
    if kind == RECORD:
        return metric_name(name)
    if kind == ADD and not (isinstance(name, str) and 0 < len(name) <= MAX_LENGTH and name.isprintable()):
        raise BadInput(f"event must be text that names it, such as 'order-17'; got {shown(name)}")
    return str(name)


def _check_value(settings: Settings, id: str, value: float) -> None:
    """Raise BadReward if the campaign refuses a reward, or a sum of events, of this value."""
    low, high = settings.reward_range
    if low <= value <= high or settings.outside == "clip":
        return
    if settings.outside == "widen":
        beyond = max(low - value, value - high)
        if not (abs(value) <= LARGEST_REWARD and beyond <= WIDEST * (high - low)):
            raise BadReward(
                f"a reward must be at most {WIDEST:,.0f} times the range outside it, which is {low:g} to {high:g} now; "
                f"got {shown(value)}. Widen it with configure(reward_range=...) if that is right"
            )
        return
    slack = ROUNDING * (high - low)
    if not low - slack <= value <= high + slack:
        way_out = "Set outside='clip' to clip such rewards, or widen reward_range"
        raise outside_range(low, high, f"{shown(value)} for {id}. {way_out}")


def metadata_text(metadata: Mapping[str, Any] | None) -> str | None:
    """Return the metadata of a call as the store writes it, or raise BadInput."""
    if metadata is None:
        return None
    try:
        if not isinstance(metadata, Mapping):
            raise TypeError
        written = json.dumps(dict(metadata), separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise BadInput(f"metadata must be a dict that JSON can represent; got {shown(metadata)}") from None
    if len(written) > MAX_METADATA:
        raise BadInput(f"metadata must be at most {MAX_METADATA:,} characters of JSON; got {len(written):,}")
    return written


def _decision(
    serving: Serving, number: int, salt: int, drawn: Drawn | Keyed, at: float, segment: str | None
) -> Decision:
    subset = subset_from(drawn.subset)
    return Decision(
        write_id(serving.secret, number, salt),
        serving.roster.names_of(subset),
        subset,
        moment(at),
        GROUPS[drawn.group],
        None if segment is None else context_of(segment),
    )


# The transaction.


class _Head(NamedTuple):
    """What a transaction reads of a campaign."""

    id: int
    version: int
    stamp: int
    cut: float
    cut_decisions: int
    cut_events: int


Wanted = defaultdict[int, set[int]]
"""What is read of each campaign: decisions with these numbers, or with these hashes of keys."""


def _ask(driver: Driver, statement: ListStatement, wanted: Wanted) -> Callable[[], Iterable[Any]]:
    """Send the queries, and return a function that returns their rows.

    It is one query on PostgreSQL, where a round trip costs most. On SQLite, numbers are those of a campaign, so there
    is one for each.
    """
    if driver.is_remote:
        queries = [(list(wanted), set().union(*wanted.values()))] if wanted else []
    else:
        queries = [([id], values) for id, values in wanted.items()]
    answers = [driver.ask_in(statement, ids=ids, values=values) for ids, values in queries]
    return lambda: (row for answer in answers for row in answer())


class Group:
    """One transaction: what its calls read, and what they append."""

    def __init__(self, store: Store, jobs: Sequence[Append], servings: Mapping[int, Serving]) -> None:
        self.store, self._servings = store, servings
        self._jobs = jobs
        self._heads: dict[int, _Head] = {}
        self.stored: dict[tuple[int, int], Stored] = {}  # by campaign and number
        self.events: dict[tuple[int, int], dict[tuple[int, str], float]] = defaultdict(dict)  # likewise; kind and name
        self._made: dict[tuple[int, int], list[Keyed]] = defaultdict(list)
        self.kept_at: dict[int, float] = {}  # up to when decisions may have been deleted
        self._new_decisions: list[dict[str, Any]] = []
        self._new_events: list[dict[str, Any]] = []
        self._clock = 0.0
        self._numbers: dict[str, Callable[[int], int]] = {}

    # Reading.

    def read(self, driver: Driver) -> None:
        """Take the locks, then read all that the calls need: on PostgreSQL, in one round trip."""
        ids = sorted({job.campaign for job in self._jobs})
        clock = None if driver.is_remote and self.store.uses_server_clock else self.store.clock
        numbers, requests, unstored = Wanted(set), Wanted(set), Wanted(set)
        for job in self._jobs:
            if isinstance(job, Decide) and job.request is not None:
                requests[job.campaign].add(job.request)
            elif isinstance(job, Report):
                for place, _ in job.given:
                    if isinstance(place, Place):
                        numbers[job.campaign].add(place.number)
                    else:
                        unstored[job.campaign].add(place.request)
                        requests[job.campaign].add(place.request)
        with driver.batch():
            if driver.is_remote:
                driver.ask(_LOCK, {"ids": ids})
            heads = driver.ask_in(_HEADS if driver.is_remote else _COUNTED_HEADS, ids=ids)
            now = driver.ask(_CLOCK, {}) if clock is None else None
            drawn = None
            if driver.is_remote:
                drawn = driver.ask(_NUMBERS, {"n": sum(job.numbers for job in self._jobs)})
            stored = _ask(driver, _BY_NUMBER, numbers)
            events = _ask(driver, _UNSTORED_EVENTS, unstored)
            made = _ask(driver, _BY_REQUEST, requests)
            progress = driver.ask_in(_PROGRESS, ids=unstored) if unstored else list
        self._clock = now()[0][0] if now is not None else (clock or self.store.clock)()
        newest: dict[int, list[int]] = {}
        for *row, store_version, last_decision, last_event in heads():
            check_version(store_version)
            head = self._heads[row[0]] = _Head(*row)
            newest[head.id] = [max(head.cut_decisions, last_decision or 0), max(head.cut_events, last_event or 0)]
        self._draw_numbers(newest, None if drawn is None else iter([row[0] for row in drawn()]))
        for id, *decision, kind, name, value in stored():
            self.stored[id, decision[0]] = Stored(*decision)
            if kind is not None:
                self.events[id, decision[0]][kind, name] = value
        for id, number, kind, name, value in events():
            self.events[id, number][kind, name] = value
        for id, *row in made():
            one = Keyed(*row)
            self._made[id, one.request].append(one)
        for id, written in progress():  # none if the campaign has been deleted
            self.kept_at[id] = json.loads(written).get("kept_at", 0.0)

    def _draw_numbers(self, newest: dict[int, list[int]], drawn: Iterator[int] | None) -> None:
        def next_of(which: int) -> Callable[[int], int]:
            def number(campaign: int) -> int:
                if drawn is not None:
                    return next(drawn)
                newest[campaign][which] += 1
                return newest[campaign][which]

            return number

        self._numbers = {"decision": next_of(0), "event": next_of(1)}

    def is_present(self, campaign: int) -> bool:
        """Return whether the campaign is as it was when its settings and its plan were read."""
        head, serving = self._heads.get(campaign), self._servings[campaign]
        if head is None:
            raise NoSuchCampaign("this campaign has been deleted")
        return (head.version, head.stamp) == (serving.version, serving.stamp)

    def now(self, campaign: int) -> float:
        """Return the time of this transaction, never before the last fold."""
        return max(self._clock, self._heads[campaign].cut)

    def cut_decisions(self, campaign: int) -> int:
        """Return the number of the last decision that is counted."""
        return self._heads[campaign].cut_decisions

    def made(self, campaign: int, request: int | None) -> list[Keyed]:
        """Return the decisions of the last call with this key."""
        if request is None:
            return []
        rows = self._made.get((campaign, request), [])
        return [each for each in rows if each.turn == rows[-1].turn]

    # Appending.

    def decide(
        self, job: Decide, serving: Serving, drawn: Sequence[Drawn], turn: int, segment: str | None
    ) -> list[Decision]:
        """Append decisions of these subsets."""
        at, window, call = self.now(job.campaign), serving.settings.window, new_stamp()
        due = at + (serving.settings.expire_after if window is None else window)
        compared = serving.compared(request_of(job.secret, job.source) if job.source else None)
        found = []
        for place, each in enumerate(drawn):
            of_call = {"place": place, "compared": int(compared and each.group != SHIPPED)}
            if place == 0:
                of_call |= {"key": job.key, "metadata": job.metadata}  # type: ignore[dict-item]
            windowed = int(window is not None)
            row = self._append(job, serving, each, at, due, windowed, job.request, turn, segment, call=call, **of_call)
            found.append(_decision(serving, row["number"], row["salt"], each, at, segment))
        return found

    def _append(
        self,
        job: Append,
        serving: Serving,
        drawn: Drawn,
        at: float,
        due: float,
        windowed: int,
        request: int | None,
        turn: int,
        segment: str | None,
        **more: Any,
    ) -> dict[str, Any]:
        """Append one decision, and return its row."""
        settings = serving.settings
        row = {
            "campaign": job.campaign,
            "number": self._numbers["decision"](job.campaign),
            "salt": new_stamp(32),
            "place": 0,
            "request": request,
            "turn": None if request is None else turn,
            "step": serving.plan.step,
            "subset": drawn.subset,
            "group": drawn.group,
            "compared": 0,
            "windowed": windowed,
            "propensity": drawn.propensity,
            "cost": settings.cost_of(serving.roster.names, subset_from(drawn.subset)) if settings.costs else 0.0,
            "at": at,
            "due": due,
            "context": segment,
            "key": None,
            "metadata": None,
            **more,
        }
        self._new_decisions.append(row)
        if request is not None:
            one = Keyed(row["number"], row["salt"], turn, *drawn, at, due, windowed, request, segment, 0)
            self._made[job.campaign, request].append(one)
        return row

    def report(
        self, job: Report, serving: Serving, new: Iterable[tuple[Stored | UnstoredPlace, str, float, bool]]
    ) -> None:
        """Append events."""
        late: dict[UnstoredPlace, Stored] = {}
        for found, name, value, counts in new:
            if isinstance(found, UnstoredPlace):
                if found not in late:
                    late[found] = self._append_late(job, serving, found)
                found = late[found]
            self.events[job.campaign, found.number][job.kind, name] = value
            self._new_events.append(
                {
                    "campaign": job.campaign,
                    "number": self._numbers["event"](job.campaign),
                    "decision": found.number,
                    "kind": job.kind,
                    "name": name,
                    "value": value,
                    "at": self.now(job.campaign),
                    "counts": int(counts),
                }
            )

    def _append_late(self, job: Report, serving: Serving, place: UnstoredPlace) -> Stored:
        """Append a decision that was not stored when it was made. Its silence would be in no mean: it has no window."""
        subset, segment = serving.shipments[place.shipment]
        at, due = place.milliseconds / 1000, self.now(job.campaign) + serving.settings.expire_after
        drawn = Drawn(subset, SHIPPED, 1.0)
        row = self._append(job, serving, drawn, at, due, 0, place.request, 0, segment, call=new_stamp())
        return Stored(row["number"], row["salt"], subset, 0, at, due)

    @property
    def changed(self) -> set[int]:
        """The campaigns to whose logs something was appended."""
        return {row["campaign"] for row in (*self._new_decisions, *self._new_events)}

    def write(self, driver: Driver) -> None:
        """Write everything. Rows with keys are in the same order in every process, so that none waits for another."""
        self._new_decisions.sort(key=lambda row: (row["campaign"], row["request"] or 0, row["turn"] or 0, row["place"]))
        self._new_events.sort(key=lambda row: (row["campaign"], row["decision"], row["kind"], row["name"]))
        if self._new_decisions:
            driver.run_many(_INSERT_DECISIONS, self._new_decisions)
        if self._new_events:
            driver.run_many(_INSERT_EVENTS, self._new_events)


def execute(store: Store, jobs: Sequence[Job]) -> list[Outcome]:
    """Execute calls in one transaction, and those whose campaigns have changed again. One that fails fails alone."""
    outcomes: dict[Append, Outcome] = {}
    waiting = [job for job in jobs if isinstance(job, Append)]
    for tried in range(TRIES):
        servings = _servings(store, waiting, outcomes, again=tried > 0)
        waiting = [job for job in waiting if job not in outcomes]
        if not waiting:
            break
        try:
            waiting = _attempt(store, waiting, servings, outcomes)
        except StoreError as why:
            if getattr(why.__cause__, "sqlstate", None) not in _COLLISIONS:
                raise
            time.sleep(0.001 * tried)
        if not waiting:
            break
    busy = StoreError("the campaign changes all the time: try again")
    return [outcomes.get(job, (None, busy)) for job in jobs if isinstance(job, Append)]


def _servings(
    store: Store, jobs: Sequence[Append], outcomes: dict[Append, Outcome], *, again: bool
) -> dict[int, Serving]:
    """Return the campaigns as this process serves them; read those that it does not know."""
    found: dict[int, Serving] = {}
    for id in {job.campaign for job in jobs}:
        ours = [job for job in jobs if job.campaign == id]
        try:
            serving = store.serving(id, again=again)
            if any(job.secret != serving.secret for job in ours):  # after a restored backup, ids repeat
                serving = store.serving(id, again=True)
            found[id] = serving
            for job in ours:
                if job.secret != serving.secret:
                    outcomes[job] = (
                        None,
                        NoSuchCampaign(
                            f"the campaign {serving.name!r} has been deleted, or its store replaced: open it again"
                        ),
                    )
        except KofnError as why:
            outcomes.update((job, (None, why)) for job in ours)
    return found


def _attempt(
    store: Store, jobs: Sequence[Append], servings: Mapping[int, Serving], outcomes: dict[Append, Outcome]
) -> list[Append]:
    """Execute calls in one transaction and commit it; return those whose campaigns have changed."""
    done: dict[Append, Outcome] = {}
    stale: list[Append] = []
    changed: set[int] = set()

    def work(connection: Connection) -> None:
        driver = Driver(connection)
        group = Group(store, jobs, servings)
        began = time.monotonic()
        group.read(driver)
        if driver.is_remote:
            store.observe_wait(time.monotonic() - began)
        for job in jobs:
            try:
                if group.is_present(job.campaign):
                    done[job] = job.perform(group, servings[job.campaign]), None
                else:
                    stale.append(job)
            except KofnError as why:
                done[job] = None, why
        changed.update(group.changed)
        with driver.batch(commit=True):
            group.write(driver)

    store.transact(work)
    outcomes.update(done)
    store.touch(changed)
    return stale
