"""Compare kofn with the libraries that people would use instead.

`python -m benchmarks.peers --page docs/background/benchmarks.md` writes the page.

All players get the same problems and the same outcomes, in one run on one machine. Libraries that are not installed
(extra `bench`) are skipped and listed. `--quick` makes a tenth of the plays, with a tenth of the time limit, in the
first setting only.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import kofn
from benchmarks import peers_yardstick as yardstick
from benchmarks.peers_page import page
from benchmarks.peers_players import IN_MEMORY, ON_DISK, Player, installed, missing
from benchmarks.peers_world import World
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
class Row:
    """The results of one player in one setting: means over its runs, each of `plays` plays."""

    player: str
    setting: str
    disk: bool
    subsets: int
    plays: int
    runs: int
    per_second: float
    regret: float
    beside: float
    """The regret of kofn's `thompson` by `ask` and `tell`, after the same number of plays of the same instances."""
    size: int


@dataclass
class Played:
    """One run: the regret after each play, the seconds it took, and the bytes of its state."""

    regret: FloatArray
    seconds: float
    size: int


@dataclass
class Found:
    """All measurements."""

    rows: list[Row] = field(default_factory=list)
    far: list[dict[str, Any]] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)


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


def looped(loop: yardstick.Loop, world: World, horizon: int, _: float) -> Played:
    """Run the bare loop, whose state is a count and a mean for each subset."""
    numbers, seconds = yardstick.timed(loop, world, horizon)
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


def row(label: str, setting: Setting, disk: bool, found: list[Played], ours: list[Played]) -> Row:
    plays = len(found[0].regret)
    return Row(
        player=label,
        setting=setting.name,
        disk=disk,
        subsets=math.comb(setting.n_arms, setting.k),
        plays=plays,
        runs=len(found),
        per_second=plays * len(found) / sum(each.seconds for each in found),
        regret=float(np.mean([each.regret[-1] for each in found])),
        beside=float(np.mean([each.regret[plays - 1] for each in ours[: len(found)]])),
        size=found[0].size,
    )


def runners(loops: list[yardstick.Loop], disk: bool) -> Iterator[tuple[str, bool, Runner]]:
    """Yield every player that is installed: its label, whether it is on disk, and its runner."""
    for kind in IN_MEMORY + (ON_DISK if disk else []):
        if missing(kind.needs) is None:
            yield kind.label, kind.disk, partial(play, kind)
    yield "kofn, `thompson`, simulated", False, simulated
    for loop in loops:
        yield "compiled loop (Numba), UCB1", False, partial(looped, loop)


def far(loops: list[yardstick.Loop], setting: Setting) -> Iterator[dict[str, Any]]:
    """Yield the seconds of long runs: measured for `kofn.simulate`, extrapolated for the compiled loops.

    UCB1 chooses nothing in its first round, so only the plays after it count. A shorter run has no time.
    """
    world = World.of(setting, 1, 1)
    counts = (10**7, 10**5 if len(world.subsets) < 1_000 else 5_000)
    speeds = [yardstick.speed(loop, world, plays) for loop, plays in zip(loops, counts, strict=False)]
    for horizon in FAR:
        seconds = simulated(world, horizon, math.inf, ends=(horizon,)).seconds
        chosen = (horizon, horizon - len(world.subsets))
        taken = [plays / each if plays > 0 else None for plays, each in zip(chosen, speeds, strict=False)]
        yield {"setting": setting.name, "horizon": horizon, "ours": seconds, "loops": taken}


def measure(
    horizon: int = HORIZON, runs: int = RUNS, budget: float = 1.0, settings: dict[Setting, float] | None = None
) -> Found:
    """Measure all players in all settings; `budget` multiplies the time limits."""
    found = Found(left_out={kind.package: why for kind in IN_MEMORY + ON_DISK if (why := missing(kind.needs))})
    if why := missing("numba"):
        found.left_out["numba"] = why
    here = {kind.package for kind in IN_MEMORY + ON_DISK} | {"numba", "numpy", "scipy"}
    found.about = {
        "versions": {each: installed(each) for each in sorted(here - set(found.left_out), key=str.lower)},
        "load before": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "horizon": horizon,
    }
    begun = time.perf_counter()
    loops = [] if "numba" in found.left_out else [*map(yardstick.compiled, (yardstick.draw_loop, yardstick.ucb_loop))]
    for setting, seconds in (SETTINGS if settings is None else settings).items():
        worlds = [World.of(setting, horizon, seed) for seed in range(1, runs + 1)]
        ours: list[Played] = []
        for label, disk, runner in runners(loops[-1:], setting.name in ON_DISK_TOO):
            limit = seconds * budget * (DISK if disk else 1.0) if ours else math.inf
            result = runs_of(runner, worlds, horizon, limit)
            ours = ours or result  # thompson by ask and tell comes first and plays all worlds
            found.rows.append(row(label, setting, disk, result, ours))
            print(f"{setting.name:12} {label:38} {found.rows[-1].per_second:12,.0f} plays/s", flush=True)
        found.far += far(loops, setting)
    found.about |= {"load after": os.getloadavg()[0], "minutes": (time.perf_counter() - begun) / 60}
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--page", type=Path, help="write the page")
    asked.add_argument("--json", type=Path, help="write the numbers")
    asked.add_argument("--quick", action="store_true")
    given = asked.parse_args(arguments)
    warnings.simplefilter("ignore")  # warnings of the other libraries
    found = measure(HORIZON // 10, 2, 0.1, dict([*SETTINGS.items()][:1])) if given.quick else measure()
    for package, why in found.left_out.items():
        print(f"skipped: {package} ({why})")
    if given.json:
        given.json.write_text(json.dumps(asdict(found), indent=2) + "\n")
    text = page(asdict(found))
    if given.page:
        given.page.write_text(text)
    else:
        print(text)


if __name__ == "__main__":
    main()
