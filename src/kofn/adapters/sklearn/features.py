"""Choose K features for an estimator: a feature selector that fits one fold per evaluation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.feature_selection import SelectorMixin
from sklearn.metrics import check_scoring
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold, StratifiedKFold, check_cv
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted, validate_data

from kofn.adapters.sklearn.searching import finite, search, seed_of
from kofn.choosing import Choice

REPEATS = 20
"""How often an integer `cv` shuffles the rows into folds. Higher: a subset that is scored very often meets more
different splits, and the list of splits takes more memory."""

MOST_INDICES = 25_000_000
"""Row numbers in the list of splits of an integer `cv`, 8 bytes each: many rows are shuffled fewer times."""

Split = tuple[NDArray[np.intp], NDArray[np.intp]]


class SubsetSelector(MetaEstimatorMixin, SelectorMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Select the features with which an estimator scores best, within a number of fits.

    `SequentialFeatureSelector` fits every fold for every candidate. This one fits a single fold per evaluation, and
    spends the next fit where it helps the choice most: on subsets that may be the best.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_iris(return_X_y=True)
    >>> selector = SubsetSelector(GaussianNB(), n_features_to_select=2, budget=60, random_state=1).fit(X, y)
    >>> selector.get_support()
    array([False, False,  True,  True])
    >>> selector.transform(X).shape, selector.n_fits_
    ((150, 2), 60)

    Args:
        estimator: fitted on each subset of the features; it is cloned, not changed.
        n_features_to_select: a number of features, or a fraction of them between 0 and 1.
        budget: the most fits; None for 20 per feature, at least 100 and at most 3,000, and fewer if the choice is
            settled earlier.
        cv: a number of folds, a splitter or a list of splits. A number shuffles the rows again (stratified for
            classifiers) when all folds were used. With a splitter, a subset that has been scored on all of its splits
            is not fitted again.
        scoring: the name of a metric or a scorer; None for the estimator's own score.
        random_state: an integer for the same result every time.
        n_jobs: the number of threads; -1 for one per core. Threads help if the estimator releases Python's lock.

    Attributes:
        support_: a mask of the selected features.
        n_features_to_select_: the number of selected features.
        n_fits_: the number of fits.
        choice_: the `Choice`, with all evaluations; its interval is for the mean score over splits of these rows.
        n_features_in_, feature_names_in_: as in every estimator of scikit-learn.
    """

    support_: NDArray[np.bool_]
    n_features_to_select_: int
    n_fits_: int
    choice_: Choice

    def __init__(
        self,
        estimator: Any,
        n_features_to_select: float = 0.5,
        *,
        budget: int | None = None,
        cv: Any = 5,
        scoring: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_features_to_select = n_features_to_select
        self.budget = budget
        self.cv = cv
        self.scoring = scoring
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any = None, **params: Any) -> Self:
        """Select features of X; `params` go to the estimator, the splitter and the scorer by metadata routing."""
        routed = self._routed(params)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            ensure_min_features=2,
            ensure_all_finite=not get_tags(self.estimator).input_tags.allow_nan,
        )
        X, y = indexable(X, y)
        k = _number(self.n_features_to_select, X.shape[1])
        seed = seed_of(self.random_state)
        splits = list(self._splitter(y, seed, X.shape[0]).split(X, y, **routed["splitter"]["split"]))
        folds = _Folds(self, X, y, splits, seed, routed["estimator"]["fit"], routed["scorer"]["score"])
        found = search(
            X.shape[1],
            k,
            folds,
            budget=self.budget,
            seed=seed,
            n_jobs=self.n_jobs,
            repeatable=len(splits) == 1,
        )
        self.support_ = np.isin(np.arange(X.shape[1]), found.arms)
        self.n_features_to_select_ = k
        self.n_fits_ = folds.fits
        self.choice_ = found
        return self

    def get_metadata_routing(self) -> Any:
        """Return where metadata goes: to the estimator's fit, the splitter's split and the scorer."""
        router = MetadataRouter(owner=self)
        for name, to, method in (
            ("estimator", self.estimator, "fit"),
            ("splitter", check_cv(self.cv, classifier=is_classifier(self.estimator)), "split"),
            ("scorer", check_scoring(self.estimator, scoring=self.scoring), "score"),
        ):
            router.add(**{name: to}, method_mapping=MethodMapping().add(caller="fit", callee=method))
        return router

    def _routed(self, params: Mapping[str, Any]) -> Any:
        if params and not get_config()["enable_metadata_routing"]:
            raise ValueError(
                f"[{', '.join(params)}] are passed to fit but metadata routing is not enabled: call "
                f"sklearn.set_config(enable_metadata_routing=True) first"
            )
        return process_routing(self, "fit", **params)

    def _splitter(self, y: Any, seed: int, n_rows: int) -> Any:
        folds = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        if not (self.cv is None or isinstance(self.cv, int | np.integer)):
            return folds
        repeated = RepeatedStratifiedKFold if isinstance(folds, StratifiedKFold) else RepeatedKFold
        repeats = max(1, min(REPEATS, MOST_INDICES // (n_rows * folds.n_splits)))
        return repeated(n_splits=folds.n_splits, n_repeats=repeats, random_state=seed)

    def _get_support_mask(self) -> NDArray[np.bool_]:
        check_is_fitted(self)
        return self.support_

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator).input_tags
        tags.input_tags.allow_nan = inner.allow_nan
        tags.input_tags.sparse = inner.sparse
        return tags


class _Folds:
    """Score subsets of features, each time on the next split of that subset; its first split is random.

    The nth score of a subset does not depend on other subsets, so threads do not change it.
    """

    def __init__(
        self,
        selector: SubsetSelector,
        X: Any,
        y: Any,
        splits: Sequence[Split],
        seed: int,
        fit_params: Mapping[str, Any],
        score_params: Mapping[str, Any],
    ) -> None:
        self.estimator, self.scoring = selector.estimator, selector.scoring
        self.scorer = check_scoring(selector.estimator, scoring=selector.scoring)
        self.X, self.y, self.splits, self.seed = X, y, splits, seed
        self.fit_params, self.score_params = fit_params, score_params
        self.started: Counter[tuple[int, ...]] = Counter()
        self.totals: defaultdict[tuple[int, ...], float] = defaultdict(float)
        self.fits = 0
        self.lock = Lock()

    def __call__(self, features: list[int]) -> float:
        """Return the score of these features on one split; their mean score if they have been scored on all."""
        subset = tuple(features)
        with self.lock:
            place = self.started[subset]
            if place >= len(self.splits):
                return self.totals[subset] / len(self.splits)
            self.started[subset] += 1
            self.fits += 1
        first = int(np.random.default_rng([self.seed, *subset]).integers(len(self.splits)))
        score = self._score(features, *self.splits[(first + place) % len(self.splits)])
        with self.lock:
            self.totals[subset] += score
        return score

    def _score(self, features: list[int], train: NDArray[np.intp], test: NDArray[np.intp]) -> float:
        X = self.X[:, features]
        fitted = clone(self.estimator)
        fitted.fit(X[train], *self._targets(train), **self._rows_of(self.fit_params, train))
        value = self.scorer(fitted, X[test], *self._targets(test), **self._rows_of(self.score_params, test))
        return finite(value, self.scoring, features)

    def _targets(self, rows: NDArray[np.intp]) -> list[Any]:
        return [] if self.y is None else [_safe_indexing(self.y, rows)]

    def _rows_of(self, params: Mapping[str, Any], rows: NDArray[np.intp]) -> dict[str, Any]:
        """Return the parameters, those with a value for each row for these rows only."""
        n_rows = self.X.shape[0]
        return {
            name: _safe_indexing(value, rows) if np.ndim(value) and len(value) == n_rows else value
            for name, value in params.items()
        }


def _number(number: Any, n_features: int) -> int:
    """Return how many of the features to select."""
    if isinstance(number, int | np.integer) and not isinstance(number, bool):
        k = int(number)
    elif isinstance(number, float | np.floating) and 0 < number < 1:
        k = int(n_features * number)
    else:
        raise ValueError(
            f"n_features_to_select must be an integer or a fraction between 0 and 1 (both exclusive), not {number!r}"
        )
    if not 0 < k < n_features:
        raise ValueError(
            f"n_features_to_select={number!r} is {k} of {n_features} features; select at least 1 and at most "
            f"{n_features - 1}"
        )
    return k
