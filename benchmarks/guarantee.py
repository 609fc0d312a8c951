"""Make the tables of docs/background/guarantee.md: `python -m benchmarks.guarantee price` (`--help`).

`price` plays each setting of the paper's grid with and without guarantee=True, on the same instances. `bases` does so
on rewards with a base, which hides the effects of single arms. `bound` and `first` need no random instances.
`--quick` plays one setting, a few plays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kofn
from benchmarks.tables import interval, line, parser_for, table
from benchmarks.thompson import GRID, instance
from kofn.lab.settings import Setting
from kofn.lab.suite import SUITE
from kofn.policies.thompson.guarantee import regret_bound


@dataclass(frozen=True)
class Base:
    """A coin whose mean is a function of the arms' p: `good` arms in [0.5, 1], the others in [0, `others`]."""

    name: str
    n_arms: int
    k: int
    good: int
    others: float
    mean: Callable[[Any], Any]

    def arms(self, rng: np.random.Generator) -> Any:
        p = rng.uniform(0.0, self.others, self.n_arms)
        p[rng.choice(self.n_arms, self.good, replace=False)] = rng.uniform(0.5, 1.0, self.good)
        return p


BASES = (
    Base("0.2 + 0.8 prod(p), N = 45, K = 3", 45, 3, 5, 0.1, lambda p: 0.2 + 0.8 * p.prod(axis=-1)),
    Base("0.5 + 0.5 prod(p), N = 100, K = 2", 100, 2, 4, 0.05, lambda p: 0.5 + 0.5 * p.prod(axis=-1)),
    Base("0.1 + 0.9 prod(p), N = 24, K = 4", 24, 4, 6, 0.2, lambda p: 0.1 + 0.9 * p.prod(axis=-1)),
    Base("0.3 + 0.5 min(p), N = 24, K = 5", 24, 5, 12, 0.5, lambda p: 0.3 + 0.5 * p.min(axis=-1)),
    Base("0.5 + 0.5 mean(p), N = 24, K = 5", 24, 5, 12, 0.5, lambda p: 0.5 + 0.5 * p.mean(axis=-1)),
)


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    horizon: int = 10**6
    long: int = 10**7
    settings: tuple[Setting, ...] = tuple(s for s in SUITE if s.family in GRID and s.n_arms < 1000)
    bases: tuple[Base, ...] = BASES


FULL = Scale()
QUICK = Scale(500, 500, (Setting("mean", 12, 3),), BASES[:1])


def price(seed: int, runs: int, scale: Scale) -> None:
    """Print the regret with and without the guarantee, and what the guarantee proved."""
    table("setting", "without", "with", "more", "decided", "pivots", "wrong")
    for setting in scale.settings:
        regret = np.zeros((2, runs))
        decided, pivots, wrong = 0, [], 0
        for run in range(runs):
            problem, (for_policy, for_plays) = instance(setting, seed, run)
            for each in (0, 1):
                policy = kofn.Thompson(setting.n_arms, setting.k, guarantee=bool(each), seed=for_policy)
                regret[each, run] = kofn.simulate(policy, problem, scale.horizon, seed=for_plays).regret
            proved = policy._guarantee
            assert proved is not None
            decided += proved.decided
            pivots.append(proved.pivots)
            status = proved.elimination.status
            inside = np.isin(np.arange(setting.n_arms), problem.best)
            wrong += bool(((status == 1) & ~inside).any() or ((status == 2) & inside).any())
        cells = (interval(regret[0]), interval(regret[1]), interval(regret[1] - regret[0]))
        line(setting.name, *cells, f"{decided} of {runs}", f"{np.mean(pivots):.1f}", wrong)


def bases(seed: int, runs: int, scale: Scale) -> None:
    """Print regret and best subsets found on rewards with a base."""
    table("reward", "guarantee", "10^5", "10^6", "10^7", "worst", "best found")
    for base in scale.bases:
        for guarantee in (False, True):
            found = [_played(base, guarantee, seed + run, scale.long) for run in range(runs)]
            means = [f"{np.mean([regrets[i] for regrets, _ in found]):,.0f}" for i in range(3)]
            worst = max(regrets[2] for regrets, _ in found)
            right = sum(right for _, right in found)
            line(base.name, "yes" if guarantee else "no", *means, f"{worst:,.0f}", f"{right} of {runs}")


def _played(base: Base, guarantee: bool, seed: int, horizon: int) -> tuple[list[float], bool]:
    """Return the regret after 1, 10 and 100 % of the plays, and whether `best()` is within 0.002 of the best."""
    rng = np.random.default_rng(seed)
    p = base.arms(rng)
    policy = kofn.Thompson(base.n_arms, base.k, guarantee=guarantee, seed=seed)
    most, regret, found = base.mean(np.sort(p)[-base.k :]), 0.0, list[float]()
    while policy.plays < horizon:
        plan = policy.plan()
        value = base.mean(p[plan.subsets])
        total = rng.binomial(plan.times, value).astype(float)
        policy.tell_plan(kofn.Tally(plan.times, total, total))
        regret += float(plan.times @ (most - value))
        while len(found) < 3 and policy.plays >= horizon // 10 ** (2 - len(found)):
            found.append(regret)
    return found, bool(most - base.mean(p[list(policy.best())]) < 0.002)


def bound(seed: int, runs: int, scale: Scale) -> None:
    """Print the bound divided by the number of plays."""
    del seed, runs, scale
    times = [10**e for e in range(5, 11)]
    table("N", "K", "pivots", *(f"T = 10^{e}" for e in range(5, 11)))
    for n_arms, k in ((12, 2), (12, 3), (24, 5), (45, 8)):
        for pivots in (1, 3, n_arms):
            shares = (regret_bound(n_arms, k, plays, pivots=pivots) / plays for plays in times)
            line(n_arms, k, pivots, *(f"{share:.3f}" for share in shares))


def first(seed: int, runs: int, scale: Scale) -> None:
    """Print how many plays it takes to decide about arms that always or never pay, in a mean."""
    table("N", "K", "first decision", "all decided")
    for n_arms, k in ((12, 3), (24, 5)):
        p, found = np.repeat([1.0, 0.0], [k, n_arms - k]), []
        for run in range(runs):
            policy, plays = kofn.Thompson(n_arms, k, guarantee=True, seed=seed + run), list[int]()
            assert policy._guarantee is not None
            while not policy._guarantee.decided and policy.plays < scale.horizon:
                plan = policy.plan()
                value = p[plan.subsets].mean(axis=1)
                policy.tell_plan(kofn.Tally(plan.times, plan.times * value, plan.times * value**2))
                if policy._guarantee.elimination.status.any():
                    plays.append(policy.plays)
            found.append((plays[0], plays[-1]) if plays else (scale.horizon, scale.horizon))
        line(n_arms, k, *(f"{int(np.median(each)):,}" for each in zip(*found, strict=True)))


TABLES: dict[str, Callable[[int, int, Scale], None]] = {"price": price, "bases": bases, "bound": bound, "first": first}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser_for(__doc__, TABLES, seed=9000, runs=10).parse_args(arguments)
    TABLES[args.table](args.seed, args.runs, QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
