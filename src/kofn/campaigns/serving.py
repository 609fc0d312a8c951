"""What a process needs to decide for a campaign: its settings, its arms and what is played. No policy is needed.

Subsets are drawn by systematic sampling: each process visits the plays of a plan one after another, spread evenly, from
a random start. So the share of a subset is its propensity, and its count is exact for one process, without a counter
that processes share. After as many draws as the plan has plays, a process draws from the plan's fallback rows, which
are further draws of the policy. For a policy that learns from its plan only, rows are drawn as long as plays of them
remain, whoever has drawn them.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import bindparam, exists, func, or_, select

from kofn.campaigns.names import UnstoredPlace, write_unstored_id
from kofn.campaigns.progress import Play, Progress
from kofn.campaigns.roster import Roster, shipment_of, subset_from, subset_text
from kofn.campaigns.settings import CONTROL, LEARNED, SHIPPED, Settings, settings_from
from kofn.campaigns.store.schema import ARMS, CAMPAIGNS, DECISIONS, EVENTS, PLANS
from kofn.campaigns.store.stamps import new_stamp, random_share
from kofn.campaigns.store.statements import Driver, Statement
from kofn.core import BadInput, NoSuchCampaign, NotRunning, StateError
from kofn.core.contexts import Attributes, bounded, context_of, with_other
from kofn.core.responses import Decision, moment

GOLDEN = (math.sqrt(5) - 1) / 2
"""Step of the systematic sampling, as a part of the plan: multiples of the golden ratio are spread most evenly."""

SHIPPED_FOR = 1.0
"""Seconds for which a process goes on without asking the store after a subset was shipped with `store=False`."""

LATE, GRACE = 5.0, 1.0
"""Planned plays of a policy that learns from its plan only are played again if they are in flight for more than LATE
times the mean delay of a reward, and GRACE seconds. Higher: one lost reward stops learning for longer."""

RECOUNT = 0.1
"""Seconds between two counts of what remains of such a plan once all of it is handed out. Lower: more work."""

MOST_PER_SOURCE, MOST_SOURCES = 20, 100_000
"""Decisions of one source (a visitor's address) in a process that count in the comparison with the control, and sources
that are remembered. Nobody can end an experiment by playing against it from one address."""

SERVING = ("running", "shipped")
"""States of a campaign that serves decisions."""

_HINT = {
    "paused": "resume it to decide again",
    "stopped": "it makes no more decisions, and still reports the best subset that it found",
    "archived": "it makes no more decisions, and still reports the best subset that it found",
}

_C = CAMPAIGNS.c
_READ = Statement(
    select(_C.name, _C.state, _C.secret, _C.settings, _C.version, _C.stamp, _C.arms_version, PLANS.c.plan)
    .join(PLANS, PLANS.c.campaign == _C.id)
    .where(_C.id == bindparam("c"))
)
_PROGRESS = Statement(select(_C.progress).where(_C.id == bindparam("c")))
_ARMS = Statement(select(ARMS.c.names, ARMS.c.active).where(ARMS.c.campaign == bindparam("c")))
_D = DECISIONS.c
_REWARDED = exists().where(
    *(EVENTS.c.campaign == _D.campaign, EVENTS.c.decision == _D.number),
    *(EVENTS.c.kind == 0, EVENTS.c.counts == 1),
)
_USED = Statement(
    select(_D.subset, func.count())
    .where(_D.campaign == bindparam("c"), _D.step == bindparam("s"), _D.number > bindparam("n"))
    .where(or_(_D.at > bindparam("recent"), _D.windowed == 1, _REWARDED))
    .group_by(_D.subset)
)


@dataclass
class ServedPlan:
    """What is played: rows of the policy's plan with their plays, and fallback rows; the step that made them.

    Rows are [subset, plays, segment]; fallback rows are [subset, segment]. `segments` are the keys of the segments that
    the policy knows. `best` is its best subset. `after` is the number of the last decision before the plan. `control`
    has random subsets that obey the rules, for a uniform control, and `allowed` is how many there are, if that is
    known.
    """

    step: int
    rows: list[tuple[str, int, str | None]]
    fallback: list[tuple[str, str | None]]
    best: str
    segments: list[str] = field(default_factory=list)
    after: int = 0
    control: list[str] = field(default_factory=list)
    allowed: int | None = None

    def to_text(self) -> str:
        """Return the plan as JSON."""
        return json.dumps(vars(self), separators=(",", ":"), ensure_ascii=False)

    @classmethod
    def from_text(cls, text: str) -> ServedPlan:
        """Return the plan that `to_text` wrote."""
        given = json.loads(text)
        rows = [(subset, times, context) for subset, times, context in given.pop("rows")]
        return cls(rows=rows, fallback=[(subset, context) for subset, context in given.pop("fallback")], **given)


class Drawn(NamedTuple):
    """A subset that was drawn for a decision: by whom, and with which probability."""

    subset: str
    group: int
    propensity: float | None


class _Rows:
    """Rows that are drawn with their shares: one after another, from a random start."""

    def __init__(self, subsets: Sequence[str], times: Sequence[int]) -> None:
        self.subsets, self.left = subsets, list(times)
        self.total = sum(times)
        self._steps = list(accumulate(times))
        self._at = int(random_share() * self.total)
        self._stride = _stride(self.total)
        shares: Counter[str] = Counter()
        for subset, plays in zip(subsets, times, strict=True):
            shares[subset] += plays
        self.share = {subset: plays / self.total for subset, plays in shares.items()} if self.total else {}
        self.drawn = 0

    def draw(self) -> str:
        """Return the subset of the next row."""
        self.drawn += 1
        return self.subsets[self._next()]

    def draw_remaining(self) -> str | None:
        """Return the subset of the next row of which plays remain; None if there is none."""
        if not any(self.left):
            return None
        row = self._next()
        while not self.left[row]:
            row = (row + 1) % len(self.left)
        self.left[row] -= 1
        return self.subsets[row]

    def _next(self) -> int:
        play = self._at
        self._at = (play + self._stride) % self.total
        return bisect_right(self._steps, play)


def _stride(plays: int) -> int:
    """Return a step that visits all plays before it comes back, and spreads those of each row."""
    step = max(1, round(GOLDEN * plays))
    while math.gcd(step, plays) > 1:
        step += 1
    return step


class Serving:
    """A campaign as a process serves it, as of one version. Decisions of an older version are drawn again."""

    def __init__(self, id: int, row: Any, roster: Roster, seen: float) -> None:
        name, state, secret, settings, version, stamp, _, plan = row
        self.id, self.name, self.state, self.roster, self.seen = id, str(name), str(state), roster, seen
        self.secret = bytes.fromhex(secret)
        self.version, self.stamp = int(version), int(stamp)
        try:
            self.settings: Settings = settings_from(settings)
            self.plan = ServedPlan.from_text(plan)
        except (ValueError, LookupError, TypeError, AttributeError) as why:
            raise StateError(f"the settings or the plan of the campaign {name!r} cannot be read: {why}") from why
        self._stages: dict[str | None, tuple[_Rows, _Rows]] = {}
        self._exact: _Rows | None = None
        self._counted = -math.inf  # when these were counted
        self._sources: Counter[int] = Counter()

    @classmethod
    def read(cls, driver: Driver, id: int, before: Serving | None, now: float) -> Serving:
        """Return the campaign as the store has it; what has not changed is taken from `before`."""
        found = driver.rows(_READ, {"c": id})
        if not found:
            raise NoSuchCampaign("this campaign has been deleted")
        row = found[0]
        if before is not None and before.roster.version == row[6] and before.secret.hex() == row[2]:
            roster = before.roster
        else:
            ((names, active),) = driver.rows(_ARMS, {"c": id})
            roster = Roster.read(names, active, row[6])
        serving = cls(id, row, roster, now)
        if before is not None:
            serving._sources = before._sources
            if before.plan == serving.plan:
                serving._stages, serving._exact = before._stages, before._exact
        return serving

    def check_serves(self) -> None:
        """Raise NotRunning unless the campaign makes decisions."""
        if self.state not in SERVING:
            raise NotRunning(f"the campaign {self.name!r} is {self.state}: {_HINT[self.state]}")

    # Contexts.

    @cached_property
    def _attributes(self) -> Attributes:
        return Attributes(self.settings.attributes)

    def segment_of(self, context: Mapping[str, Any] | None) -> str | None:
        """Return the key of the segment that a context belongs to, or raise BadInput; None if there are no segments."""
        if self.settings.takes_context:
            return self._attributes.key(context, self.plan.segments)
        if context is not None:
            raise BadInput(f"{self.settings.policy} does not take a context; use contextual-thompson")
        return None

    def check_declared(self) -> None:
        """Raise BadInput if the visitors of a web page, who may send any context, could invent segments."""
        if not self._attributes.are_closed:
            raise BadInput(
                "web pages may send a context only to a campaign that declares its attributes and their values: create "
                "it with params={'attributes': {'device': ['phone', 'desktop']}}, or leave the context out"
            )

    # Draws.

    def draw(self, count: int, key: str | None, segment: str | None) -> list[Drawn]:
        """Return the subsets of `count` decisions."""
        if self.state == "shipped":
            return [Drawn(subset_text(self.settings.shipped_for(self.served_segment(segment))), SHIPPED, 1.0)] * count
        to_control = self._control_plays(count, key)
        drawn = [self._of_plan(segment) for _ in range(count - to_control)]
        if to_control:
            drawn += self._of_control(to_control, segment)
            order = np.random.default_rng(new_stamp()).permutation(count)  # a part of a call must not tell the groups
            drawn = [drawn[place] for place in order]
        return drawn

    def may_show(self, text: str) -> bool:
        """Return whether a subset has active arms only, and obeys the rules."""
        subset, rules = subset_from(text), self.settings.constraints
        if self.roster.to_indices(subset) is None:
            return False
        return rules is None or not rules.broken(self.roster.names_of(subset))

    def compared(self, source: int | None) -> bool:
        """Return whether another decision of this source counts in the comparison with the control."""
        if source is None:
            return True
        if len(self._sources) > MOST_SOURCES:
            self._sources.clear()
        self._sources[source] += 1
        return self._sources[source] <= MOST_PER_SOURCE

    def _of_plan(self, segment: str | None) -> Drawn:
        if not self.settings.learns_from_all:
            return self._of_exact()
        planned, fallback = self._stage(segment)
        rows = planned if planned.drawn < planned.total else fallback
        subset = rows.draw()
        return Drawn(subset, LEARNED, self.propensity(subset, rows.share.get(subset, 0.0)))

    def _of_exact(self) -> Drawn:
        if self._exact is None:
            self._exact = _Rows([row[0] for row in self.plan.rows], [row[1] for row in self.plan.rows])
        subset = self._exact.draw_remaining()
        if subset is None:
            return Drawn(self.plan.fallback[0][0], LEARNED, None)
        return Drawn(subset, LEARNED, self.propensity(subset, self._exact.share[subset]))

    @property
    def is_exhausted(self) -> bool:
        """Whether all plays of a plan with exact counts are handed out, as far as this process knows."""
        exact = not self.settings.learns_from_all and self.state == "running"
        return exact and (self._exact is None or not any(self._exact.left))

    def _stage(self, segment: str | None) -> tuple[_Rows, _Rows]:
        """Return the rows of the plan and the fallback rows of a segment."""
        if segment not in self._stages:
            mine = [(subset, times) for subset, times, context in self.plan.rows if context == segment]
            more = [subset for subset, context in self.plan.fallback if context == segment]
            more = more or [subset for subset, context in self.plan.fallback if context is None]
            self._stages[segment] = (
                _Rows([subset for subset, _ in mine], [times for _, times in mine]),
                _Rows(more, [1] * len(more)),
            )
        return self._stages[segment]

    def must_count(self, now: float) -> bool:
        """Return whether it is time to look for plays of a plan with exact counts that are to be played again."""
        return self.is_exhausted and not self._counted <= now < self._counted + RECOUNT

    def count_exact(self, driver: Driver) -> None:
        """Count what remains of a plan with exact counts: without what settles, or was handed out recently."""
        delay = Progress.from_text(driver.rows(_PROGRESS, {"c": self.id})[0][0]).delay
        patience = self.settings.expire_after if delay is None else LATE * delay + GRACE
        asked = {"c": self.id, "s": self.plan.step, "n": self.plan.after, "recent": self.seen - patience}
        used = Counter[str](dict(map(tuple, driver.rows(_USED, asked))))
        rows = _Rows([row[0] for row in self.plan.rows], [row[1] for row in self.plan.rows])
        for row, subset in enumerate(rows.subsets):
            taken = min(used[subset], rows.left[row])
            rows.left[row] -= taken
            used[subset] -= taken
        self._exact, self._counted = rows, self.seen

    # The control.

    def _control_plays(self, count: int, key: str | None) -> int:
        """Return how many of `count` decisions the control gets; the same for the same key."""
        settings = self.settings
        if settings.control is None:
            return 0
        if key is None:
            rng = np.random.default_rng(new_stamp()) if count > 1 else None
            one = random_share()
        else:
            coin = int.from_bytes(blake2b(key.encode(), digest_size=8, key=settings.seed.to_bytes(8)).digest())
            rng, one = np.random.default_rng([settings.seed, 0, coin]), coin / 2**64
        if count == 1 or rng is None:
            return int(one < settings.control_share)
        return int(rng.binomial(count, settings.control_share))

    def _of_control(self, count: int, segment: str | None) -> list[Drawn]:
        """Return plays of the control. A segment gets the same ones as all others."""
        control, k = self.settings.control, self.settings.k
        if isinstance(control, tuple):
            texts = [subset_text(control)] * count
        elif self.settings.constraints is not None:
            texts = [self.plan.control[new_stamp() % len(self.plan.control)] for _ in range(count)]
        else:
            rng, active = np.random.default_rng(new_stamp()), len(self.roster.active)
            places = active + k - self.settings.fewest  # those beyond the arms stay empty
            drawn = [np.sort(rng.choice(places, k, replace=False, shuffle=False)).tolist() for _ in range(count)]
            shown = [tuple(arm for arm in each if arm < active) for each in drawn]
            texts = [subset_text(self.roster.to_numbers(subset)) for subset in shown]
        shares = self._stage(segment)[0].share if self.settings.learns_from_all else {}
        return [Drawn(text, CONTROL, self.propensity(text, shares.get(text, 0.0))) for text in texts]

    def propensity(self, subset: str, share: float) -> float | None:
        """Return the probability of a subset with this share of the plan; None if the control's part is not known."""
        settings = self.settings
        if settings.control is None:
            return share
        by_control = self._by_control(subset)
        if by_control is None:
            return None
        return (1 - settings.control_share) * share + settings.control_share * by_control

    def _by_control(self, subset: str) -> float | None:
        """Return the probability with which the control chooses a subset; None if it is not known."""
        control, k = self.settings.control, self.settings.k
        if isinstance(control, tuple):
            return float(subset_text(control) == subset)
        empties = k - self.settings.fewest
        free = self.settings.constraints is None
        number = math.comb(self.settings.n_arms + empties, k) if free else self.plan.allowed
        ways = math.comb(empties, k - len(subset_from(subset)))  # to choose the places that stay empty
        return None if number is None else ways / number

    # What was shipped.

    def served_segment(self, segment: str | None) -> str | None:
        """Return the segment as which a shipped campaign serves this one; None for everyone."""
        if segment is None:
            return None
        known: Collection[str] = [key for key, _ in self.settings.shipped_to]
        served = (bounded(segment, known), with_other(segment, known))
        return next((each for each in served if each in known), None)

    @cached_property
    def shipments(self) -> dict[int, Play]:
        """All that was shipped, by the hash in the ids of decisions that are not stored."""
        found: dict[int, Play] = {shipment_of(subset): (subset_text(subset), None) for subset in self.settings.shipped}
        for segment, subset in (*self.settings.shipped_before, *self.settings.shipped_to):
            found[shipment_of(subset, segment)] = subset_text(subset), segment
        return found

    def is_unstored(self, now: float) -> bool:
        """Return whether decisions can be made without the store now."""
        fresh = self.seen <= now < self.seen + SHIPPED_FOR
        return fresh and self.state == "shipped" and not self.settings.store_shipped

    def unstored(self, count: int, segment: str | None, now: float) -> list[Decision]:
        """Return decisions of a shipped campaign that are not stored."""
        segment = self.served_segment(segment)
        subset = self.settings.shipped_for(segment)
        shipment, milliseconds, arms = shipment_of(subset, segment), int(now * 1000), self.roster.names_of(subset)
        places = (UnstoredPlace(shipment, milliseconds, new_stamp(64)) for _ in range(count))
        context = None if segment is None else context_of(segment)
        at = moment(now)
        return [
            Decision(write_unstored_id(self.secret, each), list(arms), subset, at, "shipped", context)
            for each in places
        ]
