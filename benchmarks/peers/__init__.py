"""Compare kofn with the libraries that people would use instead: `python -m benchmarks.peers`, with the extra `bench`.

None of them chooses K of N from one reward. Their users list all subsets and let a bandit choose from the list, or use
a similar problem type: here they do that. All players get the same problems and the same outcomes, in one run on one
machine. Each library is used as documented, with its defaults, and with Thompson sampling if it has it. Libraries that
are not installed are named on stderr and left out.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import kofn
from benchmarks.peers import loops
from benchmarks.peers.players import IN_MEMORY, ON_DISK, Player, installed, missing
from benchmarks.peers.world import World
from benchmarks.rows import Row
from kofn.core import FloatArray, Subset
from kofn.lab.settings import Setting

HORIZON, RUNS = 10_000, 5
SETTINGS = {  # the time limit of each player, in seconds
    Setting("max", 12, 3): 18.0,
    Setting("mean", 12, 3): 18.0,
    Setting("max", 24, 5): 4.0,
    Setting("mean", 24, 5): 4.0,
}
DISK = 0.5
"""The share of the time limit that players on disk get: a few hundred plays are enough to measure their speed."""
ON_DISK_TOO = ("max/N12-K3", "max/N24-K5")
FAR = (10**4, 10**6, 10**8)
"""The numbers of plays of the simulated long runs."""


@dataclass
class Played:
    """One run: the regret after each play, the seconds it took, and the bytes of its state."""

    regret: FloatArray
    seconds: float
    size: int


def play(kind: type[Player], world: World, horizon: int, limit: float) -> Played:
    """Run one player, for at most `limit` seconds of wall-clock time but at least two plays.

    The first play is not timed, because many libraries allocate their state for each subset in it.

    The seconds returned are processor time, which is not affected by other work on the machine. For players that wait
    for a disk they are wall-clock time.
    """
    player = kind(world)
    clock = time.perf_counter if player.disk else time.process_time
    played: list[Subset] = []
    end = begun = 0.0
    try:
        while len(played) < 2 or (len(played) < horizon and time.perf_counter() < end):
            subset = player.ask()
            player.tell(subset, world.reward(len(played), subset))
            played.append(subset)
            if len(played) == 1:
                end, begun = time.perf_counter() + limit, clock()
        seconds = (clock() - begun) * len(played) / (len(played) - 1)
        return Played(world.regret(played), seconds, player.size())
    finally:
        player.close()


def simulated(world: World, horizon: int, _: float, ends: Sequence[int] | None = None) -> Played:
    """Run the same policy by `kofn.simulate`, which draws its own rewards, one plan at a time."""
    policy = kofn.Thompson(world.problem.n_arms, world.problem.k, seed=world.seed)
    begun = time.process_time()
    run = kofn.simulate(policy, world.problem, horizon, seed=world.seed)
    seconds = time.process_time() - begun
    return Played(run.curve.at(ends or np.arange(1, horizon + 1)), seconds, len(json.dumps(kofn.save(policy))))


def looped(loop: loops.Loop, world: World, horizon: int, _: float) -> Played:
    """Run the bare loop, whose state is a count and a mean for each subset."""
    numbers, seconds = loops.timed(loop, world, horizon)
    return Played(world.regret([world.subsets[i] for i in numbers.tolist()]), seconds, 16 * len(world.subsets))


Runner = Callable[[World, int, float], Played]


def runs_of(runner: Runner, worlds: list[World], horizon: int, budget: float) -> list[Played]:
    """Make one run in each world within the budget of seconds; only a slow first run is cut."""
    found: list[Played] = []
    begun = time.perf_counter()
    for world in worlds:
        spent = time.perf_counter() - begun
        if found and (len(found[0].regret) < horizon or spent * (1 + 1 / len(found)) > budget):
            break
        found.append(runner(world, horizon, math.inf if found else budget))
    return found


def row(label: str, version: str, setting: Setting, disk: bool, found: list[Played], ours: list[Played]) -> Row:
    """Return the results of one player in one setting. Compare players within a setting and `disk`."""
    plays = len(found[0].regret)
    return {
        "setting": setting.name,
        "disk": "yes" if disk else "no",
        "subsets": math.comb(setting.n_arms, setting.k),
        "player": label,
        "version": version,
        "plays": plays,
        "runs": len(found),
        "plays_per_second": plays * len(found) / sum(each.seconds for each in found),
        "regret": float(np.mean([each.regret[-1] for each in found])),
        "regret_of_thompson": float(np.mean([each.regret[plays - 1] for each in ours[: len(found)]])),
        "state_bytes": found[0].size,
        "seconds": None,
    }


def runners(compiled: loops.Loop | None, disk: bool) -> Iterator[tuple[str, str, bool, Runner]]:
    """Yield every player that is installed: its label, its version, whether it is on disk, and its runner."""
    for kind in IN_MEMORY + (ON_DISK if disk else []):
        if missing(kind.needs) is None:
            yield kind.label, installed(kind.package), kind.disk, partial(play, kind)
    yield "kofn, thompson, simulated", installed("kofn"), False, simulated
    if compiled is not None:
        yield "UCB1 (Numba)", installed("numba"), False, partial(looped, compiled)


def long_runs(setting: Setting) -> Iterator[Row]:
    """Yield the seconds of long runs: measured for `kofn.simulate`, extrapolated for the compiled loops.

    UCB1 chooses nothing in its first round, so only the plays after it count. A shorter run has no time.
    """
    world = World.of(setting, 1, 1)

    def found(label: str, version: str, horizon: int, seconds: float) -> Row:
        about = {"setting": setting.name, "disk": None, "subsets": len(world.subsets)}
        blank = dict.fromkeys(("plays_per_second", "regret", "regret_of_thompson", "state_bytes"))
        return {**about, "player": label, "version": version, "plays": horizon, "runs": 1, **blank, "seconds": seconds}

    for horizon in FAR:
        seconds = simulated(world, horizon, math.inf, ends=(horizon,)).seconds
        yield found("kofn, thompson, simulated", installed("kofn"), horizon, seconds)
    if missing("numba") is None:
        few = 10**5 if len(world.subsets) < 1_000 else 5_000
        draws = loops.speed(loops.compiled(loops.draw_loop), world, 10**7)
        ucb = loops.speed(loops.compiled(loops.ucb_loop), world, few)
        for horizon in FAR:
            yield found("draws alone (Numba)", installed("numba"), horizon, horizon / draws)
            if (chosen := horizon - len(world.subsets)) > 0:
                yield found("UCB1 (Numba)", installed("numba"), horizon, chosen / ucb)


def rows(horizon: int = HORIZON, runs: int = RUNS, limit: float = 1.0, quick: bool = False) -> Iterator[Row]:
    """Yield a row for each setting and player; then the seconds of long runs. `limit` multiplies the time limits.

    `regret` and `regret_of_thompson`, that of kofn's `thompson` by `ask` and `tell`, are after the same plays of the
    same instances.
    """
    warnings.simplefilter("ignore")  # warnings of the other libraries
    settings = SETTINGS
    if quick:
        horizon, runs, limit, settings = 500, 2, 0.05, dict([*SETTINGS.items()][:1])
    for needs in {kind.needs: None for kind in IN_MEMORY + ON_DISK} | {"numba": None}:
        if why := missing(needs):
            print(f"left out: {needs} ({why})", file=sys.stderr)
    compiled = None if missing("numba") else loops.compiled(loops.ucb_loop)
    for setting, seconds in settings.items():
        worlds = [World.of(setting, horizon, seed) for seed in range(1, runs + 1)]
        ours: list[Played] = []
        for label, version, disk, runner in runners(compiled, setting.name in ON_DISK_TOO):
            budget = seconds * limit * (DISK if disk else 1.0) if ours else math.inf
            result = runs_of(runner, worlds, horizon, budget)
            ours = ours or result  # thompson by ask and tell comes first and plays all worlds
            yield row(label, version, setting, disk, result, ours)
        if not quick:
            yield from long_runs(setting)
