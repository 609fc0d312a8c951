"""Replay: run a policy on a log, as if it had made the decisions (Li, Chu, Langford and Wang, 2011).

The policy asks for a subset. Logged plays are skipped until one has that subset, and the policy is told its reward. If
the log's choices were uniformly random, the rewards have the distribution that the policy would have seen. If they were
made with other, known probabilities p, a play is used with probability p_min / p, which makes the log uniform again. In
both cases rewards must not depend on time. Plays whose probability is not known are left out. A policy that takes a
context is asked with the play's context; a subset that it asks for in a segment waits for a play of that segment.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kofn.core import BadInput, Policy, Seed, Subset, ThinLogWarning, generator
from kofn.core.contexts import context_of
from kofn.lab.logs.log import DecisionLog

__all__ = ["Replayed", "replay"]


@dataclass(frozen=True)
class Replayed:
    """The result of a replay: `plays` of the `events` in the log were used, with this mean reward.

    `error` is the standard error of the mean for the subsets that were played. It does not include how much another
    run of the policy would differ. `unmatched` is the subset that the policy asked for when the log ended; with
    contexts, that which waited for the longest.
    """

    policy: str
    plays: int
    events: int
    mean: float
    error: float
    final: Subset
    unmatched: Subset

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {**vars(self), "final": list(self.final), "unmatched": list(self.unmatched)}


def replay(policy: Policy, log: DecisionLog, seed: Seed = None) -> Replayed:
    """Run the policy on the log, and tell it the rewards that it would have seen.

    >>> from kofn import Bernoulli, Problem, Thompson
    >>> log = DecisionLog.simulate(Problem(Bernoulli([0.2, 0.5, 0.8, 0.1]), "mean", k=2), plays=20_000, seed=1)
    >>> found = replay(Thompson(4, 2, seed=1), log)
    >>> found.final, 3_000 < found.plays < 3_700, round(found.mean, 1)
    ((1, 2), True, 0.6)

    One logged play in C(N, K) is used, so the log must be that much longer than the replay.
    """
    _check_fit(policy, log)
    if log.adaptive:
        message = (
            "the log is of a policy that learned, so some subsets are rare in it, and the replay may end early. A "
            "campaign with a uniform control gives a better log"
        )
        warnings.warn(message, ThinLogWarning, stacklevel=2)
    rng, used = generator(seed), log.part(np.flatnonzero(log.known))
    rewards, propensity = used.rewards.tolist(), np.asarray(used.propensity)
    keep = None if np.ptp(propensity) == 0 else propensity.min() / propensity
    contexts = _contexts(policy, used)
    waiting: dict[str | None, Subset] = {}
    earned = []
    for at, subset in enumerate(map(tuple, used.subsets.tolist())):
        key, context = contexts(at)
        if key not in waiting:
            waiting[key] = policy.ask(context)
        if waiting[key] == subset and (keep is None or rng.random() < keep[at]):
            del waiting[key]
            policy.tell(subset, rewards[at], context=context)
            earned.append(rewards[at])
    asked = next(iter(waiting.values())) if waiting else policy.ask(context)
    if not earned:
        raise BadInput(
            f"the log has no play of {asked}, which {policy.name} asks for first: nothing can be replayed. One play in "
            f"C(N, K) of a uniform log is used, and this log has {len(rewards):,} plays"
        )
    paid = np.array(earned)
    error = float(paid.std(ddof=1) / len(paid) ** 0.5) if len(paid) > 1 else float("inf")
    return Replayed(policy.name, len(paid), len(rewards), float(paid.mean()), error, policy.best(), asked)


def _contexts(policy: Policy, log: DecisionLog) -> Callable[[int], tuple[str | None, dict[str, str] | None]]:
    """Return a function of a play's number that returns its segment and context; None if the policy takes none."""
    if not policy.takes_context:
        return lambda at: (None, None)
    segments = log.segments
    assert segments is not None
    return lambda at: (policy.segment(context := context_of(segments[at])), context)


def _check_fit(policy: Policy, log: DecisionLog) -> None:
    if log.propensity is None:
        raise BadInput(
            "a replay needs propensities: give the log a column with the probability of each choice, or read it with "
            "uniform=True if all subsets were equally likely"
        )
    for what in ("n_arms", "k"):
        ours, theirs = getattr(policy, what), getattr(log, what)
        if ours != theirs:
            raise BadInput(f"the policy has {what}={ours}, but the log has {what}={theirs}: make them equal")
    if policy.takes_context and log.segments is None:
        raise BadInput(f"{policy.name} takes a context, which this log does not have: replay thompson")
    if policy.needs:
        raise BadInput(f"{policy.name} needs {', '.join(sorted(policy.needs))}, which a log does not have")
    if policy.plays:
        raise BadInput(f"the policy has already observed {policy.plays:,} plays: replay a new one")
