"""Make the table of docs/reference/policies/thompson-sizes.md: `python -m benchmarks.sizes regret` (`--help`).

`regret` compares thompson-sizes with thompson, which fills all places, on problems whose arms cost something.
`--quick` plays few plays.
"""

from collections.abc import Sequence

import numpy as np

import kofn
from benchmarks.tables import interval, line, parser_for, table
from kofn.problems import AbstractProblem

HORIZON, QUICK = 30_000, 1_000
COSTS = {"sum": 1.0, "mean": 0.2, "maximum": 0.2}
"""The largest cost of an arm."""

N_ARMS, K, FEWEST = 24, 5, 1


def problem_of(reward: str, lowest: float, seed: Sequence[int]) -> AbstractProblem:
    """Return a random problem net of random costs."""
    rng = np.random.default_rng(seed)
    arms, costs = kofn.Bernoulli(rng.random(N_ARMS)), COSTS[reward] * rng.uniform(lowest, 1.0, N_ARMS)
    return kofn.Problem(arms, reward, K, absent=0.0).with_costs(costs, fewest=FEWEST)


def regret(seed: int, runs: int, horizon: int, lowest: float) -> None:
    """Print the regret of both policies, and how often each finds the best subset."""
    table("reward", "policy", "regret", "best found", "size of the best subset")
    for reward in COSTS:
        problems = [problem_of(reward, lowest, [seed, run]) for run in range(runs)]
        sizes = [len(problem.best) for problem in problems]
        for name, fewest in (("thompson-sizes", FEWEST), ("thompson", K)):
            done = []
            for run, problem in enumerate(problems):
                policy = kofn.ThompsonSizes(N_ARMS, K, fewest=fewest, reward_range=problem.reward_range, seed=run)
                done.append(kofn.simulate(policy, problem, horizon, np.random.default_rng([seed, run, 1])))
            found = sum(each.optimal for each in done)
            line(reward, name, interval([each.regret for each in done]), f"{found} of {runs}", f"{np.mean(sizes):.1f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_for(__doc__, ["regret"], seed=1852, runs=20)
    parser.add_argument("--lowest", type=float, default=0.5, help="lowest cost, as a part of the largest")
    args = parser.parse_args(arguments)
    regret(args.seed, args.runs, QUICK if args.quick else HORIZON, args.lowest)


if __name__ == "__main__":
    main()
