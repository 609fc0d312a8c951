"""The suite: a fixed set of settings that every policy plays, with archived runs.

An interrupted suite can be resumed, and the results of two versions can be compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from kofn.backends import Backend, Progress
from kofn.core import BadInput, KofnError, Policy, whole
from kofn.core.checks import check_horizon, unknown_name
from kofn.lab.archive import RunArchive
from kofn.lab.compare import standing
from kofn.lab.competitors import Competitor, Entry, competitors_for
from kofn.lab.paper import KS
from kofn.lab.settings import CONTEXTUAL_SETTINGS, REAL_SETTINGS, Setting
from kofn.lab.sweep import sweep
from kofn.policies.registry import POLICIES, policy_named

BEYOND = ("close", "rare", "dominant", "equal", "min", "likely-min", "threshold", "correlated")
SUITE: tuple[Setting, ...] = (
    *(Setting(family, n, k) for family in ("mean", "max", "cross-selling") for n, ks in KS.items() for k in ks),
    *(Setting(family, n, k) for family in BEYOND for n, k in ((12, 3), (24, 5))),
    *(Setting(family, n, 10) for family in ("mean", "max") for n in (1_000, 10_000)),
)
BY_NAME: tuple[Setting, ...] = (*REAL_SETTINGS, *CONTEXTUAL_SETTINGS)
"""Settings that are played only if they are named. A policy that takes no context cannot win a contextual one."""
FLOOR_AND_CEILING = ("uniform", "oracle")
MAX_ARMS, MAX_SUBSETS = 500, 200_000
"""Limits for policies that keep a number for each pair of arms (MAX_ARMS) or for each subset (MAX_SUBSETS).

Higher limits let these policies play more settings, and make the suite take longer."""


def settings_named(names: Sequence[str]) -> list[Setting]:
    """Return the settings with these names, or of these families; all settings of the suite without names.

    The problems on real data and those with contexts are not part of the suite, but can be named: they are the
    families `real` and `context`.
    """
    if not names:
        return list(SUITE)
    every = (*SUITE, *BY_NAME)
    found = [setting for setting in every if setting.name in names or setting.family in names]
    known = dict.fromkeys((*(setting.family for setting in every), *(setting.name for setting in every)))
    if unknown := [name for name in names if name not in known]:
        raise BadInput(unknown_name("setting", unknown[0], known))
    return found


def run_suite(
    archive: RunArchive,
    *,
    settings: Iterable[Setting] = SUITE,
    policies: Sequence[str] | None = None,
    without: Sequence[str] = (),
    horizon: int = 10**6,
    runs: int = 10,
    seed: int = 2021,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Run what is not in the archive yet, and yield one result for each setting and policy, except those `without`.

    If a policy cannot play a setting, the result has the reason under `skipped`.
    """
    horizon, runs = check_horizon(horizon), whole("runs", runs)
    asked = {"horizon": horizon, "runs": runs, "seed": whole("seed", seed, least=0)}
    names = sorted(POLICIES) if policies is None else list(policies)
    for name in (*names, *without):
        policy_named(name)
    played = [name for name in names if name not in without]
    checked = [
        (setting, competitor.label, entry_or_reason(competitor))
        for setting in settings
        for competitor in competitors_for(played, setting, horizon, asked["seed"])
    ]
    entries = [each for _, _, each in checked if isinstance(each, Entry)]
    trials = sweep(entries, runs, backend=backend, workers=workers, archive=archive, progress=progress)
    for setting, name, each in checked:
        result: dict[str, Any] = {"skipped": each}
        if isinstance(each, Entry):
            found = standing(each, next(trials))
            result = {"row": found.to_dict(), "finals": found.finals.tolist()}
        yield {"setting": setting.name, "policy": name, **asked, **result}


def entry_or_reason(competitor: Competitor) -> Entry | str:
    """Return the entry of a competitor on a setting, or the reason why it cannot play or would take too long."""
    policy = POLICIES.get(competitor.label)
    assert isinstance(competitor.problem, Setting)
    if policy is not None and (reason := _too_long(competitor.problem, policy)):
        return reason
    try:
        return competitor.checked(archived=True)
    except KofnError as why:
        return str(why)


def _too_long(setting: Setting, policy: type[Policy]) -> str | None:
    """Return why the suite does not run this policy in this setting; None if it does."""
    if setting.n_arms > MAX_ARMS and not policy.linear_memory:
        return f"with more than {MAX_ARMS} arms, the suite runs only policies with memory linear in N"
    if policy.keeps_subsets and math.comb(setting.n_arms, setting.k) > MAX_SUBSETS:
        return f"with more than {MAX_SUBSETS:,} subsets, the suite runs no policy that keeps a number for each subset"
    return None


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """The results of a suite, as tables."""

    results: tuple[dict[str, Any], ...]

    def ranked(self, setting: str) -> dict[str, float]:
        """Return the mean regret of each policy that played this setting, but of `uniform`, `oracle` and references."""
        return {
            each["policy"]: each["row"]["regret"]
            for each in self.results
            if each["setting"] == setting and "row" in each and is_ranked(each["policy"])
        }

    @property
    def settings(self) -> list[str]:
        """The settings that were played, in the order of the suite."""
        played = {each["setting"] for each in self.results}
        return [setting.name for setting in (*SUITE, *BY_NAME) if setting.name in played]

    def standings(self) -> list[dict[str, Any]]:
        """Return a row for each ranked policy: settings played, settings won, and its regret relative to the best."""
        ratios: dict[str, list[float]] = {}
        wins: dict[str, int] = {}
        for setting in self.settings:
            ranked = self.ranked(setting)
            if not ranked or (least := min(ranked.values())) < 1:  # no regret to compare, as with equal arms
                continue
            for name, regret in ranked.items():
                ratios.setdefault(name, []).append(regret / least)
                wins[name] = wins.get(name, 0) + (regret == least)
        rows = [
            {
                "policy": name,
                "settings": len(each),
                "wins": wins[name],
                "median_ratio": statistics.median(each),
                "worst_ratio": max(each),
            }
            for name, each in ratios.items()
        ]
        return sorted(rows, key=lambda row: (row["median_ratio"], row["policy"]))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the rows of results/leaderboard.csv: the standings, as the setting "all", then each setting."""
        for each in self.standings():
            over_all = {"settings": each["settings"], "best_in": each["wins"]}
            ratios = {key: each[key] for key in ("median_ratio", "worst_ratio")}
            yield self._row("all", each["policy"]) | {"regret": None} | over_all | ratios
        for each in self.results:
            if "row" in each:
                yield self._row(each["setting"], each["policy"]) | {"regret": each["row"]["regret"]}

    def _row(self, setting: str, policy: str) -> dict[str, Any]:
        first = self.results[0]
        return {"setting": setting, "policy": policy, "plays": first["horizon"], "runs": first["runs"]}


def is_ranked(policy: str) -> bool:
    """Return whether a policy is ranked: it is not `uniform` or `oracle`, and observes only one number per play."""
    return policy not in FLOOR_AND_CEILING and "arms" not in policy_named(policy).needs


def rows(
    archive: Path,
    *,
    without: Sequence[str],
    horizon: int,
    runs: int,
    seed: int,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Iterator[dict[str, Any]]:
    """Run the whole suite, and yield the rows of results/leaderboard.csv."""
    found = run_suite(
        RunArchive(archive),
        without=without,
        horizon=horizon,
        runs=runs,
        seed=seed,
        workers=workers,
        progress=progress,
    )
    return Leaderboard(tuple(found)).rows()


def versus(results: Iterable[dict[str, Any]], earlier: RunArchive) -> list[dict[str, Any]]:
    """Return the regret of these results and of another version, for settings where it has all of the same runs."""
    rows = []
    for now in results:
        then = earlier.find(now["setting"], now["policy"], now["horizon"], now["seed"])
        if "row" in now and then.keys() >= set(range(now["runs"])):
            before = float(np.mean([then[run].run.regret for run in range(now["runs"])]))
            after = now["row"]["regret"]
            rows.append({"setting": now["setting"], "policy": now["policy"], "before": before, "after": after})
    if not rows:
        raise BadInput(f"{earlier.folder} has none of these runs of version {earlier.version}: run its suite first")
    return rows
