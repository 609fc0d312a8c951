"""Requests as data, when to send one again, and what an answer means: shared by both clients."""

from __future__ import annotations

import math
import os
import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx

from kofn import __version__, core
from kofn.client.answers import Decision, Rewarded, read_decisions, read_rewarded
from kofn.core import BadInput, BadReward, KofnError, NotAllowed, Unreachable

T = TypeVar("T")

FIRST, LONGEST = 0.1, 5.0
"""Seconds before the second attempt, and at the most between two."""

PASSING = {429, 502, 503, 504}
"""Statuses of a service that is starting, stopping or busy."""

ADDRESS = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and what its answer means. `again`: sent twice, it does what it does once."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    again: bool = True


def settings(url: str | None, token: str | None, timeout: float) -> dict[str, Any]:
    """What either client of httpx is made with; KOFN_URL and KOFN_TOKEN stand for what is not given."""
    token = token or os.environ.get("KOFN_TOKEN")
    headers = {"User-Agent": f"kofn/{__version__}"} | ({"Authorization": f"Bearer {token}"} if token else {})
    return {"base_url": url or os.environ.get("KOFN_URL") or ADDRESS, "headers": headers, "timeout": timeout}


# When to send it again.


def pause(attempt: int, answer: httpx.Response | None) -> float:
    """Seconds to wait after this attempt: ever longer, and by chance, so that many clients do not come at once."""
    asked = (answer.headers.get("retry-after") if answer else None) or ""
    least = min(float(asked), LONGEST) if asked.isdigit() else 0.0
    return max(least, random.uniform(0.5, 1.0) * min(LONGEST, FIRST * 2.0**attempt))


def may_repeat(call: Call[Any], why: httpx.TransportError) -> bool:
    """Whether a request that broke may be sent again: what was not sent always, else what is harmless twice."""
    return isinstance(why, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout) or call.again


def unreachable(why: Exception, where: object) -> Unreachable:
    """The error when no attempt was answered."""
    return Unreachable(f"the service at {where} does not answer: {why or type(why).__name__}")


# What an answer means.


def read_answer(call: Call[T], answer: httpx.Response) -> T:
    """What the answer says, or the error that it is."""
    if answer.is_success:
        return call.read(answer.json() if answer.content else None)
    raise error_of(answer)


def error_of(answer: httpx.Response) -> KofnError:
    """The error that the service had, as it would have been raised here."""
    try:
        body = answer.json()
        name, detail = str(body["type"]).removeprefix("urn:kofn:"), str(body["detail"])
    except (ValueError, KeyError, TypeError):
        name, detail = "", f"{answer.status_code} {answer.reason_phrase}"
    if answer.status_code in (401, 403):
        return NotAllowed(detail)
    kind = getattr(core, "".join(part.capitalize() for part in name.split("-")), None)
    if isinstance(kind, type) and issubclass(kind, KofnError) and answer.status_code < 500:
        return kind(detail)
    return BadInput(detail) if answer.status_code < 500 else Unreachable(f"the service says: {detail}")


# The requests.


def of(name: str, *rest: str) -> str:
    """The address of something of a campaign; names may have anything in them."""
    return "/".join(["/api/campaigns", *(quote(each, safe="") for each in (name, *rest))])


def whole(body: Any) -> Any:
    """All of an answer."""
    return body


def under(key: str) -> Callable[[Any], Any]:
    """What an answer has under a key."""
    return lambda body: body[key]


def create(name: str, arms: Sequence[str], k: int, more: Mapping[str, Any]) -> Call[Any]:
    """A new campaign. It is not sent twice: the second would find the first."""
    given = {key: value for key, value in more.items() if value is not None}
    if isinstance(given.get("expire_after"), timedelta):
        given["expire_after"] = given["expire_after"].total_seconds()
    body = {"name": name, "arms": list(arms), "k": k} | given
    return Call("POST", "/api/campaigns", whole, body, again=False)


def import_(campaign: Mapping[str, Any], name: str | None) -> Call[Any]:
    """An exported campaign, brought back."""
    return Call("POST", "/api/import", whole, {"campaign": dict(campaign), "name": name}, again=False)


def decide(name: str, count: int) -> Call[list[Decision]]:
    """Decisions. When an answer is lost, its decisions expire: nothing is counted that was not played."""
    return Call("POST", of(name, "decisions"), read_decisions, {"count": count})


def rewards(name: str, given: Mapping[str, float] | Iterable[tuple[str, float]]) -> Call[Rewarded]:
    """Rewards. The service counts each once, however often it is told."""
    pairs = given.items() if isinstance(given, Mapping) else given
    body = {"rewards": [{"id": id, "reward": number(value)} for id, value in pairs]}
    return Call("POST", of(name, "rewards"), read_rewarded, body)


def number(value: Any) -> float:
    """The number, if JSON can carry it."""
    try:
        found = float(value + 0.0)  # a sum, since float() alone would parse text
    except (TypeError, ValueError, OverflowError):
        found = math.nan
    if not math.isfinite(found):
        raise BadReward(f"a reward is one number, not {value!r:.60}")
    return found


def total(
    name: str, arms: Sequence[str], count: int, total: float, squares: float | None, key: str | None
) -> Call[Rewarded]:
    """A total, under a key of its own if none is given, so that it counts once too."""
    body: dict[str, Any] = {"arms": list(arms), "count": count, "total": number(total), "key": key or uuid.uuid4().hex}
    body |= {"squares": None if squares is None else number(squares)}
    return Call("POST", of(name, "totals"), read_rewarded, body)
