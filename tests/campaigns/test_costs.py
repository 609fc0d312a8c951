"""Campaigns whose arms cost something: what is handed out, learned and reported, also over HTTP and by both clients."""

import csv
import io
import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

import kofn
from kofn import BadInput, Campaign
from kofn.campaigns import Decision
from tests.campaigns.tools import Clock, checked, create
from tests.cases import postgres_is_slow
from tests.cli.tools import invoke
from tests.service.tools import NEW, error_detail, service
from tests.waiting import wait_until

COSTS = {"a": 0.125, "b": 0.125, "c": 0.125, "d": 3, "e": 3, "f": 3, "g": 2, "h": 2}
SIZES: dict[str, Any] = {"policy": "thompson-sizes", "params": {"fewest": 1}, "costs": COSTS}
FEW = [{"rule": "never-together", "arms": list("abcdefg")}]  # no subset has three arms


def gross(decisions: Iterable[Decision]) -> dict[str, float]:
    return {each.id: 1.0 + 2.5 * ("h" in each.arms) + 2.5 * ("g" in each.arms) for each in decisions}


def net(reward: float, arms: Iterable[str], costs: dict[str, float] = COSTS) -> float:
    return reward - sum(costs.get(arm, 0.0) for arm in arms)


@postgres_is_slow
def test_a_campaign_learns_net_of_costs(store_url: str) -> None:
    campaign = create(store_url, **SIZES)
    clock, sizes = Clock(campaign), set()
    for _ in range(60):
        decisions = campaign.decide(20)
        sizes |= {len(each.arms) for each in decisions}
        campaign.rewards(gross(decisions))
        clock.wait(1)
    assert sizes == {1, 2, 3}
    assert {"g", "h"} <= set(campaign.best())
    assert not set("def") & set(campaign.best())
    assert campaign.insight().value == pytest.approx(2.0, abs=0.15)  # 6 - 4, and what a, b or c costs
    checked(campaign)
    campaign.configure(costs={**COSTS, "g": 4.0})
    assert "g" not in campaign.best()  # at once: it earns 2.5
    campaign.configure(costs=COSTS)
    campaign.reward_total(["g", "h"], 5, 30.0)
    campaign.add_arm("new")
    campaign.retire_arm("d")
    for _ in range(5):
        campaign.rewards({each.id: 3.0 for each in campaign.decide(8)})
    checked(campaign)
    assert campaign.settings().costs == {name: cost for name, cost in COSTS.items() if name != "d"}
    campaign.add_arm("d")
    assert campaign.settings().costs == COSTS  # an arm that comes back costs what it did
    copied = Campaign.import_(campaign.export(), store=campaign.store, name="copy")
    assert (copied.best(), copied.insight().average) == (campaign.best(), campaign.insight().average)
    campaign.ship(["g", "h"])
    assert campaign.decide().arms == ["g", "h"]
    with pytest.raises(BadInput, match="a subset must have 1 to 3 different arms; got 4"):
        campaign.ship(list("abce"))


@postgres_is_slow
def test_all_that_is_reported_is_net_at_the_costs_of_the_time(store_url: str) -> None:
    """A control, late rewards, totals and costs that change twice: every sum against a ledger kept here."""
    campaign = create(store_url, **SIZES, control=["g"], control_share=0.3)
    clock, late, ledger = Clock(campaign), [], []
    dear, costs = {"g": 5.0, "h": 0.5}, dict[str, float](COSTS)
    for step in range(60):
        if step == 20:
            assert campaign.configure(costs=dear).costs == dear
            costs = dear
        if step == 40:
            campaign.configure(costs=None)
            costs = {}
        if step in (10, 30, 50):
            campaign.reward_total(["a", "g"], 3, 9.0)
            ledger += [("total", net(3.0, "ag", costs))] * 3
        decisions = campaign.decide(10)
        ledger += [(each.group, net(gross([each])[each.id], each.arms, costs)) for each in decisions]
        late += decisions[:3]
        campaign.rewards(gross(decisions[3:]))
        clock.wait(60)
        if step in (22, 45):  # most were decided at other costs
            checked(campaign)
            campaign.rewards(gross(late))
            late = []
    campaign.rewards(gross(late))
    checked(campaign)
    insight, history = campaign.insight(), campaign.history()
    mean = {group: _mean(value for who, value in ledger if who == group) for group in ("learned", "control")}
    assert insight.average == campaign.summary().mean == pytest.approx(_mean(value for _, value in ledger))
    assert history[-1].average == pytest.approx(insight.average)
    assert insight.lift is not None
    assert insight.lift.learned is not None
    assert insight.lift.control is not None
    assert insight.lift.learned.mean == pytest.approx(mean["learned"])
    assert insight.lift.control.mean == pytest.approx(mean["control"])
    assert insight.lift.difference == pytest.approx(mean["learned"] - mean["control"])
    assert "costs: g 5, h 0.5" in {event.message for event in campaign.events()}
    frame = campaign.to_frame()
    assert frame["reward"].tolist() == [gross([each])[each.id] for each in campaign.decisions()]
    known = [value for who, value in ledger if who != "total"]
    assert sorted(frame["net_reward"]) == pytest.approx(sorted(known))
    copied = Campaign.import_(campaign.export(), store=campaign.store, name="copy")
    assert copied.to_frame()["net_reward"].tolist() == frame["net_reward"].tolist()
    assert copied.insight().lift == insight.lift
    checked(copied)


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


@pytest.mark.parametrize("control", ["uniform", ["h"]])
@postgres_is_slow
def test_all_sizes_obey_the_rules(store_url: str, control: Any) -> None:
    """Rules that no subset of K arms obeys: the first plan, further draws, the control, after changes and shipping."""
    campaign = create(store_url, **SIZES, constraints=FEW, control=control, control_share=0.3)
    shown: dict[str, set[int]] = {"learned": set(), "control": set(), "shipped": set()}

    def decided(most: int, rules: Callable[[list[str]], bool]) -> list[Decision]:
        decisions = campaign.decide(20)
        for each in decisions:
            assert 1 <= len(each.arms) <= most
            assert rules(each.arms)
            shown[each.group].add(len(each.arms))
        return decisions

    def few(arms: list[str]) -> bool:
        return len(set(arms) - {"h"}) <= 1

    in_flight = [each for _ in range(4) for each in decided(2, few)]  # more than the first plan
    campaign.rewards(gross(in_flight))
    for _ in range(10):
        campaign.rewards(gross(decided(2, few)))
    assert shown == {"learned": {1, 2}, "control": {1, 2} if control == "uniform" else {1}, "shipped": set()}
    with pytest.raises(BadInput, match=r"for 1 to 3 of 8 arms: at least 2 of \(a, b\); never together"):
        campaign.configure(constraints=[{"rule": "at-least", "count": 2, "arms": ["a", "b"]}, *FEW], control=None)
    with pytest.raises(BadInput, match="breaks the rule never together"):
        campaign.ship(["a", "b"])
    campaign.configure(constraints=[{"rule": "always", "arms": ["h"]}])
    for _ in range(5):
        campaign.rewards(gross(decided(3, lambda arms: "h" in arms)))
    campaign.ship()
    decided(3, lambda arms: "h" in arms)
    checked(campaign)


def test_random_controls_have_known_probabilities(sqlite_store: str) -> None:
    """8 arms and 2 places that may stay empty: a subset of one arm has 1 of 120 ways, two of three arms have 2."""
    campaign = create(sqlite_store, **SIZES, control="uniform", control_share=0.999)
    decisions = [each for _ in range(10) for each in campaign.decide(300)]
    sizes = [len(each.arms) for each in decisions]
    for size, probability in ((1, 8 / 120), (2, 56 / 120), (3, 56 / 120)):
        error = (probability * (1 - probability) / 3_000) ** 0.5
        assert sizes.count(size) / 3_000 == pytest.approx(probability, abs=5 * error)
    logged = {each.subset: each.propensity for each in campaign.decisions() if each.group == "control"}
    assert logged[(0, 1)] == pytest.approx(0.999 * 2 / 120, abs=0.001)


def test_what_is_refused(sqlite_store: str) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"costs": {"x": 1.0}}, "costs name the arm 'x'"),
        ({"costs": {"a": -1.0}}, "numbers of at least 0"),
        ({"costs": [1.0]}, "costs must be 8 numbers"),
        ({"costs": {"a": "1"}}, "costs must be numbers"),
        ({"costs": "free"}, "costs must be a list of numbers"),
        ({"params": {"fewest": 1, "costs": [0.0] * 8}}, "pass costs to create"),
        ({"policy": "thompson", "params": {}}, "thompson does not take costs. Use thompson-sizes"),
        ({"control": list("abcd")}, "the control must have 1 to 3 different arms; got 4"),
    ]
    for settings, message in refused:
        with pytest.raises(BadInput, match=message):
            create(sqlite_store, **SIZES | settings)
    plain = create(sqlite_store)
    with pytest.raises(BadInput, match="costs cannot change"):
        plain.configure(costs=COSTS)
    exported = create(sqlite_store, "costly", **SIZES).export()
    exported["campaign"]["settings"] = exported["campaign"]["settings"].replace("0.125", "0.25")
    with pytest.raises(kofn.BadRecord, match="costs"):
        Campaign.import_(exported, store=sqlite_store, name="other")


def test_over_http_and_by_the_client(store_url: str) -> None:
    with service(store_url) as http:
        assert http.post("/api/campaigns", json={**NEW, **SIZES, "constraints": FEW}).status_code == 201
        wrong = http.patch("/api/campaigns/front/settings", json={"costs": {"a": -1}})
        assert "costs" in error_detail(wrong, 422, "malformed-request")
        unknown = http.patch("/api/campaigns/front/settings", json={"costs": {"x": 1}})
        assert "costs name the arm 'x'" in error_detail(unknown, 422, "bad-input")
        with kofn.Client(str(http.base_url)) as client:
            campaign = client.campaign("front")
            for _ in range(20):
                decisions = campaign.decide(8)
                assert all(1 <= len(each.arms) <= 2 for each in decisions)
                campaign.rewards(gross(decisions))
            ledger = [net(each.reward, each.arms) for each in campaign.decisions() if each.reward is not None]
            wait_until(lambda: campaign.insight().average == pytest.approx(_mean(ledger)), "all is counted")
            assert campaign.configure(costs=[0.0] * 8).costs == dict.fromkeys("abcdefgh", 0.0)
            assert campaign.configure(costs={"h": 9.0}).costs == {"h": 9.0}
        rows = list(csv.DictReader(io.StringIO(http.get("/api/campaigns/front/decisions/export?format=csv").text)))
        assert sum(float(row["net_reward"]) for row in rows) / len(rows) == pytest.approx(_mean(ledger))


def test_on_the_command_line(sqlite_store: str) -> None:
    at = ["--store", sqlite_store]
    arms = [part for name in NEW["arms"] for part in ("--arm", name)]  # type: ignore[attr-defined]
    costs = ["--policy", "thompson-sizes", "--set", "fewest=1", "--cost", "a=0.5", "--cost", "b=2"]
    made = invoke("campaign", "create", "front", *arms, "--k", "3", *costs, *at)
    assert made.exit_code == 0, made.stderr
    assert "a 0.5, b 2" in invoke("campaign", "configure", "front", *at).stdout
    assert "a 0.5, b 2; rewards are net of them" in invoke("campaign", "show", "front", *at).stdout
    changed = invoke("campaign", "configure", "front", "--cost", "c=1", "--json", *at)
    assert json.loads(changed.stdout)["costs"] == {"c": 1.0}
    for wrong in ("c", "c=dear", "=1"):
        bad = invoke("campaign", "configure", "front", "--cost", wrong, *at)
        assert (bad.exit_code, "is not an arm and its cost" in bad.stderr) == (2, True)
    assert invoke("campaign", "configure", "front", "--no-costs", *at).exit_code == 0
    assert Campaign.open("front", sqlite_store).settings().costs == {}
