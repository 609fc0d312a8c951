"""What must be true after each call: a model of every campaign, compared with the database from outside.

The model knows what took effect: it takes every call, its outcome and whether its transaction was committed, and says
what the database must then contain. It never asks the code under test.
"""

from __future__ import annotations

import copy
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any, NamedTuple

from kofn.campaigns.records.names import write_id
from kofn.core import BadInput, BadReward, BadTally, Conflict, NotRunning, Subset, UnknownDecision
from tests.campaigns.simulator.calls import (
    AddArm,
    Call,
    ChangeCosts,
    ChangeKept,
    ChangeRules,
    Decide,
    Enter,
    Expire,
    Outcome,
    Read,
    RetireArm,
    Reward,
    Total,
    plain_rules,
)
from tests.campaigns.simulator.world import CONTEXTUAL, EXPIRE_AFTER, Setting, World


class Violation(AssertionError):
    """A promise was broken."""


def check(condition: bool, broken: str, *values: object) -> None:
    """Raise a violation unless the condition is true. The text is made only then: each `{}` is one of the values."""
    if not condition:
        raise Violation(broken.format(*values))


SHIPPED_FOR = 1.0
"""Seconds for which a process may go on with a shipped subset, without a store, after another one has resumed."""

FINAL = ("stopped", "archived")
"""States in which no decisions are made any more. A campaign that is archived takes no rewards either."""

MOST_SKEW = 10.0
"""Most seconds by which the clocks of two processes differ."""


def _is_unstored(id: str) -> bool:
    """Return whether a decision was not stored when it was made, by its id."""
    return id.startswith("s")


def _request_of(id: str) -> int:
    """Return the number under which a decision is stored that was not stored when it was made."""
    nonce = int(id.split("-")[2][:16], 16)
    return nonce - (nonce >> 63 << 64)


def place_of(id: str) -> tuple[int, int, int]:
    """Return the first decision of the batch, the place in it, and the salt that an id contains."""
    first, place, rest = id.split("-")
    return int(first, 16), int(place, 16), int(rest[:8], 16)


class Row(NamedTuple):
    """The columns of a campaign's row that the model predicts, and those that it needs."""

    decided: int
    rewarded: int
    total: float
    totalled: int
    state: str
    step: int
    version: int
    free: int
    plan_plays: int
    roster_version: int
    waited: float
    clipped: int
    low: float
    high: float
    keep_decisions: int


class Recorded(NamedTuple):
    """What the store has recorded about a decision beside its subset."""

    at: float
    request: int | None
    metadata: str | None


@dataclass
class Truth:
    """What took effect in the present timeline. A backup keeps a copy, and restoring it brings the copy back."""

    id: int = 0
    secret: bytes = b""
    requests: dict[str, list[str]] = field(default_factory=dict)  # the ids of each request's decisions, sorted
    decisions: dict[str, Subset] = field(default_factory=dict)
    rewards: dict[str, float] = field(default_factory=dict)
    totals: dict[str, tuple[int, float]] = field(default_factory=dict)
    twice: float = 0.0  # totals that were counted again after their key was deleted, as documented
    twice_plays: int = 0
    names: list[str] = field(default_factory=list)
    active: list[int] = field(default_factory=list)
    state: str = "running"
    stored: bool = True  # whether decisions are stored when they are made, if it is shipped
    unstored: dict[str, Subset] = field(default_factory=dict)  # decisions that were not
    arrived: dict[str, str] = field(default_factory=dict)  # those with a reward, and the id under which it is recorded
    clipped: int = 0
    keep: int = 0
    costs: dict[str, float] = field(default_factory=dict)  # what arms cost now, by name
    cost_of: dict[str, float] = field(default_factory=dict)  # what the arms of each decision cost when it was made
    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def obeys(self, subset: Iterable[int]) -> bool:
        """Return whether a subset obeys the rules in force."""
        arms = {self.names[arm] for arm in subset}
        inside = [(kind, len(arms.intersection(listed)), len(listed)) for kind, listed in self.rules]
        return all(
            found == all_ if kind == "always" else found <= (1 if kind == "at-most" else 0)
            for kind, found, all_ in inside
        )

    def possible(self, k: int) -> bool:
        """Return whether a subset of the active arms obeys the rules, by trying all."""
        return any(map(self.obeys, combinations(self.active, k)))


class Seen(NamedTuple):
    """The database before or after a group of calls, as far as they concern it."""

    row: Row
    batches: dict[int, tuple[int, int]]  # salt and count of stored batches, by their first decision
    rewards: dict[tuple[int, int], list[float]]  # what is recorded for each decision
    keys: set[str]  # keys of stored totals
    alone: bool  # whether they are one call only: else one may delete what the next asks for


class Model:
    """The model of one campaign."""

    def __init__(self, world: World, campaign: int, setting: Setting, checks: frozenset[str]) -> None:
        self.world = world
        self.setting = setting
        self.checks = checks
        self.truth = self.new_truth()
        self.find()
        self.about: dict[str, Recorded] = {}  # every recorded decision of all timelines
        self.unstored: dict[int, str] = {}  # every decision that was not stored, by its request
        self.arrived: dict[str, tuple[str, Subset]] = {}  # those that this group of calls has stored
        self.served: set[Subset] = set()  # every subset that was shipped
        self.unstored_at = -math.inf  # when it was last known that shipped decisions are not stored
        self.now = 0.0
        self.ids: dict[str, Subset] = {}  # every decision of all timelines
        self.campaign = campaign
        self.last: Row | None = None  # as it was after the last call, unless a backup was restored since
        self.roster_compared = -1  # the version of the arms that were compared last

    def new_truth(self) -> Truth:
        """Return what is true of a new campaign."""
        names = [f"arm {arm}" for arm in range(self.setting.n_arms)]
        costs = dict(self.setting.option("costs") or {})
        return Truth(names=names, active=list(range(len(names))), keep=self.setting.keep, costs=costs)

    @property
    def id(self) -> int:
        """The campaign's id in the store."""
        return self.truth.id

    @property
    def secret(self) -> bytes:
        """The secret of the ids of its decisions."""
        return self.truth.secret

    def find(self) -> None:
        """Look for the campaign by its name, and note its id and its secret."""
        found = self.world.rows("SELECT id, secret FROM kofn_campaigns WHERE name = ?", self.setting.name)
        self.truth.id, self.truth.secret = int(found[0][0]), bytes.fromhex(found[0][1])

    def backup(self) -> Truth:
        """Return a copy of what took effect."""
        return copy.deepcopy(self.truth)

    def restore(self, truth: Truth) -> None:
        """Take what a backup or an export knew for the truth: what took effect since is lost."""
        self.truth, self.last, self.roster_compared = copy.deepcopy(truth), None, -1

    def row(self) -> Row:
        """Return the campaign's row."""
        columns = ", ".join(Row._fields)
        return Row(*self.world.rows(f"SELECT {columns} FROM kofn_campaigns WHERE id = ?", self.id)[0])

    def seen(self, calls: Sequence[Call], row: Row | None = None) -> Seen:
        """Look at what these calls concern, and at the campaign's row, unless it is known."""
        rewards = [id for call in calls if isinstance(call, Reward) for id, _ in call.rewards]
        again = [id for call in calls if isinstance(call, Decide) for id in self.truth.requests.get(call.key, ())]
        firsts = sorted({place_of(id)[0] for id in [*rewards, *again] if not _is_unstored(id)})
        batches: dict[int, tuple[int, int]] = {}
        recorded: dict[tuple[int, int], list[float]] = defaultdict(list)
        if firsts:
            firsts += firsts[-1:] * ((1 << (len(firsts) - 1).bit_length()) - len(firsts))  # fewer texts to compile
            chosen = f"WHERE campaign = ? AND first IN ({', '.join('?' * len(firsts))})"
            for first, salt, count in self._rows(f"first, salt, count FROM kofn_batches {chosen}", *firsts):
                batches[first] = salt, count
            for first, place, value in self._rows(f"first, place, value FROM record_rewards {chosen}", *firsts):
                recorded[first, place].append(value)
        keys = set()
        if any(isinstance(call, Total) for call in calls):
            keys = {row[0] for row in self._rows("key FROM kofn_totals WHERE campaign = ?")}
        return Seen(row or self.row(), batches, recorded, keys, len(calls) == 1)

    def _rows(self, query: str, *values: Any) -> Sequence[Any]:
        return self.world.rows(f"SELECT {query}", self.id, *values)

    # After a group of calls.

    def follow(self, calls: Sequence[Call], outcomes: Sequence[Outcome], before: Seen) -> None:
        """Check the outcomes of calls that were made in this order, and everything that they changed."""
        after = self.seen(calls)
        self.last = after.row
        committed = after.row.version != before.row.version
        unchanged = after.row == before.row
        check(committed or unchanged, "the row changed without a new version: {} {}", before.row, after.row)
        new = self._new_decisions(before.row.decided) if committed else {}
        self._take_arrived(new)
        self._note_shipped()
        pairs = list(zip(calls, outcomes, strict=True))
        for call, outcome in pairs:
            if not outcome.failed:
                self._answered(call, outcome, before, after, new)
        for call, outcome in pairs:
            if outcome.failed and committed and self._took_effect(call, before, after, new):
                self._answered(call, outcome, before, after, new)
        check(not new, "decisions that nobody asked for: {}", new)
        check(not self.arrived, "rewards that nobody reported: {}", self.arrived)
        self._note_shipped()
        self.compare(after.row)

    def _take_arrived(self, new: dict[str, Subset]) -> None:
        """Take out the decisions that were stored with their rewards."""
        self.arrived = {}
        for id in list(new):
            request = self.about[id].request
            if request is not None and request in self.unstored:
                self.arrived[self.unstored[request]] = id, new.pop(id)

    def _note_shipped(self) -> None:
        """Remember what is shipped, and that decisions are not stored now."""
        if self.setting.options is None or self.truth.state != "shipped":
            return
        self.served |= {tuple(subset) for subset in self._option("shipped", ())}
        if not self.truth.stored:
            self.unstored_at = self.now

    def _answered(self, call: Call, outcome: Outcome, before: Seen, after: Seen, new: dict[str, Subset]) -> None:
        """Follow a call that was answered or refused, or that took effect without an answer."""
        if self.truth.state in FINAL and isinstance(outcome.refused, NotRunning):
            fits = self.truth.state == "archived" or isinstance(call, Decide | Enter)
            check(fits, "a campaign that is stopped refused {}: {}", call, outcome)
            return
        if isinstance(call, Decide):
            self._decide(call, outcome, before, after, new)
        elif isinstance(call, Reward):
            self._reward(call, outcome, before, after)
        elif isinstance(call, Total):
            self._total(call, outcome, before)
        elif isinstance(call, AddArm | RetireArm):
            self._arm(call, outcome)
        elif isinstance(call, ChangeRules):
            self._rules(call, outcome)
        elif isinstance(call, Enter):
            if outcome.refused is not None:
                early = call.state == "shipped" and not (self.truth.rewards or self.truth.totals)
                check(early, "refused: {}", outcome)
                return
            check(self.truth.state not in FINAL or call.state in FINAL, "{} was possible", call)
            self.truth.state = call.state
            self.truth.stored = call.stored
            self._note_shipped()
        elif isinstance(call, ChangeCosts):
            check(outcome.refused is None, "refused: {}", outcome)
            self.truth.costs = dict(call.costs)
        elif isinstance(call, ChangeKept):
            check(outcome.refused is None, "refused: {}", outcome)
            self.truth.keep = call.keep
        elif isinstance(call, Read):
            self._read(call, outcome)
        else:
            check(isinstance(call, Expire) and outcome.refused is None, "{} -> {}", call, outcome)

    def _took_effect(self, call: Call, before: Seen, after: Seen, new: dict[str, Subset]) -> bool:
        """Return whether a call without an answer took effect: another call of its group may have been committed."""
        if isinstance(call, Decide):
            return len(new) >= call.count and not (self.truth.state == "shipped" and not self.truth.stored)
        if isinstance(call, Reward):
            if any(id in self.arrived for id, _ in call.rewards):
                return True
            fresh = [id for id, _ in call.rewards if id in self.ids and id not in self.truth.rewards]
            return any(after.rewards.get(place_of(id)[:2]) for id in fresh if self._stored(id, before))
        if isinstance(call, Total):
            return after.row.totalled > self._totalled()
        if isinstance(call, AddArm | RetireArm):
            return after.row.roster_version > len(self.truth.names) - self.setting.n_arms + self._retired()
        if isinstance(call, ChangeRules):
            return bool(self._option("constraints", []) == plain_rules(call.rules))
        if isinstance(call, ChangeCosts):
            return bool(self._option("costs", None) == dict(call.costs))
        if isinstance(call, Enter) and call.state == "shipped":
            return bool(self.truth.rewards or self.truth.totals)  # else it was refused
        return True

    def _option(self, name: str, default: Any) -> Any:
        options = self.world.rows("SELECT options FROM kofn_campaigns WHERE id = ?", self.id)[0][0]
        return json.loads(options).get(name, default)

    def _totalled(self) -> int:
        return sum(count for count, _ in self.truth.totals.values()) + self.truth.twice_plays

    def _retired(self) -> int:
        return len(self.truth.names) - len(self.truth.active)

    def compare(self, row: Row) -> None:
        """Compare the counters and the arms with the model."""
        truth = self.truth
        check(row.decided == len(truth.decisions), "{} decisions, not {}", row.decided, len(truth.decisions))
        check(row.rewarded == len(truth.rewards), "{} rewards, not {}", row.rewarded, len(truth.rewards))
        totalled = self._totalled()
        check(row.totalled == totalled, "{} plays in totals, not {}", row.totalled, totalled)
        total = sum(truth.rewards.values()) + sum(total for _, total in truth.totals.values()) + truth.twice
        if truth.cost_of:
            total -= self._sign * sum(truth.cost_of[id] for id in truth.rewards)
        check(row.total == total, "the rewards sum to {}, not {}", row.total, total)
        check(row.clipped == truth.clipped, "{} rewards are clipped, not {}", row.clipped, truth.clipped)
        if self.setting.option("outside") == "widen" and truth.rewards:
            extremes = min(truth.rewards.values()), max(truth.rewards.values())
            check(row.low <= extremes[0] <= extremes[1] <= row.high, "{} are outside of {}", extremes, row)
        check(row.keep_decisions == truth.keep, "{} decisions are kept, not {}", row.keep_decisions, truth.keep)
        check(row.state == truth.state, "the campaign is {}, not {}", row.state, truth.state)
        if row.roster_version != self.roster_compared:
            self._compare_arms()
            self.roster_compared = row.roster_version

    def _compare_arms(self) -> None:
        truth = self.truth
        names, active = self._rows("names, active FROM kofn_rosters WHERE campaign = ?")[0]
        check(json.loads(names) == truth.names, "the names are {}, not {}", names, truth.names)
        check(json.loads(active) == truth.active, "the active arms are {}, not {}", active, truth.active)

    def compare_records(self) -> None:
        """Compare the arms, every decision and every reward with the model, one by one."""
        self._compare_arms()
        batches = self._batches(0)
        found = {id: subset for ids, subset, _ in batches for id in ids}
        check(found == self.truth.decisions, "the decisions on record are not those that took effect")
        salts = dict(self._rows("first, salt FROM record_batches WHERE campaign = ?"))
        rewards: Counter[tuple[str, float]] = Counter()
        for first, place, value in self._rows("first, place, value FROM record_rewards WHERE campaign = ?"):
            rewards[write_id(self.secret, first, place, salts[first]), value] += 1
        check(rewards == Counter(self.truth.rewards.items()), "the rewards on record are not those that took effect")

    @property
    def _sign(self) -> float:
        return 1.0 if self.setting.direction == "maximize" else -1.0

    def _cost(self, subset: Subset) -> float:
        """Return what the arms of a subset cost now."""
        return sum(self.truth.costs.get(self.truth.names[arm], 0.0) for arm in subset)

    def _taken(self, value: float) -> float:
        """Return a reward as it is recorded."""
        low, high = self.setting.reward_range
        return min(max(value, low), high) if self.setting.option("outside") == "clip" else value

    def _is_outside(self, value: float) -> bool:
        """Return whether a reward is refused because of its value."""
        low, high = self.setting.reward_range
        return self.setting.option("outside") not in ("clip", "widen") and not low <= value <= high

    # One call.

    def _batches(self, start: int) -> list[tuple[list[str], Subset, Recorded]]:
        columns = "first, count, salt, subset, at, request, metadata"
        chosen = f"{columns} FROM record_batches WHERE campaign = ? AND first >= ? ORDER BY first"
        return [
            (
                [write_id(self.secret, first, place, salt) for place in range(count)],
                tuple(map(int, subset.split(","))),
                Recorded(*about),
            )
            for first, count, salt, subset, *about in self._rows(chosen, start)
        ]

    def _new_decisions(self, start: int) -> dict[str, Subset]:
        """Return the decisions from this number on, in order."""
        new = {}
        for ids, subset, about in self._batches(start):
            new.update(dict.fromkeys(ids, subset))
            self.about.update(dict.fromkeys(ids, about))
        for id, subset in new.items():
            check(id not in self.ids, "two decisions have the id {}", id)
            self.ids[id] = subset
        return new

    def _decide(self, call: Decide, outcome: Outcome, before: Seen, after: Seen, new: dict[str, Subset]) -> None:
        if outcome.refused is not None:
            paused = isinstance(outcome.refused, NotRunning) and self.truth.state == "paused"
            check(paused, "refused: {}", outcome)
            return
        if outcome.answered and _is_unstored(outcome.value[0].id):
            self._decide_unstored(call, outcome)
            return
        known = self.truth.requests.get(call.key)
        if known is not None and self._has_ended(known):
            self._check_sticky(known, outcome)
            known = None
        stored = known is not None and all(self._stays(id, before, after) for id in known)
        stored = stored and self._is_kept(known or [])
        if outcome.failed:
            if stored and "keys" in self.checks:
                return
            if self.truth.state == "paused":
                return  # it was refused: new decisions of its group are those of later calls
            ids = list(new)[: call.count]
        else:
            ids = [each.id for each in outcome.value]
            check(len(set(ids)) == len(ids) == call.count, "{} decisions instead of {}", len(ids), call.count)
            for each in outcome.value:
                arms = [self.truth.names[arm] for arm in each.subset]
                check(each.arms == arms, "{} has other arms than stored", each)
                expected = None if self.setting is not CONTEXTUAL else call.context or {}
                check(each.context == expected, "{} is for another segment than {}", each, expected)
            if stored and "keys" in self.checks:
                check(sorted(ids) == known, "{} made decisions twice: {} and {}", call.key, known, sorted(ids))
                return
            if known is not None and sorted(ids) == known:
                return
        for id in ids:
            check(id in new, "the decision {} was answered, but is not recorded", id)
            subset = new.pop(id)
            self.truth.decisions[id] = subset
            if self.truth.costs or self.truth.cost_of:
                self.truth.cost_of[id] = self._cost(subset)
            metadata = self.about[id].metadata
            check(json.loads(metadata or "null") == call.metadata, "{} has the metadata {}", call, metadata)
            check(set(subset) <= set(self.truth.active), "the decision {} has a retired arm: {}", id, subset)
            check(self.truth.obeys(subset), "the decision {} breaks a rule: {} {}", id, subset, self.truth.rules)
        if outcome.answered:
            check(all(each.subset == self.ids[each.id] for each in outcome.value), "other subsets than recorded")
        check(self.truth.state not in ("paused", *FINAL), "a campaign that is {} made decisions", self.truth.state)
        self.truth.requests[call.key] = sorted(ids)

    def _decide_unstored(self, call: Decide, outcome: Outcome) -> None:
        """Follow decisions of a shipped subset that are not stored."""
        check(self.now - self.unstored_at <= SHIPPED_FOR, "decisions are not stored, but should be: {}", outcome)
        check(len(outcome.value) == call.count, "{} decisions instead of {}", len(outcome.value), call.count)
        for each in outcome.value:
            check(each.subset in self.served, "{} was never shipped", each)
            check(_request_of(each.id) not in self.unstored, "two decisions have the id {}", each.id)
            self.unstored[_request_of(each.id)] = each.id
            self.truth.unstored[each.id] = each.subset

    def _has_ended(self, ids: Sequence[str]) -> bool:
        """Return whether a sticky key whose decisions these are gets new ones."""
        return self.setting.option("sticky") is not None and all(id in self.truth.rewards for id in ids)

    def _check_sticky(self, ids: Sequence[str], outcome: Outcome) -> None:
        """A visitor keeps the arms for some time, if nothing forbids them and the store has the last decision."""
        if not outcome.answered or self.truth.state != "running":
            return
        last = max(ids, key=lambda id: place_of(id)[0])
        since = outcome.value[0].at.timestamp() - self.about[last].at
        stored = self.world.rows(
            "SELECT 1 FROM kofn_batches WHERE campaign = ? AND first = ?", self.id, place_of(last)[0]
        )
        if stored and since <= self.setting.option("sticky") and set(self.ids[last]) <= set(self.truth.active):
            arms = {each.subset for each in outcome.value}
            check(arms == {self.ids[last]}, "a visitor had {} and gets {}", self.ids[last], arms)

    def _is_kept(self, ids: Sequence[str]) -> bool:
        """Return whether a key keeps these decisions: no arm is retired, none is forbidden, no other is shipped."""
        shown = {self.ids[id] for id in ids}
        active = all(set(subset) <= set(self.truth.active) and self.truth.obeys(subset) for subset in shown)
        return active and self.truth.state == "running"

    def _stored(self, id: str, seen: Seen) -> bool:
        """Return whether the store still has the decision."""
        first, place, salt = place_of(id)
        batch = seen.batches.get(first)
        return batch is not None and batch[0] == salt and place < batch[1]

    def _stays(self, id: str, before: Seen, after: Seen) -> bool:
        """Return whether the store had the decision all the time, or since another call of the same group made it."""
        made_now = id in self.truth.decisions and place_of(id)[0] >= before.row.decided
        return made_now or (self._stored(id, before) and self._stored(id, after))

    def _reward(self, call: Reward, outcome: Outcome, before: Seen, after: Seen) -> None:
        wrong = {id for id, value in call.rewards if not self._exists(id) or self._is_outside(value)}
        if call.partial:
            wrong = self._refused_of(call, outcome, wrong)
        elif wrong:
            kinds = UnknownDecision | BadReward | Conflict
            check(isinstance(outcome.refused, kinds) or bool(outcome.failed), "{} was taken: {}", wrong, outcome)
            return
        call = replace(call, rewards=tuple(each for each in call.rewards if each[0] not in wrong))
        unstored = [each for each in call.rewards if _is_unstored(each[0])]
        repeated = [id for id, _ in unstored if id in self.truth.arrived]
        arrived = sum([self._reward_unstored(*each, outcome) for each in unstored])
        self._reward_stored(call, outcome, before, after, (arrived, len(repeated)))

    def _exists(self, id: str) -> bool:
        """Return whether a decision with this id was made, in this timeline or another."""
        return _request_of(id) in self.unstored if _is_unstored(id) else id in self.ids

    def _refused_of(self, call: Reward, outcome: Outcome, wrong: set[str]) -> set[str]:
        """Return the rewards of a partial call that were refused: all that are wrong, and others with a reason."""
        check(outcome.refused is None, "a partial call was refused: {}", outcome)
        given = dict(call.rewards)
        unsure = {id for id, value in given.items() if id not in wrong and self._may_be_refused(id, value)}
        if not outcome.answered:
            return wrong | {id for id in unsure if not _is_unstored(id)}
        refused = {each.id for each in outcome.value.refused}
        check(wrong <= refused <= wrong | unsure, "{}, but {} are wrong", outcome, wrong)
        return refused

    def _may_be_refused(self, id: str, value: float) -> bool:
        """Return whether a decision has another reward, or was made in a timeline that is lost."""
        if _is_unstored(id):
            before = self.truth.rewards.get(self.truth.arrived.get(id, ""))
            return id not in self.truth.unstored or before not in (None, self._taken(value))
        lost = id not in self.truth.decisions
        return lost or self.truth.rewards.get(id, self._taken(value)) != self._taken(value)

    def _reward_unstored(self, id: str, value: float, outcome: Outcome) -> bool:
        """Follow the reward of a decision that was not stored; return whether it is stored now."""
        if id not in self.arrived:
            made = int(id.split("-")[1], 16) / 1000
            young = abs(self.now - made) < EXPIRE_AFTER - MOST_SKEW
            counted = id in self.truth.arrived or made <= self._option("unstored_after", 0.0)
            due = outcome.answered and id in self.truth.unstored and young and not counted
            check(not due, "the reward of {} was not recorded: {}", id, outcome)
            return False
        check(id not in self.truth.arrived, "the reward of {} was recorded twice", id)
        new, subset = self.arrived.pop(id)
        first = self.truth.unstored.get(id, subset)
        check(subset == first and subset in self.served, "{} is recorded with other arms: {}", id, subset)
        values = [
            row[0] for row in self._rows("value FROM record_rewards WHERE campaign = ? AND first = ?", place_of(new)[0])
        ]
        check(values == [self._taken(value)], "the reward {:g} of {} is recorded as {}", value, id, values)
        self.truth.arrived[id], self.truth.decisions[new] = new, subset
        self._record(new, value)
        if self.truth.costs or self.truth.cost_of:
            self.truth.cost_of[new] = self._cost(subset)
        return True

    def _record(self, id: str, value: float) -> None:
        self.truth.rewards[id] = self._taken(value)
        self.truth.clipped += self._taken(value) != value

    def _reward_stored(
        self, call: Reward, outcome: Outcome, before: Seen, after: Seen, unstored: tuple[int, int]
    ) -> None:
        """Follow the rewards of stored decisions, after those of `unstored` ones: how many are new, and known."""
        every, call = call, replace(call, rewards=tuple(each for each in call.rewards if not _is_unstored(each[0])))
        rewards = self.truth.rewards
        known = {id: rewards[id] for id, _ in call.rewards if id in rewards}
        there = stored = {id for id, _ in call.rewards if self._stored(id, before)}
        if not before.alone:
            recorded = {id for id in stored if id not in known and after.rewards.get(place_of(id)[:2])}
            stored = {id for id in stored if self._stored(id, after)} | recorded
        others = [id for id, value in call.rewards if known.get(id, self._taken(value)) != self._taken(value)]
        if outcome.refused is not None:
            unknown = [id for id, _ in call.rewards if id not in self.truth.decisions]
            unsure = [id for id, value in every.rewards if _is_unstored(id) and self._may_be_refused(id, value)]
            if unsure:
                return
            conflicts = there.intersection(others)  # a later call of the group may have deleted them
            fits = isinstance(outcome.refused, Conflict) and bool(conflicts)
            fits = fits or (isinstance(outcome.refused, UnknownDecision) and bool(unknown))
            check(fits, "refused, but its decisions are stored without another reward: {}", outcome)
            return
        conflicts = stored.intersection(others)
        check(not conflicts, "another reward was taken for {}", conflicts)
        accepted = [(id, value) for id, value in call.rewards if id in stored and id not in known]
        for id, value in accepted:
            check(id in self.truth.decisions, "a reward was taken for {}, which was never decided", id)
            values = after.rewards[place_of(id)[:2]]
            check(values == [self._taken(value)], "the reward {:g} of {} is recorded as {}", value, id, values)
            check(self.truth.state != "archived", "an archived campaign took the reward of {}", id)
            self._record(id, value)
        if outcome.answered:
            self._count(every, outcome.value, (len(accepted), len(known.keys() & stored)), unstored)

    def _count(self, call: Reward, answer: Any, stored: tuple[int, int], unstored: tuple[int, int]) -> None:
        """Check the numbers in the answer. Of decisions that are no longer stored, nothing is known."""
        accepted, repeated = stored[0] + unstored[0], stored[1]
        gone = len(call.rewards) - accepted - repeated
        check(answer.accepted == accepted, "{}, but {} rewards are new", answer, accepted)
        if "forgotten" in self.checks:
            check(answer.repeated >= repeated, "{}, but {} rewards were recorded before", answer, repeated)
            possible = sum(id in self.truth.rewards for id, _ in call.rewards) - stored[0] + unstored[1]
            if "lost" not in self.checks:
                possible += sum(id not in self.truth.decisions for id, _ in call.rewards)
            check(answer.repeated <= possible, "{}, but only {} can be repeated", answer, possible)
            gone -= getattr(answer, "forgotten", 0) + answer.repeated - repeated
            check(gone == 0, "{} for {} rewards", answer, len(call.rewards))
        else:
            check(answer.repeated == repeated + gone, "{}, but {} rewards were recorded before", answer, repeated)

    def _total(self, call: Total, outcome: Outcome, before: Seen) -> None:
        if outcome.refused is not None:
            retired = not set(call.arms) <= set(self.truth.active)
            fits = isinstance(outcome.refused, BadTally) or (retired and isinstance(outcome.refused, BadInput))
            check(fits, "refused: {}", outcome)
            return
        known = call.key in self.truth.totals
        again = known and call.key not in before.keys
        new = not known or again
        if outcome.answered:
            answer = (outcome.value.accepted, outcome.value.repeated)
            check(answer == ((call.count, 0) if new else (0, call.count)), "{}, new: {}", outcome, new)
        net = call.total - self._sign * call.count * self._cost(call.arms)
        if again:
            self.truth.twice += net
            self.truth.twice_plays += call.count
        if new and not again:
            self.truth.totals[call.key] = call.count, net

    def _arm(self, call: AddArm | RetireArm, outcome: Outcome) -> None:
        truth, name = self.truth, call.name
        if isinstance(call, AddArm):
            possible = name not in truth.names
        else:
            active = [truth.names[arm] for arm in truth.active]
            possible = name in active and len(active) > self.setting.k + 1
        if outcome.refused is not None:
            control = [f"arm {arm}" for arm in self.setting.control or ()]
            in_use = isinstance(call, RetireArm) and (self.truth.state == "shipped" or name in control)
            fits = not possible or not self.setting.learns_from_all or in_use or self._is_needed(name)
            check(fits and isinstance(outcome.refused, BadInput), "refused: {}", outcome)
        elif possible:
            if isinstance(call, AddArm):
                truth.active.append(len(truth.names))
                truth.names.append(name)
            else:
                truth.active.remove(truth.names.index(name))
        else:
            check(not outcome.answered, "{} was possible", call)

    def _is_needed(self, name: str) -> bool:
        """Return whether no subset without this arm obeys the rules."""
        rest = [arm for arm in self.truth.active if self.truth.names[arm] != name]
        return not replace(self.truth, active=rest).possible(self.setting.k)

    def _rules(self, call: ChangeRules, outcome: Outcome) -> None:
        changed = replace(self.truth, rules=call.rules)
        if outcome.refused is not None:
            fits = not changed.possible(self.setting.k) or self.truth.state == "shipped"
            check(fits and isinstance(outcome.refused, BadInput), "refused: {}", outcome)
            return
        check(changed.possible(self.setting.k), "rules that cannot hold were taken: {}", call)
        self.truth.rules = call.rules

    def _read(self, call: Read, outcome: Outcome) -> None:
        if outcome.answered:
            active = [self.truth.names[arm] for arm in self.truth.active]
            arms = outcome.value
            if call.best:
                check(set(arms) <= set(active), "the best arms {} are not all among {}", arms, active)
                best = [self.truth.active[active.index(arm)] for arm in arms]
                check(self.truth.obeys(best), "the best arms {} break a rule: {}", arms, self.truth.rules)
            else:
                check(arms == active, "the arms are {}, not {}", arms, active)
