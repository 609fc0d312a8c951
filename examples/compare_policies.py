"""Four policies on the same problem: the regret of each, and how often it finds the best subset."""

import kofn

N, K, HORIZON, RUNS = 12, 5, 100_000, 5


def main() -> None:
    """Compare the policies and print the table, the lowest regret first."""
    problem = kofn.Problem(kofn.Bernoulli([0.08 * arm for arm in range(1, N + 1)]), "mean", k=K)
    policies = ["thompson", "shared-credit", "cmab-sm", "improved-ucb"]
    print(kofn.compare(policies, problem, HORIZON, runs=RUNS, seed=1, workers=1))


if __name__ == "__main__":
    main()
