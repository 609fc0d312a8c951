"""Logs of past decisions: off-policy evaluation of subsets, and replay of policies."""

from kofn.lab.logs.log import DecisionLog
from kofn.lab.logs.logged_problem import LoggedProblem
from kofn.lab.logs.off_policy import OffPolicyEstimate, ValueWithError, evaluate, evaluate_all
from kofn.lab.logs.replay import Replayed, replay

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
