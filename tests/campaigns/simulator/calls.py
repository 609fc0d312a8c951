"""What simulated workers ask of a campaign, and the workers that ask it.

A worker is a generator: it yields a call, and is sent its outcome. It knows what a client knows: after a failure it
cannot tell whether the call took effect, so it makes the same call again, or gives up.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kofn.campaigns import Campaign, Decision
from kofn.core import KofnError
from tests.campaigns.simulator.world import CONTEXTS, CONTEXTUAL, Setting


@dataclass(frozen=True)
class Call:
    """A call of a campaign, by its index in the simulation."""

    campaign: int

    def perform(self, campaign: Campaign) -> Any:
        """Make the call."""
        raise NotImplementedError


@dataclass(frozen=True)
class Decide(Call):
    """Ask for decisions. `key` names the request: a repeated call has the same key."""

    count: int
    key: str
    keyed: bool  # whether the campaign is told the key
    context: dict[str, str] | None = None
    metadata: dict[str, int] | None = None

    def perform(self, campaign: Campaign) -> list[Decision]:
        """Make the call."""
        key = self.key if self.keyed else None
        return campaign.decide(self.count, key=key, context=self.context, metadata=self.metadata)


@dataclass(frozen=True)
class Reward(Call):
    """Report rewards of decisions. If it is partial, the others are recorded although some are refused."""

    rewards: tuple[tuple[str, float], ...]
    partial: bool = False

    def perform(self, campaign: Campaign) -> Any:
        """Make the call."""
        return campaign.rewards(list(self.rewards), partial=self.partial)


@dataclass(frozen=True)
class Total(Call):
    """Report a total under a key."""

    arms: tuple[int, ...]
    count: int
    total: float
    key: str
    context: dict[str, str] | None = None

    def perform(self, campaign: Campaign) -> Any:
        """Make the call."""
        return campaign.reward_total(self.arms, self.count, self.total, key=self.key, context=self.context)


@dataclass(frozen=True)
class AddArm(Call):
    """Add an arm."""

    name: str

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.add_arm(self.name)


@dataclass(frozen=True)
class RetireArm(Call):
    """Retire an arm."""

    name: str

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.retire_arm(self.name)


@dataclass(frozen=True)
class ChangeRules(Call):
    """Replace the constraints: pairs of a kind of rule and its arms, by name."""

    rules: tuple[tuple[str, tuple[str, ...]], ...]

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.configure(constraints=plain_rules(self.rules))


def plain_rules(rules: Sequence[tuple[str, Sequence[str]]]) -> list[dict[str, Any]]:
    """Return rules as a campaign takes them; at most one of the arms of a quota is allowed."""
    return [{"rule": kind, "arms": list(arms)} | ({"count": 1} if kind == "at-most" else {}) for kind, arms in rules]


def drawn_rules(rng: Random, n_arms: int) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return some rules about the arms of the beginning. Some of them cannot hold together."""
    names = [f"arm {arm}" for arm in range(n_arms)]
    sizes = {"at-most": 2, "never": 1, "always": 1}
    kinds = rng.choices(list(sizes), k=rng.randint(0, 2))
    return tuple((kind, tuple(rng.sample(names, sizes[kind]))) for kind in kinds)


@dataclass(frozen=True)
class ChangeCosts(Call):
    """Replace what arms cost, by name."""

    costs: tuple[tuple[str, float], ...]

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.configure(costs=dict(self.costs))


@dataclass(frozen=True)
class ChangeKept(Call):
    """Change how many decisions with a reward are stored one by one."""

    keep: int

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.configure(keep_decisions=self.keep)


@dataclass(frozen=True)
class Enter(Call):
    """Pause, ship, resume, stop or archive. Without `stored`, shipped decisions are stored with their rewards only."""

    state: str
    stored: bool = True

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        if self.state == "shipped":
            campaign.ship(store=self.stored)
        else:
            enter = {"paused": campaign.pause, "running": campaign.resume}
            (enter | {"stopped": campaign.stop, "archived": campaign.archive})[self.state]()


@dataclass(frozen=True)
class Expire(Call):
    """Expire overdue decisions."""

    def perform(self, campaign: Campaign) -> None:
        """Make the call."""
        campaign.expire()


@dataclass(frozen=True)
class Read(Call):
    """Read the best subset or all arms, as a dashboard does."""

    best: bool

    def perform(self, campaign: Campaign) -> list[str]:
        """Make the call."""
        return campaign.best() if self.best else campaign.arms


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
        return str(self.value)


Worker = Generator[Call | None, Outcome, None]
"""It yields None while it has nothing to do."""


@dataclass
class Mail:
    """Rewards on their way: a decision is made by one worker, and its reward reported by another."""

    rng: Random
    rewards: list[tuple[str, float]] = field(default_factory=list)

    def take(self) -> list[tuple[str, float]]:
        """Return some of them, in any order. Some stay, and come late."""
        self.rng.shuffle(self.rewards)
        many = self.rng.randint(0, len(self.rewards))
        taken, self.rewards = self.rewards[:many], self.rewards[many:]
        return taken


@dataclass
class Habits:
    """How the workers of one seed behave. Each seed has its own, so that some seeds are quiet and some are wild."""

    keyed: bool
    counts: list[int]
    lost: float  # probability that a reward never arrives
    repeat: float  # probability that an answered call is made again
    give_up: float  # probability that a failed call is not repeated
    conflict: float  # probability that another value is sent as well
    changes: float  # probability that an operator changes arms


@dataclass
class Place:
    """What the workers of a campaign share."""

    campaign: int
    setting: Setting
    rng: Random
    habits: Habits
    numbers: Iterator[int]
    mail: Mail
    more: Random  # for what only campaigns with options do: the histories of the others stay as they are
    decided: list[Decision] = field(default_factory=list)
    arms: list[str] = field(default_factory=list)
    given: set[str] = field(default_factory=set)

    def context(self, number: int) -> dict[str, str] | None:
        """Return the context of a call, by its number."""
        return CONTEXTS[number % len(CONTEXTS)] if self.setting is CONTEXTUAL else None

    def inside(self) -> float:
        """Return a reward in the range: an eighth of it, so that sums are exact in any order."""
        low, high = self.setting.reward_range
        return low + (high - low) * self.rng.randint(0, 8) / 8

    def value(self) -> float:
        """Return a reward, sometimes one outside the range."""
        value, (low, high) = self.inside(), self.setting.reward_range
        if self.setting.option("outside") and self.more.random() < 0.1:
            value += self.more.choice([-1, 1]) * (high - low)
        return value

    def request(self, number: int, many: int) -> Decide:
        """Return a call for decisions, by its number. Visitors, whose keys are sticky, come back."""
        key, keyed, context = f"request {number}", self.habits.keyed, self.context(number)
        if self.setting.options is None:
            return Decide(self.campaign, many, key, keyed, context)
        if self.setting.option("sticky") and keyed and self.more.random() < 0.7:
            key, many = f"visitor {self.more.randint(0, 3)}", 1
        return Decide(self.campaign, many, key, keyed, context, {"number": number})

    def is_first(self, decision: Decision) -> bool:
        """Return whether nobody was given this decision before: visitors get theirs again until it has a reward."""
        new = decision.id not in self.given
        self.given.add(decision.id)
        return new or self.setting.option("sticky") is None

    def report(self, rewards: Sequence[tuple[str, float]]) -> Reward:
        """Return a call that reports these rewards, perhaps with one of a decision that was never made."""
        if self.setting.options is None:
            return Reward(self.campaign, tuple(rewards))
        wrong = [(f"{rewards[0][0][:-1]}{'0' if rewards[0][0][-1] != '0' else '1'}", self.value())]
        given = [*rewards, *(wrong if self.more.random() < 0.05 else [])]
        return Reward(self.campaign, tuple(given), self.more.random() < 0.4)


def repeated(call: Call, habits: Habits, rng: Random) -> Generator[Call | None, Outcome, Outcome]:
    """Make a call until it is answered or refused, and sometimes once more; or give up after a failure."""
    outcome = yield call
    while outcome.failed:
        if rng.random() < habits.give_up:
            return outcome
        outcome = yield call
    if outcome.answered and rng.random() < habits.repeat:
        yield call
    return outcome


def customer(place: Place) -> Worker:
    """Ask for decisions, and put their rewards into the mail."""
    rng, habits = place.rng, place.habits
    while True:
        many, number = rng.choice(habits.counts), next(place.numbers)
        outcome = yield from repeated(place.request(number, many), habits, rng)
        if outcome.answered:
            place.decided += outcome.value
            kept = [each for each in outcome.value if rng.random() >= habits.lost and place.is_first(each)]
            place.mail.rewards += [(each.id, place.value()) for each in kept]


def reporter(place: Place) -> Worker:
    """Report rewards from the mail; sometimes look at the campaign while there are none."""
    rng, habits = place.rng, place.habits
    while True:
        rewards = place.mail.take()
        if not rewards:
            yield Read(place.campaign, rng.random() < 0.5) if rng.random() < 0.2 else None
            continue
        outcome = yield from repeated(place.report(rewards), habits, rng)
        if outcome.failed:
            place.mail.rewards += rewards  # another worker finds them
        if rng.random() < habits.conflict:
            id, _ = rng.choice(rewards)
            yield Reward(place.campaign, ((id, place.value()),))


def operator(place: Place) -> Worker:
    """Change arms, pause, ship and resume, report totals, look at the campaign."""
    rng, habits = place.rng, place.habits
    names = [f"arm {arm}" for arm in range(place.setting.n_arms)]
    while True:
        what = rng.random()
        if what < habits.changes:
            name = f"new {next(place.numbers)}"
            names.append(name)
            yield from repeated(AddArm(place.campaign, name), habits, rng)
            yield from repeated(RetireArm(place.campaign, rng.choice(names)), habits, rng)
        elif what < habits.changes + 0.1:
            stored = place.setting.options is None or place.more.random() < 0.3
            yield from repeated(Enter(place.campaign, rng.choice(["paused", "shipped"]), stored), habits, rng)
            yield from repeated(Enter(place.campaign, "running"), habits, rng)
        elif what < habits.changes + 0.3 and place.decided:
            count, arms = rng.choice([1, 2, 5]), rng.choice(place.decided).subset
            total = sum(place.inside() for _ in range(count))
            number = next(place.numbers)
            call = Total(place.campaign, arms, count, total, f"total {number}", place.context(number))
            yield from repeated(call, habits, rng)
        elif what < habits.changes + 0.4:
            yield Expire(place.campaign)
        else:
            chance = rng.random()
            if place.setting.policy in ("thompson", CONTEXTUAL.policy) and chance < 0.4:
                rules = drawn_rules(Random(f"rules {chance}"), place.setting.n_arms)
                yield from repeated(ChangeRules(place.campaign, rules), habits, rng)
            if place.setting.option("costs") and chance < 0.6:
                costs = tuple((name, place.more.randint(0, 4) / 4) for name in names[: place.setting.n_arms])
                yield from repeated(ChangeCosts(place.campaign, costs), habits, rng)
            if place.setting.options is not None and place.more.random() < 0.5:
                stored = place.more.random() < 0.3
                yield from repeated(Enter(place.campaign, "shipped", stored), habits, rng)
                yield None
            yield Read(place.campaign, chance < 0.5)
