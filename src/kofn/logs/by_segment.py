"""Off-policy evaluation by segment: what one subset for all earns, and what the best subset of each segment earns.

Subsets are chosen by every other play of the log, and valued by the plays between: a subset that was best by luck has
no advantage there, so no estimate is biased by the choice.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kofn.core import BadInput, Direction, Subset, ThinLogWarning
from kofn.core.contexts import context_of
from kofn.logs.log import Log
from kofn.logs.off_policy import FEWEST, Estimate, Evaluation, evaluate, evaluate_all


@dataclass(frozen=True)
class SegmentEvaluation:
    """One segment: its best subset, what that earns, and how much more than the subset for all it earns.

    `best`, `value` and `gain` are None if the log has too few plays of the segment.
    """

    segment: str
    plays: int
    share: float
    best: Subset | None
    value: Estimate | None
    gain: Estimate | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "context": context_of(self.segment),
            "plays": self.plays,
            "share": self.share,
            "best": None if self.best is None else list(self.best),
            "value": None if self.value is None else vars(self.value),
            "gain": None if self.gain is None else vars(self.gain),
        }


@dataclass(frozen=True)
class BySegment:
    """One subset for all and its value, and the best subset of each segment.

    `gain` is what serving each segment its own best subset earns per play beyond the one for all. A segment with too
    few plays gets the subset for all. `unknown` is the share of such plays.
    """

    for_all: Subset
    value: Estimate
    gain: Estimate
    unknown: float
    segments: tuple[SegmentEvaluation, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "for_all": list(self.for_all),
            "value": vars(self.value),
            "gain": vars(self.gain),
            "unknown": self.unknown,
            "segments": [each.to_dict() for each in self.segments],
        }


def evaluate_by_segment(log: Log, *, direction: Direction = "maximize") -> BySegment:
    """Return what one subset for all and the best subset of each segment earn; BadInput if the log has no contexts.

    >>> from kofn.problems import Bernoulli, ContextualProblem, Problem, Segment
    >>> phone = Problem(Bernoulli([0.9, 0.5, 0.1]), "mean", k=1)
    >>> laptop = Problem(Bernoulli([0.2, 0.5, 0.6]), "mean", k=1)
    >>> shop = ContextualProblem([Segment({"device": "phone"}, 0.7, phone), Segment({"device": "laptop"}, 0.3, laptop)])
    >>> found = evaluate_by_segment(Log.simulate(shop, plays=6_000, seed=1))
    >>> found.for_all, [each.best for each in found.segments]
    ((0,), [(0,), (2,)])
    >>> round(found.value.value, 2), round(found.gain.value, 2), round(found.gain.error, 2)  # the truth: 0.69, 0.12
    (0.71, 0.1, 0.01)
    """
    if log.segments is None:
        raise BadInput(
            'the log has no contexts: give it a column context, with JSON such as {"device": "phone"}, or name the '
            "columns that are attributes"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ThinLogWarning)  # of which segments say by their errors, or have no estimate
        return _evaluated(log, direction)


def _evaluated(log: Log, direction: Direction) -> BySegment:
    every = _halves(log)
    for_all = _chosen(*every, direction)
    if for_all is None:
        raise BadInput(f"no subset has {FEWEST} plays in both halves of the log: a longer log is needed")
    value = _estimate(every[1], for_all)
    assert value is not None
    segments = tuple(
        _segment(log.part(plays), key, len(plays) / len(log), for_all, direction)
        for key, plays in log.plays_by_segment.items()
    )
    known = [each for each in segments if each.gain is not None]
    gain = sum(each.share * each.gain.value for each in known if each.gain is not None)
    error = math.sqrt(sum((each.share * each.gain.error) ** 2 for each in known if each.gain is not None))
    unknown = 1.0 - sum(each.share for each in known)
    return BySegment(for_all, value, Estimate(gain, error), max(0.0, unknown), segments)


def _segment(log: Log, key: str, share: float, for_all: Subset, direction: Direction) -> SegmentEvaluation:
    """Return the evaluation of the segment that this log is of."""
    first, second = _halves(log)
    best = _chosen(first, second, direction)
    theirs = _estimate(second, for_all)
    ours = None if best is None else _estimate(second, best)
    if ours is None or theirs is None:
        return SegmentEvaluation(key, len(log), share, None, None, None)
    if best == for_all:
        return SegmentEvaluation(key, len(log), share, best, ours, Estimate(0.0, 0.0))
    sign = 1.0 if direction == "maximize" else -1.0
    gain = Estimate(sign * (ours.value - theirs.value), math.hypot(ours.error, theirs.error))
    return SegmentEvaluation(key, len(log), share, best, ours, gain)


def _halves(log: Log) -> tuple[Log, Log]:
    """Return the plays by which subsets are chosen, and those by which they are valued."""
    if len(log) < 2:
        return log, log
    return log.part(np.arange(0, len(log), 2)), log.part(np.arange(1, len(log), 2))


def _chosen(first: Log, second: Log, direction: Direction) -> Subset | None:
    """Return the best subset by the first half, of those with enough plays in both; None if there is none."""
    enough = _often_played(first) & _often_played(second)
    found = [each for each in _all(first) if each.subset in enough]
    if not found:
        return None
    return (found[0] if direction == "maximize" else found[-1]).subset


def _often_played(log: Log) -> set[Subset]:
    groups = log.groups
    return {tuple(arms) for arms in groups.subsets[groups.plays >= FEWEST].tolist()}


def _all(log: Log) -> list[Evaluation]:
    return evaluate_all(log) if (log.groups.plays >= 2).any() else []


def _estimate(log: Log, subset: Subset) -> Estimate | None:
    """Return what the subset earns; None if it has too few plays.

    The error is at least that of the mean, which is never 0: a subset that nobody clicked is not known exactly.
    """
    if subset not in _often_played(log):
        return None
    found = evaluate(log, subset)
    return replace(found.estimate, error=max(found.estimate.error, found.mean.error))
