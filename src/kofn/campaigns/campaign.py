"""The campaign: a policy with a store behind it, for real decisions by many workers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Self, Unpack, overload

from sqlalchemy import select

from kofn.campaigns import append, change, fold, transfer
from kofn.campaigns.append import Decide, Report
from kofn.campaigns.change import Change
from kofn.campaigns.decision_files import to_frame
from kofn.campaigns.names import arm_names, campaign_name, check_key, is_campaign_name
from kofn.campaigns.reports import alarms, report, verify
from kofn.campaigns.reports.decisions import logged_decisions
from kofn.campaigns.reports.view import View, summary
from kofn.campaigns.roster import Roster
from kofn.campaigns.settings import KEEP, WEEK
from kofn.campaigns.store.database import Store, store_at
from kofn.campaigns.store.group_commit import Promise
from kofn.campaigns.store.schema import CAMPAIGNS, OF_CAMPAIGN, TOKENS
from kofn.campaigns.totals import record_total
from kofn.core import BadInput, CampaignError, CampaignExists, Direction, NoSuchCampaign, Seed, check_sizes, whole
from kofn.core.campaign_settings import CampaignOptions, ChangedSettings, Duration
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

MAX_DECISIONS = 100_000
"""Most decisions of one call. A higher value lets one call hold the store for longer."""

LEARN_EVERY = 1000
"""Decisions and events of this process after which they are folded, although the policy has nothing to learn yet.
Higher: reports take longer."""

WINDOW_CHECK = 1.0
"""Seconds between two looks, in a program without a service, at whether windows have ended. Lower: more folds."""

log = logging.getLogger("kofn.campaigns")

Rewards = Mapping[str, float] | Iterable[tuple[str, float]]


def campaigns(store: str | Store | None = None) -> list[Summary]:
    """Return a summary of each campaign in a store, by name."""
    where = store_at(store, create=False)
    with where.read() as connection:
        ids = connection.execute(select(CAMPAIGNS.c.id).order_by(CAMPAIGNS.c.name)).scalars().all()
        return [summary(View(where, connection, id).row) for id in ids]


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
    Rewarded(accepted=1, repeated=0, forgotten=0, refused=[], late=0)

    Many threads may share a campaign, and it survives a fork. Decisions and rewards are appended to a log; the policy
    learns from it in the thread that reports rewards, after they are stored. A service learns in a process of its own.
    """

    def __init__(self, store: Store, id: int, name: str, secret: bytes) -> None:
        self.store, self.name = store, name
        self._id, self._secret = id, secret
        self._appended = 0  # decisions and events of this object since its last fold
        self._settled = 0  # rewards among them
        self._missing = 0  # rewards that the policy waited for then
        self._looked = 0.0  # when windows were last looked at

    @contextmanager
    def _read(self) -> Iterator[View]:
        with self.store.read() as connection:
            view = View(self.store, connection, self._id)
            self._check(view.row)
            yield view

    def _open(self, connection: Any) -> fold.Transaction:
        tx = fold.Transaction.open(self.store, connection, self._id)
        self._check(tx.row)
        return tx

    def _check(self, row: fold.Row) -> None:
        """Raise NoSuchCampaign if another campaign has the id of this one."""
        if bytes.fromhex(row.secret) != self._secret:
            raise NoSuchCampaign(f"the campaign {self.name!r} has been deleted, or its store replaced: open it again")

    def _change(self, make: Callable[[Change], None]) -> None:
        change.attempt(self.store, self._id, self._secret, make)
        self._learn_if(lambda: True)  # what the change has closed

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
        expire_after: Duration = WEEK,
        keep_decisions: int = KEEP,
        **options: Unpack[CampaignOptions],
    ) -> Self:
        """Create a campaign over arms of these names.

        With a `window`, such as "30m" or "1d", what a visitor does not do counts: a decision settles when its window
        ends, with the sum of its events, or with `silence` (0 by default) if nothing was reported. So a shop reports
        orders only. Without a window, every reward has to be reported, zeros too: the first one settles a decision. One
        without a reward expires after `expire_after`, but its reward still counts when it arrives.

        Durations are text such as "12h", seconds, or a timedelta. The last `keep_decisions` decisions are stored one by
        one, older ones as sums only. With `reward_range=None`, the range is learned from the rewards.

        `control` (a list of arms, or "uniform" for random arms) gets `control_share` of the decisions, and is what
        learning is compared with. `stop_when`, such as "loss<0.01", says when the campaign is ready; with
        `ship_when_ready` it then ships. `constraints` are rules that every subset obeys: `kofn.Constraints`, or a list
        of rules, by names of arms. `costs` has what arms cost, by name or in their order, for the policy
        thompson-sizes: report rewards without them; means, lift and all that is learned are net of them. `guardrails`
        such as "returns<=+2%" are limits of metrics (`record`), compared with the control.
        `kofn.core.responses.CampaignSettings` describes all options; `configure` changes them.
        """
        name, names = campaign_name(name), arm_names(arms)
        check_sizes(len(names), k)
        if reward_range is None:
            options = {"outside": "widen", **options}
        roster = Roster(names, list(range(len(names))))
        base = {"reward_range": (0.0, 1.0) if reward_range is None else reward_range, "direction": direction}
        given = {**options, "expire_after": expire_after, "keep_decisions": keep_decisions}
        settings, player = change.new_settings(policy, roster, k, base, params, seed, given)
        where = store_at(store)
        try:
            row = change.insert(where, name, roster, settings, player)
        except Exception as why:
            raise _exists(why, name) from why
        return cls(where, row.id, row.name, bytes.fromhex(row.secret))

    @classmethod
    def open(cls, name: str, store: str | Store | None = None) -> Self:
        """Open the campaign of that name."""
        where, columns = store_at(store, create=False), CAMPAIGNS.c
        with where.read() as connection:
            found = None
            if is_campaign_name(name):
                named = select(columns.id, columns.secret).where(columns.name == name)
                found = connection.execute(named).one_or_none()
            if found is None:
                some = connection.execute(select(columns.name).order_by(columns.name).limit(5)).scalars().all()
                there = f"there are: {', '.join(some)}" if some else "the store is empty"
                raise NoSuchCampaign(f"there is no campaign {shown(name)} in {where}; {there}")
        return cls(where, found.id, name, bytes.fromhex(found.secret))

    def delete(self) -> None:
        """Delete the campaign with all its rows, and the tokens that are limited to it."""

        def work(connection: Any) -> None:
            self._open(connection)
            for table in OF_CAMPAIGN:
                connection.execute(table.delete().where(table.c.campaign == self._id))
            connection.execute(TOKENS.delete().where(TOKENS.c.campaign == self.name))
            connection.execute(CAMPAIGNS.delete().where(CAMPAIGNS.c.id == self._id))

        self.store.locked(self._id, work)
        self.store.drop(self._id)

    def export(self, *, with_secret: bool = False) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON: the policy's record, decisions, rewards, history.

        The secret key of decision ids is left out, so the imported campaign does not accept rewards of decisions that
        were made before. Export it `with_secret=True` to move a campaign while decisions are in flight.
        """
        with self._read() as view:
            return transfer.export(view.connection, view.row, with_secret=with_secret)

    @classmethod
    def import_(cls, exported: Mapping[str, Any], *, store: str | Store | None = None, name: str | None = None) -> Self:
        """Create the campaign that `export` returned, under its own name or another. It resumes where it was."""
        where = store_at(store)
        row = transfer.import_(where, exported, name)
        return cls(where, row.id, row.name, bytes.fromhex(row.secret))

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
        """Return the next decision, or a list of `count` decisions. It never waits for a reward, or for learning.

        A call with the same `key` returns the same decisions, as long as the store has them: a call whose answer was
        lost can be repeated. With sticky keys, such as visitors, it returns new decisions with the same arms once all
        have settled. `metadata`, a small dict, comes back in the export of decisions. A shipped campaign returns the
        shipped subset. `context`, a dict such as {"device": "phone", "country": "de"}, says for whom, if the policy
        takes one.
        """
        job = self._decide(1 if count is None else count, key, metadata, context, None)
        if (decisions := self._unstored(job)) is None:
            decisions = self.store.groups.run(job)
            self._appended += len(decisions)
            self._learn_if(self._is_due)
        return decisions[0] if count is None else decisions

    def submit_decide(
        self,
        done: Promise,
        count: int,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        source: str | None = None,
    ) -> None:
        """Let another thread execute `decide(count, key=key)`, which delivers its result to `done`.

        `source` is for web pages: the address of the visitor, or an empty text if it is not known. Only some decisions
        of the same address count in the comparison with the control, and contexts must be declared.
        """
        job = self._decide(count, key, metadata, context, source)
        if (decisions := self._unstored(job)) is not None:
            done.set_result(decisions)
            return
        job.done = done
        self.store.groups.submit(job)

    def _decide(
        self,
        count: int,
        key: str | None,
        metadata: Mapping[str, Any] | None,
        context: Mapping[str, Any] | None,
        source: str | None,
    ) -> Decide:
        number = whole("count", count)
        if number > MAX_DECISIONS:
            raise BadInput(f"count must be at most {MAX_DECISIONS:,} per call; got {number:,}")
        if key is not None:
            check_key(key)
        return Decide(self._id, self._secret, number, key, append.metadata_text(metadata), context, source)

    def _unstored(self, job: Decide) -> list[Decision] | None:
        """Return decisions of a shipped campaign that are not stored; None if the store has to be asked."""
        serving, now = self.store.known(self._id), self.store.clock()
        if serving is None or serving.secret != self._secret or not serving.is_unstored(now):
            return None
        return serving.unstored(job.count, serving.segment_of(job.context), now)

    def reward(self, id: str | Decision, value: float) -> Rewarded:
        """Record the reward of a decision. Repeating it is harmless; another value for it is refused."""
        return self._report("reward", [(id, value)])

    def rewards(self, rewards: Rewards, *, partial: bool = False) -> Rewarded:
        """Record rewards of decisions, as {id: reward} or pairs: all of them, or none if one is refused.

        With `partial`, the others are recorded, and the response lists those that were refused.
        """
        return self._report("reward", rewards, partial=partial)

    def add(self, id: str | Decision, value: float, *, event: str) -> Rewarded:
        """Add to the reward of a decision within its window: an order, its return (negative), a second order.

        The same `event` of a decision, such as the number of the order, counts once.
        """
        return self._report("add", [(id, value, event)])

    def adds(self, events: Iterable[tuple[str, float, str]], *, partial: bool = False) -> Rewarded:
        """Add to the rewards of decisions, as triples (id, value, event): all of them, or none if one is refused."""
        return self._report("add", events, partial=partial)

    def record(self, id: str | Decision, name: str, value: float) -> Rewarded:
        """Record a metric of a decision beside its reward, such as "returned". It is reported, and never optimised."""
        return self._report("record", [(id, name, value)])

    def records(self, records: Iterable[tuple[str, str, float]], *, partial: bool = False) -> Rewarded:
        """Record metrics of decisions, as triples (id, name, value): all of them, or none if one is refused."""
        return self._report("record", records, partial=partial)

    def submit_events(self, done: Promise, kind: str, items: Iterable[Any], *, partial: bool = False) -> None:
        """Let another thread execute `rewards`, `adds` or `records`, which delivers its result to `done`.

        `kind` is "reward", "add" or "record".
        """
        job = Report.of(self._id, self._secret, kind, items, partial=partial)
        job.done = done
        self.store.groups.submit(job)

    def _report(self, kind: str, items: Any, *, partial: bool = False) -> Rewarded:
        done: Rewarded = self.store.groups.run(Report.of(self._id, self._secret, kind, items, partial=partial))
        self._appended += done.accepted
        self._settled += done.accepted if kind == "reward" else 0
        self._learn_if(self._is_due)
        return done

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
        serving = self.store.serving(self._id, again=True)
        done = record_total(self.store, serving, self._secret, arms, count, total, squares, key, context)
        self._settled += done.accepted
        self._learn_if(self._is_due)
        return done

    # Learn.

    def learn(self) -> bool:
        """Count what has settled, and let the policy learn if it is due. Return whether it has learned.

        A program that reports rewards with this object need not call it. It is for one that only reads, or whose
        rewards are reported elsewhere while no service runs.
        """
        self._appended = self._settled = 0
        self._looked = self.store.clock()
        learned = fold.learn_now(self.store, self._id)
        with self.store.read() as connection:
            self._missing = fold.missing(self._open(connection))
        return learned

    def _learn_if(self, is_due: Callable[[], bool]) -> None:
        """Learn after something was stored, unless a service does. Errors are logged: the call was not refused."""
        if not self.store.learns_inline:
            return
        try:
            if is_due():
                self.learn()
        except CampaignError as why:
            log.error("campaign %r does not learn: %s", self.name, why)

    def _is_due(self) -> bool:
        window = self.store.serving(self._id).settings.window
        ended = window is not None and self.store.clock() >= self._looked + min(WINDOW_CHECK, window)
        return self._settled >= self._missing > 0 or self._appended >= LEARN_EVERY or ended or not self._looked

    # Report.

    def best(self) -> list[str]:
        """Return the names of the best subset, by what has been learned so far."""
        with self._read() as view:
            return view.roster.names_of(view.best)

    def summary(self) -> Summary:
        """Return the campaign at a glance."""
        with self._read() as view:
            return summary(view.row)

    @property
    def state(self) -> str:
        """running, paused, shipped, stopped or archived."""
        return self.summary().state

    @property
    def arms(self) -> list[str]:
        """The names of the active arms."""
        with self._read() as view:
            return view.roster.names_of(tuple(view.roster.active))

    def insight(self) -> CampaignInsight:
        """Return what has been learned: the best subset, how sure that is, and the effect of each arm."""
        with self._read() as view:
            return report.insight(view)

    def segments(self) -> Segments:
        """Return what is best for each segment, and which attributes of the context matter.

        Only a campaign of a policy that takes a context, such as contextual-thompson, has segments.
        """
        with self._read() as view:
            return report.segments(view)

    def note_alarms(self) -> list[RaisedAlarm]:
        """Return the raised alarms, and write "alarm" for each new one and "alarm over" for each that ended.

        `kofn serve` calls this every minute for campaigns that changed. Without it, alarms are raised all the same, but
        are not in the journal.
        """
        with self._read() as view:
            found = alarms.raised(view, alarms.arrivals_of(view))
            if alarms.are_noted(view.tx, found):
                return found

        def work(connection: Any) -> None:
            tx = self._open(connection)
            alarms.note(tx, found)
            tx.write()

        self.store.locked(self._id, work)
        return found

    def history(self, points: int = fold.MAX_POINTS) -> list[Point]:
        """Return plays and rewards over time, oldest first, in at most 2,000 points."""
        with self._read() as view:
            return report.history(view, points)

    def events(self, limit: int = 100) -> list[Event]:
        """Return the latest entries of the campaign's journal, newest first."""
        with self._read() as view:
            return report.journal(view, limit)

    def settings(self) -> CampaignSettings:
        """Return the settings that `configure` changes."""
        with self._read() as view:
            return view.settings.shown(view.roster)

    def estimates(self, points: int = fold.MAX_ESTIMATES, *, arms: Sequence[str] = ()) -> list[EstimatePoint]:
        """Return what was known over time, oldest first: the expected loss, the lift, and the effects of `arms`.

        At most 1,000 points are kept, the older ones less densely. The last one describes the present.
        """
        with self._read() as view:
            return report.estimates(view, points, arms)

    def decisions(self, *, rewarded: bool = False, since: datetime | None = None) -> Iterator[LoggedDecision]:
        """Yield the stored decisions, oldest first: arms, propensity, reward, also net of costs, key and metadata.

        These are the last `keep_decisions` ones, and older ones whose reward is open; with `rewarded`, those with a
        reward only. With `since`, those that were made at that time or later. They are read piece by piece, so a
        campaign of any size can be read; those that are made meanwhile are left out.
        """
        return logged_decisions(self._read, rewarded=rewarded, since=since)

    def to_frame(self, *, rewarded: bool = False, since: datetime | None = None) -> Any:
        """Return what `decisions` yields as a pandas DataFrame, a row per decision."""
        return to_frame(self.decisions(rewarded=rewarded, since=since))

    def open_decisions(self, limit: int = 100) -> list[OpenDecision]:
        """Return decisions whose reward is open, newest first."""
        with self._read() as view:
            return report.open_decisions(view, limit)

    def verify(self) -> Verification:
        """Compute the counters and the policy again from the log, and compare them with what is stored."""
        with self.store.read() as connection:
            log = verify.read_log(self._open(connection))
        return verify.verify(log)

    # Change.

    def configure(self, **settings: Unpack[ChangedSettings]) -> CampaignSettings:
        """Change settings while the campaign runs, and return them all (`kofn.core.responses.CampaignSettings`).

        A wider `reward_range`, `half_life`, `constraints` and `costs` keep what was learned. From the next decision on,
        every subset obeys the new rules, and costs what arms cost then. A new control starts a new comparison. A new
        `window` is that of decisions from then on.
        """
        self._change(lambda change_: change.configure(change_, settings))
        return self.settings()

    def add_arm(self, name: str, groups: Sequence[str] = ()) -> None:
        """Add an arm, or bring a retired one back. What was learned about the others is kept.

        It joins the rules whose names are in `groups`, such as the quota of its brand. An arm that comes back is
        learned again, and is still in the rules that name it.
        """
        self._change(lambda change_: change.add_arm(change_, name, groups))

    def retire_arm(self, name: str) -> None:
        """Retire an arm: it is not shown until it is added again. What was learned about the others is kept."""
        self._change(lambda change_: change.retire_arm(change_, name))

    def pause(self) -> None:
        """Refuse decisions until `resume`. Rewards are still accepted."""
        self._enter("paused", {"running", "shipped"})

    def resume(self) -> None:
        """Learn again after `pause` or `ship`."""
        self._enter("running", {"paused", "shipped"})

    def ship(self, arms: Sequence[str] | Sequence[int] | None = None, *, store: bool = True) -> None:
        """Give everyone the best subset, or these arms, from now on. Rewards are still counted; `resume` undoes it.

        If the policy takes a context, each segment gets its own best subset, and new combinations of known attributes
        get a prediction from similar segments; these `arms` go to everyone.

        With `store=False`, decisions are not stored when they are made, but with their rewards: a decision then needs
        no database. Another process may go on for a second after `resume`. With a window, such rewards are in no mean:
        nobody sees the silence of the others.
        """
        fold.fold(self.store, self._id)
        if self.store.learns_inline:
            self.learn()
        self._change(lambda change_: change.ship(change_, arms, store=store))

    def stop(self) -> None:
        """Refuse decisions for good. Late rewards are still accepted, and `best` returns what was found."""
        self._enter("stopped", {"running", "paused", "shipped"})

    def archive(self) -> None:
        """Refuse decisions and rewards for good, and leave the list of campaigns. All data is kept."""
        self._enter("archived", {"running", "paused", "shipped", "stopped"})

    def _enter(self, state: str, allowed: set[str]) -> None:
        self._change(lambda change_: change.enter(change_, state, allowed))

    def __repr__(self) -> str:
        return f"Campaign({self.name!r}, store={str(self.store)!r})"


def _exists(why: Exception, name: str) -> Exception:
    """Return CampaignExists if another process has just created a campaign of this name, else the error itself."""
    if "unique" in str(why).lower() and not isinstance(why, CampaignExists):
        return CampaignExists(f"a campaign named {name!r} already exists")
    return why
