"""The schedule of CMAB-SM: its resolution, rounds and plays; and the base class of policies that follow it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, Unpack

from kofn.core import BadInput, Policy, PolicyOptions, Seed
from kofn.core.formula_checks import (
    MAX_PLAYS,
    MIN_RESOLUTION,
    check_arms,
    check_arms_and_k,
    check_number,
    check_plays,
    check_resolution,
)
from kofn.policies.randomised import optional_seed

Form: TypeAlias = Literal["printed", "figures", "follow-up"]


def resolution(n_arms: int, horizon: int) -> float:
    """Return the printed lambda, (256 N log(2NT) / T)^(1/3): the smallest gap worth resolving; none if 1 or more."""
    n_arms, horizon = check_arms(n_arms), check_plays(horizon)
    return math.cbrt(256 * n_arms * math.log(2 * n_arms * horizon) / horizon)


def horizon_for(n_arms: int, resolution: float) -> int:
    """Return the smallest horizon whose printed resolution is below the given one."""
    n_arms, target = check_arms(n_arms), check_number("resolution", resolution)
    if not MIN_RESOLUTION <= target <= 1:
        raise BadInput(f"resolution must be from {MIN_RESOLUTION:g} to 1; got {resolution!r}")
    if _printed(n_arms, MAX_PLAYS) >= target:
        raise BadInput(f"resolution={target:g} would take more than 1e100 plays: use a larger one")
    short, enough = 1, 2  # T / log(2NT) grows with T once 2NT > e, and lambda > 1 at T = 1
    while _printed(n_arms, enough) >= target:
        short, enough = enough, 2 * enough
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (middle, enough) if _printed(n_arms, middle) >= target else (short, middle)
    return enough


def shortest_useful_horizon(n_arms: int) -> int:
    """Return the smallest horizon at which CMAB-SM explores: its printed resolution is below 1/2."""
    return horizon_for(n_arms, 0.5)


def groups(n_arms: int, k: int) -> int:
    """Return the number of groups of K+1 arms; the last group is filled up with arms of others."""
    n_arms, k = check_arms_and_k(n_arms, k)
    return -(-n_arms // (k + 1))


def actions(n_arms: int, k: int) -> int:
    """Bound the number of different actions that CMAB-SM explores: O(N) of the C(N, K) subsets."""
    # SORT: K+1 per group. MERGE: the base and at most K new ones, however few arms G2 has: each comparison adds one
    # and fills one of K places (a single arm that loses to all of G1 needs all K).
    return (2 * groups(n_arms, k) - 1) * (k + 1)


@dataclass(frozen=True, init=False)
class Schedule:
    """The schedule of CMAB-SM: after round r, each action has `plays[r]` plays and an estimate within `radius[r]`.

    >>> schedule = Schedule(n_arms=24, k=2, horizon=10**6)
    >>> schedule.rounds, schedule.radius, schedule.plays
    (1, [1.0, 0.5, 0.25], [36, 142, 566])

    SORT has rounds 1 to `rounds`, those whose radius is above the resolution, and MERGE 1 to `merge_rounds`; the lists
    have one more entry at either end. The `printed` form follows the paper's text. The `figures` form reproduces its
    figures (docs/background/paper.md): fewer plays per round, more rounds, and one more round of MERGE than SORT. The
    `follow-up` form has lambda without the 256, and the n_r of the proofs: it fits the authors' later curves.
    """

    n_arms: int
    k: int
    horizon: int
    resolution: float
    form: Form
    rounds: int = field(compare=False)
    merge_rounds: int = field(compare=False)
    radius: list[float] = field(repr=False, compare=False)
    plays: list[int] = field(repr=False, compare=False)

    def __init__(
        self, n_arms: int, k: int, horizon: int, resolution: float | None = None, form: Form = "printed"
    ) -> None:
        n_arms, k = check_arms_and_k(n_arms, k)
        horizon = check_plays(horizon)
        if form not in ("printed", "figures", "follow-up"):
            raise BadInput(f"schedule must be 'printed', 'figures' or 'follow-up'; got {form!r}")
        default = default_resolution(n_arms, k, horizon, form)
        resolution = default if resolution is None else check_resolution(resolution)
        rounds = max(0, -math.frexp(resolution)[1])  # how many r >= 1 have 2^-r > resolution
        merge_rounds = rounds + 1 if form == "figures" and rounds else rounds
        rate = _rate(n_arms, k, horizon, form)
        most = int(math.log2(2**61 / (actions(n_arms, k) * (rate + 1))) // 2)
        if merge_rounds > most:
            raise BadInput(
                f"a resolution of {resolution:g} takes {merge_rounds} rounds, whose plays do not fit in 64 bits: "
                f"use at least {2.0 ** -(most + 1 - merge_rounds + rounds):g}"
            )
        radius = [2.0**-r for r in range(merge_rounds + 2)]
        values: dict[str, Any] = {"n_arms": n_arms, "k": k, "horizon": horizon, "resolution": resolution, "form": form}
        values |= {"rounds": rounds, "merge_rounds": merge_rounds, "radius": radius}
        values["plays"] = [math.ceil(rate / each**2) for each in radius]
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def sort_plays(self) -> int:
        """The maximum plays of all SORTs: K+1 actions per group, each up to the last round."""
        return groups(self.n_arms, self.k) * (self.k + 1) * self._last(self.rounds)

    @property
    def merge_plays(self) -> int:
        """The maximum plays of all MERGEs: the base and K new actions per merge, each up to the last round."""
        return (groups(self.n_arms, self.k) - 1) * (self.k + 1) * self._last(self.merge_rounds)

    @property
    def exploration_plays(self) -> int:
        """The maximum plays of exploration."""
        return self.sort_plays + self.merge_plays

    @property
    def guaranteed_gap(self) -> float:
        """The difference in mean reward above which two subsets that differ in one arm are ranked correctly.

        It holds while every estimate is within its radius (`estimate_error`). 1 means that no difference is guaranteed.
        """
        # If two estimates within their radii are in the wrong order, the true means are at most two radii apart.
        return min(1.0, 2 * self.radius[self.rounds])

    @property
    def estimate_error(self) -> float:
        """A bound on the probability that any estimate of any round is off by more than its radius."""
        # Hoeffding: 2 exp(-2 n_r Delta_r^2) for one; the union is over actions and rounds. Printed: 2 (TNK)^-4 for one.
        one = 2 * math.exp(-2 * _rate(self.n_arms, self.k, self.horizon, self.form))
        return min(1.0, one * actions(self.n_arms, self.k) * self.merge_rounds)

    def no_round(self, policy: str) -> str:
        """Return the message for a schedule without a round: nothing is explored, and what to do about it."""
        if self.resolution != default_resolution(self.n_arms, self.k, self.horizon, self.form):
            return f"a resolution of {self.resolution:g} leaves no round of exploration: use one below 0.5"
        return (
            f"a horizon of {self.horizon:,} plays is too short for {policy} to explore {self.n_arms} arms: it will "
            f"play an arbitrary subset. The shortest useful horizon is {shortest_useful_horizon(self.n_arms):,}; "
            f"or set a resolution below 0.5"
        )

    def _last(self, rounds: int) -> int:
        return self.plays[rounds] if rounds else 0


def default_resolution(n_arms: int, k: int, horizon: int, form: Form) -> float:
    """Return the lambda of each form: the printed one, or for the follow-up (N log(2NT) / T)^(1/3), without its 256.

    For the figures (N sqrt(K) log(2NT) / (80 T))^(1/3), fitted to the lengths of exploration in the published curves.
    """
    factor = {"printed": 256.0, "figures": math.sqrt(k) / 80, "follow-up": 1.0}[form]
    return math.cbrt(factor * n_arms * math.log(2 * n_arms * horizon) / horizon)


def _rate(n_arms: int, k: int, horizon: int, form: Form) -> float:
    """Return n_r Delta_r^2, before rounding up."""
    if form == "printed":
        return 2 * math.log(horizon * n_arms * k)
    return math.log(2 * n_arms * horizon) / (3 if form == "figures" else 1)


def affordable_resolution(n_arms: int, k: int, horizon: int, share: float = 0.1) -> float:
    """Return the finest resolution at which learning takes at most this share of the horizon; 0.5 (no round) if none.

    The printed lambda is too cautious by orders of magnitude; this one follows from the number of plays.
    """
    n_arms, k = check_arms_and_k(n_arms, k)
    horizon = check_plays(horizon)
    if not 0 < check_number("share", share) <= 1:
        raise BadInput(f"share must be above 0 and at most 1, a part of the horizon; got {share!r}")
    allowed = min(share * horizon, 2**58) / actions(n_arms, k)
    rounds = 0
    while math.ceil(2 * math.log(horizon * n_arms * k) * 4 ** (rounds + 1)) <= allowed:
        rounds += 1
    return 2.0 ** -(rounds + 1)


def _printed(n_arms: int, horizon: int) -> float:
    return resolution(n_arms, horizon)


class ScheduledOptions(PolicyOptions, total=False):
    """The options of every scheduled policy."""

    resolution: float | None
    schedule: Form
    seed: Seed


class Scheduled(Policy):
    """A policy that plays the rounds of `self.schedule` with the given resolution."""

    needs_horizon = True

    def __init__(
        self,
        n_arms: int,
        k: int,
        horizon: int,
        *,
        resolution: float | None = None,
        schedule: Form = "printed",
        seed: Seed = None,
        **options: Unpack[PolicyOptions],
    ) -> None:
        self.schedule = Schedule(n_arms, k, horizon, resolution, schedule)
        resolution = None if resolution is None else self.schedule.resolution
        own = {"resolution": resolution, "schedule": schedule, "seed": optional_seed(seed)}
        super().__init__(n_arms, k, horizon=self.schedule.horizon, **own, **options)
