"""The header explorer in Chromium: what it counts of many names, and when the messages are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .test_browser import browser, console, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def test_more_names_than_are_told_apart_are_said_on_top(open_page: Callable[..., Page]) -> None:
    page = open_page("/headers?topic=hostile")
    page.get_by_role("heading", name="Proposed contract").wait_for()
    cards = [one.inner_text().split("\n") for one in page.locator(".card").all()]
    assert ["headers", "more than 1,000"] in cards
    # 10,005 names, of which 10,000 stand in one message
    page.get_by_text("The first 1,000 names are told apart; 9,005 headers have other names").wait_for()
    page.get_by_text("and 500 lighter ones, beside those that are not told apart").wait_for()
    # a contract of a thousand lines is no page of a thousand lines
    height, whole = page.locator("pre.code").evaluate("one => [one.clientHeight, one.scrollHeight]")
    assert height < 600 < whole


def test_the_times_of_messages_are_written_as_everywhere_and_end_with_the_last(open_page: Callable[..., Page]) -> None:
    page = open_page("/headers?topic=hostile")
    page.get_by_role("heading", name="Proposed contract").wait_for()
    told = page.get_by_text(", intervals of").inner_text()
    found = re.match(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) to (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC, intervals of ", told)
    assert found is not None, told
    # the end of the last interval: one alone is no span of nothing
    assert found[1] < found[2]
