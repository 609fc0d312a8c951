"""Logs of past decisions: what a subset would have earned (off-policy evaluation), and replay of a policy."""

from kofn.logs.log import Log
from kofn.logs.off_policy import Estimate, Evaluation, evaluate, evaluate_all
from kofn.logs.replay import Replayed, replay

__all__ = ["Estimate", "Evaluation", "Log", "Replayed", "evaluate", "evaluate_all", "replay"]
