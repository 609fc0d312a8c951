"""Where runs are computed: in processes of this machine, or on the workers of a Dask cluster.

A task is a function's arguments, and carries its own seed: what it gives depends neither on where it is computed nor
on when, so that the results are the same everywhere, and a lost one is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from kofn.core import BadInput, whole

if TYPE_CHECKING:
    from distributed import Client

Backend: TypeAlias = "str | Client"
"""`local`, `dask` (a cluster on this machine), `dask:ADDRESS` (one that is there), or a `distributed.Client`."""

Task: TypeAlias = tuple[Any, ...]
Progress: TypeAlias = Callable[[int, int], None]
"""Called with how much is done and of how much, now and then."""


def spread(
    function: Callable[..., Any], tasks: Sequence[Task], *, backend: Backend = "local", workers: int | None = None
) -> Generator[tuple[int, Any], None, None]:
    """The number of each task with the function's result for it, as they come.

    `workers` are the processes to use on this machine; all cores by default. A worker that is lost costs nothing but
    time: what it had not finished is computed again.
    """
    check_backend(backend, workers)
    return _results(function, tasks, backend, workers)


def gathered(
    function: Callable[..., Any],
    tasks: Sequence[Task],
    *,
    backend: Backend = "local",
    workers: int | None = None,
    progress: Progress | None = None,
) -> list[Any]:
    """The function's results for all tasks, in their order."""
    done: dict[int, Any] = {}
    for number, result in spread(function, tasks, backend=backend, workers=workers):
        done[number] = result
        if progress:
            progress(len(done), len(tasks))
    return [done[number] for number in range(len(tasks))]


def check_backend(backend: Backend, workers: int | None = None) -> None:
    """Refuse a backend that there is not, and workers for a cluster that has its own."""
    if workers is not None:
        whole("workers", workers)
    if _is_client(backend):
        kind, address = "dask", "given"
    elif isinstance(backend, str):
        kind, _, address = backend.partition(":")
    else:
        kind = ""
    if kind not in ("local", "dask") or (kind == "local" and backend != "local") or backend == "dask:":
        raise BadInput(
            f"a backend is 'local', 'dask', the address of a cluster as in 'dask:tcp://10.0.0.1:8786', or a "
            f"distributed.Client, not {backend!r}"
        )
    if address and workers is not None:
        raise BadInput(f"a cluster that is running has its own workers, but workers={workers} was given: leave it out")


@contextmanager
def opened(backend: Backend, workers: int | None = None) -> Iterator[tuple[Backend, int | None]]:
    """The backend ready for several sweeps, with the workers to ask of it: a cluster is started or connected once."""
    check_backend(backend, workers)
    if not isinstance(backend, str) or backend == "local":
        yield backend, workers
        return
    from kofn.backends.cluster import connected

    with connected(backend, workers) as client:
        yield client, None


def _results(
    function: Callable[..., Any], tasks: Sequence[Task], backend: Backend, workers: int | None
) -> Generator[tuple[int, Any], None, None]:
    if not tasks:
        return
    with opened(backend, workers) as (ready, processes):
        if isinstance(ready, str):
            from kofn.backends.local import on_this_machine

            results = on_this_machine(function, tasks, processes)
        else:
            from kofn.backends.cluster import on_cluster

            results = on_cluster(function, tasks, ready)
        with closing(results):
            yield from results


def _is_client(backend: object) -> TypeGuard[Client]:
    """Whether it is a Dask client, without importing Dask to find out."""
    return any(
        f"{each.__module__}.{each.__qualname__}" == "distributed.client.Client" for each in type(backend).__mro__
    )
