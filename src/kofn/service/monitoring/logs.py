"""Logs of the service: lines of text or JSON, a request id for every request, and optionally a line per request."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from starlette.types import Scope

from kofn.campaigns.store.stamps import new_stamp
from kofn.service.messages.errors import is_head, route_path
from kofn.service.settings import ServiceSettings

access = logging.getLogger("kofn.access")

REQUEST_ID = re.compile(r"[A-Za-z0-9._:/+=@-]{1,100}")
"""What an X-Request-Id of the client must look like. Others are replaced, so that they cannot forge log lines."""

FIELDS = ("request_id", "method", "path", "status", "seconds", "token", "address")
"""Fields of a JSON line that only lines about a request have."""

REPEATS = 10.0
"""Seconds in which uvicorn's warnings about invalid requests are logged once. Strangers cannot fill the log."""

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


def configure(settings: ServiceSettings) -> None:
    """Send the log to stderr in the configured format. Every process of the service calls this.

    What libraries say is part of it, such as the warnings of a database driver that lost its connection, and the
    warnings of Python.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if settings.log_format == "json" else TextFormatter())
    handler.addFilter(_add_request_id)
    handler.addFilter(RepeatFilter())
    for name, level in (("", logging.WARNING), ("kofn", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)
    logging.captureWarnings(True)


def _add_request_id(record: logging.LogRecord) -> bool:
    if not hasattr(record, "request_id"):
        record.request_id = request_id.get()
    return True


class RepeatFilter(logging.Filter):
    """Drops warnings of uvicorn that repeat within `REPEATS` seconds."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[Any, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log a record."""
        if record.name != "uvicorn.error" or record.levelno > logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._last.get(record.msg, -REPEATS) < REPEATS:
            return False
        self._last = {each: at for each, at in self._last.items() if now - at < REPEATS} | {record.msg: now}
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and for requests the fields of `FIELDS`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON."""
        line: dict[str, Any] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {name: value for name in FIELDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=True, default=str)


class TextFormatter(logging.Formatter):
    """One line per record. Control characters are escaped, so that nobody can forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as text."""
        message = "".join(each if each.isprintable() else repr(each)[1:-1] for each in record.getMessage())
        id = getattr(record, "request_id", None)
        line = f"{_time(record)} {record.levelname.lower()} {record.name}: {message}{f' [{id}]' if id else ''}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def id_of(given: str) -> str:
    """Return the id of a request: the client's X-Request-Id if it is valid, or a random one."""
    return given if given and REQUEST_ID.fullmatch(given) else f"{new_stamp(64):016x}"


def log_request(scope: Scope, status: int, seconds: float) -> None:
    """Log one request."""
    granted = scope.get("state", {}).get("access")
    fields = {
        "method": "HEAD" if is_head(scope) else scope["method"],
        "path": route_path(scope),
        "status": status or None,  # None: the client was gone before the response
        "seconds": round(seconds, 6),
        "token": getattr(granted, "token", None),
        "address": (scope.get("client") or [None])[0],
    }
    method, path, *rest = fields.values()
    access.info("%s %s %s %.4f s token=%s from %s", method, path, *rest, extra=fields)
