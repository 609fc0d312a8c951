"""Logs of past decisions: off-policy evaluation of subsets, and replay of policies."""

from kofn.lab.logs.by_segment import BySegment, SegmentEvaluation, evaluate_by_segment
from kofn.lab.logs.log import Log
from kofn.lab.logs.logged_problem import LoggedProblem
from kofn.lab.logs.off_policy import AnytimeEstimate, Estimate, Evaluation, evaluate, evaluate_all
from kofn.lab.logs.replay import Replayed, replay

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
