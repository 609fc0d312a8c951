"""What learning will cost: simulated for `thompson`, and what the CMAB-SM paper proves.

N, K, T are `n_arms`, `k`, `horizon`; lambda is `resolution`; Delta_r and n_r are `radius[r]` and `plays[r]`; U is
`lipschitz`, the constant of Corollary 2, which is at least 1 and rarely known. Names of lemmas and sections are those
of the paper (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021). docs/background/theory.md explains what each number
guarantees, and where the paper's numbers disagree.
"""

from kofn.lab.theory.bounds import (
    bounds_cross_at,
    doubling_loss,
    error_probability,
    exploitation_regret_bound,
    exploration_bound,
    group_bound,
    log_subsets,
    proven_from,
    regret_bound,
    time_to_try_all,
    ucb_regret_bound,
    ucb_wins_from,
)
from kofn.lab.theory.cost import YEAR, LearningBudget, learning_budget
from kofn.lab.theory.simulated import FamilyBudget, ThompsonBudget, thompson_budget
from kofn.policies.schedule import (
    Schedule,
    actions,
    affordable_resolution,
    default_resolution,
    groups,
    horizon_for,
    resolution,
    shortest_useful_horizon,
)

__all__ = [
    "YEAR",
    "FamilyBudget",
    "LearningBudget",
    "Schedule",
    "ThompsonBudget",
    "actions",
    "affordable_resolution",
    "bounds_cross_at",
    "default_resolution",
    "doubling_loss",
    "error_probability",
    "exploitation_regret_bound",
    "exploration_bound",
    "group_bound",
    "groups",
    "horizon_for",
    "learning_budget",
    "log_subsets",
    "proven_from",
    "regret_bound",
    "resolution",
    "shortest_useful_horizon",
    "thompson_budget",
    "time_to_try_all",
    "ucb_regret_bound",
    "ucb_wins_from",
]
