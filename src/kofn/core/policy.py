"""The policy: what every algorithm shares, so that its file holds the algorithm and nothing else."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, SupportsIndex

import numpy as np

from kofn.core.checks import (
    Direction,
    FloatArray,
    Subset,
    check_range,
    check_sizes,
    finite_numbers,
    subset_of,
    whole,
    whole_numbers,
)
from kofn.core.errors import BadInput, BadRecord, BadReward, BadTally, ShortHorizonWarning
from kofn.core.insight import Insight
from kofn.core.open_plan import Progress
from kofn.core.plan import ROUNDING, Plan, Tally, check_tally


class Policy(ABC):
    """Chooses subsets. Play its plan, tell what it earned.

    People use `ask` and `tell`, a play at a time; machines use `plan` and `tell_plan`, thousands at a time. A policy
    is a subclass with `_next` (the plan it wants), `_learn` (from a plan that has been played to the end), `best`,
    `_state` and `_load`. Rewards reach it in [0, 1], to be maximised: `reward_range` and `direction` end here.
    """

    _now: Progress

    name: ClassVar[str]
    needs_horizon: ClassVar[bool] = False
    linear_memory: ClassVar[bool] = True
    keeps_subsets: ClassVar[bool] = False  # something for each of the C(N, K)
    consistent: ClassVar[bool] = True  # without noise, it ends in the best subset
    accepts_unplanned: bool = False  # from plays of any subset, planned or not
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it needs beyond one reward per play: "best" (to be told the best subset, as best=), "arms" (to see what each
    arm earned) or "fewer" (to play fewer than K arms)."""

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
        **params: Any,
    ) -> None:
        """Keep what all policies share; `params` are the policy's own parameters, kept for its record."""
        self.n_arms, self.k = check_sizes(n_arms, k)
        self.reward_range = check_range(reward_range)
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.direction: Direction = direction
        self.plays = 0  # told, also those of a plan on its way: `_next` must not depend on it
        self.turns = 0  # plans told to the end
        self._params = params

    # What a policy says of itself.

    @abstractmethod
    def best(self) -> Subset:
        """The best guess now, by estimated mean."""

    @property
    def committed(self) -> bool:
        """Whether exploration is over for good: the policy will play `best()` whatever it is told."""
        return False

    def insight(self) -> Insight | None:
        """What it has learned of the best subset and of each arm, if it can say."""
        return None

    def filler(self, index: int) -> Subset:
        """Return the subset to play while the whole plan is in flight; `index` counts such plays of this plan."""
        del index
        return self.best()

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Self:
        """The policy with only these arms kept, numbered anew from the lowest up, and `added` new ones after them."""
        del keep, added
        raise BadInput(f"{self.name} is for a fixed set of arms: for arms that come and go, take thompson")

    @abstractmethod
    def _next(self) -> Plan:
        """The plan that follows from what has been learned; the same whenever it is called on the same state."""

    @abstractmethod
    def _learn(self, plan: Plan, tally: Tally) -> None:
        """Take in what all plays of `plan` earned, in [0, 1]; those of other subsets too, if it `accepts_unplanned`."""

    @abstractmethod
    def _state(self) -> dict[str, Any]:
        """What has been learned, as plain numbers."""

    @abstractmethod
    def _load(self, state: Mapping[str, Any]) -> None:
        """Take over what `_state` said; anything that does not fit raises. Called on a new object only."""

    # For machines.

    def plan(self) -> Plan:
        """What is still wanted. Its rows stay, and `times` shrinks, until all has been told. Reads only."""
        now = self._now
        return now.plan if now.untold == now.size else Plan(now.plan.subsets, now.plan.times - now.got.count)

    def tell_plan(self, tallies: Tally) -> None:
        """Tell what plays of the plan earned, one tally per row; part of the counts is welcome."""
        self._take(self._inside(tallies))

    # For people.

    def ask(self) -> Subset:
        """The next subset to play. Many may be asked for before the first is told; when all of the plan is out, it is
        `best()`, or what else the policy makes of the time, so that nobody ever waits."""
        return self._now.hand_out() or self._now.extra(self.filler(self._now.spared))

    def tell(self, subset: Iterable[SupportsIndex], reward: float, arms: Iterable[float] | None = None) -> None:
        """Tell what one play of `subset` earned; and each of its arms, in the same order, to a policy that sees them.

        The rewards of single arms have the same range and direction as the subset's. A policy that
        `accepts_unplanned` also learns from plays that nobody asked for.
        """
        now = self._now
        shown = None
        if "arms" in self.needs:
            subset = tuple(subset) if isinstance(subset, Iterable) else subset
            shown = self._shown(subset, arms)
        if not (isinstance(subset, tuple) and now.knows(subset)):
            subset = self._subset(subset)
        value = self._scaled(reward)
        if (row := now.row_of(subset)) is not None:
            now.take_one(row, value, shown)
        else:
            was_out = now.extra_back(subset)
            if self.accepts_unplanned:
                now.take_other(subset, 1, value, value * value)
            elif not was_out:
                raise BadTally(now.refusal(subset))
        self.plays += 1
        if now.complete:
            self._turn()

    def tell_total(
        self, subset: Iterable[SupportsIndex], count: int, total: float, squares: float | None = None
    ) -> None:
        """Tell what `count` plays of one subset earned together, and the total of their squares, if it is known.

        For logs that hold sums. They may be plays of the plan, or, if the policy `accepts_unplanned`, of any subset.
        """
        subset, count = self._subset(subset), whole("count", count)
        low, high = self.reward_range
        total = float(finite_numbers("total", total))
        if squares is None:  # the most that it can be, as if every reward had been at one end of its range
            squares = (low + high) * total - low * high * count
        tally = Tally(np.array([count]), np.array([total]), np.array([float(finite_numbers("squares", squares))]))
        row = self._now.row_of(subset)
        if row is not None and count <= self._now.plan.times[row] - self._now.got.count[row]:
            whole_plan = Tally.zeros(len(self._now.plan), self.k if "arms" in self.needs else None)
            for name in ("count", "total", "squares"):
                getattr(whole_plan, name)[row] = getattr(tally, name)[0]
            self.tell_plan(whole_plan)
            return
        if not self.accepts_unplanned:
            raise BadTally(self._now.refusal(subset))
        tally = self._inside(tally, Plan.one(subset, count))
        self._now.take_other(subset, count, float(tally.total[0]), float(tally.squares[0]))
        self.plays += count
        if self._now.complete:
            self._turn()

    def release(self) -> None:
        """Want again what was asked for and not told, for instance because a worker died."""
        self._now.release()

    # To keep.

    @property
    def params(self) -> dict[str, Any]:
        """The arguments that make this policy again, as plain values."""
        return {
            "n_arms": self.n_arms,
            "k": self.k,
            **self._params,
            "reward_range": list(self.reward_range),
            "direction": self.direction,
        }

    @classmethod
    def from_params(cls, **params: Any) -> Self:
        """The policy that `params` describe."""
        return cls(**params)

    def state(self) -> dict[str, Any]:
        """All that the policy knows, as plain numbers ready for JSON: a fresh copy, O(N)."""
        got = self._now.got
        rows = np.flatnonzero(got.count)
        told = {"rows": rows, "count": got.count[rows], "total": got.total[rows], "squares": got.squares[rows]}
        if got.arms is not None:
            told["arms"] = got.arms[rows]
        record = {
            "plays": self.plays,
            "turns": self.turns,
            "told": {name: each.tolist() for name, each in told.items()},
        }
        if self.accepts_unplanned:
            record["others"] = [[list(subset), *sums] for subset, sums in self._now.others.items()]
        return {**record, **self._state()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over a state; one that does not fit is refused and changes nothing."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)  # it was given when the policy was first made
            fresh = type(self).from_params(**self.params)
        try:
            fresh.plays = whole("plays", state["plays"], least=0)
            fresh.turns = whole("turns", state["turns"], least=0)
            fresh._load(state)
            fresh._begin()
            fresh._load_told(state["told"])
            if self.accepts_unplanned:
                fresh._load_others(state["others"])
        except (BadInput, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as why:
            reason = f"{why.args[0]!r} is missing" if isinstance(why, KeyError) else str(why)
            raise BadRecord(f"this state does not fit {self!r}: {reason}") from why
        vars(self).update(vars(fresh))

    def _load_told(self, told: Mapping[str, Any]) -> None:
        rows = whole_numbers("rows", told["rows"])
        if rows.size and (rows.max() >= len(self._now.plan) or np.unique(rows).size != rows.size):
            raise BadTally("it tells of rows that the plan does not have")
        part = Tally.zeros(len(self._now.plan), self.k if "arms" in self.needs else None)
        part.count[rows] = whole_numbers("count", told["count"])
        part.total[rows] = finite_numbers("total", told["total"])
        part.squares[rows] = finite_numbers("squares", told["squares"])
        if part.arms is not None:
            part.arms[rows] = finite_numbers("arms", told["arms"]).reshape(rows.size, self.k)
        check_tally(part, self._now.plan, self._now.got, 0.0, 1.0)
        self._now.take(part)
        if self._now.complete:
            raise BadTally("it tells of a plan that is already complete")

    def _load_others(self, others: Sequence[Any]) -> None:
        for arms, count, total, squares in others:
            subset = subset_of(arms, self.n_arms, self.k)
            sums = finite_numbers("sums", [total, squares])
            tally = Tally(np.array([whole("count", count)]), sums[:1], sums[1:])
            check_tally(tally, Plan.one(subset, count), Tally.zeros(1), 0.0, 1.0)
            if subset in self._now.others:
                raise BadTally(f"it tells of {subset} twice")
            self._now.take_other(subset, count, *sums.tolist())
        if self._now.complete:
            raise BadTally("it tells of a plan that is already complete")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"

    # The engine: one plan after another.

    def _begin(self) -> None:
        """Start on the next plan. Each policy calls it at the end of its `__init__`."""
        extras = self._now.extras if "_now" in vars(self) else {}
        self._now = Progress(self._next(), extras, arms="arms" in self.needs)

    def _turn(self) -> None:
        self._learn(*(self._now.played() if self._now.others else (self._now.plan, self._now.got)))
        self.turns += 1
        self._begin()

    def _take(self, tally: Tally) -> None:
        """Count a checked tally in [0, 1]; learn when the plan is complete."""
        self._now.take(tally)
        self.plays += int(tally.count.sum())
        if self._now.complete:
            self._turn()

    # The edge: rewards in the user's scale, turned into [0, 1] to be maximised.

    def _scaled(self, reward: float) -> float:
        low, high = self.reward_range
        try:
            value = (float(reward + 0.0) - low) / (high - low)  # a sum, since float() alone would parse text
        except (TypeError, ValueError, OverflowError):
            raise BadReward(f"a reward is one number, not {reward!r}") from None
        if not -ROUNDING <= value <= 1.0 + ROUNDING:
            raise BadReward(f"a reward lies from {low:g} to {high:g} (reward_range), but {reward!r} came")
        value = min(max(value, 0.0), 1.0)
        return value if self.direction == "maximize" else 1.0 - value

    def _subset(self, arms: Iterable[SupportsIndex]) -> Subset:
        """`arms` as a subset of K, or of fewer if this policy plays such."""
        k = self.k
        if "fewer" in self.needs and isinstance(arms, Iterable):
            arms = tuple(arms)
            k = min(max(1, len(arms)), k)
        return subset_of(arms, self.n_arms, k)

    def _shown(self, subset: tuple[SupportsIndex, ...], arms: Iterable[float] | None) -> FloatArray:
        """What each arm of the sorted subset earned, in [0, 1]."""
        self._subset(subset)
        if not isinstance(arms, Iterable):
            raise BadReward(f"{self.name} sees single arms: tell(subset, reward, arms=what each arm of it earned)")
        rewards = [self._scaled(each) for each in arms]
        if len(rewards) != len(subset):
            raise BadReward(f"told of the rewards of {len(rewards)} arms, but the subset {subset} has {len(subset)}")
        return np.array([reward for _, reward in sorted(zip(subset, rewards, strict=True))])

    def _inside(self, tallies: Tally, plan: Plan | None = None) -> Tally:
        """The tallies in [0, 1], checked against what is wanted, or against another plan that nothing is told of."""
        if not isinstance(tallies, Tally):
            raise BadTally(f"tell_plan takes a Tally, not {type(tallies).__name__}: Tally.of([rewards of row 0, ...])")
        low, high = self.reward_range
        if "arms" in self.needs and tallies.arms is None:
            raise BadTally(f"{self.name} sees single arms: give the tally their totals, Tally(..., arms=...)")
        got = self._now.got if plan is None else Tally.zeros(len(plan))
        check_tally(tallies, plan or self._now.plan, got, low, high)
        n, total, squares = tallies.count, tallies.total, tallies.squares
        arms = tallies.arms if "arms" in self.needs else None
        if (low, high) != (0.0, 1.0):
            span = high - low
            squares = (squares - 2 * low * total + n * low * low) / (span * span)
            total = (total - n * low) / span
            arms = None if arms is None else (arms - n[:, None] * low) / span
        if self.direction == "minimize":
            squares = n - 2 * total + squares
            total = n - total
            arms = None if arms is None else n[:, None] - arms
        total = np.minimum(np.maximum(total, 0.0), n)  # what rounding pushed out comes back in
        arms = None if arms is None else np.minimum(np.maximum(arms, 0.0), n[:, None])
        return Tally(n, total, np.minimum(np.maximum(squares, total * total / np.maximum(n, 1)), total), arms)
