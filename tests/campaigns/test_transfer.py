"""Exports and imports: what moves, and what of an export that was made up is refused."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Store, campaigns
from kofn.constraints import AtMost
from kofn.core import StateError
from tests.campaigns.tools import Clock, checked, create, rewards_for

KINDS: dict[str, dict[str, Any]] = {
    "windowed": {"window": "1h", "control": ["a", "b", "c"], "guardrails": ["returned<=+2%"], "costs": None},
    "contextual": {"policy": "contextual-thompson", "params": {"attributes": {"device": ["phone", "desk"]}}},
    "ruled": {"constraints": [AtMost(1, ["g", "h"])], "control": "uniform", "stop_when": "loss<0.1"},
    "exact": {"policy": "linear-thompson"},
    "sizes": {"policy": "thompson-sizes", "params": {"fewest": 1}, "costs": {"a": 0.5}},
    "widening": {"outside": "widen", "keep_decisions": 40},
}


def lived(store: Store, kind: str) -> Campaign:
    """A campaign that has done all that its kind can do, with decisions in flight."""
    clock = Clock(store)
    campaign = create(store, kind, **KINDS[kind])
    for number in range(12):
        context = {"device": "phone" if number % 2 else "desk"} if kind == "contextual" else None
        made = campaign.decide(20, key=f"call {number}", metadata={"page": number}, context=context)
        for each in made if kind == "windowed" else ():
            campaign.add(each, 3.0, event="order")
            campaign.record(each, "returned", 1.0)
        if kind != "windowed":
            campaign.rewards(rewards_for(made[:18]))
        clock.wait(1200)
        campaign.learn()
        if kind not in ("exact", "contextual"):
            with suppress(kofn.BadInput):
                campaign.retire_arm("a") if number % 2 else campaign.add_arm("a")
    if kind not in ("exact", "contextual"):
        campaign.reward_total(campaign.arms[1:4], 5, 20.0, key="monday")
    campaign.decide(7, context={"device": "phone"} if kind == "contextual" else None)
    campaign.ship(store=False)
    campaign.reward(campaign.decide(context={"device": "phone"} if kind == "contextual" else None), 3.0)
    campaign.note_alarms()
    if kind != "windowed":
        campaign.resume()
    campaign.learn()
    return campaign


def plain(campaign: Campaign, **options: Any) -> dict[str, Any]:
    """An export as it is after it was a file."""
    found: dict[str, Any] = json.loads(json.dumps(campaign.export(**options)))
    return found


def use(campaign: Campaign) -> None:
    """Call everything. An import that was accepted may refuse a call, but its own state is never the reason."""
    context = {"device": "phone"} if campaign.summary().takes_context else None
    made: list[Any] = []
    calls: list[Callable[[], Any]] = [
        *(campaign.insight, campaign.history, campaign.events, campaign.settings, campaign.estimates, campaign.best),
        *(campaign.open_decisions, campaign.note_alarms, campaign.verify, campaign.export, campaign.learn),
        *(lambda: list(campaign.decisions()), lambda: campaign.estimates(arms=["b"]), campaign.segments),
        *(campaign.resume, lambda: made.extend(campaign.decide(30, key="new", context=context))),
        *(
            lambda: campaign.rewards(rewards_for(made)),
            lambda: campaign.record(made[0], "returned", 1.0),
            campaign.learn,
        ),
        *(campaign.insight, lambda: campaign.configure(control=["b", "c", "d"]), lambda: campaign.add_arm("new")),
        *(campaign.ship, lambda: campaign.decide(context=context), campaign.verify, campaign.summary, campaign.export),
    ]
    for call in calls:
        with suppress(kofn.KofnError) as refused:
            try:
                call()
            except StateError as why:
                raise AssertionError("the campaign cannot read its own state") from why
        del refused
    campaign.delete()


@pytest.mark.parametrize("kind", KINDS)
def test_a_moved_campaign_goes_on(store_url: str, kind: str) -> None:
    store = Store(store_url)
    campaign = lived(store, kind)
    exported = plain(campaign, with_secret=True)
    moved = Campaign.import_(exported, store=store, name="moved")
    assert moved.best() == campaign.best()
    assert list(moved.decisions()) == list(campaign.decisions())
    assert moved.summary().rewards == campaign.summary().rewards
    before, after = campaign.insight().to_dict(), moved.insight().to_dict()
    for name in before.keys() - {"summary", "settles", "plan"}:
        assert after[name] == before[name], name
    again = plain(moved, with_secret=True)
    for name, table in exported["tables"].items():
        if name not in ("plans", "states", "journal"):
            assert again["tables"][name] == table
    if kind == "contextual":  # its sums depend on their order
        assert moved.verify().ok
    else:
        checked(moved)
    use(moved)
    with pytest.raises(kofn.UnknownDecision):
        Campaign.import_(plain(campaign), store=store, name="other").reward(next(campaign.decisions()).id, 1.0)
    store.close()


# What is made up.

EVIL = [
    None,
    -1,
    0,
    1,
    7,
    2**62,
    10**30,
    1e299,
    -1e299,
    float("nan"),
    float("inf"),
    "x",
    "",
    "9" * 30,
    "\0",
    [],
    {},
    True,
]

Path = tuple[Any, ...]
JSON = "(JSON)"
"""The step of a path into a text that is a JSON document."""


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The places of all values, also of those in documents inside of texts. Of long lists, the first and the last."""
    if isinstance(value, str) and value[:1] in ("{", "["):
        yield path
        yield from leaves(json.loads(value), (*path, JSON))
    elif isinstance(value, dict):
        yield path
        for name, each in value.items():
            yield from leaves(each, (*path, name))
    elif isinstance(value, list):
        yield path
        for index in sorted({0, len(value) - 1} & set(range(len(value)))) if len(value) > 20 else range(len(value)):
            yield from leaves(value[index], (*path, index))
    else:
        yield path


def changed(value: Any, path: Path, new: Any) -> Any:
    """A copy of a value with another one at this place."""
    if not path:
        return new
    here, *rest = path
    if here == JSON:
        return json.dumps(changed(json.loads(value), tuple(rest), new))
    value = copy.copy(value)
    value[here] = changed(value[here], tuple(rest), new)
    return value


def try_to_import(store: Store, exported: Any) -> bool:
    """Import what was made up. It is refused and leaves nothing, or works. Return whether it was taken."""
    there, begun = [each.name for each in campaigns(store)], time.monotonic()
    try:
        moved = Campaign.import_(exported, store=store, name="moved")
    except kofn.BadRecord:
        assert [each.name for each in campaigns(store)] == there
        return False
    finally:
        assert time.monotonic() - begun < 30
    use(moved)
    return True
