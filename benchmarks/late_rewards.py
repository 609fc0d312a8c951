"""What late rewards and silent visitors cost a campaign: `python -m benchmarks.late_rewards --workers 2`.

`late`: every reward arrives 500 plays after its decision. The regret of a campaign, of its policy alone with exact
knowledge of the plays in flight, and of the policy without delay, on the same fresh random instances.
`silence`: nine of ten visitors do nothing, and report nothing to a campaign with a window of 500 plays. How often is
its best subset that of a campaign to which every reward, zeros included, is reported 500 plays later?

Campaigns are in a SQLite file, with a clock that advances a second per play.
"""

import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np

import kofn
from benchmarks.rows import Row, run, seeds_of, with_error
from kofn.backends import compute
from kofn.campaigns import Store
from kofn.core import FloatArray, Subset
from kofn.core.plan import Key

GROUPS = ("late", "silence")
SIZES = {"late": (24, 5), "silence": (12, 3)}
"""N and K. In `silence`, the policy itself finds the best subset in 20 of 20 runs; with 24 and 5 it does in 16."""

GOOD, OTHER = 0.12, 0.02
"""Probabilities in `silence`: K good arms and the others. A visitor earns 1 with the mean probability of a subset."""


class Player(Protocol):
    """Chooses subsets, and learns from rewards."""

    def ask(self) -> tuple[Subset, Any]:
        """Return a subset, and what its reward is told under."""

    def tell(self, play: Any, reward: float) -> None: ...


class Alone:
    """The policy, which knows which plays are in flight."""

    def __init__(self, n_arms: int, k: int, seed: int) -> None:
        self.policy = kofn.Thompson(n_arms, k, seed=seed)
        self._in_flight: Counter[Key] = Counter()

    def ask(self) -> tuple[Subset, Subset]:
        subset = self.policy.ask()
        self._in_flight[subset] += 1
        return subset, subset

    def tell(self, play: Subset, reward: float) -> None:
        before = self.policy.updates
        self.policy.tell(play, reward)
        self._in_flight[play] -= 1
        if self.policy.updates != before:
            self.policy.expect(+self._in_flight)


class InCampaign:
    """A campaign with a clock that advances a second per play."""

    def __init__(self, file: str, n_arms: int, k: int, seed: int, **options: Any) -> None:
        self.now = 1e9
        store = Store(f"sqlite:///{file}?synchronous=normal")
        store.clock = lambda: self.now
        arms = [str(arm) for arm in range(n_arms)]
        self.campaign = kofn.Campaign.create("late", arms, k, seed=seed, store=store, **options)

    def ask(self) -> tuple[Subset, str]:
        self.now += 1
        decision = self.campaign.decide()
        return decision.subset, decision.id

    def tell(self, play: str, reward: float) -> None:
        self.campaign.reward(play, reward)


class Silent(InCampaign):
    """A campaign to which zeros are not reported."""

    def tell(self, play: str, reward: float) -> None:
        if reward:
            super().tell(play, reward)


def played(player: Player, earn: Callable[[Subset], float], plays: int, delay: Callable[[], int]) -> list[Subset]:
    """Play, tell each reward after as many plays as `delay` returns, and return the subsets."""
    due: dict[int, list[tuple[Any, float]]] = defaultdict(list)
    subsets = []
    for now in range(plays):
        subset, play = player.ask()
        subsets.append(subset)
        due[now + delay()].append((play, earn(subset)))
        for told in due.pop(now, ()):
            player.tell(*told)
    for now in sorted(due):
        for told in due[now]:
            player.tell(*told)
    return subsets


def regrets(folder: str, seed: int, number: int, plays: int, late: int) -> list[float]:
    """Return the regret of the campaign, of the policy, and of the policy without delay on one instance."""
    n_arms, k = SIZES["late"]
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    p: FloatArray = np.random.default_rng(for_problem).random(n_arms)
    sizes = n_arms, k, int(for_policy.generate_state(1)[0])

    def regret(player: Player, delay: int) -> float:
        rng = np.random.default_rng(for_plays)
        subsets = played(player, lambda subset: float((rng.random(k) < p[list(subset)]).mean()), plays, lambda: delay)
        return float((np.sort(p)[-k:].mean() - p[np.array(subsets)].mean(axis=1)).sum())

    return [
        regret(InCampaign(f"{folder}/{number}.db", *sizes), late),
        regret(Alone(*sizes), late),
        regret(Alone(*sizes), 0),
    ]


def bests(folder: str, seed: int, number: int, plays: int, window: int) -> tuple[bool, bool, bool, float]:
    """Return whether both find the same subset, whether each finds the best one, and the share of silent visitors."""
    n_arms, k = SIZES["silence"]
    for_problem, for_policy, for_plays = seeds_of(seed, number)
    rng, good = np.random.default_rng(for_plays), np.random.default_rng(for_problem).permutation(n_arms)[:k]
    p = np.full(n_arms, OTHER)
    p[good] = GOOD
    earned: list[float] = []

    def earn(subset: Subset) -> float:
        earned.append(float(rng.random() < p[list(subset)].mean()))
        return earned[-1]

    sizes = n_arms, k, int(for_policy.generate_state(1)[0])
    told = InCampaign(f"{folder}/{number}-told.db", *sizes)
    played(told, earn, plays, lambda: window)
    silent = Silent(f"{folder}/{number}-silent.db", *sizes, window=window, silence=0.0)
    earned.clear()
    played(silent, earn, plays, lambda: int(rng.integers(window)))
    silent.now += window
    silent.campaign.learn()
    truth, first, second = ({*map(str, each)} for each in (good.tolist(), told.campaign.best(), silent.campaign.best()))
    return first == second, first == truth, second == truth, 1 - float(np.mean(earned))


def rows(
    seed: int = 9600,
    runs: int = 40,
    silent_runs: int = 20,
    plays: int = 20_000,
    late: int = 500,
    groups: tuple[str, ...] = GROUPS,
    workers: int = 1,
    quick: bool = False,
) -> Iterator[Row]:
    """Yield the regrets and their ratios, with 95 % intervals; then in how many runs the best subsets are the same."""
    if quick:
        runs, silent_runs, plays, late = 2, 2, 300, 50

    def computed(function: Callable[..., Any], count: int) -> list[Any]:
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            tasks = [(folder, seed, number, plays, late) for number in range(count)]
            return compute(function, tasks, workers=workers, progress=progress)

    about = {"plays": plays, "late": late}
    if "late" in groups:
        campaign, policy, without = np.array(computed(regrets, runs)).T
        named = {"campaign": campaign, "policy": policy, "policy, no delay": without}
        for name, values in named.items():
            yield {"group": "late", "player": name, **about, "runs": runs, **with_error("regret", values)}
        for name, below in (("campaign / policy", policy), ("campaign / policy, no delay", without)):
            ratio = campaign.mean() / below.mean()
            linear = ratio + (campaign - ratio * below) / below.mean()  # its error is that of a ratio of means
            yield {"group": "late", "player": name, **about, "runs": runs, **with_error("ratio", linear)}
    if "silence" in groups:
        same, told, silent, share = np.array(computed(bests, silent_runs)).T
        counts = {"same_best": int(same.sum()), "told_finds_best": int(told.sum()), "finds_best": int(silent.sum())}
        yield {"group": "silence", **about, "runs": silent_runs, "silent": float(share.mean())} | counts


def progress(done: int, total: int) -> None:
    print(f"{done} of {total} runs", file=sys.stderr, flush=True)


if __name__ == "__main__":
    run(rows, __doc__)
