"""The suite: a fixed set of settings that every policy plays, with results that are kept.

A result is a small JSON file, `store/<version>/<setting>/<policy>.json`: a suite that was stopped goes on where it
was, and two versions can be laid side by side.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kofn import __version__
from kofn.core import BadInput, KofnError, Policy, whole
from kofn.experiments.compare import compare
from kofn.experiments.paper import KS
from kofn.experiments.settings import Setting
from kofn.policies.registry import POLICIES, policy_named

BEYOND = ("close", "rare", "dominant", "equal", "min", "likely-min", "threshold", "correlated")
SUITE: tuple[Setting, ...] = (
    *(Setting(family, n, k) for family in ("mean", "max", "cross-selling") for n, ks in KS.items() for k in ks),
    *(Setting(family, n, k) for family in BEYOND for n, k in ((12, 3), (24, 5))),
    *(Setting(family, n, 10) for family in ("mean", "max") for n in (1_000, 10_000)),
)
FLOOR_AND_CEILING = ("uniform", "oracle")
MOST_ARMS, MOST_SUBSETS = 500, 200_000
"""Of policies that keep a number for each pair of arms, or for each subset: beyond, they take too long for a suite."""
ASKED = ("horizon", "runs", "seed")


def settings_named(names: Sequence[str]) -> list[Setting]:
    """The settings of these names, or of families of these names; all without any."""
    found = [setting for setting in SUITE if not names or setting.name in names or setting.family in names]
    known = {setting.name for setting in SUITE} | {setting.family for setting in SUITE}
    if unknown := sorted(set(names) - known):
        raise BadInput(f"the suite has no setting {', '.join(unknown)}; it has: {', '.join(s.name for s in SUITE)}")
    return found


@dataclass(frozen=True)
class Store:
    """Where results are kept."""

    folder: Path
    version: str = __version__

    def path(self, setting: Setting, policy: str) -> Path:
        """The file of one result."""
        return self.folder / self.version / setting.name / f"{policy}.json"

    def read(self, setting: Setting, policy: str) -> dict[str, Any] | None:
        """The result, if it is there."""
        path = self.path(setting, policy)
        if not path.exists():
            return None
        try:
            result: dict[str, Any] = json.loads(path.read_text())
            if result["policy"] != policy or not {"horizon", "runs", "seed"} <= result.keys():
                raise ValueError(policy)
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{path} is not a result that `kofn suite` wrote: delete it to run it again") from None
        return result

    def write(self, setting: Setting, policy: str, result: dict[str, Any]) -> None:
        """Keep a result; a file is there whole or not at all."""
        path = self.path(setting, policy)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(result) + "\n")
        draft.replace(path)

    @property
    def versions(self) -> list[str]:
        """The versions that have results."""
        return sorted(each.name for each in self.folder.iterdir() if each.is_dir()) if self.folder.is_dir() else []

    def of_version(self, version: str) -> Store:
        """The same store, for the results of another version."""
        if version not in self.versions:
            there = ", ".join(self.versions) or "none"
            raise BadInput(f"{self.folder} has no results of version {version!r}; it has: {there}")
        return Store(self.folder, version)


def run_suite(
    store: Store,
    *,
    settings: Iterable[Setting] = SUITE,
    policies: Sequence[str] | None = None,
    horizon: int = 10**6,
    runs: int = 10,
    seed: int = 2021,
    workers: int | None = None,
) -> Iterator[dict[str, Any]]:
    """Run what is not in the store yet, a result at a time; what a policy cannot play is kept with its reason."""
    horizon, runs = whole("horizon", horizon), whole("runs", runs)
    asked = {"horizon": horizon, "runs": runs, "seed": whole("seed", seed, least=0)}
    names = sorted(POLICIES) if policies is None else list(policies)
    for name in names:
        policy_named(name)
    for setting in settings:
        for name in names:
            result = store.read(setting, name)
            if result is None or {key: result[key] for key in asked} != asked:
                result = {"setting": setting.name, "policy": name, **asked, **_result(setting, name, asked, workers)}
                store.write(setting, name, result)
            yield result


def _result(setting: Setting, name: str, asked: dict[str, int], workers: int | None) -> dict[str, Any]:
    if reason := _too_long(setting, policy_named(name)):
        return {"skipped": reason}
    try:
        found = compare([name], setting, asked["horizon"], asked["runs"], asked["seed"], workers=workers)
    except KofnError as why:
        return {"skipped": str(why)}
    row = found.rows[0]
    return {"row": row, "finals": found.standings[0].finals.tolist()}


def _too_long(setting: Setting, policy: type[Policy]) -> str | None:
    if setting.n_arms > MOST_ARMS and not policy.linear_memory:
        return f"with more than {MOST_ARMS} arms, the suite runs only policies whose memory is linear in N"
    if policy.keeps_subsets and math.comb(setting.n_arms, setting.k) > MOST_SUBSETS:
        return f"with more than {MOST_SUBSETS:,} subsets, the suite runs no policy that keeps something of each"
    return None


@dataclass(frozen=True, eq=False)
class Leaderboard:
    """The stored results, laid out for reading."""

    results: tuple[dict[str, Any], ...]

    @classmethod
    def of(cls, store: Store, settings: Iterable[Setting] = SUITE) -> Leaderboard:
        """What the store has of these settings."""
        found = [store.read(setting, name) for setting in settings for name in sorted(POLICIES)]
        results = tuple(each for each in found if each is not None)
        if not results:
            raise BadInput(f"there are no results of kofn {store.version} in {store.folder}: run `kofn suite` first")
        if len(asked := {tuple(each[key] for key in ASKED) for each in results}) > 1:
            raise BadInput(f"the results in {store.folder} are of different {', '.join(ASKED)}: {sorted(asked)}")
        return cls(results)

    def regret(self, setting: str) -> dict[str, float]:
        """Mean regret of each policy that played this setting."""
        return {
            each["policy"]: each["row"]["regret"]
            for each in self.results
            if each["setting"] == setting and "row" in each
        }

    def rivals(self, setting: str) -> dict[str, float]:
        """The same without the floor, the ceiling and the references."""
        return {name: regret for name, regret in self.regret(setting).items() if is_ranked(name)}

    @property
    def settings(self) -> list[str]:
        """The settings in the order of the suite."""
        played = {each["setting"] for each in self.results}
        return [setting.name for setting in SUITE if setting.name in played]

    def standings(self) -> list[dict[str, Any]]:
        """Each ranked policy: how many settings it played, in how many it was the best, and how far from the best."""
        ratios: dict[str, list[float]] = {}
        wins: dict[str, int] = {}
        for setting in self.settings:
            rivals = self.rivals(setting)
            if not rivals or (least := min(rivals.values())) < 1:  # nothing to lose, as with equal arms
                continue
            for name, regret in rivals.items():
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


def is_ranked(policy: str) -> bool:
    """Whether a policy is a rival: neither floor nor ceiling, and sees only one number per play."""
    return policy not in FLOOR_AND_CEILING and "arms" not in policy_named(policy).needs


def as_markdown(board: Leaderboard, command: str) -> str:
    """The leaderboard as a page."""
    first = board.results[0]
    lines = [
        "# Leaderboard",
        "",
        f"Every policy on every setting of the suite that it can play: mean regret after {first['horizon']:,} plays, "
        f"over {first['runs']} runs with a fresh random problem each (seed {first['seed']}). Lower is better; the best "
        "of a column is bold. `uniform` is the floor and `oracle` the ceiling; `cucb` sees what each arm earned and is "
        "not ranked. An empty cell: the policy cannot play that setting, or would take too long.",
        "",
        f"Made by `{command}`.",
        "",
        "## Over all settings",
        "",
        "How many times the regret of the setting's best policy: the median and the worst over the settings played. "
        "Settings in which the best loses less than 1 are left out, as those of equal arms.",
        "",
        "| policy | settings | best in | median ratio | worst ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(
            f"| `{row['policy']}` | {row['settings']} | {row['wins']} | {row['median_ratio']:,.1f} | "
            f"{row['worst_ratio']:,.0f} |"
            for row in board.standings()
        ),
    ]
    for family in dict.fromkeys(name.partition("/")[0] for name in board.settings):
        lines += ["", f"## {family}", "", *_family_table(board, family)]
    return "\n".join(lines) + "\n"


def _family_table(board: Leaderboard, family: str) -> Iterator[str]:
    settings = [name for name in board.settings if name.partition("/")[0] == family]
    columns = {setting: board.regret(setting) for setting in settings}
    least = {setting: min(board.rivals(setting).values(), default=-1.0) for setting in settings}
    yield f"| policy | {' | '.join(name.partition('/')[2] for name in settings)} |"
    yield f"| --- |{' ---: |' * len(settings)}"
    for policy in sorted({name for column in columns.values() for name in column}):
        shown = []
        for setting, column in columns.items():
            regret = column.get(policy)
            best = regret is not None and regret == least[setting] >= 1 and is_ranked(policy)
            bold = "**" if best else ""
            shown.append("" if regret is None else f"{bold}{regret:,.0f}{bold}")
        yield f"| `{policy}` | {' | '.join(shown)} |"


def versus(store: Store, other: str, settings: Iterable[Setting] = SUITE) -> list[dict[str, Any]]:
    """The regret in this version of kofn and in another, wherever both have the same horizon, runs and seed."""
    earlier = store.of_version(other)
    rows = []
    for setting in settings:
        for name in sorted(POLICIES):
            now, then = store.read(setting, name), earlier.read(setting, name)
            if now and then and "row" in now and "row" in then and all(now[key] == then[key] for key in ASKED):
                before, after = then["row"]["regret"], now["row"]["regret"]
                rows.append({"setting": setting.name, "policy": name, "before": before, "after": after})
    if not rows:
        raise BadInput(f"{other} and {store.version} have no result of the same {', '.join(ASKED)} in {store.folder}")
    return rows
