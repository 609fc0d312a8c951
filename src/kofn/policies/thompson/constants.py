"""Every statistical constant of the default policy, in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Constants:
    """Constants of the default policy. docs/reference/policies/thompson.md uses the same names."""

    draws: int = 256
    """Most draws in one plan. Higher: more different subsets in a plan, and slower."""

    shortest: int = 4
    """Fewest plays of a plan. Higher: fewer plans at the start of a run, and the first rewards count later."""

    information: float = 1.0
    """Most plays of a swap in one plan, relative to the information that the posterior has about it. Higher: a swap
    that turns out to be bad is played longer before its rewards count."""

    contenders: int = 256
    """Most arms with a dense covariance. Higher: more precise with more arms than that, and slower."""

    inside: int = 8
    """Arms of the incumbent that are always contenders: a swap between contenders needs one of them."""

    surprise: float = 2.0
    """Standard deviations by which a row's log odds may rise in one update without raising doubt. Higher: the model
    is trusted longer where it does not fit. Rows that earn less than predicted raise it only with a `half_life`."""

    doubt: float = 1.0
    """Standard deviation that a surprise adds to each effect, relative to its excess in log odds. Higher: after a
    surprise, what was learned before counts less."""

    climb: float = 1.0
    """Growth of the log variances for each unit by which the level exceeds its maximum so far."""

    reach: float = 3.0
    """Most standard deviations of the prior between the average arm and the incumbent's weakest arm: otherwise, the
    prior grows. Higher: arms that were hardly played are given up sooner where rewards have no noise."""

    swaps: int = 8
    """Most arms that one draw swaps. Higher: arms that pay only together are found sooner, and draws are slower."""

    free: float = 0.1
    """Expected loss up to which further swaps in a draw count as free, in standard deviations of one reward. Higher:
    more swaps in a draw, for longer."""

    narrow: float = 0.8
    """Factor of the deviations from the mean in half of the draws. Lower: less exploration, and more runs that keep a
    wrong subset for long. At 1, all draws are draws from the posterior."""

    spread: float = 1.4
    """Most that the prior's standard deviation of an effect is, times the square root of K: the standard deviation of a
    random subset's log odds. Lower: fewer plays of arms that have earned nothing yet, and large effects are found
    later."""

    shrinkage: float = 25.0
    """Weight of the pooled dispersion in the dispersion of a row, in units of the sum of r(1 - r). Higher: a row's own
    rewards count less."""

    least: float = 1e-5
    """Floor of the dispersion, relative to the dispersion of the first rewards. Higher: more exploration of nearly
    noiseless problems."""

    fade: float = 0.25
    """How fast plays in flight are forgotten: with each plan, by the factor (plays learned from before / now)^fade.
    Higher: rewards that never arrive matter less, and rewards that are later than all plays so far count less."""

    def for_pick(self) -> Constants:
        """Return the constants for `goal="pick"`, where plays cost nothing and only the final subset counts.

        A draw makes all swaps that it says are better, and is played as often as it was drawn. No observation is given
        less weight later.
        """
        return replace(self, free=math.inf, swaps=64, information=math.inf, doubt=0.0, climb=0.0)
