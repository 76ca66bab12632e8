"""The switch between brokers in Chromium: each page of each broker, and addresses that name none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lading import Producer, testing

from .test_brokers import write_file
from .test_browser import WAIT_MS, browser, console, end, rows, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console"]


@pytest.fixture
def page(browser: Any, broker: testing.BrokerProcess, tmp_path: Path) -> Iterator[Page]:
    with testing.broker() as second:
        with Producer(second.url) as producer:
            producer.send("events", b"hello", headers=[("site", "second")])
        file = write_file(tmp_path, broker.url, f"kafka://{second.endpoints['kafka']}")
        process, url = start_console("--brokers", str(file), "--state", str(tmp_path))
        opened = browser.new_page(base_url=url)
        opened.set_default_timeout(WAIT_MS)
        errors: list[str] = []
        opened.on("pageerror", lambda error: errors.append(str(error)))
        yield opened
        opened.close()
        end(process)
        assert errors == []


def test_the_switch_leads_to_the_pages_of_another_broker(page: Page) -> None:
    page.goto("/")
    page.wait_for_url("**/at/production/")
    page.get_by_role("link", name="flights", exact=True).click()
    page.wait_for_url("**/at/production/topic?topic=flights")
    page.locator("#source .badge").get_by_text("read only").wait_for()
    switch = page.get_by_label("Broker", exact=True)
    assert switch.input_value() == "production"
    switch.select_option("eu.events")
    # the topic may not be there: the list is
    page.wait_for_url("**/at/eu.events/")
    page.get_by_role("link", name="events", exact=True).wait_for()
    assert page.get_by_role("link", name="flights", exact=True).count() == 0
    page.get_by_role("link", name="Messages").click()
    page.wait_for_url("**/at/eu.events/messages?topic=events")
    rows(page).first.click()
    page.locator("tr.detail").get_by_text("second").first.wait_for()
    assert "open=0%3A0" in page.url
    page.reload()
    page.locator("tr.detail").wait_for()
    assert page.title() == "events messages · eu.events · Lading"
    page.get_by_role("link", name="Groups").first.click()
    page.wait_for_url("**/at/eu.events/groups")
    page.get_by_label("Broker", exact=True).select_option("production")
    page.wait_for_url("**/at/production/groups")
    page.go_back()
    page.wait_for_url("**/at/eu.events/groups")
    assert page.get_by_label("Broker", exact=True).input_value() == "eu.events"


@pytest.mark.parametrize("path", ["/headers?topic=events", "/send?topic=events", "/failures", "/pipelines", "/mirrors"])
def test_pages_of_a_broker_in_a_file_meet_no_error(page: Page, path: str) -> None:
    page.goto(f"/at/eu.events{path}")
    page.locator("main h1").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.locator(".error").count() == 0
    assert page.locator("a[href^='/']:not([href^='/at/'])").count() == 0


def test_a_broker_that_is_not_there_leads_to_the_others(page: Page) -> None:
    page.goto("/at/staging/topic?topic=x")
    page.get_by_text("no broker 'staging'").wait_for()
    page.get_by_role("link", name="eu.events").click()
    page.wait_for_url("**/at/eu.events/")


def test_a_broker_that_is_away_is_said_and_the_switch_works(page: Page) -> None:
    page.goto("/at/away/")
    page.get_by_text("No answer.").wait_for()
    page.get_by_label("Broker", exact=True).select_option("production")
    page.get_by_role("link", name="flights", exact=True).wait_for()


def test_the_switch_has_room_on_a_telephone(page: Page) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    page.goto("/at/production/")
    page.get_by_label("Broker", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
