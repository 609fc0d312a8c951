"""The routes of the API. Each one parses the request, calls the campaign and returns its response."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Literal
from urllib.parse import quote

import pydantic_core
from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer
from fastapi.sse import EventSourceResponse
from starlette.concurrency import run_in_threadpool

from kofn import __version__
from kofn.campaigns import Campaign
from kofn.campaigns.decision_files import MEDIA_TYPES, FileFormat, encoded
from kofn.campaigns.reports.listing import list_page
from kofn.core import BadInput, KofnError, MissingExtra, responses
from kofn.service.api.app_state import AppState
from kofn.service.messages import models
from kofn.service.messages.bodies import Bodies, json_chunks
from kofn.service.messages.errors import ApiError, is_head
from kofn.service.messages.openapi import ERROR_CONTENT, operation_id
from kofn.service.security.auth import Access, AuthenticatedRoute

ReportKind = Literal["reward", "add", "record"]

LARGE_BATCH = 100
"""Decisions or rewards above which a request is handled by a thread. Smaller ones are handled by the event loop, which
is faster, but lets all other requests wait."""

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not valid JSON."},
    401: {"description": "A token is required, or the token is unknown."},
    403: {"description": "The token does not allow this request."},
    404: {"description": "There is no such campaign."},
    409: {"description": "The name is taken, another reward is already recorded, or the campaign is not running."},
    413: {"description": "The body is too large."},
    422: {"description": "The request is invalid; `detail` says why."},
    429: {"description": "Too many requests or streams of this client, or it stores too much: try again later."},
    503: {"description": "The service or its store is busy or does not respond: try again."},
}
for _each in ERROR_RESPONSES.values():
    _each["content"] = ERROR_CONTENT


class ApiRoute(AuthenticatedRoute, Bodies):
    """A route of the API: the token is checked, then the body is read."""


api_router = APIRouter(
    prefix="/api",
    route_class=ApiRoute,
    generate_unique_id_function=operation_id,
    responses=ERROR_RESPONSES,
    dependencies=[Depends(HTTPBearer(auto_error=False, description="A token created by `kofn token create`."))],
)


async def _shared(request: Request) -> AppState:
    shared: AppState = request.app.state.shared
    return shared


async def _changing(request: Request) -> AsyncIterator[AppState]:
    shared: AppState = request.app.state.shared
    async with shared.changing:
        yield shared


async def _access(request: Request) -> Access:
    access: Access = request.state.access
    return access


AppStateDep = Annotated[AppState, Depends(_shared)]
ChangingDep = Annotated[AppState, Depends(_changing)]
AccessDep = Annotated[Access, Depends(_access)]
Name = Annotated[str, Path(max_length=200, description="Name of the campaign.", examples=["front-page"])]


class PlainResponse(JSONResponse):
    """Plain values as JSON; NaN and infinity become null.

    The framework's class takes several times as long to make the body and the headers.
    """

    def __init__(self, content: Any, status: int = 200) -> None:
        self.status_code, self.background = status, None
        self.body = pydantic_core.to_json(content, inf_nan_mode="null")
        length = str(len(self.body)).encode()
        self.raw_headers = [(b"content-length", length), (b"content-type", b"application/json")]


def to_json(body: responses.Response | Mapping[str, Any], status: int = 200) -> JSONResponse:
    """Return a response as JSON. It is not validated against its model: the tests do that."""
    return PlainResponse(body.to_dict() if isinstance(body, responses.Response) else body, status)


def to_json_list(key: str, items: Sequence[responses.Response], **more: Any) -> JSONResponse:
    """Return responses as a JSON list under a key."""
    return to_json({key: [each.to_dict() for each in items]} | more)


# Service.


@api_router.get("/session", response_model=models.SessionInfo, tags=["service"])
async def get_session(shared: AppStateDep, access: AccessDep) -> Response:
    """Return what the token of this request allows."""
    body = {"version": __version__, "scope": access.scope, "campaign": access.campaign, "token": access.token}
    return to_json(body | {"max_batch": shared.settings.max_batch})


@api_router.get("/policies", response_model=models.Policies, tags=["service"])
def list_policies() -> Response:
    """List the policies that can run a campaign: the default first, those for simulations last."""
    from kofn.service.api.policy_menu import policy_menu

    return to_json({"policies": policy_menu()})


# Campaigns.


@api_router.get("/campaigns", response_model=models.Campaigns, tags=["campaigns"])
def list_campaigns(
    shared: AppStateDep,
    access: AccessDep,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Number of campaigns to return.")] = 1000,
    offset: Annotated[int, Query(ge=0, lt=2**53, description="Number of campaigns to skip.")] = 0,
    q: Annotated[str, Query(max_length=200, description="Part of the name; ASCII letters match in either case.")] = "",
    state: Annotated[
        responses.State | None, Query(description="State of the campaigns; by default any but archived.")
    ] = None,
) -> Response:
    """List campaigns by name, in pages. A token for one campaign lists only that one.

    Archived campaigns are listed only if `state` is `archived`.
    """
    page = list_page(shared.store, limit=limit, offset=offset, search=q, state=state, name=access.campaign)
    return to_json_list("campaigns", page.summaries, count=page.count, states=page.states)


@api_router.post("/campaigns", response_model=responses.Summary, status_code=201, tags=["campaigns"])
def create_campaign(shared: ChangingDep, new: models.NewCampaign) -> Response:
    """Create a campaign. It is running at once."""
    settings = {name: value for name, value in new.given().items() if name not in ("name", "arms", "k")}
    return _created(shared, Campaign.create(new.name, new.arms, new.k, store=shared.store, **settings))


@api_router.post("/import", response_model=responses.Summary, status_code=201, tags=["campaigns"])
def import_campaign(request: Request, shared: ChangingDep, imported: models.ImportedCampaign) -> Response:
    """Import an exported campaign. It continues in the state in which it was exported."""
    if done := getattr(request.state, "imported", None):  # by another process, because the body is large
        return _created(shared, Campaign.open(done, shared.store))
    return _created(shared, Campaign.import_(imported.campaign, store=shared.store, name=imported.name))


def _created(shared: AppState, campaign: Campaign) -> Response:
    response = to_json(campaign.summary(), 201)
    response.headers["Location"] = f"{shared.settings.root_path}/api/campaigns/{quote(campaign.name, safe='')}"
    return response


@api_router.get("/campaigns/{name}", response_model=responses.Summary, tags=["campaigns"])
def get_campaign(shared: AppStateDep, name: Name) -> Response:
    """Return the summary of a campaign."""
    return to_json(shared.with_campaign(name, Campaign.summary))


@api_router.delete("/campaigns/{name}", status_code=204, tags=["campaigns"])
def delete_campaign(shared: ChangingDep, name: Name) -> Response:
    """Delete a campaign with all its data, and the tokens that are valid for it only."""
    shared.with_campaign(name, Campaign.delete)
    return Response(status_code=204)


@api_router.get("/campaigns/{name}/export", tags=["campaigns"], response_model=dict[str, Any])
def export_campaign(
    shared: AppStateDep,
    access: AccessDep,
    name: Name,
    with_secret: Annotated[
        bool, Query(description="Include the key of decision ids, so that decisions in flight stay valid.")
    ] = False,
) -> Response:
    """Export a campaign for POST /api/import. A full token is required for the secret."""
    if with_secret and access.scope != "full":
        raise ApiError(403, "forbidden", "this would export the campaign's secret key: use a token with scope full")
    exported = shared.with_campaign(name, lambda campaign: campaign.export(with_secret=with_secret))
    return StreamingResponse(json_chunks(exported), media_type="application/json")


# Decisions and rewards.


@api_router.post("/campaigns/{name}/decisions", response_model=models.Decisions, tags=["decisions"])
async def decide(shared: AppStateDep, name: Name, body: models.DecisionRequest, access: AccessDep) -> Response:
    """Return the next decisions. Show the arms of each one, and report its reward under its id.

    With a `key`, the request is idempotent. With a `context`, the decisions are the best for whom it describes. Web
    pages (scope browser) do not learn the `group`.
    """
    shared.check_batch(body.count)
    for_page = access.scope == "browser"
    if for_page:
        await shared.pages.check_decisions(name, access.address, body)
    count = body.count
    about: dict[str, Any] = {"key": body.key, "metadata": body.metadata, "context": body.context}
    about["source"] = access.address if for_page else None
    decisions = await shared.submit(name, lambda campaign, done: campaign.submit_decide(done, count, **about))
    shared.metrics.decisions.inc(count)
    if for_page:
        return to_json({"decisions": [_without_group(each) for each in decisions]})
    if count > LARGE_BATCH:
        return await run_in_threadpool(to_json_list, "decisions", decisions)
    return to_json_list("decisions", decisions)


def _without_group(decision: responses.Decision) -> dict[str, Any]:
    """Return a decision for a web page. Who knows the group can report rewards that make the control look better."""
    plain = decision.to_dict()
    del plain["group"]
    return plain


@api_router.post("/campaigns/{name}/rewards", response_model=responses.Rewarded, tags=["decisions"])
async def reward(shared: AppStateDep, name: Name, body: models.Rewards, access: AccessDep) -> Response:
    """Record rewards of decisions. All are recorded or none, unless the batch is partial. The request is idempotent."""
    items = [(each.id, each.reward) for each in body.rewards]
    return await _report(shared, name, access, "reward", items, body.partial)


@api_router.post("/campaigns/{name}/events", response_model=responses.Rewarded, tags=["decisions"])
async def add_events(shared: AppStateDep, name: Name, body: models.AddedEvents, access: AccessDep) -> Response:
    """Add what events, such as orders, are worth to the rewards of decisions. The same event counts once.

    The campaign must have a window. All are recorded or none, unless the batch is partial.
    """
    items = [(each.id, each.value, each.event) for each in body.events]
    return await _report(shared, name, access, "add", items, body.partial)


@api_router.post("/campaigns/{name}/records", response_model=responses.Rewarded, tags=["decisions"])
async def record_metrics(shared: AppStateDep, name: Name, body: models.Records, access: AccessDep) -> Response:
    """Record metrics of decisions beside their rewards, such as returns. They are compared, and never optimised.

    All are recorded or none, unless the batch is partial. The request is idempotent.
    """
    items = [(each.id, each.name, each.value) for each in body.records]
    return await _report(shared, name, access, "record", items, body.partial)


async def _report(
    shared: AppState, name: str, access: Access, kind: ReportKind, items: list[tuple[Any, ...]], partial: bool
) -> Response:
    shared.check_batch(len(items))
    if access.scope == "browser":
        shared.pages.check_reports(name, access.address, kind, items)
    large = len(items) > LARGE_BATCH
    done = await shared.submit(
        name, lambda campaign, done: campaign.submit_events(done, kind, items, partial=partial), in_thread=large
    )
    return _rewarded(shared, done)


@api_router.post("/campaigns/{name}/totals", response_model=responses.Rewarded, tags=["decisions"])
def reward_total(shared: ChangingDep, name: Name, body: models.Total) -> Response:
    """Record the total reward of several plays of one subset. The plays need not be decisions of this campaign."""
    sums = body.count, body.total, body.squares
    done = shared.with_campaign(
        name, lambda campaign: campaign.reward_total(body.arms, *sums, key=body.key, context=body.context)
    )
    return _rewarded(shared, done)


def _rewarded(shared: AppState, done: responses.Rewarded) -> Response:
    shared.metrics.count_rewards(done)
    return to_json(done)


# Reports.


@api_router.get("/campaigns/{name}/decisions", response_model=models.OpenDecisions, tags=["reports"])
def list_open_decisions(
    shared: AppStateDep,
    name: Name,
    open: Annotated[bool, Query(description="Must be true: only decisions without a reward can be listed.")] = True,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
) -> Response:
    """List decisions without a reward, newest first."""
    if not open:
        raise BadInput("only decisions without a reward can be listed: omit `open`, or pass open=true")
    return to_json_list("decisions", shared.with_campaign(name, lambda campaign: campaign.open_decisions(limit)))


EXPORTED: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The decisions as a file.",
        "content": {kind.partition(";")[0]: {"schema": {"type": "string"}} for kind in MEDIA_TYPES.values()},
    },
    501: {"description": "The service lacks the library for this format.", "content": ERROR_CONTENT},
}


@api_router.get("/campaigns/{name}/decisions/export", responses=EXPORTED, response_class=Response, tags=["reports"])
def export_decisions(
    request: Request,
    shared: AppStateDep,
    name: Name,
    format: Annotated[FileFormat, Query(description="Format of the file.")] = "csv",
    rewarded: Annotated[bool, Query(description="Only decisions with a reward.")] = False,
    since: Annotated[datetime | None, Query(description="Only decisions from this time on (ISO 8601).")] = None,
) -> Response:
    """Stream the stored decisions, oldest first: arms, propensity, reward, key and metadata. It has no secret.

    They are read while they are sent. A response that ends early, without its last chunk, is not complete.
    """
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(f'{name}.{format}', safe='')}"}
    if is_head(request.scope):
        shared.with_campaign(name, Campaign.summary)
        return Response(media_type=MEDIA_TYPES[format], headers=headers)
    decisions = shared.with_campaign(name, lambda campaign: campaign.decisions(rewarded=rewarded, since=since))
    try:
        pieces = encoded(decisions, format)
    except MissingExtra as missing:
        raise ApiError(501, "not-installed", f"the service cannot write this format: {missing}") from missing
    return StreamingResponse(pieces, media_type=MEDIA_TYPES[format], headers=headers)


@api_router.get("/campaigns/{name}/insight", response_model=responses.CampaignInsight, tags=["reports"])
def get_insight(
    shared: AppStateDep,
    name: Name,
    arms: Annotated[
        int | None, Query(ge=0, le=1_000_000, description="Number of arms to return; all by default.")
    ] = None,
) -> Response:
    """Return what a campaign has learned: the best subset, its estimated reward, and all arms, best first."""
    found = shared.with_campaign(name, Campaign.insight)
    return to_json(replace(found, arms=_ranked(found)[:arms]))


def _ranked(found: responses.CampaignInsight) -> list[responses.ArmInsight]:
    """Return the arms: the best subset first, then by effect, then by plays; retired arms last."""
    sign = 1.0 if found.summary.direction == "maximize" else -1.0

    def key(arm: responses.ArmInsight) -> tuple[bool, bool, float, int]:
        return arm.retired, not arm.best, -sign * (arm.effect or 0.0), -arm.plays

    return sorted(found.arms, key=key)


@api_router.get("/campaigns/{name}/segments", response_model=responses.Segments, tags=["reports"])
def get_segments(shared: AppStateDep, name: Name) -> Response:
    """Return what is best for each segment, those with most plays first, and which attributes of the context matter.

    Only a campaign of a policy that takes a context has segments.
    """
    return to_json(shared.with_campaign(name, Campaign.segments))


@api_router.get("/campaigns/{name}/history", response_model=models.History, tags=["reports"])
def get_history(
    shared: AppStateDep,
    name: Name,
    points: Annotated[int, Query(ge=1, le=2000, description="Largest number of points to return.")] = 2000,
) -> Response:
    """Return plays and rewards over time, oldest first."""
    return to_json_list("points", shared.with_campaign(name, lambda campaign: campaign.history(points)))


@api_router.get("/campaigns/{name}/estimates", response_model=models.Estimates, tags=["reports"])
def get_estimates(
    shared: AppStateDep,
    name: Name,
    points: Annotated[int, Query(ge=1, le=1000, description="Largest number of points to return.")] = 1000,
    arm: Annotated[list[str] | None, Query(description="Arms whose effects to return; none by default.")] = None,
) -> Response:
    """Return what was known over time, oldest first: the best subset, its value, the expected loss, and the lift."""
    found = shared.with_campaign(name, lambda campaign: campaign.estimates(points, arms=arm or ()))
    return to_json_list("estimates", found)


@api_router.get("/campaigns/{name}/settings", response_model=responses.CampaignSettings, tags=["reports"])
def get_settings(shared: AppStateDep, name: Name) -> Response:
    """Return the settings that can be changed."""
    return to_json(shared.with_campaign(name, Campaign.settings))


@api_router.get("/campaigns/{name}/events", response_model=models.Events, tags=["reports"])
def list_events(shared: AppStateDep, name: Name, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """List the events of a campaign, newest first."""
    return to_json_list("events", shared.with_campaign(name, lambda campaign: campaign.events(limit)))


@api_router.get("/campaigns/{name}/verify", response_model=responses.Verification, tags=["reports"])
def verify_campaign(shared: AppStateDep, name: Name) -> Response:
    """Check that the state of a campaign follows from its log of rewards. This reads the whole log.

    The response has status 200 whether or not everything agrees; see `ok`. A process verifies one campaign at a time.
    """
    with shared.one_verification():
        return to_json(shared.with_campaign(name, Campaign.verify))


STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@api_router.get("/stream", responses=STREAM, response_class=Response, tags=["reports"])
async def stream_campaigns(request: Request, shared: AppStateDep, access: AccessDep) -> Response:
    """Stream changes of all campaigns: `ready` first, then `change` with the new summary, or `deleted` with the name.

    The stream ends after ten minutes, or when the token is revoked. Clients should reconnect.
    """
    return _stream(request, shared, access, access.campaign)


@api_router.get("/campaigns/{name}/stream", responses=STREAM, response_class=Response, tags=["reports"])
async def stream_campaign(request: Request, shared: AppStateDep, access: AccessDep, name: Name) -> Response:
    """Stream changes of one campaign: `change` with the summary, now and after each change, or `deleted`.

    The stream ends after ten minutes, or when the token is revoked. Clients should reconnect.
    """
    await shared.summary(name)
    return _stream(request, shared, access, name)


def _stream(request: Request, shared: AppState, access: Access, name: str | None) -> Response:
    token = request.headers.get("authorization")  # names of tokens are not unique
    shared.live.check_capacity(token)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if is_head(request.scope):
        return Response(media_type=EventSourceResponse.media_type, headers=headers)

    async def still_allowed() -> bool:
        try:
            now: Access = await request.app.state.authenticator.access(request, again=True)
        except ApiError as refused:
            return refused.status_code == 503  # the token could not be checked
        except KofnError:  # the store does not respond: the next check may succeed
            return True
        return (now.scope, now.campaign) == (access.scope, access.campaign)

    events = shared.live.stream(name, token, still_allowed)
    return EventSourceResponse(events, headers=headers)


# Changes.


def _changed(shared: AppState, name: str, change: Callable[[Campaign], None], status: int = 200) -> Response:
    """Change a campaign, and return its summary."""
    shared.with_campaign(name, change)
    return to_json(shared.with_campaign(name, Campaign.summary), status)


@api_router.post("/campaigns/{name}/arms", response_model=responses.Summary, status_code=201, tags=["changes"])
def add_arm(shared: ChangingDep, name: Name, arm: models.NewArm) -> Response:
    """Add an arm. What was learned about the other arms is kept."""
    return _changed(shared, name, lambda campaign: campaign.add_arm(arm.name, arm.groups), 201)


@api_router.post("/campaigns/{name}/arms/retire", response_model=responses.Summary, tags=["changes"])
def retire_arm(shared: ChangingDep, name: Name, arm: models.RetiredArm) -> Response:
    """Retire an arm. It is no longer played; what was learned about the other arms is kept."""
    return _changed(shared, name, lambda campaign: campaign.retire_arm(arm.name))


@api_router.post("/campaigns/{name}/pause", response_model=responses.Summary, tags=["changes"])
def pause_campaign(shared: ChangingDep, name: Name) -> Response:
    """Pause a campaign. It makes no decisions until it is resumed, but still accepts rewards."""
    return _changed(shared, name, Campaign.pause)


@api_router.post("/campaigns/{name}/resume", response_model=responses.Summary, tags=["changes"])
def resume_campaign(shared: ChangingDep, name: Name) -> Response:
    """Resume a paused or shipped campaign: it decides and learns again."""
    return _changed(shared, name, Campaign.resume)


@api_router.patch("/campaigns/{name}/settings", response_model=responses.CampaignSettings, tags=["changes"])
def configure_campaign(shared: ChangingDep, name: Name, body: models.ChangedSettingsBody) -> Response:
    """Change settings of a campaign while it runs. What was learned is kept."""
    return to_json(shared.with_campaign(name, lambda campaign: campaign.configure(**body.given())))


@api_router.post("/campaigns/{name}/ship", response_model=responses.Summary, tags=["changes"])
def ship_campaign(shared: ChangingDep, name: Name, body: models.Shipment) -> Response:
    """Ship: everyone gets the best subset, or the given arms, from now on. Rewards are still counted.

    If the policy takes a context, each segment gets its own best subset.
    """
    return _changed(shared, name, lambda campaign: campaign.ship(body.arms, store=body.store))


@api_router.post("/campaigns/{name}/stop", response_model=responses.Summary, tags=["changes"])
def stop_campaign(shared: ChangingDep, name: Name) -> Response:
    """Stop a campaign permanently. It makes no more decisions, but still accepts rewards."""
    return _changed(shared, name, Campaign.stop)


@api_router.post("/campaigns/{name}/archive", response_model=responses.Summary, tags=["changes"])
def archive_campaign(shared: ChangingDep, name: Name) -> Response:
    """Archive a campaign permanently: it leaves the list, and takes no more rewards. Its data is kept."""
    return _changed(shared, name, Campaign.archive)
