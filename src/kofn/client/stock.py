"""The stock of decisions and the buffer of rewards of a client: what is held, for how long, and what is due next.

Nothing is sent here. The clients ask these classes what to do, and do it. All methods are thread-safe and take
microseconds.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields

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
Pairs = list[tuple[str, float]]


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
        """Drop all decisions, and those of a refill under way."""
        with self._lock:
            self._held.clear()
            self._epoch += 1
            self._refilling, self._pause_until = False, self._clock() + REFILL_PAUSE


@dataclass(frozen=True)
class RefusedReward:
    """A buffered reward that is not recorded, and the error that says why."""

    campaign: str
    id: str
    value: float
    error: KofnError


OnError = Callable[[RefusedReward], object]


class Buffer:
    """Rewards that wait to be sent, in batches of at most `size`, and for at most `flush_after` seconds.

    Its length includes the rewards of a batch that is being sent, until `recorded`, `refuse` or `put_back` is called.
    """

    def __init__(self, size: int, flush_after: float, clock: Clock = time.monotonic) -> None:
        self._size, self._flush_after, self._clock = size, flush_after, clock
        self._lock = threading.Lock()
        self._waiting: dict[str, deque[tuple[str, float]]] = {}
        self._count, self._taken, self._since = 0, 0, 0.0
        self._sending = self._closed = False
        self._done = Rewarded(0, 0)
        self._refused: list[RefusedReward] = []
        self._refused_count = 0

    def __len__(self) -> int:
        return self._count + self._taken

    def add(self, campaign: str, pairs: Sequence[tuple[str, float]]) -> bool:
        """Add rewards. Return whether the caller must start to send: then it sends until `stop_sending` returns True.

        A full or closed buffer raises Unreachable, and takes none of them.
        """
        with self._lock:
            if self._closed:
                raise Unreachable("the client is closed, so the reward was not taken: create another client")
            if len(self) and len(self) + len(pairs) > CAPACITY * self._size:
                raise Unreachable(f"the reward was not taken: {len(self):,} already wait until the service responds")
            if not self._count:
                self._since = self._clock()
            self._waiting.setdefault(campaign, deque()).extend(pairs)
            self._count += len(pairs)
            start, self._sending = not self._sending and self._count > 0, self._sending or self._count > 0
            return start

    def seconds_left(self) -> float:
        """Return the seconds until the rewards are due: 0 when there are enough for a batch."""
        with self._lock:
            if self._count >= self._size:
                return 0.0
            return max(0.0, self._since + self._flush_after - self._clock())

    def take(self, skip: Iterable[str] = ()) -> tuple[str, Pairs] | None:
        """Remove and return the next batch, of one campaign that is not in `skip`; None if there is none."""
        with self._lock:
            campaign = next((name for name in self._waiting if name not in skip), None)
            if campaign is None:
                return None
            waiting = self._waiting[campaign]
            pairs = [waiting.popleft() for _ in range(min(self._size, len(waiting)))]
            if not waiting:
                del self._waiting[campaign]
            self._count -= len(pairs)
            self._taken += len(pairs)
            return campaign, pairs

    def put_back(self, campaign: str, pairs: Pairs) -> None:
        """Return rewards of a batch that were not sent to the front."""
        if not pairs:
            return
        with self._lock:
            self._waiting.setdefault(campaign, deque()).extendleft(reversed(pairs))
            self._count += len(pairs)
            self._taken -= len(pairs)

    def stop_sending(self) -> bool:
        """Return whether nothing waits: the next reward then starts to send again."""
        with self._lock:
            self._sending = self._count > 0
            return not self._sending

    def recorded(self, count: int, answer: Rewarded) -> None:
        """Note what the service answered to `count` rewards."""
        with self._lock:
            self._taken -= count
            self._done = _added(self._done, answer)

    def refuse(self, refused: RefusedReward) -> None:
        """Note a reward that was not recorded."""
        with self._lock:
            self._taken -= 1
            self._refused_count += 1
            if len(self._refused) < MAX_REFUSED:
                self._refused.append(refused)

    def results(self) -> Rewarded:
        """Return what was recorded since the last call, or raise RewardsRefused if something was refused since then."""
        with self._lock:
            done, refused, count = self._done, self._refused, self._refused_count
            self._done, self._refused, self._refused_count = Rewarded(0, 0), [], 0
        if refused:
            first = refused[0]
            raise RewardsRefused(
                f"{count:,} buffered reward(s) were not recorded; the first, of decision {first.id!a} of the campaign "
                f"{first.campaign!r}: {first.error}",
                refused,
            ) from first.error
        return done

    def close(self) -> None:
        """Take no more rewards."""
        with self._lock:
            self._closed = True


def _added(one: Rewarded, other: Rewarded) -> Rewarded:
    names = [each.name for each in fields(Rewarded)]
    return Rewarded(*(getattr(one, name) + getattr(other, name) for name in names))
