"""The lift of learned plays over control plays, with an interval that is valid at any time.

The interval is an asymptotic confidence sequence with a normal-mixture boundary: Waudby-Smith, Arbour, Sinha, Kennedy
and Ramdas, *Time-uniform central limit theory and asymptotic confidence sequences* (Annals of Statistics, 2024). Means
may change over time: what is estimated is the average of the expected rewards of a group's plays so far. Two departures
keep it honest for rare and heavy-tailed rewards: the variance is that at the mean in question, as in Wilson's interval,
and it is raised while few plays have earned anything. docs/background/evidence.md has the reasons and the rates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from kofn.campaigns.evidence.sums import Sums
from kofn.core import BadInput, BadReward, Direction
from kofn.core.responses import Lift, MeanEstimate

INTENDED_PLAYS = 10_000
"""Number of plays for which the boundary is tuned. Lower: narrower before, wider after, and less protection while the
normal approximation is poor."""

FEW = 20.0
"""Effective rewards at which the variance is doubled: its factor is 1 + FEW / effective rewards. Higher: safer with
rare and heavy-tailed rewards, and wider early."""

MOST_RATIO = 1e50
"""Largest ratio of two means, and of a mean and its error, that is reported."""

ROUNDING = 1e-9
"""Relative slack of a mean that must lie in the range of rewards."""


def lift(
    learned: Sums,
    control: Sums,
    *,
    reward_range: tuple[float, float] = (0.0, 1.0),
    direction: Direction = "maximize",
    level: float = 0.95,
) -> Lift:
    """Return how much better learned plays are than control plays, per play, with an interval valid at any time.

    Over all times together, the interval of the lift is wrong with a probability of at most 1 - `level`, and so is that
    of each mean. `reward_range` may be too wide, and its ends may be infinite.

    >>> found = lift(Sums(90_000, 2_160, 2_160), Sums(10_000, 180, 180))
    >>> print(f"{found.difference:.4f} from {found.low:.4f} to {found.high:.4f}", found.claimed)
    0.0060 from 0.0012 to 0.0100 True
    >>> print(f"{found.relative:+.0%} from {found.relative_low:+.0%} to {found.relative_high:+.0%}")
    +33% from +6% to +68%
    """
    if not 0 < level < 1:
        raise BadInput(f"level must be between 0 and 1, such as 0.95; got {level!r}")
    if direction not in ("maximize", "minimize"):
        raise BadInput(f"direction must be 'maximize' or 'minimize'; got {direction!r}")
    low, high = reward_range
    if not low < high:
        raise BadInput(f"reward_range needs low < high, not ({low:g}, {high:g})")
    ours, theirs = _groups(learned, control, low, high)
    difference, relative = (
        (Limits(), Limits()) if ours is None or theirs is None else _compared(ours, theirs, 1 - level)
    )
    if direction == "minimize":
        difference, relative = difference.negative(), relative.negative()
    return Lift(
        None if ours is None else ours.estimate(1 - level),
        None if theirs is None else theirs.estimate(1 - level),
        *difference,
        *relative,
        plays_learned=learned.count,
        plays_control=control.count,
        claimed=difference.low is not None and difference.low > 0,
        harmful=difference.high is not None and difference.high < 0,
    )


def boundary(plays: float, alpha: float) -> float:
    """Return the squared distance, in standard errors, that a mean of this number of plays may have at any time.

    A mean of n normal rewards with variance 1, mixed over N(0, rho^2), has the likelihood ratio
    exp(n^2 rho^2 mean^2 / (2 (1 + n rho^2))) / sqrt(1 + n rho^2). It ever exceeds 1 / alpha with probability alpha at
    most (Ville). rho is chosen so that the boundary is nearly the narrowest at INTENDED_PLAYS.
    """
    evidence = -2 * math.log(alpha)
    spread = plays * (evidence + math.log1p(evidence)) / INTENDED_PLAYS  # n rho^2
    return (1 + 1 / spread) * (evidence + math.log1p(spread))


class Limits(NamedTuple):
    """An estimate and its interval; a limit is None if there is none."""

    estimate: float | None = None
    low: float | None = None
    high: float | None = None

    def negative(self) -> Limits:
        """Return the limits of the negative."""
        estimate, low, high = (None if each is None else -each for each in self)
        return Limits(estimate, high, low)


class _Reach(NamedTuple):
    """How far the true mean may be below and above the estimate."""

    down: float
    up: float


@dataclass(frozen=True)
class _Group:
    """The plays of one group; the variance of a reward is noise * (at + slope x - curve x^2) if its mean is mean + x.

    In a range (low, high) that is noise (mean - low)(high - mean): all coins have a noise of 1, and other rewards less.
    The default policy has the same model. An infinite end is left out. `noise` is infinite while all rewards are equal.
    """

    count: int
    mean: float
    low: float
    high: float
    at: float
    slope: float
    curve: float
    noise: float

    @classmethod
    def alone(cls, sums: Sums, low: float, high: float) -> _Group:
        """Return a group with the noise of its own rewards."""
        mean = sums.mean
        slack = ROUNDING * max(abs(each) for each in (low, high, mean) if math.isfinite(each))
        if not low - slack <= mean <= high + slack:
            raise BadReward(f"rewards must be between {low:g} and {high:g} (reward_range); got a mean of {mean:g}")
        at, slope, curve = _shape(max(mean - low, 0.0), max(high - mean, 0.0))
        noise = sums.deviations / max(sums.count - 1, 1) / at if at else 0.0
        return cls(sums.count, mean, low, high, at, slope, curve, noise)

    def reach(self, squared: float) -> _Reach:
        """Return the x at both ends of count x^2 <= squared * variance at mean + x."""
        down, up = self.mean - self.low, self.high - self.mean
        if math.isinf(self.noise):
            return _Reach(down, up)
        per_play = squared / self.count * self.noise
        a, half_b, c = 1 + per_play * self.curve, per_play * self.slope / 2, per_play * self.at
        root = math.sqrt(half_b * half_b + a * c)
        return _Reach(min((root - half_b) / a, down), min((root + half_b) / a, up))

    def estimate(self, alpha: float) -> MeanEstimate:
        """Return the mean and its interval."""
        reach = self.reach(boundary(self.count, alpha))
        low, high = (_finite(self.mean + by) for by in (-reach.down, reach.up))
        return MeanEstimate(self.mean, low, high)


def _groups(learned: Sums, control: Sums, low: float, high: float) -> tuple[_Group | None, _Group | None]:
    """Return both groups, None for one without plays; each has the higher one of its own noise and the pooled noise."""
    first, second = (_Group.alone(sums, low, high) if sums.count else None for sums in (learned, control))
    some = [(sums, group) for sums, group in ((learned, first), (control, second)) if group]
    deviations = sum(sums.deviations for sums, _ in some)
    most = sum(group.count * group.at for _, group in some)
    pooled = deviations / most if deviations and most else math.inf
    effective = sum(_effective(sums, low, high) for sums, _ in some)
    factor = 1 + FEW / effective if effective else math.inf
    return (
        first and replace(first, noise=max(first.noise, pooled) * factor),
        second and replace(second, noise=max(second.noise, pooled) * factor),
    )


def _shape(above: float, below: float) -> tuple[float, float, float]:
    """Return `at`, `slope` and `curve` of a mean that is so far above the lowest and below the highest reward."""
    if math.isfinite(above) and math.isfinite(below):
        return above * below, below - above, 1.0
    if math.isfinite(above):
        return above, 1.0, 0.0
    return (below, -1.0, 0.0) if math.isfinite(below) else (1.0, 0.0, 0.0)


def _effective(sums: Sums, low: float, high: float) -> float:
    """Return on how many plays the mean rests: for coins, the rarer one of successes and failures."""
    variance = sums.deviations / sums.count
    squares = (max(each, 0.0) ** 2 for each in (sums.mean - low, high - sums.mean) if math.isfinite(each))
    return sums.count * min((each / (each + variance) if each else 0.0 for each in squares), default=1.0)


def _compared(ours: _Group, theirs: _Group, alpha: float) -> tuple[Limits, Limits]:
    """Return the difference of two means, and their ratio - 1, which has no meaning if rewards may be negative."""
    squared = boundary(1 / (1 / ours.count + 1 / theirs.count), alpha)
    a, b = ours.reach(squared), theirs.reach(squared)
    found = ours.mean - theirs.mean  # distances of independent means add up in squares
    difference = Limits(found, _finite(found - math.hypot(a.down, b.up)), _finite(found + math.hypot(a.up, b.down)))
    return difference, _ratio(ours.mean, theirs.mean, a, b) if ours.low >= 0 and theirs.mean > 0 else Limits()


def _ratio(mean: float, other: float, a: _Reach, b: _Reach) -> Limits:
    """Return mean / other - 1 and its limits: the ratios r at which the limit of mean - r * other is 0.

    No mean is below 0. There is no upper limit if `other` may be 0. All is in units of `other`: powers of large rewards
    would overflow.
    """
    ratio, (a_down, a_up), (b_down, b_up) = mean / other, *((each.down / other, each.up / other) for each in (a, b))
    if not max(ratio, a_up, b_up) < MOST_RATIO:
        return Limits()
    square, rest = 1 - b_up**2, max(ratio**2 - a_down**2, 0.0)
    least = rest / (ratio + math.sqrt(max(ratio**2 - square * rest, 0.0))) if rest else 0.0
    square, rest = 1 - b_down**2, ratio**2 - a_up**2
    most = (ratio + math.sqrt(max(ratio**2 - square * rest, 0.0))) / square if square > 0 else math.inf
    return Limits(ratio - 1, least - 1, _finite(most - 1))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
