"""Reference results of every policy: simulations, ask/tell with late rewards, and a campaign.

`python -m tests.policies.golden write` stores them in tests/data/golden.json; `check` instead of `write` compares the
present code with that file, digit by digit. Write the file anew only when a change of results is intended, and say so
in the changelog. Records are compared by the numbers in them, so that a field may be renamed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import kofn
from kofn.policies.registry import POLICIES

FILE = Path(__file__).parents[1] / "data" / "golden.json"
HORIZON = 6_000


def _uniform(n_arms: int, k: int, reward: str, low: float = 0.0, high: float = 1.0) -> Any:
    def problem(seed: np.random.SeedSequence) -> kofn.Problem:
        p = np.random.default_rng(seed).uniform(low, high, n_arms)
        return kofn.Problem(kofn.Bernoulli(p), reward, k, absent=None if reward == "minimum" else 0.0)

    return problem


def _continuous(seed: np.random.SeedSequence) -> kofn.Problem:
    scale = np.random.default_rng(seed).uniform(0.1, 10, 9)
    return kofn.Problem(kofn.ArctanExponential(scale), "cross-selling", 3, absent=0.0)


PROBLEMS = {
    "mean-12-3": _uniform(12, 3, "mean"),
    "maximum-10-2": _uniform(10, 2, "maximum"),
    "minimum-8-3": _uniform(8, 3, "minimum", 0.5),
    "rare-14-4": _uniform(14, 4, "maximum", 0.0, 0.02),
    "cross-selling-9-3": _continuous,
}
LARGE = {"mean-80-5": _uniform(80, 5, "mean"), "mean-120-25": _uniform(120, 25, "mean")}
WITH_LARGE = ("thompson", "cmab-sm", "dart", "shared-credit", "linear-thompson")


def results() -> dict[str, Any]:
    """All of them, by name."""
    return {name: part() for name, part in PARTS.items()}


def _simulations() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for seed in (5, 2021):
        for name, problem in PROBLEMS.items():
            found |= _compared(f"{name}/seed {seed}", sorted(POLICIES), problem, seed)
    for name, problem in LARGE.items():
        found |= _compared(name, WITH_LARGE, problem, 5)
    guarded = {"guarantee": ("thompson", {"guarantee": True}), "half life": ("thompson", {"half_life": 900})}
    return found | _compared("thompson's options", guarded, PROBLEMS["mean-12-3"], 5)


def _compared(title: str, policies: Any, problem: Any, seed: int) -> dict[str, Any]:
    compared = kofn.compare(policies, problem, HORIZON, runs=2, seed=seed, workers=1, skip=True)
    return {
        f"{title}/{standing.name}": [
            {
                "regret": trial.run.regret,
                "final": list(trial.run.final),
                "decisions": trial.run.plan_rows,
                "curve": _digest([trial.run.curve.plays.tolist(), trial.run.curve.regret.tolist()]),
            }
            for trial in standing.trials
        ]
        for standing in compared.standings
    }


def _ask_tell() -> dict[str, Any]:
    """Rewards that come up to 40 plays late, in another order; then the policy is saved, restored and goes on."""
    found = {}
    p = np.random.default_rng(11).random(9)
    for name in sorted(POLICIES):
        if POLICIES[name].needs:
            continue
        rng = np.random.default_rng(3)
        policy = kofn.make_policy(name, 9, 3, horizon=4_000, seed=4, reward_range=(-1, 3), direction="minimize")
        late: list[tuple[Any, float]] = []
        asked = []
        for play in range(1_500):
            subset = policy.ask()
            asked.append(list(subset))
            late.append((subset, float(3.0 - 4.0 * (rng.random(3) < p[list(subset)]).mean())))
            if len(late) > 40:
                policy.tell(*late.pop(int(rng.integers(len(late)))))
            if play == 900:
                policy = kofn.restore(json.loads(json.dumps(kofn.save(policy))))
                late.clear()
        state = kofn.save(policy)["state"]
        found[name] = {"asked": _digest(asked), "best": list(policy.best()), "state": _digest(list(_leaves(state)))}
    return found


def _campaigns() -> dict[str, Any]:
    found = {}
    for name in ("thompson", "linear-thompson", "shared-credit", "dart"):
        with tempfile.TemporaryDirectory() as folder:
            found[name] = _campaign(name, f"sqlite:///{folder}/golden.db?synchronous=normal")
    return found


def _campaign(policy: str, url: str) -> dict[str, Any]:
    from kofn.campaigns import store_at

    goods = [f"item {number}" for number in range(8)]
    params = {"horizon": 5_000} if POLICIES[policy].needs_horizon else None
    store = store_at(url)
    now = [1_700_000_000.0]
    store.clock = lambda: now[0]
    campaign = kofn.Campaign.create(
        "golden", goods, 3, policy=policy, params=params, reward_range=(0, 8), seed=9, store=store, expire_after=50.0
    )
    rng = np.random.default_rng(5)
    decided = []
    for step in range(120):
        now[0] += 1.0
        decisions = campaign.decide(int(rng.integers(1, 9)))
        decided.append([each.arms for each in decisions])
        told = [each for each in decisions if rng.random() < 0.9]
        campaign.rewards([(each.id, float(rng.integers(0, 9))) for each in told])
        if policy == "thompson" and step == 40:
            campaign.reward_total(goods[:3], 25, 100.0, key="night")
            campaign.add_arm("item 8")
        if policy == "thompson" and step == 80:
            campaign.retire_arm("item 2")
    insight, summary = campaign.insight(), campaign.summary()
    store.close()
    return {
        "decided": _digest(decided),
        "best": insight.best,
        "value": insight.value,
        "effects": [arm.effect for arm in insight.arms],
        "plays": [arm.plays for arm in insight.arms],
        "counts": [summary.plays, summary.rewards, summary.in_flight, summary.expired],
        "mean": summary.mean,
    }


PARTS = {"simulations": _simulations, "ask_tell": _ask_tell, "campaigns": _campaigns}


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from _leaves(each)
    else:
        yield value


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:16]


def differences(stored: Any, present: Any, path: str = "") -> Iterator[str]:
    """Where two results differ, a line each."""
    if isinstance(stored, dict) and isinstance(present, dict):
        for key in sorted(stored.keys() | present.keys()):
            yield from differences(stored.get(key), present.get(key), f"{path}/{key}")
    elif stored != present:
        yield f"{path}: stored {stored!r}, present {present!r}"


def main() -> None:
    """Write the file, or compare with it."""
    if sys.argv[1:] == ["write"]:
        FILE.parent.mkdir(exist_ok=True)
        FILE.write_text(json.dumps(results(), indent=1) + "\n")
        print(f"wrote {FILE}")
        return
    found = list(differences(json.loads(FILE.read_text()), json.loads(json.dumps(results()))))
    print("\n".join(found) or "equal, to the last digit")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
