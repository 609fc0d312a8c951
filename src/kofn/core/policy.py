"""The policy: what every algorithm shares, so that an algorithm's file contains the algorithm only."""

from __future__ import annotations

import copy
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self, SupportsIndex, TypedDict

import numpy as np

from kofn.core.checks import (
    Direction,
    FloatArray,
    Subset,
    check_range,
    check_sizes,
    finite_numbers,
    outside_range,
    reward_number,
    shown,
    subset_of,
    whole,
    whole_numbers,
)
from kofn.core.contexts import context_of, key_of
from kofn.core.errors import BadInput, BadRecord, BadReward, BadTally, ShortHorizonWarning
from kofn.core.fields import Fields
from kofn.core.insight import Insight
from kofn.core.open_plan import OpenPlan
from kofn.core.plan import ROUNDING, Key, Plan, SettledPlays, Tally, check_tally, key_of_play, subset_of_key
from kofn.core.threads import ONE_THREAD


class PolicyOptions(TypedDict, total=False):
    """The options of every policy; a policy's `__init__` takes them as `**options: Unpack[PolicyOptions]`."""

    reward_range: tuple[float, float]
    direction: Direction
    constraints: Any


class Policy(ABC):
    """The base class of all policies. A policy chooses subsets; play its plan, then tell it the rewards.

    Use `ask` and `tell` for one play at a time, `plan` and `tell_plan` for thousands. A policy is a subclass with
    `_next` (the next plan), `_learn` (from a completed plan), `best`, and `fields` (its state, declared as data; or
    `_state` and `_load`). It receives rewards in [0, 1], to be maximised: this class converts from the user's
    `reward_range` and `direction`.
    """

    name: ClassVar[str]
    version: ClassVar[int] = 1
    """An integer that rises when the same rewards lead to other plays. Results name the versions that made them."""

    needs_horizon: ClassVar[bool] = False
    linear_memory: ClassVar[bool] = True
    keeps_subsets: ClassVar[bool] = False  # keeps data for each of the C(N, K) subsets
    consistent: ClassVar[bool] = True  # finds the best subset if there is no noise
    accepts_unplanned: bool = False  # learns from plays of any subset, planned or not
    needs: ClassVar[frozenset[str]] = frozenset()
    """What it needs beyond one reward per play: "best" (the best subset, as best=), "arms" (the reward of each arm) or
    "fewer" (plays of fewer than K arms)."""

    takes_constraints: ClassVar[str] = "none"
    """Which `kofn.Constraints` it obeys: "all", "fixed" (arms that are always in or never in) or "none"."""

    refuses_constraints: ClassVar[str] = "it plays subsets of its own design, which rules may forbid"
    """Why it does not obey all constraints."""

    takes_context: ClassVar[bool] = False
    """Whether what is best may depend on the context of a play: `ask(context)`, `tell(subset, reward, context=...)`."""

    takes_fewest: ClassVar[bool] = False
    """Whether it may play fewer than K arms: `fewest` is one of its parameters."""

    purpose: ClassVar[str] = ""
    """What it is for, in a sentence for practitioners. Menus offer only the policies that have one."""

    fields: ClassVar[Fields] = Fields()
    """Its state: the field `name` is the attribute `_name`, and the key `name` of the record."""

    horizon: int
    """The planned number of plays, if the policy takes one."""

    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give the class the signature that callers see, with the options that it passes on to its base classes."""
        super().__init_subclass__(**keywords)
        cls.__signature__ = _signature(cls)

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        reward_range: tuple[float, float] = (0.0, 1.0),
        direction: Direction = "maximize",
        constraints: Any = None,
        **params: Any,
    ) -> None:
        """Check and keep what all policies share; `params` are the policy's own parameters, kept for its record."""
        self.constraints = constraints
        if constraints is not None:
            if self.takes_constraints == "none":
                raise BadInput(
                    f"{self.name} does not take constraints: {self.refuses_constraints}. Use thompson, which obeys all"
                )
            params["constraints"] = constraints.to_list()
        if unknown := sorted(params.keys() - self.__signature__.parameters.keys()):
            offered = ", ".join(self.__signature__.parameters)
            raise TypeError(f"{type(self).__name__} does not take {', '.join(unknown)}; it takes: {offered}")
        self.n_arms, self.k = check_sizes(n_arms, k)
        self.fewest = self.k  # number of arms of the smallest subset that it may play
        self.reward_range = check_range(reward_range)
        if direction not in ("maximize", "minimize"):
            raise BadInput(f"direction must be 'maximize' or 'minimize', not {direction!r}")
        self.direction: Direction = direction
        if "horizon" in params:
            self.horizon = params["horizon"] = whole("horizon", params["horizon"])
        self.plays = 0  # observed, including plays of the open plan: `_next` must not depend on it
        self.updates = 0  # completed plans
        self._params = params
        self._opened: OpenPlan | None = None
        self._fillers_in_flight: dict[Key, int] = {}  # they may outlive a plan

    # What a policy has learned.

    @abstractmethod
    def best(self) -> Subset:
        """Return the subset with the highest estimated mean reward."""

    @property
    def committed(self) -> bool:
        """Whether exploration is over for good: from now on the policy plays `best()`, whatever the rewards are."""
        return False

    def insight(self) -> Insight | None:
        """Return what is known about the best subset and about each arm; None if the policy does not estimate it."""
        return None

    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return the subset to play while the whole plan is in flight; `index` counts such plays of this plan.

        `segment` is the key of the play's segment, if the policy takes a context.
        """
        del index, segment
        return self.best()

    def segment(self, context: Mapping[str, Any] | None) -> str | None:
        """Return the key of the segment that a context belongs to; None if the policy takes no context."""
        if context is not None:
            raise BadInput(f"{self.name} does not take a context; use contextual-thompson")
        return None

    def with_arms(self, keep: Sequence[int], added: int = 0) -> Self:
        """Return a policy with only these arms, numbered from 0 in ascending order, followed by `added` new ones."""
        del keep, added
        raise BadInput(f"{self.name} needs a fixed set of arms; use thompson to add or retire arms")

    def with_params(self, **changes: Any) -> Self:
        """Return a policy with other parameters, such as `reward_range`, that keeps what this one has learned."""
        raise BadInput(f"{self.name} cannot change {', '.join(changes)} while it runs; use thompson")

    @abstractmethod
    def _next(self) -> Plan:
        """Return the next plan. It depends on the learned state only: calling twice returns the same plan."""

    @abstractmethod
    def _learn(self, plan: Plan, tally: Tally) -> None:
        """Learn from a completed plan; rewards are in [0, 1]. With `accepts_unplanned`, it includes other subsets."""

    def _informed(self) -> Self:
        """Return a copy that has learned from the observed part of the open plan too."""
        informed = copy.deepcopy(self)
        plan, tally = informed._open_plan.played()
        if len(plan):
            informed._learn(plan, tally)
        return informed

    def _state(self) -> dict[str, Any]:
        """Return the learned state as plain values."""
        return self.fields.dump(self, prefix="_")

    def _load(self, state: Mapping[str, Any]) -> None:
        """Set the learned state from plain values, or raise. Called on a new object only."""
        for name, value in self.fields.load(state, self):
            setattr(self, f"_{name}", value)
        self._loaded()

    def _loaded(self) -> None:
        """Check the loaded fields against each other, or raise BadRecord; compute what is derived from them."""
        return

    # Plans: many plays at a time.

    def plan(self) -> Plan:
        """Return the remaining plays of the plan. Its rows stay, and `times` shrinks, until the plan is complete."""
        now = self._open_plan
        if now.remaining == now.size:
            return now.plan
        return Plan(now.plan.subsets, now.plan.times - now.observed.count, now.plan.segments)

    def tell_plan(self, tallies: Tally) -> None:
        """Tell the rewards of plays of the plan, one tally per row. Part of the plan is accepted."""
        self._observe(self._normalized(tallies))

    def tell_plays(self, plays: Iterable[SettledPlays]) -> None:
        """Tell the rewards of any plays at once, planned or not, and learn from them without waiting for the rest.

        A policy that learns from its plan only waits until the plan is complete. It takes no plays of other subsets,
        and of a subset that was played more often than planned, the average.
        """
        now = self._open_plan
        left = now.plan.times - now.observed.count
        rows = {now.plan.key(row): row for row in np.flatnonzero(left)[::-1].tolist()}
        tally, more = Tally.zeros(len(now.plan)), []
        for each in plays:
            row = rows.get(key_of_play(each.subset, each.segment))
            if row is not None and (each.plays <= left[row] or not self.accepts_unplanned):
                part = min(1.0, int(left[row]) / each.plays)
                tally.count[row] = min(each.plays, int(left[row]))
                tally.total[row], tally.squares[row] = part * each.total, part * each.squares
            elif self.accepts_unplanned:
                more.append(each)
        normalized = self._normalized(tally)
        now.observe(normalized)
        self.plays += int(normalized.count.sum())
        for each in more:
            sums = Tally(np.array([each.plays]), np.array([each.total]), np.array([each.squares]))
            told = self._normalized(sums, Plan.one(each.subset, each.plays))
            key = key_of_play(each.subset, each.segment)
            now.observe_unplanned(key, each.plays, float(told.total[0]), float(told.squares[0]))
            self.plays += each.plays
        if now.complete:
            self._finish_plan()
        elif self.accepts_unplanned and now.remaining < now.size:
            self._learn_from(*now.played())

    def expect(self, in_flight: Mapping[Key, float]) -> None:
        """Plan as if these numbers of plays were in flight. Most policies need no such account."""
        del in_flight

    # Ask and tell: one play at a time.

    def ask(self, context: Mapping[str, Any] | None = None) -> Subset:
        """Return the next subset to play; `context` says for whom, if the policy takes a context.

        Ask as often as needed before telling a reward. When the whole plan is in flight, this returns a filler:
        `best()`, or another subset that the policy learns from. So a caller never waits.
        """
        now, segment = self._open_plan, self.segment(context)
        if (subset := now.hand_out(segment)) is None:
            subset = self.filler(now.fillers_handed_out, segment)
            now.hand_out_filler(key_of_play(subset, segment))
        return subset

    def tell(
        self,
        subset: Iterable[SupportsIndex],
        reward: float,
        arms: Iterable[float] | None = None,
        *,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell the reward of one play of `subset`; for a policy that needs them, also the reward of each of its arms.

        `context` is what `ask` was given, if the policy takes a context. `arms` is in the order of `subset`, with the
        range and direction of the reward. A policy that `accepts_unplanned` also learns from plays of other subsets.
        """
        now = self._open_plan
        arm_rewards = None
        if "arms" in self.needs:
            subset = tuple(subset) if isinstance(subset, Iterable) else subset
            arm_rewards = self._arm_rewards(subset, arms)
        segment = self.segment(context)
        if not (isinstance(subset, tuple) and now.knows(key_of_play(subset, segment))):
            subset = self._subset(subset)
        value, key = self._scaled(reward), key_of_play(subset, segment)
        if (row := now.row_of(key)) is not None:
            now.observe_one(row, value, arm_rewards)
        else:
            was_filler = now.return_filler(key)
            if self.accepts_unplanned:
                now.observe_unplanned(key, 1, value, value * value)
            elif not was_filler:
                raise BadTally(now.refusal(key))
        self.plays += 1
        if now.complete:
            self._finish_plan()

    def tell_total(
        self,
        subset: Iterable[SupportsIndex],
        count: int,
        total: float,
        squares: float | None = None,
        *,
        context: Mapping[str, Any] | None = None,
    ) -> None:
        """Tell the total reward of `count` plays of one subset, and the total of the squared rewards, if it is known.

        For logs that contain sums. The plays may be plays of the plan or, if the policy `accepts_unplanned`, any.
        """
        subset, count = self._subset(subset), whole("count", count)
        key = key_of_play(subset, self.segment(context))
        low, high = self.reward_range
        total = float(finite_numbers("total", total))
        if squares is None:  # the largest possible: every reward at one end of its range
            squares = (low + high) * total - low * high * count
        tally = Tally(np.array([count]), np.array([total]), np.array([float(finite_numbers("squares", squares))]))
        row = self._open_plan.row_of(key)
        if row is not None and count <= self._open_plan.plan.times[row] - self._open_plan.observed.count[row]:
            whole_plan = Tally.zeros(len(self._open_plan.plan), self.k if "arms" in self.needs else None)
            for name in ("count", "total", "squares"):
                getattr(whole_plan, name)[row] = getattr(tally, name)[0]
            self.tell_plan(whole_plan)
            return
        if not self.accepts_unplanned:
            raise BadTally(self._open_plan.refusal(key))
        tally = self._normalized(tally, Plan.one(subset, count))
        self._open_plan.observe_unplanned(key, count, float(tally.total[0]), float(tally.squares[0]))
        self.plays += count
        if self._open_plan.complete:
            self._finish_plan()

    def release(self) -> None:
        """Hand out again the plays that are in flight, for instance because a worker died."""
        self._open_plan.release()

    # The record.

    @property
    def params(self) -> dict[str, Any]:
        """The arguments that create this policy, as plain values."""
        return {
            "n_arms": self.n_arms,
            "k": self.k,
            **self._params,
            "reward_range": list(self.reward_range),
            "direction": self.direction,
        }

    @classmethod
    def from_params(cls, **params: Any) -> Self:
        """Return a new policy with these `params`."""
        return cls(**params)

    def state(self) -> dict[str, Any]:
        """Return all that the policy has learned as plain values, ready for JSON: a new copy, O(N)."""
        observed = self._open_plan.observed
        rows = np.flatnonzero(observed.count)
        arrays = {"rows": rows} | {name: getattr(observed, name)[rows] for name in ("count", "total", "squares")}
        if observed.arms is not None:
            arrays["arms"] = observed.arms[rows]
        record = {
            "plays": self.plays,
            "updates": self.updates,
            "observed": {name: array.tolist() for name, array in arrays.items()},
        }
        if self.accepts_unplanned:
            record["unplanned"] = [[*self._plain(key), *sums] for key, sums in self._open_plan.unplanned.items()]
        return {**record, **self._state()}

    @ONE_THREAD
    def load(self, state: Mapping[str, Any]) -> None:
        """Replace all that the policy has learned by `state`; an invalid state is refused and changes nothing."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)  # given when the policy was created
            fresh = type(self).from_params(**self.params)
        try:
            fresh.plays = whole("plays", state["plays"], least=0)
            fresh.updates = whole("updates", state["updates"], least=0)
            fresh._load(state)
            fresh._load_observed(state["observed"])
            if self.accepts_unplanned:
                fresh._load_unplanned(state["unplanned"])
        except (BadInput, KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as why:
            reason = f"{why.args[0]!r} is missing" if isinstance(why, KeyError) else str(why)
            raise BadRecord(f"this state does not fit {self!r}: {reason}") from why
        vars(self).update(vars(fresh))

    def _load_observed(self, observed: Mapping[str, Any]) -> None:
        rows = whole_numbers("rows", observed["rows"])
        if rows.size and (rows.max() >= len(self._open_plan.plan) or np.unique(rows).size != rows.size):
            raise BadTally(f"rows must be different rows of the plan, which has {len(self._open_plan.plan)}")
        part = Tally.zeros(len(self._open_plan.plan), self.k if "arms" in self.needs else None)
        part.count[rows] = whole_numbers("count", observed["count"])
        part.total[rows] = finite_numbers("total", observed["total"])
        part.squares[rows] = finite_numbers("squares", observed["squares"])
        if part.arms is not None:
            part.arms[rows] = finite_numbers("arms", observed["arms"]).reshape(rows.size, self.k)
        check_tally(part, self._open_plan.plan, self._open_plan.observed, 0.0, 1.0)
        self._open_plan.observe(part)
        self._check_open()

    def _load_unplanned(self, unplanned: Sequence[Any]) -> None:
        for *given, count, total, squares in unplanned:
            key, subset = self._key(given)
            sums = finite_numbers("sums", [total, squares])
            tally = Tally(np.array([whole("count", count)]), sums[:1], sums[1:])
            check_tally(tally, Plan.one(subset, count), Tally.zeros(1), 0.0, 1.0)
            if key in self._open_plan.unplanned:
                raise BadTally(f"{key} is listed twice among the unplanned plays")
            self._open_plan.observe_unplanned(key, count, *sums.tolist())
        self._check_open()

    def _plain(self, key: Key) -> list[Any]:
        """Return what plays are counted under as plain values."""
        return [*([str(key[0])] if self.takes_context else []), list(subset_of_key(key))]

    def _key(self, plain: Sequence[Any]) -> tuple[Key, Subset]:
        """Return what plays are counted under, and its subset, from plain values, or raise."""
        *segment, arms = plain
        if len(segment) != self.takes_context:
            raise BadTally("unplanned plays must have a segment exactly if the policy takes a context")
        subset = self._subset(arms)
        return key_of_play(subset, key_of(context_of(segment[0])) if segment else None), subset

    def _check_open(self) -> None:
        if self._open_plan.complete:
            raise BadTally("the plan is already complete: no plays are remaining")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.params.items())})"

    # One plan after another.

    @property
    def _open_plan(self) -> OpenPlan:
        """The plan that is being played. It is made when it is first needed: a restored policy makes one plan only."""
        if self._opened is None:
            self._opened = self._next_open_plan()
        return self._opened

    @ONE_THREAD
    def _next_open_plan(self) -> OpenPlan:
        return OpenPlan(self._next(), self._fillers_in_flight, arms="arms" in self.needs)

    def _finish_plan(self) -> None:
        """Learn from the open plan."""
        now = self._open_plan
        self._learn_from(*(now.played() if now.unplanned else (now.plan, now.observed)))

    @ONE_THREAD
    def _learn_from(self, plan: Plan, tally: Tally) -> None:
        self._learn(plan, tally)
        self.updates += 1
        self._opened = None

    def _observe(self, tally: Tally) -> None:
        """Count a checked tally in [0, 1]; learn if it completes the plan."""
        n = int(tally.count.sum())
        self.plays += n
        if n == self._open_plan.size == self._open_plan.remaining:  # the whole plan at once
            self._learn_from(self._open_plan.plan, tally)
            return
        self._open_plan.observe(tally)
        if self._open_plan.complete:
            self._finish_plan()

    # Rewards: from the user's scale to [0, 1], to be maximised.

    def _unit_change(self, other: Policy) -> tuple[float, float]:
        """Return shift and factor of the change of unit to another policy: a reward becomes shift + factor * reward."""
        low, high = other.reward_range
        moved, width = self.reward_range[0] - low, self.reward_range[1] - self.reward_range[0]
        shift, factor = moved / (high - low), width / (high - low)
        return (1 - shift - factor if self.direction == "minimize" else shift), factor

    def _scaled(self, reward: float) -> float:
        low, high = self.reward_range
        value = (reward_number(reward) - low) / (high - low)
        if not -ROUNDING <= value <= 1.0 + ROUNDING:
            raise outside_range(low, high, shown(reward))
        value = min(max(value, 0.0), 1.0)
        return value if self.direction == "maximize" else 1.0 - value

    def _subset(self, arms: Iterable[SupportsIndex]) -> Subset:
        """Return `arms` as a subset of K arms, or of fewer if this policy plays fewer."""
        k = self.k
        if "fewer" in self.needs and isinstance(arms, Iterable):
            arms = tuple(arms)
            k = min(max(1, len(arms)), k)
        return subset_of(arms, self.n_arms, k)

    def _arm_rewards(self, subset: tuple[SupportsIndex, ...], arms: Iterable[float] | None) -> FloatArray:
        """Return the reward of each arm of the sorted subset, in [0, 1]."""
        self._subset(subset)
        if not isinstance(arms, Iterable):
            raise BadReward(f"{self.name} needs the reward of each arm: tell(subset, reward, arms=rewards of its arms)")
        rewards = [self._scaled(each) for each in arms]
        if len(rewards) != len(subset):
            raise BadReward(
                f"arms must have a reward for each of the {len(subset)} arms of {subset}; got {len(rewards)}"
            )
        return np.array([reward for _, reward in sorted(zip(subset, rewards, strict=True))])

    def _normalized(self, tallies: Tally, plan: Plan | None = None) -> Tally:
        """Return the tallies in [0, 1], checked against the open plan, or against another `plan` without plays."""
        if not isinstance(tallies, Tally):
            raise BadTally(f"tell_plan takes a Tally, not {type(tallies).__name__}: Tally.of([rewards of row 0, ...])")
        low, high = self.reward_range
        if "arms" in self.needs and tallies.arms is None:
            raise BadTally(
                f"{self.name} needs the rewards of single arms: give the tally their totals, Tally(..., arms=...)"
            )
        now = self._open_plan
        observed = now.observed if plan is None and now.remaining < now.size else None
        check_tally(tallies, plan or now.plan, observed, low, high)
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
        total = np.minimum(np.maximum(total, 0.0), n)  # rounding may have pushed it out of range
        arms = None if arms is None else np.minimum(np.maximum(arms, 0.0), n[:, None])
        return Tally(n, total, np.minimum(np.maximum(squares, total * total / np.maximum(n, 1)), total), arms)


def _signature(cls: type[Policy]) -> inspect.Signature:
    """Return the parameters of `__init__`, and those that it passes on to the base classes as `**options`."""
    found: dict[str, inspect.Parameter] = {}
    for each in cls.__mro__:
        if "__init__" not in vars(each):
            continue
        _, *parameters = inspect.signature(vars(each)["__init__"]).parameters.values()
        passed_on = [parameter for parameter in parameters if parameter.kind is parameter.VAR_KEYWORD]
        for parameter in parameters:
            if parameter not in passed_on:
                found.setdefault(parameter.name, parameter)
        if each is Policy or not passed_on:
            break
    return inspect.Signature(sorted(found.values(), key=lambda parameter: parameter.kind))
