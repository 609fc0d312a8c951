"""Take screenshots of every page of the dashboard, wide and narrow, light and dark: `python -m tools.screenshots`.

They show twenty simulated minutes of the demo and are written to out/screens. The two images of
docs/guides/dashboard.md are also written to docs/images.
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

from playwright.sync_api import Browser, Page

from kofn.campaigns import store_at
from kofn.service.demo import Demo
from kofn.service.tokens import create_token
from tests.browser import SIGN_IN, headless, served

IMAGES = Path(__file__).parents[1] / "docs" / "images"
OUT = Path("out/screens")
MINUTES = 20
WIDE, NARROW = (1280, 1000), (390, 844)
SHOWN = {("campaign", WIDE, "light"): "dashboard", ("campaign", NARROW, "dark"): "dashboard-phone"}
"""The images of docs/guides/dashboard.md."""

Scheme = Literal["light", "dark"]


def fill(url: str) -> None:
    """Simulate the last `MINUTES` minutes of the demo."""
    store, ticks = store_at(url), range(MINUTES * 60 * 4)
    begun = time.time() - len(ticks) / 4
    store.clock = lambda: begun
    demo = Demo(store, seed=8)
    for tick in ticks:
        store.clock = lambda at=begun + tick / 4: at  # type: ignore[misc]
        demo.step(tick / 4, 0.25)
    store.close()


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


def take(page: Page, name: str, size: tuple[int, int], scheme: Scheme, *, whole: bool = False) -> None:
    """Write a screenshot of the page."""
    page.wait_for_timeout(800)  # until animations have ended
    picture = OUT / f"{name}-{size[0]}-{scheme}.png"
    page.screenshot(path=picture)
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
            page.goto(f"{address}#/front-page")
            page.wait_for_selector(".arms tbody tr")
            take(page, "campaign", size, scheme, whole=True)
            for key, name in (("n", "create"), ("?", "keys")):
                page.keyboard.press(key)
                page.wait_for_selector("dialog")
                take(page, name, size, scheme)
                page.keyboard.press("Escape")
            page.locator("button[title^=Retire]").first.click()
            take(page, "retire", size, scheme)
            page.keyboard.press("Escape")
            page.goto(f"{address}#/edge-servers")
            page.wait_for_selector(".tile")
            take(page, "minimise", size, scheme, whole=True)
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
