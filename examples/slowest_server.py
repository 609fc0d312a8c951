"""Three of ten servers answer each request, and it takes as long as the slowest of them: which three?"""

import numpy as np

import kofn

REQUESTS = 40_000
TIMEOUT = 200.0  # milliseconds: what takes longer counts as this long
RNG = np.random.default_rng(5)
MILLISECONDS = np.array([90, 25, 70, 120, 35, 60, 20, 150, 80, 100])  # on average, known to nobody


def latency(servers: tuple[int, ...]) -> float:
    """How long the slowest of the servers took to answer."""
    return float(min(RNG.exponential(MILLISECONDS[list(servers)]).max(), TIMEOUT))


def main() -> None:
    """Learn by asking and telling; latencies are to be minimised, and lie between 0 and the timeout."""
    policy = kofn.CMABSM(
        n_arms=10,
        k=3,
        horizon=REQUESTS,
        resolution=0.1,
        reward_range=(0, TIMEOUT),
        direction="minimize",
    )
    waited = np.empty(REQUESTS)
    for request in range(REQUESTS):
        servers = policy.ask()
        waited[request] = latency(servers)
        policy.tell(servers, waited[request])
    blindly = [latency(tuple(RNG.choice(10, 3, replace=False))) for _ in range(5_000)]
    print(f"any three:        {np.mean(blindly):.0f} ms")
    print(f"while learning:   {waited[: REQUESTS // 2].mean():.0f} ms")
    print(f"in the end:       {waited[-5_000:].mean():.0f} ms, with the servers {policy.best()}")


if __name__ == "__main__":
    main()
