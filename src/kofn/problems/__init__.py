"""Problems: arms, a reward function and K. Something to learn, whose answer is known.

>>> from kofn import problems
>>> problem = problems.Problem(problems.Bernoulli([0.1, 0.5, 0.3]), problems.mean, k=2)
>>> problem.best
(1, 2)
"""

from kofn.problems.arms import ArctanExponential, Bernoulli, Beta, Correlated, Empirical
from kofn.problems.check import Check, Finding
from kofn.problems.family import Arms
from kofn.problems.graph import Graph
from kofn.problems.influence import Influence
from kofn.problems.interactions import Interactions
from kofn.problems.latencies import Lognormal, Pareto, storage
from kofn.problems.log import Log
from kofn.problems.offpolicy import Estimate, Evaluation, evaluate, evaluate_all
from kofn.problems.problem import Problem
from kofn.problems.recommendations import Recommendations
from kofn.problems.rewards import Reward, as_reward, by_name, cross_selling, maximum, mean, minimum, threshold, utility

__all__ = [
    "ArctanExponential",
    "Arms",
    "Bernoulli",
    "Beta",
    "Check",
    "Correlated",
    "Empirical",
    "Estimate",
    "Evaluation",
    "Finding",
    "Graph",
    "Influence",
    "Interactions",
    "Log",
    "Lognormal",
    "Pareto",
    "Problem",
    "Recommendations",
    "Reward",
    "as_reward",
    "by_name",
    "cross_selling",
    "evaluate",
    "evaluate_all",
    "maximum",
    "mean",
    "minimum",
    "storage",
    "threshold",
    "utility",
]
