"""One seed: processes, workers, faults, backups and a clock, all drawn from one generator and run in one thread."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, NamedTuple
from unittest.mock import patch

from kofn.campaigns import Campaign
from kofn.campaigns.serving import SHIPPED_FOR
from kofn.campaigns.store.database import Store
from kofn.core import KofnError, NoSuchCampaign, StoreError
from tests.campaigns.simulator.calls import (
    Append,
    Call,
    Configure,
    Decide,
    Enter,
    Habits,
    Learn,
    Outcome,
    Place,
    Read,
    Report,
    Worker,
    customer,
    learner,
    operator,
    reporter,
)
from tests.campaigns.simulator.faults import FAULTS, Killed, draw_fault
from tests.campaigns.simulator.model import Model, Truth, Violation, check
from tests.campaigns.simulator.policy import CheapPolicy
from tests.campaigns.simulator.world import EXPIRE_AFTER, SETTINGS, START, World, create_campaign, seeded_secrets

PATIENCE = EXPIRE_AFTER * 2
"""Seconds after which nothing is in flight."""

MAX_GROUP = 4
"""Most calls of a group."""

MOST_STEPS = 32
"""Steps of the longest seeds."""

MOST_PLAYS = 100
"""Largest plan that is played at the end of a seed."""

MOST_ROUNDS = 12
"""Rounds of decisions and rewards at the end of a seed, in which the policy must learn."""


@dataclass
class Profile:
    """What one seed is like."""

    steps: int
    processes: int
    inline: bool  # whether the callers learn; else learners do
    fault_rate: float
    restart_rate: float
    backup_rate: float
    move_rate: float
    pace: float  # steps per second
    jump_rate: float
    group_rate: float
    break_rate: float
    skew: float

    @classmethod
    def draw(cls, rng: Random) -> Profile:
        """Return a random profile."""
        return cls(
            steps=rng.choice([4, 8, 16, MOST_STEPS]),
            processes=rng.choice([1, 2, 3]),
            inline=rng.random() < 0.5,
            fault_rate=rng.choice([0.0, 0.15, 0.4]),
            restart_rate=rng.choice([0.0, 0.03]),
            backup_rate=rng.choice([0.0, 0.0, 0.1]),
            move_rate=rng.choice([0.0] * 5 + [0.1]),
            pace=rng.choice([0.2, 1.0]),
            jump_rate=rng.choice([0.0, 0.05, 0.2]),
            group_rate=rng.choice([0.0, 0.5]),
            break_rate=rng.choice([0.0, 0.0, 0.1]),
            skew=rng.choice([0.0, 0.0, 4.0]),
        )


class Process:
    """A simulated process: a store object with its own connections and caches."""

    def __init__(self, run: Run, skew: float) -> None:
        self.run, self.skew = run, skew
        self.open()

    def open(self) -> None:
        """Start: nothing in memory survives from before."""
        self.store = Store(self.run.world.url)
        self.store.clock = self.clock
        self.store.learns_inline = self.run.profile.inline
        self.campaigns: dict[int, Campaign] = {}
        for model in self.run.models:
            with suppress(NoSuchCampaign):  # it was deleted, and is not yet created again
                self.campaign(model)

    def clock(self) -> float:
        """Return the time, as this process has it."""
        return self.run.now + self.skew

    def campaign(self, model: Model) -> Campaign:
        """Return a campaign as this process has opened it."""
        if model.campaign not in self.campaigns:
            self.campaigns[model.campaign] = Campaign.open(model.setting.name, store=self.store)
        return self.campaigns[model.campaign]

    def is_open(self, model: Model) -> bool:
        """Return whether this process has the present campaign open, not another one of its name."""
        known = self.campaigns.get(model.campaign)
        return known is not None and (known._id, known._secret) == (model.id, model.secret)

    def restart(self) -> None:
        """Stop and start again."""
        self.store.close()
        self.open()

    def execute(self, calls: list[Call]) -> list[Outcome]:
        """Make calls; several are one group, which the store executes as if they had waited for each other."""
        models = self.run.models
        if len(calls) == 1:
            return [self.outcome(lambda: calls[0].perform(self.campaign(models[calls[0].campaign])))]
        groups, leader, promises = self.store.groups, object(), [Future[Any]() for _ in calls]
        with suppress(Killed), patch.object(groups, "submit", lambda job: groups._enqueue(job, leader)):
            for call, done in zip(calls, promises, strict=True):
                assert isinstance(call, Append)
                try:
                    call.submit(self.campaign(models[call.campaign]), done)
                except KofnError as why:
                    done.set_exception(why)
            groups._lead(leader)
        killed = StoreError("failed: killed")
        for each in promises:
            if not each.done():
                each.set_exception(killed)
        return [self.outcome(each.result) for each in promises]

    def outcome(self, work: Callable[[], Any]) -> Outcome:
        """Do something, and return its outcome."""
        try:
            found = work()
            return Outcome(list(found) if hasattr(found, "__next__") else found)
        except StoreError as why:
            return Outcome(failed=str(why).rpartition("failed: ")[2])
        except KofnError as why:
            return Outcome(refused=why)
        except Killed:
            return Outcome(failed="killed")


class Known(NamedTuple):
    """A backup: the database, and what was true at that moment."""

    database: Any
    truths: list[Truth]


class Run:
    """One simulation. Everything that happens is in `trace`; without `traced`, which is faster, it stays empty."""

    def __init__(self, world: World, seed: int, steps: int | None = None, *, traced: bool = True) -> None:
        self.world, self.rng = world, Random(seed)
        self.trace: list[str] = []
        self.traced, self.now = traced, START
        self.profile = profile = Profile.draw(self.rng)
        habits, self.steps = Habits.draw(self.rng), profile.steps if steps is None else steps
        world.reset()
        CheapPolicy.broken = False
        shuffled = sorted(SETTINGS, key=lambda setting: self.rng.random() ** (1 / setting.weight), reverse=True)
        chosen = shuffled[: 2 if self.rng.random() < 0.3 else 1]
        self.models = [Model(world, index, setting) for index, setting in enumerate(chosen)]
        skewed = profile.skew if world.url.startswith("postgres") else 0.0  # SQLite is for one machine
        self.processes = [Process(self, self.rng.uniform(-skewed, skewed)) for _ in range(profile.processes)]
        self.places = [Place(each.campaign, each.setting, self.rng, habits, count()) for each in self.models]
        self.workers: list[Worker] = []
        for place in self.places:
            learners = [] if profile.inline else [learner] * self.rng.randint(1, 3)
            others = self.rng.choices([customer, reporter, operator], k=self.rng.randint(0, 2 if learners else 3))
            self.workers += [kind(place) for kind in (customer, reporter, *others, *learners)]
        self.pending: list[Call | None] = [next(worker) for worker in self.workers]
        self.backups: list[Known] = []
        self.exports: list[list[tuple[Any, Truth]]] = [[(None, Truth(each.last.config, b""))] for each in self.models]

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.traced:
            self.trace.append(f"{self.now - START:8.2f}  {text}")

    def simulate(self) -> None:
        """Run all steps and the checks after them. A broken promise raises Violation."""
        try:
            for _ in range(self.steps):
                self._step()
            self._finish()
        except Exception as why:
            where = traceback.extract_tb(why.__traceback__)[-1]
            self.note(f"VIOLATION {why}" if isinstance(why, Violation) else f"ERROR {why!r} in {where}")
            raise
        finally:
            FAULTS.arm(None)
            for process in self.processes:
                process.store.close()

    def _step(self) -> None:
        rng, profile = self.rng, self.profile
        self.now += rng.expovariate(profile.pace)
        if rng.random() < profile.jump_rate:
            self.now += rng.choice([EXPIRE_AFTER / 2, EXPIRE_AFTER * 1.5, -5.0, -30.0])
        if rng.random() < profile.restart_rate:
            process = rng.randrange(len(self.processes))
            self.note(f"process {process} restarts")
            self.processes[process].restart()
        if rng.random() < profile.break_rate:
            CheapPolicy.broken = not CheapPolicy.broken
            self.note(f"the policy is {'broken' if CheapPolicy.broken else 'repaired'}")
        if rng.random() < profile.backup_rate:
            if self.backups and rng.random() < 0.6:
                self._restore(rng.randrange(len(self.backups)))
            else:
                self._backup()
        if rng.random() < profile.move_rate:
            self._move(rng.choice(self.models))
        for worker, pending in enumerate(self.pending):
            if pending is None:
                self.pending[worker] = self.workers[worker].send(Outcome())
        group = self._group()
        if group:
            self._play(rng.randrange(len(self.processes)), group, faulty=rng.random() < profile.fault_rate)

    def _group(self) -> list[int]:
        """Return the workers whose calls are executed together: often one, or several that append."""
        waiting = [worker for worker, call in enumerate(self.pending) if call is not None]
        self.rng.shuffle(waiting)
        appends = [worker for worker in waiting[:MAX_GROUP] if isinstance(self.pending[worker], Append)]
        return appends if len(appends) > 1 and self.rng.random() < self.profile.group_rate else waiting[:1]

    def _play(self, process: int, group: list[int], *, faulty: bool) -> None:
        """Make the calls of these workers, and tell them the outcomes."""
        calls = [call for worker in group if (call := self.pending[worker]) is not None]
        others = [worker for worker in range(len(self.workers)) if worker not in group]

        def meanwhile() -> None:
            another = [each for each in range(len(self.processes)) if each != process]
            waiting = [worker for worker in others if self.pending[worker] is not None]
            if another and waiting:
                self.note("meanwhile:")
                self._play(self.rng.choice(another), [self.rng.choice(waiting)], faulty=False)

        fault = draw_fault(self.rng, meanwhile) if faulty else None
        outcomes = self.calls(process, calls, str(group), fault)
        for worker, outcome in zip(group, outcomes, strict=True):
            self.pending[worker] = self.workers[worker].send(outcome)

    def calls(self, process: int, calls: list[Call], who: str, fault: Any = None) -> list[Outcome]:
        """Make calls as one group, perhaps with a fault, and check what they did."""
        here, nested = self.processes[process], FAULTS.fired is not None
        models = [model for model in self.models if any(call.campaign == model.campaign for call in calls)]
        for model in models:
            self._open(here, model)
        failures = CheapPolicy.failures
        outer, clock = vars(FAULTS).copy(), here.clock()
        FAULTS.arm(fault)
        outcomes = here.execute(calls)
        fired = FAULTS.fired
        vars(FAULTS).update(outer)
        if fired is not None and fired.what == "kill":
            here.restart()
        for call, outcome in zip(calls, outcomes, strict=True):
            self.note(f"{who} process {process}: {call}{f' [{fired}]' if fired else ''} -> {outcome}")
            excused = nested or (fired is not None and fired.what != "pause")
            check(not outcome.failed or excused, "it failed without a fault: {}", outcome)
        for model in models:
            pairs = [pair for pair in zip(calls, outcomes, strict=True) if pair[0].campaign == model.campaign]
            model.follow(pairs, clock, str(fired or ""), CheapPolicy.failures - failures)
        return outcomes

    def _call(self, call: Call, process: int | None = None) -> Any:
        """Make a call without a fault, and return its answer."""
        process = self.rng.randrange(len(self.processes)) if process is None else process
        outcome = self.calls(process, [call], "end")[0]
        return outcome.value

    # Backups and exports.

    def _backup(self) -> None:
        self.note(f"backup {len(self.backups)}")
        self.backups.append(Known(self.world.backup(), [model.truth.copy() for model in self.models]))

    def _restore(self, number: int) -> None:
        """Restore a backup under the running processes."""
        self.note(f"backup {number} is restored")
        known = self.backups[number]
        self.world.restore(known.database)
        for model, truth in zip(self.models, known.truths, strict=True):
            model.restore(truth)

    def _open(self, process: Process, model: Model) -> None:
        """Open the present campaign in this process. If it has another one open, its calls are refused before."""
        if process.is_open(model):
            return
        if (old := process.campaigns.pop(model.campaign, None)) is not None:
            works: list[Callable[[], Any]] = [lambda: old.summary(), lambda: old.configure(unit="EUR")]
            if all(abs(process.store.clock() - at) > SHIPPED_FOR for at in model.unstored_at):  # else it asks no store
                works.append(old.decide)
            for work in works:
                outcome = process.outcome(work)
                check(isinstance(outcome.refused, NoSuchCampaign), "another campaign took a call: {}", outcome)
        process.campaign(model)

    def _move(self, model: Model) -> None:
        """Export a campaign, or replace it by an export or a new campaign, perhaps with faults."""
        exports, rng = self.exports[model.campaign], self.rng
        CheapPolicy.broken = False  # an import is verified by its policy
        if len(exports) == 1 or rng.random() < 0.5:
            with_secret = rng.random() < 0.5

            def export(process: Process) -> Any:
                return process.campaign(model).export(with_secret=with_secret)

            outcome = self._attempt("is exported", export, model)
            if outcome.answered:
                exports.append((json.loads(json.dumps(outcome.value)), model.truth.copy()))
            return
        if rng.random() < 0.3:  # in a timeline that is lost: on SQLite, the next one gets the same id
            self._backup()
            self._replace(model)
            for process in self.processes:
                self._open(process, model)
            self._restore(len(self.backups) - 1)
        self._replace(model)

    def _replace(self, model: Model) -> None:
        """Delete a campaign, and make it again."""
        exported, truth = self.rng.choice(self.exports[model.campaign])
        seed = self.rng.randrange(100)

        def make(process: Process) -> None:
            if exported is None:
                create_campaign(process.store, model.setting, seed)
            else:
                Campaign.import_(exported, store=process.store)

        while model.is_there():
            self._attempt("is deleted", lambda each: each.campaign(model).delete(), model)
        while not model.is_there():
            self._attempt("is created" if exported is None else "is imported", make)
        model.restore(truth)

    def _attempt(self, what: str, work: Callable[[Process], Any], model: Model | None = None) -> Outcome:
        """Let some process do something, perhaps with a fault, with a campaign that it has open."""
        process = self.rng.choice(self.processes)
        if model is not None:
            self._open(process, model)
        faulty = self.rng.random() < self.profile.fault_rate
        FAULTS.arm(draw_fault(self.rng, lambda: None) if faulty else None)
        outcome = process.outcome(lambda: work(process))
        fired = FAULTS.fired
        FAULTS.arm(None)
        if fired is not None and fired.what == "kill":
            process.restart()
        self.note(f"a campaign {what} [{fired}] -> {'done' if outcome.answered else outcome}")
        check(not outcome.failed or fired, "it failed without a fault: {}", outcome)
        check(outcome.refused is None, "{} was refused: {}", what, outcome)
        return outcome

    # The end of a seed.

    def _finish(self) -> None:
        """Without faults, every pending call succeeds, the policies learn, and all records agree."""
        CheapPolicy.broken = False
        for worker, call in enumerate(self.pending):
            if call is not None:
                self.calls(self.rng.randrange(len(self.processes)), [call], f"[{worker}]")
        for model in self.models:
            if model.truth.config["state"] not in ("stopped", "archived"):
                self._learns(model)
            self.now += PATIENCE
            while self._call(Learn(model.campaign)):
                pass
            for what in ("summary", "decisions", "best"):
                self._call(Read(model.campaign, what))
            verified = self.processes[0].campaign(model).verify()
            check(verified.ok, "verify: {}", verified.differences)

    def _learns(self, model: Model) -> None:
        """Decisions of the plan are made and rewarded until the policy has learned: it must."""
        campaign, place = model.campaign, self.places[model.campaign]
        if model.last.row.failure:
            self._call(Configure(campaign, "unit", "shops"))
        self._call(Enter(campaign, "running"))
        self.now += PATIENCE  # nothing is in flight any more
        while self._call(Learn(campaign)):
            pass
        learned = model.last.row.learned
        process = self.rng.randrange(len(self.processes))
        for number in range(MOST_ROUNDS):
            missing = sum(times for _, times, _ in model.last.plan["rows"])
            if missing > MOST_PLAYS:
                return
            made = self._call(Decide(campaign, min(2 * missing, 60), 10**6 + number, None, place.context()), process)
            low, high = model.setting.reward_range
            self._call(Report(campaign, "reward", tuple((each.id, "", (low + high) / 2) for each in made)), process)
            self.now += PATIENCE / 2
            if not self.profile.inline or model.truth.config["window"] is not None:
                self._call(Learn(campaign))
            if model.last.row.learned > learned:
                return
        check(False, "the policy has not learned in {} rounds of its plan", MOST_ROUNDS)


def run_seed(world: World, seed: int, steps: int | None = None, *, traced: bool = True) -> tuple[list[str], str]:
    """Simulate a seed. Return its trace, and what it broke: nothing is an empty text."""
    with seeded_secrets(seed):
        run = Run(world, seed, steps, traced=traced)
        try:
            run.simulate()
        except Exception as why:
            return run.trace, str(why) if isinstance(why, Violation) else repr(why)
    return run.trace, ""
