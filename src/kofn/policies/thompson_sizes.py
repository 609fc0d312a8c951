"""Thompson sampling for subsets of different sizes: K places, of which some may stay empty.

Each place that may be empty is a further arm of the default policy, one that costs nothing. These arms are
interchangeable, and nobody sees them: what a play of a subset with empty places earns is shared evenly among the ways
to fill them. Rewards become net of costs before they are learned from.
docs/reference/policies/thompson-sizes.md has the reasons and the measurements.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Self, SupportsIndex, Unpack

import numpy as np

from kofn.constraints import Constraints
from kofn.core import (
    BadInput,
    FloatArray,
    Insight,
    IntArray,
    Plan,
    Subset,
    Tally,
    check_costs,
    net_range,
    subset_of,
    whole,
)
from kofn.core.fields import Fields, inner_policy
from kofn.policies.constrained import changed_arms
from kofn.policies.randomised import Randomised, SeededOptions
from kofn.policies.thompson import Thompson
from kofn.policies.thompson.costs import recharged


class ThompsonSizes(Randomised):
    """The default policy for subsets of `fewest` to K arms, where arms cost something.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> p, costs = np.array([0.9, 0.8, 0.3, 0.2, 0.1]), [0.1, 0.1, 0.4, 0.4, 0.4]
    >>> policy = ThompsonSizes(n_arms=5, k=3, fewest=1, costs=costs, reward_range=(0, 3), seed=1)
    >>> for _ in range(3_000):
    ...     subset = policy.ask()
    ...     policy.tell(subset, (rng.random(len(subset)) < p[list(subset)]).sum())
    >>> policy.best()
    (0, 1)

    `costs` has what each arm costs, in units of the reward: it is subtracted from each reward, or added if rewards are
    minimised. Without it, tell rewards that are net of costs. `fewest` is K by default, and `half_life` and
    `constraints` work as in `Thompson`. `insight()` is about net rewards.
    """

    name = "thompson-sizes"
    version = 2
    takes_fewest = True
    takes_constraints = "all"
    accepts_unplanned = True
    fields = Fields(inner=inner_policy())

    def __init__(
        self,
        n_arms: int,
        k: int,
        *,
        fewest: int | None = None,
        costs: Sequence[float] | FloatArray | None = None,
        half_life: int | None = None,
        **options: Unpack[SeededOptions],
    ) -> None:
        given = options.get("constraints")
        options["constraints"] = rules = None if given is None else Constraints.of(given)
        super().__init__(n_arms, k, fewest=fewest, costs=costs, half_life=half_life, **options)
        self.fewest = self.k if fewest is None else whole("fewest", fewest)
        if self.fewest > self.k:
            raise BadInput(f"fewest must be at most k; got fewest={fewest} and k={k}")
        self._empties = self.k - self.fewest
        if rules is not None:
            rules.allowed(self.n_arms, self.k, fewest=self.fewest)  # refused if they clash
        if self._empties:
            setattr(self, "needs", frozenset({"fewer"}))  # noqa: B010 (a class variable of other policies)
        self._costs = np.zeros(self.n_arms) if costs is None else check_costs(costs, self.n_arms)
        self._params |= {"fewest": self.fewest, "costs": None if costs is None else self._costs.tolist()}
        self._inner = Thompson(
            self.n_arms + self._empties,
            self.k,
            half_life=half_life,
            constraints=self._shifted(rules),
            reward_range=net_range(self.reward_range, self.direction, self._costs, self.fewest, self.k),
            direction=self.direction,
            seed=self._params["seed"],
        )

    def best(self) -> Subset:
        """Return the incumbent of the default policy: the best of the subsets that were played."""
        if not self._inner.updates and self.constraints is None:
            return tuple(range(self.k))
        return self._without_empties(self._inner.best())

    def filler(self, index: int, segment: str | None = None) -> Subset:
        """Return another draw, so that plays made while rewards are late are learned from too."""
        del segment
        return self._without_empties(self._inner.filler(index))

    def insight(self) -> Insight | None:
        """Return what is known about the best subset and each arm, net of costs."""
        if (found := self._inner.insight()) is None:
            return None
        own = {name: getattr(found, name)[self._empties :] for name in ("effects", "lows", "highs")}
        return replace(found, **own)

    def with_arms(
        self, keep: Sequence[int], added: int = 0, constraints: Any = None, costs: Sequence[float] | None = None
    ) -> Self:
        """Return a policy with these arms and `added` new ones; it keeps all that is known about the arms it keeps.

        `constraints` are the rules for all arms after the change, as for `Thompson`. `costs` are the costs of the new
        arms; 0 by default.
        """
        kept, added, rules = changed_arms(self, keep, added, constraints)
        changes: dict[str, Any] = {"n_arms": len(kept) + added, "constraints": rules}
        if costs is not None or self._params["costs"] is not None:
            new = np.zeros(added) if costs is None else check_costs(costs, added)
            changes["costs"] = np.append(self._costs[list(kept)], new).tolist()
        inside = [*range(self._empties), *(self._empties + arm for arm in kept)]
        inner = self._informed_inner().with_arms(inside, added, self._shifted(rules))
        return self._continued(inner, type(self)(**{**self.params, **changes}))

    def with_params(self, **changes: Any) -> Self:
        """Return a policy with other parameters that keeps what is known.

        These can change: `reward_range`, `half_life`, `constraints` and `costs`. What was learned about an arm changes
        with its cost. It is a little less certain then, and alarms begin again.
        """
        if unknown := sorted(changes.keys() - {"reward_range", "half_life", "constraints", "costs"}):
            raise BadInput(
                f"{', '.join(unknown)} cannot change while the policy runs: reward_range, half_life, constraints and "
                "costs can"
            )
        fresh = type(self)(**{**self.params, **changes})
        inner = {name: value for name, value in changes.items() if name == "half_life"}
        if "constraints" in changes:
            inner["constraints"] = fresh._inner.constraints
        if "reward_range" in changes:
            inner["reward_range"] = net_range(fresh.reward_range, self.direction, self._costs, self.fewest, self.k)
        known = self._informed_inner().with_params(**inner)
        if (more := fresh._costs - self._costs).any():
            known = recharged(known, np.append(np.zeros(self._empties), more), fresh._inner.reward_range)
        return self._continued(known, fresh)

    def _continued(self, inner: Thompson, fresh: Self) -> Self:
        """Return the policy with changed parameters, continuing with this inner one."""
        if inner.reward_range != fresh._inner.reward_range:  # costs of new arms
            inner = inner.with_params(reward_range=fresh._inner.reward_range)
        fresh._inner, fresh.plays, fresh.updates = inner, self.plays, self.updates + 1
        return fresh

    def _informed_inner(self) -> Thompson:
        """Return a copy of the inner policy that has learned from the observed part of the open plan too."""
        inner = copy.deepcopy(self._inner)
        plan, tally = self._open_plan.played()
        if len(plan):
            inner._learn_from(*self._inner_plays(plan, tally))
        return inner

    def _next(self) -> Plan:
        plan = self._inner.plan()
        if not self._empties:
            return plan
        rows, which = np.unique(self._shown(plan.subsets), axis=0, return_inverse=True)
        times = np.bincount(which.reshape(-1), plan.times).astype(np.int64)
        return Plan(rows, times)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._inner._learn_from(*self._inner_plays(plan, tally))

    # Conversion between the caller's arms and the inner policy's arms, which begin with the empty places.

    def _shifted(self, rules: Constraints | None) -> Constraints | None:
        if rules is None:
            return None
        return Constraints(*(rule.renamed(lambda arm: int(arm) + self._empties) for rule in rules))

    def _without_empties(self, subset: Subset) -> Subset:
        return tuple(arm - self._empties for arm in subset if arm >= self._empties)

    def _shown(self, subsets: IntArray) -> IntArray:
        """Return the inner policy's subsets as the caller sees them: empty places are -1, at the end."""
        last = self.n_arms
        rows = np.sort(np.where(subsets < self._empties, last, subsets - self._empties), axis=1)
        return np.where(rows == last, -1, rows)

    def _inner_plays(self, plan: Plan, tally: Tally) -> tuple[Plan, Tally]:
        """Return plays as the inner policy learns from them: net of costs, with empty places filled.

        With j of e empty places, there are e ways to fill them that treat them alike: places s, s + 1, ... modulo e.
        Each gets an equal share of the plays; single plays that are left take turns.
        """
        rows, tally = plan.subsets, self._net_tally(plan.subsets, tally)
        if not self._empties:
            return Plan(rows, tally.count), tally
        number, e = (rows < 0).sum(axis=1), self._empties
        ways = np.where((number > 0) & (number < e), e, 1)
        turn = self.updates + np.arange(len(rows))
        parts: list[tuple[IntArray, Tally]] = []
        for way in range(e):
            share = (tally.count + (way - turn) % ways) // ways * (way < ways)
            live = np.flatnonzero(share)
            part = share[live] / tally.count[live]
            place = (way + np.cumsum(rows[live] < 0, axis=1) - 1) % e
            filled = np.sort(np.where(rows[live] < 0, place, rows[live] + e), axis=1)
            parts.append((filled, Tally(share[live], part * tally.total[live], part * tally.squares[live])))
        subsets = np.concatenate([each for each, _ in parts])
        both = Tally(*(np.concatenate([getattr(each, name) for _, each in parts]) for name in SUMS))
        return Plan(subsets, both.count), both

    def _net_tally(self, rows: IntArray, tally: Tally) -> Tally:
        """Return rewards in [0, 1] of the caller's range as net rewards in [0, 1] of the inner policy's range."""
        (low, high), (least, most) = self.reward_range, self._inner.reward_range
        by = (high - low) / (most - least)
        largest = float(np.sort(self._costs)[self.n_arms - self.k :].sum())
        cost = np.where(rows < 0, 0.0, self._costs[rows]).sum(axis=1)
        plus: FloatArray = (largest - cost) / (most - least)
        n, total, squares = tally.count, tally.total, tally.squares
        return Tally(n, by * total + plus * n, by * by * squares + 2 * by * plus * total + plus * plus * n)

    def _subset(self, arms: Iterable[SupportsIndex]) -> Subset:
        given = tuple(arms) if isinstance(arms, Iterable) else ()
        return subset_of(given or arms, self.n_arms, min(max(self.fewest, len(given)), self.k))


SUMS = ("count", "total", "squares")
