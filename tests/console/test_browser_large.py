"""Messages that are large or odd, and a Kafka cluster, in Chromium: the page stays usable, and every byte is kept."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import lading
from lading import testing
from lading.client.consumer import Consumer
from lading.client.producer import Producer
from tests.interop.kafka_broker import RunningKafka

from .test_browser import WAIT_MS, browser, console, end, open_page, rows, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]

SIZE = 1_000_000
PAYLOADS = {
    "control characters": b"\x01" * SIZE,
    "numbers": json.dumps(list(range(150_000))).encode(),
    "deep": b"[" * (SIZE // 2) + b"]" * (SIZE // 2),
    "strings": json.dumps({f"k{number}": "v" * 10 for number in range(40_000)}).encode(),
}
"""As bytes of JSON or text that a page shows slowly if it shows all of it, or indents it as it is."""
ODD: list[tuple[str, Any]] = [
    ("lines", "one\r\ntwo"), ("two\nlines", "x"), ("nan", lading.f32(struct.unpack("<f", b"\x01\x00\xc0\x7f")[0])),
    ("raw", b"\xff\x00"), ("hex", b"0x00ff"), ("big", "x" * SIZE), ("none", None), ("empty", ""),
    *((f"h{number}", lading.u16(number)) for number in range(250)),
]  # fmt: skip


def clipboard(page: Page) -> Any:
    return page.evaluate("navigator.clipboard.readText()")


def test_a_key_header_and_payload_of_a_megabyte(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        headers: list[tuple[str, Any]] = [("big", "h" * SIZE), ("raw", b"\xff" * SIZE), ("ctl", "\x01" * SIZE)]
        producer.send("large", "é" * (SIZE // 2), key=b"k" * SIZE, headers=headers)
    page = open_page("/messages?topic=large")
    # the list has their beginnings alone
    assert len(rows(page).first.inner_text()) < 2000
    rows(page).first.click()
    detail = page.locator("tr.detail")
    for name in ("big", "raw", "ctl"):
        row = detail.get_by_role("row", name=re.compile(f"^{name} "))
        assert "1.0 MB" in row.inner_text()
        assert 4096 < len(row.inner_text()) < 20_000
        assert re.search(r"… 995,904 more (characters|bytes)", row.inner_text())
    detail.get_by_role("row", name=re.compile("^big ")).get_by_title("Copy the value as text").click()
    page.get_by_text("copied the value as text").wait_for()
    assert clipboard(page) == "h" * SIZE
    detail.get_by_role("row", name=re.compile("^raw ")).get_by_title("Copy the bytes in base64").click()
    page.get_by_text("copied the bytes in base64").wait_for()
    assert clipboard(page) == base64.b64encode(b"\xff" * SIZE).decode()
    detail.get_by_title("Copy the key as hex").click()
    page.get_by_text("copied the key as hex").wait_for()
    assert clipboard(page) == (b"k" * SIZE).hex()
    detail.get_by_role("button", name="copy hex").click()
    page.get_by_text("copied the payload as hex").wait_for()
    assert clipboard(page) == ("é" * (SIZE // 2)).encode().hex()
    # as much of the payload as one asks for
    detail.get_by_role("button", name="Show more: 50,000 of 500,000 characters are here").click()
    detail.get_by_role("button", name="Show more: 100,000 of 500,000 characters are here").wait_for()
    assert page.locator("pre.payload").inner_text() == "é" * 100_000


@pytest.mark.parametrize("name", PAYLOADS)
def test_a_payload_that_is_slow_to_show(
    name: str, open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    topic = f"slow-{name.split()[0]}"
    with Producer(broker.url) as producer:
        producer.send(topic, PAYLOADS[name])
    page = open_page(f"/messages?topic={topic}")
    rows(page).first.click()
    page.locator("tr.detail").get_by_role("button", name="copy hex").click()
    page.get_by_text("copied the payload as hex").wait_for()
    assert clipboard(page) == PAYLOADS[name].hex()
    # the page answers: another place, and back to the list
    page.keyboard.press("Escape")
    page.locator("tr.detail").wait_for(state="detached")


def test_one_like_a_message_that_no_field_can_hold_is_the_same(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("odd", b"one\r\ntwo", key=b"k\n", headers=ODD)
    page = open_page("/send?topic=odd&like=0:0")
    page.get_by_text("which has 258 headers").wait_for()
    page.get_by_text("58 more headers").wait_for()
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_text("See the newest messages").wait_for()
    with Consumer(broker.url, "odd", timeout_s=0) as consumer:
        first, second = list(consumer)
    assert first.payload == second.payload == b"one\r\ntwo"
    assert first.key == second.key == b"k\n"
    assert [tuple(one) for one in first.headers] == [tuple(one) for one in second.headers]
    assert [name for name, *_ in first.headers] == [name for name, _ in ODD]


def test_a_kafka_cluster(browser: Any, kafka: RunningKafka) -> None:
    topic = "browser.flights"
    with Producer(kafka.url, create_topics=True) as producer:
        for number in range(60):
            headers = [("carrier", b"UA" if number % 3 else b"\xff"), ("delay", b"%d" % number), ("via", None)]
            producer.send(topic, b'{"n": %d}' % number, key=b"k", headers=headers)
    process, url = start_console("--from", kafka.url)
    try:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(f"{url}/")
        page.get_by_text(kafka.url).wait_for()
        row = page.get_by_role("row", name=re.compile(re.escape(topic)))
        row.get_by_role("cell", name="60", exact=True).wait_for()
        row.get_by_role("link", name=topic, exact=True).click()
        page.wait_for_url(f"**/topic?topic={topic}")
        page.get_by_role("link", name="Messages").click()
        rows(page).nth(49).wait_for()
        page.get_by_role("button", name="carrier", exact=True).click()
        page.get_by_role("button", name="delay", exact=True).click()
        assert [cell.inner_text() for cell in rows(page).first.locator("td").all()[3:5]] == ["UA", "59"]
        assert rows(page).nth(2).locator("td").nth(3).inner_text() == "0xff"
        page.get_by_role("textbox", name="Filter").fill("carrier = 'UA' AND offset < 30")
        page.keyboard.press("Enter")
        page.get_by_text("20 messages").wait_for()
        rows(page).first.click()
        detail = page.locator("tr.detail")
        assert "null" in detail.get_by_role("row", name=re.compile("^via raw")).inner_text()
        # what only a broker of Lading can is not offered
        assert detail.get_by_role("button", name="set state").count() == 0
        assert detail.get_by_role("link", name="send one like it").count() == 1
        page.goto(f"{url}/headers?topic={topic}")
        page.get_by_role("link", name="carrier", exact=True).wait_for()
        assert errors == []
        page.close()
    finally:
        end(process)
