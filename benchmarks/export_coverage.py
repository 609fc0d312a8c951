"""How often intervals from the exported decisions of simulated campaigns hold: `python -m benchmarks.export_coverage`.

Each campaign makes 2,000 decisions over 5 arms, 2 of which are shown; the reward is the maximum of two coin tosses. Its
decisions are exported as CSV and read as `kofn replay` reads them. An interval of 95 % should hold for 95 % of the
subsets, and those that hold at once for all subsets of 95 % of the campaigns. `docs/guides/replay.md` has the table.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kofn import Campaign
from kofn.campaigns.decision_files import encoded
from kofn.lab.logs import DecisionLog, ValueWithError, evaluate_all
from kofn.lab.problems import Bernoulli, Problem

ARMS = list("abcde")
BATCH, CALLS = 200, 10


class Case(NamedTuple):
    """A kind of campaign: its control, and how many calls later its rewards arrive."""

    title: str
    control: Any
    late: int


CASES = (
    Case("no control", None, 0),
    Case("no control, rewards two calls late", None, 2),
    Case("a fixed control", ["a", "b"], 0),
    Case("a uniform control", "uniform", 0),
)
METHODS = ("mean", "snips", "dr", "ips")


def played(case: Case, seed: int) -> tuple[Problem, DecisionLog]:
    """Return the log of a campaign, and the problem that it played."""
    rng = np.random.default_rng(seed)
    problem = Problem(Bernoulli(rng.uniform(0.05, 0.6, len(ARMS))), "maximum", 2)
    given = {} if case.control is None else {"control": case.control}
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/shop.db?synchronous=normal"
        campaign = Campaign.create("front", ARMS, 2, seed=seed, store=store, **given)
        waiting: list[dict[str, float]] = []
        for _ in range(CALLS):
            made = campaign.decide(BATCH)
            earned = problem.play(np.array([each.subset for each in made]), np.ones(BATCH, int), rng).total
            waiting.append(dict(zip((each.id for each in made), earned.tolist(), strict=True)))
            if len(waiting) > case.late:
                campaign.rewards(waiting.pop(0))
        path = Path(folder) / "log.csv"
        path.write_bytes(b"".join(encoded(campaign.decisions(), "csv")))
        campaign.store.close()
        return problem, DecisionLog.read(path)


def held(case: Case, seed: int) -> Iterator[tuple[str, list[bool], bool]]:
    """Yield for each method whether the interval of each subset holds, and whether those that hold at once do."""
    problem, log = played(case, seed)
    every = evaluate_all(log)
    for method in METHODS:
        found: list[tuple[ValueWithError, float]] = [
            (getattr(each, method), float(problem.value([each.subset])[0])) for each in every
        ]
        known = [(estimate, truth) for estimate, truth in found if not np.isnan(estimate.value)]
        single = [_holds(estimate.interval(), truth) for estimate, truth in known]
        yield method, single, all(_holds(estimate.interval(of=len(known)), truth) for estimate, truth in known)


def _holds(interval: tuple[float, float], truth: float) -> bool:
    return interval[0] <= truth <= interval[1]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--campaigns", type=int, default=40, help="campaigns of each kind")
    campaigns = parser.parse_args(argv).campaigns
    print("| campaign | " + " | ".join(f"`{method}`" for method in METHODS) + " |")
    print("| --- " * (len(METHODS) + 1) + "|")
    for case in CASES:
        single: dict[str, list[bool]] = {method: [] for method in METHODS}
        joint: dict[str, list[bool]] = {method: [] for method in METHODS}
        for seed in range(campaigns):
            for method, each, at_once in held(case, seed):
                single[method] += each
                joint[method].append(at_once)
        cells = (f"{np.mean(single[method]):.0%}, {np.mean(joint[method]):.0%}" for method in METHODS)
        print(f"| {case.title} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
