"""Clicks: K items of a fashion shop's front page, and 1 if any is clicked. The uniform log of the Open Bandit Dataset.

Real are the items, how often each was shown at random, and the clicks. The model: each of the K places shows a random
logged impression of its item, so that clicks on different items are independent, and positions do not matter.
"""

from __future__ import annotations

import csv

import numpy as np

from kofn.lab.problems.distributions import Bernoulli
from kofn.lab.problems.problem import Problem
from kofn.lab.problems.real.files import data_file


def clicks(n_arms: int, k: int) -> Problem:
    """Return the problem of the items of the campaign "all"; a reward is 1 if any of the K impressions was clicked."""
    shown, clicked = np.zeros(n_arms), np.zeros(n_arms)
    with data_file("obp", "dataset", "obd", "random", "all", "all.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            shown[int(row["item_id"])] += 1
            clicked[int(row["item_id"])] += int(row["click"])
    return Problem(Bernoulli(clicked / shown), "maximum", k, absent=0.0)
