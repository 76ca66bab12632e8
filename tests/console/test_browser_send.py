"""The send form in Chromium: what is stored is what was typed, and what the question before it said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .test_browser import browser, console, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def ask_to_send(page: Page) -> Any:
    page.get_by_role("button", name="Send…").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    return dialog


def test_the_question_tells_size_and_topic_and_comes_after_refusals(open_page: Callable[..., Page]) -> None:
    page = open_page("/send?topic=never-made")
    dialog = ask_to_send(page)
    assert "payload of 0 bytes" in dialog.inner_text()
    assert "which does not exist yet and is created with one partition" in dialog.inner_text()
    page.keyboard.press("Escape")
    page.get_by_label("Partition", exact=True).fill("7")
    page.get_by_role("button", name="Send…").click()
    page.get_by_text("partitions 0 to 0, not 7").wait_for()
    assert dialog.count() == 0
