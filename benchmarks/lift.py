"""How often does a campaign claim a lift that is not there, and when one that is there? `python -m benchmarks.lift`.

Every campaign is looked at after every play at first, then whenever it has 5 % more plays; a claim at any look counts.
In `no lift`, both groups have the same mean: every claim is false. In `lift`, the mean of learned plays rises: half of
the rise is there after 5,000 plays. `sample ratio` is the check of a control that should get 10 %.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.rows import Row, run
from kofn.campaigns.evidence import Sums, lift, sample_ratio

PLAYS = 100_000
AMOUNTS = np.minimum(0.01 * np.random.default_rng(0).lognormal(0, 1.5, 100_000), 1.0)
GROUPS = ("no lift", "lift", "sample ratio")


def clicks(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    total = float(rng.binomial(plays, mean))
    return total, total


def revenue(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    """Mostly zero, else log-normal with sigma 1.5, at most 1."""
    paid = AMOUNTS[rng.integers(len(AMOUNTS), size=rng.binomial(plays, mean / AMOUNTS.mean()))]
    return float(paid.sum()), float(paid @ paid)


def mean_of_five(mean: float, plays: int, rng: np.random.Generator) -> tuple[float, float]:
    paid = rng.binomial(5, mean, plays) / 5
    return float(paid.sum()), float(paid @ paid)


class Rewards(NamedTuple):
    """A kind of rewards: how they are drawn, the mean of control plays, and the relative rise in `lift`."""

    draw: Callable[[float, int, np.random.Generator], tuple[float, float]]
    mean: float
    rise: float


KINDS = {
    "clicks, 1 %": Rewards(clicks, 0.01, 0.5),
    "clicks, 20 %": Rewards(clicks, 0.2, 0.1),
    "clicks, 0.1 %": Rewards(clicks, 0.001, 1.0),
    "clicks, 99 %": Rewards(clicks, 0.99, 0.005),
    "revenue, 10 % of plays pay": Rewards(revenue, 0.1 * float(AMOUNTS.mean()), 0.5),
    "revenue, 1 % of plays pay": Rewards(revenue, 0.01 * float(AMOUNTS.mean()), 1.0),
    "mean of five coins of 30 %": Rewards(mean_of_five, 0.3, 0.05),
}


class Claims(NamedTuple):
    """What was said at any look: plays until a lift was claimed (0: never), a claimed harm, an interval that missed."""

    lift: int
    harm: bool
    missed: bool


def looks(plays: int) -> list[int]:
    """Return the numbers of plays at which a campaign is looked at."""
    found = [1]
    while found[-1] < plays:
        found.append(min(plays, max(found[-1] + 1, int(1.05 * found[-1]))))
    return found


def campaign(kind: Rewards, share: float, rise: float, plays: int, rng: np.random.Generator) -> Claims:
    sums, expected = [Sums(0, 0.0, 0.0), Sums(0, 0.0, 0.0)], [0.0, 0.0]
    claimed, harm, missed, before = 0, False, False, 0
    for now in looks(plays):
        control = int(rng.binomial(now - before, share))
        for group, count in enumerate((now - before - control, control)):
            mean = kind.mean * (1 + (rise * now / (now + 5_000) if group == 0 else 0.0))
            sums[group] += Sums(count, *kind.draw(mean, count, rng))
            expected[group] += mean * count
        said, before = lift(sums[0], sums[1]), now
        true = expected[0] / max(sums[0].count, 1) - expected[1] / max(sums[1].count, 1)
        missed |= (said.low is not None and true < said.low - 1e-12) or (
            said.high is not None and true > said.high + 1e-12
        )
        claimed, harm = claimed or (now if said.claimed else 0), harm or said.harmful
    return Claims(claimed, harm, missed)


def rejected_after(share: float, plays: int, rng: np.random.Generator) -> int:
    """Return the plays until the sample-ratio check rejects a share of 10 %; 0 if it never does."""
    at = looks(plays)
    control = rng.binomial(np.diff(at, prepend=0), share).cumsum().tolist()
    return next((n for n, c in zip(at, control, strict=True) if sample_ratio(n - c, c, 0.1).rejected), 0)


def share(name: str, happened: Sequence[bool]) -> Row:
    """Return the columns of a share and the half-width of its 95 % interval (Wilson's: it is not 0 for none)."""
    count, of = sum(happened), len(happened)
    p = (count + 2) / (of + 4)
    return {name: count / of, f"{name}_error": 1.96 * (p * (1 - p) / (of + 4)) ** 0.5}


def rows(seed: int = 2027, runs: int = 500, groups: Sequence[str] = GROUPS, quick: bool = False) -> Iterator[Row]:
    runs, plays = (2, 300) if quick else (runs, PLAYS)
    for group in groups:
        if group == "sample ratio":
            for row, true in enumerate((0.1, 0.101, 0.102, 0.105, 0.11, 0.15)):
                rngs = [np.random.default_rng([seed, 200 + row, each]) for each in range(runs)]
                after = [rejected_after(true, plays, rng) for rng in rngs]
                cells = {"group": group, "setting": f"true share {true:.1%}", "control": 0.1}
                yield _row(cells, plays, runs, after) | share("rejected", [each > 0 for each in after])
            continue
        for row, (name, kind) in enumerate(KINDS.items()):
            for column, control in enumerate((0.1, 0.5)):
                rise, stream = (kind.rise, 100 + row) if group == "lift" else (0.0, row)
                rngs = [np.random.default_rng([seed, stream, column, each]) for each in range(runs)]
                found = [campaign(kind, control, rise, plays, rng) for rng in rngs]
                cells = {"group": group, "setting": name, "control": control, "true_lift": rise}
                yield (
                    _row(cells, plays, runs, [each.lift for each in found])
                    | share("claimed_lift", [each.lift > 0 for each in found])
                    | share("claimed_harm", [each.harm for each in found])
                    | share("either", [each.lift > 0 or each.harm for each in found])
                    | share("interval_missed", [each.missed for each in found])
                )


def _row(cells: Row, plays: int, runs: int, after: Sequence[int]) -> Row:
    times = [each for each in after if each]
    return cells | {"plays": plays, "runs": runs, "median_plays": int(np.median(times)) if times else None}


if __name__ == "__main__":
    run(rows, __doc__)
