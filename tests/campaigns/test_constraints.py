"""Constraints of campaigns: whatever is handed out obeys the rules in force, while rules and arms change."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations, pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

import kofn
from kofn import Campaign, Constraints, Thompson
from kofn.campaigns import Store
from kofn.campaigns.learning import CONTROLS
from kofn.constraints import Always, AtLeast, AtMost, Budget, Never, NeverTogether, OnlyTogether
from kofn.core import BadInput, KofnError
from kofn.service.api.policy_menu import policy_menu
from tests.campaigns.tools import NAMES, Clock, checked, create, play, rewards_for
from tests.cases import for_each, postgres_is_slow
from tests.cli.tools import invoke
from tests.service.tools import NEW, error_detail, service

BRANDS: list[dict[str, Any]] = [
    {"rule": "at-most", "count": 1, "arms": ["f", "g", "h"], "name": "Acme"},
    {"rule": "always", "arms": ["a"]},
]


def obeys(rules: Iterable[Mapping[str, Any]], arms: Sequence[str]) -> bool:
    """Return whether a subset obeys plain rules, by counting: an oracle apart from the code under test."""
    for rule in rules:
        if rule["rule"] == "budget":
            if sum(cost for arm, cost in rule["costs"] if arm in arms) > rule["most"] + 1e-6:
                return False
            continue
        inside, size = len(set(rule["arms"]) & set(arms)), len(rule["arms"])
        fits = {
            "at-most": inside <= rule.get("count", 0),
            "at-least": inside >= rule.get("count", 0),
            "never-together": inside <= 1,
            "only-together": inside in (0, size),
            "always": inside == size,
            "never": inside == 0,
        }
        if not fits[rule["rule"]]:
            return False
    return True


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(BadInput) as error:
        call()
    return str(error.value)


# What is handed out.


@postgres_is_slow
def test_all_decisions_obey(store_url: str) -> None:
    campaign = create(store_url, constraints=BRANDS, control="uniform", control_share=0.3)
    assert campaign.settings().constraints == BRANDS
    groups = set()
    for _ in range(12):
        decisions = campaign.decide(40)  # more than the plan has: fillers, too
        assert all(obeys(BRANDS, each.arms) for each in decisions)
        groups |= {each.group for each in decisions}
        campaign.rewards(rewards_for(decisions[::2]))
        campaign.rewards(rewards_for(decisions[1::2]))
    assert groups == {"learned", "control"}
    assert campaign.best() == ["a", "e", "h"]
    checked(campaign)


def test_random_control_draws_every_allowed_subset_alike(sqlite_store: str) -> None:
    campaign = create(sqlite_store, constraints=BRANDS, control="uniform", control_share=0.5)
    drawn = [each.subset for each in campaign.decide(4_000) if each.group == "control"]
    allowed = {subset for subset in drawn if obeys(BRANDS, [NAMES[arm] for arm in subset])}
    assert set(drawn) == allowed
    assert len(allowed) == 6 + 4 * 3  # a, and two of bcde, or one of them and one of fgh
    counts = np.array([drawn.count(subset) for subset in allowed])
    expected = len(drawn) / len(allowed)
    spread = 1 + len(drawn) / CONTROLS  # a plan has that many random subsets, which are drawn alike
    assert ((counts - expected) ** 2).sum() / expected < 55.0 * spread  # chi-squared, 17 degrees: 7e-6
    propensities = {each.propensity for each in campaign.decisions() if each.group == "control"}
    assert min(each for each in propensities if each is not None) == pytest.approx(0.5 / len(allowed))


@for_each("seed", range(20))
def test_random_subsets_of_quotas_are_counted_and_drawn_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_arms, brand = 9, rng.integers(0, 3, 9)
    rules = Constraints(Always([0]), AtLeast(1, np.flatnonzero(brand == 1).tolist() or [1]))
    rules += Constraints.by_group(brand, at_most=int(rng.integers(2, 4)))
    allowed = rules.allowed(n_arms, 4)
    listed = [subset for subset in combinations(range(n_arms), 4) if not rules.broken(subset)]
    assert allowed.number == len(listed)
    drawn = Counter(map(tuple, allowed.random(2_000, rng).tolist()))
    assert drawn.keys() <= set(listed)
    expected = 2_000 / len(listed)
    statistic = sum((drawn[subset] - expected) ** 2 / expected for subset in listed)
    assert chi2.sf(statistic, len(listed) - 1) > 1e-6  # of each of the 20 tests


def test_an_unknown_number_of_allowed_subsets_leaves_propensities_open(sqlite_store: str) -> None:
    names = [f"p{arm}" for arm in range(30)]
    rules = Constraints(*(NeverTogether([arm, arm + 1]) for arm in range(29)))
    campaign = Campaign.create("wide", names, 6, constraints=rules, control="uniform", seed=1, store=sqlite_store)
    campaign.decide(10)
    assert {each.propensity for each in campaign.decisions()} == {None}


# Rules that change.


@postgres_is_slow
def test_rules_change_while_decisions_are_in_flight(store_url: str) -> None:
    campaign = create(store_url, stop_when="loss<12")
    play(campaign, 400, 50)
    assert campaign.best() == ["f", "g", "h"]
    assert campaign.insight().stop.ready  # type: ignore[union-attr]
    late = campaign.decide(30)
    campaign.configure(constraints=BRANDS)
    assert campaign.best() == ["a", "e", "h"]  # by what was learned without the rules
    assert not campaign.insight().stop.ready  # type: ignore[union-attr]
    for _ in range(10):
        decisions = campaign.decide(30)
        assert all(obeys(BRANDS, each.arms) for each in decisions)
        campaign.rewards(rewards_for(decisions))
    assert campaign.insight().stop.ready  # type: ignore[union-attr]
    plays = {each.name: each.plays for each in campaign.insight().arms}
    assert campaign.rewards(rewards_for(late)).accepted == 30
    after = {each.name: each.plays for each in campaign.insight().arms}
    assert after["f"] - plays["f"] == sum("f" in each.arms for each in late) > 0  # learned from, although forbidden now
    assert any(each.message == "rules: at most 1 of Acme (f, g, h); always (a)" for each in campaign.events(50))
    checked(campaign)
    campaign.configure(constraints=None)
    assert campaign.settings().constraints == []
    play(campaign, 1_000, 50)
    assert campaign.best() == ["f", "g", "h"]
    checked(campaign)


def test_keys_do_not_keep_what_is_forbidden(sqlite_store: str) -> None:
    campaign = create(sqlite_store, sticky=1000.0)
    clock = Clock(campaign)
    play(campaign, 400, 50)
    open_, rewarded = campaign.decide(key="open"), campaign.decide(key="rewarded")
    campaign.reward(rewarded.id, 1.0)
    never = [{"rule": "never", "arms": [open_.arms[0]]}, {"rule": "never", "arms": [rewarded.arms[-1]]}]
    campaign.configure(constraints=never)
    clock.wait(1.0)
    for key, before in (("open", open_), ("rewarded", rewarded)):
        again = campaign.decide(key=key)
        assert again.id != before.id
        assert obeys(never, again.arms)
        assert campaign.decide(key=key).id == again.id
    campaign.reward(open_.id, 1.0)  # of the decision that was replaced
    checked(campaign)


# Arms that come and go.


@postgres_is_slow
def test_arms_come_and_go(store_url: str) -> None:
    campaign = create(store_url, constraints=[*BRANDS, {"rule": "only-together", "arms": ["b", "c"]}])
    play(campaign, 200, 20)
    campaign.retire_arm("h")
    campaign.retire_arm("c")
    decisions = campaign.decide(200)
    assert not any({"b", "c", "h"} & set(each.arms) for each in decisions)  # b is allowed together with c only
    campaign.rewards(rewards_for(decisions))
    campaign.add_arm("h")
    campaign.add_arm("c")
    campaign.add_arm("i", ["Acme"])
    assert campaign.settings().constraints[0]["arms"] == ["f", "g", "h", "i"]
    for _ in range(10):
        decisions = campaign.decide(40)
        assert all(obeys(campaign.settings().constraints, each.arms) for each in decisions)
        campaign.rewards({each.id: 1.0 for each in decisions})
    verified = campaign.verify()
    assert verified.ok, verified.differences
    assert "policy" in verified.compared


def test_arms_that_rules_need_stay(sqlite_store: str) -> None:
    campaign = create(sqlite_store, constraints=[*BRANDS, {"rule": "at-least", "count": 1, "arms": ["b", "c"]}])
    assert "always in, so it cannot be retired" in refused(lambda: campaign.retire_arm("a"))
    campaign.retire_arm("b")
    assert "only 0 of these arms are left" in refused(lambda: campaign.retire_arm("c"))
    assert "names of rules: 'Acme'" in refused(lambda: campaign.add_arm("i", ["Bolt"]))
    assert "groups must be a list" in refused(lambda: campaign.add_arm("i", "Acme"))
    assert "'b' is retired" in refused(lambda: campaign.configure(constraints=[Always(["b"])]))
    campaign.configure(constraints=campaign.settings().constraints)  # with a retired arm in a rule: as it was
    assert "i" not in campaign.arms
    checked(campaign)


@pytest.mark.parametrize("kind", ["only-together", "always"])
def test_an_arm_that_joins_a_rule_does_not_make_what_is_shown_forbidden(sqlite_store: str, kind: str) -> None:
    """A set of arms that grows: the control and what is shipped would lack the new arm."""
    rules = [{"rule": kind, "arms": ["a", "b"], "name": "set"}]
    campaign = create(sqlite_store, constraints=rules, control=["a", "b", "c"])
    assert "the control breaks the rule" in refused(lambda: campaign.add_arm("i", ["set"]))
    campaign.configure(control=None)
    campaign.ship(["a", "b", "c"])
    assert "the subset that is shipped breaks the rule" in refused(lambda: campaign.add_arm("i", ["set"]))
    assert (campaign.settings().constraints, "i" in campaign.arms) == (rules, False)
    campaign.add_arm("i")
    campaign.resume()
    campaign.retire_arm("i")
    campaign.add_arm("i", ["set"])
    joined = {"a", "b", "i"}
    assert all(
        joined & set(each.arms) in ([joined] if kind == "always" else [joined, set()]) for each in campaign.decide(50)
    )
    checked(campaign)


# Refused.


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"constraints": [Always(["a"]), Never(["a"]), AtMost(1, ["b"])]},
            "together for 3 of 8 arms: always (a); never (a)",
        ),
        ({"constraints": [AtMost(1, ["a", "z"])]}, "a rule names the arm 'z'"),
        ({"constraints": [AtMost(1, [0, 8])]}, "a rule names the arm 8"),
        ({"constraints": "at most 1"}, "must be kofn.Constraints or a list of rules"),
        ({"constraints": [{"rule": "most", "arms": ["a"]}]}, "most"),
        (
            {"constraints": BRANDS, "control": ["a", "f", "g"]},
            "the control breaks the rule at most 1 of Acme (f, g, h)",
        ),
        ({"constraints": BRANDS, "policy": "linear-thompson"}, "linear-thompson does not take constraints"),
        ({"constraints": BRANDS, "policy": "cmab-sm", "params": {"horizon": 1000}}, "always in or never in"),
        ({"constraints": BRANDS, "policy": "thompson-guaranteed"}, "it compares arms by exchanges"),
        ({"params": {"constraints": [{"rule": "never", "arms": [0]}]}}, "pass constraints to create() itself"),
    ],
)
def test_a_campaign_is_refused(sqlite_store: str, settings: dict[str, Any], words: str) -> None:
    assert words in refused(lambda: create(sqlite_store, **settings))
    assert kofn.campaigns.campaigns(sqlite_store) == []


def test_rules_that_are_too_slow_to_solve_are_refused(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"arm {number}" for number in range(40)]
    pairs = [{"rule": "never-together", "arms": pair} for pair in pairwise(names)]
    slow = r"too hard for a campaign: to find one subset took .* seconds, and at most 0 are allowed"
    campaign = Campaign.create("slow", names, 5, store=sqlite_store)
    monkeypatch.setattr("kofn.campaigns.settings.SLOWEST", 0.0)
    with pytest.raises(BadInput, match=slow):
        Campaign.create("slower", names, 5, store=sqlite_store, constraints=pairs)
    with pytest.raises(BadInput, match=slow):
        campaign.configure(constraints=pairs)
    campaign.configure(constraints=[{"rule": "at-most", "count": 1, "arms": names[:9]}])  # a quota needs no solver
    assert all(obeys(campaign.settings().constraints, each.arms) for each in campaign.decide(20))


def test_the_first_plan_is_made_before_the_transaction(sqlite_store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other campaigns of the store do not wait for it."""
    store, inside, seen = Store(sqlite_store), list[bool](), list[bool]()
    transact, plan = Store.transact, Thompson._next

    def transacted(self: Store, work: Any) -> Any:
        inside.append(True)
        try:
            return transact(self, work)
        finally:
            inside.pop()

    def planned(self: Thompson) -> Any:
        seen.append(bool(inside))
        return plan(self)

    monkeypatch.setattr(Store, "transact", transacted)
    monkeypatch.setattr(Thompson, "_next", planned)
    create(store, constraints=BRANDS)
    assert seen == [False]
    store.close()


def test_changes_are_refused_and_change_nothing(sqlite_store: str) -> None:
    campaign = create(sqlite_store, constraints=BRANDS, control=["a", "b", "f"])
    play(campaign, 100, 20)
    before = campaign.settings()
    for changes, words in (
        ({"constraints": [Never(["b"])], "unit": "EUR"}, "the control breaks the rule never (b)"),
        ({"control": ["b", "c", "d"]}, "the control breaks the rule always (a)"),
        (
            {"constraints": [Never(["c", "d"]), OnlyTogether(["c", "b"]), AtMost(1, ["d"])]},
            "the control breaks the rule only",
        ),
    ):
        assert words in refused(lambda changes=changes: campaign.configure(**changes))  # type: ignore[misc]
    assert campaign.settings() == before
    assert "breaks the rules at most 1 of Acme (f, g, h); always (a)" in refused(lambda: campaign.ship(["f", "g", "h"]))
    assert campaign.state == "running"
    checked(campaign)


def test_uniform_keeps_its_rules(sqlite_store: str) -> None:
    campaign = create(sqlite_store, policy="uniform", constraints=BRANDS)
    assert all(obeys(BRANDS, each.arms) for each in campaign.decide(200))
    assert "uniform cannot change constraints" in refused(lambda: campaign.configure(constraints=[]))
    campaign.configure(constraints=BRANDS)  # as they are


def test_every_policy_obeys_or_refuses(sqlite_store: str) -> None:
    refusing = set()
    for each in policy_menu():
        params = {"horizon": 1_000_000} if each["needs_horizon"] else {}
        settings: dict[str, Any] = {"policy": each["name"], "params": params, "constraints": [Always(["a"])]}
        try:
            campaign = create(sqlite_store, each["name"], **settings)
        except BadInput as error:
            refusing.add(each["name"])
            assert "does not take constraints" in str(error)  # noqa: PT017  # some policies are refused, some are not
            continue
        for _ in range(3):
            decisions = campaign.decide(30)
            assert all("a" in decision.arms for decision in decisions)
            campaign.rewards(rewards_for(decisions))
    assert {"linear-thompson", "oful"} <= refusing
    assert not {"thompson", "uniform", "thompson-subsets", "cmab-sm"} & refusing


# Ship and export.


def test_what_is_shipped_obeys(sqlite_store: str) -> None:
    campaign = create(sqlite_store, constraints=[*BRANDS, Budget(2.0, {"b": 1.0, "c": 1.5})])
    play(campaign, 400, 50)
    campaign.ship()
    assert {tuple(each.arms) for each in campaign.decide(5)} == {("a", "e", "h")}
    words = refused(lambda: campaign.configure(constraints=[Never(["h"])]))
    assert words.startswith("the subset that is shipped breaks the rule never (h). Resume first")
    other = Campaign.import_(json.loads(json.dumps(campaign.export())), store=sqlite_store, name="other")
    assert other.settings().constraints == campaign.settings().constraints
    other.resume()
    assert all(obeys(other.settings().constraints, each.arms) for each in other.decide(100))
    campaign.configure(constraints=[AtMost(1, ["g", "h"])])
    campaign.ship(["b", "c", "h"])
    assert campaign.decide().arms == ["b", "c", "h"]
    campaign.resume()
    campaign.configure(constraints=[Never(["h"])])
    assert not any("h" in each.arms for each in campaign.decide(100))
    checked(campaign)


# Anything at all.


def random_rule(rng: Random, names: list[str]) -> dict[str, Any]:
    kind = rng.choice(
        ["at-most", "at-most", "at-least", "never-together", "only-together", "always", "never", "budget"]
    )
    arms = rng.sample(names, rng.randint(2, 4))
    if kind == "budget":
        return {"rule": kind, "most": 2.0, "costs": [[arm, rng.choice([0.5, 1.0, 1.5])] for arm in arms]}
    named = {"name": "group"} if rng.random() < 0.5 else {}
    if kind in ("at-most", "at-least"):
        return {"rule": kind, "count": 1, "arms": arms, **named}
    return {"rule": kind, "arms": arms[:1] if kind in ("always", "never") else arms[:2], **named}


KINDS: dict[str, dict[str, Any]] = {
    "thompson": {},
    "sizes": {"policy": "thompson-sizes", "params": {"fewest": 1}, "costs": {"a": 0.5, "h": 2.0}},
    "contexts": {"policy": "contextual-thompson"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_a_random_walk_never_breaks_a_rule(sqlite_store: str, kind: str, seed: int) -> None:
    """Rules, controls, costs, arms and what is shipped change at random, and keys come back."""
    rng = Random(seed)
    campaign = create(sqlite_store, control="uniform", sticky=50.0, expire_after=30.0, **KINDS[kind])
    contexts = [{"device": "phone"}, {"device": "desktop"}] if kind == "contexts" else [None]
    mail: list[kofn.campaigns.Decision] = []
    clock, names, done = Clock(campaign), list(NAMES), Counter[str]()

    def some_arms() -> list[str]:
        return rng.sample(campaign.arms, rng.randint(1, 3) if kind == "sizes" else 3)

    def change(number: int) -> None:
        kinds = [
            "rules",
            "rules",
            "add",
            "retire",
            "ship",
            "resume",
            "control",
            "costs",
            "window",
            "rewards",
            "rewards",
        ]
        match rng.choice(kinds):
            case "rules":
                campaign.configure(constraints=[random_rule(rng, names) for _ in range(rng.randint(0, 3))])
                done["rules"] += 1
            case "add":
                name = rng.choice(names) if rng.random() < 0.5 else f"new {number}"
                campaign.add_arm(name, rng.choice([[], ["group"]]))
            case "retire":
                campaign.retire_arm(rng.choice(campaign.arms))
            case "ship":
                campaign.ship(some_arms() if rng.random() < 0.5 else None, store=rng.random() < 0.5)
                done["ship"] += 1
            case "resume":
                campaign.resume()
            case "control":
                campaign.configure(control=rng.choice([None, "uniform", some_arms()]))
            case "costs":
                campaign.configure(costs={arm: rng.choice([0.0, 0.5, 2.0]) for arm in some_arms()})
            case "window":
                campaign.configure(window=rng.choice([None, 20.0]))
            case "rewards":
                rng.shuffle(mail)
                campaign.rewards(_eighths(mail[:20]))
                del mail[:20]

    for number in range(80):
        clock.wait(rng.random() * 5)
        with contextlib.suppress(KofnError):
            change(number)
        names = sorted({*names, *campaign.arms})
        rules, active = campaign.settings().constraints, set(campaign.arms)
        key = rng.choice([None, f"visitor {rng.randint(0, 5)}"])
        decisions = campaign.decide(rng.randint(1, 9) if key is None else 1, key=key, context=rng.choice(contexts))
        for arms in (*(each.arms for each in decisions), campaign.best()):
            assert obeys(rules, arms), rules
            assert set(arms) <= active
        mail += decisions
    assert done["rules"] > 2
    assert done["ship"] > 0
    verified = campaign.verify()
    assert verified.ok, verified.differences


def _eighths(decisions: Iterable[kofn.campaigns.Decision]) -> dict[str, float]:
    """Rewards that depend on the arms alone; eighths, so that sums are exact in any order."""
    return {each.id: sum(map(ord, "".join(each.arms))) % 89 / 8 for each in decisions}


# Over HTTP.


def test_rules_over_http_and_by_the_client(sqlite_store: str) -> None:
    with service(sqlite_store) as http:
        made = http.post("/api/campaigns", json=NEW | {"constraints": BRANDS})
        assert made.status_code == 201, made.text
        settings = "/api/campaigns/front/settings"
        assert http.get(settings).json()["constraints"] == BRANDS
        assert http.get("/api/campaigns/front/insight").json()["settings"]["constraints"] == BRANDS
        budget = {"rule": "budget", "most": 3.0, "costs": [["a", 1.0], ["b", 2.5]]}
        changed = http.patch(settings, json={"constraints": [budget, {"rule": "never", "arms": [7]}]})
        assert changed.json()["constraints"] == [budget, {"rule": "never", "arms": ["h"]}]
        clash = [{"rule": "always", "arms": ["a"]}, {"rule": "never", "arms": ["a"]}]
        detail = error_detail(http.patch(settings, json={"constraints": clash}), 422, "bad-input")
        assert "always (a); never (a)" in detail
        wrong: dict[str, Any]
        for wrong in (
            {"rule": "most", "arms": ["a"]},
            {"rule": "at-most", "arms": ["a"]},
            {"rule": "always", "arms": []},
            {"rule": "always", "arms": ["a"], "count": 1},
            {"rule": "budget", "most": -1.0, "costs": [["a", 1.0]]},
        ):
            assert http.patch(settings, json={"constraints": [wrong]}).status_code == 422
        url = str(http.base_url)
        with kofn.Client(url) as sync:
            campaign = sync.campaign("front")
            campaign.configure(constraints=Constraints(AtMost(1, [5, 6, 7], "Acme"), Always([0])))
            assert campaign.settings().constraints == BRANDS  # numbers of arms become names
            campaign.add_arm("i", ["Acme"])
            assert campaign.settings().constraints[0]["arms"] == ["f", "g", "h", "i"]
            with pytest.raises(BadInput, match=r"breaks the rule at most 1 of Acme \(f, g, h, i\)"):
                campaign.ship(["g", "h", "a"])


# The command line.


def test_rules_on_the_command_line(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    file = tmp_path / "rules.json"
    file.write_text(json.dumps([BRANDS[0]]))
    arms = [part for name in NAMES for part in ("--arm", name)]
    rules = ["--rule", "always a", "--rule", "never together b, c", "--constraints", str(file)]
    made = invoke("campaign", "create", "front", *arms, "--k", "3", *rules, "--store", store)
    assert made.exit_code == 0, made.stderr
    settings = json.loads(invoke("campaign", "configure", "front", "--json", "--store", store).stdout)
    assert settings["constraints"] == [BRANDS[1], {"rule": "never-together", "arms": ["b", "c"]}, BRANDS[0]]
    shown = invoke("campaign", "show", "front", "--store", store).stdout
    assert "at most 1 of Acme (f, g, h)" in shown
    assert invoke("campaign", "add-arm", "front", "i", "--group", "Acme", "--store", store).exit_code == 0
    changed = invoke("campaign", "configure", "front", "--rule", "at least 1 of b, c", "--store", store)
    assert "at least 1 of (b, c)" in changed.stdout
    bad = invoke("campaign", "configure", "front", "--rule", "two of b", "--store", store)
    assert (bad.exit_code, "'two of b' is not a rule" in bad.stderr) == (2, True)
    file.write_text("{}")
    bad = invoke("campaign", "configure", "front", "--constraints", str(file), "--store", store)
    assert (bad.exit_code, "a list of rules" in bad.stderr) == (2, True)
    assert invoke("campaign", "configure", "front", "--no-constraints", "--store", store).exit_code == 0
    assert json.loads(invoke("campaign", "configure", "front", "--json", "--store", store).stdout)["constraints"] == []
