"""Sends the rewards in a client's buffer. `tools/generate_sync_client.py` makes reward_sender.py from this file."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from kofn.client import calls
from kofn.client.background import AsyncAlarm, AsyncBackground, log
from kofn.client.stock import Buffer, OnError, Pairs, RefusedReward
from kofn.core import KofnError, NoSuchCampaign, NotAllowed, Unreachable
from kofn.core.responses import Buffered, Rewarded


class AsyncRewardSender:
    """Sends buffered rewards in the background, in batches, until the service has recorded or refused each of them."""

    def __init__(
        self,
        send: Any,
        background: AsyncBackground,
        size: int,
        flush_after: float,
        on_error: OnError | None,
    ) -> None:
        self._send, self._background, self._on_error = send, background, on_error
        self._size, self._flush_after = size, flush_after
        self.clear()

    def clear(self) -> None:
        """Start with an empty buffer: in the child of a fork, as the parent sends what it holds."""
        self._buffer = Buffer(self._size, self._flush_after)
        self._alarm, self._lock = AsyncAlarm(), asyncio.Lock()

    @property
    def waiting(self) -> int:
        """The number of rewards in the buffer."""
        return len(self._buffer)

    def add(self, campaign: str, rewards: Mapping[str, float] | Iterable[tuple[str, float]]) -> Buffered:
        """Put rewards into the buffer."""
        pairs = calls.reward_pairs(rewards)
        if self._buffer.add(campaign, pairs):
            self._background.start(self._send_in_background)
        elif not self._buffer.seconds_left():
            self._alarm.ring()
        return Buffered(0, 0, buffered=len(pairs))

    async def flush(self) -> Rewarded:
        """Send all rewards in the buffer, and return what was recorded since the last flush."""
        await self._send_all()
        return self._buffer.results()

    async def close(self) -> None:
        """Send all rewards in the buffer and take no more. What cannot be sent is lost, and reported."""
        self._buffer.close()
        self._alarm.ring()
        try:
            await self.flush()
        except Unreachable as error:
            lost = len(self._buffer)
            while batch := self._buffer.take():
                self._refuse(*batch, error)
            raise Unreachable(f"{lost:,} rewards in the buffer could not be sent and are lost: {error}") from error

    async def _send_in_background(self) -> None:
        buffer = self._buffer
        while not buffer.stop_sending():
            await self._alarm.wait(buffer.seconds_left())
            try:
                await self._send_all()
            except Exception as error:
                log.warning("%d rewards wait in the buffer: %s", len(buffer), error)
                await self._alarm.wait(calls.MAX_DELAY)

    async def _send_all(self) -> None:
        """Send what is in the buffer. After a campaign that fails the others are still sent."""
        failed: dict[str, Unreachable] = {}
        async with self._lock:
            while batch := self._buffer.take(skip=failed):
                try:
                    await self._send_batch(*batch)
                except Unreachable as error:
                    failed[batch[0]] = error
        if failed:
            raise next(iter(failed.values()))

    async def _send_batch(self, campaign: str, pairs: Pairs) -> None:
        """Send rewards of a campaign. A batch that is refused is sent in halves, so that only bad rewards are lost."""
        parts = [pairs]
        try:
            while parts:
                part = parts[-1]
                try:
                    self._buffer.recorded(len(part), await self._send(calls.rewards(campaign, part)))
                except Unreachable:
                    raise
                except (NotAllowed, NoSuchCampaign) as error:  # concerns all of them
                    self._refuse(campaign, part, error)
                except Exception as error:
                    if len(part) > 1:
                        parts[-1:] = [part[len(part) // 2 :], part[: len(part) // 2]]
                        continue
                    self._refuse(campaign, part, error)
                parts.pop()
        finally:
            self._buffer.put_back(campaign, [pair for part in reversed(parts) for pair in part])

    def _refuse(self, campaign: str, pairs: Pairs, error: Exception) -> None:
        reason = error if isinstance(error, KofnError) else calls.not_sent(error)
        log.error("%d rewards of %s, from %a on, are not recorded: %s", len(pairs), campaign, pairs[0][0], reason)
        for id, value in pairs:
            refused = RefusedReward(campaign, id, value, reason)
            self._buffer.refuse(refused)
            if self._on_error is not None:
                try:
                    self._on_error(refused)
                except Exception:
                    log.exception("on_error failed for %r", refused)
