"""Three of ten servers answer each request, and it takes as long as the slowest of them: which three?"""

import numpy as np

import kofn

REQUESTS = 10_000
TIMEOUT = 200.0  # milliseconds: a longer request counts as this long
RNG = np.random.default_rng(5)
MILLISECONDS = np.array([90, 25, 70, 120, 35, 60, 20, 150, 80, 100])  # mean latencies, unknown to the policy


def latency(servers: tuple[int, ...]) -> float:
    """Return the latency of the slowest of the servers."""
    return float(min(RNG.exponential(MILLISECONDS[list(servers)]).max(), TIMEOUT))


def main() -> None:
    """Minimise the latency, and compare it with that of random servers."""
    policy = kofn.Thompson(n_arms=10, k=3, reward_range=(0, TIMEOUT), direction="minimize", seed=1)
    waited = np.empty(REQUESTS)
    for request in range(REQUESTS):
        servers = policy.ask()
        waited[request] = latency(servers)
        policy.tell(servers, waited[request])
    random = [latency(tuple(RNG.choice(10, 3, replace=False))) for _ in range(5_000)]
    print(f"random servers:      {np.mean(random):.0f} ms")
    print(f"first 1,000:         {waited[:1_000].mean():.0f} ms")
    print(f"last 5,000:          {waited[-5_000:].mean():.0f} ms, best are the servers {policy.best()}")


if __name__ == "__main__":
    main()
