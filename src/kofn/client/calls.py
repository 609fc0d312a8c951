"""Requests as data, the rules for retries, and how responses are read: shared by both clients."""

from __future__ import annotations

import json
import math
import os
import random
import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, Literal, TypeVar
from urllib.parse import quote

import httpx

from kofn import __version__, core
from kofn.core import BadInput, BadReward, KofnError, NoSuchCampaign, NotAllowed, Unreachable
from kofn.core.checks import campaign_name, reward_number, shown
from kofn.core.responses import CampaignSettings, Decision, LoggedDecision, Response, Rewarded, Summary

T = TypeVar("T")
R = TypeVar("R", bound=Response)

FIRST_DELAY = 0.1
"""Seconds before the first retry. The delay doubles with each further retry, up to `MAX_DELAY`."""

MAX_DELAY = 5.0
"""Longest delay between two retries, in seconds."""

RETRY_STATUSES = {429, 502, 503, 504}
"""Statuses of a service that is starting, stopping or busy."""

PAGE_SIZE = 1000
"""Number of campaigns per request when all are listed."""

DEFAULT_URL = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Request(Generic[T]):
    """A request, and the function that reads its response. Only idempotent requests are sent twice."""

    method: str
    path: str
    read: Callable[[Any], T]
    body: Any = None
    query: Mapping[str, Any] = field(default_factory=dict)
    idempotent: bool = True


def client_options(url: str | None, token: str | None, timeout: float) -> dict[str, Any]:
    """Return the options of an httpx client. KOFN_URL and KOFN_TOKEN are the defaults of url and token."""
    token = token or os.environ.get("KOFN_TOKEN")
    headers = {"User-Agent": f"kofn/{__version__}"} | ({"Authorization": f"Bearer {token}"} if token else {})
    base_url = url or os.environ.get("KOFN_URL") or DEFAULT_URL
    if not re.match(r"https?://[^/]", str(base_url), re.IGNORECASE):  # else each call would fail after all its retries
        raise BadInput(f"the URL of the service (url=, KOFN_URL) must be one such as {DEFAULT_URL}; got {base_url!r}")
    return {"base_url": base_url, "headers": headers, "timeout": timeout}


# Retries.


def retry_delay(attempt: int, response: httpx.Response | None) -> float:
    """Return the seconds to wait after an attempt: exponential with jitter, and at least what Retry-After asks for."""
    retry_after = (response.headers.get("retry-after") if response else None) or ""
    minimum = min(float(retry_after), MAX_DELAY) if retry_after.isdigit() else 0.0
    return max(minimum, random.uniform(0.5, 1.0) * min(MAX_DELAY, FIRST_DELAY * 2.0**attempt))


def may_retry(call: Request[Any], error: httpx.TransportError) -> bool:
    """Return whether a failed request may be sent again: always if it was not sent, else if it is idempotent."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout) or call.idempotent


def unreachable(error: Exception, url: object) -> Unreachable:
    """Return the error that is raised when no attempt got a response."""
    return Unreachable(f"the service at {url} does not respond: {str(error) or type(error).__name__}")


def interrupted(error: Exception, url: object) -> Unreachable:
    """Return the error that is raised when a streamed response ends early."""
    return Unreachable(f"the response of the service at {url} ended early: {str(error) or type(error).__name__}")


def not_sent(error: Exception) -> BadInput:
    """Return the error for a request that cannot be written as JSON."""
    return BadInput(f"this cannot be sent: {error!r}")


# Responses.


def read_response(call: Request[T], response: httpx.Response) -> T:
    """Return the result of a call, or raise Unreachable if the response is not one of kofn."""
    try:
        return call.read(response.json() if response.content else None)
    except (ValueError, KeyError, TypeError) as error:  # for instance the login page of a proxy
        raise Unreachable(f"the response to {call.method} {call.path} is not one of kofn: {error!r}") from error


def response_error(response: httpx.Response) -> KofnError:
    """Return the error that a response describes, in the class that the campaign raised.

    It is Unreachable if the service was busy until the end, or if something else responds, such as a proxy.
    """
    try:
        body = response.json()
        name, detail = str(body["type"]).removeprefix("urn:kofn:"), str(body["detail"])
    except (ValueError, KeyError, TypeError):
        name, detail = "", f"{response.status_code} {response.reason_phrase}"
    if response.status_code in (401, 403):
        return NotAllowed(detail)
    kind = getattr(core, "".join(part.capitalize() for part in name.split("-")), None)
    if response.status_code >= 500 or response.status_code in RETRY_STATUSES:
        return Unreachable(f"error of the service: {detail}")
    if isinstance(kind, type) and issubclass(kind, KofnError):
        return kind(detail)
    if name or response.status_code == 413:  # a proxy may have a smaller limit than the service
        return BadInput(detail)
    return Unreachable(f"the response {detail} is not one of kofn: check the URL of the service")


def read_list(key: str, kind: type[R]) -> Callable[[Any], list[R]]:
    """Return a function that reads the list under a key of a response."""
    return lambda body: [kind.from_dict(each) for each in body[key]]


def read_json(body: Any) -> Any:
    """Return a response as plain values."""
    return body


def read_nothing(_: Any) -> None:
    """Ignore the body of a response."""


# Requests.


def campaign_path(name: str, *rest: str) -> str:
    """Return the path of a resource of a campaign, or raise NoSuchCampaign for a name that no campaign can have.

    No other name may be in a path: URLs are normalised on their way, so `x/arms/..` would become `x`.
    """
    try:
        return "/".join(["/api/campaigns", quote(campaign_name(name), safe=""), *rest])
    except BadInput as error:
        raise NoSuchCampaign(str(error)) from None


def get(name: str, *rest: str, read: Callable[[Any], T], **query: Any) -> Request[T]:
    """Read a resource of a campaign. Parameters that are None are left out."""
    given = {key: value for key, value in query.items() if value is not None}
    return Request("GET", campaign_path(name, *rest), read, query=given)


def decisions(name: str, *, rewarded: bool, since: datetime | None) -> Request[LoggedDecision]:
    """Read the stored decisions, as a stream of JSON lines: `read` returns the decision of a line."""
    query = {
        "format": "jsonl",
        "rewarded": "true" if rewarded else None,
        "since": None if since is None else iso(since),
    }
    return get(name, "decisions", "export", read=LoggedDecision.from_dict, **query)


def iso(time: datetime) -> str:
    """Return a time as text. A time without a zone is in UTC."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


def read_line(call: Request[T], line: str) -> T:
    """Return the result that a line of a streamed response has, or raise Unreachable."""
    try:
        return call.read(json.loads(line))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreachable(f"the response to {call.method} {call.path} is not one of kofn: {error!r:.200}") from error


def change(name: str, *rest: str, method: str = "POST", body: Any = None, idempotent: bool = False) -> Request[None]:
    """Change a campaign, without a result."""
    return Request(method, campaign_path(name, *rest), read_nothing, body, idempotent=idempotent)


def list_campaigns(offset: int, *, archived: bool = False) -> Request[tuple[list[Summary], int]]:
    """Read one page of the campaigns, and the number of all campaigns."""
    read = read_list("campaigns", Summary)
    query: dict[str, Any] = {"limit": PAGE_SIZE, "offset": offset} | ({"state": "archived"} if archived else {})
    return Request("GET", "/api/campaigns", lambda body: (read(body), int(body["count"])), query=query)


def create(name: str, arms: Sequence[str], k: int, settings: Mapping[str, Any]) -> Request[Summary]:
    """Create a campaign. Not idempotent: a repeated request would fail because the name is taken."""
    body = {"name": name, "arms": list(arms), "k": k} | plain_settings(settings)
    return Request("POST", "/api/campaigns", Summary.from_dict, body, idempotent=False)


def configure(name: str, settings: Mapping[str, Any]) -> Request[CampaignSettings]:
    """Change settings of a campaign."""
    return Request("PATCH", campaign_path(name, "settings"), CampaignSettings.from_dict, plain_settings(settings))


def plain_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings for JSON: durations in seconds, constraints as plain values."""
    plain = {key: value.total_seconds() if isinstance(value, timedelta) else value for key, value in settings.items()}
    if plain.get("constraints") is not None:
        from kofn.constraints import Constraints  # it needs SciPy, which takes long to import

        plain["constraints"] = Constraints.of(plain["constraints"]).to_list()
    if plain.get("costs") is not None:
        costs: Any = plain["costs"]
        plain["costs"] = dict(costs) if isinstance(costs, Mapping) else list(costs)
    return plain


def import_(exported: Mapping[str, Any], name: str | None) -> Request[Summary]:
    """Import an exported campaign. Not idempotent, like `create`."""
    return Request(
        "POST", "/api/import", Summary.from_dict, {"campaign": dict(exported), "name": name}, idempotent=False
    )


def decide(
    name: str,
    count: int,
    key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    context: Mapping[str, Any] | None = None,
) -> Request[list[Decision]]:
    """Ask for decisions. Without a key the request gets a random one, so that a retry returns the same decisions."""
    body: dict[str, Any] = {"count": count, "key": uuid.uuid4().hex if key is None else key}
    body |= {} if metadata is None else {"metadata": dict(metadata)}
    body |= {} if context is None else {"context": dict(context)}
    return Request("POST", campaign_path(name, "decisions"), read_list("decisions", Decision), body)


def context_text(context: Mapping[str, Any] | None) -> str:
    """Return a context as text, the same for equal contexts; the service checks it."""
    return "" if context is None else json.dumps(dict(context), sort_keys=True, default=repr)


Kind = Literal["reward", "add", "record"]
Item = tuple[Any, ...]
Items = Mapping[str, float] | Iterable[Item]

REPORTS: dict[Kind, tuple[str, tuple[str, ...]]] = {
    "reward": ("rewards", ("id", "reward")),
    "add": ("events", ("id", "value", "event")),
    "record": ("records", ("id", "value", "name")),
}
"""What is reported about decisions: the last part of the path, which is also the name of the list, and its fields."""


def report(name: str, kind: Kind, items: Iterable[Item], *, partial: bool = False) -> Request[Rewarded]:
    """Report rewards, additions or metrics, as `checked_items` returns them. The service records each one once."""
    last, fields = REPORTS[kind]
    body: dict[str, Any] = {last: [dict(zip(fields, each, strict=True)) for each in items]}
    body |= {"partial": True} if partial else {}
    return Request("POST", campaign_path(name, last), Rewarded.from_dict, body)


def checked_items(kind: Kind, given: Items) -> list[Item]:
    """Return what is reported, with the fields of `REPORTS`, or raise `BadReward` if JSON cannot represent a number."""
    last, fields = REPORTS[kind]
    items = [tuple(each) for each in (given.items() if isinstance(given, Mapping) else given)]
    if wrong := [each for each in items if len(each) != len(fields)]:
        raise BadInput(f"{last} must be tuples of {len(fields)} values; got {shown(wrong[0])}")
    if kind == "record":  # a campaign takes the name before the value
        items = [(id, value, name) for id, name, value in items]
    plain = ((id.id if isinstance(id, Decision) else id, *more) for id, *more in items)
    return [(id, finite_number(value), *name) for id, value, *name in plain]


def reward_total(
    name: str,
    arms: Sequence[str],
    count: int,
    total: float,
    squares: float | None,
    key: str | None,
    context: Mapping[str, Any] | None = None,
) -> Request[Rewarded]:
    """Report a total. Without a key it gets a random one, so that a retry is recorded once."""
    body: dict[str, Any] = {"arms": list(arms), "count": count, "total": finite_number(total)}
    body |= {
        "squares": None if squares is None else finite_number(squares),
        "key": uuid.uuid4().hex if key is None else key,
    }
    body |= {} if context is None else {"context": dict(context)}
    return Request("POST", campaign_path(name, "totals"), Rewarded.from_dict, body)


def finite_number(value: Any) -> float:
    """Return a reward as a float, or raise `BadReward` if JSON cannot represent it."""
    try:
        found = reward_number(value)
    except BadReward:
        found = math.nan
    if not math.isfinite(found):
        raise BadReward(f"a reward must be one finite number; got {shown(value)}")
    return found
