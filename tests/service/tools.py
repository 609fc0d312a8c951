"""Helpers of the service tests: a service in a thread, and one in a process that can be killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx
import uvicorn
from sqlalchemy import select

from kofn.campaigns import Campaign, Store, learner
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.service import ServiceSettings, make_app
from kofn.service.security.tokens import token_hash
from kofn.service.server import listen, uvicorn_options
from tests.waiting import wait_until

TOKEN = "kofn_a_session_of_the_tests"
"""The token of every service that the tests start on a store without tokens of its own."""

HERE = "http://127.0.0.1"
NAMES = list("abcdefgh")
NEW = {"name": "front", "arms": NAMES, "k": 3, "reward_range": [0, 12], "seed": 7}


@contextmanager
def token_in_environment(token: str | None) -> Iterator[None]:
    """Set KOFN_TOKEN, from which clients and `kofn serve` take their token, and restore it at the end."""
    before = os.environ.pop("KOFN_TOKEN", None)
    if token is not None:
        os.environ["KOFN_TOKEN"] = token
    try:
        yield
    finally:
        os.environ.pop("KOFN_TOKEN", None)
        if before is not None:
            os.environ["KOFN_TOKEN"] = before


class _Server(uvicorn.Server):
    """uvicorn's server, which ends as soon as it is asked to: uvicorn looks ten times a second."""

    async def main_loop(self) -> None:
        await self.on_tick(0)
        while not self.should_exit:
            await asyncio.sleep(0.005)


@contextmanager
def service(store: str, **settings: Any) -> Iterator[httpx.Client]:
    """Run a service in a thread, and yield an HTTP client of it that sends `TOKEN`. Clients of kofn send it, too.

    A stranger is `httpx.Client(base_url=client.base_url)`. `open=True` starts it as a demo, which needs no token.
    Policies learn in a thread: a process takes a second to start.
    """
    with patch.object(learner, "new_process", lambda *_: ThreadPoolExecutor(1)):
        yield from _service(ServiceSettings(store=store, **{"session": token_hash(TOKEN)} | settings))


def _service(chosen: ServiceSettings) -> Iterator[httpx.Client]:
    app, listener = make_app(chosen), listen("127.0.0.1", 0)
    server = _Server(uvicorn.Config(app, log_level="critical", **uvicorn_options(chosen)))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    try:
        with (
            token_in_environment(TOKEN),
            httpx.Client(base_url=f"{HERE}:{listener.getsockname()[1]}", headers=bearer(TOKEN), timeout=60) as client,
        ):
            while not server.started:
                assert thread.is_alive(), "the service did not start"
                time.sleep(0.005)
            yield client
    finally:
        app.state.shared.live.stop()
        server.should_exit = True
        thread.join(30)
        listener.close()


def bearer(token: str) -> dict[str, str]:
    """Return the header that sends a token."""
    return {"Authorization": f"Bearer {token}"}


def error_detail(answer: httpx.Response, status: int, name: str) -> str:
    """Check that a response has this error, and return its detail."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    body = answer.json()
    assert body["type"] == f"urn:kofn:{name}"
    assert body["status"] == status
    assert body["title"]
    return str(body["detail"])


def wait_until_learned(campaign: Campaign) -> None:
    """Wait until a service has learned from what was reported, and has nothing more to learn."""
    seen, since = -1, time.monotonic()

    def is_quiet() -> bool:
        nonlocal seen, since
        if (version := campaign.summary().version) != seen:
            seen, since = version, time.monotonic()
        return bool(time.monotonic() - since > 1.5 and campaign.insight().updates)

    wait_until(is_quiet, "the policy has learned", every=0.05)


def copy_rows(store: Store, name: str, count: int) -> None:
    """Copy the row of a campaign, as of an hour ago: that is enough for lists, and fast."""
    with store.write() as connection:
        row = dict(connection.execute(select(CAMPAIGNS).where(CAMPAIGNS.c.name == name)).mappings().one())
        del row["id"]
        row["changed"] -= 3600.0
        connection.execute(CAMPAIGNS.insert(), [row | {"name": f"copy {number:05}"} for number in range(count)])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_service(url: str, process: subprocess.Popen[bytes], stderr: Callable[[], str]) -> None:
    """Wait until a service responds; fail with what it printed to `stderr` if its process ends."""

    with httpx.Client(base_url=url, timeout=5) as http:

        def has_started() -> bool:
            assert process.poll() is None, stderr()
            return is_healthy(http)

        wait_until(has_started, "the service responds", every=0.02)


def is_healthy(http: httpx.Client) -> bool:
    """Return whether a service responds to this client."""
    try:
        return http.get("/health").is_success
    except httpx.TransportError:
        return False


class Served:
    """`kofn serve` in a process of its own. The port stays the same across restarts.

    Until it is left, KOFN_TOKEN is `token`, which the process and clients of kofn read. `client` sends `TOKEN`.
    """

    def __init__(self, store: str | None, *options: str, token: str | None = TOKEN) -> None:
        self._token = token
        self.port = free_port()
        self.url = f"{HERE}:{self.port}"
        self._command = [sys.executable, "-c", "from kofn.cli import main; main()", "serve", "--port", str(self.port)]
        self._command += [*(("--store", store) if store else ()), *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._client: httpx.Client | None = None

    @property
    def client(self) -> httpx.Client:
        """An HTTP client that sends `TOKEN`."""
        if self._client is None:
            self._client = self._stack.enter_context(httpx.Client(base_url=self.url, headers=bearer(TOKEN), timeout=60))
        return self._client

    def start(self) -> None:
        """Start the process, and wait until it responds."""
        if self._process is None:
            self._stack.enter_context(token_in_environment(self._token))
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise

    def _start(self) -> None:
        self._process = subprocess.Popen(self._command, stderr=subprocess.PIPE, start_new_session=True)
        wait_for_service(self.url, self._process, self.stderr)

    def kill(self) -> None:
        """Kill the process and its workers, as in a crash."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)
        self.stderr()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop the process with a signal. Return its exit code."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(60)

    def stderr(self) -> str:
        """Return what the process wrote to stderr, after it has ended."""
        assert self._process is not None
        assert self._process.stderr is not None
        with self._process.stderr as file:
            return file.read().decode()

    def lines(self) -> Iterator[str]:
        """Yield the lines that the process writes to stderr, and wait for the next."""
        assert self._process is not None
        assert self._process.stderr is not None
        for line in self._process.stderr:
            yield line.decode()

    @property
    def pid(self) -> int:
        """The id of the process."""
        assert self._process is not None
        return self._process.pid

    def workers(self) -> list[int]:
        """Return the ids of the processes that handle requests, when there are several (on Linux)."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return [int(each) for each in children if _is_worker(each)]

    def __enter__(self) -> Served:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._stack.close()
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(30)
        assert self._process.stderr is not None
        self._process.stderr.close()


def _is_worker(pid: str) -> bool:
    try:
        return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has just ended
        return False
