"""A deterministic simulation of campaigns: one seed is one history of workers, processes, faults and restored backups.

    python -m tests.campaigns.simulator --seeds 5000 --workers 2     # seeds per minute, and those that break a promise
    python -m tests.campaigns.simulator --seed 123 --trace           # the same history again, call by call
    python -m tests.campaigns.simulator --seeds 2000 --without salts # with a safety taken out: it must be found
    python -m tests.campaigns.simulator --mutations --postgres start # which safeties are found, and how soon

A seed is played in one thread, on a virtual clock, in a database that starts from a template. Statements and commits
fail, connections are lost, processes killed and others let in between where the seed says. `model` has the promises.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_all_start_methods, get_context
from typing import Any, NamedTuple
from unittest.mock import patch

from kofn.campaigns import append, campaign, fold, learning
from kofn.campaigns.store import database, group_commit, statements
from tests import postgres
from tests.campaigns.simulator.faults import installed
from tests.campaigns.simulator.model import MAX_EVENTS, MIN_TOTALS
from tests.campaigns.simulator.mutations import MUTATIONS, ON_POSTGRES
from tests.campaigns.simulator.policy import registered
from tests.campaigns.simulator.run import MOST_STEPS, run_seed
from tests.campaigns.simulator.world import PostgresWorld, World, sqlite_world

LIMITS: dict[Any, dict[str, Any]] = {
    append: {"HEAVY": 15, "MAX_EVENTS": MAX_EVENTS},
    campaign: {"LEARN_EVERY": 10},
    database: {"LOCK_TIMEOUT": 0.03},
    fold: {"MOST_ROWS": 8, "MAX_POINTS": 16, "MAX_JOURNAL": 20, "SLACK": 0.0, "LEAST_SLACK": 2, "CHECKPOINT": 4},
    group_commit: {"MAX_LINGER": 0.0, "MAX_GROUP": 3},
    learning: {"FALLBACKS": 4},
    statements: {"MAX_IN_LIST": 4},
}
"""Limits of the code under test in simulations: small, so that short histories reach them."""
LIMITS[fold] |= {"MAX_STEPS": 6, "MIN_TOTALS": MIN_TOTALS, "MAX_ESTIMATES": 4}


class Failure(NamedTuple):
    """A seed that broke a promise."""

    seed: int
    broken: str


class Job(NamedTuple):
    """Seeds for one process, and how to play them."""

    seeds: Sequence[int]
    without: Sequence[str] = ()
    postgres: str = ""
    most: int = 10  # failures after which it stops


@contextmanager
def simulated(without: Sequence[str] = (), postgres: str = "", name: str = "simulated") -> Iterator[World]:
    """Prepare this process for simulations, and give the database: SQLite, or a PostgreSQL server by its URL."""
    with ExitStack() as stack:
        stack.enter_context(installed())
        stack.enter_context(registered())
        for module, limits in LIMITS.items():
            for limit, value in limits.items():
                stack.enter_context(patch.object(module, limit, value))
        if postgres:
            world: World = PostgresWorld(postgres, name)
            stack.callback(world.close)  # type: ignore[attr-defined]
        else:
            world = stack.enter_context(sqlite_world())
        for each in without:
            stack.enter_context(MUTATIONS[each]())
        yield world


def play(job: Job) -> list[Failure]:
    """Play the seeds one after the other, and return those that broke a promise."""
    failures: list[Failure] = []
    with simulated(job.without, job.postgres, f"simulated_{min(job.seeds, default=0)}") as world:
        for seed in job.seeds:
            _, broken = run_seed(world, seed, traced=False)
            if broken:
                failures.append(Failure(seed, broken))
                if len(failures) == job.most:
                    break
    return failures


def shrunk(seed: int, job: Job) -> int:
    """Return the smallest number of steps after which the seed breaks a promise."""
    with simulated(job.without, job.postgres) as world:
        return next((steps for steps in range(MOST_STEPS) if run_seed(world, seed, steps)[1]), MOST_STEPS)


def play_in_parallel(job: Job, workers: int) -> list[Failure]:
    """Play the seeds in several processes."""
    if workers == 1:
        return play(job)
    parts = [job._replace(seeds=job.seeds[number::workers]) for number in range(workers)]
    with get_context("fork" if "fork" in get_all_start_methods() else "spawn").Pool(workers) as pool:
        return sorted(failure for part in pool.map(play, parts) for failure in part)


def report_mutations(job: Job, found: int) -> bool:
    """Take out each safety, and print after how many seeds on average its absence is found."""
    every = True
    for name in MUTATIONS:
        if name in ON_POSTGRES and not job.postgres:
            continue
        failures = play(job._replace(without=(name,), most=found))
        every = every and bool(failures)
        played = (failures[-1].seed if len(failures) == found else job.seeds[-1]) - job.seeds[0] + 1
        mean = f"one of {played / len(failures):,.0f} seeds" if failures else f"not in {played:,} seeds"
        print(f"{name:24} {mean:24} {failures[0].broken[:90] if failures else ''}", flush=True)
    return every


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if a seed breaks a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.simulator", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="play this seed only")
    parser.add_argument("--trace", action="store_true", help="print every call")
    parser.add_argument("--steps", type=int, help="with --seed: play this many steps only")
    parser.add_argument("--seeds", type=int, default=1000, help="play so many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--without", action="append", default=[], choices=MUTATIONS, help="take out a safety")
    parser.add_argument("--mutations", type=int, metavar="N", help="find each missing safety so many times")
    parser.add_argument("--postgres", default="", metavar="URL", help="play on this server, or 'start' one")
    given = parser.parse_args(arguments)
    with ExitStack() as stack:
        if given.postgres == "start":
            given.postgres = stack.enter_context(postgres.server())
        return _main(given)


def _main(given: argparse.Namespace) -> int:
    if given.seed is not None:
        with simulated(given.without, given.postgres) as world:
            trace, broken = run_seed(world, given.seed, given.steps)
        if given.trace:
            print("\n".join(trace))
        print(f"seed {given.seed}: {broken or 'all promises kept'}")
        return bool(broken)
    job = Job(range(given.start, given.start + given.seeds), tuple(given.without), given.postgres)
    if given.mutations:
        return not report_mutations(job, given.mutations)
    start = time.perf_counter()
    failures = play_in_parallel(job, given.workers)
    seconds = time.perf_counter() - start
    for seed, broken in failures:
        print(f"seed {seed} with --steps {shrunk(seed, job)}: {broken[:300]}")
    done = "all promises kept" if not failures else f"{len(failures)} broke a promise; each process stops after 10"
    print(f"{given.seeds:,} seeds in {seconds:.0f} s, {60 * given.seeds / seconds:,.0f} per minute: {done}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
