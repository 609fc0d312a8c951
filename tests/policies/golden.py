"""Golden results: how often each policy plays each arm, and what it loses, in short runs with given rewards.

`python -m tests.policies.golden` stores them, with the version of each policy, in tests/data/golden.json. It refuses to
replace the results of a policy that plays differently under the same version. `test_policy_contract.py` compares.

They hold on any processor. Another processor, BLAS or libm rounds differently, and a policy amplifies that if a
decision hangs on the last digit. So a run is stored only if rewards that are wrong in the eleventh digit lead to the
same plays; otherwise another seed is used. What may still differ is within TOLERANCE.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kofn
from kofn import Plan, Policy, Tally
from kofn.core import IntArray
from kofn.policies.registry import POLICIES, make_policy

FILE = Path(__file__).parents[1] / "data" / "golden.json"
RUN = "run python -m tests.policies.golden"
TOLERANCE = 0.01
"""Largest accepted difference of the regret, relative; and of the plays of an arm, relative to their mean over arms."""
NUDGE, NUDGES = 1e-11, 3
"""Size of the errors that a stored run must survive, and how many runs with such errors are tried."""

OPTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "thompson": {"half-life": {"half_life": 300}, "pick": {"goal": "pick"}},
    "thompson-sizes": {"costs": {"fewest": 1, "costs": [0.05] * 10}},
}
"""Parameters with which a policy plays the noisy case again, by title."""


@dataclass(frozen=True)
class Case:
    """What is played: plans as a whole, or one play at a time, with rewards that come `late` plays later."""

    n_arms: int
    k: int
    plays: int
    coins: bool = False
    late: int = 0


CASES = {
    "noisy": Case(10, 3, 800),
    "coins": Case(12, 4, 800, coins=True),
    "late": Case(9, 2, 300, late=20),
    "many arms": Case(60, 5, 400),
    "one of ten": Case(10, 1, 800),
}
PLAYED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("thompson", "thompson-sizes", "linear-thompson", "cmab-sm", "dart"),
        ("noisy", "coins", "late", "many arms"),
    ),
    "oful": ("one of ten",),  # with larger subsets, rounding decides between arms that were played equally often
}
"""The cases of a policy, if they are others than BY_DEFAULT."""
BY_DEFAULT = ("noisy", "late")
LONG = 10_000
"""How many times longer the runs of policies are that make few decisions in many plays."""
SEGMENTS: tuple[dict[str, str], ...] = ({"device": "phone"}, {"device": "laptop"}, {"device": "tablet"})


class World:
    """The rewards of subsets: between the mean and the maximum of what their arms are worth, plus noise."""

    def __init__(self, case: Case, seed: int, nudge: int = 0) -> None:
        self._rng, self._case = np.random.default_rng([seed, 1]), case
        self._errors = np.random.default_rng([seed, 2, nudge]) if nudge else None
        self.worth = np.append(self._rng.uniform(0.2, 0.8, case.n_arms), 0.0)  # the last one: of an empty place (-1)

    def means(self, subsets: Any) -> Any:
        """Return the expected reward of each subset."""
        worth = self.worth[np.asarray(subsets)]
        return 0.6 * worth.mean(axis=-1) + 0.4 * worth.max(axis=-1)

    @property
    def best(self) -> tuple[int, ...]:
        """The subset with the highest expected reward, which rises with the worth of each arm."""
        return tuple(sorted(np.argsort(-self.worth[:-1])[: self._case.k].tolist()))

    def play(self, plan: Plan, arms: bool) -> Tally:
        """Return what a plan earns."""
        n = plan.times
        total, squares = self._earned(self.means(plan.subsets), n)
        by_arm = (
            self._earned(self.worth[plan.subsets], np.repeat(n[:, None], self._case.k, axis=1))[0] if arms else None
        )
        return Tally(n, total, squares, by_arm)

    def _earned(self, means: Any, n: IntArray) -> tuple[Any, Any]:
        if self._case.coins:
            total = self._rng.binomial(n, means).astype(float)
            squares = total.copy()
        else:
            total = np.clip(n * means + 0.05 * np.sqrt(n) * self._rng.standard_normal(n.shape), 0.0, n)
            squares = np.minimum(total, total**2 / np.maximum(n, 1) + 0.0025 * np.maximum(n - 1, 0))
        wrong = 1.0 if self._errors is None else 1.0 - NUDGE * self._errors.random(n.shape)
        return total * wrong, squares * wrong**2


def run(name: str, params: dict[str, Any], case: Case, seed: int, nudge: int = 0) -> dict[str, Any]:
    """Return the plays of each arm and the regret of one run, with other errors of the rewards for each `nudge`."""
    world, of = World(case, seed, nudge), POLICIES[name]
    horizon = case.plays * (LONG if of.needs_horizon or name == "doubling" else 1)
    given: dict[str, Any] = {"n_arms": case.n_arms, "k": case.k, "horizon": horizon, "seed": seed}
    given |= {"best": world.best} if "best" in of.needs else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kofn.ShortHorizonWarning)
        policy = make_policy(name, **given | params)
    plays, regret = np.zeros(case.n_arms + 1, np.int64), 0.0
    for plan in _late(policy, world, case) if case.late or of.takes_context else _plans(policy, world, horizon, seed):
        np.add.at(plays, plan.subsets, plan.times[:, None])
        regret += float(plan.times @ (world.means([world.best]) - world.means(plan.subsets)))
    return {"seed": seed, "plays": plays[:-1].tolist(), "regret": round(regret, 6)}


def _plans(policy: Policy, world: World, horizon: int, seed: int) -> Iterator[Plan]:
    while policy.plays < horizon:
        plan = policy.plan().part(horizon - policy.plays, np.random.default_rng([seed, policy.plays]))
        yield plan
        policy.tell_plan(world.play(plan, "arms" in policy.needs))


def _late(policy: Policy, world: World, case: Case) -> Iterator[Plan]:
    """Ask and tell one play at a time: for each segment in turn, if the policy takes a context."""
    asked: list[tuple[Any, Plan]] = []
    for play in range(case.plays):
        context = SEGMENTS[play % len(SEGMENTS)] if policy.takes_context else None
        asked.append((context, Plan.one(policy.ask(context), 1)))
        yield asked[-1][1]
        if len(asked) > case.late:
            context, plan = asked.pop(0)
            tally = world.play(plan, "arms" in policy.needs)
            arms = None if tally.arms is None else tally.arms[0].tolist()
            policy.tell(plan.subset(0), float(tally.total[0]), arms, context=context)


def stable_run(name: str, params: dict[str, Any], case: Case) -> dict[str, Any]:
    """Return the run with the first seed for which small errors of the rewards do not change the plays."""
    for seed in range(1, 40):
        found = run(name, params, case, seed)
        if all(run(name, params, case, seed, nudge)["plays"] == found["plays"] for nudge in range(1, NUDGES + 1)):
            return found
    raise RuntimeError(f"{name} depends on rounding in every run of {case}: change the case")


def cases_of(name: str) -> dict[str, tuple[dict[str, Any], Case]]:
    """Return what a policy plays: the parameters and the case of each run, by its title."""
    plain: dict[str, tuple[dict[str, Any], Case]]
    plain = {title: ({}, CASES[title]) for title in PLAYED.get(name, BY_DEFAULT)}
    return plain | {title: (params, CASES["noisy"]) for title, params in OPTIONS.get(name, {}).items()}


def complaint(name: str, stored: dict[str, Any]) -> str:
    """Return what is wrong with the golden results of a policy and what to do, or an empty text."""
    of, cases = POLICIES[name], cases_of(name)
    if missing := sorted(cases.keys() - stored.get(name, {}).get("runs", {}).keys()):
        return f"{name} has no golden results of {', '.join(missing)}: {RUN}"
    entry = stored[name]
    if of.version != entry["version"]:
        return f"{of.__name__}.version is {of.version}, but its golden results are of version {entry['version']}: {RUN}"
    for title, (params, case) in cases.items():
        before = entry["runs"][title]
        if not close(before, now := run(name, params, case, before["seed"])):
            return (
                f"{name} plays differently ({title}: regret {now['regret']:g} instead of {before['regret']:g}). If "
                f"that is intended, raise {of.__name__}.version to {of.version + 1} and {RUN}"
            )
    return ""


def close(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two runs are the same, to within TOLERANCE."""
    ours, theirs = np.array(one["plays"]), np.array(other["plays"])
    regrets = abs(one["regret"] - other["regret"]) <= TOLERANCE * abs(one["regret"]) + 1e-6
    return bool((np.abs(ours - theirs) <= TOLERANCE * ours.mean()).all() and regrets)


def load() -> dict[str, Any]:
    """Return the stored results by policy: its version, and its runs by title."""
    found: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def main() -> None:
    """Store what is missing or of another version; refuse other plays of the same version."""
    before, after, wrong = load(), {}, []
    for name, of in sorted(POLICIES.items()):
        kept = before.get(name, {})
        runs = kept["runs"] if kept.get("version") == of.version else {}
        runs = {title: runs.get(title) or stable_run(name, *case) for title, case in cases_of(name).items()}
        after[name] = {"version": of.version, "runs": runs}
        wrong += [complaint(name, after)]
    FILE.write_text(_text(after))
    print("\n".join(filter(None, wrong)) or f"{FILE} has the golden results of {len(after)} policies")
    sys.exit(any(wrong))


def _text(results: dict[str, Any]) -> str:
    """Return the results as JSON with a line for each run."""
    lines = []
    for name, entry in results.items():
        runs = ",\n".join(f"    {json.dumps(title)}: {json.dumps(run)}" for title, run in entry["runs"].items())
        lines.append(f'  {json.dumps(name)}: {{"version": {entry["version"]}, "runs": {{\n{runs}\n  }}}}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    main()
