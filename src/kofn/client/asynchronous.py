"""The client for asyncio. What it does is said in `synchronous`; a test keeps the two alike."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, Self, TypeVar, overload

import httpx

from kofn.client import calls
from kofn.client.answers import Decision, Event, Insight, OpenDecision, Point, Rewarded, Summary
from kofn.client.calls import Call

T = TypeVar("T")


class AsyncClient:
    """Campaigns of a `kofn serve`, in the words of `kofn.Campaign`::

        async with kofn.AsyncClient("https://kofn.example.com", token="kofn_...") as client:
            campaign = client.campaign("front-page")
            decision = await campaign.decide()
            await campaign.reward(decision.id, 12.5)

    While the service is away, starting or busy, requests that are harmless twice are sent again, ever more slowly, for
    `patience` seconds. Rewards are: the service counts each once.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout: float = 30.0,
        patience: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(**calls.settings(url, token, timeout), transport=transport)
        self._patience = patience

    async def send(self, call: Call[T]) -> T:
        """What the service answers to a call."""
        until, attempt = time.monotonic() + self._patience, 0
        while True:
            answer: httpx.Response | None = None
            try:
                answer = await self._http.request(call.method, call.path, json=call.body, params=call.query)
                if answer.status_code not in calls.PASSING or not call.again:
                    return calls.read_answer(call, answer)
            except httpx.TransportError as why:
                if time.monotonic() > until or not calls.may_repeat(call, why):
                    raise calls.unreachable(why, self._http.base_url) from why
            wait = calls.pause(attempt, answer)
            if answer is not None and time.monotonic() + wait > until:
                raise calls.error_of(answer)
            await asyncio.sleep(wait)
            attempt += 1

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def campaign(self, name: str) -> AsyncRemoteCampaign:
        """The campaign of that name. Nothing is sent: one that is not there says so when it is used."""
        return AsyncRemoteCampaign(self, name)

    async def campaigns(self) -> list[Summary]:
        """All campaigns at a glance, by name."""
        found: list[Summary] = await self.send(Call("GET", "/api/campaigns", calls.under("campaigns")))
        return found

    async def create(
        self,
        name: str,
        arms: Sequence[str],
        k: int = 5,
        *,
        policy: str | None = None,
        params: Mapping[str, Any] | None = None,
        reward_range: tuple[float, float] | None = None,
        direction: Literal["maximize", "minimize"] | None = None,
        seed: int | None = None,
        expire_after: timedelta | float | None = None,
        keep_decisions: int | None = None,
    ) -> AsyncRemoteCampaign:
        """A new campaign; what is not given is as `Campaign.create` has it."""
        more: dict[str, Any] = {
            "policy": policy,
            "params": params,
            "reward_range": reward_range,
            "direction": direction,
        }
        more |= {"seed": seed, "expire_after": expire_after, "keep_decisions": keep_decisions}
        return self.campaign((await self.send(calls.create(name, arms, k, more)))["name"])

    async def import_(self, exported: Mapping[str, Any], *, name: str | None = None) -> AsyncRemoteCampaign:
        """The campaign that `export` gave, under its own name or another."""
        return self.campaign((await self.send(calls.import_(exported, name)))["name"])

    async def health(self) -> bool:
        """Whether the service and its store answer, asked once."""
        try:
            return (await self._http.get("/health")).is_success
        except httpx.TransportError:
            return False


class AsyncRemoteCampaign:
    """A campaign of a service, in the words of `kofn.Campaign`."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client, self.name = client, name

    @overload
    async def decide(self) -> Decision: ...
    @overload
    async def decide(self, count: int) -> list[Decision]: ...
    async def decide(self, count: int | None = None) -> Decision | list[Decision]:
        """The next decision; with a count, a list of so many."""
        decisions = await self._client.send(calls.decide(self.name, 1 if count is None else count))
        return decisions[0] if count is None else decisions

    async def reward(self, id: str, value: float) -> Rewarded:
        """Tell what a decision earned. Telling it again is harmless; telling another value is refused."""
        return await self.rewards([(id, value)])

    async def rewards(self, rewards: Mapping[str, float] | Iterable[tuple[str, float]]) -> Rewarded:
        """Tell what decisions earned. The batch is taken whole or not at all."""
        return await self._client.send(calls.rewards(self.name, rewards))

    async def reward_total(
        self, arms: Sequence[str], count: int, total: float, squares: float | None = None, *, key: str | None = None
    ) -> Rewarded:
        """Tell what `count` plays of a subset earned together."""
        return await self._client.send(calls.total(self.name, arms, count, total, squares, key))

    async def summary(self) -> Summary:
        """The campaign at a glance."""
        found: Summary = await self._get()
        return found

    async def insight(self, arms: int | None = None) -> Insight:
        """What it knows; with `arms`, of so many arms, the best first."""
        found: Insight = await self._get("insight", **({} if arms is None else {"arms": arms}))
        return found

    async def best(self) -> list[str]:
        """The best subset, by what has been learned so far."""
        return (await self.insight(arms=0))["best"]

    async def history(self, points: int = 2000) -> list[Point]:
        """Plays and rewards over time, oldest first."""
        found: list[Point] = (await self._get("history", points=points))["points"]
        return found

    async def events(self, limit: int = 100) -> list[Event]:
        """What happened to it, the newest first."""
        found: list[Event] = (await self._get("events", limit=limit))["events"]
        return found

    async def open_decisions(self, limit: int = 100) -> list[OpenDecision]:
        """Decisions without a reward, the newest first."""
        found: list[OpenDecision] = (await self._get("decisions", limit=limit))["decisions"]
        return found

    async def export(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        found: dict[str, Any] = await self._get("export")
        return found

    async def add_arm(self, name: str) -> None:
        """Add an arm. What was learned of the others stays."""
        await self._client.send(Call("POST", calls.of(self.name, "arms"), calls.whole, {"name": name}, again=False))

    async def retire_arm(self, name: str) -> None:
        """Take an arm out of the game. What was learned of the others stays."""
        await self._client.send(Call("DELETE", calls.of(self.name, "arms", name), calls.whole, again=False))

    async def pause(self) -> None:
        """Refuse to decide until it is resumed. Rewards are welcome."""
        await self._client.send(Call("POST", calls.of(self.name, "pause"), calls.whole))

    async def resume(self) -> None:
        """Decide again."""
        await self._client.send(Call("POST", calls.of(self.name, "resume"), calls.whole))

    async def finish(self) -> None:
        """Refuse to decide for good. Rewards that come late are welcome."""
        await self._client.send(Call("POST", calls.of(self.name, "finish"), calls.whole))

    async def delete(self) -> None:
        """Remove the campaign and all that it knows."""
        await self._client.send(Call("DELETE", calls.of(self.name), calls.whole, again=False))

    async def _get(self, *what: str, **query: Any) -> Any:
        return await self._client.send(Call("GET", calls.of(self.name, *what), calls.whole, query=query))

    def __repr__(self) -> str:
        return f"AsyncRemoteCampaign({self.name!r})"
