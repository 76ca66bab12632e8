"""The table of a topic in Chromium: its name and a block for each engine are copied as they are."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from lading import testing
from lading.console.engine_blocks import write_engine_blocks

from .test_browser import browser, end, open_page, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "open_page"]
CATALOG = "http://127.0.0.1:8181"


@pytest.fixture(scope="module")
def console(full: bool, broker: testing.BrokerProcess) -> Iterator[str]:
    if not full:
        pytest.skip("a browser takes ten seconds of CPU: only with LADING_TEST_FULL=1; test_engine_blocks.py asks")
    with tempfile.TemporaryDirectory() as state:
        process, url = start_console("--from", broker.url, "--state", state, "--tables", CATALOG)
        yield url
        end(process)


def test_each_engine_has_a_button_that_copies_its_block(open_page: Callable[..., Page]) -> None:
    page = open_page("/topic?topic=flights")
    page.get_by_role("button", name="Copy the table's name").click()
    page.get_by_text("copied the table's name").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "default.flights"
    for block in write_engine_blocks(CATALOG, "default", "flights"):
        page.get_by_role("button", name=f"Copy the block for {block.engine}", exact=True).click()
        page.get_by_text(f"copied the block for {block.engine}", exact=True).wait_for()
        assert page.evaluate("navigator.clipboard.readText()") == block.text
    page.get_by_text("Show them").click()
    assert page.locator("pre").count() == len(write_engine_blocks(CATALOG, "default", "flights"))
