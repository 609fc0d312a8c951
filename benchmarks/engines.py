"""Measure what a sweep costs on each engine: `python benchmarks/engines.py dask`, or all engines without a name.

Each engine computes the same runs with two local workers, and again while one of them is killed. `kofn-local` and
`kofn-dask` are kofn's own backends. Ray is not an extra of kofn: install it to repeat the comparison of
docs/guides/sweeps.md. `--quick` computes few and short tasks.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kofn import make_policy, simulate
from kofn.lab.settings import Setting
from kofn.lab.simulation import run_seeds

WORKERS, RUNS, SHORT = 2, 400, 2000
Engine = Callable[[Callable[[int], Any], int], list[Any]]


def one_run(index: int) -> float:
    seeds = run_seeds(7, index)
    problem = Setting("max", 24, 5).problem(seeds.problem)
    policy = make_policy("shared-credit", 24, 5, seed=seeds.policy)
    return simulate(policy, problem, 2_000, seeds.plays).regret


def nothing(index: int) -> int:
    return index


def own_pid(index: int) -> int:
    time.sleep(0.05)
    return os.getpid()


@contextmanager
def local() -> Iterator[Engine]:
    import joblib

    yield lambda function, n: list(joblib.Parallel(WORKERS)(joblib.delayed(function)(i) for i in range(n)))


@contextmanager
def kofn_dask() -> Iterator[Engine]:
    from kofn.backends import compute, open_backend

    with open_backend("dask", WORKERS) as (client, _):
        yield lambda function, n: compute(function, [(i,) for i in range(n)], backend=client)


@contextmanager
def kofn_local() -> Iterator[Engine]:
    from kofn.backends import compute

    yield lambda function, n: compute(function, [(i,) for i in range(n)], workers=WORKERS)


@contextmanager
def dask() -> Iterator[Engine]:
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield lambda function, n: client.gather(client.map(function, range(n), pure=False))


@contextmanager
def dask_joblib() -> Iterator[Engine]:
    import joblib
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=WORKERS, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster),
        joblib.parallel_config("dask"),
    ):
        yield lambda function, n: list(joblib.Parallel()(joblib.delayed(function)(i) for i in range(n)))


@contextmanager
def ray() -> Iterator[Engine]:
    import ray as engine

    def run_on(function: Callable[[int], Any], n: int) -> list[Any]:
        task = engine.remote(max_retries=3)(function)  # once: each remote function is sent to the cluster again
        return list(engine.get([task.remote(i) for i in range(n)]))

    engine.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    try:
        yield run_on
    finally:
        engine.shutdown()


@contextmanager
def ray_joblib() -> Iterator[Engine]:
    import joblib
    import ray as engine
    from ray.util.joblib import register_ray

    engine.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False)
    register_ray()
    try:
        with joblib.parallel_config("ray", n_jobs=WORKERS):
            yield lambda function, n: list(joblib.Parallel()(joblib.delayed(function)(i) for i in range(n)))
    finally:
        engine.shutdown()


ENGINES = {
    "local": local,
    "dask": dask,
    "dask-joblib": dask_joblib,
    "ray": ray,
    "ray-joblib": ray_joblib,
    "kofn-local": kofn_local,
    "kofn-dask": kofn_dask,
}


def measured(engine: str, runs: int = RUNS, short: int = SHORT, *, kill: bool = True) -> dict[str, Any]:
    """Measure one engine. On a busy machine, processor seconds are more meaningful than wall-clock seconds."""
    found: dict[str, Any] = {"engine": engine}
    start, before = time.perf_counter(), processor_seconds()
    with ENGINES[engine]() as run_on:
        run_on(nothing, WORKERS)
        found["s to the first result"] = time.perf_counter() - start
        found["processor s of these"] = processor_seconds() - before
        before = processor_seconds()
        found["ms per empty task"] = 1000 * timed(run_on, nothing, short)[0] / short
        found["processor ms of these"] = 1000 * (processor_seconds() - before) / short
        before = processor_seconds()
        found["s for the runs"], results = timed(run_on, one_run, runs)
        found["processor s of these "] = processor_seconds() - before
        found["MB of all processes"] = sum(map(megabytes, descendants(os.getpid())))
        found["processes"] = len(descendants(os.getpid()))
        found["digest"] = digest(results)
        if kill:  # few runs are over before the worker is killed
            pids = run_on(own_pid, 20)
            found |= with_a_killed_worker(run_on, pids[0], runs)
    return found


def timed(run_on: Engine, function: Callable[[int], Any], n: int) -> tuple[float, list[Any]]:
    start = time.perf_counter()
    results = run_on(function, n)
    return time.perf_counter() - start, results


def with_a_killed_worker(run_on: Engine, victim: int, runs: int) -> dict[str, Any]:
    """Compute the same runs again, and kill a worker after half a second."""
    if (child := os.fork()) == 0:
        time.sleep(0.5)
        os.kill(victim, signal.SIGKILL)
        os._exit(0)
    try:
        signal.alarm(240)
        seconds, results = timed(run_on, one_run, runs)
    except BaseException as why:
        return {"a worker killed": f"{type(why).__name__}: {str(why)[:120]}"}
    finally:
        signal.alarm(0)
        os.waitpid(child, 0)
    return {"a worker killed": f"done in {seconds:.1f} s", "digest after": digest(results)}


def digest(results: list[float]) -> str:
    """Return a digest that is equal for results that are equal to the last digit."""
    return hashlib.sha256(json.dumps(results).encode()).hexdigest()[:12]


def descendants(pid: int) -> list[int]:
    """Return the process and all its descendants."""
    found = [pid]
    for parent in found:
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            found += map(int, task.read_text().split())
    return found


def processor_seconds() -> float:
    """Return the processor seconds of this process and all its descendants."""
    ticks = 0
    for pid in descendants(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # its own user and system time, and that of its ended children
    return ticks / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    """Return the memory of the process in MB, with its part of what is shared."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(text.partition("Pss:")[2].split()[0]) / 1024


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="*", help=f"by default all of {', '.join(ENGINES)}")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that the benchmark works")
    args = parser.parse_args(arguments)
    if unknown := set(args.engines) - set(ENGINES):  # argparse refuses no names, if it has choices
        parser.error(f"unknown: {', '.join(sorted(unknown))}; available: {', '.join(ENGINES)}")
    for each in args.engines or ENGINES:
        sizes = (4, 10) if args.quick else (RUNS, SHORT)
        for name, value in measured(each, *sizes, kill=not args.quick).items():
            print(f"{name:24} {value:.2f}" if isinstance(value, float) else f"{name:24} {value}")


if __name__ == "__main__":
    main()
