"""Feature choice: K columns of a table, and the accuracy of a closed-form classifier that sees only these.

Both classifiers are fitted for all features at once, for each of a fixed number of random splits. Linear discriminant
analysis then needs a K x K block of the covariance; Gaussian naive Bayes adds up one number per feature.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from kofn.core import FloatArray, IntArray, Subset
from kofn.lab.problems.expectation import top_subset
from kofn.lab.problems.real.files import module
from kofn.lab.problems.real.table import TableProblem

SPLITS = 20
"""Random splits of the table of the discriminant analysis: a play draws one. More of them take longer."""
TEST_ROWS = 171
"""Rows of a split that are predicted (30 %)."""
BAYES_SPLITS, BAYES_ROWS, BATCH = 4, 240, 20
"""Splits of the table of naive Bayes, rows of each that are predicted, and rows of a batch, which a play draws."""
_SEED = 1936


class Discriminant(TableProblem):
    """Linear discriminant analysis of two classes on K features; a play is the accuracy on a random split."""

    def __init__(self, arms: Iterable[str], x: FloatArray, y: IntArray, k: int, domain: Mapping[str, Subset]) -> None:
        super().__init__(arms, k, SPLITS, binary=False, domain=domain)
        self.width = SPLITS * TEST_ROWS * k
        rng, n = np.random.default_rng(_SEED), self.n_arms
        x = np.hstack([(x - x.mean(axis=0)) / x.std(axis=0), np.zeros((len(x), 1))])  # feature N is an empty place
        self._covariance = np.empty((SPLITS, n + 1, n + 1))
        self._difference, self._middle = np.empty((SPLITS, n + 1)), np.empty((SPLITS, n + 1))
        self._log_odds = np.empty(SPLITS)
        self._x, self._y = np.empty((SPLITS, TEST_ROWS, n + 1)), np.empty((SPLITS, TEST_ROWS), bool)
        for split in range(SPLITS):
            order = rng.permutation(len(x))
            test, train = order[:TEST_ROWS], order[TEST_ROWS:]
            groups = [x[train][y[train] == label] for label in (0, 1)]
            means = [group.mean(axis=0) for group in groups]
            inside = np.concatenate([group - mean for group, mean in zip(groups, means, strict=True)])
            self._covariance[split] = inside.T @ inside / len(train)
            self._difference[split], self._middle[split] = means[1] - means[0], (means[0] + means[1]) / 2
            self._log_odds[split] = np.log(len(groups[1]) / len(groups[0]))
            self._x[split], self._y[split] = x[test], y[test] == 1

    def outcomes(self, subsets: IntArray) -> FloatArray:
        """Return the accuracy of each row of features on each split."""
        splits = np.arange(SPLITS)[None, :, None]
        block = self._covariance[splits[..., None], subsets[:, None, :, None], subsets[:, None, None, :]]
        block = block + np.eye(self.k) * (subsets == self.n_arms)[:, None, :, None]  # keeps empty places regular
        arms = subsets[:, None, :]
        weight = np.linalg.solve(block, self._difference[splits, arms][..., None])
        score = (self._x[:, :, subsets].transpose(2, 0, 1, 3) @ weight)[..., 0]
        cut = (self._middle[splits, arms] * weight[..., 0]).sum(axis=-1) - self._log_odds
        return np.asarray(((score > cut[..., None]) == self._y).mean(axis=-1))


class NaiveBayes(TableProblem):
    """Gaussian naive Bayes on K features; a play is the accuracy on a random batch of test rows.

    The log-likelihood of a class is a sum over the features, so a subset is valued without a fit.
    """

    def __init__(self, arms: Iterable[str], x: FloatArray, y: IntArray, k: int, domain: Mapping[str, Subset]) -> None:
        rng = np.random.default_rng(_SEED)
        labels, rows = np.unique(y), BAYES_ROWS
        super().__init__(arms, k, BAYES_SPLITS * rows // BATCH, binary=False, domain=domain)
        smooth = 1e-2 * x.var(axis=0).max()
        self._log_likelihood = np.zeros((self.n_arms + 1, len(labels), BAYES_SPLITS * rows), np.float32)
        truth = np.empty(BAYES_SPLITS * rows, np.int64)
        for split in range(BAYES_SPLITS):
            order = rng.permutation(len(x))
            test, train, at = order[:rows], order[rows:], slice(split * rows, (split + 1) * rows)
            truth[at] = np.searchsorted(labels, y[test])
            for each, label in enumerate(labels):
                group = x[train][y[train] == label]
                mean, variance = group.mean(axis=0), group.var(axis=0) + smooth
                distance = (x[test] - mean) ** 2 / variance + np.log(variance)
                self._log_likelihood[:-1, each, at] = -0.5 * distance.T
        self._truth = truth

    def outcomes(self, subsets: IntArray) -> FloatArray:
        """Return the accuracy of each row of features on each batch; of equally likely classes, the lowest is taken."""
        right = np.empty((len(subsets), self.contexts))
        for row, arms in enumerate(subsets):
            score = self._log_likelihood[arms].sum(axis=0)
            right[row] = (score.argmax(axis=0) == self._truth).reshape(-1, BATCH).mean(axis=1)
        return right


def cancer(k: int) -> Discriminant:
    """Return the choice of measurements of cell nuclei that tell whether a breast tumour is malignant."""
    data = module("sklearn.datasets", "scikit-learn").load_breast_cancer()
    domain = _best_alone(data.data, data.target, k)
    return Discriminant(map(str, data.feature_names), data.data, data.target, k, domain)


def pixels(k: int) -> NaiveBayes:
    """Return the choice of pixels that tell handwritten digits apart."""
    data = module("sklearn.datasets", "scikit-learn").load_digits()
    varies = data.data.std(axis=0) > 0
    x, names = data.data[:, varies], np.array(data.feature_names)[varies]
    return NaiveBayes(map(str, names), x, data.target, k, _best_alone(x, data.target, k))


def _best_alone(x: FloatArray, y: IntArray, k: int) -> dict[str, Subset]:
    """Return the K features with the highest F statistic, by name of the rule."""
    f, _ = module("sklearn.feature_selection", "scikit-learn").f_classif(x, y)
    return {"highest ANOVA F (SelectKBest, knows the data)": top_subset(f, k)}
