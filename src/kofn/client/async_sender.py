"""Sends the rewards in the buffer of an asyncio client. `tools/generate_sync_client.py` makes sync_sender.py of it."""

from __future__ import annotations

import asyncio
from typing import Any

from kofn.client import calls
from kofn.client.background import AsyncBackground, AsyncWakeup, log
from kofn.client.calls import Item, Items, Kind
from kofn.client.stock import Buffer, Line, OnError
from kofn.core import KofnError, NoSuchCampaign, NotAllowed, Unreachable
from kofn.core.responses import Buffered, Rewarded


class AsyncSender:
    """Sends buffered rewards in the background, in batches, until the service has recorded or refused each of them."""

    def __init__(self, send: Any, background: AsyncBackground, buffer: Buffer, on_error: OnError | None) -> None:
        self._send, self._background, self._buffer, self._on_error = send, background, buffer, on_error
        self._wakeup, self._sending = AsyncWakeup(), asyncio.Lock()

    @property
    def waiting(self) -> int:
        """The number of rewards in the buffer."""
        return len(self._buffer)

    def add(self, campaign: str, kind: Kind, given: Items) -> Buffered:
        """Put rewards, additions or metrics into the buffer."""
        calls.campaign_path(campaign)
        items = calls.checked_items(kind, given)
        if self._buffer.add((campaign, kind), items):
            self._background.start(self._send_when_due)
        elif not self._buffer.seconds_left():
            self._wakeup.set()
        return Buffered(0, 0, buffered=len(items))

    async def flush(self) -> Rewarded:
        """Send all rewards in the buffer, and return what was recorded since the last flush."""
        await self._send_all()
        return self._buffer.results()

    async def close(self, timeout: float) -> None:
        """Send all rewards in the buffer and take no more. What cannot be sent in time is lost, and reported."""
        self._buffer.close()
        self._wakeup.set()
        try:
            await self._background.within(timeout, self.flush)
        except (Unreachable, TimeoutError) as error:
            late = Unreachable(f"the service did not respond within {timeout:g} seconds")
            reason, lost = late if isinstance(error, TimeoutError) else error, len(self._buffer)
            while batch := self._buffer.first():
                self._refuse(*batch, reason)
            if lost:
                raise Unreachable(f"{lost:,} rewards in the buffer could not be sent and are lost: {reason}") from error

    async def _send_when_due(self) -> None:
        while True:
            self._wakeup.clear()
            await self._wakeup.sleep(self._buffer.seconds_left())
            if self._buffer.stop_sending():
                return
            try:
                await self._send_all()
            except Exception as error:
                log.warning("%d rewards wait in the buffer: %s", len(self._buffer), error)
                self._buffer.pause(calls.MAX_DELAY)

    async def _send_all(self) -> None:
        """Send what is in the buffer. After a campaign that fails, each other one is still sent, without retries."""
        failed: dict[str, Unreachable] = {}
        async with self._sending:
            while batch := self._buffer.first(skip=failed):
                try:
                    await self._send_batch(*batch, retry_for=0.0 if failed else None)
                except Unreachable as error:
                    failed[batch[0][0]] = error
        if failed:
            raise next(iter(failed.values()))

    async def _send_batch(self, line: Line, items: list[Item], retry_for: float | None) -> None:
        """Send a batch. If it is refused, it is sent in halves, so that only bad rewards are lost."""
        parts = [items]
        while parts:
            part = parts.pop()
            half = len(part) // 2
            try:
                answer = await self._send(calls.report(*line, part), retry_for=retry_for)
            except Unreachable:
                raise
            except Exception as error:
                if half and not isinstance(error, NotAllowed | NoSuchCampaign):  # these concern all of them
                    parts += [part[half:], part[:half]]
                else:
                    self._refuse(line, part, error)
            else:
                self._buffer.record(line, len(part), answer)

    def _refuse(self, line: Line, items: list[Item], error: Exception) -> None:
        reason = error if isinstance(error, KofnError) else calls.not_sent(error)
        log.error("%d rewards of %s, from %a on, are not recorded: %s", len(items), line[0], items[0][0], reason)
        for refused in self._buffer.refuse(line, len(items), reason):
            if self._on_error is not None:
                try:
                    self._on_error(refused)
                except Exception:
                    log.exception("on_error failed for %r", refused)
