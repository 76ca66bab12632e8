"""The send form in Chromium: what is stored is what was typed, and what the question before it said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lading import testing
from lading.client.consumer import Consumer
from lading.client.producer import Producer

from .test_browser import browser, console, open_page

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


def ask_to_send(page: Page) -> Any:
    page.get_by_role("button", name="Send…").click()
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    return dialog


def send(page: Page) -> None:
    dialog = ask_to_send(page)
    # what tells of the send before may still be on the page
    with page.expect_response("**/api/send"):
        dialog.get_by_role("button", name="Send").click()
    page.get_by_text("See the newest messages").first.wait_for()


def stored(url: str, topic: str) -> list[list[tuple[str, int, bytes | None]]]:
    with Consumer(url, topic, timeout_s=0) as consumer:
        return [[(key, int(kind), data) for key, kind, data in message.headers] for message in consumer]


def test_a_row_that_nobody_filled_in_is_no_header(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    page = open_page("/send?topic=bare")
    page.get_by_label("Payload", exact=True).fill("payload alone")
    send(page)
    # a name without a value is a header, and so is a null
    page.get_by_label("Header", exact=True).fill("via")
    page.get_by_role("button", name="Add a header").click()
    page.get_by_role("button", name="Add a header").click()
    page.locator(".header-row").nth(2).get_by_role("checkbox").check()
    assert ask_to_send(page).locator("tbody tr").all_inner_texts() == ["via\tstring\tempty", "empty\tstring\tnull"]
    page.keyboard.press("Escape")
    send(page)
    assert stored(broker.url, "bare") == [[], [("via", 2, b""), ("", 2, None)]]


def test_one_like_a_message_keeps_a_header_without_name_and_value(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("nameless", b"x", headers=[("", ""), ("n", 1)])
    page = open_page("/send?topic=nameless&like=0:0")
    page.get_by_text("which has 2 headers").wait_for()
    send(page)
    first, second = stored(broker.url, "nameless")
    assert first == second


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
