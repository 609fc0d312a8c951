"""Problems: arms, a reward function and K. Something to learn whose answer is known.

>>> from kofn.lab import problems
>>> problem = problems.Problem(problems.Bernoulli([0.1, 0.5, 0.3]), "mean", k=2)
>>> problem.best
(1, 2)

To write a problem of your own, subclass `AbstractProblem`. Reward functions are in `kofn.lab.rewards`, logs of past
decisions in `kofn.lab.logs`.
"""

from kofn.lab.problems.applications.graph import Graph
from kofn.lab.problems.applications.influence import Influence
from kofn.lab.problems.applications.interactions import Interactions
from kofn.lab.problems.applications.recommendations import Recommendations
from kofn.lab.problems.applications.storage import Lognormal, Pareto, storage
from kofn.lab.problems.arms import Arms
from kofn.lab.problems.assumptions import Check, Finding
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.contextual import ContextualProblem, Segment
from kofn.lab.problems.contextual_kinds import contextual_problem
from kofn.lab.problems.costs import NetOfCosts
from kofn.lab.problems.distributions import ArctanExponential, Bernoulli, Beta, Correlated, Empirical
from kofn.lab.problems.problem import Problem

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
