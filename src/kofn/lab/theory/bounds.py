"""The bounds of the paper's lemmas and theorem, and UCB's bound for comparison."""

from __future__ import annotations

import math
from collections.abc import Iterable

from kofn.core import BadInput
from kofn.core.formula_checks import (
    check_arms,
    check_arms_and_k,
    check_lipschitz,
    check_number,
    check_plays,
    check_resolution,
)
from kofn.policies import schedule
from kofn.policies.schedule import horizon_for


def group_bound(
    gaps: Iterable[float], n_arms: int, horizon: int, lipschitz: float = 1.0, resolution: float | None = None
) -> float:
    """Bound the plays of one SORT or MERGE: the sum of 64 U^2 log(2NT) / max(gap, lambda)^2 over its K+1 arms.

    The gap of an arm is the distance of its expected reward to the nearest other one (Lemmas "Sort" and "Merge time
    requirement").
    """
    n_arms, horizon = check_arms(n_arms), check_plays(horizon)
    u, lam = check_lipschitz(lipschitz), _lambda(n_arms, horizon, resolution)
    widths = [max(check_number("a gap", gap), lam) for gap in gaps]
    return math.fsum(64 * u**2 * math.log(2 * n_arms * horizon) / width**2 for width in widths)


def exploration_bound(n_arms: int, horizon: int, lipschitz: float = 1.0, resolution: float | None = None) -> float:
    """Bound the plays of exploration: 128 N U^2 log(2NT) / lambda^2, or 0 if lambda >= 1.

    It is Lemma "Bound on exploration time steps".
    """
    n_arms, horizon = check_arms(n_arms), check_plays(horizon)
    u, lam = check_lipschitz(lipschitz), _lambda(n_arms, horizon, resolution)
    return 128 * n_arms * u**2 * math.log(2 * n_arms * horizon) / lam**2 if lam < 1 else 0.0


def error_probability(n_arms: int, horizon: int) -> float:
    """Bound the probability that CMAB-SM ends in a wrong subset, up to lambda: 1 / (N T^2).

    It is Lemma "Total error probability". It means nothing for a schedule without a round of exploration.
    """
    n_arms, horizon = check_arms(n_arms), check_plays(horizon)
    return 1 / (n_arms * horizon**2)


def exploitation_regret_bound(
    n_arms: int, k: int, horizon: int, lipschitz: float = 1.0, resolution: float | None = None
) -> float:
    """Bound the regret per play after exploration: U lambda sqrt(K) + U sqrt(K) / (N T^2).

    It is Lemma "Bounded exploitation regret".

    The lemma prints N^2 T^2; its proof and the theorem have N T^2, which follows from `error_probability`.
    """
    n_arms, k = check_arms_and_k(n_arms, k)
    horizon = check_plays(horizon)
    u, lam = check_lipschitz(lipschitz), _lambda(n_arms, horizon, resolution)
    return u * math.sqrt(k) * (lam + error_probability(n_arms, horizon))


def regret_bound(n_arms: int, k: int, horizon: int, lipschitz: float = 1.0, resolution: float | None = None) -> float:
    """Bound the regret over the whole horizon (Theorem 1), or by the linear bound T U sqrt(K) if that is lower.

    At the printed lambda, (U^3 + 2U) sqrt(K) (32 N log 2NT)^(1/3) T^(2/3) + U sqrt(K) / (NT). A bound of T or more
    is void: rewards are in [0, 1].
    """
    linear = check_plays(horizon) * check_lipschitz(lipschitz) * math.sqrt(check_arms_and_k(n_arms, k)[1])
    if _lambda(n_arms, horizon, resolution) >= 1:
        return linear
    exploring = lipschitz * math.sqrt(k) * exploration_bound(n_arms, horizon, lipschitz, resolution)
    return min(linear, exploring + horizon * exploitation_regret_bound(n_arms, k, horizon, lipschitz, resolution))


def proven_from(n_arms: int, k: int, lipschitz: float = 1.0) -> int:
    """Return the smallest horizon at which Theorem 1 is not void: its bound, at the printed lambda, is below T."""
    n_arms, k = check_arms_and_k(n_arms, k)
    u = check_lipschitz(lipschitz)
    # The bound over T is (U^3 + 2U) sqrt(K) lambda / 2 + U sqrt(K) / (N T^2); the last term is below rounding here.
    return horizon_for(n_arms, min(1.0, 2 / ((u**3 + 2 * u) * math.sqrt(k))))


def log_subsets(n_arms: int, k: int) -> float:
    """Return log C(N, K), for N and K of any size."""
    n_arms, k = check_arms_and_k(n_arms, k)
    if min(k, n_arms - k) <= 1000:
        return math.log(math.comb(n_arms, k))
    return math.lgamma(n_arms + 1) - math.lgamma(k + 1) - math.lgamma(n_arms - k + 1)


def time_to_try_all(n_arms: int, k: int, plays_per_second: float = 1.0) -> float:
    """Return the seconds needed to play each of the C(N, K) subsets once; infinite above 1e308."""
    rate = check_number("plays_per_second", plays_per_second)
    if rate <= 0:
        raise BadInput(f"plays_per_second must be above 0; got {plays_per_second!r}")
    return math.comb(n_arms, k) / rate if log_subsets(n_arms, k) - math.log(rate) < 709 else math.inf


def ucb_regret_bound(n_arms: int, k: int, horizon: int) -> float:
    """Bound the regret of improved UCB over all A = C(N, K) subsets: sqrt(A T) log(A log A) / sqrt(log A).

    Infinite above 1e308.
    """
    return _exp(_log_ucb_bound(log_subsets(n_arms, k), math.log(check_plays(horizon))))


def ucb_wins_from(n_arms: int, k: int) -> float:
    """Return the paper's horizon from which UCB's bound is lower: e^(3K) N^(3K-2) / K^(3K+3); infinite above 1e308.

    It drops all constants and logarithms and uses (eN/K)^K for C(N, K), which is far too large: see `bounds_cross_at`.
    """
    n_arms, k = check_arms_and_k(n_arms, k)
    return _exp(3 * k + (3 * k - 2) * math.log(n_arms) - (3 * k + 3) * math.log(k))


def bounds_cross_at(n_arms: int, k: int, lipschitz: float = 1.0) -> float:
    """Return the horizon from which UCB's bound is below the bound of Theorem 1, both as printed; 1 if always."""
    n_arms, k = check_arms_and_k(n_arms, k)
    u, log_a = check_lipschitz(lipschitz), log_subsets(n_arms, k)

    def ucb_ahead(log_t: float) -> bool:
        log_2nt = math.log(2 * n_arms) + log_t
        growing = math.log((u**3 + 2 * u) * math.sqrt(k)) + (math.log(32 * n_arms * log_2nt) + 2 * log_t) / 3
        fading = math.log(u * math.sqrt(k) / n_arms) - log_t
        return _log_ucb_bound(log_a, log_t) < growing + math.log1p(math.exp(fading - growing))

    if ucb_ahead(0.0):
        return 1.0
    low, high = 0.0, 1.0  # the ratio of the bounds grows like T^(1/6): they cross once
    while not ucb_ahead(high):
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (low, middle) if ucb_ahead(middle) else (middle, high)
    return _exp(high)


def doubling_loss(gamma: float = 2 / 3, delta: float = 1 / 3, first: float = 2, base: float = 2) -> float:
    """Return the factor by which the regret bound grows if the horizon is unknown and guessed as first * base^i.

    For a bound that grows as T^gamma (log T)^delta (the lemma of "Handling unknown time horizon").
    """
    gamma, delta = check_number("gamma", gamma), check_number("delta", delta)
    first, base = check_number("first", first), check_number("base", base)
    if not (0 < gamma < 1 and delta >= 0 and base > 1 and first >= 1):
        raise BadInput(
            "doubling needs 0 < gamma < 1, delta >= 0, first >= 1 and base > 1; "
            f"got {gamma=:g}, {delta=:g}, {first=:g}, {base=:g}"
        )
    start = first * (base - 1)
    if delta > 0 and start <= 1:
        raise BadInput(f"doubling needs first * (base - 1) > 1; got {start:g}: use a longer first stage")
    logs = (math.log(start + 1) / math.log(start)) ** delta if delta else 1.0
    return float(logs * (base * (base - 1)) ** gamma / (base**gamma - 1))


def _log_ucb_bound(log_a: float, log_t: float) -> float:
    return (log_a + log_t) / 2 + math.log(log_a + math.log(log_a)) - math.log(log_a) / 2


def _exp(x: float) -> float:
    return math.exp(x) if x < 709 else math.inf


def _lambda(n_arms: int, horizon: int, given: float | None) -> float:
    """Return the given resolution, or the printed one."""
    return schedule.resolution(n_arms, horizon) if given is None else check_resolution(given)
