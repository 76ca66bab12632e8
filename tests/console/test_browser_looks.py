"""How the console looks in Chromium: what stands beside what, and the words for names and counts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lading import testing
from lading.client.producer import Producer

from .conftest import run_pipeline
from .test_browser import WAIT_MS, browser, console, end, open_page, rows, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def middle(one: Any) -> float:
    box = one.bounding_box()
    return float(box["y"] + box["height"] / 2)


def test_headings_beside_one_another_are_level(open_page: Callable[..., Page]) -> None:
    page = open_page("/headers?topic=flights")
    headings = [page.get_by_role("heading", name=name) for name in ("Heaviest messages", "Proposed contract")]
    headings[1].wait_for()
    assert middle(headings[0]) == pytest.approx(middle(headings[1]), abs=1)


def test_figures_stand_level_with_their_words(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&open=0:7")
    for name in ("Headers", "Payload"):
        heading = page.locator(".single").get_by_role("heading", name=name)
        heading.wait_for()
        assert middle(heading) == pytest.approx(middle(heading.locator("+ span")), abs=2)


def test_a_header_without_a_name_is_no_blank(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("blank", b"", headers=[("", 1), ("n", 2)])
    page = open_page("/messages?topic=blank")
    rows(page).first.wait_for()
    assert rows(page).first.locator(".pair .key").all_inner_texts() == ["empty", "n"]
    assert rows(page).first.locator("td").last.inner_text() == "empty"
    assert page.get_by_role("button", name="empty", exact=True).is_visible()
    rows(page).first.click()
    page.locator("tr.detail td.key").first.wait_for()
    assert page.locator("tr.detail td.key").all_inner_texts() == ["empty", "n"]
    page.goto("/headers?topic=blank")
    page.get_by_role("link", name="empty", exact=True).wait_for()


def test_the_button_that_removes_a_header_has_no_line_of_its_own(open_page: Callable[..., Page]) -> None:
    page = open_page("/send?topic=flights", width=390)
    remove = page.get_by_role("button", name="Remove this header")
    remove.wait_for()
    assert middle(remove) == pytest.approx(middle(page.get_by_label("Header", exact=True)), abs=1)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_an_unknown_address_leads_back(open_page: Callable[..., Page]) -> None:
    page = open_page("/bogus")
    page.get_by_role("heading", name="Not found").wait_for()
    page.get_by_text("There is no page /bogus").wait_for()
    page.get_by_role("link", name="all topics").click()
    page.get_by_role("link", name="flights", exact=True).wait_for()


def test_a_dry_run_of_the_quarantine_in_words(browser: Any, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    file = run_pipeline(broker.url, tmp_path)
    process, url = start_console("--from", broker.url, "--pipeline", str(file))
    try:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{url}/pipelines")
        headings = [page.get_by_role("heading", name=name) for name in ("Why messages failed", "Destinations")]
        headings[0].wait_for()
        assert middle(headings[0]) == pytest.approx(middle(headings[1]), abs=1)
        page.get_by_role("link", name="quarantine").click()
        page.get_by_role("button", name="value not allowed").click()
        page.get_by_role("button", name="Redrive these").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_text("Dry run of value not allowed").wait_for()
        assert dialog.locator("tbody tr").all_inner_texts() == ["would be sent\t100"]
        page.close()
    finally:
        end(process)
