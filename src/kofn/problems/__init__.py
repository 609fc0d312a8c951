"""Problems: arms, a reward function and K. Something to learn whose answer is known.

>>> from kofn import problems
>>> problem = problems.Problem(problems.Bernoulli([0.1, 0.5, 0.3]), "mean", k=2)
>>> problem.best
(1, 2)

To write a problem of your own, subclass `AbstractProblem`. Reward functions are in `kofn.rewards`, logs of past
decisions in `kofn.logs`.
"""

from kofn.problems.applications.graph import Graph
from kofn.problems.applications.influence import Influence
from kofn.problems.applications.interactions import Interactions
from kofn.problems.applications.recommendations import Recommendations
from kofn.problems.applications.storage import Lognormal, Pareto, storage
from kofn.problems.arms import Arms
from kofn.problems.assumptions import Check, Finding
from kofn.problems.base import AbstractProblem
from kofn.problems.contextual import ContextualProblem, Segment
from kofn.problems.contextual_kinds import contextual_problem
from kofn.problems.costs import NetOfCosts
from kofn.problems.distributions import ArctanExponential, Bernoulli, Beta, Correlated, Empirical
from kofn.problems.problem import Problem

__all__ = [
    "AbstractProblem",
    "ArctanExponential",
    "Arms",
    "Bernoulli",
    "Beta",
    "Check",
    "ContextualProblem",
    "Correlated",
    "Empirical",
    "Finding",
    "Graph",
    "Influence",
    "Interactions",
    "Lognormal",
    "NetOfCosts",
    "Pareto",
    "Problem",
    "Recommendations",
    "Segment",
    "contextual_problem",
    "storage",
]
