"""Logs of past decisions: off-policy evaluation of subsets, and replay of policies."""

from kofn.logs.log import DecisionLog
from kofn.logs.logged_problem import LoggedProblem
from kofn.logs.off_policy import OffPolicyEstimate, ValueWithError, evaluate, evaluate_all
from kofn.logs.replay import Replayed, replay

__all__ = [
    "DecisionLog",
    "LoggedProblem",
    "OffPolicyEstimate",
    "Replayed",
    "ValueWithError",
    "evaluate",
    "evaluate_all",
    "replay",
]
