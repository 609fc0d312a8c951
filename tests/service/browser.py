"""A headless Chromium for the tests of the dashboard, and a server to look at."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    Response,
    Route,
    expect,
    sync_playwright,
)

from kofn.campaigns import Campaign
from tests.service.tools import TOKEN, Served
from tests.system import missing

PROGRAMS = "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"

MISSING = (
    "Chromium was not found. Run scripts/install-test-system.sh, install it yourself (Debian and Ubuntu: chromium; "
    "elsewhere: python -m playwright install chromium), or set KOFN_CHROMIUM to its path"
)

QUIET = (
    *("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--no-first-run", "--disable-quic", "--renderer-process-limit=1"),  # a process for each page takes longer
    "--no-sandbox",  # its sandbox does not run as root; all pages are our own
)
"""Options with which Chromium asks for nothing but the page."""


SIGN_IN = f"""
try {{
  if (!sessionStorage.getItem("tests")) sessionStorage.setItem("kofn-token", "{TOKEN}");
  sessionStorage.setItem("tests", "signed in");
}} catch {{ /* about:blank stores nothing */ }}
"""
"""A script that signs a new tab in once, for `add_init_script`."""

STRICT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Stricter than the policy of the service: nothing inline, not even a style."""

PHONE: Any = {"width": 390, "height": 844}
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SMALL_BUTTONS = "[...document.querySelectorAll('main .button')].filter(e => e.checkVisibility() && e.offsetHeight < 36)"
NAMELESS = """[...document.querySelectorAll('button, a, input, select, textarea, summary')]
    .filter(e => !(e.getAttribute('aria-label') || e.labels?.length || e.textContent.trim()))
    .map(e => e.outerHTML)"""
CONTRAST = """() => {
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const numbers = (colour) => colour.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const [r, g, b, a = 1] = numbers(getComputedStyle(e).backgroundColor);
      if (a === 1) return [r, g, b];
    }
  };
  const found = [];
  for (const e of document.querySelectorAll('main *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest('svg') || !e.checkVisibility()) continue;
    const [a, b] = [luminance(numbers(getComputedStyle(e).color)), luminance(behind(e))].sort((x, y) => y - x);
    found.push([(a + 0.05) / (b + 0.05), e.className || e.tagName, e.textContent.slice(0, 30)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""

TIMEOUT = 90_000
"""Milliseconds until something must be on the page. The dashboard itself rests for up to 30 seconds between two reloads
when the service is slow, so lower values fail on busy machines."""

expect.set_options(timeout=TIMEOUT)


@contextmanager
def headless() -> Iterator[Browser]:
    """Start a headless Chromium; without one, skip the test or raise RuntimeError."""
    path = _found() or missing(MISSING)  # asks Playwright for its own, so it comes before Playwright is started
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(QUIET))
        yield started
        started.close()


def _found() -> str | None:
    if named := os.environ.get("KOFN_CHROMIUM"):
        return named
    return next((path for name in PROGRAMS if (path := shutil.which(name))), None) or _playwrights_own()


def _playwrights_own() -> str | None:
    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


def new_context(browser: Browser, **settings: Any) -> BrowserContext:
    """Return a context, such as a visitor's, whose pages wait as long as `expect` does."""
    context = browser.new_context(**{"reduced_motion": "reduce"} | settings)
    context.set_default_timeout(TIMEOUT)
    return context


def visit(page: Page, address: str) -> None:
    """Load the dashboard, and wait until it shows data, the sign-in form or an error: keys work from then on."""
    page.goto(address)
    page.locator("main[aria-busy=false]").wait_for()


def button(page: Page | Locator, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def new_campaign(page: Page, name: str, k: int, arms: list[str]) -> Locator:
    """Open the dialog of a new campaign, fill in what it needs, and return it."""
    page.keyboard.press("n")
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Arms per decision").fill(str(k))
    dialog.get_by_label("Arms", exact=True).fill("\n".join(arms))
    return dialog


class Pages:
    """Opens pages under a strict policy, and records their errors."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self.contexts: list[BrowserContext] = []
        self.wrong: list[str] = []

    def open(self, address: str, **settings: Any) -> Page:
        """Open the page at an address, and wait until it is ready."""
        page = self.blank(**settings)
        visit(page, address)
        return page

    def blank(self, **settings: Any) -> Page:
        """Open an empty page, for tests that prepare it before they visit the dashboard."""
        context = new_context(self._browser, **({"viewport": {"width": 1440, "height": 900}} | settings))
        self.contexts.append(context)
        context.route(re.compile(r"/$"), _strictly)
        context.add_init_script(SIGN_IN)
        page = context.new_page()
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", self._note)
        page.on("response", self._check)
        return page

    def _note(self, message: Any) -> None:
        # The page itself reports errors of the service, and the tests check that.
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.wrong.append(message.text)

    def _check(self, response: Response) -> None:
        if response.status >= 400 and "/api/" not in response.url:
            self.wrong.append(f"{response.status} {response.url}")


def _strictly(route: Route) -> None:
    answer = route.fetch()
    route.fulfill(response=answer, headers=answer.headers | {"content-security-policy": STRICT})


@contextmanager
def checked_pages(browser: Browser) -> Iterator[Pages]:
    """Open pages, and fail at the end if one had an error or violated the policy."""
    opened = Pages(browser)
    yield opened
    for context in opened.contexts:
        context.close()
    assert opened.wrong == []


@contextmanager
def served(store: str, *options: str) -> Iterator[str]:
    """Run `kofn serve` in a process of its own, and yield its URL. `SIGN_IN` signs a page in."""
    with Served(store, *options) as started:
        yield f"{started.url}/"


def fill(campaign: Campaign, plays: int) -> None:
    """Make decisions and report their rewards."""
    for made in range(0, plays, 10_000):
        decisions = campaign.decide(min(plays - made, 10_000))
        campaign.rewards([(each.id, (index % 97) / 8.1) for index, each in enumerate(decisions)])


CHART = ".plot path.recent"
"""The line of the chart on the page of a campaign."""


def measure_load(page: Page, where: str, until: str = CHART) -> tuple[float, int]:
    """Return the milliseconds until an element is drawn, and the uncompressed bytes loaded by then."""
    sizes: dict[str, int] = {}
    network = page.context.new_cdp_session(page)
    network.send("Network.enable")

    def add_size(data: dict[str, Any]) -> None:
        sizes[data["requestId"]] = sizes.get(data["requestId"], 0) + data["dataLength"]

    network.on("Network.dataReceived", add_size)
    page.add_init_script(SIGN_IN)
    page.goto(where)
    page.wait_for_selector(until, state="attached")  # a flat line has no height
    took = float(page.evaluate("performance.now()"))
    page.close()
    return took, sum(sizes.values())
