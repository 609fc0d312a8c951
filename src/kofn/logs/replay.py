"""Replay: let a policy walk through a log, as if it had made the decisions.

It asks for a subset; plays of the log are passed over until one is of that subset; that one's reward it is told (Li,
Chu, Langford and Wang, 2011). If the log was made by uniformly random choice, what it earns has the distribution of
what it would have earned. If subsets were chosen with other, known probabilities, a play is taken only with probability
p_min / p, which makes the log uniform again. Either way, and for any policy, rewards must not depend on time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np

from kofn.core import BadInput, Policy, Seed, Subset, generator
from kofn.logs.log import Log

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True)
class Replayed:
    """What a policy earned in a log: `plays` of the `events` were taken, with this mean.

    `error` is the standard error of the mean as an estimate of what the subsets it played earn on average: it does not
    say how much another run of the policy would differ. `waiting` is the subset that did not come any more.
    """

    policy: str
    plays: int
    events: int
    mean: float
    error: float
    final: Subset
    waiting: Subset

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self), "final": list(self.final), "waiting": list(self.waiting)}


def replay(policy: Policy, log: Log, seed: Seed = None) -> Replayed:
    """Let the policy walk through the log, and tell it what it would have seen.

    >>> from kofn import Bernoulli, Problem, Thompson
    >>> log = Log.of(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=20_000, seed=1)
    >>> found = replay(Thompson(4, 2, seed=1), log)
    >>> found.final, 3_000 < found.plays < 3_700, round(found.mean, 1)
    ((1, 2), True, 0.6)

    Of N arms and K, one play in C(N, K) is taken: it takes a log that is that much longer than the run.
    """
    _check_fit(policy, log)
    rng, positions = generator(seed), _positions(log)
    rewards, propensity = log.rewards.tolist(), np.asarray(log.propensity)
    chance = None if np.ptp(propensity) == 0 else propensity.min() / propensity
    at, earned = 0, []
    while True:
        wanted = policy.ask()
        found = _next(positions.get(wanted, []), at, chance, rng)
        if found is None:
            break
        policy.tell(wanted, rewards[found])
        earned.append(rewards[found])
        at = found + 1
    if not earned:
        raise BadInput(
            f"the log never played {wanted} as {policy.name} wants: nothing can be replayed. One play in C(N, K) is "
            f"taken of a uniform log, and this one has {len(log):,} plays"
        )
    paid = np.array(earned)
    error = float(paid.std(ddof=1) / len(paid) ** 0.5) if len(paid) > 1 else float("inf")
    return Replayed(policy.name, len(paid), len(log), float(paid.mean()), error, policy.best(), wanted)


def _positions(log: Log) -> dict[Subset, list[int]]:
    """Where in the log each subset is."""
    found: dict[Subset, list[int]] = defaultdict(list)
    for at, arms in enumerate(log.subsets.tolist()):
        found[tuple(arms)].append(at)
    return found


def _next(positions: list[int], at: int, chance: Any, rng: np.random.Generator) -> int | None:
    """The first play from `at` on that is taken."""
    for number in range(bisect_left(positions, at), len(positions)):
        if chance is None or rng.random() < chance[positions[number]]:
            return positions[number]
    return None


def _check_fit(policy: Policy, log: Log) -> None:
    if log.propensity is None:
        raise BadInput(
            "a replay needs a log of uniformly random choices, or one that says with which probability each was made: "
            "read it with uniform=True, or give it a column of propensities"
        )
    for what in ("n_arms", "k"):
        ours, theirs = getattr(policy, what), getattr(log, what)
        if ours != theirs:
            raise BadInput(f"the policy has {what}={ours}, but the log has {what}={theirs}: make them equal")
    if policy.needs:
        raise BadInput(f"{policy.name} needs {', '.join(sorted(policy.needs))}, which a log does not have")
    if policy.plays:
        raise BadInput(f"the policy has been told of plays before ({policy.plays:,}): replay a new one")
