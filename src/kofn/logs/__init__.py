"""Logs of past decisions: off-policy evaluation of subsets, and replay of policies."""

from kofn.logs.log import Log
from kofn.logs.logged_problem import LoggedProblem
from kofn.logs.off_policy import AnytimeEstimate, Estimate, Evaluation, evaluate, evaluate_all
from kofn.logs.replay import Replayed, replay

__all__ = [
    "AnytimeEstimate",
    "Estimate",
    "Evaluation",
    "Log",
    "LoggedProblem",
    "Replayed",
    "evaluate",
    "evaluate_all",
    "replay",
]
