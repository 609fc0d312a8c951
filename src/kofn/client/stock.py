"""The stock of decisions and the buffer of reports of a client: what is held, for how long, and what is due next.

Nothing is sent here. The clients ask these classes what to do, and do it. All methods are thread-safe and take
microseconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from itertools import islice

from kofn.client.calls import Item, Kind
from kofn.core import KofnError, RewardsRefused, Unreachable
from kofn.core.responses import Decision, Rewarded

DEMAND_SECONDS = 1.0
"""Seconds of demand that a stock holds, if its size allows. Higher values bridge longer pauses of the service, and
leave more decisions unused when the demand stops."""

REFILL_PAUSE = 1.0
"""Seconds without a refill after one failed. Lower values ask a service that does not respond more often."""

CAPACITY = 100
"""Most rewards in a buffer, in multiples of its size. Higher values bridge a longer outage and take more memory."""

MAX_REFUSED = 1000
"""Most refused rewards that are kept until the next flush. All of them are counted, and passed to `on_error`."""

Clock = Callable[[], float]
Line = tuple[str, Kind]
"""A campaign, and what is reported to it: what is sent in one request."""


@dataclass(frozen=True)
class Refill:
    """A request for `count` decisions that a stock needs. `epoch` is the number of times it had been emptied."""

    count: int
    epoch: int
    begun: float


class Stock:
    """Decisions that a client holds in advance for one campaign, at most `size` of them.

    It holds as many as were taken in about the last second, so that few are left over when the demand stops. The oldest
    is taken first. Decisions older than `stale_after` seconds are dropped.
    """

    def __init__(self, size: int, stale_after: float, clock: Clock = time.monotonic) -> None:
        self._size, self._stale_after, self._clock = size, stale_after, clock
        self._lock = threading.Lock()
        self._held: deque[tuple[float, Decision]] = deque()
        self._demand, self._last, self._pause_until = 0.0, 0.0, -math.inf
        self._epoch, self._refilling = 0, False

    def __len__(self) -> int:
        return len(self._held)

    def take(self) -> tuple[Decision | None, Refill | None]:
        """Return a decision, None if there is none, and the refill that is due now, if any.

        Exactly one caller gets a refill. It must pass it to `finish_refill`, whatever happens.
        """
        now = self._clock()
        with self._lock:
            # the number of calls, each weighted by exp(-age): about rate * DEMAND_SECONDS, plus this call
            self._demand = 1.0 + self._demand * math.exp(min(0.0, self._last - now) / DEMAND_SECONDS)
            self._last = now
            return self._oldest(now), self._start_refill(now)

    def _oldest(self, now: float) -> Decision | None:
        while self._held:
            begun, decision = self._held.popleft()
            if now - begun < self._stale_after:
                return decision
        return None

    def _start_refill(self, now: float) -> Refill | None:
        target = min(self._size, int(self._demand) - 1)
        if self._refilling or now < self._pause_until or target < 1 or 2 * len(self._held) > target:
            return None
        self._refilling = True
        return Refill(target - len(self._held), self._epoch, now)

    def finish_refill(self, refill: Refill, decisions: Sequence[Decision]) -> None:
        """Add the decisions of a refill; none if it failed. They are dropped if the stock was emptied meanwhile."""
        with self._lock:
            if refill.epoch != self._epoch:
                return
            self._refilling = False
            self._held += [(refill.begun, each) for each in decisions]
            if not decisions:
                self._pause_until = self._clock() + REFILL_PAUSE

    def clear(self) -> None:
        """Drop all decisions, including decisions of a refill under way."""
        with self._lock:
            self._held.clear()
            self._epoch += 1
            self._refilling, self._pause_until = False, self._clock() + REFILL_PAUSE


@dataclass(frozen=True)
class RefusedReward:
    """A buffered reward that is not recorded, and the error that says why.

    `kind` is the method that took it: reward, add or record. `name` is the event of `add`, or the metric of `record`.
    """

    campaign: str
    id: str
    value: float
    error: KofnError
    kind: Kind = "reward"
    name: str = ""


OnError = Callable[[RefusedReward], object]


class Buffer:
    """Rewards, additions and metrics that the service has neither recorded nor refused yet, in batches of one kind.

    They are due when there are `size` of them, or after `flush_after` seconds.
    """

    def __init__(self, size: int, flush_after: float, clock: Clock = time.monotonic) -> None:
        self._size, self._flush_after, self._clock = size, flush_after, clock
        self._lock = threading.Lock()
        self._waiting: dict[Line, deque[Item]] = {}
        self._count, self._due, self._pause_until = 0, 0.0, -math.inf
        self._sending = self._closed = False
        self._recorded = Rewarded(0, 0)
        self._refused: list[RefusedReward] = []
        self._refused_count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, line: Line, items: Sequence[Item]) -> bool:
        """Add reports. Return whether the caller must start to send: then it sends until `stop_sending` returns True.

        A full or closed buffer raises Unreachable, and takes none of them.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("the client is closed, so the reward was not taken: create another client")
            if self._count and self._count + len(items) > CAPACITY * self._size:
                raise Unreachable(f"the reward was not taken: {self._count:,} already wait until the service responds")
            if not items:
                return False
            if not self._count:
                self._due = self._clock() + self._flush_after
            self._waiting.setdefault(line, deque()).extend(items)
            self._count += len(items)
            start, self._sending = not self._sending, True
            return start

    def seconds_left(self) -> float:
        """Return the seconds until the rewards are due: 0 when there are enough for a batch, or none."""
        with self._lock:
            if self._closed or not self._count:
                return 0.0
            due = self._pause_until if self._count >= self._size else max(self._due, self._pause_until)
            return max(0.0, due - self._clock())

    def pause(self, seconds: float) -> None:
        """Call no rewards due for some seconds, as after a failure."""
        self._pause_until = self._clock() + seconds

    def first(self, skip: Collection[str] = ()) -> tuple[Line, list[Item]] | None:
        """Return the next batch, of a campaign that is not in `skip`. It stays until `record` or `refuse`."""
        with self._lock:
            for line, waiting in self._waiting.items():
                if line[0] not in skip:
                    return line, list(islice(waiting, self._size))
        return None

    def record(self, line: Line, count: int, answer: Rewarded) -> None:
        """Remove the first items of a line, to which the service gave this answer."""
        with self._lock:
            self._remove(line, count)
            self._recorded = _added(self._recorded, answer)

    def refuse(self, line: Line, count: int, error: KofnError) -> list[RefusedReward]:
        """Remove the first items of a line, which are not recorded, and return them."""
        with self._lock:
            campaign, kind = line
            removed = self._remove(line, count)
            refused = [RefusedReward(campaign, id, value, error, kind, *name) for id, value, *name in removed]
            self._refused_count += len(refused)
            self._refused += refused[: MAX_REFUSED - len(self._refused)]
            return refused

    def _remove(self, line: Line, count: int) -> list[Item]:
        waiting = self._waiting.get(line, deque())
        removed = [waiting.popleft() for _ in range(min(count, len(waiting)))]
        if not waiting:
            self._waiting.pop(line, None)
        self._count -= len(removed)
        return removed

    def stop_sending(self) -> bool:
        """Return whether nothing waits: the next reward then starts to send again. Closing sends the rest itself."""
        with self._lock:
            self._sending = self._count > 0 and not self._closed
            return not self._sending

    def results(self) -> Rewarded:
        """Return what was recorded since the last call, or raise RewardsRefused if something was refused since then."""
        with self._lock:
            recorded, refused, count = self._recorded, self._refused, self._refused_count
            self._recorded, self._refused, self._refused_count = Rewarded(0, 0), [], 0
        if refused:
            first = refused[0]
            raise RewardsRefused(
                f"{count:,} buffered reward(s) were not recorded; the first, of decision {first.id!a} of the campaign "
                f"{first.campaign!r}: {first.error}",
                refused,
            ) from first.error
        return recorded

    def close(self) -> None:
        """Take no more rewards."""
        with self._lock:
            self._closed = True


def _added(one: Rewarded, other: Rewarded) -> Rewarded:
    names = [each.name for each in fields(Rewarded)]
    return Rewarded(*(getattr(one, name) + getattr(other, name) for name in names))
