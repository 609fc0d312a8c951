"""Exports and imports: what moves, and what of an export that was made up is refused."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import kofn
from kofn import Campaign
from kofn.campaigns import Store, campaigns, import_checks
from kofn.constraints import AtMost
from kofn.core import StateError
from tests.campaigns.tools import Clock, checked, create, play, rewards_for

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

EVIL: list[Any] = [
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
        return new(value) if callable(new) else new
    here, *rest = path
    if here == JSON:
        return json.dumps(changed(json.loads(value), tuple(rest), new))
    value = copy.copy(value)
    value[here] = changed(value[here] if rest or callable(new) else None, tuple(rest), new)
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


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, dict[str, dict[str, Any]]]]:
    """An export of each kind, and a store to import them into."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('exports')}/shop.db?synchronous=normal")
    yield store, {kind: plain(lived(store, kind), with_secret=True) for kind in KINDS}
    store.close()


def table(name: str, row: int, column: str) -> Path:
    """The place of a value in a row of a table; a part of the path is found by `crafted`."""
    return "tables", name, "rows", row, column


def crafted(exported: dict[str, Any], path: Path, new: Any) -> dict[str, Any]:
    """An export with another value; a column of a table is given by its name."""
    if path[0] == "tables" and len(path) > 4:
        path = (*path[:4], exported["tables"][path[1]]["columns"].index(path[4]), *path[5:])
    found: dict[str, Any] = changed(exported, path, new)
    return found


PROGRESS, SETTINGS = ("campaign", "progress", JSON), ("campaign", "settings", JSON)
TALLY = (*table("folds", 1, "tallies"), JSON, 0)
RECORD = (*table("states", 0, "record"), JSON, "record")

CRAFTED: dict[str, list[tuple[Path, Any]]] = {
    "wrong sums": [
        (table("events", 0, "value"), lambda value: value + 1),
        (table("totals", 0, "total"), lambda total: total + 1),
        ((*PROGRESS, "rewarded"), lambda count: count + 1),
        ((*PROGRESS, "learned"), [1, 1.0, 1.0]),
        ((*TALLY, 3), lambda total: total + 1),
        ((*PROGRESS, "total"), 1.0),
        ((*RECORD, "state", "plays"), lambda plays: plays + 1),
    ],
    "wrong arms": [
        (table("decisions", 0, "subset"), "0,1,99"),
        (table("decisions", 0, "subset"), "1,0,2"),
        (table("decisions", 0, "subset"), "1,1,2"),
        (table("decisions", 0, "subset"), "1; DROP TABLE kofn_decisions"),
        (table("decisions", 0, "context"), '{"device":"phone"}'),
        (table("totals", 0, "subset"), "0"),
        (table("estimates", 0, "best"), "0,1,99"),
        ((*TALLY, 0), "0,1,99"),
        (table("estimates", 0, "effects"), '{"99": 1}'),
        ((*PROGRESS, "in_flight"), [["x", None, 1]]),
        ((*PROGRESS, "played"), {"0": "x"}),
        ((*SETTINGS, "control"), [0, 1, 99]),
        ((*SETTINGS, "control"), [0, 1]),
        ((*SETTINGS, "shipped"), [[0, 1, 99]]),
        ((*SETTINGS, "shipped"), []),
        ((*SETTINGS, "shipped"), [["0", "1", "2"]]),
        ((*SETTINGS, "shipped"), [[5, 1, 2]]),
        ((*SETTINGS, "n_arms"), 9),
        ((*table("arms", 0, "names"), JSON, 0), "b"),
        ((*table("arms", 0, "active"), JSON, 0), 99),
        ((*table("arms", 0, "active"), JSON), [0, 1, 2, 3, 4, 5, 6, 10**12]),
        ((*table("states", 0, "record"), JSON, "active"), [10**12]),
        (table("folds", 1, "change"), json.dumps({"added": 10**12})),
    ],
    "huge numbers": [
        (("campaign", "step"), 10**15),
        (("campaign", "version"), 2**62),
        (table("folds", 1, "step"), 10**15),
        (table("states", 0, "step"), 10**15),
        (table("history", 0, "slot"), 2**58),
        (table("estimates", 0, "step"), 10**15),
        (table("events", 0, "value"), 1e200),
        (table("events", 0, "value"), 10**400),
        (table("decisions", 0, "due"), 1e15),
        (("campaign", "cut"), 1e15),
        ((*PROGRESS, "decided"), 10**30),
        ((*PROGRESS, "slot_width"), 1e-300),
        ((*PROGRESS, "slot_width"), -1.0),
        ((*TALLY, 2), 10**30),
        ((*RECORD, "params", "n_arms"), 10**9),
        ((*RECORD, "params", "k"), 10**9),
    ],
    "no numbers": [
        (table("events", 0, "value"), float("nan")),
        (table("events", 0, "value"), "3"),
        (table("events", 0, "value"), True),
        ((*TALLY, 3), float("nan")),
        ((*TALLY, 3), float("inf")),
        ((*PROGRESS, "total"), float("nan")),
        ((*SETTINGS, "reward_range"), [0.0, float("inf")]),
        (table("decisions", 0, "propensity"), 2.0),
        (table("decisions", 0, "group"), 7),
        (table("events", 0, "kind"), 7),
    ],
    "a policy that does not load": [
        (RECORD, {}),
        ((*RECORD, "policy"), "none"),
        ((*RECORD, "policy"), "cmab-sm"),
        ((*RECORD, "policy"), "oracle"),
        ((*RECORD, "state", "posterior"), None),
        (table("states", 0, "record"), "{"),
        ((*table("folds", 0, "record"), JSON, "record"), {}),
        (table("folds", 0, "record"), None),
        ((*SETTINGS, "policy"), "doubling"),
        ((*SETTINGS, "direction"), "minimize"),
        ((*SETTINGS, "k"), 2),
    ],
    "settings that nobody could make": [
        ((*SETTINGS, "control_share"), 2.0),
        ((*SETTINGS, "window"), -1.0),
        ((*SETTINGS, "window"), "1d"),
        ((*SETTINGS, "half_life"), 5),
        ((*SETTINGS, "learns_from_all"), False),
        ((*SETTINGS, "reward_range"), [-5.0, 12.0]),
        ((*SETTINGS, "stop_when"), "soon"),
        ((*SETTINGS, "costs"), {"b": 1.0}),
        ((*SETTINGS, "constraints"), [{"rule": "never", "arms": ["e"]}]),
        ((*SETTINGS, "guardrails"), ["x"]),
        ((*SETTINGS, "keep_decisions"), -1),
        ((*SETTINGS, "unknown"), 1),
        (("campaign", "state"), "flying"),
        (("campaign", "secret"), ""),
        (("campaign", "secret"), "ab" * 100),
        (("campaign", "failure"), "[]"),
        (("campaign", "failure"), '{"x": 1}'),
        ((*PROGRESS, "look"), {"plays": "x", "bound": None, "since": None, "ready": True, "reason": ""}),
        (("campaign", "settings"), "[]"),
        (("campaign", "progress"), "{"),
    ],
    "rows that contradict each other": [
        (table("decisions", 1, "number"), 1),
        (table("events", 0, "decision"), 10**6),
        (table("decisions", 0, "metadata"), "{"),
        (table("decisions", 1, "number"), 10**6),
        (table("decisions", 0, "turn"), None),
        (("tables", "states", "rows"), []),
        (("tables", "folds", "rows"), []),
        (("tables", "arms", "rows"), []),
        (("tables", "events", "columns"), ["number"]),
        (("tables", "events"), None),
        (("tables",), {}),
        (("campaign",), None),
    ],
}


@pytest.mark.parametrize("why", CRAFTED)
def test_what_was_made_up_is_refused_and_leaves_nothing(exports: Any, why: str) -> None:
    store, found = exports
    for path, new in CRAFTED[why]:
        made_up = crafted(found["windowed"], path, new)
        assert not try_to_import(store, made_up), path
    assert len(campaigns(store)) == len(KINDS)


HARMLESS: list[tuple[Path, Any]] = [
    (table("history", 0, "rewarded"), lambda count: count + 1),
    (table("journal", 0, "number"), 10**15),
    (table("decisions", 0, "metadata"), "[]"),
    (table("decisions", 0, "key"), "x" * 1000),
    (table("events", 0, "name"), "x\ny"),
    ((*PROGRESS, "in_flight", 0, 0), "0,1,99"),
    ((*PROGRESS, "candidates"), {"1,99": {"step": 0, "at": 1.0, "place": 1, "sums": [0, 0.0, 0.0]}}),
]


def test_what_was_made_up_and_does_no_harm_works(exports: Any) -> None:
    store, found = exports
    for path, new in HARMLESS:
        try_to_import(store, crafted(found["windowed"], path, new))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0.0005, pytest.param(0.03, marks=pytest.mark.slow)])
def test_whatever_was_made_up_is_refused_or_works(exports: Any, kind: str, part: float) -> None:
    store, found = exports
    rng, taken = random.Random(kind), 0
    places = [path for path in leaves(found[kind]) if path and path[:2] != ("tables", "plans")]  # these are not read
    cases = [(path, new) for path in places for new in EVIL]
    for path, new in rng.sample(cases, int(part * len(cases))):
        try:
            taken += try_to_import(store, changed(found[kind], path, new))
        except BaseException as error:
            error.add_note(f"with {path}: {new!r:.40}")
            raise
    assert taken < 3 + 0.4 * part * len(cases)


def test_rules_of_an_import_are_obeyed_and_must_be_solvable(exports: Any) -> None:
    store, found = exports
    rules = [{"rule": "at_most", "count": 0, "arms": ["h"]}]
    assert not try_to_import(store, changed(found["ruled"], (*SETTINGS, "constraints"), rules))
    assert not try_to_import(
        store, changed(found["ruled"], ("tables", "states", "rows", 0, 1, JSON, "record", "params", "constraints"), [])
    )


def test_an_import_waits_for_nobody_and_nobody_for_it(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its policy is made again outside of the transaction that writes it."""
    store = Store(sqlite_store)
    campaign = create(store)
    play(campaign, 100, batch=20)
    exported, seen = campaign.export(), list[int]()

    def verify(log: Any) -> Any:
        play(campaign, 20, batch=20)
        seen.append(campaign.summary().rewards)
        return original(log)

    original = vars(import_checks)["verify"]
    monkeypatch.setattr(import_checks, "verify", verify)
    Campaign.import_(exported, store=store, name="copy")
    assert seen == [120]
    store.close()


def test_an_export_of_the_same_name_is_refused(exports: Any) -> None:
    store, found = exports
    with pytest.raises(kofn.CampaignExists, match="a campaign named 'exact' already exists"):
        Campaign.import_(found["exact"], store=store)
