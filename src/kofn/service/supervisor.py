"""Several server processes on one listening socket. A process that ends is reported and replaced.

uvicorn's own workers (`uvicorn.run(..., workers=2)`, tried with 0.54 in place of this module) do not do for a service:

- When no worker can start, they are restarted forever if the application cannot be made (as when its store was moved),
  and `uvicorn.run` returns as after a normal stop if its lifespan fails. Here the service ends with exit code 1.
- Workers whose supervisor is killed keep the port and continue to serve.
- A worker that does not respond for 5 seconds is killed, as when it parses a large import.
- A worker that dies is not reported as an error.
- The supervisor keeps the socket open while it stops: new connections wait, and are reset at the end.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import wait
from multiprocessing.context import SpawnProcess
from typing import Any

log = logging.getLogger("kofn.service")

QUICK_SECONDS = 5.0
"""A process that ends sooner than this has failed to start. A lower value forgives crashes right after the start."""

MAX_FAILURES = 5
"""Failed starts in a row after which the service stops."""

KILL_SECONDS = 10.0
"""Seconds that a process has to end after the time for running requests is over. Then it is killed."""

Target = Callable[[socket.socket], None]


class Supervisor:
    """Runs a function in several processes until a signal arrives, then asks them to stop and waits for them.

    The function gets the listening socket, and must stop on SIGTERM. The socket is closed here as soon as the service
    stops: otherwise connections would wait in its queue until they are reset.
    """

    def __init__(self, target: Target, listener: socket.socket, workers: int) -> None:
        self._target, self._listener = target, listener
        self._processes: list[tuple[float, SpawnProcess]] = []
        self._workers, self._failures = workers, 0
        self._signal = 0

    def run(self, shutdown_timeout: float) -> int:
        """Serve until SIGINT or SIGTERM. Return the exit code: 0, or 1 if the processes do not start."""
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._processes = [self._start() for _ in range(self._workers)]
            while not self._signal and self._failures < MAX_FAILURES:
                wait([process.sentinel for _, process in self._processes], timeout=0.2)
                self._replace_ended()
        finally:
            self._listener.close()
            self._end(shutdown_timeout + KILL_SECONDS)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self._signal:
            return 0
        log.error("the processes do not start: the service stops")
        return 1

    def _stop(self, number: int, _: Any) -> None:
        self._signal = number

    def _start(self) -> tuple[float, SpawnProcess]:
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(self._target, self._listener))
        process.start()
        return time.monotonic(), process

    def _replace_ended(self) -> None:
        for index, (begun, process) in enumerate(self._processes):
            if process.is_alive() or self._signal:
                continue
            quick = time.monotonic() - begun < QUICK_SECONDS
            self._failures = self._failures + 1 if quick else 0
            log.error("process %d %s; its running requests are lost. Starting another", process.pid, _how(process))
            if self._failures < MAX_FAILURES:
                self._processes[index] = self._start()

    def _end(self, timeout: float) -> None:
        for _, process in self._processes:
            if process.is_alive():
                process.terminate()
        until = time.monotonic() + timeout
        for _, process in self._processes:
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                log.error("process %d did not stop within %.0f seconds: killed", process.pid, timeout)
                process.kill()
                process.join()


def _how(process: SpawnProcess) -> str:
    """Describe how a process ended."""
    code = process.exitcode or 0
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _work(target: Target, listener: socket.socket) -> None:
    threading.Thread(target=_follow_parent, daemon=True).start()
    target(listener)


def _follow_parent() -> None:
    """Stop when the supervisor has died, so that no process is left behind."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)
