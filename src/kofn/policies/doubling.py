"""Doubling: any policy that needs a horizon, without one (the paper's "Handling unknown time horizon").

Stage l ends when 2^l plays have been made in all. Each stage creates a new inner policy with the stage's length as its
horizon, so that its resolution is the paper's lambda_l.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from kofn.core import BadInput, BadRecord, Plan, Policy, Seed, ShortHorizonWarning, Subset, Tally, whole
from kofn.core.fields import Field, Fields, integer, subset
from kofn.policies.randomised import optional_seed
from kofn.policies.registry import make_policy

SHARED = ("n_arms", "k", "horizon", "reward_range", "direction")
"""Parameters of the inner policy that are not repeated in the record."""


def _load_inner(_: str, state: Any, policy: Any) -> Policy:
    inner: Policy = policy._made()
    inner.load(state)
    return inner


class Doubling(Policy):
    """Any policy that needs a horizon, without one: stages of doubling length, each with a new policy.

    `factory(horizon=...)` creates the policy of a stage.

    >>> from functools import partial
    >>> from kofn import CMABSM
    >>> policy = Doubling(partial(CMABSM, n_arms=24, k=5))
    >>> policy.ask()
    (0, 1, 2, 3, 4)

    `first` is the length of the first stage. A stage that is too short for the inner policy to explore plays an
    arbitrary subset.
    """

    name = "doubling"
    takes_constraints = "fixed"  # as for cmab-sm, its default inner policy
    fields = Fields(
        stage=integer(1), spent=integer(), earlier=subset(optional=True), inner=Field(Policy.state, _load_inner)
    )

    def __init__(self, factory: Callable[..., Policy], *, first: int = 2) -> None:
        self._factory = factory
        self._first = whole("first", first)
        self._stage = 1
        self._spent = 0
        self._earlier: Subset | None = None  # the best of the stage before
        self._inner = self._made()
        for trait in ("needs", "linear_memory", "keeps_subsets", "consistent", "takes_constraints"):
            setattr(self, trait, getattr(self._inner, trait))
        inner = self._inner.params
        super().__init__(inner["n_arms"], inner["k"], reward_range=inner["reward_range"], direction=inner["direction"])
        self.constraints = self._inner.constraints
        own = {name: value for name, value in inner.items() if name not in SHARED}
        self._params = {"of": self._inner.name, "first": self._first, **own}

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
        """Return a Doubling of the policy named `of`; a horizon is accepted and ignored."""
        del horizon
        number = optional_seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ShortHorizonWarning)
            one = make_policy(of, n_arms, k, horizon=first, seed=number, **params)
        number = one.params.get("seed", number)  # drawn once, for all stages
        return cls(partial(make_policy, of, n_arms, k, seed=number, **params), first=first)

    def best(self) -> Subset:
        """Return the best of this stage or, while it explores, of the stage before."""
        return self._inner.best() if self._earlier is None or self._inner.committed else self._earlier

    def _next(self) -> Plan:
        return self._inner.plan().part(self._length - self._spent)

    def _learn(self, plan: Plan, tally: Tally) -> None:
        self._inner._observe(tally)
        self._spent += plan.plays
        if self._spent == self._length:
            self._earlier = self.best()
            self._stage += 1
            self._spent = 0
            self._inner = self._made()

    @property
    def _length(self) -> int:
        """The length of the stage, T_l - T_(l-1), with T_0 = 0 and T_l = first * 2^(l-1)."""
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
            raise BadInput(f"the factory of Doubling must create a policy that needs a horizon; it created {made!r}")
        return made

    def _state(self) -> dict[str, Any]:
        again = type(self).from_params(**self.params)._inner.params | {"horizon": self._length}
        if again != self._inner.params:
            raise BadInput("this Doubling cannot be saved: its factory gives each stage other parameters")
        return super()._state()

    def _loaded(self) -> None:
        if self._spent >= self._length:
            raise BadRecord(f"spent must be less than {self._length}, the length of its stage; got {self._spent}")
