"""The routes of the API. Each parses, calls the campaign and answers; what can go wrong is a problem (problems.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from fastapi.security import HTTPBearer

from kofn import __version__
from kofn.campaigns import ArmInsight, Campaign, CampaignInsight, campaigns
from kofn.core import BadInput
from kofn.service import models
from kofn.service.auth import Access, Guarded
from kofn.service.context import Desk
from kofn.service.errors import Problem

PROBLEMS: dict[int | str, dict[str, Any]] = {
    400: {"description": "The body is not JSON."},
    401: {"description": "A token is needed, or this one is not known."},
    403: {"description": "The token is not for this."},
    404: {"description": "There is no such campaign."},
    409: {"description": "It is there already, told otherwise, or not running."},
    413: {"description": "The body is too large."},
    422: {"description": "Something in the request cannot work; `detail` says what."},
    503: {"description": "The store is busy: try again."},
}
for _each in PROBLEMS.values():
    _each["content"] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}

router = APIRouter(
    prefix="/api",
    route_class=Guarded,
    responses=PROBLEMS,
    dependencies=[Depends(HTTPBearer(auto_error=False, description="A token that `kofn token create` made."))],
)


async def _desk(request: Request) -> Desk:
    desk: Desk = request.app.state.desk
    return desk


async def _access(request: Request) -> Access:
    access: Access = request.state.access
    return access


At = Annotated[Desk, Depends(_desk)]
By = Annotated[Access, Depends(_access)]
Name = Annotated[str, Path(max_length=200, description="The campaign's name.", examples=["front-page"])]


def answer(body: Mapping[str, Any], status: int = 200, headers: dict[str, str] | None = None) -> JSONResponse:
    """The body as JSON. It is not checked against its model again: the tests do that."""
    return JSONResponse(body, status, headers)


# Campaigns.


@router.get("/session", response_model=models.Session, tags=["about"])
async def session(desk: At, access: By) -> Response:
    """What you may do here."""
    body = {"version": __version__, "scope": access.scope, "campaign": access.campaign, "token": access.token}
    return answer(body | {"max_batch": desk.settings.max_batch})


@router.get("/policies", response_model=models.Policies, tags=["about"])
def policies() -> Response:
    """The policies that can run a campaign."""
    from kofn.policies.registry import POLICIES

    facts = [
        {"name": name, "says": (each.__doc__ or "").strip().splitlines()[0], "needs_horizon": each.needs_horizon}
        for name, each in sorted(POLICIES.items())
        if not each.needs
    ]
    return answer({"policies": facts})


@router.get("/campaigns", response_model=models.Campaigns, tags=["campaigns"])
def list_campaigns(
    desk: At,
    access: By,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    offset: Annotated[int, Query(ge=0, lt=2**53)] = 0,
) -> Response:
    """All campaigns at a glance, by name; with a token for one campaign, that one."""
    found = [each for each in campaigns(desk.store) if access.campaign in (None, each.name)]
    return answer({"campaigns": [each.to_dict() for each in found[offset : offset + limit]], "count": len(found)})


@router.post("/campaigns", response_model=models.Summary, status_code=201, tags=["campaigns"])
def create_campaign(desk: At, new: models.NewCampaign) -> Response:
    """Create a campaign. It runs at once."""
    settings = {name: value for name, value in new if name not in ("name", "arms", "k", "reward_range")}
    settings["reward_range"] = new.reward_range[0], new.reward_range[1]
    made = Campaign.create(new.name, new.arms, new.k, store=desk.store, **settings)
    return _created(made)


@router.post("/import", response_model=models.Summary, status_code=201, tags=["campaigns"])
def import_campaign(desk: At, given: models.Imported) -> Response:
    """Bring back an exported campaign. It goes on where it was."""
    return _created(Campaign.import_(given.campaign, store=desk.store, name=given.name))


def _created(campaign: Campaign) -> Response:
    from urllib.parse import quote

    where = f"/api/campaigns/{quote(campaign.name, safe='')}"
    return answer(campaign.summary().to_dict(), 201, {"Location": where})


@router.get("/campaigns/{name}", response_model=models.Summary, tags=["campaigns"])
def show_campaign(desk: At, name: Name) -> Response:
    """One campaign at a glance."""
    return answer(desk.with_campaign(name, lambda campaign: campaign.summary().to_dict()))


@router.delete("/campaigns/{name}", status_code=204, tags=["campaigns"])
def delete_campaign(desk: At, name: Name) -> Response:
    """Remove a campaign, all that it knows, and the tokens that are for it only."""
    desk.with_campaign(name, Campaign.delete)
    return Response(status_code=204)


@router.get("/campaigns/{name}/export", tags=["campaigns"], response_model=dict[str, Any])
def export_campaign(desk: At, access: By, name: Name) -> Response:
    """All of a campaign, for POST /api/import. It has what ids are proved with, so it needs a full token."""
    if access.scope != "full":
        raise Problem(403, "forbidden", "an export has the campaign's secret: a full token is needed")
    return answer(desk.with_campaign(name, Campaign.export))


# Deciding and telling.


@router.post("/campaigns/{name}/decisions", response_model=models.Decisions, tags=["decisions"])
def decide(desk: At, name: Name, ask: models.Ask) -> Response:
    """The next decisions: show the arms of each, and tell its reward under its id. Nobody ever waits."""
    desk.check_batch(ask.count)
    decisions = desk.with_campaign(name, lambda campaign: campaign.decide(ask.count))
    desk.metrics.decisions.inc(len(decisions))
    return answer({"decisions": [{"id": each.id, "arms": each.arms} for each in decisions]})


@router.post("/campaigns/{name}/rewards", response_model=models.Rewarded, tags=["decisions"])
def reward(desk: At, name: Name, told: models.Rewards) -> Response:
    """Tell what decisions earned. All are taken or none; telling the same again is harmless."""
    desk.check_batch(len(told.rewards))
    pairs = [(each.id, each.reward) for each in told.rewards]
    done = desk.with_campaign(name, lambda campaign: campaign.rewards(pairs))
    return _rewarded(desk, done.accepted, done.repeated)


@router.post("/campaigns/{name}/totals", response_model=models.Rewarded, tags=["decisions"])
def reward_total(desk: At, name: Name, told: models.Total) -> Response:
    """Tell what plays of one subset earned together, whether they were decided here or not."""
    done = desk.with_campaign(
        name, lambda campaign: campaign.reward_total(told.arms, told.count, told.total, told.squares, key=told.key)
    )
    return _rewarded(desk, done.accepted, done.repeated)


def _rewarded(desk: Desk, accepted: int, repeated: int) -> Response:
    desk.metrics.rewards.labels("accepted").inc(accepted)
    desk.metrics.rewards.labels("repeated").inc(repeated)
    return answer({"accepted": accepted, "repeated": repeated})


# Looking.

Limit = Annotated[int, Query(ge=1, le=10_000)]


@router.get("/campaigns/{name}/decisions", response_model=models.OpenDecisions, tags=["looking"])
def open_decisions(
    desk: At,
    name: Name,
    open: Annotated[bool, Query(description="Only those without a reward, which are all that can be listed.")] = True,
    limit: Limit = 100,
) -> Response:
    """Decisions without a reward, the newest first."""
    if not open:
        raise BadInput("decisions that have their reward are not listed one by one: leave out open=false")
    found = desk.with_campaign(name, lambda campaign: campaign.open_decisions(limit))
    shown = [{"id": each.id, "arms": each.arms, "at": each.at.isoformat(), "expired": each.expired} for each in found]
    return answer({"decisions": shown})


@router.get("/campaigns/{name}/insight", response_model=models.Insight, tags=["looking"])
def insight(
    desk: At,
    name: Name,
    arms: Annotated[int | None, Query(ge=0, le=1_000_000, description="So many arms, the best first.")] = None,
) -> Response:
    """What it knows: the best subset, what each arm is worth, how sure that is, what learning has earned."""
    found = desk.with_campaign(name, Campaign.insight)
    return answer(replace(found, arms=_ranked(found)[:arms]).to_dict())


def _ranked(found: CampaignInsight) -> list[ArmInsight]:
    good = 1.0 if found.summary.direction == "maximize" else -1.0

    def place(arm: ArmInsight) -> tuple[bool, bool, float, int]:
        return arm.retired, not arm.best, -good * (arm.effect or 0.0), -arm.plays

    return sorted(found.arms, key=place)


@router.get("/campaigns/{name}/history", response_model=models.History, tags=["looking"])
def history(desk: At, name: Name, points: Annotated[int, Query(ge=1, le=2000)] = 2000) -> Response:
    """Plays and rewards over time, the oldest first."""
    found = desk.with_campaign(name, lambda campaign: campaign.history(points))
    return answer({"points": [each.to_dict() for each in found]})


@router.get("/campaigns/{name}/events", response_model=models.Events, tags=["looking"])
def events(desk: At, name: Name, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """What happened to it, the newest first."""
    found = desk.with_campaign(name, lambda campaign: campaign.events(limit))
    return answer({"events": [each.to_dict() for each in found]})


STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "Server-sent events.", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
}


@router.get("/stream", responses=STREAM, response_class=Response, tags=["looking"])
async def stream_all(desk: At, access: By) -> Response:
    """An event `change` with the summary of each campaign that changed, `gone` for one that was deleted."""
    return _stream(desk, access.campaign)


@router.get("/campaigns/{name}/stream", responses=STREAM, response_class=Response, tags=["looking"])
async def stream(desk: At, name: Name) -> Response:
    """An event `change` with the summary, now and whenever it changed; it ends after ten minutes: come again."""
    await desk.find(name)
    return _stream(desk, name)


def _stream(desk: Desk, name: str | None) -> Response:
    desk.live.check_room()
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(desk.live.stream(name), media_type="text/event-stream", headers=headers)


# Changing.


@router.post("/campaigns/{name}/arms", response_model=models.Summary, status_code=201, tags=["changing"])
def add_arm(desk: At, name: Name, arm: models.NewArm) -> Response:
    """Add an arm. What was learned of the others stays."""
    desk.with_campaign(name, lambda campaign: campaign.add_arm(arm.name))
    return answer(desk.with_campaign(name, Campaign.summary).to_dict(), 201)


@router.delete("/campaigns/{name}/arms/{arm:path}", response_model=models.Summary, tags=["changing"])
def retire_arm(desk: At, name: Name, arm: Annotated[str, Path(examples=["mug"])]) -> Response:
    """Take an arm out of the game. What was learned of the others stays."""
    desk.with_campaign(name, lambda campaign: campaign.retire_arm(arm))
    return answer(desk.with_campaign(name, Campaign.summary).to_dict())


@router.post("/campaigns/{name}/pause", response_model=models.Summary, tags=["changing"])
def pause(desk: At, name: Name) -> Response:
    """Refuse to decide until it is resumed. Rewards are welcome."""
    desk.with_campaign(name, Campaign.pause)
    return show_campaign(desk, name)


@router.post("/campaigns/{name}/resume", response_model=models.Summary, tags=["changing"])
def resume(desk: At, name: Name) -> Response:
    """Decide again."""
    desk.with_campaign(name, Campaign.resume)
    return show_campaign(desk, name)


@router.post("/campaigns/{name}/finish", response_model=models.Summary, tags=["changing"])
def finish(desk: At, name: Name) -> Response:
    """Refuse to decide for good. Rewards that come late are welcome."""
    desk.with_campaign(name, Campaign.finish)
    return show_campaign(desk, name)


# Beside the API.

around = APIRouter(route_class=Guarded)


@around.get("/metrics", response_class=Response, tags=["about"])
def metrics(desk: At, access: By) -> Response:
    """Numbers for Prometheus; a token for one campaign does not open them."""
    if access.campaign is not None:
        raise Problem(403, "forbidden", "metrics are of all campaigns, but this token is for one")
    return Response(desk.metrics.text(), media_type="text/plain; version=0.0.4")
