"""Logs of past decisions: off-policy evaluation of subsets, and replay of policies."""

from kofn.logs.by_segment import BySegment, SegmentEvaluation, evaluate_by_segment
from kofn.logs.log import Log
from kofn.logs.logged_problem import LoggedProblem
from kofn.logs.off_policy import AnytimeEstimate, Estimate, Evaluation, evaluate, evaluate_all
from kofn.logs.replay import Replayed, replay

__all__ = [
    "AnytimeEstimate",
    "BySegment",
    "Estimate",
    "Evaluation",
    "Log",
    "LoggedProblem",
    "Replayed",
    "SegmentEvaluation",
    "evaluate",
    "evaluate_all",
    "evaluate_by_segment",
    "replay",
]
