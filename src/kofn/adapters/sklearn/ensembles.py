"""Choose K models whose averaged predictions score best on held-out rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier
from sklearn.metrics import get_scorer
from sklearn.model_selection import check_cv, cross_val_predict
from sklearn.utils import assert_all_finite, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from kofn.adapters.sklearn.searching import finite, search, seed_of
from kofn.choosing import Choice
from kofn.core import FloatArray, whole


def _for_classifiers(selector: EnsembleSelector) -> bool:
    return bool(is_classifier(selector))


class EnsembleSelector(BaseEstimator):  # type: ignore[misc]  # scikit-learn is untyped
    """Average the predictions of the K models that score best together, which need not be the K best ones.

    >>> from sklearn.datasets import load_iris
    >>> from sklearn.dummy import DummyClassifier
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> zero = DummyClassifier(strategy="constant", constant=0)
    >>> models = [("bayes", GaussianNB()), ("near", KNeighborsClassifier(3)), ("zero", zero)]
    >>> ensemble = EnsembleSelector(models, k=2, budget=100, random_state=1).fit(X, y)
    >>> ensemble.names_
    ['bayes', 'near']
    >>> ensemble.predict(X[:3])
    array([0, 0, 0])

    The predictions of each model on held-out rows are computed once. An evaluation averages the predictions of K
    models on a bootstrap sample of the rows: scores of one subset differ as they would on other samples of this size.

    Args:
        estimators: classifiers or regressors, or pairs of a name and an estimator as in `VotingClassifier`.
        k: the number of models to choose.
        budget: the most evaluations, which fit nothing; None for 20 per model, at least 100 and at most 3,000, and
            fewer if the choice is settled earlier.
        cv: "prefit" if the models are fitted and fit() gets rows that they have not seen. Otherwise the folds, as in
            `StackingClassifier`: each row is predicted by models that were fitted without it, and the chosen models
            are then fitted on all rows.
        voting: of classifiers, "soft" averages probabilities and "hard" counts votes.
        scoring: the name of a metric or a scorer; None for accuracy or R2.
        random_state: an integer for the same result every time.
        n_jobs: the number of processes that fit the folds of a model.

    Attributes:
        estimators_: the chosen models, fitted.
        names_: their names; "0", "1", ... if none were given.
        support_: a mask of the chosen models.
        choice_: the `Choice`, with all evaluations; its interval is for the mean score on these held-out rows.
        classes_: the class labels, of classifiers.
    """

    estimators_: list[Any]
    names_: list[str]
    support_: NDArray[np.bool_]
    choice_: Choice
    classes_: NDArray[Any]
    _required_parameters = ("estimators", "k")

    def __init__(
        self,
        estimators: Sequence[Any],
        k: int,
        *,
        budget: int | None = None,
        cv: Any = 5,
        voting: Literal["soft", "hard"] = "soft",
        scoring: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimators = estimators
        self.k = k
        self.budget = budget
        self.cv = cv
        self.voting = voting
        self.scoring = scoring
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Choose models by their predictions on held-out rows: of folds, or all rows if the models are fitted."""
        names, models = _named(self.estimators)
        k = whole("k", self.k)
        if k >= len(models):
            raise ValueError(f"k must be at most {len(models) - 1}, one less than the number of models; got {k}")
        if self.voting not in ("soft", "hard"):
            raise ValueError(f"voting must be 'soft' or 'hard', not {self.voting!r}")
        if self._prefit:
            for model in models:
                check_is_fitted(model)
        validate_data(self, X, skip_check_array=True)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        check_consistent_length(X, y)
        classes = None
        if is_classifier(self):
            check_classification_targets(y)
            classes = self.classes_ = np.unique(np.concatenate([y, *self._known_classes(models)]))
        held_out = np.stack([self._held_out(model, X, y) for model in models])
        seed = seed_of(self.random_state)
        bags = _Bags(held_out, y, classes, self._scoring(), seed)
        self.choice_ = search(len(models), k, bags, budget=self.budget, seed=seed)
        chosen = self.choice_.arms
        self.support_ = np.isin(np.arange(len(models)), chosen)
        self.names_ = [names[arm] for arm in chosen]
        self.estimators_ = [models[arm] if self._prefit else clone(models[arm]).fit(X, y) for arm in chosen]
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest average, or the averaged predictions of regressors."""
        mean = self._mean(X)
        found: NDArray[Any] = self.classes_[mean.argmax(axis=1)] if is_classifier(self) else mean[:, 0]
        return found

    @available_if(_for_classifiers)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Return the averaged probabilities of the classes, or the shares of votes."""
        return self._mean(X)

    def score(self, X: Any, y: Any) -> float:
        """Return the score of the chosen ensemble by `scoring`."""
        return float(get_scorer(self._scoring())(self, X, y))

    @property
    def _prefit(self) -> bool:
        return isinstance(self.cv, str) and self.cv == "prefit"

    @property
    def _method(self) -> str:
        return "predict_proba" if is_classifier(self) and self.voting == "soft" else "predict"

    def _scoring(self) -> Any:
        return self.scoring or ("accuracy" if is_classifier(self) else "r2")

    def _known_classes(self, models: Sequence[Any]) -> list[NDArray[Any]]:
        return [model.classes_ for model in models] if self._prefit else []

    def _mean(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        predicted = [self._aligned(getattr(model, self._method)(X), model) for model in self.estimators_]
        return np.asarray(np.mean(predicted, axis=0))

    def _held_out(self, model: Any, X: Any, y: Any) -> FloatArray:
        """Return the predictions of rows that the model was not fitted on."""
        if self._prefit:
            return self._aligned(getattr(model, self._method)(X), model)
        folds = check_cv(self.cv, y, classifier=is_classifier(self))
        return self._aligned(cross_val_predict(model, X, y, cv=folds, n_jobs=self.n_jobs, method=self._method))

    def _aligned(self, predicted: Any, model: Any = None) -> FloatArray:
        """Return predictions as one column per class of all models, or as one column of a regressor."""
        if not is_classifier(self):
            return np.asarray(predicted, np.float64).reshape(-1, 1)
        if self._method == "predict":
            return np.asarray(np.asarray(predicted)[:, None] == self.classes_, np.float64)
        aligned = np.zeros((len(predicted), len(self.classes_)))
        aligned[:, np.searchsorted(self.classes_, self.classes_ if model is None else model.classes_)] = predicted
        return aligned

    def __sklearn_tags__(self) -> Any:
        tags, inner = super().__sklearn_tags__(), [get_tags(model) for model in _named(self.estimators)[1]]
        tags.estimator_type = inner[0].estimator_type
        tags.classifier_tags, tags.regressor_tags = inner[0].classifier_tags, inner[0].regressor_tags
        tags.target_tags.required = True
        tags.input_tags.sparse = all(each.input_tags.sparse for each in inner)
        tags.input_tags.allow_nan = all(each.input_tags.allow_nan for each in inner)
        return tags


class _AveragedRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The averaged predictions of some models for some rows, as a fitted model that scorers take; X is ignored."""

    def __init__(self, mean: FloatArray) -> None:
        self.mean = mean

    def predict(self, X: Any) -> FloatArray:
        """Return the averaged predictions."""
        return self.mean[:, 0]


class _AveragedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The same for classifiers."""

    def __init__(self, mean: FloatArray, classes: NDArray[Any]) -> None:
        self.mean, self.classes_ = mean, classes

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the highest average."""
        found: NDArray[Any] = self.classes_[self.mean.argmax(axis=1)]
        return found

    def predict_proba(self, X: Any) -> FloatArray:
        """Return the averaged probabilities."""
        return self.mean


class _Bags:
    """Score subsets of models, each time on another bootstrap sample of the held-out rows, drawn within classes."""

    def __init__(
        self, held_out: FloatArray, y: NDArray[Any], classes: NDArray[Any] | None, scoring: Any, seed: int
    ) -> None:
        self.held_out, self.y, self.classes, self.scoring, self.seed = held_out, y, classes, scoring, seed
        self.scorer = get_scorer(scoring)
        strata = np.zeros(len(y), np.intp) if classes is None else np.searchsorted(classes, y)
        self.rows = np.argsort(strata, kind="stable")
        sizes = np.bincount(strata)
        self.first = np.repeat(np.cumsum(sizes) - sizes, sizes)  # of its class, for each place in self.rows
        self.size = np.repeat(sizes, sizes)
        self.evaluated: Counter[tuple[int, ...]] = Counter()

    def __call__(self, models: list[int]) -> float:
        """Return the score of these models on the next sample."""
        subset = tuple(models)
        draws = np.random.default_rng([self.seed, *subset, self.evaluated[subset]]).random(len(self.rows))
        self.evaluated[subset] += 1
        return self.score(models, self.rows[self.first + (draws * self.size).astype(np.intp)])

    def score(self, models: list[int], rows: NDArray[np.intp]) -> float:
        """Return the score of these models on these rows."""
        mean = self.held_out[np.array(models)[:, None], rows].mean(axis=0)
        averaged = _AveragedRegressor(mean) if self.classes is None else _AveragedClassifier(mean, self.classes)
        return finite(self.scorer(averaged, rows, self.y[rows]), self.scoring, models)


def _named(estimators: Any) -> tuple[list[str], list[Any]]:
    """Return the names and the estimators of a list of estimators or of pairs."""
    if not isinstance(estimators, Sequence) or isinstance(estimators, str) or len(estimators) < 2:
        raise ValueError(
            f"estimators must be a list of at least two estimators or (name, estimator) pairs, not {estimators!r}"
        )
    pairs = [each if isinstance(each, tuple) else (str(place), each) for place, each in enumerate(estimators)]
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError(f"the names of estimators must differ; got {names}")
    return names, [model for _, model in pairs]
