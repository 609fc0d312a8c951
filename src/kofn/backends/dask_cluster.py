"""Computes tasks on the workers of a Dask cluster, with Dask's own client.

joblib's Dask backend would be shorter, but (joblib 1.6, tried with workers that are killed)

- it keeps arguments of more than 1 kB on one worker: when that worker is lost, the sweep ends with
  `FutureCancelledError`. Here a batch carries everything it needs, so Dask can give it to another worker;
- if the cluster has one worker, or has one left, it computes in the process of the caller;
- it checks no versions, so workers with another kofn or NumPy would give other digits.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from kofn.backends import Task
from kofn.backends.cluster_worker import environment
from kofn.core import BadBackend, MissingExtra

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10
"""Seconds that a scheduler and the first worker may take to answer."""
BATCH_SECONDS, LARGEST_BATCH = 0.25, 64
"""Target duration of a batch in seconds, and its largest number of tasks.

Longer batches cost the scheduler less per task (milliseconds each); shorter ones report progress more often.
"""
IGNORE_INTERRUPTS = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Preloaded by local workers: Ctrl-C reaches all processes of a terminal, but only the main one handles it."""
BATCHES_PER_THREAD = 3
"""Batches in flight per thread of the cluster. Too few leave threads idle; more delay the adaption of batch sizes."""


@contextmanager
def open_cluster(backend: str, workers: int | None = None) -> Iterator[Client]:
    """Yield a client of the cluster at `dask:ADDRESS`, or for `dask` of one that is started here for the block."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as missing:
        raise MissingExtra("dask.distributed", "dask") from missing
    with _silence_dask(), ExitStack() as stack:
        if address := backend.partition(":")[2]:
            yield stack.enter_context(_connect_client(Client, address))
            return
        here = LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # any free port: another cluster may use the default one
            silence_logs=logging.CRITICAL,
            preload=[IGNORE_INTERRUPTS],
        )
        yield stack.enter_context(Client(stack.enter_context(here), set_as_default=False))


def _connect_client(kind: type[Client], address: str) -> Client:
    try:
        with ThreadPoolExecutor(1) as thread:  # a new thread: in a notebook, this one already runs a loop
            thread.submit(asyncio.run, _check_reachable(address)).result()
        return kind(address, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as why:
        raise BadBackend(
            f"there is no Dask scheduler at {address} ({_first_line(why)}): start one with `dask scheduler`, workers "
            "with `dask worker ADDRESS`, and pass the address that it prints, such as dask:tcp://10.0.0.1:8786"
        ) from why


async def _check_reachable(address: str) -> None:
    """Return when the address answers.

    A client that never connects would stay in memory. If it is garbage-collected while another client starts, it waits
    forever for a lock that the other one holds.
    """
    from distributed.comm import connect
    from distributed.security import Security

    comm = await connect(address, timeout=CONNECT_SECONDS, **Security().get_connection_args("client"))
    comm.abort()


@contextmanager
def _silence_dask() -> Iterator[None]:
    """Silence Dask's logs of lost workers: they are recovered, or reported as an error."""
    logs = [logging.getLogger(name) for name in ("asyncio", "distributed", "tornado.application")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def compute_on_cluster(
    function: Callable[..., Any], tasks: Sequence[Task], client: Client
) -> Generator[tuple[int, Any], None, None]:
    """Yield the number and the result of each task, as tasks finish; another worker takes over a lost one's batches."""
    from distributed import KilledWorker, as_completed
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    _check_cluster(client)
    batches = TaskBatches(function, tasks)
    sweep, compute_batch = uuid.uuid4().hex, _batch_function()
    in_flight = as_completed(loop=client.loop)

    def send() -> None:
        free = BATCHES_PER_THREAD * max(1, sum(client.nthreads().values())) - in_flight.count()
        for number, packed in itertools.islice(batches, max(0, free)):
            in_flight.add(client.submit(compute_batch, environment(), packed, key=f"kofn-{sweep}-{number}", pure=False))

    try:
        send()
        for future in in_flight:
            seconds, results = future.result()
            batches.record_duration(seconds, len(results))
            send()
            yield from results
    except KilledWorker as why:
        raise BadBackend(
            f"{why.allowed_failures + 1} workers were lost with the same runs, the last one {why.last_worker.address}: "
            "see its log; a run may need more memory"
        ) from why
    except (FutureCancelledError, CommClosedError) as why:
        raise BadBackend(
            f"the connection to the cluster was lost ({_first_line(why)}): restart the cluster and the sweep"
        ) from why
    except ModuleNotFoundError as why:
        if why.name is None or why.name.partition(".")[0] != "kofn":
            raise
        raise BadBackend(f"a worker has no {why.name}: install kofn {environment()['kofn']} on all workers") from why
    finally:
        with suppress(Exception):  # the cluster may be gone
            client.cancel(list(in_flight.futures))


class TaskBatches:
    """Pickles tasks in batches: one task at first, and more if tasks turn out to be quick."""

    def __init__(self, function: Callable[..., Any], tasks: Sequence[Task]) -> None:
        self._function, self._left = function, enumerate(tasks)
        self._number, self.size = itertools.count(), 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        import cloudpickle

        while batch := list(itertools.islice(self._left, self.size)):
            yield next(self._number), cloudpickle.dumps((self._function, batch))

    def record_duration(self, seconds: float, tasks: int) -> None:
        """Adapt the batch size to how long these tasks took: it at most doubles, and shrinks at once."""
        fits = int(BATCH_SECONDS * tasks / max(seconds, 1e-9))
        self.size = max(1, min(fits, 2 * self.size, LARGEST_BATCH))


def _batch_function() -> Callable[[dict[str, str], bytes], Any]:
    """Return the function that workers call. A nested function is pickled by value, so the scheduler needs no kofn."""

    def work(expected: dict[str, str], packed: bytes) -> Any:
        from kofn.backends.cluster_worker import compute_batch

        return compute_batch(expected, packed)

    return work


def _check_cluster(client: Client) -> None:
    """Wait for a worker, and refuse another Python version: it could not unpickle the tasks."""
    where = client.scheduler.address if client.scheduler else "?"
    try:
        client.wait_for_workers(1, timeout=CONNECT_SECONDS)
    except TimeoutError as why:
        raise BadBackend(f"the cluster at {where} has no workers: start some with `dask worker {where}`") from why
    versions = client.get_versions()
    for name, each in {"scheduler": versions["scheduler"], **versions["workers"]}.items():
        theirs, ours = ".".join(each["host"]["python"].split(".")[:2]), environment()["python"]
        if theirs != ours:
            raise BadBackend(
                f"{name} of the cluster at {where} runs Python {theirs}, but this is {ours}: use the same version"
            )


def _first_line(why: BaseException) -> str:
    return (str(why).strip() or type(why).__name__).splitlines()[0]
