"""Starts the service with one or more processes. A store without tokens gets one for the session."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import ExitStack
from typing import Any

import uvicorn

from kofn.campaigns import store_at
from kofn.core import BadInput
from kofn.service.demo import Demo
from kofn.service.metrics import MULTIPROCESS_DIR
from kofn.service.settings import Settings, is_loopback
from kofn.service.tokens import has_tokens, new_token, tokens_required

SHUTDOWN_TIMEOUT = 30
"""Seconds that running requests have to finish when the service stops. After that they are cancelled."""

BACKLOG = 2048
"""Number of connections that may wait to be accepted. When the queue is full, further connections are refused."""

MIN_TOKEN = 16
"""Fewest characters of KOFN_TOKEN when the service takes its token from there. Shorter ones can be guessed."""

APP = "kofn.service.app:app_from_environment"


def session_token(host: str, settings: Settings) -> str | None:
    """Return a token that is valid until the service stops, or None if the store requires tokens of its own.

    It is the value of KOFN_TOKEN, or a new one. Raise `BadInput` if other machines can reach the address: such a
    service needs tokens that survive a restart, and that can be revoked.
    """
    store = store_at(settings.store)
    if is_loopback(host):
        return None if tokens_required(store) else _given_token() or new_token()
    if not has_tokens(store):
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
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise BadInput(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
    return listener


def serve(
    listener: socket.socket, settings: Settings, *, workers: int = 1, demo: bool = False, access_log: bool = False
) -> None:
    """Handle requests until a signal arrives; then finish running requests and return."""
    settings.to_environment()
    host, port = listener.getsockname()[:2]
    options: dict[str, Any] = {
        "factory": True,
        "log_level": "info" if access_log else "warning",
        "access_log": access_log,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_graceful_shutdown": SHUTDOWN_TIMEOUT,
    }
    with ExitStack() as stack:
        if demo:
            player = Demo(store_at(settings.store))
            player.start()
            stack.callback(player.stop)
        if workers == 1:
            uvicorn.Server(uvicorn.Config(APP, **options)).run([listener])
        else:
            os.environ[MULTIPROCESS_DIR] = stack.enter_context(tempfile.TemporaryDirectory(prefix="kofn-metrics-"))
            listener.close()
            uvicorn.run(APP, host=host, port=port, workers=workers, **options)
