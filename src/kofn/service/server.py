"""Starts the service: one process, or many on one address, and refuses to be public without a token."""

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
from kofn.service.metrics import FOLDER
from kofn.service.settings import Settings, is_loopback
from kofn.service.tokens import any_token

PATIENCE = 30
"""Seconds that requests have to end when the service stops; an answer takes thousandths of one."""

BACKLOG = 2048
"""Connections that may wait to be taken."""

APP = "kofn.service.app:from_environment"


def check_safe(host: str, settings: Settings) -> None:
    """Refuse an address that others can reach, while anybody could do anything."""
    if not is_loopback(host) and not any_token(store_at(settings.store)):
        raise BadInput(
            f"{host} can be reached from outside, and there is no token yet, so anybody could do anything: "
            "make one with `kofn token create NAME`, for the same store, or listen on 127.0.0.1"
        )


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on that address, so that whoever comes before the service is ready waits; or BadInput."""
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    made = socket.socket(family, kind)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        made.bind(address)
        made.listen(BACKLOG)
    except OSError as why:
        made.close()
        raise BadInput(f"cannot listen on {host}, port {port}: {why.strerror or why}") from why
    return made


def serve(
    place: socket.socket, settings: Settings, *, workers: int = 1, demo: bool = False, access: bool = False
) -> None:
    """Answer requests until a signal says stop; then finish what has begun, and return."""
    settings.keep()
    host, port = place.getsockname()[:2]
    usual: dict[str, Any] = {
        "factory": True,
        "log_level": "info" if access else "warning",
        "access_log": access,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_graceful_shutdown": PATIENCE,
    }
    with ExitStack() as stack:
        if demo:
            player = Demo(store_at(settings.store))
            player.start()
            stack.callback(player.stop)
        if workers == 1:
            uvicorn.Server(uvicorn.Config(APP, **usual)).run([place])
        else:
            os.environ[FOLDER] = stack.enter_context(tempfile.TemporaryDirectory(prefix="kofn-metrics-"))
            place.close()
            uvicorn.run(APP, host=host, port=port, workers=workers, **usual)
