"""Make the tables of docs/background/evidence.md on the lift: `python -m benchmarks.lift same` (`--help`).

Every campaign is looked at after every play at first, then whenever it has 5 % more plays. A claim at any look counts.
`same` has control and learned plays with equal means: every claim is false. In `better`, the mean of learned plays
rises while the policy learns. `policy` plays the default policy with a control of 10 %, whose plays teach it too.
`ratio` is the sample-ratio check. `--quick` plays little.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import kofn
from benchmarks.tables import NORMAL_95, line, parser_for, table
from benchmarks.thompson_safety import BASE, RevenueSampler
from kofn.campaigns.evidence import Sums, lift, sample_ratio
from kofn.core import IntArray
from kofn.lab.problems import AbstractProblem
from kofn.lab.settings import Setting

AMOUNTS = RevenueSampler(np.ones(1), np.mean).amounts
Draw = Callable[[float, int, np.random.Generator], tuple[float, float]]
"""The total and the squares of a number of rewards with a mean."""


def clicks(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    total = float(rng.binomial(plays, mean))
    return total, total


def revenue(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    """Mostly zero, else log-normal with sigma 1.5, at most 1."""
    paid = AMOUNTS[rng.integers(len(AMOUNTS), size=rng.binomial(plays, mean / AMOUNTS.mean()))]
    return float(paid.sum()), float(paid @ paid)


def mean_of_five(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    """The mean of five coins."""
    paid = rng.binomial(5, mean, plays) / 5
    return float(paid.sum()), float(paid @ paid)


@dataclass(frozen=True)
class Rewards:
    """A kind of rewards, with the mean of control plays, and the relative lift of `better`."""

    name: str
    draw: Draw
    mean: float
    rise: float


KINDS = (
    Rewards("clicks, 1 %", clicks, 0.01, 0.5),
    Rewards("clicks, 20 %", clicks, 0.2, 0.1),
    Rewards("clicks, 0.1 %", clicks, 0.001, 1.0),
    Rewards("clicks, 99 %", clicks, 0.99, 0.005),
    Rewards("revenue, 10 % of plays pay", revenue, 0.1 * float(AMOUNTS.mean()), 0.5),
    Rewards("revenue, 1 % of plays pay", revenue, 0.01 * float(AMOUNTS.mean()), 1.0),
    Rewards("mean of five coins of 30 %", mean_of_five, 0.3, 0.05),
)


@dataclass(frozen=True)
class Scale:
    """How much is played: the defaults are those of the page, and QUICK is for tests."""

    plays: int = 100_000
    kinds: tuple[Rewards, ...] = KINDS
    few: int | None = None  # problems of `policy`; all without it


FULL = Scale()
QUICK = Scale(300, KINDS[:1], 1)


def looks(plays: int) -> list[int]:
    """Return the numbers of plays at which a campaign is looked at."""
    found = [1]
    while found[-1] < plays:
        found.append(min(plays, max(found[-1] + 1, int(1.05 * found[-1]))))
    return found


def missed(low: float | None, true: float, high: float | None) -> bool:
    """Return whether an interval does not have the true value; None is no limit."""
    return (low is not None and true < low - 1e-12) or (high is not None and true > high + 1e-12)


class Watch:
    """The sums of both groups, the expected rewards that they had, and what was said of them at any look."""

    def __init__(self) -> None:
        self.sums = [Sums(0, 0.0, 0.0), Sums(0, 0.0, 0.0)]
        self.expected = [0.0, 0.0]
        self.claimed = 0  # plays at the first claim; 0 without one
        self.harmful = self.wrong = False
        self.wrong_mean = [False, False]

    def add(self, group: int, plays: int, expected: float, total: float, squares: float) -> None:
        self.sums[group] += Sums(plays, total, squares)
        self.expected[group] += expected

    def look(self) -> None:
        found = lift(self.sums[0], self.sums[1])
        true = [total / max(each.count, 1) for each, total in zip(self.sums, self.expected, strict=True)]
        for group, said in enumerate((found.learned, found.control)):
            self.wrong_mean[group] |= said is not None and missed(said.low, true[group], said.high)
        self.wrong |= missed(found.low, true[0] - true[1], found.high)
        if found.claimed and not self.claimed:
            self.claimed = sum(each.count for each in self.sums)
        self.harmful |= found.harmful


def campaign(kind: Rewards, share: float, rise: float, plays: int, rng: np.random.Generator) -> Watch:
    """Return what was said of one campaign; the mean of learned plays has half of its rise after 5,000 plays."""
    watch, before = Watch(), 0
    for now in looks(plays):
        control = int(rng.binomial(now - before, share))
        for group, count in enumerate((now - before - control, control)):
            mean = kind.mean * (1 + (rise * now / (now + 5_000) if group == 0 else 0.0))
            watch.add(group, count, mean * count, *kind.draw(mean, count, rng))
        watch.look()
        before = now
    return watch


def part(count: int, of: int) -> str:
    """Return a share and the half-width of its 95 % interval, in percent; Wilson's, so that it is not 0 for none."""
    p = (count + 2) / (of + 4)
    return f"{count / of:.1%} ± {NORMAL_95 * (p * (1 - p) / (of + 4)) ** 0.5:.1%}"


def same(seed: int, runs: int, scale: Scale) -> None:
    """Print how often a lift is claimed that is not there, at any look."""
    table("rewards", "control", "claimed lift", "claimed harm", "either", "learned mean missed", "control mean missed")
    for row, kind in enumerate(scale.kinds):
        for column, share in enumerate((0.1, 0.5)):
            found = [
                campaign(kind, share, 0.0, scale.plays, np.random.default_rng([seed, row, column, run]))
                for run in range(runs)
            ]
            counts = (
                sum(each.claimed > 0 for each in found),
                sum(each.harmful for each in found),
                sum(each.claimed > 0 or each.harmful for each in found),
                *(sum(each.wrong_mean[group] for each in found) for group in (0, 1)),
            )
            line(kind.name, f"{share:.0%}", *(part(count, runs) for count in counts))


def better(seed: int, runs: int, scale: Scale) -> None:
    """Print coverage at all looks together, and when a lift is claimed that is there."""
    table("rewards", "control", "lift", "interval missed", "claimed", "plays until claimed, median", "claimed harm")
    for row, kind in enumerate(scale.kinds):
        for column, share in enumerate((0.1, 0.5)):
            found = [
                campaign(kind, share, kind.rise, scale.plays, np.random.default_rng([seed, 100 + row, column, run]))
                for run in range(runs)
            ]
            times = [each.claimed for each in found if each.claimed]
            median = f"{int(np.median(times)):,}" if times else ""
            cells = part(sum(each.wrong for each in found), runs), part(len(times), runs), median
            line(kind.name, f"{share:.0%}", f"{kind.rise:.1%}", *cells, part(sum(e.harmful for e in found), runs))


PROBLEMS: tuple[tuple[str, Callable[[np.random.Generator], AbstractProblem]], ...] = (
    *((setting.name, setting.problem) for setting in (Setting("equal", 12, 3), Setting("equal", 24, 5))),
    *((setting.name, setting.problem) for setting in (Setting("rare", 24, 5), Setting("mean", 24, 5))),
    *((family.name, family.problem) for family in BASE if family.sampler is RevenueSampler),
)


def learned(
    problem: AbstractProblem, seeds: Sequence[np.random.SeedSequence], plays: int, share: float, fixed: bool
) -> Watch:
    """Return what was said of a campaign of the default policy with a control: a fixed subset, or random ones."""
    policy, rng = kofn.Thompson(problem.n_arms, problem.k, seed=seeds[0]), np.random.default_rng(seeds[1])
    page, watch = _random(problem, 1, rng), Watch()
    while policy.plays < plays:
        plan = policy.plan()
        tally = problem.play(plan.subsets, plan.times, rng)
        _record(watch, 0, problem, plan.subsets, plan.times, tally)
        policy.tell_plan(tally)
        control = int(rng.negative_binomial(plan.plays, 1 - share))
        if control:
            subsets = page if fixed else _random(problem, control, rng)
            times = np.array([control]) if fixed else np.ones(control, np.int64)
            tally = problem.play(subsets, times, rng)
            _record(watch, 1, problem, subsets, times, tally)
            for subset, count, total, squares in zip(subsets, times, tally.total, tally.squares, strict=True):
                policy.tell_total(subset.tolist(), int(count), float(total), float(squares))
        watch.look()
    return watch


def _record(
    watch: Watch, group: int, problem: AbstractProblem, subsets: IntArray, times: Any, tally: kofn.Tally
) -> None:
    expected = float(problem.value(subsets) @ times)
    watch.add(group, int(times.sum()), expected, float(tally.total.sum()), float(tally.squares.sum()))


def _random(problem: AbstractProblem, rows: int, rng: np.random.Generator) -> IntArray:
    return np.sort(rng.permuted(np.tile(np.arange(problem.n_arms), (rows, 1)), axis=1)[:, : problem.k], axis=1)


def policy(seed: int, runs: int, scale: Scale) -> None:
    """Print the same with the default policy. On `equal`, every claim is false."""
    heads = "problem", "control, 10 %", "lift at the end", "interval missed", "means missed", "claimed", "claimed harm"
    table(*heads)
    for name, make in PROBLEMS[: scale.few]:
        for fixed in (True, False):
            found = []
            for run in range(runs):
                for_problem, *seeds = np.random.SeedSequence([seed, run]).spawn(3)
                problem = make(np.random.default_rng(for_problem))
                found.append(learned(problem, seeds, scale.plays, 0.1, fixed))
            lifts = [
                each.expected[0] / each.sums[0].count / (each.expected[1] / each.sums[1].count) - 1 for each in found
            ]
            counts = (
                sum(each.wrong for each in found),
                sum(any(each.wrong_mean) for each in found),
                sum(each.claimed > 0 for each in found),
                sum(each.harmful for each in found),
            )
            what = "a fixed subset" if fixed else "random subsets"
            line(name, what, f"{np.median(lifts):+.0%}", *(part(count, runs) for count in counts))


def ratio(seed: int, runs: int, scale: Scale) -> None:
    """Print how often an intended share of 10 % is rejected at any look, and after how many plays."""
    table("true share", "rejected", "plays until rejected, median")
    at = looks(scale.plays)
    for row, share in enumerate((0.1, 0.101, 0.102, 0.105, 0.11, 0.15)):
        times = []
        for run in range(runs):
            rng = np.random.default_rng([seed, 200 + row, run])
            control = rng.binomial(np.diff(at, prepend=0), share).cumsum().tolist()
            each = (n for n, c in zip(at, control, strict=True) if sample_ratio(n - c, c, 0.1).rejected)
            times.append(next(each, 0))
        found = [each for each in times if each]
        line(f"{share:.1%}", part(len(found), runs), f"{int(np.median(found)):,}" if found else "")


TABLES: dict[str, Callable[[int, int, Scale], None]] = {
    "same": same,
    "better": better,
    "policy": policy,
    "ratio": ratio,
}


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser_for(__doc__, TABLES, seed=2027, runs=2000).parse_args(arguments)
    TABLES[args.table](args.seed, args.runs, QUICK if args.quick else FULL)


if __name__ == "__main__":
    main()
