"""Searches in Chromium: Back leads through them, one that is cancelled says so, and nothing moves while one runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from .test_browser import browser, console, open_page, rows

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
