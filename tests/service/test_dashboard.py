"""The dashboard in a browser: creating, watching and changing campaigns; keyboard, phone and dark mode."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import quote, unquote

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from kofn import __version__
from kofn.campaigns import Campaign, store_at
from kofn.campaigns.store.schema import CAMPAIGNS
from kofn.service.security.tokens import create_token
from tests.service.browser import (
    CONTRAST,
    NAMELESS,
    PHONE,
    SMALL_BUTTONS,
    WIDER,
    Pages,
    button,
    fill,
    measure_load,
    new_campaign,
    served,
    visit,
)
from tests.service.tools import TOKEN, Served, copy_rows

NAMES = ["kettle", "mug", "tray", "pan", "pot", "lid", "jug", "bowl"]
SLOT = 0.125
"""Seconds of a slot of the history of a new campaign."""

NASTY = [
    "<img src=x onerror=\"document.title='owned'\">",
    "a/b?c#d",
    "<script>document.title='owned'</script>",
    "& 'x'",
    ".",
    "..",
]


FAILURE = json.dumps({"reason": "division by zero", "kofn": __version__})
WORTH = re.compile(
    r"Earned so far.[\d.]+ EUR.*95% interval .* to .*Shipping is estimated to earn(.[\d.]+ EUR|not known yet)"
)
"""The two numbers that compare learning with the control."""


def made(store: str, name: str = "front-page", arms: list[str] | None = None, **settings: Any) -> Campaign:
    return Campaign.create(name, arms or NAMES, 3, store=store, seed=1, reward_range=(0, 12), **settings)


def play(campaign: Campaign, turns: int = 20, each: int = 25) -> None:
    """Make decisions and report their rewards; one decision per turn stays in flight.

    In the middle it waits for the next slot of the history, which then has two points at least: a line.
    """
    for turn in range(turns):
        if turn == turns // 2:
            time.sleep(SLOT)
        decisions = campaign.decide(each)
        campaign.rewards([(it.id, min(12, sum(it.subset) / 2 + place % 5)) for place, it in enumerate(decisions[:-1])])


def tile(page: Page, name: str) -> Locator:
    return page.get_by_role("group", name=name).locator(".tile-value")


def at_field(dialog: Locator, label: str) -> Locator:
    """The error at a field."""
    return dialog.locator(".field").filter(has_text=label).get_by_role("alert")


def row(page: Page, arm: str) -> Locator:
    return page.locator(".arms tbody tr").filter(has=page.get_by_text(arm, exact=True))


# With the mouse.


def test_a_campaign_is_created_watched_and_changed(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    button(page, "Create the first campaign").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill("front-page")
    dialog.get_by_label("Arms per decision").fill("3")
    dialog.get_by_label("Arms", exact=True).fill("\n".join(NAMES))
    expect(dialog.get_by_text("8 arms, 3 per decision.")).to_be_visible()
    dialog.get_by_label("Highest reward").fill("12")
    dialog.get_by_label("A zero is reported").check()
    button(dialog, "Create campaign").click()

    expect(page.get_by_role("heading", level=1)).to_have_text("front-page")
    expect(page.get_by_text("Waiting for the first decision")).to_be_visible()
    expect(page.get_by_text("Not known before the first rewards.")).to_be_visible()
    expect(page.locator(".in-flight-panel")).to_contain_text("No decisions yet.")
    expect(page.locator(".best-list li, .arms .is-best, .arms .is-border")).to_have_count(0)  # nothing was played
    campaign = Campaign.open("front-page", module_store)
    assert campaign.arms == NAMES
    assert campaign.summary().reward_range == (0, 12)
    assert campaign.settings().window is None

    page.evaluate("window.sameLoad = true")
    expect(page.locator(".live")).to_have_text("Live")
    play(campaign)
    expect(tile(page, "Plays")).to_have_text("500")
    expect(tile(page, "Expected loss of shipping now")).to_have_text(re.compile(r"^[\d.<> ]+$"))
    expect(page.locator(".plot path.recent")).to_have_attribute("d", re.compile(r"^M.*L"))
    expect(page.locator(".in-flight-panel .decision")).to_have_count(4)
    expect(page.locator(".best-list li")).to_have_count(3)
    expect(page.locator(".event").first).to_contain_text("New best subset")
    shown = page.locator(".arms tbody tr.is-best .arm-name").all_inner_texts()
    assert sorted(shown) == sorted(campaign.best())
    before = tile(page, "Plays").inner_text()
    play(campaign, 2)
    expect(tile(page, "Plays")).not_to_have_text(before)
    assert page.evaluate("window.sameLoad")  # the page was not reloaded

    button(page, "Retire kettle").click()
    button(page.get_by_role("dialog"), "Retire arm").click()
    expect(row(page, "kettle")).to_contain_text("retired")
    assert "kettle" not in campaign.arms
    button(page, "Bring back kettle").click()
    expect(button(page, "Retire kettle")).to_be_visible()
    assert "kettle" in campaign.arms
    button(page, "Add arm").click()
    page.get_by_label("Name of the arm").fill("teapot")
    button(page.get_by_role("dialog"), "Add arm").click()
    expect(row(page, "teapot")).to_be_visible()
    assert "teapot" in campaign.arms

    button(page, "Pause").click()
    expect(page.locator(".title-line .pill")).to_have_text("paused")
    assert campaign.state == "paused"
    button(page, "Resume").click()
    expect(page.locator(".title-line .pill")).to_have_text("running")


def test_a_campaign_is_shipped_resumed_stopped_and_archived(address: str, module_store: str, pages: Pages) -> None:
    campaign = made(module_store, unit="EUR", control=NAMES[:3], stop_when="loss<5")
    play(campaign)
    page = pages.open(f"{address}#/front-page")
    expect(page.locator(".pill.ready")).to_have_text("ready")
    expect(page.get_by_role("group", name="Expected loss of shipping now")).to_contain_text("EUR per play")
    expect(page.get_by_role("group", name="Earned so far, over the control")).to_contain_text("95% interval")
    expect(page.get_by_role("heading", name="Over time")).to_have_text("Over time, EUR per play")
    expect(page.locator(".arms .panel-note")).to_contain_text("Change in EUR per play when")
    expect(page.locator("section.lift")).to_contain_text("Control gets")
    expect(page.locator("section.lift")).to_contain_text(WORTH)
    page.get_by_text("Loss", exact=True).click()
    expect(page.locator(".plot path.recent:visible")).to_have_attribute("d", re.compile(r"^M.*L"))
    expect(page.locator(".goal-text")).to_have_text("goal")
    expect(page.locator(".chart-note:visible")).to_contain_text("Ready when the limit above it")
    page.get_by_text("Lift", exact=True).click()
    chart = page.get_by_role("group", name="Lift over control over time")
    expect(chart.locator("path.recent")).to_have_attribute("d", re.compile(r"^M.*L"))
    chart.press("End")
    lift = campaign.insight().lift
    assert lift is not None
    assert lift.difference is not None
    expect(chart.locator(".tip-line.recent b")).to_have_text(f"+{lift.difference:.2g} EUR")
    expect(chart.locator(".tip-line.band b")).to_have_text(re.compile(r"^.[\d.]+ to \+[\d.]+$"))
    button(page, "bowl").click()
    expect(page.get_by_role("dialog")).to_contain_text("EUR per play compared with a borderline arm")
    expect(page.get_by_role("dialog").locator(".plot path.recent")).to_have_attribute("d", re.compile(r"^M.*L"))
    page.keyboard.press("Escape")

    button(page, "Ship…").click()
    dialog = page.get_by_role("dialog")
    for arm in campaign.best():
        expect(dialog.get_by_text(arm, exact=True)).to_be_visible()
    expect(dialog).to_contain_text("Ready. The expected loss is")
    expect(dialog).to_contain_text(WORTH)
    button(dialog, "Ship").click()
    expect(page.locator(".notice.is-shipped .chip")).to_have_text(campaign.best())
    assert campaign.decide().arms == campaign.best()
    button(page, "Ship…").click()
    dialog.get_by_text("Other options").click()
    dialog.get_by_label("Ship these arms instead").fill("mug\ntray\npin")
    button(dialog, "Ship").click()
    expect(at_field(dialog, "Ship these arms instead")).to_contain_text("no arm 'pin'")
    dialog.get_by_label("Ship these arms instead").fill("mug\ntray\npan")
    button(dialog, "Ship").click()
    expect(page.locator(".notice.is-shipped .chip")).to_have_text(["mug", "tray", "pan"])
    button(page, "Resume").click()
    expect(page.locator(".title-line .pill")).to_have_text("running")
    expect(page.locator(".notice")).to_be_hidden()

    for verb, state in (("Stop", "stopped"), ("Archive", "archived")):
        page.get_by_label("More actions").click()
        button(page, f"{verb}…").click()
        button(dialog, f"{verb} campaign").click()
        expect(page.locator(".title-line .pill")).to_have_text(state)
        expect(page.locator(f".notice.is-{state}")).to_be_visible()
        assert campaign.state == state
    for gone in ("Ship…", "Pause", "Resume", "Settings", "Add arm"):
        expect(button(page, gone)).to_be_hidden()
    page.goto(address)
    expect(page.get_by_text("All campaigns are archived.")).to_be_visible()
    page.get_by_label("State").select_option("archived")
    expect(page.locator(".card-name")).to_have_text(["front-page"])
    campaign.delete()  # the fixture does not list it


def test_settings_are_changed_and_errors_shown_at_their_field(address: str, module_store: str, pages: Pages) -> None:
    campaign = made(module_store)
    play(campaign)
    page = pages.open(f"{address}#/front-page")
    button(page, "Set a stop rule").click()
    dialog = page.get_by_role("dialog")
    rule, save = dialog.get_by_label("Stop rule"), button(dialog, "Save settings")
    expect(rule).to_be_focused()
    rule.fill("soon")
    save.click()
    expect(at_field(dialog, "Stop rule")).to_contain_text("'loss<0.01'")
    expect(rule).to_have_attribute("aria-invalid", "true")
    rule.fill("0.2")
    dialog.get_by_label("Control gets").select_option("arms")
    dialog.get_by_label("Arms of the control").fill("mug\npin\ntray")
    save.click()
    expect(at_field(dialog, "Arms of the control")).to_contain_text("'pin'")
    dialog.get_by_label("Arms of the control").fill("mug\npan\ntray")
    dialog.get_by_label("Share of decisions (%)").fill("20")
    dialog.get_by_label("Highest").fill("11")
    save.click()
    expect(at_field(dialog, "Highest")).to_contain_text("widened only")
    dialog.get_by_label("Highest").fill("15")
    dialog.get_by_label("Unit of the reward").fill("EUR")
    dialog.get_by_label("Rewards outside the range are").select_option("clip")
    dialog.get_by_label("Half-life (plays)").fill("5000")
    dialog.get_by_label("Breaker").check()
    dialog.get_by_label("Ship when ready").check()
    dialog.get_by_label("A visitor keeps the arms for").fill("12h")
    before = campaign.settings()
    save.click()
    expect(dialog).to_have_count(0)
    changed: dict[str, Any] = {
        "stop_when": "loss<0.2",
        "control_share": 0.2,
        "reward_range": (0.0, 15.0),
        "unit": "EUR",
    }
    changed |= {"outside": "clip", "half_life": 5000, "breaker": True, "ship_when_ready": True}
    changed |= {"sticky": 43200.0, "control": ["mug", "tray", "pan"]}
    assert campaign.settings() == replace(before, **changed)
    expect(page.locator(".lede")).to_contain_text("reward 0 to 15 EUR")


def test_a_shop_reports_orders_and_returns_only(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    dialog = new_campaign(page, "shop", 3, NAMES)
    after, create = dialog.get_by_label("Wait for"), button(dialog, "Create campaign")
    expect(after).to_have_value("30m")
    after.fill("soon")
    create.click()
    expect(at_field(dialog, "Wait for")).to_be_visible()
    after.fill("3s")
    dialog.get_by_label("Then count it as a reward of").fill("-1")
    create.click()
    expect(at_field(dialog, "Then count it as a reward of")).to_contain_text("-1")
    dialog.get_by_label("Then count it as a reward of").fill("0")
    dialog.get_by_text("More options").click()
    dialog.get_by_label("Control gets").select_option("uniform")
    dialog.get_by_label("Share of decisions (%)").fill("50")
    dialog.get_by_label("Guardrail").fill("returns<+2")
    create.click()
    expect(at_field(dialog, "Guardrails")).to_contain_text("returns<=+2%")
    dialog.get_by_label("Guardrail").first.fill("returns<=+2%")
    create.click()
    expect(page.get_by_text("Waiting for the first decision")).to_be_visible()

    campaign = Campaign.open("shop", module_store)
    campaign.record(campaign.decide().id, "returns", 0.0)
    campaign.learn()  # metrics are counted from the first record on
    decisions = campaign.decide(399)
    campaign.adds([(each.id, 0.25, order) for each in decisions[:200] for order in ("order-1", "order-2")])
    returned = [each.id for place, each in enumerate(decisions) if (place % 10 == 0) == (each.group == "control")]
    campaign.records([(id, "returns", 1.0) for id in returned])
    plays = page.get_by_role("group", name="Plays")
    expect(plays).to_contain_text("400 settled, 0 open")
    expect(plays.get_by_text("the next settles")).to_be_hidden()
    assert campaign.summary().mean == 0.25  # half of the decisions earned 0.5; silence is 0
    returns = page.get_by_role("region", name="Metrics beside the reward")
    number = r"[\d.]+"
    means = rf"Learned{number}95% interval {number} to {number}Control{number}95% interval {number} to {number}"
    expect(returns).to_contain_text(re.compile(rf"<=\+2% broken{means}Difference\+{number}\+\d+%, 95% interval \+"))
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("Returns<=+2% is broken: returns is 0.")
    button(banner, "See the guardrails").click()
    expect(dialog.get_by_label("Guardrail").first).to_be_focused()
    dialog.get_by_label("Guardrail").first.fill("")
    dialog.get_by_label("Metrics settle after").fill("30d")
    dialog.get_by_label("A zero is reported").check()
    dialog.get_by_label("Forget a decision without a reward after").fill("2d")
    button(dialog, "Save settings").click()
    expect(dialog).to_have_count(0)
    settings = campaign.settings()
    assert (settings.window, settings.guardrails, settings.metric_window) == (None, [], 30 * 86_400)
    assert settings.expire_after == 2 * 86_400


def test_alarms_are_a_banner_that_leads_to_the_setting(address: str, module_store: str, pages: Pages) -> None:
    made(module_store)
    page = pages.blank()

    def with_alarms(route: Route) -> None:
        answer = route.fetch()
        drift = {"kind": "drift", "since": 22475, "at": None, "message": "rewards of the best subset have changed"}
        late = {"kind": "silence", "since": None, "at": "2026-01-01T00:00:00Z", "message": "no rewards"}
        advice = {"advice": "set half_life"}
        route.fulfill(response=answer, json=answer.json() | {"alarms": [drift | advice, late | {"advice": "check"}]})

    page.context.route("**/api/**/insight*", with_alarms)
    visit(page, f"{address}#/front-page")
    banner = page.get_by_role("alert")
    expect(banner).to_contain_text("Rewards of the best subset have changed found after 22,475 rewards")
    expect(banner).to_contain_text("What to do: set half_life.")
    expect(banner).to_contain_text(re.compile(r"No rewards since \d+ d ago"))
    button(banner, "Set the half-life").click()
    expect(page.get_by_label("Half-life (plays)")).to_be_focused()


CLIPBOARD = """async () => {
  for (let turn = 0; turn < 3000; turn++) {  // what a click copies arrives a little later
    const text = await navigator.clipboard.readText();
    if (text) return text;
    await new Promise((done) => setTimeout(done, 10));
  }
}"""


def test_the_first_step_works_as_pasted(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address, permissions=["clipboard-read", "clipboard-write"])
    expect(page.get_by_text("No campaigns yet")).to_be_visible()

    def copied(language: str) -> str:
        page.get_by_text(language, exact=True).click()
        assert TOKEN not in page.locator(".first-steps pre").inner_text()
        page.evaluate("navigator.clipboard.writeText('')")
        button(page, "Copy").click()
        return str(page.evaluate(CLIPBOARD))

    def run(*command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout

    assert run("bash", "-c", copied("curl")).count('"accepted":1') == 2  # an order, and its return
    campaign = Campaign.open("front-page", module_store)
    assert (campaign.summary().k, campaign.settings().window) == (2, 1800.0)
    for name, window in (("waits", "1h"), ("second page", None)):
        campaign = made(module_store, name, window=window)
        page.goto(f"{address}#/{quote(name)}")
        expect(page.get_by_text("Waiting for the first decision")).to_be_visible()
        expect(page.get_by_text("A decision counts 1h after it was made")).to_be_visible(visible=window is not None)
        programs = {language: copied(language) for language in ("curl", "Python", "JavaScript")}
        assert ("reward(decision.id, 6)" in programs["Python"]) == (window is None)
        run("bash", "-c", programs["curl"])
        run(sys.executable, "-c", programs["Python"])
        page.evaluate(f"(async () => {{ {programs['JavaScript']}\n }})()")
        expect(tile(page, "Plays")).to_have_text("3")
        if window:
            assert [(each.reward, each.metrics) for each in campaign.decisions()] == [(6.0, {"returns": 1.0})] * 3
            shown = page.get_by_role("heading", name="3 decided, 0 settled, 3 open; the next settles in 59 min")
            expect(shown).to_be_visible()
    assert campaign.summary().rewards == 3
    expect(page.locator(".best-list li, .arms .is-best")).to_have_count(0)  # three plays are too few


def test_the_dialog_offers_what_makes_sense_first(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    dialog = new_campaign(page, "shop", 3, NAMES)
    expect(dialog.get_by_label("Stop rule")).to_be_hidden()
    dialog.get_by_text("More options").click()
    policy = dialog.get_by_label("Policy")
    expect(policy.locator("option").first).to_have_text("thompson (default)")
    policy.select_option("uniform")  # waits until the policies are loaded
    assert "doubling" in policy.locator("optgroup[label='Research policies'] option").all_inner_texts()
    assert "cmab-sm" not in policy.locator("option").all_inner_texts()  # it needs a horizon
    expect(dialog.get_by_text("Learns nothing: every decision has random arms.")).to_be_visible()
    for name, half_life in (("uniform", False), ("contextual-thompson", True), ("thompson", True)):
        policy.select_option(name)
        expect(dialog.get_by_label("Half-life (plays)")).to_be_visible(visible=half_life)
    dialog.get_by_label("Control gets").select_option("arms")
    dialog.get_by_label("Arms of the control").fill("mug\ntray")
    button(dialog, "Create campaign").click()
    expect(dialog.get_by_role("alert")).to_have_text("The control needs 3 arms; got 2.")
    dialog.get_by_label("Control gets").select_option("uniform")
    dialog.get_by_label("Stop rule").fill("loss<0.01")
    dialog.get_by_label("Unit of the reward").fill("EUR")
    dialog.get_by_label("Half-life (plays)").fill("9000")
    dialog.get_by_label("Breaker").check()
    dialog.get_by_label("Lowest reward").fill("")
    button(dialog, "Create campaign").click()
    expect(dialog.get_by_role("alert")).to_contain_text("or leave both empty")
    expect(dialog.get_by_label("Rewards outside the range are")).to_be_visible()
    dialog.get_by_label("Highest reward").fill("")
    expect(dialog.get_by_label("Rewards outside the range are")).to_be_hidden()  # the range is learned
    dialog.get_by_label("A visitor keeps the arms for").fill("14d")
    button(dialog, "Create campaign").click()
    expect(dialog.get_by_role("alert")).to_contain_text("A breaker needs a control to return to")
    dialog.get_by_label("Control gets").select_option("arms")
    dialog.get_by_label("Arms of the control").fill("\n".join(NAMES[:3]))
    button(dialog, "Create campaign").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    found = Campaign.open("shop", module_store).settings()
    assert (found.control, found.stop_when, found.unit) == (NAMES[:3], "loss<0.01", "EUR")
    assert (found.breaker, found.sticky, found.outside) == (True, 14 * 86_400, "widen")
    assert found.half_life == 9000


def test_rules_are_made_shown_and_changed(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address, viewport=PHONE)
    dialog = new_campaign(page, "shop", 3, NAMES)
    dialog.get_by_text("More options").click()
    kind, add = dialog.get_by_label("Rule", exact=True), button(dialog, "Add rule")
    add.click()
    expect(dialog.get_by_role("alert")).to_have_text("Choose at least one arm.")
    dialog.get_by_label("Group").fill("Acme")
    for arm in ("mug", "tray", "pan"):
        dialog.locator(".chip-choice", has_text=arm).click()
    button(dialog, "Create campaign").click()
    expect(at_field(dialog, "Rule")).to_contain_text("Add the rule that is begun")
    add.click()
    kind.select_option("always")
    expect(dialog.get_by_label("Number")).to_be_hidden()
    dialog.locator(".chip-choice", has_text="kettle").click()
    add.click()
    kind.select_option("never")
    dialog.locator(".chip-choice", has_text="kettle").click()
    add.click()
    listed = dialog.locator(".rule-list li")
    expect(listed).to_have_text(["At most 1 of Acme: mug, tray, pan", "Always in: kettle", "Never in: kettle"])
    button(dialog, "Create campaign").click()
    clash = "These rules cannot hold together for 3 of 8 arms: always (kettle); never (kettle)"
    expect(at_field(dialog, "Rule")).to_contain_text(clash)
    button(dialog, "Remove: Never in: kettle").click()
    kind.select_option("budget")
    dialog.get_by_label("Budget").fill("4.5")
    dialog.get_by_label("Costs").fill("pot 3\nlid: 2.5")
    add.click()
    button(dialog, "Create campaign").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    campaign = Campaign.open("shop", module_store)
    rules: list[dict[str, Any]] = [
        {"rule": "at-most", "count": 1, "arms": ["mug", "tray", "pan"], "name": "Acme"},
        {"rule": "always", "arms": ["kettle"]},
        {"rule": "budget", "most": 4.5, "costs": [["pot", 3.0], ["lid", 2.5]]},
    ]
    assert campaign.settings().constraints == rules
    shown = page.locator(".panel.rules li")
    expect(shown).to_have_text(
        ["At most 1 of Acme: mug, tray, pan", "Always in: kettle", "Costs up to 4.5: pot (3), lid (2.5)"]
    )
    assert page.evaluate(WIDER) == 0
    page.set_viewport_size({"width": 1440, "height": 844})
    assert page.evaluate(WIDER) == 0
    page.keyboard.press("a")
    dialog.get_by_label("Name of the arm").fill("cup")
    dialog.locator(".chip-choice", has_text="Acme").click()
    button(dialog, "Add arm").click()
    expect(shown.first).to_have_text("At most 1 of Acme: mug, tray, pan, cup")
    expect(dialog).to_have_count(0)  # the stream may be faster than the answer
    page.keyboard.press("e")
    button(dialog, "Remove: Costs up to 4.5: pot (3), lid (2.5)").click()
    button(dialog, "Save settings").click()
    expect(shown).to_have_count(2)
    expect(dialog).to_have_count(0)
    assert [each["rule"] for each in campaign.settings().constraints] == ["at-most", "always"]
    page.keyboard.press("e")
    button(dialog, "Save settings").click()
    expect(page.get_by_text("Nothing was changed")).to_be_visible()


def test_all_campaigns_are_listed_filtered_and_followed(address: str, module_store: str, pages: Pages) -> None:
    play(made(module_store, "news"))
    made(module_store, "shop").pause()
    campaign = made(module_store, "failing", unit="EUR")
    campaign.reward(campaign.decide().id, 6.0)
    with store_at(module_store).write() as connection:
        failure = CAMPAIGNS.update().where(CAMPAIGNS.c.name == "failing").values(failure=FAILURE)
        connection.execute(failure)
    page = pages.open(address)
    card = page.locator(".card").filter(has_text="failing")
    expect(card.locator(".mean dd")).to_have_text("6.00 EUR")
    expect(card.locator(".card-alarm")).to_have_text("policy fails")
    card.locator(".card-link").click()
    expect(page.get_by_role("alert")).to_have_text(
        "The policy cannot learn: division by zero Decisions follow the last plan, and rewards are recorded. "
        "Change a setting, or upgrade kofn: then it tries again."
    )
    page.go_back()
    campaign.delete()
    expect(page.locator(".card-name")).to_have_text(["news", "shop"])
    expect(page.locator(".card .pill")).to_have_text(["running", "paused"])
    expect(page.locator(".card").first.locator("svg.spark path")).to_have_count(2)
    made(module_store, "third")
    expect(page.locator(".card")).to_have_count(3)
    page.get_by_label("Filter campaigns").fill("new")
    expect(page.locator(".card-name")).to_have_text(["news"])
    page.get_by_label("Filter campaigns").fill("zzz")
    expect(page.get_by_text("No campaign name contains “zzz”.")).to_be_visible()


def test_thousands_of_campaigns_are_a_small_page(address: str, module_store: str, pages: Pages) -> None:
    made(module_store)
    store = store_at(module_store)
    copy_rows(store, "front-page", 3000)
    with store.write() as connection:
        connection.execute(CAMPAIGNS.update().where(CAMPAIGNS.c.name == "copy 02999").values(state="stopped"))
    page = pages.blank()
    sizes: list[int] = []
    page.on("response", lambda answer: sizes.append(len(answer.body())) if "campaigns?" in answer.url else None)
    page.goto(address)
    expect(page.locator(".lede")).to_have_text("3,000 running, 3,001 in total")
    expect(page.locator(".card")).to_have_count(48)
    expect(page.locator(".pager")).to_contain_text("1 to 48 of 3,001")
    expect(button(page, "Previous page")).to_be_disabled()
    button(page, "Next page").click()
    expect(page.locator(".pager")).to_contain_text("49 to 96 of 3,001")
    expect(page.locator(".card-name").first).to_have_text("copy 00048")
    page.get_by_label("Filter campaigns").fill("COPY 0299")
    expect(page.locator(".card")).to_have_count(10)
    expect(page.locator(".pager")).to_be_hidden()
    page.get_by_label("State").select_option("stopped")
    expect(page.locator(".card-name")).to_have_text(["copy 02999"])
    page.get_by_label("State").select_option("paused")
    expect(page.get_by_text("No paused campaign has a name that contains “COPY 0299”.")).to_be_visible()
    page.get_by_label("Filter campaigns").fill("")
    expect(page.get_by_text("No paused campaigns.")).to_be_visible()
    assert max(sizes) < 50_000
    with store.write() as connection:  # rows only: they cannot be deleted as campaigns
        connection.execute(CAMPAIGNS.delete().where(CAMPAIGNS.c.name.startswith("copy ")))


def test_arms_that_cost_something(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    dialog = new_campaign(page, "coupons", 2, list("abc"))
    dialog.get_by_text("More options").click()
    expect(dialog.get_by_label("Fewest arms")).to_be_hidden()
    dialog.get_by_label("Policy").select_option("thompson-sizes")
    expect(dialog.get_by_text("where arms cost something")).to_be_visible()
    dialog.get_by_label("Fewest arms").fill("3")
    button(dialog, "Create campaign").click()
    expect(dialog.get_by_role("alert")).to_have_text("The fewest arms must be a whole number from 1 to 2.")
    dialog.get_by_label("Fewest arms").fill("1")
    dialog.get_by_label("Price of each arm").fill("0.1\n0.2")
    button(dialog, "Create campaign").click()
    expect(dialog.get_by_role("alert")).to_have_text("Enter a cost of at least 0 for each of the 3 arms, one per line.")
    dialog.get_by_label("Price of each arm").fill("0.1\n0.2\n0")
    button(dialog, "Create campaign").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("coupons")
    coupons = Campaign.open("coupons", module_store)
    assert len({len(each.arms) for each in coupons.decide(50)}) == 2
    assert coupons.settings().costs == {"a": 0.1, "b": 0.2, "c": 0.0}
    expect(page.get_by_text("values are net of costs")).to_be_visible()
    button(page, "Settings").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Price of each arm")).to_have_value("a 0.1\nb 0.2\nc 0")
    dialog.get_by_label("Price of each arm").fill("a 0.3\nd 1")
    button(dialog, "Save settings").click()
    expect(dialog.get_by_role("alert")).to_have_text("“d 1” is not an arm of the campaign and its cost.")
    dialog.get_by_label("Price of each arm").fill("a 0.3\nb 1.2.3")
    button(dialog, "Save settings").click()
    expect(dialog.get_by_role("alert")).to_have_text("“b 1.2.3” is not an arm of the campaign and its cost.")
    dialog.get_by_label("Price of each arm").fill("a 0.3\nb: 0.0000001")
    button(dialog, "Save settings").click()
    expect(page.get_by_text("Settings saved")).to_be_visible()
    assert coupons.settings().costs == {"a": 0.3, "b": 1e-7}
    button(page, "Settings").click()
    expect(dialog.get_by_label("Price of each arm")).to_have_value("a 0.3\nb 1e-7")
    button(dialog, "Save settings").click()
    expect(page.get_by_text("Nothing was changed")).to_be_visible()


def test_what_cannot_be_created_is_refused_in_words(address: str, module_store: str, pages: Pages) -> None:
    made(module_store, "there")
    page = pages.open(address)
    button(page, "New campaign").click()
    dialog = page.get_by_role("dialog")
    create, wrong = button(dialog, "Create campaign"), dialog.get_by_role("alert")
    create.click()
    expect(wrong).to_have_text("The campaign needs a name.")
    expect(dialog.get_by_label("Name")).to_be_focused()
    dialog.get_by_label("Name").fill("there")
    dialog.get_by_label("Arms", exact=True).fill("a\nb\na")
    create.click()
    expect(wrong).to_contain_text("“a” is listed twice")
    dialog.get_by_label("Arms", exact=True).fill("a\nb\nc")
    create.click()
    expect(wrong).to_contain_text("There must be more arms than arms per decision; got 3 and 5.")
    dialog.get_by_label("Arms per decision").fill("2")
    create.click()
    expect(wrong).to_contain_text("A campaign named 'there' already exists")  # an error of the service


@pytest.mark.slow
def test_a_campaign_is_deleted_only_by_writing_its_name(address: str, module_store: str, pages: Pages) -> None:
    made(module_store)
    page = pages.open(f"{address}#/front-page")
    page.get_by_label("More actions").click()
    with page.expect_download() as download:
        button(page, "Export as JSON").click()
    assert download.value.suggested_filename == "front-page.json"
    page.get_by_label("More actions").click()
    button(page, "Delete…").click()
    page.get_by_label("Type the campaign's name to confirm").fill("front")
    button(page, "Delete campaign").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("The name does not match")
    page.get_by_label("Type the campaign's name to confirm").fill("front-page")
    button(page, "Delete campaign").click()
    expect(page.get_by_text("No campaigns yet")).to_be_visible()


# Keyboard, phone, dark mode.


def test_keys_wait_for_the_session(address: str, pages: Pages) -> None:
    """What the token allows is not known before: no dialog opens, and none is closed when it is known."""
    page = pages.blank()
    keys, new = (page.get_by_role("dialog", name=name) for name in ("Shortcuts", "New campaign"))
    waiting: list[Route] = []
    page.context.route("**/api/session", lambda route: waiting.append(route))
    with page.expect_request("**/api/session"):
        page.goto(address)
    for key in ("n", "?"):  # new campaign, shortcuts
        page.keyboard.press(key)
    expect(page.locator("main")).to_have_attribute("aria-busy", "true")
    expect(new).to_have_count(0)
    waiting[0].continue_()
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    expect(keys).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.keyboard.press("n")
    expect(new).to_be_visible()


def focused(page: Page) -> str:
    """Check that the focus ring is visible, and return the name of the focused element."""
    ring = "e => getComputedStyle(e).outlineStyle + getComputedStyle(e).outlineWidth"
    seen, html = page.evaluate(f"[({ring})(document.activeElement), document.activeElement.outerHTML]")
    assert seen == "solid2px", html
    name = "e => (e.getAttribute('aria-label') || e.labels?.[0]?.textContent || e.textContent).trim()"
    return str(page.evaluate(f"({name})(document.activeElement)"))


@pytest.mark.slow
def test_all_of_it_goes_by_keyboard(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    keys = page.keyboard
    expect(page.get_by_text("No campaigns yet")).to_be_visible()
    keys.press("n")
    expect(page.get_by_role("dialog").get_by_label("Name")).to_be_focused()
    keys.type("by-hand")
    keys.press("Tab")
    assert focused(page) == "Arms per decision"
    keys.type("3")
    keys.press("Tab")
    assert focused(page) == "Arms"
    keys.type("\n".join(NAMES))
    while not focused(page).startswith("Nothing is reported"):
        keys.press("Tab")
    keys.press("ArrowDown")
    assert focused(page).startswith("A zero is reported")
    while focused(page) != "Create campaign":
        keys.press("Tab")
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("by-hand")

    campaign = Campaign.open("by-hand", module_store)
    campaign.rewards({each.id: 0.5 for each in campaign.decide(50)})
    expect(tile(page, "Plays")).to_have_text("50")
    keys.press("p")
    expect(page.locator(".title-line .pill")).to_have_text("paused")
    keys.press("p")
    expect(page.locator(".title-line .pill")).to_have_text("running")
    keys.press("/")
    expect(page.get_by_label("Filter arms")).to_be_focused()
    keys.type("mug")
    expect(page.locator(".arms tbody tr")).to_have_count(1)
    expect(button(page, "Retire mug")).to_be_visible()
    while focused(page) != "Retire mug":
        keys.press("Tab")
    keys.press("Enter")
    while focused(page) != "Retire arm":
        keys.press("Tab")
    keys.press("Enter")
    expect(row(page, "mug")).to_contain_text("retired")

    page.locator(".stage:visible").focus()
    keys.press("End")
    expect(page.locator(".tip:visible")).to_contain_text("Recent mean")
    keys.press("Escape")
    expect(page.locator(".tip:visible")).to_have_count(0)
    keys.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("Pause or resume")
    keys.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    keys.press("c")
    expect(page.locator(".card")).to_have_count(1)
    keys.press("j")
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("by-hand")


def test_everything_has_a_name_and_stands_out(address: str, module_store: str, pages: Pages) -> None:
    campaign = made(module_store, unit="EUR", control=NAMES[:3], stop_when="loss<5")
    play(campaign)
    page = pages.open(f"{address}#/front-page", color_scheme="light")
    expect(page.locator(".arms tbody tr")).to_have_count(8)
    assert page.evaluate(NAMELESS) == []
    for key in ("e", "s", "n"):  # settings, ship, new campaign
        page.keyboard.press(key)
        expect(page.get_by_role("dialog")).to_be_visible()
        assert page.evaluate(NAMELESS) == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
    described = re.compile(r"Reward over time, .* The estimated reward of the best subset is \d")
    expect(page.locator(".stage:visible")).to_have_attribute("aria-label", described)
    keys = "[...document.querySelectorAll('[aria-keyshortcuts]')].map(e => e.getAttribute('aria-keyshortcuts'))"
    assert {"p", "a", "/", "t", "?"} <= set(page.evaluate(keys))
    campaign.ship()
    expect(page.locator(".notice.is-shipped")).to_be_visible()
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        contrasts = page.evaluate(CONTRAST)
        assert len(contrasts) > 50
        assert contrasts[0][0] >= 4.5, contrasts[:5]  # WCAG level AA


@pytest.mark.parametrize("widths", [(390, 320), (820,)])
def test_nothing_is_cut_off_on_a_narrow_screen(
    widths: tuple[int, ...], address: str, module_store: str, pages: Pages
) -> None:
    long = [f"a rather long name of an arm, number {number}, that goes on and on" for number in range(12)]
    play(made(module_store, "a-name-that-is-much-longer-than-a-telephone-is-wide-and-has-no-blank", long))
    page = pages.open(address, viewport=PHONE | {"width": widths[0]}, has_touch=True, is_mobile=widths[0] < 800)
    expect(page.locator(".card")).to_have_count(1)
    for width in widths:
        page.set_viewport_size(PHONE | {"width": width})
        assert page.evaluate(WIDER) == 0
    page.locator(".card-link").click()
    expect(page.locator(".arms tbody tr")).to_have_count(12)
    button(page, "Add arm").click()
    for width in widths:
        page.set_viewport_size(PHONE | {"width": width})
        box = page.get_by_role("dialog").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width
    page.keyboard.press("Escape")
    for width in widths:
        page.set_viewport_size(PHONE | {"width": width})
        assert page.evaluate(WIDER) == 0
        if width < 640:
            assert page.evaluate(f"{SMALL_BUTTONS}.map(e => e.outerHTML)") == []


@pytest.mark.slow
def test_the_switch_for_the_dark_is_remembered(address: str, pages: Pages) -> None:
    page = pages.open(address, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Toggle dark mode").click()
    assert page.evaluate(ground) != light
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    expect(page.locator("main")).to_have_attribute("aria-busy", "false")
    page.keyboard.press("t")
    expect(page.locator("html")).to_have_attribute("data-theme", "light")
    page.emulate_media(color_scheme="dark")  # the choice equals the system's, so the page follows it again
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")


# Errors.


def test_names_stay_names(address: str, module_store: str, pages: Pages) -> None:
    campaign = made(module_store, arms=NASTY + NAMES)
    play(campaign)
    page = pages.open(f"{address}#/front-page")
    for name in NASTY:
        expect(row(page, name)).to_be_visible()
        button(page, f"Retire {name}").click()
        expect(page.get_by_role("dialog").get_by_role("heading")).to_have_text(f"Retire {name}?")
        button(page.get_by_role("dialog"), "Retire arm").click()
        expect(row(page, name)).to_contain_text("retired")
    assert campaign.arms == NAMES
    assert page.title() == "front-page · kofn"
    assert page.locator("main img, main script").count() == 0


def test_a_name_that_no_campaign_has_is_not_sent(address: str, module_store: str, pages: Pages) -> None:
    made(module_store)
    page = pages.blank()
    page.on("request", lambda request: asked.append(request.url))
    asked: list[str] = []
    for name in (".", "..", "%2F", "front-page%2Fexport", "..%2Ffront-page"):
        visit(page, f"{address}#/{name}")
        expect(page.get_by_role("heading", level=1)).to_have_text("Not found")
        expect(page.get_by_role("alert")).to_contain_text(f"'{unquote(name)}'")
    assert not [url for url in asked if "/api/" in url and not url.endswith("/session")]
    visit(page, f"{address}#/nowhere")
    expect(page.get_by_role("alert")).to_contain_text("There is no campaign 'nowhere'")
    page.get_by_role("link", name="All campaigns", exact=True).click()
    expect(page.locator(".card-name")).to_have_text(["front-page"])


@pytest.mark.slow
def test_without_a_stream_it_polls(address: str, module_store: str, pages: Pages) -> None:
    campaign = made(module_store)
    page = pages.blank()
    page.context.route("**/stream", lambda route: route.fulfill(status=503, body="{}"))
    visit(page, f"{address}#/front-page")
    expect(page.locator(".live")).to_have_text("Polling")
    play(campaign, 2)
    expect(tile(page, "Plays")).to_have_text("50")


@pytest.mark.slow
def test_a_service_that_goes_and_comes_is_said(sqlite_store: str, pages: Pages) -> None:
    campaign = made(sqlite_store)
    with Served(sqlite_store) as service:
        page = pages.open(f"{service.url}/#/front-page")
        expect(page.locator(".live")).to_have_text("Live")
        service.kill()
        expect(page.locator(".live")).to_have_text("No connection")
        expect(page.get_by_role("heading", level=1)).to_have_text("front-page")  # the last data stays visible
        play(campaign, 2)
        service.start()
        expect(tile(page, "Plays")).to_have_text("50")
        expect(page.locator(".live")).not_to_have_text("No connection")


@pytest.fixture
def token(sqlite_store: str) -> Callable[..., str]:
    return lambda *what: create_token(store_at(sqlite_store), "somebody", *what)[0]


@pytest.mark.slow
def test_a_token_opens_the_page(sqlite_store: str, token: Callable[..., str], pages: Pages) -> None:
    campaign = made(sqlite_store)
    full, read = token("full"), token("read")
    with served(sqlite_store) as address:
        page = pages.open(f"{address}#/front-page")
        page.get_by_label("Token").fill("no such token")
        page.keyboard.press("Enter")
        expect(page.get_by_label("Token")).to_have_value("")  # the form is a new one
        expect(page.get_by_role("alert")).to_contain_text("token")
        page.get_by_label("Token").fill(full)
        button(page, "Sign in").click()
        expect(button(page, "Pause")).to_be_visible()
        expect(page.locator(".live")).to_have_text("Live")  # the stream accepts the token as well
        button(page, "Pause").click()
        expect(page.locator(".title-line .pill")).to_have_text("paused")
        assert campaign.state == "paused"
        button(page, "Sign out").click()
        page.get_by_label("Token").fill(read)
        button(page, "Sign in").click()
        expect(page.locator(".title-line .pill")).to_have_text("paused")
        expect(button(page, "Resume")).to_be_hidden()
        expect(page.get_by_role("button", name="Retire kettle")).to_be_hidden()
        page.get_by_label("More actions").click()
        expect(page.locator(".menu-item:visible")).to_have_count(2)  # exports only
        with page.expect_download() as download:
            button(page, "Decisions as CSV").click()
        assert download.value.suggested_filename == "front-page.csv"
        assert download.value.path().read_text().startswith("id,at,subset,arms,")
        page.keyboard.press("p")
        page.keyboard.press("a")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_link_that_the_service_prints_signs_in(sqlite_store: str, token: Callable[..., str], pages: Pages) -> None:
    """But not with a token of web pages."""
    made(sqlite_store)
    browsers, full = token("browser", "front-page"), token("full")
    with served(sqlite_store) as address:
        page = pages.open(f"{address}#token={browsers}")
        expect(page.get_by_role("alert")).to_have_text(
            "This token is for web pages: it may only decide and reward. Sign in with another one."
        )
        page.get_by_label("Token").fill(full)
        button(page, "Sign in").click()
        expect(page.get_by_role("link", name="front-page")).to_be_visible()
        button(page, "Sign out").click()
        expect(page.get_by_label("Token")).to_be_visible()
        page.goto(f"{address}#token={full}")
        expect(page.get_by_role("link", name="front-page")).to_be_visible()
        assert page.url == f"{address}#/"  # the token is not left in the address
        page.reload()
        expect(page.get_by_role("link", name="front-page")).to_be_visible()


# Large campaigns.


@pytest.mark.slow
def test_a_large_campaign_is_a_small_page(address: str, module_store: str, pages: Pages) -> None:
    fill(made(module_store, "long", arms=[f"arm {number}" for number in range(24)]), 50_000)
    assert measure_load(pages.blank(), f"{address}#/long")[1] < 1_000_000
    campaign = made(module_store, arms=[f"arm {number}" for number in range(2000)])
    play(campaign, 2)
    assert measure_load(pages.blank(), f"{address}#/front-page")[1] < 1_000_000
    page = pages.open(f"{address}#/front-page")
    expect(page.locator(".arms tbody tr")).to_have_count(50)
    page.get_by_label("Filter arms").fill("arm 1999")
    expect(row(page, "arm 1999")).to_be_visible()
