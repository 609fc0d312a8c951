"""Handwritten digits: which models vote, and which examples are the reference set."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kofn.core import FloatArray, IntArray
from kofn.lab.problems.real.files import module
from kofn.lab.problems.real.table import TableProblem

QUERIES = 600
"""Digits that are predicted; a play draws one of them."""
TRAINING_ROWS, PIXELS = 120, 24
"""Rows and pixels that each model of the ensemble is fitted on. Fewer of them make models weaker and more diverse."""
CLASSES = 10
_SEED = 1998


class Vote(TableProblem):
    """K classifiers vote; a play is a random query, and pays 1 if the most votes are for the right class.

    Of classes with equally many votes, the lowest wins. `predictions[i, q]` is the class that arm i gives to query q.
    """

    def __init__(self, arms: Iterable[str], predictions: IntArray, truth: IntArray, k: int) -> None:
        super().__init__(arms, k, len(truth), binary=True)
        votes = predictions[:, None, :] == np.arange(CLASSES)[None, :, None]
        self._votes = np.concatenate([votes, np.zeros_like(votes[:1])]).astype(np.uint8)  # the last: an empty place
        self._truth = truth

    def outcomes(self, subsets: IntArray) -> NDArray[np.bool_]:
        """Return whether the vote of each row is right, for each query."""
        right = np.empty((len(subsets), self.contexts), bool)
        for row, arms in enumerate(subsets):
            right[row] = self._votes[arms].sum(axis=0, dtype=np.uint8).argmax(axis=0) == self._truth
        return right


class NearestExample(TableProblem):
    """K labelled examples are the reference set; a play is a random query, and pays 1 if its nearest example's label
    is the right one.

    It stands for the choice of examples in a prompt: what an example is worth depends on the others.
    """

    def __init__(self, arms: Iterable[str], examples: FloatArray, labels: IntArray, queries: FloatArray,
                 truth: IntArray, k: int) -> None:  # fmt: skip
        super().__init__(arms, k, len(truth), binary=True)
        distance = ((examples[:, None, :] - queries[None, :, :]) ** 2).sum(axis=2)
        self._distance = np.vstack([distance, np.full_like(distance[:1], np.inf)]).astype(np.float32)
        self._right = np.vstack([labels[:, None] == truth, np.zeros_like(truth[None, :], bool)])
        self._queries = np.arange(len(truth))

    def outcomes(self, subsets: IntArray) -> NDArray[np.bool_]:
        """Return whether the nearest example of each row has the right label, for each query."""
        right = np.empty((len(subsets), self.contexts), bool)
        for row, arms in enumerate(subsets):
            right[row] = self._right[arms[self._distance[arms].argmin(axis=0)], self._queries]
        return right


def ensemble(n_arms: int, k: int) -> Vote:
    """Return the choice of K of the fitted models: five kinds in turn, each on its own rows and pixels."""
    x, y = _digits()
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(len(x))
    queries, training = order[:QUERIES], order[QUERIES:]
    names, predictions = [], np.empty((n_arms, QUERIES), np.int64)
    kinds = _kinds()
    for arm in range(n_arms):
        name, make = kinds[arm % len(kinds)]
        rows = rng.choice(training, TRAINING_ROWS, replace=False)
        pixels = rng.choice(x.shape[1], PIXELS, replace=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # some pixels do not vary within a class
            predictions[arm] = make().fit(x[rows][:, pixels], y[rows]).predict(x[queries][:, pixels])
        names.append(f"{name} {arm // len(kinds) + 1}")
    return Vote(names, predictions, y[queries], k)


def examples(n_arms: int, k: int) -> NearestExample:
    """Return the choice of K examples among equally many of each class."""
    x, y = _digits()
    rng = np.random.default_rng(_SEED)
    order = rng.permutation(len(x))
    queries, rest = order[:QUERIES], order[QUERIES:]
    pool = np.concatenate([rest[y[rest] == label][: n_arms // CLASSES] for label in range(CLASSES)])
    names = [f"a {y[row]} (row {row})" for row in pool.tolist()]
    return NearestExample(names, x[pool], y[pool], x[queries], y[queries], k)


def _digits() -> tuple[FloatArray, IntArray]:
    data = module("sklearn.datasets", "scikit-learn").load_digits()
    return data.data, data.target


def _kinds() -> list[tuple[str, Callable[[], Any]]]:
    of = "scikit-learn"
    tree = partial(module("sklearn.tree", of).DecisionTreeClassifier, random_state=0)
    neighbours = module("sklearn.neighbors", of)
    return [
        ("tree", partial(tree, max_depth=6)),
        ("nearest neighbour", partial(neighbours.KNeighborsClassifier, 1)),
        ("nearest centroid", neighbours.NearestCentroid),
        ("stump", partial(tree, max_depth=2)),
        ("naive Bayes", partial(module("sklearn.naive_bayes", of).GaussianNB, var_smoothing=1e-2)),
    ]
