"""Oracle: the best subset from the first play on, the upper end of every comparison."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from kofn.core import BadInput, BadRecord, Plan, PolicyOptions, Subset, Tally, subset_of
from kofn.core.fields import Fields, subset
from kofn.policies.constrained import Constrained

PLAYS = 1_000_000
"""Plays of one plan. Any number works, since nothing is learned from them."""


class Oracle(Constrained):
    """Play the best subset, which is given as `best`.

    >>> policy = Oracle(n_arms=24, k=3, best=(2, 7, 19))
    >>> policy.ask()
    (2, 7, 19)
    """

    name = "oracle"
    needs = frozenset({"best"})
    fields = Fields(best=subset())

    def __init__(
        self, n_arms: int, k: int, *, best: Iterable[int] | None = None, **options: Unpack[PolicyOptions]
    ) -> None:
        super().__init__(n_arms, k, **options)
        if best is None:
            raise BadInput("oracle needs the best subset: give it as best=, for instance best=problem.best")
        self._best = subset_of(best, self.n_arms, self.k)
        if self._allowed is not None and not self._allowed.allows([self._best])[0]:
            broken = "; ".join(map(str, self.constraints.broken(self._best)))
            raise BadInput(f"best={self._best} must obey the constraints; it breaks: {broken}")
        self._params["best"] = list(self._best)

    def best(self) -> Subset:
        """Return the subset that it was given."""
        return self._best

    @property
    def committed(self) -> bool:
        """Always: there is nothing to explore."""
        return True

    def _next(self) -> Plan:
        return Plan.one(self._best, PLAYS)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        """Learn nothing."""

    def _loaded(self) -> None:
        if list(self._best) != self._params["best"]:
            raise BadRecord(f"best must be {tuple(self._params['best'])}, as in params; got {self._best}")
