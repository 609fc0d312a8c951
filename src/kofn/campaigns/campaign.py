"""The campaign: a policy with a store behind it, for real decisions by many workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar, Unpack, cast, overload

from sqlalchemy import Connection, select
from sqlalchemy.exc import IntegrityError

from kofn.campaigns import configure, create, decide, expiry, learn, reward, stopping, transfer
from kofn.campaigns.decide import ShippedSubset
from kofn.campaigns.decision_files import to_frame
from kofn.campaigns.records import transaction
from kofn.campaigns.records.costs import policy_costs
from kofn.campaigns.records.names import arm_names, campaign_name, check_key, is_campaign_name
from kofn.campaigns.records.rows import CampaignRow, Roster, find_row, read_row
from kofn.campaigns.records.rules import check_obeys, policy_rules
from kofn.campaigns.records.transaction import MAX_POINTS, Transaction
from kofn.campaigns.reports import alarms, report, verify
from kofn.campaigns.reports.decisions import logged_decisions
from kofn.campaigns.reward import Rewards
from kofn.campaigns.segments import best_of_segments, segment_of, segments
from kofn.campaigns.store.database import Store, store_at
from kofn.campaigns.store.group_commit import Job, Promise
from kofn.campaigns.store.schema import CAMPAIGNS, OF_CAMPAIGN, TOKENS
from kofn.campaigns.store.statements import Driver
from kofn.core import BadInput, CampaignExists, Direction, NoSuchCampaign, NotRunning, Seed, check_sizes, whole
from kofn.core.campaign_settings import CampaignOptions, ChangedSettings
from kofn.core.checks import shown
from kofn.core.responses import (
    CampaignInsight,
    CampaignSettings,
    Decision,
    EstimatePoint,
    Event,
    LoggedDecision,
    OpenDecision,
    Point,
    RaisedAlarm,
    Rewarded,
    Segments,
    Summary,
    Verification,
)

T = TypeVar("T")

MAX_DECISIONS = 1_000_000
"""Most decisions of one call. A higher value lets one call hold the campaign's lock for longer."""


def campaigns(store: str | Store | None = None) -> list[Summary]:
    """Return a summary of each campaign in a store, by name."""
    with store_at(store, create=False).read() as connection:
        rows = connection.execute(select(CAMPAIGNS).order_by(CAMPAIGNS.c.name)).mappings()
        return [CampaignRow(**row).summary() for row in rows]


class Campaign:
    """Real decisions: any process decides, and any process reports the reward, at once or days later.

    >>> from tempfile import mkdtemp
    >>> store = f"sqlite:///{mkdtemp()}/shop.db"
    >>> goods = ["kettle", "mug", "tray", "pan", "pot", "lid"]
    >>> campaign = Campaign.create("front-page", arms=goods, k=2, reward_range=(0, 40), store=store)
    >>> decision = campaign.decide()
    >>> len(decision.arms)
    2
    >>> Campaign.open("front-page", store=store).reward(decision.id, 12.5)
    Rewarded(accepted=1, repeated=0, forgotten=0, refused=[])

    Many threads may share a campaign, and it survives a fork. Each call is one transaction.
    """

    def __init__(self, store: Store, row: CampaignRow) -> None:
        self.store = store
        self.name = row.name
        self._done: Promise | None = None
        self._id, self._secret = row.id, row.key
        self._shipped: list[ShippedSubset] = []  # at most one; a list, so that copies share it

    def _write(self, work: Callable[[Transaction], T]) -> T:
        """Execute an operation, together with the operations of other waiting callers."""
        job = Job(self._id, self._same(work))
        if self._done is not None:
            job.done = self._done
            transaction.submit(self.store, job)
            return cast(T, None)
        result: T = transaction.run(self.store, job)
        return result

    def submit(self, done: Promise, change: Callable[..., Any], *arguments: Any, **options: Any) -> None:
        """Let another thread execute a change, such as `Campaign.pause`, which delivers its result to `done`."""
        submitting = copy(self)
        submitting._done = done
        change(submitting, *arguments, **options)

    def _same(self, work: Callable[[Transaction], T]) -> Callable[[Transaction], T]:
        """Return the operation, refused if the store has another campaign under this one's id."""

        def checked(tx: Transaction) -> T:
            if tx.row.key != self._secret:
                raise NoSuchCampaign(
                    f"the campaign {self.name!r} has been deleted, or its store replaced: open it again"
                )
            return work(tx)

        return checked

    @contextmanager
    def _read(self) -> Iterator[Transaction]:
        with transaction.reading(self.store, self._id) as tx:
            yield self._same(lambda same: same)(tx)

    # Create, open, delete, move.

    @classmethod
    def create(
        cls,
        name: str,
        arms: Sequence[str],
        k: int = 5,
        *,
        policy: str = "thompson",
        params: Mapping[str, Any] | None = None,
        reward_range: tuple[float, float] | None = (0.0, 1.0),
        direction: Direction = "maximize",
        seed: Seed = None,
        store: str | Store | None = None,
        expire_after: timedelta | float = create.WEEK,
        keep_decisions: int = create.KEEP,
        **options: Unpack[CampaignOptions],
    ) -> Self:
        """Create a campaign over arms of these names.

        A decision without a reward expires after `expire_after` (seconds, or a timedelta): its play is planned again,
        but its reward still counts when it arrives. The last `keep_decisions` decisions with a reward are stored one by
        one, older ones as sums only. With `reward_range=None`, the range is learned from the rewards.

        `control` (a list of arms, or "uniform" for random arms) gets `control_share` of the decisions, and is what
        learning is compared with. `stop_when`, such as "loss<0.01", says when the campaign is ready; with
        `ship_when_ready` it then ships. `constraints` are rules that every subset obeys: `kofn.Constraints`, or a list
        of rules, by names of arms. `costs` has what arms cost, by name or in their order, for the policy
        thompson-sizes: report rewards without them; means, lift and all that is learned are net of them.
        `kofn.core.responses.CampaignSettings` describes all options; `configure` changes them.
        """
        name, names = campaign_name(name), arm_names(arms)
        check_sizes(len(names), k)
        if reward_range is None:
            options = {"outside": "widen", **options}
        roster = Roster(0, names, list(range(len(names))))
        given_range = (0.0, 1.0) if reward_range is None else reward_range
        about = policy, len(names), k, params, seed, given_range, direction
        sizes = create.fewest_of(*about), k
        known = create.options_for(roster, sizes, seed, options)
        rules, costs = policy_rules(known.constraints, roster, sizes), policy_costs(known.costs, roster)
        player = create.policy_for(*about, rules, costs)
        if known.outside == "widen":
            player.with_params(reward_range=player.reward_range)  # refused unless the policy can do it
        player.plan()  # made before the transaction, for which other campaigns of a SQLite store wait
        keep = create.decisions_to_keep(keep_decisions)
        where = store_at(store)
        row = create.new_row(name, player, where.clock(), create.seconds(expire_after), keep, known)
        return cls._insert(where, row, lambda tx: create.insert(tx, roster, player), "created")

    @classmethod
    def _insert(cls, store: Store, row: CampaignRow, insert: Callable[[Transaction], None], event: str) -> Self:
        def work(connection: Connection) -> None:
            tx = Transaction(store, connection, row)
            insert(tx)
            tx.note(event, f"{row.n_arms} arms, {row.k} places, {row.policy}")
            tx.write()

        try:
            store.transact(work)
        except Exception as why:
            if isinstance(why.__cause__, IntegrityError):  # another process was faster
                raise CampaignExists(f"a campaign named {row.name!r} already exists") from why
            raise
        return cls(store, row)

    @classmethod
    def open(cls, name: str, store: str | Store | None = None) -> Self:
        """Open the campaign of that name."""
        where = store_at(store, create=False)
        with where.read() as connection:
            row = find_row(Driver(connection), name) if is_campaign_name(name) else None
            if row is None:
                some = connection.execute(select(CAMPAIGNS.c.name).order_by(CAMPAIGNS.c.name).limit(5)).scalars().all()
                there = f"there are: {', '.join(some)}" if some else "the store is empty"
                raise NoSuchCampaign(f"there is no campaign {shown(name)} in {where}; {there}")
            return cls(where, row)

    def delete(self) -> None:
        """Delete the campaign with all its rows, and the tokens that are limited to it."""

        def work(connection: Connection) -> None:
            self._same(lambda tx: None)(
                Transaction(self.store, connection, read_row(Driver(connection), self._id, lock=True))
            )
            for table in OF_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == self._id))
            connection.execute(TOKENS.delete().where(TOKENS.c.campaign == self.name))
            connection.execute(CAMPAIGNS.delete().where(CAMPAIGNS.c.id == self._id))

        self.store.transact(work)
        self.store.drop(self._id)
        self._shipped.clear()

    def export(self, *, with_secret: bool = False) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON: the policy's record, decisions, rewards, history.

        The secret key of decision ids is left out, so the imported campaign does not accept rewards of decisions that
        were made before. Export it `with_secret=True` to move a campaign while decisions are in flight.
        """
        with self._read() as tx:
            return transfer.export(tx, with_secret=with_secret)

    @classmethod
    def import_(cls, exported: Mapping[str, Any], *, store: str | Store | None = None, name: str | None = None) -> Self:
        """Create the campaign that `export` returned, under its own name or another. It resumes where it was."""
        row, insert = transfer.read_export(exported, name)
        return cls._insert(store_at(store), row, insert, "imported")

    # Decide and reward.

    @overload
    def decide(
        self,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Decision: ...
    @overload
    def decide(
        self,
        count: int,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> list[Decision]: ...
    def decide(
        self,
        count: int | None = None,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Decision | list[Decision]:
        """Return the next decision, or a list of `count` decisions. It never waits for a reward.

        While the whole plan is in flight, further decisions are draws of the policy, or the best subset. A call with
        the same `key` returns the same decisions, as long as the store has them: a call whose answer was lost can be
        repeated. With sticky keys, such as visitors, it returns new decisions with the same arms once all have a
        reward. `metadata`, a small dict, comes back in the export of decisions. A shipped campaign returns the shipped
        subset. `context`, a dict such as {"device": "phone", "country": "de"}, says for whom, if the policy takes one.
        """
        number = self._count(count)
        job = self._decide(number, key, metadata, context)
        decisions = self._unstored_decisions(number, context)
        if decisions is None:
            decisions = transaction.run(self.store, job)
        return decisions[0] if count is None else decisions

    def submit_decide(
        self,
        done: Promise,
        count: int,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Let another thread execute `decide(count, key=key)`, which delivers its result to `done`."""
        job = self._decide(self._count(count), key, metadata, context)
        if (decisions := self._unstored_decisions(count, context)) is not None:
            done.set_result(decisions)
            return
        job.done = done
        transaction.submit(self.store, job)

    @staticmethod
    def _count(count: int | None) -> int:
        number = 1 if count is None else whole("count", count)
        if number > MAX_DECISIONS:
            raise BadInput(f"count must be at most {MAX_DECISIONS:,} per call; got {number:,}")
        return number

    def _decide(
        self, count: int, key: str | None, metadata: Mapping[str, Any] | None, context: Mapping[str, Any] | None
    ) -> Job:
        requests: tuple[int, ...] = ()
        if key is not None:
            check_key(key)
            requests = (decide.request_of(self._secret, key),)
        text = decide.metadata_text(metadata)

        def work(tx: Transaction) -> list[Decision]:
            segment = segment_of(tx, context)
            if tx.row.state == "shipped":
                segment = stopping.ship_to(tx, segment)
                if not tx.options.store_shipped:
                    shipped = decide.shipped_subset(tx)
                    tx.after_commit.append(partial(self._know_shipped, tx, shipped))
                    return shipped.decisions(count, tx.now, context) or []
            return decide.decide(tx, count, key, text, segment)

        return Job(self._id, self._same(work), heavy=count >= transaction.HEAVY, requests=requests)

    def _know_shipped(self, tx: Transaction, shipped: ShippedSubset) -> None:
        """Decide without the store for a second, unless a later operation of the same group has ended that."""
        if tx.row.state == "shipped" and not tx.options.store_shipped:
            self._shipped[:] = [shipped]

    def _unstored_decisions(self, count: int, context: Mapping[str, Any] | None) -> list[Decision] | None:
        """Return decisions of a shipped campaign that are not stored; None if it is not known to be one now."""
        now = self.store.clock()
        known = [each for each in self._shipped if each.is_known(now, context)]
        return known[0].decisions(count, now, context) if known else None

    def reward(self, id: str, value: float) -> Rewarded:
        """Record the reward of a decision. Repeating it is harmless; another value for it is refused."""
        return self.rewards([(id, value)])

    def rewards(self, rewards: Rewards, *, partial: bool = False) -> Rewarded:
        """Record rewards of decisions, as {id: reward} or pairs: all of them, or none if one is refused.

        With `partial`, the others are recorded, and the response lists those that were refused.
        """
        job = self._reward(rewards, partial)
        done: Rewarded = transaction.run(self.store, job)
        return done

    def submit_rewards(self, done: Promise, rewards: Rewards, *, partial: bool = False) -> None:
        """Let another thread execute `rewards(rewards)`, which delivers its result to `done`."""
        job = self._reward(rewards, partial)
        job.done = done
        transaction.submit(self.store, job)

    def _reward(self, rewards: Rewards, partial: bool) -> Job:
        batch = reward.read_rewards(rewards, self._secret, partial=partial)
        work = self._same(lambda tx: reward.record_rewards(tx, batch))
        heavy = batch.size >= transaction.HEAVY
        return Job(self._id, work, heavy=heavy, batches=batch.firsts, requests=batch.requests)

    def reward_total(
        self,
        arms: Sequence[str] | Sequence[int],
        count: int,
        total: float,
        squares: float | None = None,
        *,
        key: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Rewarded:
        """Record what `count` plays of a subset earned together, whether they were decided here or not.

        With a `key`, such as the date of a log, repeating the call is harmless. `context` says for whom they were, if
        the policy takes one.
        """
        if key is not None:
            check_key(key)
        return self._write(lambda tx: reward.record_total(tx, arms, count, total, squares, key, context))

    # Report.

    def best(self) -> list[str]:
        """Return the names of the best subset, by what has been learned so far."""
        with self._read() as tx:
            return tx.roster.names_of(tx.snapshot.best())

    def summary(self) -> Summary:
        """Return the campaign at a glance."""
        with self._read() as tx:
            return tx.row.summary()

    @property
    def state(self) -> str:
        """running, paused, shipped, stopped or archived."""
        return self.summary().state

    @property
    def arms(self) -> list[str]:
        """The names of the active arms."""
        with self._read() as tx:
            return tx.roster.names_of(tuple(tx.roster.active))

    def insight(self) -> CampaignInsight:
        """Return what has been learned: the best subset, its probability of being best, and the effect of each arm."""
        with self._read() as tx:
            return report.insight(tx)

    def segments(self) -> Segments:
        """Return what is best for each segment, and which attributes of the context matter.

        Only a campaign of a policy that takes a context, such as contextual-thompson, has segments.
        """
        with self._read() as tx:
            return segments(tx)

    def note_alarms(self) -> list[RaisedAlarm]:
        """Return the raised alarms, and record an event "alarm" for each new one and "alarm over" for each that ended.

        `kofn serve` calls this every minute for campaigns that changed. Without it, alarms are raised all the same, but
        have no events.
        """
        with self._read() as tx:
            found = alarms.raised(tx, learn.insight_of(tx.snapshot), alarms.arrivals_of(tx))
            if alarms.are_noted(tx, found):
                return found
        self._write(lambda tx: alarms.note(tx, found))
        return found

    def history(self, points: int = MAX_POINTS) -> list[Point]:
        """Return plays and rewards over time, oldest first, in at most 2,000 points."""
        with self._read() as tx:
            return report.history(tx, points)

    def events(self, limit: int = 100) -> list[Event]:
        """Return the latest events, newest first."""
        with self._read() as tx:
            return report.events(tx, limit)

    def settings(self) -> CampaignSettings:
        """Return the settings that `configure` changes."""
        with self._read() as tx:
            return report.settings(tx)

    def estimates(self, points: int = learn.MAX_ESTIMATES, *, arms: Sequence[str] = ()) -> list[EstimatePoint]:
        """Return what was known over time, oldest first: the expected loss, the lift, and the effects of `arms`.

        At most 1,000 points are kept, the older ones less densely. The last one describes the present.
        """
        with self._read() as tx:
            return report.estimates(tx, points, arms)

    def decisions(self, *, rewarded: bool = False, since: datetime | None = None) -> Iterator[LoggedDecision]:
        """Yield the stored decisions, oldest first: arms, propensity, reward, also net of costs, key and metadata.

        These are the open ones and the last `keep_decisions` ones with a reward; with `rewarded`, the latter only. With
        `since`, those that were made at that time or later. They are read piece by piece, so a campaign of any size
        can be read; those that are made meanwhile are left out.
        """
        return logged_decisions(self._read, rewarded=rewarded, since=since)

    def to_frame(self, *, rewarded: bool = False, since: datetime | None = None) -> Any:
        """Return what `decisions` yields as a pandas DataFrame, a row per decision."""
        return to_frame(self.decisions(rewarded=rewarded, since=since))

    def open_decisions(self, limit: int = 100) -> list[OpenDecision]:
        """Return decisions without a reward, newest first."""
        with self._read() as tx:
            return report.open_decisions(tx, limit)

    def verify(self) -> Verification:
        """Rebuild the policy and the counters from the log of rewards, and compare them with the store."""
        with self._read() as tx:
            log = verify.read_log(tx)
        return verify.verify(log)

    # Change.

    def configure(self, **settings: Unpack[ChangedSettings]) -> CampaignSettings:
        """Change settings while the campaign runs, and return them all (`kofn.core.responses.CampaignSettings`).

        A wider `reward_range`, `half_life`, `guarantee`, `constraints` and `costs` keep what was learned. From the next
        decision on, every subset obeys the new rules, and costs what arms cost then. A new control starts a new
        comparison.
        """
        self._shipped.clear()

        def change(tx: Transaction) -> CampaignSettings:
            configure.configure(tx, settings)
            return report.settings(tx)

        return self._write(change)

    def add_arm(self, name: str, groups: Sequence[str] = ()) -> None:
        """Add an arm, or bring a retired one back. What was learned about the others is kept.

        It joins the rules whose names are in `groups`, such as the quota of its brand. An arm that comes back is
        learned again, and is still in the rules that name it.
        """
        self._write(lambda tx: learn.add_arm(tx, name, groups))

    def retire_arm(self, name: str) -> None:
        """Retire an arm: it is not shown until it is added again. What was learned about the others is kept."""
        self._write(lambda tx: learn.retire_arm(tx, name))

    def pause(self) -> None:
        """Refuse decisions until `resume`. Rewards are still accepted."""
        self._enter("paused", {"running", "shipped"})

    def resume(self) -> None:
        """Learn again after `pause` or `ship`."""
        self._enter("running", {"paused", "shipped"})

    def ship(self, arms: Sequence[str] | Sequence[int] | None = None, *, store: bool = True) -> None:
        """Give everyone the best subset, or these arms, from now on. Rewards are still counted; `resume` undoes it.

        If the policy takes a context, each segment gets its own best subset, and a new segment gets a prediction from
        similar segments; these `arms` go to everyone.

        With `store=False`, decisions are not stored when they are made, but with their rewards: a decision then needs
        no database. Another process may go on for a second after `resume`.
        """

        def ship(tx: Transaction) -> None:
            if tx.row.state not in ("running", "paused", "shipped"):
                raise NotRunning(_final(tx))
            if arms is None and not tx.row.rewards:
                raise BadInput("there is no best subset before the first reward: name the arms to ship")
            subset = (
                tx.snapshot.best() if arms is None else tx.roster.subset_of(arms, tx.row.k, tx.snapshot.policy.fewest)
            )
            of_segments = best_of_segments(tx.snapshot) if arms is None else {}
            for names in map(tx.roster.names_of, (subset, *of_segments.values())):
                check_obeys(tx.options.constraints, names, "this subset", "Ship other arms, or change the rule first")
            stopping.ship(tx, subset, of_segments, store=store)

        self._shipped.clear()
        self._write(ship)

    def stop(self) -> None:
        """Refuse decisions for good. Late rewards are still accepted, and `best` returns what was found."""
        self._enter("stopped", {"running", "paused", "shipped"})

    def archive(self) -> None:
        """Refuse decisions and rewards for good, and leave the list of campaigns. All data is kept."""
        self._enter("archived", {"running", "paused", "shipped", "stopped"})

    def expire(self) -> None:
        """Expire overdue decisions, as the next `decide` would."""

        def expire(tx: Transaction) -> None:
            tx.changing()
            expiry.expire(tx)

        self._write(expire)

    def _enter(self, state: str, allowed: set[str]) -> None:
        def enter(tx: Transaction) -> None:
            if tx.row.state == state:
                return
            if tx.row.state not in allowed:
                raise NotRunning(_final(tx))
            tx.changing()
            tx.row.state = state
            tx.note("resumed" if state == "running" else state)

        self._shipped.clear()
        self._write(enter)

    def __repr__(self) -> str:
        return f"Campaign({self.name!r}, store={str(self.store)!r})"


def _final(tx: Transaction) -> str:
    return f"the campaign {tx.row.name!r} is {tx.row.state}, which is final: create another campaign"
