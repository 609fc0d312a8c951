"""The webhook: events of campaigns are posted to a URL that the operator chose, at least once each.

One of all processes on a store does it. An event counts as sent once the receiver has answered with a status from 200
to 299; until then it is tried again, for a day. The store has the number of the latest event that was sent, so nothing
is lost or repeated when the service restarts. No request waits for it.
"""

from __future__ import annotations

import hmac
import json
import math
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from sqlalchemy import func, select, update

from kofn import __version__
from kofn.campaigns import Store
from kofn.campaigns.lease import Lease
from kofn.campaigns.reports.alarms import ADVICE
from kofn.campaigns.store.schema import CAMPAIGNS, JOURNAL
from kofn.campaigns.store.statements import chunks
from kofn.core.responses import moment
from kofn.service.monitoring.metrics import Metrics
from kofn.service.monitoring.quiet_log import QuietLog

KINDS = ("ready", "shipped", "breaker", "alarm", "alarm over", "paused", "resumed", "stopped")
"""Kinds of events that are posted."""

SECRET = "KOFN_WEBHOOK_SECRET"
"""Environment variable with the key that signs what is posted."""

SIGNATURE = "Kofn-Signature"
"""Header with the signature: `sha256=`, and the HMAC-SHA-256 of the body in hexadecimal digits."""

POLL_SECONDS = 2.0
"""Seconds between two looks for new events. Lower values post sooner and query more often."""

TIMEOUT = 10.0
"""Seconds after which a receiver that does not answer has failed."""

MAX_REASON = 200
"""Characters of the reason of a failure that are logged. The receiver may have written them."""

FIRST_RETRY, MAX_RETRY = 2.0, 300.0
"""Seconds until the first retry, and between later ones. The delay doubles with each."""

MAX_AGE = 24 * 3600.0
"""Seconds after which an event is no longer sent. A webhook that is used for the first time leaves out older events."""


@dataclass(frozen=True)
class Notice:
    """An event that is to be posted."""

    campaign: int
    name: str
    number: int
    at: float
    kind: str
    message: str

    def body(self) -> bytes:
        """Return what is posted. Its id has the time, because numbers are used again after a backup is restored."""
        message, _, advice = self.message.partition(ADVICE)
        content: dict[str, Any] = {"id": f"{self.campaign}-{self.number}-{int(self.at)}", "campaign": self.name}
        content |= {"number": self.number, "kind": self.kind, "at": moment(self.at).isoformat(), "message": message}
        return json.dumps(content | ({"advice": advice} if advice else {})).encode()


class _NoRedirects(HTTPRedirectHandler):
    """A redirect is a failure: only the operator's URL gets events."""

    def redirect_request(self, *_: Any) -> None:
        """Follow no redirect."""
        return


class _Connection(HTTPConnection):
    """A connection that ends if the answer takes longer than `TIMEOUT`. The timeout of a socket is for each piece."""

    def getresponse(self) -> HTTPResponse:
        """Return the answer, or raise TimeoutError."""
        late = threading.Event()
        timer = threading.Timer(TIMEOUT, _end, (self.sock, late))
        timer.daemon = True
        timer.start()
        try:
            return super().getresponse()
        except (OSError, HTTPException) as error:
            if late.is_set():
                raise TimeoutError(f"no answer within {TIMEOUT:g} seconds") from error
            raise
        finally:
            timer.cancel()


def _end(connection: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):  # it has just ended
        socket.socket.shutdown(connection, socket.SHUT_RDWR)  # of TCP: the thread that waits may use TLS


class _SecureConnection(_Connection, HTTPSConnection):
    """The same, with TLS."""


class _Http(HTTPHandler):
    def http_open(self, request: Request) -> HTTPResponse:
        """Post over HTTP."""
        return self.do_open(_Connection, request)


class _Https(HTTPSHandler):
    def https_open(self, request: Request) -> HTTPResponse:
        """Post over HTTPS."""
        return self.do_open(_SecureConnection, request)


class Webhook:
    """Posts events. `step` posts what is due, and returns the seconds until the next step."""

    def __init__(self, store: Store, url: str, secret: str | None, metrics: Metrics) -> None:
        self._store, self._url, self._secret, self._metrics = store, url, secret, metrics
        self._lease = Lease(store, "webhook")
        self._open = build_opener(_NoRedirects, _Http, _Https).open
        self._seen: dict[int, int] = {}  # id of a campaign: number of its latest event that was looked at
        self._sums: Any = None  # number of campaigns, of their events, and the highest id, at the last look
        self._queues: dict[int, deque[Notice]] = {}  # events to be posted, by id of the campaign
        self._retry: dict[int, tuple[float, float]] = {}  # id of a campaign: when to retry, and the delay before
        self._log = QuietLog()

    def step(self) -> float:
        """Post what is due, up to the first failure."""
        if not self._lease.held():  # another process does it
            self._seen, self._queues, self._retry, self._sums = {}, {}, {}, None
            return POLL_SECONDS
        for notice in list(self._new_notices()):  # all of them are read, or none
            self._queues.setdefault(notice.campaign, deque()).append(notice)
        now = self._store.clock()
        for campaign in [each for each in self._queues if self._is_due(each, now)]:
            queue = self._queues[campaign]
            while queue:
                if not self._lease.held():
                    return POLL_SECONDS
                if not self._sent(queue[0]):
                    return POLL_SECONDS
                queue.popleft()
            del self._queues[campaign]
        return POLL_SECONDS

    def _is_due(self, campaign: int, now: float) -> bool:
        """Return whether to post what a campaign has: its retry is due, or the clock was set back meanwhile."""
        at, delay = self._retry.get(campaign, (0.0, 0.0))
        return not at - delay <= now < at

    def _new_notices(self) -> Iterator[Notice]:
        """Yield the events that have not been looked at, in order for each campaign."""
        columns = CAMPAIGNS.c
        with self._store.read() as connection:
            sums = tuple(
                connection.execute(select(func.count(), func.sum(columns.journal), func.max(columns.id))).one()
            )
            if sums == self._sums:
                return
            behind = select(columns.id, columns.name, columns.journal, columns.notified)
            rows = connection.execute(behind.where(columns.journal > columns.notified)).all()
            new = {row.id: row for row in rows if self._seen.get(row.id, 0) != row.journal}
            for ids in chunks(list(new)):
                chosen = JOURNAL.c.campaign.in_(ids), JOURNAL.c.kind.in_(KINDS)
                fresh = JOURNAL.c.at > self._store.clock() - MAX_AGE
                events = select(JOURNAL).where(*chosen, fresh).order_by(JOURNAL.c.campaign, JOURNAL.c.number)
                for event in connection.execute(events):
                    row, seen = new[event.campaign], self._seen.get(event.campaign, 0)
                    known = max(row.notified, seen if seen <= row.journal else 0)  # a restored backup has fewer events
                    if known < event.number <= row.journal:
                        yield Notice(row.id, row.name, event.number, event.at, event.kind, event.message)
        self._seen |= {id: row.journal for id, row in new.items()}
        self._sums = sums

    def _sent(self, notice: Notice) -> bool:
        """Post an event, and return whether it is done with: sent, or too old."""
        now, (_, delay) = self._store.clock(), self._retry.get(notice.campaign, (0.0, FIRST_RETRY / 2))
        why = self._post(notice)
        self._metrics.webhook.labels("failed" if why else "delivered").inc()
        if why and now - notice.at < MAX_AGE:
            delay = min(2 * delay, MAX_RETRY)
            self._retry[notice.campaign] = now + delay, delay
            where = urlsplit(self._url).hostname  # the rest may be secret
            message = "the webhook at %s did not accept %r of %r: %s. Trying again in %d seconds"
            self._log.warning("webhook", message, where, notice.kind, notice.name, why, math.ceil(delay))
            return False
        if why:
            self._log.warning("given up", "the webhook gave up %r of %r after a day", notice.kind, notice.name)
        self._retry.pop(notice.campaign, None)
        with self._store.write() as connection:
            done = update(CAMPAIGNS).where(CAMPAIGNS.c.id == notice.campaign, CAMPAIGNS.c.notified < notice.number)
            connection.execute(done.values(notified=notice.number))
        return True

    def _post(self, notice: Notice) -> str:
        """Post an event. Return why that failed, or an empty string."""
        body = notice.body()
        headers = {"Content-Type": "application/json", "User-Agent": f"kofn/{__version__}"}
        if self._secret:
            headers[SIGNATURE] = "sha256=" + hmac.digest(self._secret.encode(), body, "sha256").hex()
        try:
            with self._open(Request(self._url, body, headers, method="POST"), timeout=TIMEOUT):
                return ""
        except HTTPError as error:
            error.close()
            return f"status {error.code}"
        except (OSError, HTTPException) as error:
            return str(error)[:MAX_REASON] or type(error).__name__
