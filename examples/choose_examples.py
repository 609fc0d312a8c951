"""Which 4 of 24 labelled examples teach a nearest-neighbour classifier best? The score is its accuracy."""

import numpy as np

import kofn

RNG = np.random.default_rng(7)
CENTRES = RNG.normal(size=(3, 5))


def drawn(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points of three classes, and the class of each."""
    classes = RNG.integers(3, size=count)
    return CENTRES[classes] + RNG.normal(size=(count, 5)), classes


EXAMPLES, LABELS = drawn(24)  # the candidates
POINTS, ANSWERS = drawn(400)  # what the classifier is asked


def accuracy(subset: list[int]) -> float:
    """Return the accuracy on all points, if these examples are known."""
    distances = np.linalg.norm(POINTS[:, None] - EXAMPLES[subset], axis=2)
    return float((LABELS[subset][distances.argmin(axis=1)] == ANSWERS).mean())


def main() -> None:
    """Choose with 300 calls, and compare with the average of random examples."""
    choice = kofn.choose(24, 4, accuracy, budget=300, seed=1)
    random = [accuracy(RNG.choice(24, 4, replace=False).tolist()) for _ in range(300)]
    print(f"random examples: {np.mean(random):.1%} on average, {max(random):.1%} for the best of 300")
    print(f"kofn.choose:     {choice.value:.1%} with the examples {choice.subset}")


if __name__ == "__main__":
    main()
