"""Backends: where runs are computed, in processes of this machine or on the workers of a Dask cluster.

A task is the arguments of a function, its seed included. Its result depends neither on where nor on when it is
computed, so results are the same on every backend, and a lost task can be computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from kofn.core import BadInput, whole

if TYPE_CHECKING:
    from distributed import Client

Backend: TypeAlias = "str | Client"
"""`local`, `dask` (starts a cluster on this machine), `dask:ADDRESS` (a running one), or a `distributed.Client`."""

Task: TypeAlias = tuple[Any, ...]
Progress: TypeAlias = Callable[[int, int], None]
"""A callback that reports progress: called with the number of items done and the total."""


def compute_unordered(
    function: Callable[..., Any], tasks: Sequence[Task], *, backend: Backend = "local", workers: int | None = None
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number of each task with its result, as tasks finish.

    `workers` is the number of processes on this machine, by default one per core. If a worker is lost, its unfinished
    tasks are computed again.
    """
    check_backend(backend, workers)
    return _results(function, tasks, backend, workers)


def compute(
    function: Callable[..., Any],
    tasks: Sequence[Task],
    *,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Any]:
    """Return the results of all tasks, in the order of the tasks."""
    done: dict[int, Any] = {}
    for number, result in compute_unordered(function, tasks, backend=backend, workers=workers):
        done[number] = result
        if progress:
            progress(len(done), len(tasks))
    return [done[number] for number in range(len(tasks))]


def check_backend(backend: Backend, workers: int | None = None) -> None:
    """Refuse an unknown backend, and `workers` for a running cluster."""
    if workers is not None:
        whole("workers", workers)
    kind, _, address = ("dask", ":", "given") if _is_client(backend) else str(backend).partition(":")
    if kind not in ("local", "dask") or (kind == "local" and backend != "local") or backend == "dask:":
        raise BadInput(
            f"backend must be 'local', 'dask', the address of a cluster such as 'dask:tcp://10.0.0.1:8786', or a "
            f"distributed.Client, not {backend!r}"
        )
    if address and workers is not None:
        raise BadInput(f"a running cluster has its own workers: leave out workers={workers}")


@contextmanager
def open_backend(backend: Backend, workers: int | None = None) -> Iterator[tuple[Backend, int | None]]:
    """Start or connect the backend once, for several sweeps; yield it with the `workers` to pass on."""
    check_backend(backend, workers)
    if not isinstance(backend, str) or backend == "local":
        yield backend, workers
        return
    from kofn.backends.dask_cluster import open_cluster

    with open_cluster(backend, workers) as client:
        yield client, None


def _results(
    function: Callable[..., Any], tasks: Sequence[Task], backend: Backend, workers: int | None
) -> Generator[tuple[int, Any], None, None]:
    if not tasks:
        return
    with open_backend(backend, workers) as (ready, processes):
        if isinstance(ready, str):
            from kofn.backends.local import compute_locally

            results = compute_locally(function, tasks, processes)
        else:
            from kofn.backends.dask_cluster import compute_on_cluster

            results = compute_on_cluster(function, tasks, ready)
        with closing(results):
            yield from results


def _is_client(backend: object) -> TypeGuard[Client]:
    """Return whether it is a Dask client, without importing Dask."""
    return any(
        f"{each.__module__}.{each.__qualname__}" == "distributed.client.Client" for each in type(backend).__mro__
    )
