"""Three of twelve products on a front page: learn from sales, save the policy, restore it and resume."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

import kofn

VISITORS = 12_000
RNG = np.random.default_rng(3)
BUYS = [0.05, 0.21, 0.03, 0.12, 0.30, 0.08, 0.16, 0.02, 0.26, 0.10, 0.04, 0.14]  # unknown to the policy


def visit(page: tuple[int, ...]) -> float:
    """Return 1 if the next visitor buys anything on the page, else 0."""
    return float(any(RNG.random() < BUYS[product] for product in page))


def show(policy: kofn.Policy, visitors: int) -> float:
    """Show pages to visitors, tell the policy each reward, and return the share of visitors who bought something."""
    bought = 0.0
    for _ in range(visitors):
        page = policy.ask()
        reward = visit(page)
        policy.tell(page, reward)
        bought += reward
    return bought / visitors


def main() -> None:
    """Learn from half of the visitors, save the policy to a file, restore it and resume."""
    policy: kofn.Policy = kofn.Thompson(n_arms=12, k=3, seed=1)
    print(f"first half:  {show(policy, VISITORS // 2):.1%} of the visitors bought something")

    with TemporaryDirectory() as folder:
        file = Path(folder, "front-page.json")
        file.write_text(json.dumps(kofn.save(policy)))
        print(f"saved:       {file.stat().st_size:,} bytes after {policy.plays:,} plays")
        policy = kofn.restore(json.loads(file.read_text()))

    print(f"second half: {show(policy, VISITORS // 2):.1%}; the best page is {policy.best()}")


if __name__ == "__main__":
    main()
