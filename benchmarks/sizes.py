"""Make the tables of docs/reference/policies/thompson-sizes.md: `python -m benchmarks.sizes regret` (`--help`).

`regret` compares thompson-sizes with thompson, which fills all places, on problems whose arms cost something. `changed`
exchanges the costs of all arms, and compares the policy that keeps what it has learned with a new one.
`--quick` plays few plays.
"""

from collections.abc import Sequence

import numpy as np

import kofn
from benchmarks.tables import interval, line, parser_for, table
from kofn.core import Direction, FloatArray
from kofn.lab.problems import AbstractProblem

HORIZON, QUICK = 30_000, 1_000
CHANGED_AFTER = 20_000
"""Plays before costs change, and after it."""

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


def changed(seed: int, runs: int, horizon: int) -> None:
    """Print the regret after a change of costs, of the policy that learned before and of a new one."""
    table("reward", "direction", "before the change", "after it", "new")
    for reward in COSTS:
        for direction in DIRECTIONS:
            found = np.array([_changed(reward, direction, [seed, run], horizon) for run in range(runs)])
            line(reward, direction, *map(interval, found.T))


DIRECTIONS: tuple[Direction, ...] = ("maximize", "minimize")


def _changed(reward: str, direction: Direction, seed: Sequence[int], horizon: int) -> tuple[float, float, float]:
    rng, n_arms, k = np.random.default_rng(seed), 12, 4
    p, before = rng.random(n_arms), rng.uniform(0, 0.25, n_arms)
    after = rng.permutation(before)
    gross = kofn.Problem(kofn.Bernoulli(p), reward, k, absent=0.0, direction=direction)

    def policy_at(costs: FloatArray) -> kofn.ThompsonSizes:
        own, number = gross.reward_range, seed[-1]
        return kofn.ThompsonSizes(
            n_arms, k, fewest=FEWEST, costs=costs, reward_range=own, direction=direction, seed=number
        )

    policy = policy_at(before)
    first = _regret(policy, gross.with_costs(before, fewest=FEWEST), before, horizon, rng)
    then = gross.with_costs(after, fewest=FEWEST)
    kept, new = (
        _regret(each, then, after, horizon, rng) for each in (policy.with_params(costs=after), policy_at(after))
    )
    return first, kept, new


def _regret(
    policy: kofn.ThompsonSizes, problem: AbstractProblem, costs: FloatArray, horizon: int, rng: np.random.Generator
) -> float:
    """Play a problem net of costs; the policy is told rewards without them."""
    regret, end = 0.0, policy.plays + horizon
    while policy.plays < end:
        plan = policy.plan()
        rows = [tuple(arm for arm in row if arm >= 0) for row in plan.subsets.tolist()]
        net, times = problem.play(rows, plan.times, rng), plan.times
        cost = np.array([costs[list(row)].sum() for row in rows]) * (1 if problem.direction == "maximize" else -1)
        squares = net.squares + 2 * cost * net.total + cost**2 * times
        policy.tell_plan(kofn.Tally(times, net.total + cost * times, squares))
        regret += float(problem.gap(rows) @ times)
    return regret


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = parser_for(__doc__, ["regret", "changed"], seed=1852, runs=20)
    parser.add_argument("--lowest", type=float, default=0.5, help="lowest cost, as a part of the largest")
    args = parser.parse_args(arguments)
    if args.table == "changed":
        changed(args.seed, args.runs, QUICK if args.quick else CHANGED_AFTER)
    else:
        regret(args.seed, args.runs, QUICK if args.quick else HORIZON, args.lowest)


if __name__ == "__main__":
    main()
