"""CMAB-SM as generators, an action at a time, in the paper's order: the oracle for the shipped one.

`yield action, n` plays an action n times; what comes back is the sum of the n rewards. Written from the appendix's
Algorithms 4 (SORT) and 5 (MERGE) with the choices of docs/reference/policies/cmab-sm.md, without a look at
the shipped code's shape.
"""

import math
from collections.abc import Generator, Sequence

Action = tuple[int, ...]
Play = tuple[str, Action, int]
Playing = Generator[Play, float, list[int]]


def cmab_sm(n_arms: int, k: int, horizon: int, lam: float | None = None, arms: Sequence[int] | None = None) -> Playing:
    if lam is None:
        lam = (256 * n_arms * math.log(2 * n_arms * horizon) / horizon) ** (1 / 3)
    arms = list(range(n_arms)) if arms is None else list(arms)
    groups = [arms[start : start + k + 1] for start in range(0, n_arms, k + 1)]
    own_of_last = set(groups[-1])
    groups[-1] = groups[-1] + arms[: k + 1 - len(groups[-1])]
    log_tnk = math.log(horizon * n_arms * k)
    best = yield from sort(groups[0], k, lam, log_tnk)
    for index, group in enumerate(groups[1:], start=1):
        ranked = yield from sort(group, k, lam, log_tnk)
        if index == len(groups) - 1:
            ranked = [arm for arm in ranked if arm in own_of_last]
        best = yield from merge(best, ranked, k, lam, log_tnk)
    return best


def n_of(delta: float, log_tnk: float) -> int:
    return math.ceil(2 * log_tnk / delta**2)


def sort(group: Sequence[int], k: int, lam: float, log_tnk: float) -> Playing:
    group = sorted(group)
    without = {arm: tuple(other for other in group if other != arm) for arm in group}
    count = dict.fromkeys(group, 0)
    total = dict.fromkeys(group, 0.0)
    mean = dict.fromkeys(group, 0.0)
    unsorted = set(group)
    delta = 1 / 2
    while delta > lam and unsorted:
        for arm in sorted(unsorted):
            more = n_of(delta, log_tnk) - count[arm]
            total[arm] += yield "sort", without[arm], more
            count[arm] += more
            mean[arm] = total[arm] / count[arm]
        ladder = sorted(group, key=lambda arm: mean[arm])
        for rank, arm in enumerate(ladder):
            apart_below = rank == 0 or mean[arm] - mean[ladder[rank - 1]] > 2 * delta
            apart_above = rank == k or mean[ladder[rank + 1]] - mean[arm] > 2 * delta
            if apart_below and apart_above:
                unsorted.discard(arm)
        delta /= 2
    return sorted(group, key=lambda arm: mean[arm])[:k]


def merge(g1: list[int], g2: list[int], k: int, lam: float, log_tnk: float) -> Playing:
    merged: list[int] = []
    i = j = 0
    delta1, t1, sum1 = 1 / 2, 0, 0.0
    while len(merged) < k:
        if j >= len(g2):
            merged.append(g1[i])
            i += 1
            continue
        action = [*g1]
        action[i] = g2[j]
        delta2, t2, sum2 = 1 / 2, 0, 0.0
        mean1, mean2 = (sum1 / t1 if t1 else 0.0), 0.0
        while delta2 > lam:
            if (more := n_of(delta1, log_tnk) - t1) > 0:
                sum1 += yield "merge", tuple(sorted(g1)), more
                t1 += more
            if (more := n_of(delta2, log_tnk) - t2) > 0:
                sum2 += yield "merge", tuple(sorted(action)), more
                t2 += more
            mean1, mean2 = sum1 / t1, sum2 / t2
            if abs(mean1 - mean2) > delta1 + delta2:
                break
            delta2 /= 2
            if delta2 < delta1 and delta2 > lam:
                delta1 = delta2
        if mean2 > mean1:
            merged.append(g2[j])
            j += 1
        else:
            merged.append(g1[i])
            i += 1
    return merged
