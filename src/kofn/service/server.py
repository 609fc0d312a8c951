"""Starts the service with one or more processes. A store without tokens gets one for the session."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import socket
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import uvicorn
from sqlalchemy.exc import OperationalError

from kofn.campaigns import Store, store_at
from kofn.campaigns.store.sqlite_file import NoStore
from kofn.core import BadInput, StoreError
from kofn.service.app import app_from_environment
from kofn.service.background.demo import Demo
from kofn.service.monitoring import logs
from kofn.service.monitoring.metrics import MULTIPROCESS_DIR
from kofn.service.security.tokens import has_tokens, new_token, tokens_required
from kofn.service.settings import ServiceSettings, is_loopback
from kofn.service.supervisor import Supervisor

log = logging.getLogger("kofn.service")

SHUTDOWN_TIMEOUT = 30
"""Seconds that running requests have to finish when the service stops. After that they are cancelled."""

KEEP_ALIVE_SECONDS = 75
"""Seconds after which an idle connection is closed. It must be longer than proxies keep theirs (60 in deploy/): a proxy
that sends a request on a connection which is just being closed answers with 502."""

NOTICE_SECONDS = 0.5
"""Seconds in which each response ends its connection (`Service.stop_on_signals`) before the server stops. A lower value
stops sooner, and resets connections on which a request is just arriving."""

BACKLOG = 2048
"""Number of connections that may wait to be accepted. When the queue is full, further connections are refused."""

SPARE_FILES = 100
"""Files that are kept for the store, metrics and logs. All others may be connections."""

FIRST_RETRY, MAX_RETRY = 0.25, 5.0
"""Seconds before the first retry to open the store, and between later ones. The delay doubles with each."""

MIN_TOKEN = 16
"""Fewest characters of KOFN_TOKEN when the service takes its token from there. Shorter ones can be guessed."""


def session_token(host: str, settings: ServiceSettings, seconds: float = 0.0) -> str | None:
    """Return a token that is valid until the service stops, or None if the store requires stored tokens.

    It is the value of KOFN_TOKEN, or a new one. Raise `BadInput` if other machines can reach the address: such a
    service needs tokens that survive a restart, and that can be revoked. Wait some seconds for a database server that
    does not respond. A store that does not exist has no tokens; it is not created here.
    """
    try:
        store = wait_for_store(settings.store, seconds, create=False)
    except NoStore:
        store = None
    if is_loopback(host):
        return None if store and tokens_required(store) else _given_token() or new_token()
    if not (store and has_tokens(store)):
        raise BadInput(
            f"{host} is reachable from other machines, but the store has no tokens: "
            "create a token with `kofn token create NAME` in the same store, or use --host 127.0.0.1"
        )
    return None


def _given_token() -> str | None:
    given = os.environ.get("KOFN_TOKEN")
    if given and (len(given) < MIN_TOKEN or not given.isascii() or not given.isprintable() or " " in given):
        raise BadInput(
            f"KOFN_TOKEN must have at least {MIN_TOKEN} visible ASCII characters; got {len(given)} characters. "
            "Unset it, and the service makes a token"
        )
    return given or None


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket. Connections that arrive before the service is ready wait in its queue."""
    with ExitStack() as stack:
        try:
            family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            listener = stack.enter_context(socket.socket(family, kind))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            raise BadInput(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
        stack.pop_all()
    return listener


def wait_for_store(url: str | None, seconds: float = math.inf, *, create: bool = True) -> Store:
    """Return the store. While its database server does not respond, try again for some seconds, and log why.

    A store that does not exist is created; with `create=False`, StoreError is raised instead.
    """
    until, delay = time.monotonic() + seconds, FIRST_RETRY
    while True:
        try:
            return store_at(url, create=create)
        except StoreError as error:
            left = until - time.monotonic()
            if left <= 0 or not isinstance(error.__cause__, OperationalError):
                raise
            log.warning("%s. Trying again%s", error, f" for {left:.0f} seconds" if math.isfinite(left) else "")
            time.sleep(min(delay, left))
            delay = min(2 * delay, MAX_RETRY)


def raise_file_limit() -> int | None:
    """Raise the limit of open files to what the system allows, as each connection needs one. Return the limit."""
    if sys.platform == "win32":
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = hard if hard != resource.RLIM_INFINITY else max(soft, 65_536)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    except (OSError, ValueError):  # macOS allows less than it says
        limit = soft
    return limit


def serve(listener: socket.socket, settings: ServiceSettings, *, workers: int = 1, demo: bool = False) -> int:
    """Handle requests until a signal arrives; then finish running requests. Return the exit code."""
    files = raise_file_limit()
    if files is not None and files - SPARE_FILES < settings.max_connections:
        settings = replace(settings, max_connections=max(1, files - SPARE_FILES))
        log.warning("only %d files may be open: at most %d connections", files, settings.max_connections)
    settings.to_environment()
    # Semaphores of a process that was killed are removed by Python, which says so in a line that is not of our log.
    os.environ.setdefault("PYTHONWARNINGS", "ignore::UserWarning:multiprocessing.resource_tracker")
    os.environ["PYTHONSAFEPATH"] = "1"  # else the processes that it starts import modules of the working folder
    with ExitStack() as stack:
        if demo:
            player = Demo(store_at(settings.store))
            player.start()
            stack.callback(player.stop)
        if workers == 1:
            run_server(listener)
            return 0
        os.environ[MULTIPROCESS_DIR] = stack.enter_context(tempfile.TemporaryDirectory(prefix="kofn-metrics-"))
        return Supervisor(run_server, listener, workers).run(SHUTDOWN_TIMEOUT)


def uvicorn_options(settings: ServiceSettings) -> dict[str, Any]:
    """Return the options of uvicorn, including the limits that a proxy cannot enforce for the process."""
    return {
        # httptools loses the body of a request that offers `Upgrade: h2c`, as Java's client does. h11 takes more of the
        # processor: 2,500 pairs per second on SQLite instead of 3,200 with 8 connections, 3,500 for 5,900 with 32.
        "http": "h11",
        "ws": "none",
        "lifespan": "on",  # an error in it stops the service
        "log_config": None,
        "access_log": False,  # `kofn.service.monitoring.logs` has its own
        "server_header": False,
        "proxy_headers": bool(settings.trusted_proxies),
        "forwarded_allow_ips": list(settings.trusted_proxies),
        "limit_concurrency": settings.max_connections + 1,  # uvicorn refuses the request that reaches its limit
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": SHUTDOWN_TIMEOUT,
    }


def run_server(listener: socket.socket) -> None:
    """Run one server in this process, with the settings that are in the environment.

    Of several processes, one may be replaced while the database restarts. It waits: one that ends at once counts as a
    failed start, and after some of these the service stops. If the store was moved or deleted, it ends: an empty one
    in its place would be served beside the old one, which the other processes have open.
    """
    settings = ServiceSettings.from_environment()
    logs.configure(settings)
    wait_for_store(settings.store, create=False)
    GracefulServer(uvicorn.Config(app_from_environment(), **uvicorn_options(settings))).run([listener])


class GracefulServer(uvicorn.Server):
    """uvicorn's server, which answers requests that are just arriving when it is asked to stop.

    uvicorn resets the connections that wait to be accepted, and closes idle ones, on which the client may be sending
    its next request.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept the connections that wait, give all of them time for a last response, and stop the server."""
        for each in sockets or []:
            each.listen(0)  # further clients wait, and are refused once the socket is closed
        for _ in range(5):  # in each turn, the event loop accepts what waits
            await asyncio.sleep(0)
        for server in self.servers:
            server.close()
        await asyncio.sleep(NOTICE_SECONDS)
        await super().shutdown(sockets)
