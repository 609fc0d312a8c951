"""Compare what `insight()` says with the truth, on settings of the suite: `python -m benchmarks.calibration`.

The probability that the best subset is right, the expected loss, and the interval of the best subset's value. Alarms
are counted too: all are false here.
"""

from collections.abc import Iterator

import numpy as np

import kofn
from benchmarks.rows import Row, run, seeds_of
from kofn.lab.settings import Setting
from kofn.lab.suite import BEYOND

FAMILIES = ("mean", "max", "cross-selling", *BEYOND)
SETTINGS = tuple(Setting(family, n, k) for family in FAMILIES for n, k in ((12, 3), (24, 5)))
MARKS = (300, 1_000, 3_000, 10**4, 10**5, 10**6)
MEANS = ("said_probability_best", "true_probability_best", "said_loss", "true_loss", "interval_holds")
COUNTS = ("drift_alarms", "misfit_alarms")


def looks(setting: Setting, seed: int, number: int, marks: tuple[int, ...]) -> Iterator[Row | None]:
    """Yield what one run says and what is true, after each number of plays; None while all rewards were equal."""
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    problem, rng = setting.problem(for_problem), np.random.default_rng(for_plays)
    policy = kofn.Thompson(setting.n_arms, setting.k, seed=for_policy)
    for mark in marks:
        while policy.plays < mark:
            plan = policy.plan().part(mark - policy.plays, rng)
            policy.tell_plan(problem.play(plan.subsets, plan.times, rng))
        insight, value = policy.insight(), problem.value([policy.best()])[0]
        gap = float(problem.optimum - value)
        if insight is None:
            yield None
            continue
        alarms = {alarm.kind for alarm in insight.alarms or ()}
        values = (
            insight.probability_best,
            gap < 1e-9,
            insight.expected_loss,
            gap,
            insight.low <= value <= insight.high,
        )
        yield dict(zip((*MEANS, *COUNTS), (*values, "drift" in alarms, "misfit" in alarms), strict=True))


def rows(
    seed: int = 9000,
    runs: int = 20,
    marks: tuple[int, ...] = MARKS,
    settings: tuple[str, ...] = (),
    quick: bool = False,
) -> Iterator[Row]:
    """Yield a row for each setting and number of plays: means over the runs with an estimate, and counts of alarms."""
    chosen = [setting for setting in SETTINGS if not settings or setting.name in settings]
    if quick:
        chosen, marks, runs = chosen[:1], (100, 300), min(runs, 2)
    for setting in chosen:
        found = [list(looks(setting, seed, number, tuple(marks))) for number in range(runs)]
        for mark, column in zip(marks, zip(*found, strict=True), strict=True):
            known = [look for look in column if look is not None]
            means = {name: float(np.mean([look[name] for look in known])) if known else None for name in MEANS}
            counts = {name: sum(look[name] for look in known) for name in COUNTS}
            shown = {"setting": setting.name, "plays": mark, "runs": runs, "estimates": len(known)}
            yield {**shown, **means, **counts}


if __name__ == "__main__":
    run(rows, __doc__)
