"""What learning will cost: simulated for `thompson`, and what the CMAB-SM paper proves.

N, K, T are `n_arms`, `k`, `horizon`; lambda is `resolution`; Delta_r and n_r are `radius[r]` and `plays[r]`; U is
`lipschitz`, the constant of Corollary 2, which is at least 1 and rarely known. Names of lemmas and sections are those
of the paper (Agarwal, Aggarwal, Quinn, Umrawal, ALT 2021). docs/background/theory.md explains what each number
guarantees, and where the paper's numbers disagree.
"""

from kofn.theory.bounds import (
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
from kofn.theory.cost import YEAR, Budget, budget
from kofn.theory.forecast import FamilyForecast, Forecast, thompson_forecast
from kofn.theory.schedule import (
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
    "Budget",
    "FamilyForecast",
    "Forecast",
    "Schedule",
    "actions",
    "affordable_resolution",
    "bounds_cross_at",
    "budget",
    "default_resolution",
    "doubling_loss",
    "error_probability",
    "exploitation_regret_bound",
    "exploration_bound",
    "group_bound",
    "groups",
    "horizon_for",
    "log_subsets",
    "proven_from",
    "regret_bound",
    "resolution",
    "shortest_useful_horizon",
    "thompson_forecast",
    "time_to_try_all",
    "ucb_regret_bound",
    "ucb_wins_from",
]
