"""Searches in Chromium: Back leads through them, one that is cancelled says so, and nothing moves while one runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from lading import testing

from .test_browser import WAIT_MS, browser, console, end, open_page, rows, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def search(page: Page, where: str) -> None:
    page.get_by_role("textbox", name="Filter").fill(where)
    page.keyboard.press("Enter")


def test_back_leads_through_the_searches(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&order=old")
    rows(page).nth(49).wait_for()
    search(page, "delay = 5")
    page.get_by_text("1 message;").wait_for()
    search(page, "delay < -10")
    page.get_by_text("10 messages;").wait_for()
    # once more the same one, and what is looked at beside it, are no new places
    page.keyboard.press("Enter")
    page.get_by_role("button", name="carrier", exact=True).click()
    page.wait_for_url("**column=carrier**")
    page.go_back()
    page.get_by_text("1 message;").wait_for()
    assert page.get_by_role("textbox", name="Filter").input_value() == "delay = 5"
    page.go_back()
    rows(page).nth(49).wait_for()
    assert page.get_by_role("textbox", name="Filter").input_value() == ""
    page.go_forward()
    page.get_by_text("1 message;").wait_for()


@pytest.mark.parametrize("path", ["/headers?topic=flights", "/failures?topic=flights"])
def test_back_leads_to_the_search_before_on_other_pages(path: str, open_page: Callable[..., Page]) -> None:
    page = open_page(path)
    for where in ("delay = 5", "delay = 6"):
        search(page, where)
    page.go_back()
    page.wait_for_url("**where=delay+%3D+5")
    assert page.get_by_role("textbox", name="Filter").input_value() == "delay = 5"


def test_an_underscore_is_seen_before_anything_is_typed(open_page: Callable[..., Page]) -> None:
    page = open_page("/failures?topic=flights")
    field = page.get_by_role("textbox", name="Filter")
    pictures = []
    for words in ("origin_topic", "origin topic", "origin_topic"):
        field.evaluate("(one, words) => { one.placeholder = words; }", words)
        pictures.append(field.screenshot())
    assert pictures[0] == pictures[2] != pictures[1]


def never_answer(page: Page, path: str) -> None:
    page.route(f"**{path}?*", lambda route: None)


def test_a_search_that_is_cancelled_says_so(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights")
    rows(page).nth(49).wait_for()
    never_answer(page, "/api/messages")
    search(page, "delay = 5")
    page.get_by_role("button", name="Cancel").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("status").get_by_text("0 messages; cancelled").wait_for()
    # a search that takes the place of another one is none that was cancelled
    search(page, "delay = 6")
    page.unroute_all()
    search(page, "delay = 7")
    page.get_by_text("1 message; looked at 300").wait_for()


def test_nothing_moves_while_a_search_runs(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights")
    rows(page).nth(49).wait_for()
    places = [page.get_by_role("button", name="Live tail"), page.get_by_label("Another header"), page.locator("thead")]
    before = [one.bounding_box() for one in places]
    never_answer(page, "/api/messages")
    search(page, "delay = 5")
    page.get_by_role("button", name="Cancel").wait_for()
    assert [one.bounding_box() for one in places] == before
    page.keyboard.press("Escape")


def test_headers_can_be_picked_without_rows(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&where=delay+%3D+9999")
    page.get_by_text("No message matches").wait_for()
    assert page.locator(".chipbar").inner_text().split() == ["Columns", "carrier", "delay"]


def test_a_tail_that_is_ended_says_so(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&tail=1")
    page.get_by_text("following").wait_for()
    page.keyboard.press("Escape")
    page.get_by_text("0 messages; not followed any more").wait_for()


def test_a_tail_without_an_answer_is_not_green(browser: Any, broker: testing.BrokerProcess) -> None:
    process, url = start_console("--from", broker.url)
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{url}/messages?topic=flights&tail=1")
    page.locator(".pulse").wait_for()
    end(process)
    page.get_by_role("alert").get_by_text("No answer").wait_for()
    page.get_by_text("waiting for an answer · 0 messages shown").wait_for()
    assert page.locator(".pulse").count() == 0
    page.close()
