"""Problems: arms, a reward function and K. Something to learn, whose answer is known.

>>> from kofn import problems
>>> problem = problems.Problem(problems.Bernoulli([0.1, 0.5, 0.3]), problems.mean, k=2)
>>> problem.best
(1, 2)
"""

from kofn.problems.arms import ArctanExponential, Bernoulli, Beta, Correlated, Empirical
from kofn.problems.check import Check, Finding
from kofn.problems.family import Arms
from kofn.problems.problem import Problem
from kofn.problems.rewards import Reward, as_reward, by_name, cross_selling, maximum, mean, minimum, threshold, utility

__all__ = [
    "ArctanExponential",
    "Arms",
    "Bernoulli",
    "Beta",
    "Check",
    "Correlated",
    "Empirical",
    "Finding",
    "Problem",
    "Reward",
    "as_reward",
    "by_name",
    "cross_selling",
    "maximum",
    "mean",
    "minimum",
    "threshold",
    "utility",
]
