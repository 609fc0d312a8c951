"""Runs on the workers of a Dask cluster, by Dask's own client.

Not by joblib's backend for Dask, though it is shorter: that keeps larger arguments on a worker, and when this one is
lost the runs that need them fail. Here a batch carries all that it needs, and Dask gives it to another worker.
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
from kofn.backends.worker import facts
from kofn.core import BadBackend, MissingExtra

if TYPE_CHECKING:
    from distributed import Client

SECONDS = 10
"""How long a scheduler and the first worker may take to answer."""
BATCH_SECONDS, LARGEST_BATCH = 0.25, 64
"""A batch is to take about so long: a task costs the scheduler milliseconds, and results are to come often."""
DEAF = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
"""Ctrl-C reaches all processes of a terminal: workers here leave it to the one that started them."""
AHEAD = 3
"""Batches out for each thread of the cluster, so that none waits for the next."""


@contextmanager
def connected(backend: str, workers: int | None = None) -> Iterator[Client]:
    """A client of the cluster at `dask:ADDRESS`, or for `dask` of one that is started here and ends with the block."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as missing:
        raise MissingExtra("dask.distributed", "dask") from missing
    with _quiet(), ExitStack() as stack:
        if address := backend.partition(":")[2]:
            yield stack.enter_context(_client(Client, address))
            return
        here = LocalCluster(
            n_workers=workers or os.cpu_count() or 1,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",  # any free port: another cluster may have the usual one
            silence_logs=logging.CRITICAL,
            preload=[DEAF],
        )
        yield stack.enter_context(Client(stack.enter_context(here), set_as_default=False))


def _client(kind: type[Client], address: str) -> Client:
    try:
        with ThreadPoolExecutor(1) as thread:  # of its own, for in a notebook a loop is running in this one
            thread.submit(asyncio.run, _answers(address)).result()
        return kind(address, timeout=SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError) as why:
        raise BadBackend(
            f"there is no Dask scheduler at {address} ({_first_line(why)}): start one with `dask scheduler`, workers "
            "with `dask worker ADDRESS`, and give the address that it prints, such as dask:tcp://10.0.0.1:8786"
        ) from why


async def _answers(address: str) -> None:
    """Return when someone answers there. Without asking first, a client is left over that never connected; when memory
    is cleared while another starts, it waits for a lock that this one holds, for ever."""
    from distributed.comm import connect
    from distributed.security import Security

    comm = await connect(address, timeout=SECONDS, **Security().get_connection_args("client"))
    comm.abort()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Dask logs of a loss: it is made good, or said in our own words."""
    logs = [logging.getLogger(name) for name in ("asyncio", "distributed", "tornado.application")]
    before = [log.level for log in logs]
    for log in logs:
        log.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for log, level in zip(logs, before, strict=True):
            log.setLevel(level)


def on_cluster(
    function: Callable[..., Any], tasks: Sequence[Task], client: Client
) -> Generator[tuple[int, Any], None, None]:
    """The number and the result of each task, as they come; a lost worker's batches are done by another."""
    from distributed import KilledWorker, as_completed
    from distributed.client import FutureCancelledError
    from distributed.comm import CommClosedError

    _check_cluster(client)
    batches = Batches(function, tasks)
    sweep, work = uuid.uuid4().hex, _by_value()
    flying = as_completed(loop=client.loop)

    def send() -> None:
        wanted = AHEAD * max(1, sum(client.nthreads().values())) - flying.count()
        for number, packed in itertools.islice(batches, max(0, wanted)):
            flying.add(client.submit(work, facts(), packed, key=f"kofn-{sweep}-{number}", pure=False))

    try:
        send()
        for future in flying:
            seconds, results = future.result()
            batches.learn(seconds, len(results))
            send()
            yield from results
    except KilledWorker as why:
        raise BadBackend(
            f"the same runs were with {why.allowed_failures + 1} workers that were lost, the last one "
            f"{why.last_worker.address}: see its log; is there enough memory for a run?"
        ) from why
    except (FutureCancelledError, CommClosedError) as why:
        raise BadBackend(f"the cluster has gone ({_first_line(why)}): start it, and the sweep, again") from why
    except ModuleNotFoundError as why:
        if why.name is None or why.name.partition(".")[0] != "kofn":
            raise
        raise BadBackend(f"a worker has no {why.name}: install kofn {facts()['kofn']} on all workers") from why
    finally:
        with suppress(Exception):  # the cluster may have gone
            client.cancel(list(flying.futures))


class Batches:
    """Tasks packed for the way: one by one at first, and in larger batches when they turn out to be quick."""

    def __init__(self, function: Callable[..., Any], tasks: Sequence[Task]) -> None:
        self._function, self._left = function, enumerate(tasks)
        self._number, self.size = itertools.count(), 1

    def __iter__(self) -> Iterator[tuple[int, bytes]]:
        import cloudpickle

        while batch := list(itertools.islice(self._left, self.size)):
            yield next(self._number), cloudpickle.dumps((self._function, batch))

    def learn(self, seconds: float, tasks: int) -> None:
        """Take note of how long so many tasks took: batches grow to twice the size at most, and shrink at once."""
        fits = int(BATCH_SECONDS * tasks / max(seconds, 1e-9))
        self.size = max(1, min(fits, 2 * self.size, LARGEST_BATCH))


def _by_value() -> Callable[[dict[str, str], bytes], Any]:
    """What workers are asked to do: a function within a function is sent whole, and the scheduler needs no kofn."""

    def work(asked_by: dict[str, str], packed: bytes) -> Any:
        from kofn.backends.worker import do

        return do(asked_by, packed)

    return work


def _check_cluster(client: Client) -> None:
    """Wait for a worker, and refuse another Python: it could not even read what is sent."""
    where = client.scheduler.address if client.scheduler else "?"
    try:
        client.wait_for_workers(1, timeout=SECONDS)
    except TimeoutError as why:
        raise BadBackend(f"the cluster at {where} has no workers: start some with `dask worker {where}`") from why
    versions = client.get_versions()
    for name, each in {"scheduler": versions["scheduler"], **versions["workers"]}.items():
        theirs, ours = ".".join(each["host"]["python"].split(".")[:2]), facts()["python"]
        if theirs != ours:
            raise BadBackend(
                f"{name} of the cluster at {where} runs Python {theirs}, and this is {ours}: use the same everywhere"
            )


def _first_line(why: BaseException) -> str:
    return (str(why).strip() or type(why).__name__).splitlines()[0]
