"""What simulated workers ask of a campaign, and the workers that ask it.

A worker is a generator: it yields a call, and is sent its outcome. It knows what a client knows: after a failure it
cannot tell whether the call took effect, so it makes the same call again, or gives up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kofn.campaigns import Campaign, Decision, fold
from kofn.campaigns.learning import Learned, learn
from kofn.core import KofnError
from tests.campaigns.simulator.world import CONTEXTS, Setting


@dataclass(frozen=True)
class Call:
    """A call of a campaign, by its index in the simulation."""

    campaign: int

    def perform(self, campaign: Campaign) -> Any:
        """Make the call."""
        raise NotImplementedError


class Append(Call):
    """A call that several workers may make in one transaction."""

    def submit(self, campaign: Campaign, done: Any) -> None:
        """Queue the call, as a service does."""
        raise NotImplementedError


@dataclass(frozen=True)
class Decide(Append):
    """Ask for decisions. A repeated call has the same number, and the same key if it has one."""

    count: int
    number: int
    key: str | None
    context: dict[str, str] | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of `decide`."""
        return {"key": self.key, "context": self.context, "metadata": {"n": self.number}}

    def perform(self, campaign: Campaign) -> list[Decision]:
        return campaign.decide(self.count, **self.options)

    def submit(self, campaign: Campaign, done: Any) -> None:
        campaign.submit_decide(done, self.count, **self.options)


@dataclass(frozen=True)
class Report(Append):
    """Report rewards, additions or metrics as (id, name, value). If it is partial, some may be refused."""

    kind: str
    items: tuple[tuple[str, str, float], ...]
    partial: bool = False

    @property
    def given(self) -> list[tuple[Any, ...]]:
        """The items as the campaign takes them."""
        if self.kind == "record":
            return list(self.items)
        return [(id, value, name) if self.kind == "add" else (id, value) for id, name, value in self.items]

    def perform(self, campaign: Campaign) -> Any:
        reports: dict[str, Any] = {"reward": campaign.rewards, "add": campaign.adds, "record": campaign.records}
        report = reports[self.kind]
        return report(self.given, partial=self.partial)

    def submit(self, campaign: Campaign, done: Any) -> None:
        campaign.submit_events(done, self.kind, self.given, partial=self.partial)


@dataclass(frozen=True)
class Total(Call):
    """Report a total under a key."""

    arms: tuple[int, ...]
    count: int
    total: float
    key: str
    context: dict[str, str] | None = None

    def perform(self, campaign: Campaign) -> Any:
        return campaign.reward_total(self.arms, self.count, self.total, key=self.key, context=self.context)


@dataclass(frozen=True)
class ChangeArm(Call):
    """Add or retire an arm."""

    name: str
    add: bool

    def perform(self, campaign: Campaign) -> None:
        (campaign.add_arm if self.add else campaign.retire_arm)(self.name)


@dataclass(frozen=True)
class Configure(Call):
    """Change a setting."""

    name: str
    value: Any

    def perform(self, campaign: Campaign) -> None:
        campaign.configure(**{self.name: self.value})


@dataclass(frozen=True)
class Enter(Call):
    """Pause, ship, resume, stop or archive. Without `stored`, shipped decisions are stored with their rewards only."""

    state: str
    stored: bool = True

    def perform(self, campaign: Campaign) -> None:
        if self.state == "shipped":
            campaign.ship(store=self.stored)
        else:
            enter = {"paused": campaign.pause, "running": campaign.resume}
            (enter | {"stopped": campaign.stop, "archived": campaign.archive})[self.state]()


@dataclass(frozen=True)
class Read(Call):
    """Read a report, as a dashboard does."""

    what: str

    def perform(self, campaign: Campaign) -> Any:
        return getattr(campaign, self.what) if self.what == "arms" else getattr(campaign, self.what)()


@dataclass(frozen=True)
class Learn(Call):
    """Fold and learn, or fold only."""

    only_fold: bool = False

    def perform(self, campaign: Campaign) -> bool:
        return fold.fold(campaign.store, campaign._id) if self.only_fold else campaign.learn()


@dataclass(frozen=True)
class ReadTask(Call):
    """Read what the policy has to learn, and learn it. The task has what was learned, or why that failed."""

    def perform(self, campaign: Campaign) -> tuple[fold.Task, Learned | Exception] | None:
        task = fold.read_task(campaign.store, campaign._id)
        if task is None:
            return None
        try:
            return task, learn(task.job)
        except ArithmeticError as why:
            return task, why


@dataclass(frozen=True, eq=False)
class Publish(Call):
    """Publish what was learned, or that the policy failed."""

    task: fold.Task
    learned: Learned | Exception

    def perform(self, campaign: Campaign) -> bool | None:
        if isinstance(self.learned, Learned):
            return fold.publish(campaign.store, self.task, self.learned)
        fold.fail(campaign.store, self.task.campaign, self.task, self.learned)
        return None

    def __repr__(self) -> str:
        return f"Publish({self.task.campaign}, step={self.task.step}, stamp={self.task.stamp})"


@dataclass(frozen=True)
class Outcome:
    """An answer, a refusal, or a failure: then the caller does not know whether the call took effect."""

    value: Any = None
    refused: KofnError | None = None
    failed: str = ""

    @property
    def answered(self) -> bool:
        """Whether the call returned."""
        return not self.failed and self.refused is None

    def __str__(self) -> str:
        if self.failed:
            return f"failed: {self.failed}"
        if self.refused:
            return f"refused: {type(self.refused).__name__}: {str(self.refused)[:90]}"
        if isinstance(self.value, list) and self.value and isinstance(self.value[0], Decision):
            return ", ".join(f"{each.id} {each.subset}" for each in self.value)
        return f"step {self.value[0].step}" if isinstance(self.value, tuple) else str(self.value)


Worker = Generator[Call | None, Outcome, None]
"""It yields None while it has nothing to do."""


@dataclass
class Habits:
    """How the workers of one seed behave. Each seed has its own, so that some seeds are quiet and some are wild."""

    counts: list[int]
    keyed: bool
    lost: float  # probability that nothing is reported about a decision
    repeat: float  # probability that an answered call is made again
    give_up: float  # probability that a failed call is not repeated
    odd: float  # probability of a value, an id or an order that is refused
    changes: float  # probability that an operator changes arms or settings

    @classmethod
    def draw(cls, rng: Random) -> Habits:
        """Return random habits."""
        return cls(
            counts=[1, 12, 25] if rng.random() < 0.2 else [1, 1, 2, 3, 8],
            keyed=rng.random() < 0.7,
            lost=rng.choice([0.0, 0.1, 0.5]),
            repeat=rng.choice([0.0, 0.2]),
            give_up=rng.choice([0.0, 0.3]),
            odd=rng.choice([0.0, 0.1]),
            changes=rng.choice([0.1, 0.6]),
        )


@dataclass
class Place:
    """What the workers of a campaign share."""

    campaign: int
    setting: Setting
    rng: Random
    habits: Habits
    numbers: Iterator[int]
    mail: list[str] = field(default_factory=list)  # decisions about which something will be reported
    subsets: list[tuple[int, ...]] = field(default_factory=list)
    asked: list[Decide] = field(default_factory=list)

    def context(self) -> dict[str, str] | None:
        """Return the context of a call."""
        return self.rng.choice(CONTEXTS) if self.setting.takes_context else None

    def value(self, part: float = 1.0) -> float:
        """Return a reward, mostly in the range: an eighth of it, so that sums are exact in any order."""
        low, high = self.setting.reward_range
        value = low + (high - low) * self.rng.randint(0, 8) / 8 if part == 1.0 else self.rng.randint(-2, 4) * part
        return value + (high - low if self.rng.random() < self.habits.odd else 0.0)

    def decide(self) -> Decide:
        """Return a call for decisions. Visitors, whose keys are sticky, come back; other keys are repeated late."""
        if self.asked and self.rng.random() < self.habits.repeat:
            return self.rng.choice(self.asked)
        number, count = next(self.numbers), self.rng.choice(self.habits.counts)
        key = f"request {number}" if self.habits.keyed else None
        if "sticky" in self.setting.options and self.rng.random() < 0.7:
            key, count = f"visitor {self.rng.randint(0, 3)}", 1
        call = Decide(self.campaign, count, number, key, self.context())
        self.asked += [call] if key is not None else []
        return call

    def take(self) -> list[str]:
        """Return some decisions from the mail. Others stay, and are late."""
        self.rng.shuffle(self.mail)
        many = self.rng.randint(0, len(self.mail))
        taken, self.mail = self.mail[:many], self.mail[many:]
        return taken

    def report(self, ids: Sequence[str]) -> Report:
        """Return a call that reports something about these decisions, perhaps about one that was never made."""
        rng, (low, high) = self.rng, self.setting.reward_range
        windowed = "window" in self.setting.options
        kind = rng.choices(["reward", "add", "record"], [6, 6 if windowed else 0.2, 1])[0]
        if rng.random() < self.habits.odd:
            ids = [*ids, f"{ids[0][:-1]}{'0' if ids[0][-1] != '0' else '1'}"]
        names = {"reward": [""], "add": [f"order {each}" for each in range(6)], "record": ["returned", "clicks"]}[kind]
        part = (high - low) / 8 if kind == "add" else 1.0
        items = {(id, rng.choice(names)): self.value(part) for _ in range(1 + (kind == "add")) for id in ids}
        given = tuple((id, name, value) for (id, name), value in items.items())
        return Report(self.campaign, kind, given, rng.random() < 0.3)

    def change(self) -> Configure:
        """Return a change of a setting that any policy takes."""
        low, high = self.setting.reward_range
        choices: list[tuple[str, Any]] = [("silence", self.rng.choice([low, high, 0.0])), ("unit", "EUR")]
        choices += [("keep_decisions", self.rng.choice([0, 4, 1000])), ("expire_after", self.rng.choice([20.0, 60.0]))]
        choices += [("metric_window", self.rng.choice([None, 5.0]))]
        if "window" in self.setting.options:
            choices += [("window", self.rng.choice([None, 5.0, 15.0, 30.0]))] * 2
        if self.setting.policy in ("simulated", "thompson"):
            choices += [("constraints", drawn_rules(self.rng, self.setting.n_arms))] * 6
            choices += [("reward_range", (low, high + (high - low)))]
        if "costs" in self.setting.options:
            costs = {f"arm {arm}": self.rng.randint(0, 4) / 4 for arm in range(self.setting.n_arms)}
            choices += [("costs", costs)] * 4
        return Configure(self.campaign, *self.rng.choice(choices))


def drawn_rules(rng: Random, n_arms: int) -> list[dict[str, Any]]:
    """Return some rules about the arms of the beginning. Some of them cannot hold together."""
    sizes = {"at-most": 2, "never": 1, "always": 1}
    rules = [(kind, rng.sample(range(n_arms), sizes[kind])) for kind in rng.choices(list(sizes), k=rng.randint(0, 2))]
    one = {"at-most": {"count": 1}}
    return [{"rule": kind, "arms": [f"arm {arm}" for arm in arms], **one.get(kind, {})} for kind, arms in rules]


def repeated(call: Call, place: Place) -> Generator[Call | None, Outcome, Outcome]:
    """Make a call until it is answered or refused, and sometimes once more; or give up after a failure."""
    outcome = yield call
    while outcome.failed:
        if place.rng.random() < place.habits.give_up:
            return outcome
        outcome = yield call
    if outcome.answered and place.rng.random() < place.habits.repeat:
        yield call
    return outcome


def customer(place: Place) -> Worker:
    """Ask for decisions, and put some into the mail."""
    while True:
        outcome = yield from repeated(place.decide(), place)
        if outcome.answered:
            place.mail += [each.id for each in outcome.value if place.rng.random() >= place.habits.lost]
            place.subsets += [each.subset for each in outcome.value[:1]]


def reporter(place: Place) -> Worker:
    """Report what happened to decisions from the mail; sometimes look at the campaign while there are none."""
    rng = place.rng
    while True:
        ids = place.take()
        if not ids:
            what = rng.choice(["summary", "best", "arms", "decisions"])
            yield Read(place.campaign, what) if rng.random() < 0.3 else None
            continue
        call = place.report(ids)
        outcome = yield from repeated(call, place)
        if outcome.failed or call.kind != "reward" or rng.random() < place.habits.odd:
            place.mail += [id for id in ids if rng.random() < 0.7]  # something more will be reported


def operator(place: Place) -> Worker:
    """Change arms and settings, pause, ship and resume, report totals, look at the campaign."""
    rng, habits, campaign = place.rng, place.habits, place.campaign
    names = [f"arm {arm}" for arm in range(place.setting.n_arms)]
    while True:
        what = rng.random()
        if what < habits.changes / 3:
            name = rng.choice([f"new {next(place.numbers)}", rng.choice(names)])
            names.append(name)
            yield from repeated(ChangeArm(campaign, name, add=True), place)
            yield from repeated(ChangeArm(campaign, rng.choice(names), add=False), place)
        elif what < habits.changes:
            yield from repeated(place.change(), place)
        elif what < habits.changes + 0.2:
            stored = rng.random() < 0.5
            yield from repeated(Enter(campaign, rng.choice(["paused", "shipped", "shipped"]), stored), place)
            yield from (None for _ in range(rng.randint(0, 3)))
            yield from repeated(Enter(campaign, "running"), place)
        elif what < habits.changes + 0.3 and place.subsets:
            count, subset = rng.choice([1, 2, 5]), rng.choice(place.subsets)
            total = sum(place.value() for _ in range(count))
            key = f"total {next(place.numbers)}"
            yield from repeated(Total(campaign, subset, count, total, key, place.context()), place)
        else:
            yield Read(campaign, rng.choice(["summary", "best", "arms"]))


def learner(place: Place) -> Worker:
    """Fold, learn and publish, as a service does; sometimes die before it publishes, or be late."""
    rng, campaign = place.rng, place.campaign
    while True:
        outcome = yield ReadTask(campaign)
        if not (outcome.answered and outcome.value is not None):
            yield Learn(campaign, only_fold=True)
        elif rng.random() < 0.8:
            yield from (None for _ in range(rng.choice([0, 0, 2, 4, 8])))
            yield Publish(campaign, *outcome.value)
