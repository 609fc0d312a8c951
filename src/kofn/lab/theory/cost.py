"""What learning will cost, before anything is played."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from kofn.core.formula_checks import check_lipschitz
from kofn.lab.theory.bounds import (
    bounds_cross_at,
    doubling_loss,
    error_probability,
    exploitation_regret_bound,
    exploration_bound,
    log_subsets,
    proven_from,
    regret_bound,
    time_to_try_all,
    ucb_regret_bound,
    ucb_wins_from,
)
from kofn.lab.theory.simulated import ThompsonBudget, thompson_budget
from kofn.policies.schedule import Schedule, affordable_resolution, groups, shortest_useful_horizon

YEAR = 365.25 * 24 * 3600
"""Length of a year in seconds."""


@dataclass(frozen=True, kw_only=True)
class LearningBudget:
    """What learning will cost; `learning_budget` makes it, and `verdict` summarises it.

    `thompson` is for the default policy; the other numbers are for CMAB-SM. `error_probability` is None if its schedule
    explores nothing.
    """

    n_arms: int
    k: int
    horizon: int
    thompson: ThompsonBudget
    lipschitz: float
    resolution: float
    rounds: int
    plays: list[int]  # of each action, by the end of rounds 1 to `rounds`
    guaranteed_gap: float
    groups: int
    sort_plays: int
    merge_plays: int
    exploration_plays: int
    exploration_share: float
    exploration_bound: float
    estimate_error: float
    error_probability: float | None
    exploitation_regret_bound: float
    regret_bound: float
    proven_from: int
    shortest_useful_horizon: int
    affordable_resolution: float
    doubling_loss: float
    log10_subsets: float
    seconds_to_try_all: float
    ucb_regret_bound: float
    ucb_wins_from: float
    bounds_cross_at: float

    @property
    def verdict(self) -> str:
        """The costs of `thompson`, then of CMAB-SM, in a few sentences."""
        return f"{self.thompson.verdict} {self.cmab_sm_verdict}"

    @property
    def cmab_sm_verdict(self) -> str:
        """Whether the horizon is long enough for CMAB-SM, how long it explores, and what it can distinguish."""
        proof = f"The paper's regret bound is {self.regret_bound:,.0f}."
        if self.regret_bound >= self.horizon:
            proof = (
                "The paper's regret bound is void at this horizon; with its own resolution, it holds from "
                f"{self.proven_from:,} plays."
            )
        tries = _duration(self.seconds_to_try_all)
        return f"CMAB-SM: {self._learning} {proof} Trying every subset once would take {tries} at one play per second."

    @property
    def _learning(self) -> str:
        finer = f"resolution={self.affordable_resolution:g} would use at most a tenth of the horizon"
        if not self.rounds:
            return (
                f"too {'short' if self.horizon < self.shortest_useful_horizon else 'coarse'}. Its resolution of "
                f"{self.resolution:.3g} is not below 0.5, so it explores nothing and plays an arbitrary subset. "
                f"The shortest useful horizon for {self.n_arms:,} arms is {self.shortest_useful_horizon:,} plays"
                f"{f'; {finer}' if self.affordable_resolution < 0.5 else ''}."
            )
        cost = f"{self.exploration_plays:,} plays in {self.rounds} round{'s' if self.rounds > 1 else ''}"
        if self.exploration_plays > self.horizon:
            return f"too short for a resolution of {self.resolution:.3g}. Learning may take {cost}."
        if self.guaranteed_gap < 1:
            detects = (
                f"detects every swap of one arm that changes the mean reward by more than {self.guaranteed_gap:.3g}"
            )
        else:
            detects = f"ranks arms by means of {self.plays[-1]:,} plays, without a guaranteed difference"
        enough = "long enough" if self.guaranteed_gap < 1 else "barely long enough"
        return (
            f"{enough}. Learning takes at most {cost}, {self.exploration_share:.2%} of the horizon, and {detects}"
            f"{f'; {finer}' if self.affordable_resolution < self.resolution else ''}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything and the verdict as plain values, ready for JSON; numbers above 1e308 are None."""
        plain = {name: None if value == math.inf else value for name, value in asdict(self).items()}
        return {**plain, "thompson": self.thompson.to_dict(), "verdict": self.verdict}


def learning_budget(
    n_arms: int, k: int, horizon: int, *, lipschitz: float = 1.0, resolution: float | None = None
) -> LearningBudget:
    """Return what learning will cost on problems of this size: for `thompson`, and for CMAB-SM with its bounds.

    >>> learning_budget(n_arms=30, k=15, horizon=10**6).shortest_useful_horizon
    1106606
    """
    s, u = Schedule(n_arms, k, horizon, resolution), check_lipschitz(lipschitz)
    n_arms, k, horizon = s.n_arms, s.k, s.horizon
    return LearningBudget(
        n_arms=n_arms,
        k=k,
        horizon=horizon,
        thompson=thompson_budget(n_arms, k, horizon),
        lipschitz=u,
        resolution=s.resolution,
        rounds=s.rounds,
        plays=s.plays[1 : s.rounds + 1],
        guaranteed_gap=s.guaranteed_gap,
        groups=groups(n_arms, k),
        sort_plays=s.sort_plays,
        merge_plays=s.merge_plays,
        exploration_plays=s.exploration_plays,
        exploration_share=s.exploration_plays / horizon,
        exploration_bound=exploration_bound(n_arms, horizon, u, resolution),
        estimate_error=s.estimate_error,
        error_probability=error_probability(n_arms, horizon) if s.rounds else None,
        exploitation_regret_bound=exploitation_regret_bound(n_arms, k, horizon, u, resolution),
        regret_bound=regret_bound(n_arms, k, horizon, u, resolution),
        proven_from=proven_from(n_arms, k, u),
        shortest_useful_horizon=shortest_useful_horizon(n_arms),
        affordable_resolution=affordable_resolution(n_arms, k, horizon),
        doubling_loss=doubling_loss(),
        log10_subsets=log_subsets(n_arms, k) / math.log(10),
        seconds_to_try_all=time_to_try_all(n_arms, k),
        ucb_regret_bound=ucb_regret_bound(n_arms, k, horizon),
        ucb_wins_from=ucb_wins_from(n_arms, k),
        bounds_cross_at=bounds_cross_at(n_arms, k, u),
    )


def _duration(seconds: float) -> str:
    units = [(YEAR, "years"), (86400, "days"), (3600, "hours"), (60, "minutes"), (1, "seconds")]
    size, unit = next(each for each in units if seconds >= each[0])
    amount = seconds / size
    if amount == math.inf:
        return "more than 1e300 years"
    return (
        f"{amount:.1e} {unit}"
        if amount >= 1e6
        else f"{amount:,.3g} {unit}"
        if amount < 1000
        else f"{amount:,.0f} {unit}"
    )
