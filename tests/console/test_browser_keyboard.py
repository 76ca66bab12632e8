"""The console by keyboard alone: where the focus is after what the page, the broker or the person does."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka import KafkaProducer

from lading import testing
from lading.client.consumer import Consumer
from lading.client.producer import Producer

from .test_browser import browser, console, open_page, rows

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]

REFRESH_MS = 2500
"""Pages that show what is now are drawn anew every two seconds."""


def focus(page: Page) -> Any:
    """The words of what has the focus."""
    return page.evaluate(
        "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText).split('\\n')[0].trim()"
    )


def tab_to(page: Page, words: str, key: str = "Tab") -> None:
    """Go on by Tab alone until what has the focus begins with ``words``; how it looks there differs from before."""
    for _ in range(80):
        page.keyboard.press(key)
        if focus(page).startswith(words):
            outline = page.evaluate(
                "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle("
                "document.activeElement.cells?.[0] ?? document.activeElement).boxShadow"
            )
            assert outline != "nonenone", "one does not see where one is"
            return
    raise AssertionError(f"no Tab leads to {words!r}")


def test_the_skip_link_leads_to_the_content_and_changes_nothing(open_page: Callable[..., Page]) -> None:
    page = open_page("/send?topic=flights")
    page.get_by_label("Payload", exact=True).fill("kept")
    page.evaluate("document.activeElement.blur()")
    tab_to(page, "Skip to the content", "Shift+Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focus(page) == "Topics"
    assert page.evaluate("!!document.activeElement.closest('main')")
    assert page.get_by_label("Payload", exact=True).input_value() == "kept"


def test_the_focus_stays_when_the_page_is_drawn_anew(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("moving", b"x", headers={"a": 1, "b": 2})
        producer.flush()
        page = open_page("/")
        page.get_by_role("link", name="moving", exact=True).wait_for()
        for words in ("partitions", "moving"):
            tab_to(page, words)
            producer.send("moving", b"x", headers={"a": 1, "b": 2})
            producer.flush()
            page.wait_for_timeout(REFRESH_MS)
            assert focus(page).startswith(words)
        tab_to(page, "Messages")
        page.wait_for_timeout(REFRESH_MS)
        assert focus(page) == "Messages"
        page.goto("/topic?topic=moving")
        page.get_by_role("link", name="0", exact=True).focus()
        producer.send("moving", b"x")
        producer.flush()
        page.wait_for_timeout(REFRESH_MS)
        assert focus(page) == "0"
        page.keyboard.press("Enter")
        page.wait_for_url("**partition=0**")
        rows(page).first.wait_for()
        tab_to(page, "a")
        page.keyboard.press("Enter")
        page.wait_for_url("**column=a**")
        assert focus(page) == "a"


def test_a_page_that_was_gone_to_has_the_focus(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.get_by_role("link", name="flights", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/topic?topic=flights")
    page.get_by_role("link", name="0", exact=True).wait_for()
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to(page, "Topics")


def test_enter_searches_again_while_a_search_runs(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights")
    rows(page).nth(49).wait_for()
    page.route("**/api/messages?*slow*", lambda route: None)  # never answered
    page.keyboard.press("/")
    page.keyboard.type("carrier = 'slow'")
    page.keyboard.press("Enter")
    cancel = page.get_by_role("button", name="Cancel")
    cancel.wait_for()
    page.keyboard.press("Control+A")
    page.keyboard.type("delay = 0")
    page.keyboard.press("Enter")
    page.get_by_text("1 message;").wait_for()
    assert cancel.is_hidden()


def test_a_message_is_read_and_closed_while_others_arrive(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("arriving", b"before", headers={"n": 0})
        producer.flush()
        page = open_page("/messages?topic=arriving&tail=1")
        page.get_by_text("following").wait_for()
        producer.send("arriving", b"opened", headers={"n": 1})
        producer.flush()
        rows(page).first.wait_for()
        page.keyboard.press("j")
        page.keyboard.press("Enter")
        tab_to(page, "hex")
        producer.send("arriving", b"later", headers={"n": 2})
        producer.flush()
        rows(page).nth(1).wait_for()
        assert focus(page) == "hex"
        page.keyboard.press("Escape")
        page.locator("tr.detail").wait_for(state="detached")
        assert "opened" in page.evaluate("document.activeElement.innerText")
        assert "tail=1" in page.url, "the first Escape closes the message, and the next one ends the tail"
        page.keyboard.press("Escape")
        page.wait_for_url(lambda url: "tail" not in url)


def test_a_state_is_set_without_a_mouse(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("typed", b"one")
    page = open_page("/messages?topic=typed")
    rows(page).first.wait_for()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    tab_to(page, "set state")
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    assert focus(page) == "State"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    page.keyboard.type("by hand")
    tab_to(page, "Set state")
    page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    page.get_by_text("No messages here").wait_for()
    with Consumer(broker.url, "typed", states="all", timeout_s=0) as consumer:
        assert [message.state.word for message in consumer] == ["poisoned"]


def test_a_header_that_is_not_listed_becomes_a_column(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=hostile")
    rows(page).first.wait_for()
    page.get_by_label("Another header").focus()
    page.keyboard.type("h9999")
    page.keyboard.press("Enter")
    page.get_by_role("columnheader", name="h9999").wait_for()
    page.get_by_role("gridcell", name="9999", exact=True).wait_for()
    assert "column=h9999" in page.url


def test_what_a_chart_shows_is_a_table_as_well(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    kafka = KafkaProducer(bootstrap_servers=broker.endpoints["kafka"])
    for minute in range(3):
        kafka.send("minutes", b"", headers=[("carrier", b"UA")], timestamp_ms=1_780_000_000_000 + 60_000 * minute)
    kafka.close()
    page = open_page("/headers?topic=minutes")
    page.get_by_role("heading", name="Heaviest messages").wait_for()
    tab_to(page, "As a table")
    page.keyboard.press("Enter")
    table = page.locator("details table")
    shown = [int(row.locator("td").nth(1).inner_text().replace(",", "")) for row in table.locator("tbody tr").all()]
    assert sum(shown) == 3 and re.match(r"\d{4}-", table.locator("td").first.inner_text())
