"""Off-policy evaluation by segment: what one subset for all earns, and what the best subset of each segment earns.

Subsets are chosen by every other play of the log, and valued by the plays between: a subset that was best by luck has
no advantage there, so no estimate is biased by the choice.

In an adaptive log, who got a subset depended on the segment: those who got it may be those who like it. So what one
subset for all earns is estimated segment by segment, and weighted by their shares. In other logs, propensities make up
for that, and all plays are estimated together.
"""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kofn.core import BadInput, Direction, Subset, ThinLogWarning
from kofn.core.contexts import context_of
from kofn.lab.logs.log import Log
from kofn.lab.logs.off_policy import FEWEST, Estimate, Evaluation, evaluate, evaluate_all


@dataclass(frozen=True)
class SegmentEvaluation:
    """One segment: its best subset, what that earns, and how much more than the subset for all it earns.

    `best` and `value` are None if the log has too few plays of the segment, and `gain` also if it has too few plays of
    the subset for all there.
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

    `gain` is what serving each segment its own best subset earns per play beyond the one for all. A segment without an
    estimate of it gets the subset for all. `unknown` is the share of such plays; in an adaptive log, `value` is that of
    the other plays.
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

    >>> from kofn.lab.problems import Bernoulli, ContextualProblem, Problem, Segment
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
    parts = {key: log.part(plays) for key, plays in log.plays_by_segment.items()}
    for_all, value = _for_all([_halves(each) for each in (parts.values() if log.adaptive else [log])], direction)
    segments = tuple(_segment(part, key, len(part) / len(log), for_all, direction) for key, part in parts.items())
    known = [each for each in segments if each.gain is not None]
    gain = sum(each.share * each.gain.value for each in known if each.gain is not None)
    error = math.sqrt(sum((each.share * each.gain.error) ** 2 for each in known if each.gain is not None))
    unknown = 1.0 - sum(each.share for each in known)
    return BySegment(for_all, value, Estimate(gain, error), max(0.0, unknown), segments)


def _for_all(strata: list[tuple[Log, Log]], direction: Direction) -> tuple[Subset, Estimate]:
    """Return the best of the subsets that are known for the most plays, and what it earns there.

    `strata` are the halves of parts of the log. A subset is known in the parts in which both halves have enough plays.
    """
    found: dict[Subset, list[tuple[int, float, Log]]] = defaultdict(list)  # plays of a part, what its first half says
    for first, second in strata:
        for each in _often_in_both(first, second):
            found[each.subset].append((len(first) + len(second), _score(each, direction), second))
    if not found:
        raise BadInput(f"no subset has {FEWEST} plays in both halves of the log: a longer log is needed")
    plays = {subset: sum(n for n, _, _ in parts) for subset, parts in found.items()}
    most = max(plays.values())
    known = [subset for subset in found if plays[subset] == most]
    best = max(known, key=lambda subset: sum(n * score for n, score, _ in found[subset]))
    valued = [(n / most, _estimate(second, best)) for n, _, second in found[best]]
    value = sum(share * each.value for share, each in valued if each is not None)
    error = math.sqrt(sum((share * each.error) ** 2 for share, each in valued if each is not None))
    return best, Estimate(value, error)


def _segment(log: Log, key: str, share: float, for_all: Subset, direction: Direction) -> SegmentEvaluation:
    """Return the evaluation of the segment that this log is of."""
    first, second = _halves(log)
    found = _often_in_both(first, second)
    if not found:
        return SegmentEvaluation(key, len(log), share, None, None, None)
    best = max(found, key=lambda each: _score(each, direction)).subset
    ours, theirs = _estimate(second, best), _estimate(second, for_all)
    assert ours is not None
    if theirs is None:
        return SegmentEvaluation(key, len(log), share, best, ours, None)
    if best == for_all:
        return SegmentEvaluation(key, len(log), share, best, ours, Estimate(0.0, 0.0))
    gain = Estimate(_sign(direction) * (ours.value - theirs.value), math.hypot(ours.error, theirs.error))
    return SegmentEvaluation(key, len(log), share, best, ours, gain)


def _score(found: Evaluation, direction: Direction) -> float:
    """Return by what subsets are chosen: their value, or in an adaptive log, the worse end of its interval.

    A policy that learned has left most subsets after a few plays, and the luckiest of them would often be chosen.
    """
    if not found.adaptive:
        return _sign(direction) * found.estimate.value
    return min(_sign(direction) * end for end in found.estimate.interval())


def _sign(direction: Direction) -> float:
    return 1.0 if direction == "maximize" else -1.0


def _halves(log: Log) -> tuple[Log, Log]:
    """Return the plays by which subsets are chosen, and those by which they are valued."""
    if len(log) < 2:
        return log, log
    return log.part(np.arange(0, len(log), 2)), log.part(np.arange(1, len(log), 2))


def _often_in_both(first: Log, second: Log) -> list[Evaluation]:
    """Return what the first half says about the subsets with enough plays in both."""
    enough = _often_played(first) & _often_played(second)
    return [each for each in _all(first) if each.subset in enough]


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
