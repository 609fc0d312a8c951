"""Take screenshots of every page of the dashboard, wide and narrow, light and dark: `python -m tools.screenshots`.

They show twenty simulated minutes of the demo as three days, so that traffic and money per month are those of a shop,
and are written to out/screens. The images of docs/guides/dashboard.md and context.md are also written to docs/images.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from playwright.sync_api import Browser, Page

from kofn.campaigns import Campaign, Decision, Store, store_at
from kofn.campaigns.settings import duration
from kofn.service.background import demo
from kofn.service.security.tokens import create_token
from tests.service.browser import SIGN_IN, headless, served

IMAGES = Path(__file__).parents[1] / "docs" / "images"
OUT = Path("out/screens")
MINUTES, STRETCH = 20, 216
"""Minutes of the demo that are simulated, and how many seconds each of its seconds is shown as."""

TICK = 1.0
"""Seconds of the demo between two steps."""

ARMS = ["kettle", "mug", "tray", "pan", "pot", "lid", "jug", "bowl"]
WIDE, NARROW = (1280, 1000), (390, 844)
SHOWN = {
    ("campaign", WIDE, "light"): "dashboard",
    ("campaign", NARROW, "dark"): "dashboard-phone",
    ("segments", WIDE, "light"): "segments",
}
"""The images of docs/guides/dashboard.md and context.md."""

Scheme = Literal["light", "dark"]


def fill(url: str) -> None:
    """Simulate the demo up to now, and campaigns that are new, shipped, and raise alarms."""
    store, steps = store_at(url), int(MINUTES * 60 / TICK)
    begun = time.time() - MINUTES * 60 * STRETCH
    store.clock = lambda: begun
    demo.EXPIRE_AFTER *= STRETCH
    shop = demo.DEMO_CAMPAIGNS[0].options
    for name in ("window", "metric_window"):
        shop[name] = STRETCH * duration(name, shop[name])
    player = demo.Demo(store, seed=8)
    for step in range(steps):
        store.clock = lambda at=begun + step * TICK * STRETCH: at  # type: ignore[misc]
        player.step(step * TICK, TICK)
    _more(store)
    store.close()


def _more(store: Store) -> None:
    rng = np.random.default_rng(1)
    begun = store.clock() - 130 * 60

    def play(campaign: Campaign, minutes: int, sign: int) -> None:
        nonlocal begun
        for _ in range(minutes):
            begun += 60
            store.clock = lambda at=begun: at  # type: ignore[misc]
            found = campaign.decide(60)
            campaign.rewards([(each.id, reward(each, sign)) for each in found])

    def reward(decision: Decision, sign: int) -> float:
        return float(np.clip(rng.normal(6 + sign * (sum(decision.subset) / 4 - 3), 2), 0, 12))

    def create(name: str) -> Campaign:
        return Campaign.create(name, ARMS, 3, store=store, reward_range=(0, 12), unit="EUR", control=ARMS[:3], seed=1)

    store.clock = lambda at=begun: at  # type: ignore[misc]
    create("new")
    shipped, changed = create("shipped"), create("changed")
    play(shipped, 20, 1)
    shipped.ship()
    play(changed, 50, 1)
    play(changed, 60, -1)
    changed.note_alarms()
    exported = Campaign.open("demo-three-countries", store).export()
    Campaign.import_(exported, store=store, name="shipped-to-segments").ship()


@contextmanager
def pages(browser: Browser, address: str) -> Iterator[Iterator[tuple[Page, tuple[int, int], Scheme]]]:
    """Yield a page for each size and color scheme."""

    def each() -> Iterator[tuple[Page, tuple[int, int], Scheme]]:
        for size in (WIDE, NARROW):
            schemes: tuple[Scheme, Scheme] = "light", "dark"
            for scheme in schemes:
                context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
                context.add_init_script(SIGN_IN)
                page = context.new_page()
                page.goto(address)
                yield page, size, scheme
                context.close()

    yield each()


def take(
    page: Page, name: str, size: tuple[int, int], scheme: Scheme, *, whole: bool = False, part: str | None = None
) -> None:
    """Write a screenshot of the page, or of a part of it."""
    page.wait_for_timeout(800)  # until animations have ended
    picture = OUT / f"{name}-{size[0]}-{scheme}.png"
    (page.locator(part) if part else page).screenshot(path=picture)
    if shown := SHOWN.get((name, size, scheme)):
        shutil.copy(picture, IMAGES / f"{shown}.png")
    if whole:
        page.screenshot(path=OUT / f"{name}-whole-{size[0]}-{scheme}.png", full_page=True)


def campaigns(browser: Browser, address: str) -> None:
    """Take the list, the campaigns and their dialogs."""
    with pages(browser, address) as each:
        for page, size, scheme in each:
            page.wait_for_selector(".card")
            take(page, "list", size, scheme)
            page.goto(f"{address}#/demo-front-page")
            page.wait_for_selector(".arms tbody tr")
            take(page, "campaign", size, scheme, whole=True)
            for key, name in (("n", "create"), ("?", "keys"), ("s", "ship"), ("e", "settings")):
                page.keyboard.press(key)
                page.wait_for_selector("dialog")
                take(page, name, size, scheme)
                page.locator("dialog").evaluate("e => { e.querySelector('details')?.toggleAttribute('open', true); }")
                page.locator("dialog").evaluate("e => e.scrollTo(0, e.scrollHeight)")
                take(page, f"{name}-more", size, scheme)
                page.keyboard.press("Escape")
            page.get_by_label("More actions").click()
            take(page, "menu", size, scheme)
            page.get_by_label("More actions").click()
            for name, selector in (("retire", "button[title^=Retire]"), ("arm", ".arm-link")):
                page.locator(selector).first.click()
                take(page, name, size, scheme)
                page.keyboard.press("Escape")
            for name in ("Loss", "Lift"):
                page.get_by_text(name, exact=True).click()
                take(page, name.lower(), size, scheme)
            page.goto(f"{address}#/demo-three-countries")
            page.wait_for_selector(".by-segment tbody tr")
            take(page, "segments", size, scheme, part=".by-segment")
            page.keyboard.press("s")
            page.wait_for_selector("dialog")
            take(page, "ship-segments", size, scheme)
            page.keyboard.press("Escape")
            page.keyboard.press("n")
            page.get_by_text("More options").click()
            page.get_by_label("Policy").select_option("contextual-thompson")
            page.get_by_label("Attributes of visitors").scroll_into_view_if_needed()
            take(page, "create-attributes", size, scheme)
            page.keyboard.press("Escape")
            names = {
                "demo-edge-servers": "minimise",
                "demo-three-countries": "segments-page",
                "shipped-to-segments": "shipped-to-segments",
                "new": "new",
                "shipped": "shipped",
                "changed": "alarms",
            }
            for campaign, name in names.items():
                page.goto(f"{address}#/{campaign}")
                page.wait_for_selector(".arms tbody tr")
                take(page, name, size, scheme, whole=True)
            page.goto(f"{address}#/not-there")
            take(page, "missing", size, scheme)


def first(browser: Browser, address: str, name: str) -> None:
    """Take the first page of a new store, or of one with tokens."""
    with pages(browser, address) as each:
        for page, size, scheme in each:
            take(page, name, size, scheme)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, headless() as browser:
        urls = {name: f"sqlite:///{folder}/{name}.db?synchronous=normal" for name in ("demo", "empty", "locked")}
        fill(urls["demo"])
        create_token(store_at(urls["locked"]), "somebody")
        store_at(urls["locked"]).close()
        with served(urls["demo"]) as address:
            campaigns(browser, address)
        for store, name in (("empty", "empty"), ("locked", "login")):
            with served(urls[store]) as address:
                first(browser, address, name)
    print(f"wrote {len(os.listdir(OUT))} screenshots to {OUT}/ and {len(SHOWN)} to {IMAGES.name}/")


if __name__ == "__main__":
    main()
