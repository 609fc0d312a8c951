"""The tables of CMAB-SM: how fine, how many rounds, how many plays."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from kofn.core import BadInput
from kofn.theory.arguments import FINEST, LONGEST, a_number, a_resolution, some_arms, some_plays, some_sizes

Form: TypeAlias = Literal["printed", "figures", "follow-up"]


def resolution(n_arms: int, horizon: int) -> float:
    """The printed lambda, (256 N log(2NT) / T)^(1/3): the smallest gap worth resolving. 1 or more: nothing is."""
    n_arms, horizon = some_arms(n_arms), some_plays(horizon)
    return math.cbrt(256 * n_arms * math.log(2 * n_arms * horizon) / horizon)


def horizon_for(n_arms: int, resolution: float) -> int:
    """The smallest horizon whose printed resolution is below the one given."""
    n_arms, wanted = some_arms(n_arms), a_number("resolution", resolution)
    if not FINEST <= wanted <= 1:
        raise BadInput(f"resolution must lie from {FINEST:g} to 1, not {resolution!r}")
    if _printed(n_arms, LONGEST) >= wanted:
        raise BadInput(f"resolution={wanted:g} would take more than 1e100 plays: give a larger one")
    short, enough = 1, 2  # T / log(2NT) grows with T once 2NT > e, and lambda > 1 at T = 1
    while _printed(n_arms, enough) >= wanted:
        short, enough = enough, 2 * enough
    while enough - short > 1:
        middle = (short + enough) // 2
        short, enough = (middle, enough) if _printed(n_arms, middle) >= wanted else (short, middle)
    return enough


def shortest_useful_horizon(n_arms: int) -> int:
    """The smallest horizon that gives CMAB-SM a round to explore in: its printed resolution is below 1/2."""
    return horizon_for(n_arms, 0.5)


def groups(n_arms: int, k: int) -> int:
    """The number of groups of K+1 arms; the last is padded with arms of others."""
    n_arms, k = some_sizes(n_arms, k)
    return -(-n_arms // (k + 1))


def actions(n_arms: int, k: int) -> int:
    """The number of different actions that CMAB-SM plays to learn, at the most: O(N) of the C(N, K) subsets."""
    # SORT: K+1 a group. MERGE: the base and at most K new ones, however few arms G2 has, for each comparison brings one
    # and fills one of K places (a single arm that loses to all of G1 takes all K).
    return (2 * groups(n_arms, k) - 1) * (k + 1)


@dataclass(frozen=True, init=False)
class Schedule:
    """The tables of CMAB-SM: after round r, each action has been played `plays[r]` times and is known to `radius[r]`.

    >>> schedule = Schedule(n_arms=24, k=2, horizon=10**6)
    >>> schedule.rounds, schedule.radius, schedule.plays
    (1, [1.0, 0.5, 0.25], [36, 142, 566])

    SORT has rounds 1 to `rounds`, those whose radius is above the resolution, and MERGE 1 to `merge_rounds`; the tables
    go one further on either side. The `printed` form is the paper's text. The `figures` form is what reproduces its
    figures (docs/background/paper.md): fewer plays a round, more rounds, and MERGE goes one deeper than SORT. The
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
        n_arms, k = some_sizes(n_arms, k)
        horizon = some_plays(horizon)
        if form not in ("printed", "figures", "follow-up"):
            raise BadInput(f"a schedule is 'printed', 'figures' or 'follow-up', not {form!r}")
        default = default_resolution(n_arms, k, horizon, form)
        resolution = default if resolution is None else a_resolution(resolution)
        rounds = max(0, -math.frexp(resolution)[1])  # how many r >= 1 have 2^-r > resolution
        merge_rounds = rounds + 1 if form == "figures" and rounds else rounds
        rate = _rate(n_arms, k, horizon, form)
        most = int(math.log2(2**61 / (actions(n_arms, k) * (rate + 1))) // 2)
        if merge_rounds > most:
            raise BadInput(
                f"a resolution of {resolution:g} takes {merge_rounds} rounds, whose plays do not fit in 64 bits: "
                f"give one of at least {2.0 ** -(most + 1 - merge_rounds + rounds):g}"
            )
        radius = [2.0**-r for r in range(merge_rounds + 2)]
        values: dict[str, Any] = {"n_arms": n_arms, "k": k, "horizon": horizon, "resolution": resolution, "form": form}
        values |= {"rounds": rounds, "merge_rounds": merge_rounds, "radius": radius}
        values["plays"] = [math.ceil(rate / each**2) for each in radius]
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def sort_plays(self) -> int:
        """The plays of all SORTs at the most: K+1 actions a group, each up to the last round."""
        return groups(self.n_arms, self.k) * (self.k + 1) * self._last(self.rounds)

    @property
    def merge_plays(self) -> int:
        """The plays of all MERGEs at the most: the base and K new actions a merge, each up to the last round."""
        return (groups(self.n_arms, self.k) - 1) * (self.k + 1) * self._last(self.merge_rounds)

    @property
    def exploration_plays(self) -> int:
        """The plays before the best subset is settled, at the most."""
        return self.sort_plays + self.merge_plays

    @property
    def told_apart(self) -> float:
        """The difference from which two subsets are ranked right, if they differ in one arm; 1 says: none for sure.

        A difference of mean rewards, and as long as no estimate is off by its radius (`estimate_error`).
        """
        # Ranked wrong after the last round, each within its radius of the truth, they are at most two radii apart.
        return min(1.0, 2 * self.radius[self.rounds])

    @property
    def estimate_error(self) -> float:
        """The probability that any estimate of any round is off by more than its radius, at the most."""
        # Hoeffding: 2 exp(-2 n_r Delta_r^2) for one; the union is over actions and rounds. Printed: 2 (TNK)^-4 for one.
        one = 2 * math.exp(-2 * _rate(self.n_arms, self.k, self.horizon, self.form))
        return min(1.0, one * actions(self.n_arms, self.k) * self.merge_rounds)

    def no_round(self, policy: str) -> str:
        """What to say of a schedule without a round: that nothing is explored, and the way out."""
        if self.resolution != default_resolution(self.n_arms, self.k, self.horizon, self.form):
            return f"a resolution of {self.resolution:g} leaves no round to explore in: give one below 0.5"
        return (
            f"a horizon of {self.horizon:,} plays is too short for {policy} to explore {self.n_arms} arms: it will "
            f"play an arbitrary subset. The shortest useful horizon is {shortest_useful_horizon(self.n_arms):,}; "
            f"or set the resolution yourself, below 0.5"
        )

    def _last(self, rounds: int) -> int:
        return self.plays[rounds] if rounds else 0


def default_resolution(n_arms: int, k: int, horizon: int, form: Form) -> float:
    """Each form's lambda: the printed one; (N log(2NT) / T)^(1/3), without its 256, for the follow-up.

    For the figures (N sqrt(K) log(2NT) / (80 T))^(1/3): fitted, so that each curve explores for as long as it does.
    """
    factor = {"printed": 256.0, "figures": math.sqrt(k) / 80, "follow-up": 1.0}[form]
    return math.cbrt(factor * n_arms * math.log(2 * n_arms * horizon) / horizon)


def _rate(n_arms: int, k: int, horizon: int, form: Form) -> float:
    """n_r Delta_r^2, before it is rounded up."""
    if form == "printed":
        return 2 * math.log(horizon * n_arms * k)
    return math.log(2 * n_arms * horizon) / (3 if form == "figures" else 1)


def affordable_resolution(n_arms: int, k: int, horizon: int, share: float = 0.1) -> float:
    """The finest resolution at which learning surely takes at most this share of the horizon; 0.5 (no round) if none.

    The printed lambda is cautious by orders of magnitude; this is what the plays themselves allow.
    """
    n_arms, k = some_sizes(n_arms, k)
    horizon = some_plays(horizon)
    if not 0 < a_number("share", share) <= 1:
        raise BadInput(f"share is a part of the horizon, above 0 and at most 1, not {share!r}")
    allowed = min(share * horizon, 2**58) / actions(n_arms, k)
    rounds = 0
    while math.ceil(2 * math.log(horizon * n_arms * k) * 4 ** (rounds + 1)) <= allowed:
        rounds += 1
    return 2.0 ** -(rounds + 1)


def _printed(n_arms: int, horizon: int) -> float:
    return resolution(n_arms, horizon)
