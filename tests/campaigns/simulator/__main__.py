"""A deterministic simulation of campaigns: one seed is one history of workers, processes, faults and restored backups.

    python -m tests.campaigns.simulator --seeds 5000 --workers 2     # seeds per minute, and those that break a promise
    python -m tests.campaigns.simulator --seed 123 --trace           # the same history again, call by call
    python -m tests.campaigns.simulator --seeds 2000 --without salts # with a mend taken out: it must be found

A seed is played in one thread, on a virtual clock, in a database that starts from a template. Statements and commits
fail, connections are lost and processes killed where the seed says. `simulator_model` has the promises.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from multiprocessing import get_all_start_methods, get_context
from typing import NamedTuple

from tests.campaigns.simulator.faults import installed
from tests.campaigns.simulator.mutations import MUTATIONS
from tests.campaigns.simulator.policy import registered
from tests.campaigns.simulator.run import ALL_CHECKS, PROMISED, run_seed
from tests.campaigns.simulator.world import PostgresWorld, World, sqlite_world


class Failure(NamedTuple):
    """A seed that broke a promise."""

    seed: int
    broken: str


class Job(NamedTuple):
    """Seeds for one process, and how to play them."""

    seeds: Sequence[int]
    checks: frozenset[str]
    without: Sequence[str] = ()
    postgres: str = ""
    most: int = 10  # failures after which it stops


@contextmanager
def simulated(without: Sequence[str] = (), postgres: str = "", name: str = "simulated") -> Iterator[World]:
    """Prepare this process for simulations, and give the database: SQLite, or a PostgreSQL server by its URL."""
    with ExitStack() as stack:
        stack.enter_context(installed())
        stack.enter_context(registered())
        for each in without:
            stack.enter_context(MUTATIONS[each]())
        if not postgres:
            yield stack.enter_context(sqlite_world())
            return
        world = PostgresWorld(postgres, name)
        stack.callback(world.close)
        yield world


def play(job: Job) -> list[Failure]:
    """Play the seeds one after the other, and return those that broke a promise."""
    failures: list[Failure] = []
    with simulated(job.without, job.postgres, f"simulated_{min(job.seeds, default=0)}") as world:
        for seed in job.seeds:
            _, broken = run_seed(world, seed, job.checks, traced=False)
            if broken:
                failures.append(Failure(seed, broken))
                if len(failures) == job.most:
                    break
    return failures


def shrunk(seed: int, job: Job) -> int:
    """Return the smallest number of steps after which the seed breaks a promise."""
    with simulated(job.without, job.postgres) as world:
        return next(steps for steps in range(1000) if run_seed(world, seed, job.checks, steps)[1])


def play_in_parallel(job: Job, workers: int) -> list[Failure]:
    """Play the seeds in several processes."""
    if workers == 1:
        return play(job)
    parts = [job._replace(seeds=job.seeds[number::workers]) for number in range(workers)]
    with get_context("fork" if "fork" in get_all_start_methods() else "spawn").Pool(workers) as pool:
        return sorted(failure for part in pool.map(play, parts) for failure in part)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status is 1 if a seed breaks a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.simulator", description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, help="play this seed only")
    parser.add_argument("--trace", action="store_true", help="print every call")
    parser.add_argument("--steps", type=int, help="with --seed: play this many steps only")
    parser.add_argument("--seeds", type=int, default=1000, help="play so many seeds")
    parser.add_argument("--start", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--without", action="append", default=[], choices=MUTATIONS, help="take out a mend")
    parser.add_argument("--check", action="append", default=[], choices=sorted(ALL_CHECKS), help="add a check")
    parser.add_argument("--no-check", action="append", default=[], choices=sorted(ALL_CHECKS), help="skip a check")
    parser.add_argument("--postgres", default="", metavar="URL", help="play on this server instead of SQLite")
    given = parser.parse_args(arguments)
    checks = (PROMISED | set(given.check)) - set(given.no_check)
    if given.seed is not None:
        with simulated(given.without, given.postgres) as world:
            trace, broken = run_seed(world, given.seed, checks, given.steps)
        if given.trace:
            print("\n".join(trace))
        print(f"seed {given.seed}: {broken or 'all promises kept'}")
        return bool(broken)
    job = Job(range(given.start, given.start + given.seeds), checks, tuple(given.without), given.postgres)
    start = time.perf_counter()
    failures = play_in_parallel(job, given.workers)
    seconds = time.perf_counter() - start
    for seed, broken in failures:
        print(f"seed {seed} with --steps {shrunk(seed, job)}: {broken[:200]}")
    done = "all promises kept" if not failures else f"{len(failures)} broke a promise; each process stops after 10"
    print(f"{given.seeds:,} seeds in {seconds:.0f} s, {60 * given.seeds / seconds:,.0f} per minute: {done}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
