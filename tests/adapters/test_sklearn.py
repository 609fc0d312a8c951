"""The selectors for scikit-learn: its own checks, pipelines, grids, pandas, and subsets whose answer is known."""

import importlib
import itertools
import pickle
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import sklearn
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_regressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    PredefinedSplit,
    cross_val_predict,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

import kofn
from kofn.adapters.sklearn import EnsembleSelector, SubsetSelector
from kofn.adapters.sklearn.ensembles import _Bags
from tests.cases import for_each

CHECKED = [
    SubsetSelector(LogisticRegression(), budget=15, cv=3, random_state=0),
    SubsetSelector(LinearRegression(), budget=15, random_state=0),
    EnsembleSelector([GaussianNB(), LogisticRegression(), DecisionTreeClassifier(random_state=0)], 2, budget=15, cv=3),
    EnsembleSelector([("line", LinearRegression()), ("mean", DummyRegressor()), ("r", Ridge())], 2, budget=15),
]
CHECKS = [(each, check) for each in CHECKED for _, check in estimator_checks_generator(each)]
FAST = ("check_estimators_pickle", "check_fit_idempotent", "check_n_features_in", "check_dont_overwrite_attributes")


def named(value: Any) -> str:
    """The name of a check, or the type of an estimator and its place in CHECKED."""
    return value.func.__name__ if hasattr(value, "func") else f"{type(value).__name__}-{CHECKED.index(value)}"


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), CHECKS, ids=named)
def test_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    """As `parametrize_with_checks`, whose first versions give pytest a generator, which is deprecated there."""
    check(clone(estimator))


@pytest.mark.parametrize("estimator", CHECKED, ids=named)
def test_some_checks_of_scikit_learn(estimator: Any) -> None:
    """The others are slow tests."""
    chosen = [check for _, check in estimator_checks_generator(estimator) if check.func.__name__ in FAST]
    assert len(chosen) >= len(FAST)
    for check in chosen:
        check(clone(estimator))


# Features.


def planted(seed: int, rows: int = 120) -> tuple[Any, Any]:
    """Return data of 10 features, of which 2, 5 and 7 decide the class and the others are noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 10))
    return X, (X[:, [2, 5, 7]].sum(axis=1) > 0).astype(int)


@pytest.mark.parametrize("seed", range(2))
def test_the_features_that_decide_are_selected(seed: int) -> None:
    """A wrong feature costs 0.15 of accuracy, 4 standard deviations of one fold, and each is scored about 60 times."""
    selector = SubsetSelector(LinearDiscriminantAnalysis(), 3, budget=200, random_state=seed).fit(*planted(seed))
    assert np.flatnonzero(selector.support_).tolist() == [2, 5, 7]
    assert selector.get_support(indices=True).tolist() == [2, 5, 7]
    assert selector.n_features_to_select_ == 3
    assert 100 <= selector.n_fits_ <= selector.choice_.evaluations == 200
    assert selector.choice_.low < selector.choice_.value < selector.choice_.high


def test_all_folds_of_a_splitter_give_its_cross_validation() -> None:
    """With every subset scored on all folds, the choice is that of an exhaustive search by cross_val_score."""
    X, y = planted(0)
    X = X[:, [0, 2, 5, 7]]  # the best pair is ahead of the next by 0.04
    folds, model = KFold(4, shuffle=True, random_state=2), GaussianNB()
    selector = SubsetSelector(model, 2, budget=400, cv=folds, random_state=0).fit(X, y)
    scores = {pair: cross_val_score(model, X[:, pair], y, cv=folds) for pair in itertools.combinations(range(4), 2)}
    best = max(scores, key=lambda pair: scores[pair].mean())
    assert selector.choice_.arms == best
    seen = [each.value for each in selector.choice_.history if each.arms == best]
    assert sorted(seen[:4]) == pytest.approx(sorted(scores[best]))
    assert seen[4:] == pytest.approx([scores[best].mean()] * (len(seen) - 4))  # known by then: not fitted again
    assert selector.n_fits_ <= 4 * 6 < selector.choice_.evaluations


def test_a_number_of_folds_is_shuffled_again() -> None:
    """More than 5 scores of one subset are different splits: 400 evaluations of 3 subsets, each a fit of its own."""
    X, y = load_diabetes(return_X_y=True)
    selector = SubsetSelector(LinearRegression(), 1, budget=120, random_state=0).fit(X[:, :3], y)
    seen = [each.value for each in selector.choice_.history if each.arms == selector.choice_.arms]
    assert len(seen) > 10
    assert len({round(value, 9) for value in seen[:100]}) == min(len(seen), 100)


def test_one_split_is_not_fitted_twice() -> None:
    X, y = load_iris(return_X_y=True)
    split = PredefinedSplit(np.tile([0, -1, -1], 50))
    selector = SubsetSelector(GaussianNB(), 2, budget=100, cv=split, random_state=0).fit(X, y)
    assert selector.n_fits_ == selector.choice_.evaluations == 6
    assert selector.choice_.reason == "all subsets are scored"


def test_the_same_random_state_gives_the_same_features_with_threads_too() -> None:
    X, y = load_wine(return_X_y=True)
    runs = [
        SubsetSelector(GaussianNB(), 4, budget=40, random_state=seed, n_jobs=jobs).fit(X, y)
        for seed, jobs in ((1, 1), (1, 3), (2, 1))
    ]
    histories = [sorted((each.arms, each.value) for each in run.choice_.history) for run in runs]
    assert histories[0] == histories[1] != histories[2]
    assert (runs[0].support_ == runs[1].support_).all()


def test_a_pipeline_in_a_grid_search_with_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    X, y = load_wine(return_X_y=True, as_frame=True)
    selector = SubsetSelector(GaussianNB(), budget=20, cv=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), selector, LinearDiscriminantAnalysis()).set_output(transform="pandas")
    grid = GridSearchCV(pipeline, {"subsetselector__n_features_to_select": [2, 0.5]}, cv=2).fit(X, y)
    fitted = grid.best_estimator_[:-1]
    names = fitted.get_feature_names_out()
    assert len(names) == grid.best_params_["subsetselector__n_features_to_select"] * (13 if len(names) > 2 else 1) // 1
    assert set(names) <= set(X.columns)
    shown = fitted.transform(X.head())
    assert isinstance(shown, pandas.DataFrame)
    assert list(shown.columns) == list(names)
    assert list(grid.best_estimator_["subsetselector"].feature_names_in_) == list(X.columns)
    assert grid.score(X, y) > 0.8


def test_sparse_rows_and_pickles() -> None:
    X, y = planted(0)
    dense, thin = (
        SubsetSelector(LogisticRegression(), 3, budget=30, cv=3, random_state=0).fit(data, y)
        for data in (X, sparse.csr_matrix(X))
    )
    assert (dense.support_ == thin.support_).all()
    assert thin.transform(sparse.csr_matrix(X)).shape == (120, 3)
    again = pickle.loads(pickle.dumps(thin))
    assert (again.support_ == thin.support_).all()
    assert not hasattr(clone(thin), "support_")


class NeedsWeights(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Refuses rows whose weight is not their own: the weight of a row is its first feature."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "NeedsWeights":
        assert np.isin(sample_weight, ALLOWED).all()
        assert len(sample_weight) == len(y)
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self.classes_[0])


ALLOWED = np.arange(100.0)


@pytest.fixture
def _routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("_routing")
def test_metadata_is_routed() -> None:
    X, y = planted(0, 100)
    model = NeedsWeights().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
    groups = np.arange(100) // 10
    selector = SubsetSelector(model, 2, budget=12, cv=GroupKFold(5), random_state=0)
    selector.fit(X, y, sample_weight=ALLOWED, groups=groups)
    assert selector.n_fits_ == 12
    with pytest.raises(TypeError, match="unexpected argument"):
        selector.fit(X, y, wights=ALLOWED)


def test_metadata_without_routing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[sample_weight\] are passed to fit but metadata routing is not enabled"):
        SubsetSelector(GaussianNB(), 2).fit(*planted(0), sample_weight=np.ones(120))


@for_each(
    "options, error",
    [
        ({"n_features_to_select": 10}, "is 10 of 10 features; select at least 1 and at most 9"),
        ({"n_features_to_select": 0}, "is 0 of 10 features"),
        ({"n_features_to_select": 0.01}, "is 0 of 10 features"),
        ({"n_features_to_select": 1.5}, "must be an integer or a fraction between 0 and 1"),
        ({"n_features_to_select": "auto"}, "not 'auto'"),
        ({"n_features_to_select": True}, "not True"),
        ({"budget": 0}, "budget must be"),
        ({"scoring": lambda model, X, y: np.nan}, "returned nan for"),
        ({"scoring": "r3"}, "'r3'"),
        ({"cv": 1}, "n_splits=1"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        SubsetSelector(GaussianNB(), **options).fit(*planted(0))


class Broken(GaussianNB):  # type: ignore[misc]
    def fit(self, X: Any, y: Any) -> "Broken":
        raise ZeroDivisionError("broken")


def test_an_error_of_the_estimator_is_raised_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError, match="broken"):
        SubsetSelector(Broken(), 2, budget=10).fit(*planted(0))


# Ensembles.


def trees(count: int, X: Any, y: Any, kind: Any = DecisionTreeClassifier) -> list[Any]:
    """Return trees fitted on two features and half of the rows each."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(count):
        rows, columns = rng.random(len(y)) < 0.5, rng.choice(X.shape[1], 2, replace=False)
        weak = np.full_like(X, X.mean(axis=0))
        weak[:, columns] = X[:, columns]
        found.append(kind(max_depth=3, random_state=0).fit(weak[rows], y[rows]))
    return found


@pytest.fixture(scope="module")
def cancer() -> tuple[Any, ...]:
    X, y = load_breast_cancer(return_X_y=True)
    return X[:200], y[:200], X[200:400], y[200:400], X[400:], y[400:]


@pytest.mark.parametrize("voting", ["soft", "hard"])
def test_an_ensemble_predicts_as_a_voting_classifier_of_the_chosen(cancer: tuple[Any, ...], voting: Any) -> None:
    models = [("nb", GaussianNB()), ("lda", LinearDiscriminantAnalysis()), ("no", DummyClassifier())]
    X, y, *_, unseen, _ = cancer
    ours = EnsembleSelector(models, 2, budget=60, voting=voting, random_state=0).fit(X, y)
    assert ours.names_ == ["nb", "lda"]
    assert ours.support_.tolist() == [True, True, False]
    theirs = VotingClassifier(models[:2], voting=voting).fit(X, y)
    if voting == "soft":
        assert ours.predict_proba(unseen) == pytest.approx(theirs.predict_proba(unseen))
    assert (ours.predict(unseen) == theirs.predict(unseen)).all()


def test_an_ensemble_of_regressors() -> None:
    X, y = load_diabetes(return_X_y=True)
    models = [("mean", DummyRegressor()), ("line", LinearRegression()), ("ridge", Ridge(0.1))]
    ours = EnsembleSelector(models, 2, budget=100, random_state=0).fit(X[:300], y[:300])
    assert is_regressor(ours)
    assert not hasattr(ours, "predict_proba")
    theirs = VotingRegressor(models[1:]).fit(X[:300], y[:300])
    assert ours.predict(X[300:]) == pytest.approx(theirs.predict(X[300:]))
    assert ours.score(X[300:], y[300:]) == pytest.approx(theirs.score(X[300:], y[300:]))


@pytest.mark.parametrize("scoring", ["accuracy", "neg_log_loss", "roc_auc"])
def test_the_score_of_a_subset_is_that_of_the_metric(cancer: tuple[Any, ...], scoring: str) -> None:
    X, y, held, held_y, *_ = cancer
    models = trees(4, X, y)
    outputs = np.stack([model.predict_proba(held) for model in models])
    bags = _Bags(outputs, held_y, np.array([0, 1]), scoring, 0)
    mean = outputs[[0, 2]].mean(axis=0)
    expected = {
        "accuracy": accuracy_score(held_y, mean.argmax(axis=1)),
        "neg_log_loss": -log_loss(held_y, mean),
        "roc_auc": np.mean((mean[held_y == 1, 1][:, None] > mean[held_y == 0, 1]) * 1.0)
        + np.mean(mean[held_y == 1, 1][:, None] == mean[held_y == 0, 1]) / 2,
    }[scoring]
    assert bags.score([0, 2], np.arange(200)) == pytest.approx(expected)


def test_bootstrap_samples_keep_the_classes_and_center_on_the_score(cancer: tuple[Any, ...]) -> None:
    """400 samples: the mean is within 5 standard errors, and their spread is that of a binomial within classes."""
    X, y, held, held_y, *_ = cancer
    bags = _Bags(
        np.stack([model.predict_proba(held) for model in trees(3, X, y)]), held_y, np.array([0, 1]), "accuracy", 0
    )
    drawn: list[Any] = []
    score, bags.score = bags.score, lambda models, rows: drawn.append(rows) or score(models, rows)  # type: ignore[method-assign, func-returns-value]
    values = [bags([0, 1]) for _ in range(400)]
    assert {int(held_y[rows].sum()) for rows in drawn} == {int(held_y.sum())}
    assert len({tuple(rows) for rows in drawn}) == 400
    full = score([0, 1], np.arange(200))
    assert abs(np.mean(values) - full) < 5 * np.std(values) / 20
    right = np.stack([bags.held_out[[0, 1]].mean(axis=0).argmax(axis=1) == held_y])[0]
    spread = np.sqrt(sum((held_y == c).mean() ** 2 * right[held_y == c].var() / (held_y == c).sum() for c in (0, 1)))
    assert np.std(values) == pytest.approx(spread, rel=0.2)


def test_fitted_models_are_chosen_as_by_trying_all_subsets(cancer: tuple[Any, ...]) -> None:
    """The chosen three are among the best 5 of 56 subsets by the score on all held-out rows."""
    X, y, held, held_y, *_ = cancer
    models = trees(8, X, y)
    ensemble = EnsembleSelector(models, 3, budget=1_500, cv="prefit", random_state=0).fit(held, held_y)
    bags = _Bags(np.stack([model.predict_proba(held) for model in models]), held_y, np.array([0, 1]), "accuracy", 0)
    scores = {trio: bags.score(list(trio), np.arange(200)) for trio in itertools.combinations(range(8), 3)}
    assert ensemble.choice_.arms in sorted(scores, key=scores.__getitem__)[-5:]
    assert [model is models[arm] for model, arm in zip(ensemble.estimators_, ensemble.choice_.arms, strict=True)] == [
        True
    ] * 3
    assert ensemble.names_ == [str(arm) for arm in ensemble.choice_.arms]


def test_fitted_models_that_know_different_classes() -> None:
    X, y = load_iris(return_X_y=True, as_frame=True)
    y = y.map({0: "a", 1: "b", 2: "c"})
    without_a, without_c = y != "a", y != "c"
    models = [GaussianNB().fit(X[each], y[each]) for each in (without_a, without_c, y != "b")]
    ensemble = EnsembleSelector(models, 2, budget=50, cv="prefit", random_state=0).fit(X, y)
    assert ensemble.classes_.tolist() == ["a", "b", "c"]
    probabilities = ensemble.predict_proba(X)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(150))
    expected = np.zeros((150, 3))
    for arm in ensemble.choice_.arms:
        expected[:, [[1, 2], [0, 1], [0, 2]][arm]] += models[arm].predict_proba(X) / 2
    assert probabilities == pytest.approx(expected)
    assert list(ensemble.feature_names_in_) == list(X.columns)


def test_folds_predict_rows_that_the_model_has_not_seen() -> None:
    """A tree that learns all rows by heart is no better than chance out of fold: the honest model wins."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 6))
    y = (X[:, 0] + rng.normal(size=120) > 0).astype(int)
    models = [("heart", DecisionTreeClassifier(random_state=0)), ("nb", GaussianNB()), ("none", DummyClassifier())]
    ensemble = EnsembleSelector(models, 1, budget=100, cv=ShuffleKFold(), random_state=0).fit(X, y)
    assert ensemble.names_ == ["nb"]
    honest = accuracy_score(y, cross_val_predict(models[1][1], X, y, cv=ShuffleKFold()))
    assert ensemble.choice_.low < honest < ensemble.choice_.high


class ShuffleKFold(KFold):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(4, shuffle=True, random_state=1)


def test_an_ensemble_in_a_grid_search_and_a_pickle() -> None:
    X, y = load_wine(return_X_y=True)
    models = [GaussianNB(), LinearDiscriminantAnalysis(), DummyClassifier()]
    grid = GridSearchCV(EnsembleSelector(models, 1, budget=20, cv=3, random_state=0), {"k": [1, 2]}, cv=2).fit(X, y)
    assert grid.best_score_ > 0.9
    again = pickle.loads(pickle.dumps(grid.best_estimator_))
    assert (again.predict(X) == grid.predict(X)).all()


@for_each(
    "options, error",
    [
        ({"k": 3}, "k must be at most 2, one less than the number of models; got 3"),
        ({"k": 0}, "k must be"),
        ({"k": 1.5}, "k must be"),
        ({"voting": "loud"}, "voting must be 'soft' or 'hard', not 'loud'"),
        ({"estimators": [GaussianNB()]}, "at least two estimators"),
        ({"estimators": [("a", GaussianNB()), ("a", GaussianNB())], "k": 1}, "must differ; got"),
        ({"cv": "prefit"}, "not fitted"),
        ({"scoring": lambda model, X, y: np.inf}, "returned inf for"),
    ],
)
def test_what_is_no_ensemble_is_refused(options: dict[str, Any], error: str) -> None:
    chosen: dict[str, Any] = {
        "estimators": [GaussianNB(), LinearDiscriminantAnalysis(), DummyClassifier()],
        "k": 2,
    } | options
    with pytest.raises(ValueError, match=error):
        EnsembleSelector(**chosen).fit(*planted(0))


def test_without_scikit_learn_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.split(".")[0] == "sklearn" or name.startswith("kofn.adapters.sklearn")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(kofn.MissingExtra, match=r"scikit-learn is not installed: pip install 'kofn\[sklearn\]'"):
        importlib.import_module("kofn.adapters.sklearn")
