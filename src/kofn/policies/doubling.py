"""Doubling: any policy that needs a horizon, without one (the paper's "Handling unknown time horizon").

Stage l ends when 2^l plays have been made in all, and starts the inner policy anew with the stage's length as its
horizon, so that its resolution is the paper's lambda_l.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from kofn.core import BadInput, Plan, Policy, Seed, ShortHorizonWarning, Subset, Tally, seed_number, subset_of, whole
from kofn.policies.registry import make_policy, register

SHARED = ("n_arms", "k", "horizon", "reward_range", "direction")


@register
class Doubling(Policy):
    """Any policy that needs a horizon, without one: stages of doubling length, each with a new policy.

    A stage's policy is what `factory(horizon=...)` makes.

    >>> from functools import partial
    >>> from kofn import CMABSM
    >>> policy = Doubling(partial(CMABSM, n_arms=24, k=5))
    >>> policy.ask()
    (0, 1, 2, 3, 4)

    `first` is the length of the first stage. Stages too short for the inner policy to explore play an arbitrary subset.
    """

    name = "doubling"

    def __init__(self, factory: Callable[..., Policy], *, first: int = 2) -> None:
        self._factory = factory
        self._first = whole("first", first)
        self._stage = 1
        self._spent = 0
        self._earlier: Subset | None = None  # the best of the last stage
        self._inner = self._made()
        own = {name: value for name, value in self._inner.params.items() if name not in SHARED}
        for trait in ("needs", "linear_memory", "keeps_subsets", "consistent"):
            setattr(self, trait, getattr(self._inner, trait))
        super().__init__(
            self._inner.n_arms,
            self._inner.k,
            reward_range=self._inner.reward_range,
            direction=self._inner.direction,
            of=self._inner.name,
            first=self._first,
            **own,
        )
        self._begin()

    @classmethod
    def from_params(  # type: ignore[override]
        cls,
        n_arms: int,
        k: int,
        *,
        of: str = "cmab-sm",
        first: int = 2,
        horizon: int | None = None,
        seed: Seed = None,
        **params: Any,
    ) -> Self:
        """Doubling around the policy named `of`; a horizon is not needed and ignored."""
        del horizon
        number = None if seed is None else seed_number(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            one = make_policy(of, n_arms, k, horizon=first, seed=number, **params)
        number = one.params.get("seed", number)  # drawn once, and the same for all stages
        return cls(partial(make_policy, of, n_arms, k, seed=number, **params), first=first)

    def best(self) -> Subset:
        """What this stage has found, or, while it is still looking, what the last one found."""
        return self._inner.best() if self._earlier is None or self._inner.committed else self._earlier

    def _next(self) -> Plan:
        return self._inner.plan().part(self._length - self._spent)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._inner._take(tally)
        self._spent += plan.plays
        if self._spent == self._length:
            self._earlier = self.best()
            self._stage += 1
            self._spent = 0
            self._inner = self._made()

    @property
    def _length(self) -> int:
        """T_l - T_(l-1), with T_0 = 0 and T_l = first * 2^(l-1)."""
        return self._first << max(0, self._stage - 2)

    def _made(self) -> Policy:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            try:
                made = self._factory(horizon=self._length)
            except TypeError as why:
                raise BadInput(
                    f"Doubling calls its factory with horizon=, as in Doubling(partial(CMABSM, n_arms=24, k=5)): {why}"
                ) from why
        if not isinstance(made, Policy) or not made.needs_horizon:
            raise BadInput(f"Doubling takes a factory of policies that need a horizon, but it made {made!r}")
        return made

    def _state(self) -> dict[str, Any]:
        again = type(self).from_params(**self.params)._inner.params | {"horizon": self._length}
        if again != self._inner.params:
            raise BadInput("this Doubling cannot be saved: its factory gives each stage other parameters")
        return {
            "stage": self._stage,
            "spent": self._spent,
            "earlier": list(self._earlier or ()),
            "inner": self._inner.state(),
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self._stage = whole("stage", state["stage"])
        self._spent = whole("spent", state["spent"], least=0)
        if self._spent >= self._length:
            raise BadInput("its stage is already over")
        self._earlier = subset_of(state["earlier"], self.n_arms, self.k) if len(state["earlier"]) else None
        self._inner = self._made()
        self._inner.load(state["inner"])
