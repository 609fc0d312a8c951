"""What a campaign consists of in the store: its row, its arms (the roster), and its policy as of its last update."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from hashlib import blake2b
from operator import attrgetter
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.evidence import Sums
from kofn.campaigns.records.options import options_from
from kofn.campaigns.store.migrations import check_version
from kofn.campaigns.store.schema import CAMPAIGNS, VERSION
from kofn.campaigns.store.stamps import new_stamp
from kofn.campaigns.store.statements import Driver, Statement
from kofn.core import (
    AttributeInsight,
    BadInput,
    Direction,
    Insight,
    NoSuchCampaign,
    Policy,
    SegmentInsight,
    Subset,
)
from kofn.core.checks import shown
from kofn.core.responses import State, Summary, moment
from kofn.policies.registry import POLICIES, save

SERVING = ("running", "shipped")
"""States of a campaign that serves decisions."""


@dataclass
class CampaignRow:
    """The settings and counters of a campaign, one field per column of `kofn_campaigns`."""

    id: int
    name: str
    state: str  # running, paused, shipped, stopped or archived
    policy: str
    direction: str
    secret: str  # key of the hash in decision ids, as hexadecimal
    low: float
    high: float
    expire_after: float  # seconds
    created: float
    changed: float
    total: float  # sum of all rewards
    slot_width: float  # seconds per slot of the history
    next_due: float | None  # no decision expires before this time
    k: int
    n_arms: int
    keep_decisions: int
    version: int  # grows with every change
    roster_version: int  # grows when an arm is added or retired
    step: int  # grows when the policy learns or an arm is added or retired
    decided: int  # decisions so far; the number of the next one
    cursor: int  # the row of the plan that was handed out last
    plan_rows: int  # rows of the plan; rows with higher numbers are unplanned subsets
    unplanned: int  # rows of unplanned subsets
    plan_plays: int  # plays to observe before the policy learns
    observed: int  # plays observed since the policy last learned
    free: int  # planned plays that are neither in flight nor observed
    fillers: int  # plays handed out while the whole plan was in flight
    in_flight: int  # decisions without a reward that have not expired
    expired: int  # decisions without a reward that have expired
    rewarded: int  # decisions with a reward
    totalled: int  # plays reported as totals
    totals: int  # reported totals
    kept: int  # rewards that are stored one by one
    compact_at: int  # value of `kept` at which old rewards are deleted
    compacted: int  # rewards that were deleted and are in sums only
    forgotten: int  # expired decisions that were deleted
    buckets: int  # slots of the history
    events: int  # number of the latest event
    stamp: int  # a random number for each update of the policy: equal stamps mean equal policies, plans and arms
    mark: int  # a random number for each transaction: equal marks mean that nothing has changed
    overtaken: int  # fillers of this plan that were rewarded while planned plays were missing
    waited: float  # seconds between decisions and their rewards, summed over all of them
    made_by: str  # "demo" for campaigns of the demo, else empty
    options: str  # `options.Options` as JSON
    look: str  # the latest look of the stop rule, as JSON
    plan_total: int  # plays of the whole plan
    clipped: int  # rewards that were outside the range and were set to its nearest end
    notified: int  # number of the latest event that was sent to the webhook
    learned_decided: int  # decisions of the policy since the control was set
    learned_rewarded: int  # those with a reward
    control_decided: int  # decisions of the control since it was set
    control_rewarded: int  # those with a reward
    learned_total: float  # sum of the policy's rewards since the control was set
    learned_squares: float  # sum of their squares
    control_total: float  # sum of the control's rewards since it was set
    control_squares: float  # sum of their squares

    def __post_init__(self) -> None:
        self.stored = _SELDOM_OF(self)  # what the store has in the columns that seldom change

    @property
    def rewards(self) -> int:
        """Plays with a known reward."""
        return self.rewarded + self.totalled

    @property
    def mean(self) -> float | None:
        """The average reward so far."""
        return self.total / self.rewards if self.rewards else None

    @property
    def takes_context(self) -> bool:
        """Whether decisions are for a segment; this needs neither the policy nor a query."""
        return self.policy in POLICIES and POLICIES[self.policy].takes_context

    @cached_property
    def key(self) -> bytes:
        """The key of the hash in decision ids."""
        return bytes.fromhex(self.secret)

    def summary(self) -> Summary:
        """Return the campaign at a glance."""
        options = options_from(self.options)
        return Summary(
            name=self.name,
            state=cast(State, self.state),
            policy=self.policy,
            arms=self.n_arms,
            k=self.k,
            reward_range=(self.low, self.high),
            direction=cast(Direction, self.direction),
            plays=self.decided + self.totalled,
            rewards=self.rewards,
            mean=self.mean,
            in_flight=self.in_flight,
            expired=self.expired,
            created=moment(self.created),
            changed=moment(self.changed),
            version=self.version,
            unit=options.unit,
            alarms=len(options.alarms) if self.state in SERVING else 0,
            takes_context=self.takes_context,
        )

    def sums(self, group: str) -> Sums:
        """Return the rewards of a group, learned or control, since the control was set."""
        return Sums(*(getattr(self, f"{group}_{name}") for name in ("rewarded", "total", "squares")))


_NAMES = [each.name for each in fields(CampaignRow)]
_VERSION = select(VERSION.c.version).limit(1).scalar_subquery()
_READ = select(*(CAMPAIGNS.c[name] for name in _NAMES), _VERSION).where(CAMPAIGNS.c.id == bindparam("campaign"))
_LOCK = Statement(_READ.with_for_update(of=CAMPAIGNS))
_BY_NAME = Statement(select(*(CAMPAIGNS.c[name] for name in _NAMES)).where(CAMPAIGNS.c.name == bindparam("called")))
_PLAIN_READ = Statement(_READ)
_CONSTANT = ("id", "name", "policy", "direction", "secret", "created", "made_by")
_OF_WEBHOOK = ("notified",)  # the webhook writes it, at any time: other processes may hold an older row
_SELDOM = (
    *("state", "low", "high", "expire_after", "keep_decisions", "options", "look", "slot_width", "buckets", "events"),
    *("k", "n_arms", "roster_version", "step", "stamp", "plan_rows", "plan_plays", "plan_total"),
    *("compact_at", "compacted", "forgotten"),
)  # columns that few transactions change
_OFTEN = tuple(name for name in _NAMES if name not in (*_CONSTANT, *_OF_WEBHOOK, *_SELDOM))
_SELDOM_OF, _OFTEN_OF = attrgetter(*_SELDOM), attrgetter(*_OFTEN)
_THIS = CAMPAIGNS.update().where(CAMPAIGNS.c.id == bindparam("campaign"))
_UPDATE, _UPDATE_SELDOM = Statement(_THIS, columns=_OFTEN), Statement(_THIS, columns=_SELDOM)
_MARK = Statement(select(CAMPAIGNS.c.mark, _VERSION).where(CAMPAIGNS.c.id == bindparam("campaign")))
_PLACE_OF_MARK = _NAMES.index("mark")


def ask_row(
    driver: Driver, campaign: int, known: CampaignRow | None = None, *, lock: bool = False
) -> Callable[[], CampaignRow]:
    """Send the query of `read_row`, and return a function that returns the row.

    If nothing has changed since `known` was written, it returns that one itself. Where a query needs no round trip, the
    mark is read first: the other columns take longer.
    """
    if known is not None and not driver.is_remote:
        for mark, version in driver.rows(_MARK, {"campaign": campaign}):
            if mark == known.mark:
                check_version(version)
                return lambda: known
    answer = driver.ask(_LOCK if lock else _PLAIN_READ, {"campaign": campaign})

    def row() -> CampaignRow:
        found = answer()
        if not found:
            raise NoSuchCampaign("this campaign has been deleted")
        *values, version = found[0]
        check_version(version)
        return known if known is not None and known.mark == values[_PLACE_OF_MARK] else CampaignRow(*values)

    return row


def read_row(driver: Driver, campaign: int, *, lock: bool = False) -> CampaignRow:
    """Return the campaign's row; with `lock`, no other transaction can write to it until this one ends."""
    return ask_row(driver, campaign, lock=lock)()


def find_row(driver: Driver, name: str) -> CampaignRow | None:
    """Return the row of the campaign of that name, if there is one."""
    found = driver.rows(_BY_NAME, {"called": name})
    return CampaignRow(*found[0]) if found else None


def update_row(driver: Driver, row: CampaignRow, now: float) -> None:
    """Write the row back, with the next version and a new mark.

    Columns that seldom change are left out if they have not: psycopg parses a statement with more than 50 parameters
    each time, which takes as long as all others of a transaction together.
    """
    row.version += 1
    row.mark = new_stamp()
    row.changed = max(now, row.changed)
    driver.run(_UPDATE, {"campaign": row.id, **dict(zip(_OFTEN, _OFTEN_OF(row), strict=True))})
    if (seldom := _SELDOM_OF(row)) != row.stored:
        driver.run(_UPDATE_SELDOM, {"campaign": row.id, **dict(zip(_SELDOM, seldom, strict=True))})
        row.stored = seldom


def insert_row(connection: Connection, row: CampaignRow) -> None:
    """Insert a new row and set its id."""
    values = {name: value for name, value in asdict(row).items() if name != "id"}
    key = connection.execute(CAMPAIGNS.insert().values(values)).inserted_primary_key
    assert key is not None
    row.id, row.stored = int(key[0]), _SELDOM_OF(row)


class Roster:
    """All arms that the campaign ever had, by number, and the active ones in the order of the policy's indices.

    An arm keeps its number when others are retired, so decisions in flight keep their meaning.
    """

    def __init__(self, version: int, names: list[str], active: list[int]) -> None:
        self.version = version
        self.names = names
        self.active = active
        self.identical = active == list(range(len(active)))  # whether numbers are the policy's indices
        self.number_of = {names[arm]: arm for arm in active}
        self._index = {} if self.identical else {arm: index for index, arm in enumerate(active)}

    def to_numbers(self, subset: Subset) -> Subset:
        """Return a subset of the policy's indices as arm numbers."""
        return subset if self.identical else tuple(self.active[index] for index in subset)

    def to_indices(self, subset: Subset) -> Subset | None:
        """Return a subset of arm numbers as the policy's indices; None if one of the arms is retired."""
        if self.identical:
            return subset if subset[-1] < len(self.active) else None
        found = tuple(self._index.get(arm, -1) for arm in subset)
        return None if -1 in found else found

    def names_of(self, subset: Subset) -> list[str]:
        """Return the names of these arms."""
        return [self.names[arm] for arm in subset]

    def subset_of(self, arms: object, k: int, fewest: int | None = None, what: str = "a subset") -> Subset:
        """Return K active arms, given by name or number, as a sorted subset of numbers; or raise BadInput.

        With `fewest`, a subset may have fewer arms than K. `what` is the subject of the error.
        """
        if isinstance(arms, str) or not isinstance(arms, Iterable):
            raise BadInput(f"{what} must be a list of arms; got {shown(arms)}")
        given = [self._number(arm) for arm in arms]
        subset = tuple(sorted(set(given)))
        if len(subset) < len(given):
            twice = next(arm for index, arm in enumerate(given) if arm in given[:index])
            raise BadInput(f"arm {self.names[twice]!r} is listed twice in {what}")
        if not (fewest or k) <= len(subset) <= k:
            sizes = f"{fewest} to {k}" if fewest and fewest < k else f"{k}"
            raise BadInput(f"{what} must have {sizes} different arms; got {len(subset)}")
        return subset

    def _number(self, arm: Any) -> int:
        if isinstance(arm, str) and arm in self.number_of:
            return self.number_of[arm]
        if isinstance(arm, int | np.integer) and not isinstance(arm, bool) and self._is_active(int(arm)):
            return int(arm)
        some = ", ".join(repr(self.names[active]) for active in self.active[:3])
        raise BadInput(f"there is no arm {shown(arm)}: the campaign has {len(self.active)} arms, such as {some}")

    def _is_active(self, arm: int) -> bool:
        index = bisect_left(self.active, arm)
        return index < len(self.active) and self.active[index] == arm


@dataclass
class PolicySnapshot:
    """The policy as of its last update. Threads share it: to change the policy, change a copy."""

    step: int
    roster: Roster
    policy: Policy
    played: NDArray[np.int64]  # plays of each arm, by number, up to then
    insight: Insight | None = None
    insight_known: bool = False  # whether `insight` has been computed

    def best(self) -> Subset:
        """Return the policy's best subset as arm numbers."""
        return self.roster.to_numbers(self.policy.best())

    @cached_property
    def known_of_segments(self) -> tuple[tuple[SegmentInsight, ...], tuple[AttributeInsight, ...]]:
        """What the policy, which takes a context, knows about each segment and each attribute."""
        policy: Any = self.policy
        return policy.by_segment(), policy.by_attribute()

    @cached_property
    def plays_of_segments(self) -> Counter[str]:
        """The plays of each segment in the policy's plan."""
        plan, plays = self.policy.plan(), Counter[str]()
        for segment, times in zip(plan.segments or (), plan.times.tolist(), strict=False):
            plays[segment] += times
        return plays


def record_text(policy: Policy) -> str:
    """Return the policy's record as JSON."""
    return json.dumps(save(policy), separators=(",", ":"), allow_nan=False)


def subset_text(subset: Subset) -> str:
    """Return a subset as the store writes it.

    >>> subset_text((1, 4, 7))
    '1,4,7'
    """
    return ",".join(map(str, subset))


def subset_from(text: str) -> Subset:
    """Return the subset that `subset_text` wrote."""
    return tuple(map(int, text.split(",")))


def subset_key(text: str, context: str | None = None) -> int:
    """Return a 64-bit hash of a subset, and of a segment's key if there is one.

    The index over it stays small, however many arms a subset has.
    """
    both = text if context is None else f"{text} {context}"
    return int.from_bytes(blake2b(both.encode(), digest_size=8).digest(), signed=True)
