"""One seed: processes, workers, faults, backups and a clock, all drawn from one generator and run in one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import Any, NamedTuple

from kofn.campaigns import Campaign
from kofn.campaigns.records.transaction import reading
from kofn.campaigns.reports import verify
from kofn.campaigns.store.database import Store
from kofn.core import KofnError, NoSuchCampaign, StoreError
from tests.campaigns.simulator.calls import (
    Call,
    Decide,
    Enter,
    Habits,
    Mail,
    Outcome,
    Place,
    Read,
    Reward,
    Worker,
    customer,
    operator,
    reporter,
)
from tests.campaigns.simulator.faults import FAULTS, Killed, draw_fault
from tests.campaigns.simulator.model import Model, Truth, Violation, check
from tests.campaigns.simulator.moves import Moves, check_refused
from tests.campaigns.simulator.world import (
    CONTEXTUAL,
    EXPIRE_AFTER,
    OPTIONAL,
    RECORDED,
    SETTINGS,
    START,
    World,
    seeded_secrets,
)

ALL_CHECKS = frozenset({"keys", "forgotten", "stuck", "lost"})
"""Checks that can be switched off, to simulate code without these promises."""

PROMISED = ALL_CHECKS
"""Checks of the present code."""

MAX_GROUP = 4
"""Most calls of a group."""

MUCH_LATER = 6.0
"""A reward counts as lost, for the check that learning goes on, after so many times the mean delay of a reward."""

WITH_CONTEXT = 0.05
"""Part of the seeds whose first campaign has contexts. Higher: slower."""

WITH_OPTIONS = 0.3
"""Part of the seeds whose first campaign has options, such as sticky keys. Higher: less of the other campaigns."""

LOST_TIMELINES = 0.1
"""Part of the seeds with several processes that lose a timeline at their end. Higher: slower."""

FILLERS = 40
"""Decisions of a turn while a plan waits for a lost reward."""

MOST_PLAYS = 200
"""Largest rest of a plan that is played at the end of a seed to see that the policy learns."""


class Known(NamedTuple):
    """A backup: the database, and what the models knew at that moment."""

    database: Any
    truths: list[Truth]


@dataclass
class Profile:
    """What one seed is like."""

    steps: int
    processes: int
    fault_rate: float
    restart_rate: float
    backup_rate: float
    jump_rate: float
    group_rate: float
    skewed: bool
    habits: Habits

    @classmethod
    def draw(cls, rng: Random, *, keyed: bool) -> Profile:
        """Return a random profile."""
        bulk = rng.random() < 0.15
        return cls(
            steps=rng.choice([4, 8, 12, 24]),
            processes=rng.choice([1, 2, 3]),
            fault_rate=rng.choice([0.0, 0.1, 0.3]),
            restart_rate=rng.choice([0.0, 0.03]),
            backup_rate=rng.choice([0.0, 0.0, 0.1]),
            jump_rate=rng.choice([0.0, 0.05, 0.2]),
            group_rate=rng.choice([0.0, 0.5]),
            skewed=rng.random() < 0.3,
            habits=Habits(
                keyed=keyed,
                counts=[1, 40, 70] if bulk else [1, 1, 2, 3, 8],
                lost=rng.choice([0.0, 0.1, 0.5]),
                repeat=rng.choice([0.0, 0.2]),
                give_up=rng.choice([0.0, 0.3]),
                conflict=rng.choice([0.0, 0.1]),
                changes=rng.choice([0.0, 0.3]),
            ),
        )


class Queued(NamedTuple):
    """An operation of the store's group commit, before it is put into its queue."""

    lock: int
    job: Any
    execute: Any


class _Queueing(BaseException):
    """Stops a call when its operation is about to be queued."""


@contextmanager
def replaced(target: Any, method: str, by: Callable[..., Any]) -> Iterator[None]:
    """Replace a method of one object for the length of a block. `unittest.mock` takes longer than the calls."""
    setattr(target, method, by)
    try:
        yield
    finally:
        delattr(target, method)


class Process:
    """A simulated process: a store object with its own connections and caches."""

    def __init__(self, run: Run, skew: float) -> None:
        self.run = run
        self.skew = skew
        self.open()

    def open(self) -> None:
        """Start: nothing in memory survives from before."""
        self.store = Store(self.run.world.url)
        self.store.clock = lambda: self.run.now + self.skew
        self.campaigns: dict[int, Campaign] = {}
        for model in self.run.models:
            with suppress(NoSuchCampaign):  # it was deleted, and is not yet created again
                self.campaign(model.campaign)

    def campaign(self, number: int) -> Campaign:
        """Return a campaign as this process has opened it."""
        if number not in self.campaigns:
            self.campaigns[number] = Campaign.open(self.run.models[number].setting.name, store=self.store)
        return self.campaigns[number]

    def is_open(self, model: Model) -> bool:
        """Return whether this process has the present campaign open, not another one of its name."""
        known = self.campaigns.get(model.campaign)
        return known is not None and (known._id, known._secret) == (model.id, model.secret)

    def present(self, model: Model) -> Campaign:
        """Return the present campaign, opened again if this process has another one of its name open."""
        if not self.is_open(model):
            self.campaigns.pop(model.campaign, None)
        return self.campaign(model.campaign)

    def restart(self) -> None:
        """Stop and start again."""
        self.store.close()
        self.open()

    def execute(self, calls: list[Call]) -> list[Outcome]:
        """Make calls as one group: the store executes them in one transaction, as if they had waited for each other."""
        if len(calls) == 1:
            return [self.outcome(lambda: calls[0].perform(self.campaign(calls[0].campaign)))]
        jobs = [self._job(call) for call in calls]
        queued = [each for each in jobs if isinstance(each, Queued)]
        if queued and self._lead(queued):
            self.restart()
            return [Outcome(failed="killed") if isinstance(each, Queued) else each for each in jobs]
        return [self.outcome(each.job.done.result) if isinstance(each, Queued) else each for each in jobs]

    def _lead(self, queued: list[Queued]) -> bool:
        """Execute what is queued, and return whether the process was killed."""
        groups, (lock, _, execute), leader = self.store.groups, queued[0], object()
        for each in queued:
            groups._enqueue(lock, each.job, leader)
        try:
            groups._lead(lock, leader, execute)
        except Killed:
            return True
        return False

    def _job(self, call: Call) -> Queued | Outcome:
        """Return what the call would put into the queue, or its outcome, if it does not ask the store."""
        caught: list[Queued] = []

        def run(lock: int, job: Any, execute: Any) -> None:
            job.done = Future()
            caught.append(Queued(lock, job, execute))
            raise _Queueing

        with replaced(self.store.groups, "run", run), suppress(_Queueing):
            return self.outcome(lambda: call.perform(self.campaign(call.campaign)))
        return caught[0]

    def outcome(self, work: Callable[[], Any]) -> Outcome:
        """Do something, and return its outcome."""
        try:
            return Outcome(work())
        except StoreError as why:
            return Outcome(failed=str(why).rpartition("failed: ")[2])
        except KofnError as why:
            return Outcome(refused=why)
        except Killed:
            self.restart()
            return Outcome(failed="killed")


class Run:
    """One simulation. Everything that happens is in `trace`; without `traced`, which is faster, it stays empty."""

    def __init__(
        self, world: World, seed: int, checks: frozenset[str], steps: int | None = None, *, traced: bool = True
    ) -> None:
        self.world = world
        self.rng = rng = Random(seed)
        self.trace: list[str] = []
        self.traced = traced
        self.now = START
        self.profile = Profile.draw(rng, keyed="keys" in checks)
        if steps is not None:
            self.profile.steps = steps
        world.reset()
        shuffled = sorted(SETTINGS, key=lambda setting: rng.random() ** (1 / setting.weight), reverse=True)
        chosen = shuffled[: 2 if rng.random() < 0.3 else 1]
        if Random(f"context {seed}").random() < WITH_CONTEXT:
            chosen[0] = CONTEXTUAL
        self.more = Random(f"options {seed}")
        if self.more.random() < WITH_OPTIONS:
            chosen[0] = self.more.choices(OPTIONAL, [each.weight for each in OPTIONAL])[0]
        self.models = [Model(world, index, setting, checks) for index, setting in enumerate(chosen)]
        self.processes = [Process(self, self._skew()) for _ in range(self.profile.processes)]
        self.places = [self._place(model) for model in self.models]
        self.workers: list[Worker] = []
        for place in self.places:
            kinds = [customer, reporter, *rng.choices([customer, reporter, operator], k=rng.randint(1, 3))]
            self.workers += [kind(place) for kind in kinds]
        self.pending: list[Call | None] = [next(worker) for worker in self.workers]
        self.backups: list[Known] = []
        self.moves = Moves(self, seed)
        self.loses_timeline = len(self.processes) > 1 and Random(f"timeline {seed}").random() < LOST_TIMELINES

    def _skew(self) -> float:
        return self.rng.uniform(-5, 5) if self.profile.skewed else 0.0

    def _place(self, model: Model) -> Place:
        rng = self.rng
        return Place(model.campaign, model.setting, rng, self.profile.habits, count(), Mail(rng), self.more)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now - START:8.2f}  {text}")

    def simulate(self) -> None:
        """Run all steps and the checks after them. A broken promise raises Violation."""
        try:
            for _ in range(self.profile.steps):
                self._step()
            self._finish()
        except Exception as why:
            self.note(f"VIOLATION {why}" if isinstance(why, Violation) else f"ERROR {why!r}")
            raise
        finally:
            for process in self.processes:
                process.store.close()

    def _step(self) -> None:
        rng, profile = self.rng, self.profile
        self.now += rng.expovariate(1.0)
        if rng.random() < profile.jump_rate:
            self.now += rng.choice([EXPIRE_AFTER / 2, EXPIRE_AFTER * 1.5])
        if rng.random() < profile.restart_rate:
            process = rng.randrange(len(self.processes))
            self.note(f"process {process} restarts")
            self.processes[process].restart()
        if rng.random() < profile.backup_rate:
            if self.backups and rng.random() < 0.6:
                self.restore(rng.randrange(len(self.backups)))
            else:
                self.backup()
        self.moves.step()
        process = rng.randrange(len(self.processes))
        for worker, pending in enumerate(self.pending):
            if pending is None:
                self.pending[worker] = self.workers[worker].send(Outcome())
        group = self._group()
        faulty = rng.random() < profile.fault_rate
        outcomes = self.calls(process, list(group.values()), str(list(group)), faulty=faulty)
        for worker, outcome in zip(group, outcomes, strict=True):
            self.pending[worker] = self.workers[worker].send(outcome)

    def _group(self) -> dict[int, Call]:
        """Return the workers whose calls are executed together, and the calls: often one, or several that write."""
        pending = [(worker, call) for worker, call in enumerate(self.pending) if call is not None]
        self.rng.shuffle(pending)
        if self.rng.random() >= self.profile.group_rate or isinstance(pending[0][1], Read):
            return dict(pending[:1])
        lock_of = self.processes[0].store.lock_of
        locks = {worker: lock_of(self.models[call.campaign].id) for worker, call in pending[:MAX_GROUP]}
        return {
            worker: call
            for worker, call in pending[:MAX_GROUP]
            if not isinstance(call, Read) and locks[worker] == locks[pending[0][0]]
        }

    def backup(self) -> None:
        """Back up the database, and what the models know."""
        self.note(f"backup {len(self.backups)}")
        self.backups.append(Known(self.world.backup(), [model.backup() for model in self.models]))

    def restore(self, number: int) -> None:
        """Restore a backup under the running processes."""
        self.note(f"backup {number} is restored")
        known = self.backups[number]
        self.world.restore(known.database)
        for model, truth in zip(self.models, known.truths, strict=True):
            model.restore(truth)

    def _call(self, process: int, call: Call, who: str = "end") -> Any:
        """Make a call without a fault, and return its answer."""
        return self.calls(process, [call], who)[0].value

    def calls(self, process: int, calls: list[Call], who: str, *, faulty: bool = False) -> list[Outcome]:
        """Make calls as one group, perhaps with a fault, and check what they did."""
        models = [model for model in self.models if any(call.campaign == model.campaign for call in calls)]
        for model in models:
            self._open(process, model, calls)
        before = [model.seen([c for c in calls if c.campaign == model.campaign], model.last) for model in models]
        FAULTS.arm(draw_fault(self.rng) if faulty else None)
        outcomes = self.processes[process].execute(calls)
        fired = FAULTS.fired
        FAULTS.arm(None)
        for call, outcome in zip(calls, outcomes, strict=True):
            if self.traced:
                self.note(f"{who} process {process}: {call}{f' [{fired}]' if fired else ''} -> {outcome}")
            check(not outcome.failed or fired is not None, "it failed without a fault: {}", outcome)
        for model, seen in zip(models, before, strict=True):
            pairs = [pair for pair in zip(calls, outcomes, strict=True) if pair[0].campaign == model.campaign]
            model.now = self.now
            model.follow([call for call, _ in pairs], [outcome for _, outcome in pairs], seen)
        return outcomes

    def _open(self, process: int, model: Model, calls: list[Call]) -> None:
        """Open the present campaign in this process. If it has another one open, its calls are refused before."""
        here = self.processes[process]
        if not here.is_open(model):
            if model.campaign in here.campaigns:
                check_refused(self, process, model, [call for call in calls if call.campaign == model.campaign])
            here.present(model)

    # The end of a seed.

    def _finish(self) -> None:
        """Without faults, every pending call succeeds, the policies learn, and all records agree."""
        for worker, call in enumerate(self.pending):
            if call is not None:
                self.calls(self.rng.randrange(len(self.processes)), [call], f"[{worker}]")
        if self.loses_timeline:
            self._lose_timeline()
        for model in self.models:
            self._learns(model, *self.rng.choices(range(len(self.processes)), k=2))
            waits = not model.setting.learns_from_all and model.setting.control is None
            if "stuck" in model.checks and waits and self.rng.random() < 0.3:
                self._goes_on(model)
            model.compare_records()
            verified = self.processes[0].present(model).verify()
            check(verified.ok, "verify: {}", verified.differences)
            if "policy" not in verified.compared:  # the store's own log is not complete
                differences = rebuilt_differences(self.processes[0].store, self.world, model)
                check(not differences, "the policy rebuilt from the record differs: {}", differences)

    def _lose_timeline(self) -> None:
        """The policies learn, and a backup of the moment before is restored under processes that remember all of it.

        Then other processes learn from other rewards, to steps with the same numbers.
        """
        lost, present = self.rng.sample(range(len(self.processes)), 2)
        self.backup()
        for model in self.models:
            self._learns(model, lost, lost)
        self.restore(len(self.backups) - 1)
        for model in self.models:
            self._learns(model, present, present)

    def _learns(self, model: Model, decides: int, reports: int) -> None:
        """The rest of the plan is played and rewarded, by these processes: then the policy must learn."""
        self._call(decides, Enter(model.campaign, "running"))
        self.now += 2 * EXPIRE_AFTER  # nothing is in flight any more
        before, place, number = model.row(), self.places[model.campaign], len(model.truth.decisions)
        first = self._call(decides, Decide(model.campaign, 1, f"end {number}", place.habits.keyed))
        while (rest := model.row().free) and len(first) < MOST_PLAYS:  # the control takes a part
            key = f"end {number + len(first)}"
            first += self._call(decides, Decide(model.campaign, min(rest, MOST_PLAYS), key, place.habits.keyed))
        self._call(reports, Reward(model.campaign, tuple((each.id, place.inside()) for each in first)))
        if not rest:
            check(model.row().step > before.step, "a completed plan did not make the policy learn")

    def _goes_on(self, model: Model) -> None:
        """One reward of a plan is lost. After enough other rewards, the policy must learn, before anything expires."""
        start, place = self.now, self.places[model.campaign]
        row = model.row()
        wait = MUCH_LATER * (row.waited / max(1, row.rewarded) + 1.0)
        if row.free > MOST_PLAYS or wait > 0.8 * EXPIRE_AFTER:
            return
        lost = 1
        for turn in range(6):
            count = max(1, model.row().free) if turn == 0 else FILLERS
            self.now = max(self.now, start + wait if turn >= 3 else start)
            made = self._call(0, Decide(model.campaign, count, f"end, turn {turn}", place.habits.keyed))
            self.now += 0.1
            self._call(0, Reward(model.campaign, tuple((each.id, place.inside()) for each in made[lost:])))
            lost = 0
        check(model.row().step > row.step, "one lost reward keeps the policy from learning")


def rebuilt_differences(store: Store, world: World, model: Model) -> list[str]:
    """Rebuild the policy from the record that nothing was deleted from, and return how the stored policy differs."""
    with reading(store, model.id) as tx:
        log = verify.read_log(tx)

    def recorded(table: str, order: str) -> list[Any]:
        kind = NamedTuple(table, [(column, Any) for column in RECORDED[table]])  # type: ignore[misc]
        columns = ", ".join(RECORDED[table])
        rows = world.rows(f"SELECT {columns} FROM record_{table} WHERE campaign = ? ORDER BY {order}", model.id)
        return [kind(*row) for row in rows]

    log = replace(
        log,
        batches=recorded("batches", "first"),
        rewards=recorded("rewards", "at, first, place"),
        totals=recorded("totals", "number"),
    )
    comparison = verify._Comparison()
    verify._compare_policy(comparison, log)
    return comparison.differences()


def run_seed(
    world: World, seed: int, checks: frozenset[str], steps: int | None = None, *, traced: bool = True
) -> tuple[list[str], str]:
    """Simulate a seed. Return its trace, and what it broke: nothing is an empty text."""
    with seeded_secrets(seed):
        run = Run(world, seed, checks, steps, traced=traced)
        try:
            run.simulate()
        except Exception as why:
            return run.trace, str(why) if isinstance(why, Violation) else repr(why)
    return run.trace, ""
