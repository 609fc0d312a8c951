"""What is read of a campaign: its row (the head), its arms (the roster), its policy when it last learned (the base)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, bindparam, select

from kofn.campaigns.schema import CAMPAIGNS, ROSTERS, STATES
from kofn.campaigns.store import Store
from kofn.core import Direction, Insight, NoSuchCampaign, Policy, Subset
from kofn.policies.registry import restore, save
from kofn.responses import State, Summary, moment


@dataclass
class Head:
    """A campaign's settings and counters, as its row has them. Change them, then `write_head`."""

    id: int
    name: str
    state: str  # running, paused or finished
    policy: str
    direction: str
    secret: str
    low: float
    high: float
    expire_after: float
    created: float
    changed: float
    total: float  # of all rewards
    width: float  # of a slot of the history, in seconds
    next_due: float | None  # no decision expires before
    k: int
    n_arms: int
    keep_decisions: int
    version: int  # grows with every change
    roster: int  # grows when arms change
    step: int  # grows when the policy learns or its arms change
    decided: int  # decisions so far; the number of the next one
    cursor: int  # the row of the plan handed out last
    rows: int  # of the plan; those after them were not planned
    others: int  # subsets told that were not planned
    wanted: int  # plays until the policy learns
    told: int  # of those
    unasked: int  # plays of the plan that are neither out nor told
    spared: int  # plays handed out while all of the plan was out
    in_flight: int
    expired: int  # without a reward still
    rewarded: int  # decisions with a reward
    totalled: int  # plays told as totals
    totals: int  # how many of those calls
    kept: int  # rewards that the store still has one by one
    compact_at: int  # when there are so many of them, it is time to look
    compacted: int  # rewards that it has in sums only
    forgotten: int  # expired decisions that it no longer has
    buckets: int
    events: int

    @property
    def rewards(self) -> int:
        """Plays whose reward is known."""
        return self.rewarded + self.totalled

    @property
    def mean(self) -> float | None:
        """What plays earned so far, on average."""
        return self.total / self.rewards if self.rewards else None

    @property
    def key(self) -> bytes:
        """What ids are proved with."""
        return bytes.fromhex(self.secret)

    def summary(self) -> Summary:
        """The campaign at a glance."""
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
        )


_READ = select(CAMPAIGNS).where(CAMPAIGNS.c.id == bindparam("campaign"))
_LOCK = _READ.with_for_update()
_HEAD = [each.name for each in fields(Head)]
_CHANGING = [name for name in _HEAD if name not in ("id", "name", "policy", "direction", "secret", "created")]
_WRITE = (
    CAMPAIGNS.update()
    .where(CAMPAIGNS.c.id == bindparam("campaign"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGING})
)


def read_head(connection: Connection, campaign: int, *, lock: bool = False) -> Head:
    """The campaign's row; with `lock`, kept from all others until the transaction ends."""
    row = connection.execute(_LOCK if lock else _READ, {"campaign": campaign}).mappings().one_or_none()
    if row is None:
        raise NoSuchCampaign("this campaign has been deleted")
    return Head(**row)


def write_head(connection: Connection, head: Head, now: float) -> None:
    """Keep what has changed."""
    head.version += 1
    head.changed = max(now, head.changed)
    values: dict[str, Any] = {f"new_{name}": getattr(head, name) for name in _CHANGING}
    connection.execute(_WRITE, values | {"campaign": head.id})


def insert_head(connection: Connection, head: Head) -> None:
    """A new row; its id is given to `head`."""
    values = {name: value for name, value in asdict(head).items() if name != "id"}
    key = connection.execute(CAMPAIGNS.insert().values(values)).inserted_primary_key
    assert key is not None
    head.id = int(key[0])


class Roster:
    """The arms: all that ever were, by number, and those that are there, as the policy numbers them.

    An arm keeps its number for good, so that decisions on their way mean what they meant.
    """

    def __init__(self, version: int, names: list[str], active: list[int]) -> None:
        self.version = version
        self.names = names
        self.active = active
        self.same = active == list(range(len(active)))
        self.number = {names[arm]: arm for arm in active}
        self._index = {} if self.same else {arm: index for index, arm in enumerate(active)}

    def outside(self, subset: Subset) -> Subset:
        """A subset of the policy, by the numbers that stay."""
        return subset if self.same else tuple(self.active[arm] for arm in subset)

    def inside(self, subset: Subset) -> Subset | None:
        """A subset as the policy numbers it; None if one of its arms has gone."""
        if self.same:
            return subset if subset[-1] < len(self.active) else None
        found = tuple(self._index.get(arm, -1) for arm in subset)
        return None if -1 in found else found

    def called(self, subset: Subset) -> list[str]:
        """The names of these arms."""
        return [self.names[arm] for arm in subset]


@dataclass
class Base:
    """The policy when it last learned. Shared by threads: whoever changes the policy changes a copy."""

    step: int
    roster: Roster
    policy: Policy
    played: NDArray[np.int64]  # of each arm by its number, up to then
    insight: Insight | None = None
    known: bool = False  # whether `insight` has been asked for


def read_base(store: Store, connection: Connection, head: Head) -> Base:
    """The policy and the arms of the campaign, from memory if they are of this step."""
    base = store.cache.get(head.id)
    if isinstance(base, Base) and base.step == head.step:
        return base
    row = connection.execute(select(STATES).where(STATES.c.campaign == head.id)).one()
    roster = read_roster(store, connection, head)
    fresh = Base(head.step, roster, restore(json.loads(row.record)), np.array(json.loads(row.played), np.int64))
    store.remember(head.id, fresh)
    return fresh


def read_roster(store: Store, connection: Connection, head: Head) -> Roster:
    """The arms of the campaign, from memory if they have not changed."""
    known = store.cache.get(head.id)
    roster = known.roster if isinstance(known, Base) else known
    if isinstance(roster, Roster) and roster.version == head.roster:
        return roster
    row = connection.execute(select(ROSTERS.c.names, ROSTERS.c.active).where(ROSTERS.c.campaign == head.id)).one()
    roster = Roster(head.roster, json.loads(row.names), json.loads(row.active))
    store.remember(head.id, roster)
    return roster


def record_of(policy: Policy) -> str:
    """The policy's record as text."""
    return json.dumps(save(policy), separators=(",", ":"), allow_nan=False)


def subset_text(subset: Subset) -> str:
    """A subset as the store has it."""
    return ",".join(map(str, subset))


def subset_from(text: str) -> Subset:
    """The subset that `subset_text` wrote."""
    return tuple(map(int, text.split(",")))


def subset_key(text: str) -> int:
    """A 64-bit number to find a subset by, however many arms it has."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), signed=True)
