"""The campaign: a policy with a store behind it, for real decisions by many workers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar, overload

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from kofn.campaigns import arms as changing
from kofn.campaigns import creating, transfer
from kofn.campaigns.deciding import hand_out
from kofn.campaigns.head import Base, Head, read_base, read_head, read_roster, write_head
from kofn.campaigns.history import MOST_POINTS, events, note, points_of
from kofn.campaigns.ids import shown
from kofn.campaigns.insight import insight, open_decisions
from kofn.campaigns.learning import due_to_learn, learn
from kofn.campaigns.names import arm_names, campaign_name, is_campaign_name
from kofn.campaigns.rewarding import Rewards, read_batch, take_in
from kofn.campaigns.schema import CAMPAIGNS, OF_CAMPAIGN, TOKENS
from kofn.campaigns.store import Store, store_at
from kofn.campaigns.totals import take_total
from kofn.campaigns.upkeep import compact, expire
from kofn.core import BadInput, CampaignExists, Direction, NoSuchCampaign, NotRunning, Seed, check_sizes, whole
from kofn.responses import CampaignInsight, Decision, Event, OpenDecision, Point, Rewarded, Summary

MOST_AT_ONCE = 1_000_000
"""Decisions of one call."""

T = TypeVar("T")


def campaigns(store: str | Store | None = None) -> list[Summary]:
    """All campaigns of a store at a glance, by name."""
    with store_at(store).read() as connection:
        rows = connection.execute(select(CAMPAIGNS).order_by(CAMPAIGNS.c.name)).mappings()
        return [Head(**row).summary() for row in rows]


class Campaign:
    """Real decisions: any process decides, any process tells the reward, at once or days later. Nothing is lost.

    >>> from tempfile import mkdtemp
    >>> store = f"sqlite:///{mkdtemp()}/shop.db"
    >>> goods = ["kettle", "mug", "tray", "pan", "pot", "lid"]
    >>> campaign = Campaign.create("front-page", arms=goods, k=2, reward_range=(0, 40), store=store)
    >>> decision = campaign.decide()
    >>> len(decision.arms)
    2
    >>> Campaign.open("front-page", store=store).reward(decision.id, 12.5)
    Rewarded(accepted=1, repeated=0)

    A campaign may be used by many threads, and lives through a fork.
    """

    def __init__(self, store: Store, head: Head) -> None:
        self.store = store
        self.name = head.name
        self._id, self._secret, self._range = head.id, head.key, (head.low, head.high)

    # Coming and going.

    @classmethod
    def create(
        cls,
        name: str,
        arms: Sequence[str],
        k: int = 5,
        *,
        policy: str = "thompson",
        params: Mapping[str, Any] | None = None,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
        seed: Seed = None,
        store: str | Store | None = None,
        expire_after: timedelta | float = creating.WEEK,
        keep_decisions: int = creating.KEEP,
    ) -> Self:
        """A new campaign over arms of these names.

        A decision without a reward is wanted again after `expire_after` (seconds, or a timedelta); its reward counts
        whenever it comes. Of the answered decisions the last `keep_decisions` are kept one by one, the others in sums.
        """
        name, names = campaign_name(name), arm_names(arms)
        check_sizes(len(names), k)
        player = creating.policy_for(policy, len(names), k, params, seed, reward_range, direction)
        keep = creating.keeping(keep_decisions)
        where = store_at(store)
        head = creating.new_head(name, player, where.clock(), creating.seconds(expire_after), keep)
        return cls._insert(where, head, lambda connection: creating.insert(connection, head, names, player), "created")

    @classmethod
    def _insert(cls, store: Store, head: Head, insert: Callable[[Connection], object], kind: str) -> Self:
        try:
            with store.write() as connection:
                insert(connection)
                note(connection, head, store.clock(), kind, f"{head.n_arms} arms, {head.k} places, {head.policy}")
                write_head(connection, head, store.clock())
        except Exception as why:
            if isinstance(why.__cause__, IntegrityError):  # another process was faster
                raise CampaignExists(f"there is a campaign {head.name!r} already") from why
            raise
        return cls(store, head)

    @classmethod
    def open(cls, name: str, store: str | Store | None = None) -> Self:
        """The campaign of that name."""
        where = store_at(store)
        with where.read() as connection:
            named = CAMPAIGNS.c.name == (name if is_campaign_name(name) else "")  # no database sees what cannot be one
            row = connection.execute(select(CAMPAIGNS).where(named)).mappings().one_or_none()
            if row is None:
                some = connection.execute(select(CAMPAIGNS.c.name).order_by(CAMPAIGNS.c.name).limit(5)).scalars().all()
                there = f"there are: {', '.join(some)}" if some else "there is none"
                raise NoSuchCampaign(f"there is no campaign {shown(name)} in {where}; {there}")
            return cls(where, Head(**row))

    def delete(self) -> None:
        """Remove the campaign, all that it knows, and the tokens that are for it only."""
        with self.store.write() as connection:
            read_head(connection, self._id, lock=True)
            for table in OF_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == self._id))
            connection.execute(TOKENS.delete().where(TOKENS.c.campaign == self.name))
            connection.execute(CAMPAIGNS.delete().where(CAMPAIGNS.c.id == self._id))
        self.store.cache.pop(self._id, None)

    def export(self) -> dict[str, Any]:
        """All of it as plain values, ready for JSON: the policy's record, the decisions, the rewards, the history."""
        with self.store.read() as connection:
            return transfer.export(connection, read_head(connection, self._id))

    @classmethod
    def import_(cls, exported: Mapping[str, Any], *, store: str | Store | None = None, name: str | None = None) -> Self:
        """The campaign that `export` wrote, under its own name or another. It goes on where it was."""
        head, insert = transfer.read(exported, name)
        return cls._insert(store_at(store), head, insert, "imported")

    # Deciding and telling.

    @overload
    def decide(self) -> Decision: ...
    @overload
    def decide(self, count: int) -> list[Decision]: ...
    def decide(self, count: int | None = None) -> Decision | list[Decision]:
        """The next decision; with a count, a list of so many. Nobody ever waits: what is out is simply out.

        When all that the policy wants to try is out, further decisions are draws of its own, or the best subset.
        """
        number = 1 if count is None else whole("count", count)
        if number > MOST_AT_ONCE:
            raise BadInput(f"a call gives {MOST_AT_ONCE:,} decisions at the most, not {number:,}")
        decisions = self._change(lambda connection, head, now: hand_out(self.store, connection, head, number, now))
        return decisions[0] if count is None else decisions

    def reward(self, id: str, value: float) -> Rewarded:
        """Tell what a decision earned. Telling it again is harmless; telling another value is refused."""
        return self.rewards([(id, value)])

    def rewards(self, rewards: Rewards) -> Rewarded:
        """Tell what decisions earned, as {id: reward} or pairs. The batch is taken whole or not at all."""
        batch = read_batch(rewards, self._secret, *self._range)
        if not batch:
            return Rewarded(0, 0)
        return self._learning(lambda connection, head, now: take_in(self.store, connection, head, batch, now))

    def reward_total(
        self,
        arms: Sequence[str] | Sequence[int],
        count: int,
        total: float,
        squares: float | None = None,
        *,
        key: str | None = None,
    ) -> Rewarded:
        """Tell what `count` plays of a subset earned together, whether it was decided here or not.

        With a `key`, such as the date of the log, telling it again is harmless.
        """
        new = self._learning(
            lambda connection, head, now: take_total(
                self.store, connection, head, arms, count, total, squares, key, now
            )
        )
        return Rewarded(count if new else 0, 0 if new else count)

    # Looking.

    def best(self) -> list[str]:
        """The best subset, by what has been learned so far."""
        with self.store.read() as connection:
            base = read_base(self.store, connection, read_head(connection, self._id))
            return base.roster.called(base.roster.outside(base.policy.best()))

    def summary(self) -> Summary:
        """The campaign at a glance."""
        with self.store.read() as connection:
            return read_head(connection, self._id).summary()

    @property
    def state(self) -> str:
        """running, paused or finished."""
        return self.summary().state

    @property
    def arms(self) -> list[str]:
        """The names of the arms that are there."""
        with self.store.read() as connection:
            roster = read_roster(self.store, connection, read_head(connection, self._id))
            return [roster.names[arm] for arm in roster.active]

    def insight(self) -> CampaignInsight:
        """What it knows: the best subset, what each arm is worth, how sure that is, what learning has earned."""
        with self.store.read() as connection:
            return insight(self.store, connection, read_head(connection, self._id))

    def history(self, points: int = MOST_POINTS) -> list[Point]:
        """Plays and rewards over time, oldest first, in at most 2,000 points."""
        with self.store.read() as connection:
            return points_of(connection, read_head(connection, self._id), points)

    def events(self, limit: int = 100) -> list[Event]:
        """What happened to it, the newest first."""
        with self.store.read() as connection:
            return events(connection, read_head(connection, self._id), limit)

    def open_decisions(self, limit: int = 100) -> list[OpenDecision]:
        """Decisions without a reward, the newest first."""
        with self.store.read() as connection:
            return open_decisions(self.store, connection, read_head(connection, self._id), limit)

    # Changing.

    def add_arm(self, name: str) -> None:
        """Add an arm. What was learned of the others stays."""
        self._new_base(lambda connection, head: changing.add(self.store, connection, head, name), "arm added", name)

    def retire_arm(self, name: str) -> None:
        """Take an arm out of the game. What was learned of the others stays."""
        self._new_base(
            lambda connection, head: changing.retire(self.store, connection, head, name), "arm retired", name
        )

    def pause(self) -> None:
        """Refuse to decide until it is resumed. Rewards are welcome."""
        self._enter("paused", {"running"})

    def resume(self) -> None:
        """Decide again."""
        self._enter("running", {"paused"})

    def finish(self) -> None:
        """Refuse to decide for good. Rewards that come late are welcome, and `best` says what was found."""
        self._enter("finished", {"running", "paused"})

    def expire(self) -> None:
        """Let decisions expire that are due, as the next `decide` would."""
        self._change(lambda connection, head, now: expire(connection, head, now))

    def _enter(self, state: str, allowed: set[str]) -> None:
        def enter(connection: Connection, head: Head, now: float) -> None:
            if head.state == state:
                return
            if head.state not in allowed:
                raise NotRunning(f"the campaign {head.name!r} is {head.state}, and stays so: make a new one to go on")
            head.state = state
            note(connection, head, now, "resumed" if state == "running" else state)

        self._change(enter)

    # Transactions.

    def _change(self, work: Callable[[Connection, Head, float], T]) -> T:
        """Do some work on the locked campaign, and write its row: one transaction."""
        with self.store.write() as connection:
            head = read_head(connection, self._id, lock=True)
            now = self.store.clock()
            result = work(connection, head, now)
            write_head(connection, head, now)
        return result

    def _learning(self, work: Callable[[Connection, Head, float], T]) -> T:
        """The same, and the policy learns from it when it is time."""
        fresh: list[Base] = []

        def both(connection: Connection, head: Head, now: float) -> T:
            result = work(connection, head, now)
            if due_to_learn(head):
                before = read_base(self.store, connection, head)
                fresh.append(learn(connection, head, before))
                _note_learned(connection, head, now, before, fresh[0])
            compact(connection, head)
            return result

        result = self._change(both)
        for base in fresh:  # only what has been committed is remembered
            self.store.remember(self._id, base)
        return result

    def _new_base(self, work: Callable[[Connection, Head], Base], kind: str, says: str) -> None:
        def change(connection: Connection, head: Head, now: float) -> Base:
            base = work(connection, head)
            note(connection, head, now, kind, says)
            return base

        self.store.remember(self._id, self._change(change))

    def __repr__(self) -> str:
        return f"Campaign({self.name!r}, store={str(self.store)!r})"


def _note_learned(connection: Connection, head: Head, now: float, before: Base, after: Base) -> None:
    """Remember a new best subset; that the policy learned without changing its mind is no news."""
    best = after.policy.best()
    if best != before.policy.best() or before.policy.updates == 0 < after.policy.updates:
        names = after.roster.called(after.roster.outside(best))
        more = f" and {len(names) - 10} more" if len(names) > 10 else ""
        says = f"after {head.rewards:,} rewards, the best are {', '.join(names[:10])}{more}"
        note(connection, head, now, "learned", says)
