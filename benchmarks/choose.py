"""Make the tables of docs/guides/choose.md: `python -m benchmarks.choose exact` (`--help`).

`exact` and `noisy` compare `kofn.choose` with common practice, at equal numbers of calls of the score, on random
functions whose best subset is known: all subsets are computed. The loss of a pick is its distance from the best subset,
relative to the distance of an average subset: 0 is the best, 1 is no better than chance. `interval` shows how often the
95 % interval contains the true value of the pick. `policies` compares the loss with two policies on the same noisy
functions. `--quick` plays little.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

import kofn
from benchmarks.tables import NORMAL_95, line, parser_for, table
from kofn.core import FloatArray, IntArray, Subset
from kofn.core.subsets import all_subsets

N_ARMS, K = 20, 5
BUDGETS = (50, 100, 300, 1000)
NOISE = 0.5
"""Standard deviation of the noise, relative to that of the true values of all subsets."""

Values = Callable[[IntArray], FloatArray]
"""The true value of each row of arms; rows of any one size."""


def additive(rng: np.random.Generator) -> Values:
    """Each candidate adds its weight."""
    weights = rng.exponential(size=N_ARMS)
    return lambda rows: np.asarray(weights[rows].sum(axis=1))


def coverage(rng: np.random.Generator) -> Values:
    """Return the share of 200 people who are reached by at least one candidate."""
    reached = rng.random((N_ARMS, 200)) < rng.uniform(0.02, 0.3, N_ARMS)[:, None]
    return lambda rows: np.asarray(reached[rows].any(axis=1).mean(axis=1))


def pairs(rng: np.random.Generator) -> Values:
    """Each candidate adds its weight, and each pair adds or takes another one of the same size."""
    weights, together = rng.normal(size=N_ARMS), np.triu(rng.normal(size=(N_ARMS, N_ARMS)), 1)
    together += together.T

    def values(rows: IntArray) -> FloatArray:
        return np.asarray(weights[rows].sum(axis=1) + together[rows[:, :, None], rows[:, None, :]].sum(axis=(1, 2)) / 2)

    return values


def regression(rng: np.random.Generator) -> Values:
    """Return the part of the variance that a linear regression on correlated columns explains."""
    columns = rng.normal(size=(200, N_ARMS)) + 0.7 * rng.normal(size=(200, 4)) @ rng.normal(size=(4, N_ARMS))
    target = columns @ (rng.normal(size=N_ARMS) * (rng.random(N_ARMS) < 0.5)) + 2 * rng.normal(size=200)
    columns, target = columns - columns.mean(axis=0), target - target.mean()
    gram, cross, total = columns.T @ columns, columns.T @ target, float(target @ target)

    def values(rows: IntArray) -> FloatArray:
        within = gram[rows[:, :, None], rows[:, None, :]]
        found = np.linalg.solve(within, cross[rows][..., None])[..., 0]
        return np.asarray((cross[rows] * found).sum(axis=1) / total)

    return values


FUNCTIONS: dict[str, Callable[[np.random.Generator], Values]] = {
    "additive": additive,
    "coverage": coverage,
    "pairs": pairs,
    "regression": regression,
}


@dataclass(frozen=True)
class Known:
    """A random function, and what is known about the values of all subsets."""

    values: Values
    best: float
    mean: float
    sd: float


@lru_cache(maxsize=1024)
def known(name: str, seed: int) -> Known:
    """Return the function of this name and seed, with all its values computed once."""
    values = FUNCTIONS[name](np.random.default_rng([seed, 0]))
    every = np.concatenate([values(part.astype(np.int64)) for part in np.array_split(all_subsets(N_ARMS, K), 8)])
    return Known(values, float(every.max()), float(every.mean()), float(every.std()))


class Task:
    """A random function with known values, noise, and a limit of the calls."""

    def __init__(self, name: str, noise: float, budget: int, seed: int) -> None:
        self.known = known(name, seed)
        self.sd, self.left, self.seed = noise * self.known.sd, budget, seed
        self.noise, self.rng = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])

    def true(self, arms: Sequence[int]) -> float:
        """Return the value without noise."""
        return float(self.known.values(np.array([sorted(arms)]))[0])

    def score(self, arms: Sequence[int]) -> float:
        """Return the value with noise; one call."""
        self.left -= 1
        return self.true(arms) + self.sd * float(self.noise.normal())

    def loss(self, arms: Sequence[int]) -> float:
        """Return the distance from the best subset, relative to that of an average one."""
        return (self.known.best - self.true(arms)) / (self.known.best - self.known.mean)

    def random_subset(self) -> Subset:
        """Return a random subset."""
        return tuple(sorted(self.rng.choice(N_ARMS, K, replace=False).tolist()))


def random_search(task: Task) -> Subset:
    """Return the best of random subsets."""
    return max((task.score(arms), arms) for arms in (task.random_subset() for _ in range(task.left)))[1]


def greedy(task: Task) -> Subset:
    """Add the candidate with the best score, K times; calls that are left over repeat each score equally often."""
    steps = sum(N_ARMS - size for size in range(K))
    repeats = max(1, task.left // steps)
    chosen: list[int] = []
    while len(chosen) < K and task.left >= N_ARMS - len(chosen):
        others = [arm for arm in range(N_ARMS) if arm not in chosen]
        chosen.append(max(others, key=lambda arm: np.mean([task.score([*chosen, arm]) for _ in range(repeats)])))
    rest = [arm for arm in task.rng.permutation(N_ARMS).tolist() if arm not in chosen]
    return tuple(sorted([*chosen, *rest[: K - len(chosen)]]))


def swaps_of(arms: Subset, rng: np.random.Generator) -> Iterator[Subset]:
    """Yield the subsets that differ in one candidate, in a random order."""
    others = [arm for arm in range(N_ARMS) if arm not in arms]
    for index in rng.permutation(K * len(others)):
        leave, come = divmod(int(index), len(others))
        yield tuple(sorted({*arms, others[come]} - {arms[leave]}))


def hill_climbing(task: Task) -> Subset:
    """Take the first swap with a better score; begin again at random if there is none. Returns the best score seen."""
    best: tuple[float, Subset] = (-np.inf, ())
    while task.left > 0:
        arms = task.random_subset()
        value = task.score(arms)
        improved = True
        while improved:
            best, improved = max(best, (value, arms)), False
            for other in swaps_of(arms, task.rng):
                if task.left <= 0:
                    break
                if (found := task.score(other)) > value:
                    arms, value, improved = other, found, True
                    break
    return best[1]


def chosen_by_kofn(task: Task) -> Subset:
    """Return the choice of `kofn.choose`."""
    return kofn.choose(N_ARMS, K, task.score, budget=task.left, seed=task.seed).arms


METHODS: dict[str, Callable[[Task], Subset]] = {
    "random search": random_search,
    "greedy forward": greedy,
    "hill climbing by swaps": hill_climbing,
    "kofn.choose": chosen_by_kofn,
}


def with_error(values: Sequence[float]) -> str:
    """Return the mean with its 95 % interval."""
    width = NORMAL_95 * np.std(values, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return f"{np.mean(values):.3f} ± {width:.3f}"


def compare(noise: float, seed: int, runs: int, quick: bool) -> None:
    """Print the mean loss of each method on each function and budget."""
    budgets = BUDGETS[:1] if quick else BUDGETS
    table("function", "method", *(f"{budget} calls" for budget in budgets))
    for name in list(FUNCTIONS)[: 1 if quick else None]:
        for method, pick in METHODS.items():
            losses = [
                [task.loss(pick(task)) for task in (Task(name, noise, budget, seed + run) for run in range(runs))]
                for budget in budgets
            ]
            line(name, method, *map(with_error, losses))


def intervals(seed: int, runs: int, quick: bool) -> None:
    """Print how often the 95 % interval contains the true value of the pick."""
    budgets = BUDGETS[: 1 if quick else 3]
    table("function", *(f"{budget} calls" for budget in budgets))
    for name in list(FUNCTIONS)[: 1 if quick else None]:
        shares = []
        for budget in budgets:
            inside = 0
            for run in range(runs):
                task = Task(name, NOISE, budget, seed + run)
                choice = kofn.choose(N_ARMS, K, task.score, budget=budget, seed=task.seed)
                inside += choice.low <= task.true(choice.arms) <= choice.high
            shares.append(f"{inside / runs:.0%}")
        line(name, *shares)


def policies(seed: int, runs: int, quick: bool) -> None:
    """Print the loss of `choose` with `thompson` and with `pairwise-thompson`, and the mean of the differences."""
    table("function", "calls", *(names := ("thompson", "pairwise-thompson")), "difference")
    for name in list(FUNCTIONS)[: 1 if quick else None]:
        for budget in BUDGETS[: 1 if quick else None]:
            losses: list[list[float]] = []
            for policy in names:
                tasks = [Task(name, NOISE, budget, seed + run) for run in range(runs)]
                picks = (kofn.choose(N_ARMS, K, t.score, budget=budget, seed=t.seed, policy=policy) for t in tasks)
                losses.append([task.loss(pick.arms) for task, pick in zip(tasks, picks, strict=True)])
            line(name, budget, *map(with_error, losses), with_error(np.subtract(losses[1], losses[0]).tolist()))


TABLES: dict[str, Callable[[int, int, bool], None]] = {
    "exact": partial(compare, 0.0),
    "noisy": partial(compare, NOISE),
    "interval": intervals,
    "policies": policies,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Print one of the tables."""
    args = parser_for(__doc__, TABLES, seed=30_000, runs=100).parse_args(argv)
    TABLES[args.table](args.seed, args.runs, args.quick)


if __name__ == "__main__":
    main()
