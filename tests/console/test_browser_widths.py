"""Columns of the list of messages in Chromium: wider by pointer and keyboard, and as wide after a reload."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from .test_browser import browser, console, open_page, rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def width_of(page: Page, column: str) -> float:
    box: Any = page.locator(f'th[data-column="{column}"]').bounding_box()
    return float(box["width"])


def test_a_column_is_as_wide_as_it_was_made(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&where=offset<5")
    rows(page).nth(4).wait_for()
    edge = page.get_by_role("separator", name="Width of the column payload")
    before = width_of(page, "payload")
    box: Any = edge.bounding_box()
    page.mouse.move(box["x"] + 4, box["y"] + 8)
    page.mouse.down()
    page.mouse.move(box["x"] - 96, box["y"] + 8, steps=4)
    page.mouse.up()
    assert width_of(page, "payload") == pytest.approx(before - 100, abs=2)
    # a click on the edge opens no message
    assert page.locator("tr.detail").count() == 0
    page.reload()
    rows(page).nth(4).wait_for()
    assert width_of(page, "payload") == pytest.approx(before - 100, abs=2)
    # the keyboard: Tab reaches the edge, arrows move it, Home takes the width back
    edge.focus()
    page.keyboard.press("ArrowRight")
    assert width_of(page, "payload") == pytest.approx(before - 84, abs=2)
    assert edge.get_attribute("aria-valuenow") == str(round(before - 84))
    page.keyboard.press("Home")
    assert width_of(page, "payload") == pytest.approx(before, abs=2)
    assert edge.get_attribute("aria-valuetext") == "automatic"
    page.reload()
    rows(page).nth(4).wait_for()
    assert width_of(page, "payload") == pytest.approx(before, abs=2)


def test_widths_do_not_hold_for_cards(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&where=offset<5")
    rows(page).nth(4).wait_for()
    page.get_by_role("separator", name="Width of the column key").focus()
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert width_of(page, "key") > 480
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
