"""Policies that obey constraints: what they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kofn.constraints import Constraints
from kofn.constraints.allowed import Allowed
from kofn.core import BadInput, Policy, Subset, subset_of, whole


def changed_arms(
    policy: Policy, keep: Sequence[int], added: int, constraints: Any
) -> tuple[Subset, int, Constraints | None]:
    """Return the arms that a policy keeps, the number of new ones, and the rules for all arms after the change.

    Without `constraints`, the present rules stay, with the new numbers of the arms.
    """
    if not isinstance(keep, Sequence) or not keep:
        raise BadInput(f"keep must be a list of at least one arm; got {keep!r}")
    added, kept = whole("added", added, least=0), subset_of(keep, policy.n_arms, len(keep))
    if constraints is None and policy.constraints is not None:
        constraints = policy.constraints.renumbered(kept)
    return kept, added, None if constraints is None else Constraints.of(constraints)


class Constrained(Policy):
    """A policy that plays allowed subsets only; `constraints` are `kofn.Constraints`, or their plain values."""

    takes_constraints = "all"
    _allowed: Allowed | None

    def __init__(self, n_arms: int, k: int, *, constraints: Any = None, **params: Any) -> None:
        rules = None if constraints is None else Constraints.of(constraints)
        self._allowed = None if rules is None else rules.allowed(n_arms, k)
        if self.takes_constraints == "fixed" and self._allowed is not None and not self._allowed.is_fixed:
            raise BadInput(
                f"{self.name} takes only rules that say which arms are always in or never in: "
                f"{self.refuses_constraints}. Use thompson, which obeys all"
            )
        super().__init__(n_arms, k, constraints=rules, **params)
