"""Make the table and the pictures of docs/guides/prompts.md: `python -m benchmarks.prompts examples`.

Ten of 60 handwritten digits are the examples; a nearest-neighbour vote stands for the language model.
All methods pay for calls of the model: one call answers one query. The accuracy is that on queries that no method
has seen. Each run draws other examples and queries. `--out` is the folder for the picture, `--quick` computes little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import kofn
from benchmarks.features import Found, draw, show
from benchmarks.tables import parser_for

K, N_EXAMPLES, N_QUERIES, BATCH = 10, 60, 400, 20
CALLS = (2_000, 6_000, 20_000, 60_000)
PICTURE_SEED = 1


@dataclass
class Model:
    """The stand-in: answers a query with the class of the nearest example."""

    seed: int

    def __post_init__(self) -> None:
        X, self.y = load_digits(return_X_y=True)
        self.rng = np.random.default_rng(self.seed)
        order = self.rng.permutation(len(self.y))
        self.examples, self.queries, self.unseen = np.split(order, [N_EXAMPLES, N_EXAMPLES + N_QUERIES])
        self.distances = ((X[:, None, :] - X[None, self.examples]) ** 2).sum(axis=2)

    def accuracy(self, chosen: Sequence[int], queries: Any) -> float:
        """Return the share of right answers; `chosen` are places in the examples."""
        nearest = self.distances[np.ix_(queries, chosen)].argmin(axis=1)
        return float((self.y[self.examples[np.asarray(chosen)[nearest]]] == self.y[queries]).mean())

    def on_batch(self, chosen: Sequence[int], size: int) -> float:
        """Return the accuracy on a random batch of queries, which costs `size` calls."""
        return self.accuracy(chosen, self.rng.choice(self.queries, size))


def with_kofn(model: Model, calls: int) -> tuple[list[int], int]:
    score = partial(model.on_batch, size=BATCH)
    found = kofn.choose(N_EXAMPLES, K, score, budget=calls // BATCH, seed=model.seed, repeatable=False)
    return list(found.arms), BATCH * found.evaluations


def greedy(model: Model, calls: int) -> tuple[list[int], int]:
    """Return the examples that are added one by one, each the best addition on its own batch."""
    trials = sum(N_EXAMPLES - chosen for chosen in range(K))
    chosen: list[int] = []
    for _ in range(K):
        additions = [example for example in range(N_EXAMPLES) if example not in chosen]
        scores = [model.on_batch([*chosen, example], calls // trials) for example in additions]
        chosen.append(additions[int(np.argmax(scores))])
    return chosen, trials * (calls // trials)


def random_search(model: Model, calls: int) -> tuple[list[int], int]:
    """Return the best of random sets, each scored on batches of 100 queries."""
    sets = [model.rng.choice(N_EXAMPLES, K, replace=False).tolist() for _ in range(calls // 100)]
    return sets[int(np.argmax([model.on_batch(each, 100) for each in sets]))], 100 * len(sets)


def random_set(model: Model) -> tuple[list[int], int]:
    return model.rng.choice(N_EXAMPLES, K, replace=False).tolist(), 0


def one_of_each(model: Model) -> tuple[list[int], int]:
    """Return a random example of each class that has one."""
    classes = model.y[model.examples]
    return [int(model.rng.choice(np.flatnonzero(classes == each))) for each in np.unique(classes)], 0


Choose = Callable[[Model], tuple[list[int], int]]
REFERENCE = "one random example of each class"


def methods(calls: Sequence[int]) -> dict[str, Choose]:
    paid = {"kofn.choose": with_kofn, "greedy": greedy, "random search": random_search}
    found: dict[str, Choose] = {
        f"{name}, budget {each:,}": partial(method, calls=each) for name, method in paid.items() for each in calls
    }
    return {**found, REFERENCE: one_of_each, "ten random examples": random_set}


def draw_digits(path: Path) -> None:
    """Draw ten random examples above the chosen ten."""
    from matplotlib.figure import Figure

    images, model = load_digits().images, Model(PICTURE_SEED)
    before, (after, _) = random_set(model)[0], with_kofn(model, CALLS[2])
    figure = Figure(figsize=(8, 2.2), layout="constrained")
    for row, (title, chosen) in enumerate((("random", before), ("chosen", after))):
        accuracy = model.accuracy(chosen, model.unseen)
        for column, example in enumerate(sorted(chosen, key=lambda each: model.y[model.examples[each]])):
            axes = figure.add_subplot(2, K, row * K + column + 1, xticks=[], yticks=[])
            axes.imshow(images[model.examples[example]], cmap="gray_r")
            if column == 0:
                axes.set_ylabel(f"{title}\n{accuracy:.0%} right")
    figure.savefig(path, dpi=110)


def main(argv: Sequence[str] | None = None) -> None:
    parser = parser_for(__doc__, ["examples"], seed=1_000, runs=20)
    parser.add_argument("--out", type=Path, help="the folder for the pictures")
    arguments = parser.parse_args(argv)
    rows: dict[str, list[Found]] = {}
    for run in range(arguments.runs):
        model = Model(arguments.seed + run)
        for name, choose in methods(CALLS[:1] if arguments.quick else CALLS).items():
            chosen, calls = choose(model)
            rows.setdefault(name, []).append((model.accuracy(chosen, model.unseen), calls))
    title = f"{K} of {N_EXAMPLES} examples"
    show(title, rows, REFERENCE)
    if arguments.out:
        draw({title: rows}, arguments.out / "prompts.png", "calls of the model")
        draw_digits(arguments.out / "prompts-digits.png")


if __name__ == "__main__":
    main()
