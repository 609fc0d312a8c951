"""Which policy `choose` uses: a table of budgets and sizes, from measurements."""

from __future__ import annotations

import math
from typing import NamedTuple


class Rule(NamedTuple):
    """A row of the table: up to which budget and number of candidates it applies, the policy, and the reason."""

    most_budget: float
    most_candidates: float
    policy: str
    reason: str


RULES = (
    Rule(math.inf, math.inf, "thompson", "on average among the lowest losses measured, at budgets of 100 to 10,000"),
)
"""The first row that applies is used; the last one always applies."""


def policy_for(budget: int, n_candidates: int) -> Rule:
    """Return the first rule for this budget and number of candidates."""
    return next(rule for rule in RULES if budget <= rule.most_budget and n_candidates <= rule.most_candidates)
