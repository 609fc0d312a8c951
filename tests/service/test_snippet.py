"""The page of docs/guides/web-page.md in a browser: on one origin, with the service on another."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Route, expect

from kofn.campaigns import Campaign, campaigns, store_at
from kofn.core.responses import LoggedDecision
from kofn.service.security.tokens import create_token
from tests.service.browser import TIMEOUT, new_context, served
from tests.service.tools import free_port
from tests.waiting import wait_until

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "web-page.md"
ARMS = ["kettle", "mug", "tray", "pan", "lamp"]
DEFAULTS = ["kettle", "mug"]
VISIBLE = "[data-arm]:not([hidden])"


class Site:
    """Static pages on an origin of their own, under a strict Content-Security-Policy."""

    def __init__(self) -> None:
        self.pages: dict[str, str] = {}
        self.policy = "default-src 'none'"
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.pages.get(self.path, "<!doctype html><title>another page</title>").encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Security-Policy", site.policy)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.origin = f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    threading.Thread(target=made.server.serve_forever, daemon=True).start()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture(scope="module")
def service_url(module_store: str, site: Site) -> Iterator[str]:
    with served(module_store, "--allow-origin", site.origin) as where:
        yield where


def guide_page() -> str:
    found = re.search(r"```html\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found
    return found[1]


@dataclass
class Shop:
    """A shop whose page is that of the guide, its campaign, and visitors."""

    site: Site
    campaign: Campaign
    url: str
    token: str
    browser: Browser
    contexts: list[BrowserContext]
    wrong: list[str]

    def publish(self, attributes: str = "", *, timeout: int | None = TIMEOUT, url: str | None = None) -> None:
        """Publish the page. `timeout` is how long it waits for the service, which may be slow here; None: as usual."""
        url = url or self.url
        if timeout:
            attributes += f' data-timeout="{timeout}"'
        page = guide_page().replace("https://kofn.example.com/", url).replace("kofn_...", self.token)
        page = page.replace("></script>", f" {attributes}></script>", 1)
        assert url in page
        assert self.token in page
        self.site.pages["/"] = page
        self.site.policy = f"default-src 'none'; script-src {url}; connect-src {url}"

    def visitor(self) -> BrowserContext:
        context = new_context(self.browser)
        self.contexts.append(context)
        return context

    def open(self, context: BrowserContext | None = None, *, origin: str | None = None) -> Page:
        page = (context or self.visitor()).new_page()
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.goto(f"{origin or self.site.origin}/", wait_until="commit")
        return page

    def shown(self, page: Page) -> list[str]:
        """Return the arms that the page shows, once it has made up its mind."""
        page.wait_for_load_state("load")  # the script delays it, although it is loaded with async
        page.evaluate("kofn.shown")
        expect(page.locator(VISIBLE).first).to_be_visible()
        return [str(each.get_attribute("data-arm")) for each in page.locator(VISIBLE).all() if each.is_visible()]

    def decisions(self) -> list[LoggedDecision]:
        return list(self.campaign.decisions())

    def rewarded(self) -> list[float | None]:
        """Return the rewards of all decisions, once one is reported."""
        wait_until(lambda: any(each.reward is not None for each in self.decisions()), "a reward", every=0.02)
        return [each.reward for each in self.decisions()]


@pytest.fixture
def shop(browser: Browser, site: Site, module_store: str, service_url: str) -> Iterator[Shop]:
    for each in campaigns(module_store):
        Campaign.open(each.name, module_store).delete()
    made = Campaign.create("front-page", ARMS, 2, window="30m", sticky="30d", seed=3, store=module_store)
    token, _ = create_token(store_at(module_store), "page", "browser", "front-page")
    shop = Shop(site, made, service_url, token, browser, [], [])
    shop.publish()
    yield shop
    for context in shop.contexts:
        context.close()
    assert shop.wrong == []


def test_a_visitor_sees_k_items_and_a_click_is_reported(shop: Shop) -> None:
    page = shop.open()
    arms = shop.shown(page)
    [decision] = shop.decisions()
    assert arms == decision.arms
    assert page.evaluate("localStorage.getItem('kofn-visitor')") == decision.key
    page.locator(VISIBLE).first.click()
    page.wait_for_url("**/*.html")
    assert shop.rewarded() == [1.0]


def test_the_same_visitor_continues_the_same_decision(shop: Shop) -> None:
    visitors = [shop.visitor() for _ in range(6)]
    first = [shop.shown(shop.open(visitor)) for visitor in visitors]
    assert len({tuple(each) for each in first}) > 1
    assert [shop.shown(shop.open(visitor)) for visitor in visitors] == first
    assert len(shop.decisions()) == len({each.key for each in shop.decisions()}) == 6


@pytest.mark.slow
def test_orders_and_metrics_are_reported(shop: Shop) -> None:
    page = shop.open()
    shop.shown(page)
    assert page.evaluate("kofn.add(0.25, 'order-1')") is True
    assert page.evaluate("kofn.add(0.25, 'order-1')") is True  # it counts once
    assert page.evaluate("kofn.add(0.5, 'order-1')") is False
    assert page.evaluate("kofn.add(0.5, 'order-2')") is True
    assert page.evaluate("kofn.record('returns', 1)") is True
    [decision] = shop.decisions()
    assert (decision.reward, decision.metrics) == (0.75, {"returns": 1.0})
    assert page.evaluate("kofn.reward(0.125)") is True
    assert page.evaluate("kofn.reward(0.5)") is False  # the first one counts
    assert shop.rewarded() == [0.875]


@pytest.mark.slow
def test_a_later_page_reports_what_the_visitor_did(shop: Shop) -> None:
    shop.publish('data-click="none"')
    visitor = shop.visitor()
    page = shop.open(visitor)
    shop.shown(page)
    page.locator(VISIBLE).first.click()
    page.wait_for_url("**/*.html")
    page.goto(f"{shop.site.origin}/")
    shop.shown(page)  # the same decision again
    page.route("**/decisions", lambda route: route.abort())
    given = {"campaign": "front-page", "token": shop.token}
    assert page.evaluate("given => kofn.add(0.75, 'order-17', given)", given) is True
    assert shop.rewarded() == [0.75]
    assert page.evaluate("given => kofn.reward(1, {...given, campaign: 'other'})", given) is False


def test_what_comes_after_the_window_is_not_recorded(shop: Shop) -> None:
    shop.campaign.configure(window=0.01)
    page = shop.open()
    shop.shown(page)
    time.sleep(0.01)
    assert page.evaluate("kofn.add(1, 'order-1')") is False


def test_only_items_that_are_shown_count(shop: Shop) -> None:
    page = shop.open()
    shop.shown(page)
    page.locator("h1").click()
    page.evaluate("addEventListener('click', (event) => event.preventDefault())")  # it is a link
    page.evaluate(
        "document.querySelector('[data-arm][hidden]')"
        ".dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))"
    )
    assert page.evaluate("kofn.add(0.5, 'order-17')") is True
    assert shop.rewarded() == [0.5]


@pytest.mark.slow
def test_the_middle_button_counts(shop: Shop) -> None:
    page = shop.open()
    shop.shown(page)
    page.locator(VISIBLE).first.click(button="middle")
    assert shop.rewarded() == [1.0]


def test_a_repeated_reward_counts_once(shop: Shop) -> None:
    """The answer to the first request is lost after the service has recorded it."""
    page = shop.open()
    lost: list[int] = []

    def lose_once(route: Route) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch().status)
            route.abort()
        else:
            route.continue_()

    shop.shown(page)
    page.route("**/rewards", lose_once)
    assert page.evaluate("kofn.reward(1)") is True
    assert lost == [200]
    assert shop.rewarded() == [1.0]


def never(route: Route) -> None:
    """Leave a request without an answer."""


def fail(route: Route) -> None:
    route.fulfill(status=503, body="{}")


def garbage(route: Route) -> None:
    headers = {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Headers": "*"}
    route.fulfill(status=200, body="<html>", headers=headers)


@pytest.mark.parametrize("answer", [never, fail, garbage, lambda route: route.abort()])
def test_without_an_answer_the_page_shows_its_own_items(shop: Shop, answer: Callable[[Route], None]) -> None:
    shop.publish(timeout=None)
    visitor = shop.visitor()
    visitor.route("**/decisions", answer)
    page = shop.open(visitor)
    began = time.monotonic()
    assert shop.shown(page) == DEFAULTS
    assert time.monotonic() - began < 30
    assert page.evaluate("kofn.shown") is None
    assert page.evaluate("kofn.reward(1)") is False
    page.locator(VISIBLE).first.click()
    page.wait_for_url("**/kettle.html")
    assert shop.decisions() == []


def test_a_service_that_is_down_changes_nothing(shop: Shop) -> None:
    shop.publish(url=f"http://127.0.0.1:{free_port()}/")
    page = shop.open()
    page.wait_for_load_state("load")
    assert page.locator(VISIBLE).all_inner_texts() == ["Kettle", "Mug"]
    assert page.evaluate("typeof kofn") == "undefined"


@pytest.mark.slow
def test_an_arm_that_is_not_on_the_page_shows_the_pages_own_items(shop: Shop) -> None:
    shop.campaign.ship(["pan", "lamp"])
    shop.site.pages["/"] = shop.site.pages["/"].replace('data-arm="lamp"', 'class="gone"')
    page = shop.visitor().new_page()
    with page.expect_console_message(lambda message: 'no item has data-arm="lamp"' in message.text):
        page.goto(f"{shop.site.origin}/")
    assert shop.shown(page) == DEFAULTS


def test_a_shipped_subset_is_shown(shop: Shop) -> None:
    shop.campaign.ship(["pan", "lamp"], store=False)
    page = shop.open()
    assert shop.shown(page) == ["pan", "lamp"]
    page.locator(VISIBLE).first.click()
    assert shop.rewarded() == [1.0]
    time.sleep(1.1)  # the service goes on for a second, also after the campaign is deleted


def test_a_paused_campaign_leaves_the_page_as_it_is(shop: Shop) -> None:
    shop.campaign.pause()
    assert shop.shown(shop.open()) == DEFAULTS


def test_an_origin_that_is_not_allowed_is_refused(shop: Shop) -> None:
    page = shop.open(origin=f"http://localhost:{shop.site.port}")  # the same page, on another origin
    assert shop.shown(page) == DEFAULTS
    assert shop.decisions() == []
    shop.site.pages["/"] = shop.site.pages["/"].replace("async", "defer")
    assert shop.shown(shop.open()) != []
    assert len(shop.decisions()) == 1


def test_a_page_cannot_read_results(shop: Shop) -> None:
    page = shop.open()
    shop.shown(page)
    read = """async ([url, token]) => {
      try { return (await fetch(url, {headers: {Authorization: `Bearer ${token}`}})).status } catch { return "blocked" }
    }"""
    for path in ("insight", "export", "decisions", "events"):
        address = f"{shop.url}api/campaigns/front-page/{path}"
        assert page.evaluate(read, [address, shop.token]) == "blocked"


@pytest.mark.slow
def test_without_a_store_of_its_own_each_view_is_a_visitor(shop: Shop) -> None:
    visitor = shop.visitor()
    visitor.add_init_script("Object.defineProperty(window, 'localStorage', {get() { throw new Error('blocked') }})")
    for _ in range(2):
        assert len(shop.shown(shop.open(visitor))) == 2
    assert len({each.key for each in shop.decisions()}) == 2


def test_a_page_says_for_whom(shop: Shop, module_store: str) -> None:
    shop.campaign.delete()
    declared = {"attributes": {"device": ["phone", "desktop"]}}
    made = Campaign.create("front-page", ARMS, 2, policy="contextual-thompson", params=declared, store=module_store)
    shop.campaign = made
    shop.token, _ = create_token(store_at(module_store), "page", "browser", "front-page")
    shop.publish("""data-context='{"device": "phone"}'""")
    arms = shop.shown(shop.open())
    [decision] = shop.decisions()
    assert (decision.context, decision.arms) == ({"device": "phone"}, arms)
