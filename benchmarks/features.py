"""Make the tables and pictures of docs/guides/features.md and ensembles.md: `python -m benchmarks.features features`.

`features` compares selectors of features, `ensembles` selectors of models: on data sets that come with scikit-learn, by
the accuracy on rows that no selector has seen. Each run splits the rows again. `--out` is the picture of the table,
`--keep` a file of results, which a command that was interrupted continues, and `--quick` computes little.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_selection import RFE, SelectKBest, SequentialFeatureSelector
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from benchmarks.tables import NORMAL_95, line, parser_for, table
from kofn.adapters.sklearn import EnsembleSelector, SubsetSelector

FOLDS = 5
Rows = tuple[Any, Any]
Found = tuple[float, int]
"""The accuracy on unseen rows, and what it cost: fits, or evaluations."""


class Kept:
    """Results in a file of JSON lines; without a file, they are computed each time."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        lines = path.read_text().splitlines() if path and path.exists() else []
        self.found = {json.dumps(key): (accuracy, cost) for key, accuracy, cost in map(json.loads, lines)}

    def get(self, key: list[Any], compute: Callable[[], Found]) -> Found:
        """Return the result of this key, computed if the file does not have it."""
        if (known := self.found.get(json.dumps(key))) is not None:
            return known
        result = compute()
        if self.path:
            with self.path.open("a") as file:
                file.write(json.dumps([key, *result]) + "\n")
        return result


# Features.


@dataclass(frozen=True)
class Task:
    """A data set, the estimator that uses the features, the number of features, and the budgets in fits."""

    title: str
    load: Callable[..., Any]
    estimator: Any
    k: int
    budgets: tuple[int, ...]

    @property
    def data(self) -> Rows:
        X, y = self.load(return_X_y=True)
        return X, y


TASKS = (
    Task("cancer, 5 of 30, naive Bayes", load_breast_cancer, GaussianNB(), 5, (100, 300, 700)),
    Task("wine, 4 of 13, naive Bayes", load_wine, GaussianNB(), 4, (50, 100, 230)),
    Task("digits, 5 of 64, naive Bayes", load_digits, GaussianNB(), 5, (100, 300, 1_000)),
)
QUICK = (Task("wine, 2 of 13, naive Bayes", load_wine, GaussianNB(), 2, (20,)),)


def kofn_features(task: Task, rows: Rows, seed: int, budget: int) -> tuple[NDArray[np.intp], int]:
    selector = SubsetSelector(task.estimator, task.k, budget=budget, cv=FOLDS, random_state=seed).fit(*rows)
    return selector.get_support(indices=True), selector.n_fits_


def random_features(task: Task, rows: Rows, seed: int, budget: int) -> tuple[NDArray[np.intp], int]:
    """Return the best of random subsets by cross-validation, with the same folds for all."""
    (X, y), rng = rows, np.random.default_rng(seed)
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    subsets = [rng.choice(X.shape[1], task.k, replace=False) for _ in range(budget // FOLDS)]
    scores = [cross_val_score(task.estimator, X[:, subset], y, cv=folds).mean() for subset in subsets]
    return np.sort(subsets[int(np.argmax(scores))]), FOLDS * len(subsets)


def sequential(task: Task, rows: Rows, seed: int) -> tuple[NDArray[np.intp], int]:
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    found = SequentialFeatureSelector(task.estimator, n_features_to_select=task.k, cv=folds).fit(*rows)
    n_features = rows[0].shape[1]
    return found.get_support(indices=True), FOLDS * sum(n_features - chosen for chosen in range(task.k))


def recursive(task: Task, rows: Rows, seed: int) -> tuple[NDArray[np.intp], int]:
    """Return what is left when the feature with the smallest weight in a logistic regression is dropped, repeatedly."""
    X, y = rows
    found = RFE(LogisticRegression(random_state=seed), n_features_to_select=task.k)
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        found.fit(StandardScaler().fit_transform(X), y)
    return found.get_support(indices=True), X.shape[1] - task.k


def univariate(task: Task, rows: Rows, seed: int) -> tuple[NDArray[np.intp], int]:
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):  # pixels that are always blank
        return SelectKBest(k=task.k).fit(*rows).get_support(indices=True), 0


def every_feature(task: Task, rows: Rows, seed: int) -> tuple[NDArray[np.intp], int]:
    return np.arange(rows[0].shape[1]), 0


Select = Callable[[Task, Rows, int], tuple[NDArray[np.intp], int]]
REFERENCE = "SequentialFeatureSelector"


def selectors(task: Task) -> Iterator[tuple[str, Select]]:
    for budget in task.budgets:
        yield f"SubsetSelector, budget {budget:,}", partial(kofn_features, budget=budget)
    yield REFERENCE, sequential
    yield f"random subsets, budget {task.budgets[-1]:,}", partial(random_features, budget=task.budgets[-1])
    yield "RFE", recursive
    yield "SelectKBest", univariate
    yield "all features", every_feature


def unseen_accuracy(task: Task, select: Select, seed: int) -> Found:
    """Select features on half of the rows, fit them there, and return the accuracy on the other half."""
    X, X_test, y, y_test = train_test_split(*task.data, test_size=0.5, stratify=task.data[1], random_state=seed)
    features, fits = select(task, (X, y), seed)
    return float(clone(task.estimator).fit(X[:, features], y).score(X_test[:, features], y_test)), fits


def features(seeds: range, quick: bool, only: str, kept: Kept) -> Results:
    found: Results = {}
    for task in [each for each in (QUICK if quick else TASKS) if only in each.title]:
        rows: dict[str, list[Found]] = {}
        for seed in seeds:
            for name, select in selectors(task):
                result = kept.get([task.title, name, seed], partial(unseen_accuracy, task, select, seed))
                rows.setdefault(name, []).append(result)
        found[task.title] = rows
        show(task.title, rows, REFERENCE)
    return found


# Ensembles.


@dataclass(frozen=True)
class Library:
    """A data set, and how many models there are and how many are chosen."""

    title: str
    load: Callable[..., Any]
    n_models: int = 40
    k: int = 5
    budgets: tuple[int, ...] = (200, 1_000)


LIBRARIES = (
    Library("cancer, 5 of 40 models", load_breast_cancer),
    Library("digits, 5 of 40 models", load_digits),
    Library("wine, 5 of 40 models", load_wine),
)
QUICK_LIBRARIES = (Library("wine, 2 of 6 models", load_wine, 6, 2, (50,)),)


def models(library: Library, rows: Rows, rng: np.random.Generator) -> list[Any]:
    """Return models of four kinds, each fitted on a bootstrap sample and a third of the features."""
    (X, y), found = rows, []
    for place in range(library.n_models):
        columns = rng.choice(X.shape[1], max(2, X.shape[1] // 3), replace=False)
        kind = (
            GaussianNB(),
            KNeighborsClassifier(int(rng.integers(1, 16))),
            DecisionTreeClassifier(max_depth=int(rng.integers(2, 9)), random_state=place),
            LogisticRegression(C=10 ** rng.uniform(-3, 1)),
        )[place % 4]
        sample = rng.integers(len(y), size=len(y))
        model = make_pipeline(FunctionTransformer(partial(np.take, indices=columns, axis=1)), StandardScaler(), kind)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            found.append(model.fit(X[sample], y[sample]))
    return found


@dataclass(frozen=True)
class Held:
    """The probabilities of all models on held-out and on unseen rows, with the true classes."""

    models: list[Any]
    held: Rows
    on_held: NDArray[np.float64]
    on_unseen: NDArray[np.float64]
    unseen: NDArray[np.intp]
    seed: int

    def held_accuracy(self, chosen: Sequence[int]) -> float:
        return float((self.on_held[list(chosen)].mean(axis=0).argmax(axis=1) == self.held[1]).mean())

    def unseen_accuracy(self, chosen: Sequence[int]) -> float:
        return float((self.on_unseen[list(chosen)].mean(axis=0).argmax(axis=1) == self.unseen).mean())


def held(library: Library, seed: int) -> Held:
    """Fit the models on a third of the rows; selectors get another third, and the last is unseen."""
    X, y = library.load(return_X_y=True)
    X, X_rest, y, y_rest = train_test_split(X, y, train_size=1 / 3, stratify=y, random_state=seed)
    X_held, X_unseen, y_held, y_unseen = train_test_split(
        X_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=seed
    )
    found = models(library, (X, y), np.random.default_rng(seed))
    on_held, on_unseen = (np.stack([model.predict_proba(rows) for model in found]) for rows in (X_held, X_unseen))
    return Held(found, (X_held, y_held), on_held, on_unseen, y_unseen, seed)


def kofn_ensemble(at: Held, k: int, budget: int) -> tuple[list[int], int]:
    found = EnsembleSelector(at.models, k, budget=budget, cv="prefit", random_state=at.seed).fit(*at.held)
    return list(found.choice_.arms), found.choice_.evaluations


def greedy(at: Held, k: int, again: bool) -> tuple[list[int], int]:
    """Return the models that Caruana et al. (2004) add one by one, each time the best addition."""
    chosen: list[int] = []
    tried = 0
    for _ in range(k):
        additions = [model for model in range(len(at.models)) if again or model not in chosen]
        chosen.append(max(additions, key=lambda model: at.held_accuracy([*chosen, model])))
        tried += len(additions)
    return chosen, tried


def best_singles(at: Held, k: int) -> tuple[list[int], int]:
    singles = [at.held_accuracy([model]) for model in range(len(at.models))]
    return np.argsort(singles)[-k:].tolist(), len(singles)


def random_ensembles(at: Held, k: int, budget: int) -> tuple[list[int], int]:
    rng = np.random.default_rng(at.seed)
    subsets = [rng.choice(len(at.models), k, replace=False).tolist() for _ in range(budget)]
    return max(subsets, key=at.held_accuracy), budget


def every_model(at: Held, k: int) -> tuple[list[int], int]:
    return list(range(len(at.models))), 0


GREEDY = "greedy"
Choose = Callable[[Held, int], tuple[list[int], int]]


def choosers(library: Library) -> Iterator[tuple[str, Choose]]:
    for budget in library.budgets:
        yield f"EnsembleSelector, budget {budget:,}", partial(kofn_ensemble, budget=budget)
    yield GREEDY, partial(greedy, again=False)
    yield "greedy, with replacement", partial(greedy, again=True)
    yield f"random ensembles, budget {library.budgets[-1]:,}", partial(random_ensembles, budget=library.budgets[-1])
    yield "the best single models", best_singles
    yield "all models", every_model


def chosen_accuracy(at: Callable[[], Held], choose: Choose, k: int) -> Found:
    chosen, cost = choose(at(), k)
    return at().unseen_accuracy(chosen), cost


def ensembles(seeds: range, quick: bool, only: str, kept: Kept) -> Results:
    found: Results = {}
    for library in [each for each in (QUICK_LIBRARIES if quick else LIBRARIES) if only in each.title]:
        rows: dict[str, list[Found]] = {}
        for seed in seeds:
            at = cache(partial(held, library, seed))
            for name, choose in choosers(library):
                result = kept.get([library.title, name, seed], partial(chosen_accuracy, at, choose, library.k))
                rows.setdefault(name, []).append(result)
        found[library.title] = rows
        show(library.title, rows, GREEDY)
    return found


# Tables and pictures.

Results = dict[str, dict[str, list[Found]]]


def percent(values: Sequence[float], sign: str = "") -> str:
    """Return the mean and the half-width of its 95 % interval, in percent."""
    width = NORMAL_95 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.inf
    return f"{100 * np.mean(values):{sign}.2f} ± {100 * width:.2f}"


def show(title: str, rows: dict[str, list[Found]], reference: str) -> None:
    """Print a table: the accuracy on unseen rows, and its difference from the reference on the same rows."""
    print(f"\n{title}\n")
    table("method", "cost", "accuracy [%]", f"minus {reference}")
    beside = [accuracy for accuracy, _ in rows[reference]]
    for name, found in rows.items():
        accuracies = [accuracy for accuracy, _ in found]
        cost = f"{np.mean([cost for _, cost in found]):,.0f}"
        difference = "" if name == reference else percent(np.subtract(accuracies, beside).tolist(), "+")
        line(name, cost, percent(accuracies), difference)


def draw(found: Results, path: Path, cost: str) -> None:
    """Draw the accuracy against the cost; methods without a budget are points or lines."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(max(7.5, 4.2 * len(found)), 4), layout="constrained")
    for axes, (title, rows) in zip(np.atleast_1d(figure.subplots(1, len(found))), found.items(), strict=True):
        curves: dict[str, list[tuple[float, float, float]]] = {}
        for name, runs in rows.items():
            values = 100 * np.array([accuracy for accuracy, _ in runs])
            error = NORMAL_95 * values.std(ddof=1) / np.sqrt(len(values))
            curves.setdefault(name.partition(", budget")[0], []).append((runs[0][1], values.mean(), error))
        for place, (name, points) in enumerate(curves.items()):
            x, y, error = np.array(points).T
            if x.max() == 0:
                axes.axhline(y[0], color=f"C{place}", linestyle=":", label=name)
            else:
                axes.errorbar(x, y, error, color=f"C{place}", marker="o", capsize=3, label=name)
        axes.set(xscale="log", title=title, xlabel=cost)
        budgets = [budget for budget, *_ in next(iter(curves.values()))]
        axes.set_xticks(budgets, [f"{budget:,}" for budget in budgets])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("accuracy on unseen data [%]")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, dpi=110)


TABLES: dict[str, tuple[Callable[[range, bool, str, Kept], Results], str]] = {
    "features": (features, "fits"),
    "ensembles": (ensembles, "evaluations on held-out rows"),
}


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, TABLES, seed=1_000, runs=10)
    parser.add_argument("--out", type=Path, help="the picture to draw")
    parser.add_argument("--keep", type=Path, help="a file of results")
    parser.add_argument("--only", default="", help="a part of the title of the tables to make")
    arguments = parser.parse_args(argv)
    compute, cost = TABLES[arguments.table]
    seeds = range(arguments.seed, arguments.seed + arguments.runs)
    found = compute(seeds, arguments.quick, arguments.only, Kept(arguments.keep))
    if arguments.out:
        draw(found, arguments.out, cost)


if __name__ == "__main__":
    main()
