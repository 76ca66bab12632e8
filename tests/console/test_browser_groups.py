"""Groups in Chromium: found, looked into, moved after a dry run, deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from lading import testing

from .test_browser import browser, console, open_page
from .test_groups import commit, committed

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def test_a_group_is_moved_where_the_dry_run_said(
    open_page: Callable[..., Page], broker: testing.BrokerProcess, read: str
) -> None:
    commit(broker, [3, 1])
    page = open_page("/groups?q=shop")
    page.get_by_role("link", name="shop").click()
    page.get_by_role("heading", name="Positions").wait_for()
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("New position").fill("back 2")
    page.get_by_role("button", name="Show what changes").click()
    rows = page.locator("dialog tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [["read", "0", "3", "1"], ["read", "1", "1", "0"]]
    assert committed(broker) == [3, 1]
    page.get_by_role("button", name="Move in 2 partitions").click()
    page.get_by_text("moved in 2 partitions").wait_for()
    assert committed(broker) == [1, 0]


def test_a_place_that_is_none_is_said_and_nothing_moves(
    open_page: Callable[..., Page], broker: testing.BrokerProcess, read: str
) -> None:
    commit(broker, [3, 1])
    page = open_page("/group?protocol=kafka&group=shop")
    page.get_by_role("button", name="Move…").click()
    page.get_by_label("New position").fill("yesterdayish")
    page.get_by_role("button", name="Show what changes").click()
    page.get_by_text("yesterdayish").last.wait_for()
    page.get_by_role("button", name="Close").click()
    assert committed(broker) == [3, 1]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_group_is_deleted_after_it_was_asked(
    open_page: Callable[..., Page], broker: testing.BrokerProcess, read: str, width: int
) -> None:
    commit(broker, [1, 1], "gone")
    page = open_page("/group?protocol=kafka&group=gone", width=width)
    page.get_by_role("heading", name="Positions").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Cancel").click()
    assert committed(broker, "gone") == [1, 1]
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("heading", name="Groups").wait_for()
    assert committed(broker, "gone") == [-1001, -1001]
