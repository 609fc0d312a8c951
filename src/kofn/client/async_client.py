"""The asyncio client of `kofn serve`. `tools/generate_sync_client.py` makes sync_client.py of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import Any, Self, TypeVar, Unpack, overload

import httpx

from kofn.client import calls
from kofn.client.async_sender import AsyncSender
from kofn.client.background import AsyncBackground, log, remember
from kofn.client.calls import Items, Kind, Request
from kofn.client.stock import Buffer, OnError, Refill, Stock
from kofn.core import Unreachable, whole
from kofn.core.campaign_settings import ChangedSettings, CreationSettings
from kofn.core.responses import (
    CampaignInsight,
    CampaignSettings,
    Decision,
    EstimatePoint,
    Event,
    LoggedDecision,
    OpenDecision,
    Point,
    Rewarded,
    Segments,
    Summary,
    Verification,
)

T = TypeVar("T")

MOST_STOCKS = 1000
"""Most stocks of a client: one for each campaign and context. Beyond it, `decide()` asks the service."""


class AsyncClient:
    """A client of `kofn serve`. Its campaigns have the methods of `kofn.Campaign`::

        async with kofn.AsyncClient("https://kofn.example.com", token="kofn_...") as client:
            campaign = client.campaign("front-page")
            decision = await campaign.decide()
            await campaign.reward(decision.id, 12.5)

    While the service is unreachable or busy, idempotent requests are retried with increasing delays for `retry_for`
    seconds. Rewards are idempotent: the service records each one once. So are decisions: a repeated request returns the
    same ones. Many tasks may share a client.

    `prefetch` and `buffer` are for many decisions per second; 0 turns each of them off.

    With `prefetch=100`, `decide()` takes decisions from a stock of up to 100 per campaign and context, which is
    refilled in the background. It takes microseconds, and asks the service only when the stock is empty. Decisions that
    stay in the stock for `stale_after` seconds are dropped: this is how long a client goes on after another one has
    paused the campaign or retired an arm. `decide(count)` and `decide(key=...)` always ask the service.

    With `buffer=100`, `reward()`, `add()` and `record()` use a buffer and return a `Buffered` response. The buffer is
    sent in batches of 100, or after `flush_after` seconds. `flush` and `close` send the rest, and raise RewardsRefused
    if the service refused a reward; `on_error` gets each refused reward at once. If the process dies, rewards in the
    buffer are lost, and decisions in the stock expire.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
        prefetch: int = 0,
        stale_after: float = 10.0,
        buffer: int = 0,
        flush_after: float = 1.0,
        on_error: OnError | None = None,
    ) -> None:
        self._make_http = partial(httpx.AsyncClient, **calls.client_options(url, token, timeout), transport=transport)
        self._retry_for = retry_for
        self._prefetch, self._stale_after = whole("prefetch", prefetch, least=0), stale_after
        self._buffer_size, self._flush_after, self._on_error = whole("buffer", buffer, least=0), flush_after, on_error
        self._reset()
        self._http  # noqa: B018  # a bad URL is refused here
        remember(self)

    def _reset(self) -> None:
        """Hold nothing: at first, and in the child of a fork, where all of it is the parent's."""
        self.__dict__.pop("_http", None)  # made when it is needed: many children never use it
        self._background = AsyncBackground()
        self._stocks: dict[tuple[str, str], Stock] = {}  # by campaign and context
        self._sender: AsyncSender | None = None
        if self._buffer_size:
            buffer = Buffer(self._buffer_size, self._flush_after)
            self._sender = AsyncSender(self.send, self._background, buffer, self._on_error)

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return self._make_http()

    async def send(self, call: Request[T], *, retry_for: float | None = None) -> T:
        """Send a request, with retries, and return its result."""
        return calls.read_response(call, await self._respond(call, retry_for))

    async def stream(self, call: Request[T]) -> AsyncIterator[T]:
        """Yield what each line of a streamed response has. The request is retried until the response begins."""
        response = await self._respond(call, None, stream=True)
        try:
            async for line in response.aiter_lines():
                yield calls.read_line(call, line)
        except httpx.TransportError as error:
            raise calls.interrupted(error, self._http.base_url) from error
        finally:
            await response.aclose()

    async def _respond(self, call: Request[T], retry_for: float | None, *, stream: bool = False) -> httpx.Response:
        """Return the response to a request, after retries, or raise the error that the last response describes."""
        begun, attempt = time.monotonic(), 0
        response: httpx.Response | None
        while True:
            deadline = begun + (self._retry_for if retry_for is None else retry_for)
            if self._http.is_closed:
                raise Unreachable("the client is closed: create another client")
            request = self._http.build_request(call.method, call.path, json=call.body, params=call.query)
            try:
                response = await self._http.send(request, stream=stream)
                if response.is_success:
                    return response
                await response.aread()
                if response.status_code not in calls.RETRY_STATUSES or not call.idempotent:
                    raise calls.response_error(response)
            except httpx.TransportError as error:
                response = None
                if time.monotonic() > deadline or not calls.may_retry(call, error):
                    raise calls.unreachable(error, self._http.base_url) from error
            delay = calls.retry_delay(attempt, response)
            if response is not None and time.monotonic() + delay > deadline:
                raise calls.response_error(response)
            await asyncio.sleep(delay)
            attempt += 1

    async def flush(self) -> Rewarded:
        """Send the rewards in the buffer, and return how many were recorded since the last flush.

        Raises RewardsRefused if some were refused since then, and Unreachable if the service does not respond: then the
        rewards stay in the buffer.
        """
        return await self._sender.flush() if self._sender else Rewarded(0, 0)

    async def close(self, timeout: float = 10.0) -> None:
        """Send the rewards in the buffer, as `flush` does, for up to `timeout` seconds, and close the connections.

        Rewards that cannot be sent are lost: `on_error` gets each of them, and Unreachable says how many they are.
        """
        self._retry_for = min(self._retry_for, timeout)  # also for the requests under way
        try:
            if self._sender:
                await self._sender.close(timeout)
        finally:
            self._stocks.clear()
            await self._background.finish()
            await self._http.aclose()

    @property
    def waiting_rewards(self) -> int:
        """The number of rewards in the buffer."""
        return self._sender.waiting if self._sender else 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def campaign(self, name: str) -> AsyncRemoteCampaign:
        """Return the campaign of that name, without a request: its methods raise NoSuchCampaign if there is none."""
        return AsyncRemoteCampaign(self, name)

    async def campaigns(self, *, archived: bool = False) -> list[Summary]:
        """Return the summaries of all campaigns, or of the archived ones, ordered by name."""
        found: dict[str, Summary] = {}
        offset = 0
        while True:
            page, count = await self.send(calls.list_campaigns(offset, archived=archived))
            found |= {each.name: each for each in page}  # a campaign created meanwhile shifts the pages
            offset += len(page)
            if not page or offset >= count:
                return list(found.values())

    async def create(
        self,
        name: str,
        arms: Sequence[str],
        k: int = 5,
        **settings: Unpack[CreationSettings],
    ) -> AsyncRemoteCampaign:
        """Create a campaign, with the settings and defaults of `Campaign.create`."""
        created = await self.send(calls.create(name, arms, k, settings))
        return self.campaign(created.name)

    async def import_(self, exported: Mapping[str, Any], *, name: str | None = None) -> AsyncRemoteCampaign:
        """Import a campaign that `export` returned, under its own name or a new one."""
        created = await self.send(calls.import_(exported, name))
        return self.campaign(created.name)

    # The stock and the buffer, for the campaigns of this client.

    def _from_stock(self, name: str, context: Mapping[str, Any] | None) -> Decision | None:
        """Return a decision from the stock of a campaign, None if it is empty, and start a refill if one is due."""
        place = name, calls.context_text(context)
        stock = self._stocks.get(place)
        if stock is None:
            if len(self._stocks) >= MOST_STOCKS:
                return None
            stock = self._stocks.setdefault(place, Stock(self._prefetch, self._stale_after))
        decision, refill = stock.take()
        if refill is not None:
            self._background.start(self._refill, name, context, stock, refill)
        return decision

    async def _refill(self, name: str, context: Mapping[str, Any] | None, stock: Stock, refill: Refill) -> None:
        """Ask for the decisions that a stock needs. Later than `stale_after` they would be of no use."""
        decisions: list[Decision] = []
        try:
            call = calls.decide(name, refill.count, context=context)
            decisions = await self.send(call, retry_for=min(self._retry_for, self._stale_after))
        except Unreachable as error:
            log.warning("no decisions of %s for the stock: %s", name, error)
        except Exception as error:  # such as NotRunning: the next decide() asks the service, and raises it
            log.info("no decisions of %s for the stock: %s", name, error)
            stock.clear()
        finally:
            stock.finish_refill(refill, decisions)

    def _empty_stock(self, name: str) -> None:
        for (campaign, _), stock in list(self._stocks.items()):
            if campaign == name:
                stock.clear()

    async def health(self) -> bool:
        """Return whether the service and its store respond, without retries."""
        try:
            response = await self._http.get("/health")
        except httpx.TransportError:
            return False
        return response.is_success


class AsyncRemoteCampaign:
    """A campaign of a service, with the methods of `kofn.Campaign`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client, self.name = client, name

    @overload
    async def decide(
        self,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Decision: ...
    @overload
    async def decide(
        self,
        count: int,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> list[Decision]: ...
    async def decide(
        self,
        count: int | None = None,
        *,
        key: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Decision | list[Decision]:
        """Return the next decision, or a list of `count` decisions.

        The same `key` returns the same decisions. Without one the client sends a random key, so that its own retries
        never ask for more decisions than you get. `metadata`, a small dict, comes back in the export of decisions. With
        `prefetch`, one decision without a key and metadata comes from the stock. `context` says for whom, if the policy
        takes one.
        """
        if count is None and key is None and metadata is None and self._client._prefetch:
            decision = self._client._from_stock(self.name, context)
            if decision is not None:
                return decision
        call = calls.decide(self.name, 1 if count is None else count, key, metadata, context)
        decisions = await self._client.send(call)
        return decisions[0] if count is None else decisions

    async def reward(self, id: str | Decision, value: float) -> Rewarded:
        """Report the reward of a decision. Repeating it is harmless; another value raises Conflict.

        With `buffer`, the reward is sent later: the response is `Buffered`, and a later flush raises what is wrong.
        """
        return await self._report("reward", [(id, value)])

    async def rewards(
        self,
        rewards: Mapping[str, float] | Iterable[tuple[str, float]],
        *,
        partial: bool = False,
    ) -> Rewarded:
        """Report rewards of decisions, as {id: reward} or pairs. The batch is recorded completely or not at all.

        With `partial`, the others are recorded if some are refused; the response lists those. With `buffer`, they are
        sent later, and each one is recorded or refused on its own.
        """
        return await self._report("reward", rewards, partial)

    async def add(self, id: str | Decision, value: float, *, event: str) -> Rewarded:
        """Add to the reward of a decision. The same event counts once; another value for it raises Conflict.

        The campaign must have a window.
        """
        return await self._report("add", [(id, value, event)])

    async def adds(self, events: Iterable[tuple[str, float, str]], *, partial: bool = False) -> Rewarded:
        """Add to rewards of decisions, as tuples (id, value, event); `partial` and `buffer` as in `rewards`."""
        return await self._report("add", events, partial)

    async def record(self, id: str | Decision, name: str, value: float) -> Rewarded:
        """Report a metric of a decision beside its reward. Repeating it is harmless; another value raises Conflict."""
        return await self._report("record", [(id, name, value)])

    async def records(self, records: Iterable[tuple[str, str, float]], *, partial: bool = False) -> Rewarded:
        """Report metrics of decisions, as tuples (id, name, value); `partial` and `buffer` as in `rewards`."""
        return await self._report("record", records, partial)

    async def _report(self, kind: Kind, given: Items, partial: bool = False) -> Rewarded:
        if self._client._sender:
            return self._client._sender.add(self.name, kind, given)
        return await self._client.send(calls.report(self.name, kind, calls.checked_items(kind, given), partial=partial))

    async def reward_total(
        self,
        arms: Sequence[str],
        count: int,
        total: float,
        squares: float | None = None,
        *,
        key: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Rewarded:
        """Report the total reward of `count` plays of a subset. A total with the same `key` is recorded once."""
        return await self._client.send(calls.reward_total(self.name, arms, count, total, squares, key, context))

    async def summary(self) -> Summary:
        """Return the campaign at a glance."""
        return await self._client.send(calls.get(self.name, read=Summary.from_dict))

    async def insight(self, arms: int | None = None) -> CampaignInsight:
        """Return what the campaign has learned, with all arms or the best `arms` of them, best first."""
        return await self._client.send(calls.get(self.name, "insight", read=CampaignInsight.from_dict, arms=arms))

    async def best(self) -> list[str]:
        """Return the best subset, as far as is known."""
        insight = await self.insight(arms=0)
        return insight.best

    async def segments(self) -> Segments:
        """Return what is best for each segment, and which attributes of the context matter."""
        return await self._client.send(calls.get(self.name, "segments", read=Segments.from_dict))

    async def history(self, points: int = 2000) -> list[Point]:
        """Return plays and rewards over time, oldest first, in at most `points` points."""
        read = calls.read_list("points", Point)
        return await self._client.send(calls.get(self.name, "history", read=read, points=points))

    async def events(self, limit: int = 100) -> list[Event]:
        """Return the last `limit` events, newest first."""
        read = calls.read_list("events", Event)
        return await self._client.send(calls.get(self.name, "events", read=read, limit=limit))

    async def open_decisions(self, limit: int = 100) -> list[OpenDecision]:
        """Return the last `limit` decisions without a reward, newest first."""
        read = calls.read_list("decisions", OpenDecision)
        return await self._client.send(calls.get(self.name, "decisions", read=read, limit=limit))

    def decisions(self, *, rewarded: bool = False, since: datetime | None = None) -> AsyncIterator[LoggedDecision]:
        """Yield the stored decisions, oldest first, while they arrive; `rewarded` and `since` as in `Campaign`.

        Raises Unreachable if the connection breaks before the last one.
        """
        return self._client.stream(calls.decisions(self.name, rewarded=rewarded, since=since))

    async def estimates(self, points: int = 1000, *, arms: Sequence[str] = ()) -> list[EstimatePoint]:
        """Return what was known over time, oldest first: the expected loss, the lift, and the effects of `arms`."""
        read = calls.read_list("estimates", EstimatePoint)
        return await self._client.send(calls.get(self.name, "estimates", read=read, points=points, arm=list(arms)))

    async def settings(self) -> CampaignSettings:
        """Return the settings that `configure` changes."""
        return await self._client.send(calls.get(self.name, "settings", read=CampaignSettings.from_dict))

    async def verify(self) -> Verification:
        """Rebuild the policy and the counters from the log of rewards, and compare them with the store.

        The service reads the whole log. For a campaign with many rewards, raise the client's `timeout`.
        """
        return await self._client.send(calls.get(self.name, "verify", read=Verification.from_dict))

    async def export(self, *, with_secret: bool = False) -> dict[str, Any]:
        """Return the whole campaign as plain values, ready for JSON; `with_secret` as in `Campaign.export`."""
        given = True if with_secret else None
        call = calls.get(self.name, "export", read=calls.read_json, with_secret=given)
        found: dict[str, Any] = await self._client.send(call)
        return found

    async def configure(self, **settings: Unpack[ChangedSettings]) -> CampaignSettings:
        """Change settings while the campaign runs, and return them all; `kofn.core.responses` has them."""
        return await self._stop_playing(calls.configure(self.name, settings))

    async def add_arm(self, name: str, groups: Sequence[str] = ()) -> None:
        """Add an arm, or bring a retired one back. What was learned about the other arms is kept.

        It joins the rules whose names are in `groups`.
        """
        body = {"name": name} | ({"groups": list(groups)} if groups else {})
        await self._stop_playing(calls.change(self.name, "arms", body=body))

    async def retire_arm(self, name: str) -> None:
        """Retire an arm. It is no longer played; what was learned about the other arms is kept."""
        await self._stop_playing(calls.change(self.name, "arms", "retire", body={"name": name}))

    async def pause(self) -> None:
        """Pause the campaign. It makes no decisions until it is resumed, but still accepts rewards."""
        await self._stop_playing(calls.change(self.name, "pause", idempotent=True))

    async def resume(self) -> None:
        """Learn again after `pause` or `ship`."""
        await self._client.send(calls.change(self.name, "resume", idempotent=True))

    async def ship(self, arms: Sequence[str] | None = None, *, store: bool = True) -> None:
        """Give everyone the best subset, or these arms, from now on. Rewards are still counted; `resume` undoes it.

        If the policy takes a context, each segment gets its own best subset. With `store=False`, decisions are not
        stored when they are made, but with their rewards.
        """
        body = {"arms": None if arms is None else list(arms), "store": store}
        await self._stop_playing(calls.change(self.name, "ship", body=body, idempotent=True))

    async def stop(self) -> None:
        """Stop the campaign permanently. It makes no more decisions, but still accepts rewards."""
        await self._stop_playing(calls.change(self.name, "stop", idempotent=True))

    async def archive(self) -> None:
        """Archive the campaign permanently: it leaves the list, and takes no more rewards. Its data is kept."""
        await self._stop_playing(calls.change(self.name, "archive", idempotent=True))

    async def delete(self) -> None:
        """Delete the campaign with all its data."""
        await self._stop_playing(calls.change(self.name, method="DELETE"))

    async def _stop_playing(self, call: Request[T]) -> T:
        """Send a change that makes the decisions in the stock outdated, and empty the stock."""
        try:
            return await self._client.send(call)
        finally:
            self._client._empty_stock(self.name)

    def __repr__(self) -> str:
        return f"AsyncRemoteCampaign({self.name!r})"
