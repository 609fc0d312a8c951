"""Segments on the dashboard: attributes of a new campaign, what is best for each segment, winners, many segments."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import numpy as np
from playwright.sync_api import Locator, Page, expect

from kofn.campaigns import Campaign
from tests.service.browser import (
    CONTRAST,
    NAMELESS,
    PHONE,
    SMALL_BUTTONS,
    WIDER,
    Pages,
    button,
    new_campaign,
)

OFFERS = ["socks", "scarf", "cap", "lamp", "chair", "shelf", "vase", "bowl"]
LIKES = {"phone": {"socks", "scarf", "cap"}, "desktop": {"lamp", "chair", "shelf"}}


def play(campaign: Campaign, turns: int = 8) -> None:
    """Phones like clothes, desktops furniture; countries like the same, and half of the visitors come from de."""
    rng = np.random.default_rng(2)
    for _ in range(turns):
        decisions = []
        for device, times in (("phone", 3), ("desktop", 2)):
            for country, more in (("de", 2), ("fr", 1)):
                decisions += campaign.decide(10 * times * more, context={"device": device, "country": country})
        liked = [len(LIKES[(each.context or {})["device"]] & set(each.arms)) for each in decisions]
        rewards = np.clip(rng.normal(np.array(liked) * 3 + 1, 1.0), 0, 12)
        campaign.rewards({each.id: float(value) for each, value in zip(decisions, rewards, strict=True)})


def panel(page: Page) -> Locator:
    return page.get_by_role("region", name="Segments")


def rows(page: Page) -> list[str]:
    """The rows of the table as lines of words."""
    return [" ".join(text.split()) for text in panel(page).locator("tbody tr").all_inner_texts()]


def test_a_campaign_is_created_and_shipped_for_each_segment(address: str, module_store: str, pages: Pages) -> None:
    page = pages.open(address)
    dialog = new_campaign(page, "shop", 3, OFFERS)
    dialog.get_by_label("Highest reward").fill("12")
    dialog.get_by_label("A zero is reported").check()
    dialog.get_by_text("More options").click()
    dialog.get_by_label("Unit of the reward").fill("EUR")
    expect(dialog.get_by_label("Attributes of visitors")).to_be_hidden()
    dialog.get_by_label("Policy").select_option("contextual-thompson")
    dialog.get_by_label("Seed").fill("5")
    for wrong, message in (
        ("device\ndevice: phone", "“device” is listed twice."),
        (": phone", "“: phone” has no name before its colon."),
        ("device: phone, phone", "none twice"),  # this one is refused by the service
        ("device: phone, desktop\ncountry", None),
    ):
        dialog.get_by_label("Attributes of visitors").fill(wrong)
        button(dialog, "Create campaign").click()
        if message:
            field = dialog.locator(".field").filter(has_text="Attributes of visitors")
            expect(field.get_by_role("alert")).to_contain_text(message)
    expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    campaign = Campaign.open("shop", module_store)
    declared = json.loads(campaign.export()["campaign"]["settings"])["attributes"]
    assert declared == {"device": ["phone", "desktop"], "country": None}
    expect(panel(page)).to_contain_text("Known after the first rewards")
    expect(page.locator(".first-steps pre")).to_contain_text('\'{"context": {"country": "VALUE", "device": "VALUE"}}\'')

    play(campaign)
    expect(page.get_by_role("group", name="Plays")).to_have_text(re.compile("^Plays1,2000 in flight"))
    device, country = (panel(page).locator(".attributes li", has_text=name) for name in ("Device", "Country"))
    sure = r"Device matters: choosing by device earns [\d.]+ EUR more per visitor; more than 99% sure\."
    expect(device).to_have_text(re.compile(sure))
    expect(country).to_have_text(re.compile("^Country (does not|may) matter"))  # it never does; plays are random
    expect(panel(page).locator(".panel-count")).to_have_text("4 segments")
    found = campaign.segments().segments
    number = r"[\d.]+"
    for line, each in zip(rows(page), found, strict=True):
        names = sorted(each.best, key=lambda name: (name in campaign.best(), each.best.index(name)))
        expected = (
            rf"{each.words} {each.share:.0%} {' '.join(names)} {number} EUR {number} to {number} (< )?{number} EUR"
        )
        assert re.fullmatch(expected, line), (line, expected)
        assert set(each.best) == LIKES[each.context["device"]]
    assert panel(page).locator(".special").all_inner_texts() == ["lamp", "chair", "shelf"] * 2
    expect(page.get_by_role("group", name="Reward of the best subsets")).to_contain_text("average over all segments")
    expect(page.get_by_role("region", name="Best subset for all together")).to_contain_text("socks")
    expect(page.locator(".planned .for-whom").first).to_have_text(re.compile("country .., device (phone|desktop)"))
    page.keyboard.press("e")
    expect(dialog.get_by_label("Half-life (plays)")).to_be_visible()
    page.keyboard.press("Escape")

    page.keyboard.press("s")
    expect(dialog).to_contain_text("Each segment gets its own best subset from now on.")
    expect(dialog.locator(".ship-segments li")).to_have_count(4)
    expect(dialog).to_contain_text("A new segment gets the winners predicted from similar segments")
    button(dialog, "Ship").click()
    notice = page.locator(".notice.is-shipped")
    expect(notice).to_contain_text("Each segment gets its own winner")
    expect(notice).to_contain_text("A new segment gets the winners predicted from similar segments.")
    expect(notice.locator(".shipped-arms")).to_have_count(0)
    expect(panel(page).get_by_role("columnheader", name="Gets")).to_be_visible()
    for value, likes in LIKES.items():
        for where in ("fr", "it"):  # nobody has come from Italy yet
            assert set(campaign.decide(context={"device": value, "country": where}).arms) == likes
    campaign.ship(OFFERS[-3:])  # to everyone
    expect(notice).to_contain_text("Everyone gets these arms.")
    expect(notice.locator(".shipped-arms")).to_be_visible()
    expect(panel(page).locator(".better").first).to_have_text("Best by now: socks, scarf, cap")


def many(number: int) -> dict[str, Any]:
    """What the service says about many segments with long names."""
    value = "a-rather-long-value-without-any-blank-that-goes-on-and-on"
    segments = [
        {
            "context": {"city": f"{value} <b>{place}</b>", "device": "(other)"} if place else {"city": "(missing)"},
            "plays": 1000 - place,
            "share": (number - place) / (number * (number + 1) / 2),
            "best": OFFERS[place % 4 : place % 4 + 3],
            "value": None if place == 1 else 0.5,
            "low": None if place == 1 else 0.4,
            "high": None if place == 1 else 0.6,
            "expected_loss": None if place == 1 else 0.01,
            "loss_high": None,
            "shipped": None,
        }
        for place in range(number)
    ]
    attributes = [("city", 0.962, 0.012), ("device", 0.86, 0.004), ("lang", 0.4, 0.0001), ("tier", 0.0, 0.0)]
    return {
        "segments": segments,
        "attributes": [
            {"attribute": name, "values": ["a"] if name == "tier" else ["a", "b"], "probability": sure, "gain": gain}
            for name, sure, gain in attributes
        ],
    }


def test_fifty_segments_fit_in_both_widths(address: str, module_store: str, pages: Pages) -> None:
    settings: dict[str, Any] = {"store": module_store, "policy": "contextual-thompson", "seed": 1}
    slow = Campaign.create("slow", OFFERS, 3, direction="minimize", **settings)
    for campaign in (slow, Campaign.create("many", OFFERS, 3, **settings)):
        campaign.rewards({each.id: place % 2 for place, each in enumerate(campaign.decide(20, context={"city": "x"}))})
    Campaign.create("plain", OFFERS, 3, store=module_store)
    page = pages.blank(has_touch=True)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.route("**/api/campaigns/*/segments", lambda route: route.fulfill(json=many(50)))
    page.goto(f"{address}#/slow")
    attributes = panel(page).locator(".attributes li")
    expect(attributes.first).to_have_text("City matters: choosing by city saves 0.012 per visitor; 96% sure.")
    page.goto(f"{address}#/many")
    expect(attributes).to_have_text(
        [
            "City matters: choosing by city earns 0.012 more per visitor; 96% sure.",
            "Device may matter: choosing by device seems to earn 0.004 more per visitor; 86% sure.",
            "Lang does not matter so far: choosing by lang would earn 0.0001 more per visitor, "
            "but that is only 40% sure.",
            "Tier does not matter so far: all visitors had the same value.",
        ]
    )
    expect(panel(page).locator("tbody tr")).to_have_count(8)
    assert rows(page)[0].startswith("other visitors 4% ")
    assert rows(page)[1].endswith("\N{EN DASH} \N{EN DASH}")
    button(page, "Show 42 smaller segments").click()
    expect(panel(page).locator("tbody tr")).to_have_count(50)
    expect(panel(page).locator("tbody b", has_text="<b>")).to_have_count(0)
    for width in (1280, 820, 390, 320):
        page.set_viewport_size(PHONE | {"width": width})
        assert page.evaluate(WIDER) == 0, width
    assert page.evaluate(NAMELESS) == []
    assert page.evaluate(f"{SMALL_BUTTONS}.map(e => e.outerHTML)") == []
    themes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    for theme in themes:
        page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        expect(page.locator("html")).to_have_attribute("data-theme", theme)
        assert page.evaluate(CONTRAST)[0][0] >= 4.5  # WCAG level AA
    page.keyboard.press("s")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("And 44 smaller segments")
    box = dialog.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 320
    page.keyboard.press("Escape")
    asked.clear()
    page.goto(f"{address}#/plain")
    expect(page.get_by_text("Waiting for the first decision")).to_be_visible()
    expect(panel(page)).to_have_count(0)
    assert not [url for url in asked if url.endswith("/segments")]
