"""The console in Debian's Chromium: what people do there, and what messages must not do to them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lading import testing
from lading.client.consumer import Consumer
from lading.client.producer import Producer
from lading.registry.client import RegistryAddress, RegistryClient

from .conftest import SCRIPT

if TYPE_CHECKING:
    from playwright.sync_api import Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 15_000
PAGES = (
    "/", "/topic?topic=flights", "/messages?topic=hostile", "/headers?topic=flights", "/send?topic=flights",
    "/groups", "/failures", "/pipelines", "/mirrors",
)  # fmt: skip


def start_console(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", "console", *arguments, "--address", "127.0.0.1:0", "--with-parent",
         "--output", "json"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    return process, f"http://{json.loads(process.stdout.readline())['endpoints']['console']}"


def end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=30)


@pytest.fixture(scope="module")
def console(full: bool, broker: testing.BrokerProcess) -> Iterator[str]:
    if not full:
        pytest.skip("a browser takes ten seconds of CPU: only with LADING_TEST_FULL=1; test_console.py asks the server")
    with tempfile.TemporaryDirectory() as state:
        registry = f"http://{broker.endpoints['schema_registry']}"
        process, url = start_console("--from", broker.url, "--state", state, "--registry", registry)
        yield url
        end(process)


@pytest.fixture(scope="module")
def browser(console: str) -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: pip install playwright")
    with playwright.sync_playwright() as running:
        launched = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Any, console: str) -> Iterator[Callable[..., Page]]:
    """Opens pages; none of them may ask another server for anything, or meet an error that nobody caught."""
    context = browser.new_context(base_url=console, viewport={"width": 1280, "height": 800})
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=console)
    asked: list[str] = []
    errors: list[str] = []

    def open_(path: str, *, width: int = 1280) -> Page:
        page: Page = context.new_page()
        page.set_default_timeout(WAIT_MS)
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_viewport_size({"width": width, "height": 800})
        page.goto(path)
        return page

    yield open_
    context.close()
    assert [url for url in asked if not url.startswith((f"{console}/", "blob:"))] == []
    assert errors == []


def rows(page: Page) -> Any:
    return page.locator("tr.message")


def choose_poisoned(page: Page) -> None:
    page.get_by_role("button", name="set state").click()
    page.get_by_role("dialog").get_by_label("State", exact=True).select_option("poisoned")


def test_from_topics_to_the_bytes_of_a_header(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.get_by_role("row", name=re.compile("flights")).get_by_role("link", name="Messages").click()
    page.wait_for_url("**/messages?topic=flights")
    rows(page).nth(49).wait_for()
    # the keyboard: to the search and into the first row
    page.keyboard.press("/")
    page.keyboard.type("carrier = 'AA' AND delay > 100")
    page.keyboard.press("Enter")
    page.get_by_text("Columns").wait_for()
    page.get_by_role("button", name="delay", exact=True).click()
    assert rows(page).first.locator("td").nth(3).inner_text() == "277"
    assert "column=delay" in page.url and "where=carrier" in page.url
    # the address brings all of it back
    page.reload()
    assert rows(page).first.locator("td").nth(3).inner_text() == "277"
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.locator("tr.detail").get_by_role("row", name=re.compile("^delay int16")).get_by_title(
        "Copy the bytes as hex"
    ).click()
    page.get_by_text("copied the bytes as hex").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == (277).to_bytes(2, "little").hex()
    # a number that JavaScript cannot hold is shown as it was written
    assert '"big": 12345678901234567890' in page.locator("pre.payload").inner_text()
    page.get_by_role("button", name="count all that match").click()
    wanted = sum(number % 3 == 0 and number - 20 > 100 for number in range(300))
    page.get_by_text(f"{wanted} messages match of 300").wait_for()


def test_markup_and_control_characters_are_text(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=hostile")
    rows(page).nth(2).click()
    detail = page.locator("tr.detail")
    detail.get_by_text(SCRIPT).first.wait_for()
    assert page.locator("main img").count() == 0
    assert "owned" not in page.title()
    # what would ring, hide or reorder is an escape
    assert detail.locator(".headers-table .unseen").all_inner_texts() == ["\\x07\\u202e"]
    rows(page).nth(0).click()
    detail.get_by_role("button", name="500 of 10,000 are here").click()
    detail.get_by_role("button", name="1,000 of 10,000 are here").wait_for()


def test_a_search_that_cannot_be_parsed_marks_the_place(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&where=carrier+%3D+%27UA%27+AND+AND+delay")
    page.get_by_role("alert").get_by_text("AND AND").wait_for()
    assert page.get_by_role("textbox", name="Filter").evaluate("one => one.selectionStart") == 19


def test_what_arrives_is_followed(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("followed", b"before")
        producer.flush()
        page = open_page("/messages?topic=followed&tail=1&where=wanted+%3D+1")
        page.get_by_text("following").wait_for()
        for number in range(4):
            producer.send("followed", b"number %d" % number, headers={"wanted": number % 2})
        producer.flush()
        rows(page).nth(1).wait_for()
    assert [text.split()[-1] for text in rows(page).all_inner_texts()] == ["3", "1"]
    page.keyboard.press("t")
    rows(page).nth(1).wait_for()
    assert "tail" not in page.url


def test_a_message_is_sent_as_it_was_shown(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("sent", b"first")
    page = open_page("/send?topic=sent")
    given = [
        ("delay", "uint64", "18446744073709551615"),
        ("via", "string", ""),
        ("via", "string", None),
        ("raw", "raw", "0x00ff"),
    ]
    for number, (key, kind, text) in enumerate(given):
        if number:
            page.get_by_role("button", name="Add a header").click()
        row = page.locator(".header-row").nth(number)
        row.get_by_label("Header", exact=True).fill(key)
        row.get_by_label("Kind").select_option(kind)
        if text is None:
            row.get_by_role("checkbox").check()
        else:
            row.get_by_label("Value").fill(text)
    page.get_by_label("Payload", exact=True).fill("grüße\n")
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("dialog").get_by_text("ffffffffffffffff").wait_for()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Send…").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_text("See the newest messages").wait_for()
    with Consumer(broker.url, "sent", start=1, timeout_s=0) as consumer:
        (message,) = list(consumer)
    assert message.payload == "grüße\n".encode()
    assert [tuple(one) for one in message.headers] == [
        ("delay", 12, b"\xff" * 8), ("via", 2, b""), ("via", 2, None), ("raw", 1, b"\x00\xff"),
    ]  # fmt: skip


def test_a_state_is_set_after_it_was_agreed_to(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("marked", b"one")
    page = open_page("/messages?topic=marked&open=0:0")
    choose_poisoned(page)
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    choose_poisoned(page)
    page.get_by_role("dialog").get_by_role("button", name="Set state").click()
    page.get_by_text("No messages here").wait_for()
    # all that a filter selects, counted first
    page.goto("/messages?topic=marked&where=offset+%3C+10&states=all")
    page.get_by_role("button", name="set their state").click()
    page.get_by_label("State", exact=True).select_option("unavailable")
    page.get_by_role("dialog").get_by_role("button", name="Count them first").click()
    page.get_by_role("dialog").get_by_role("button", name="Make them unavailable").click()
    page.get_by_text("1 message became unavailable").wait_for()
    with Consumer(broker.url, "marked", states="all", timeout_s=0) as consumer:
        assert [message.state.word for message in consumer] == ["unavailable"]


def test_dead_letters_go_back_after_a_dry_run(open_page: Callable[..., Page], broker: testing.BrokerProcess) -> None:
    with Producer(broker.url) as producer:
        producer.send("orders", b"origin")
        for number in range(5):
            error = "TimeoutException" if number else "DataException"
            told = {"topic": "orders", "partition": "0", "offset": str(number), "exception.class.name": error}
            headers = {"tenant": "acme"} | {f"__connect.errors.{name}": text for name, text in told.items()}
            producer.send("orders-dlq", b"letter %d" % number, headers=headers)
    page = open_page("/failures")
    page.get_by_role("link", name="orders-dlq").click()
    page.get_by_role("button", name="TimeoutException").click()
    page.get_by_text("4 dead letters").wait_for()
    page.get_by_role("button", name="Redrive these").click()
    page.get_by_role("dialog").get_by_role("button", name="Send 4 messages").click()
    page.get_by_text("sent 4 messages back").wait_for()
    with Consumer(broker.url, "orders", start=1, timeout_s=0) as consumer:
        assert [(message.payload, message.headers["tenant"]) for message in consumer] == [
            (b"letter %d" % number, "acme") for number in range(1, 5)
        ]
    page.get_by_role("button", name="Redrive these").click()
    page.get_by_text("Nothing to redrive").wait_for()
    assert page.get_by_role("dialog").locator("tbody tr").all_inner_texts() == ["sent already\t4"]


def test_pages_fit_a_telephone(open_page: Callable[..., Page]) -> None:
    page = open_page("/", width=390)
    for path in PAGES:
        # as a click does it, without loading the programs again
        page.evaluate(
            "path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')); }", path
        )
        page.locator("main").locator("table, .empty, .sendform").first.wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        assert page.locator(".error").count() == 0


def test_a_broker_goes_away_and_comes_back_under_an_open_page(
    browser: Any, tmp_path: Path, same_endpoints: dict[str, str]
) -> None:
    with testing.broker(data_dir=tmp_path / "data", settings=same_endpoints) as first:
        process, url = start_console("--from", first.url)
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{url}/")
        page.get_by_text("There are no topics yet").wait_for()
    page.get_by_role("alert").get_by_text("No answer").wait_for()
    with testing.broker(data_dir=tmp_path / "data", settings=same_endpoints) as again:
        with Producer(again.url) as producer:
            producer.send("back", b"again")
        page.get_by_role("link", name="back", exact=True).wait_for()
        assert page.locator("#banner").is_hidden()
        page.close()
        end(process)


def test_a_payload_is_shown_decoded_with_a_link_to_its_schema(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    url = f"http://{broker.endpoints['schema_registry']}"
    text = '{"type":"record","name":"R","fields":[{"name":"n","type":"long"}]}'
    schema_id = RegistryClient(RegistryAddress(url)).register("browsed-value", "AVRO", text)
    with Producer(broker.url) as producer:
        producer.send("browsed", b"\0" + schema_id.to_bytes(4, "big") + b"\x0e", partition=0)
    page = open_page("/messages?topic=browsed&open=0:0")
    link = page.get_by_role("link", name=f"AVRO id {schema_id}")
    link.wait_for()
    assert link.get_attribute("href") == f"{url}/schemas/ids/{schema_id}"
    assert '"n": 7' in page.locator("pre.decoded").inner_text()
