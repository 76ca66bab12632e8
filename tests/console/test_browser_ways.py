"""More of the console in Chromium: the keyboard alone, cancelling, mirrors, many topics, two browsers, other sites."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from lading import testing
from lading.client.producer import Producer
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.mirror.state import MirrorState
from lading.transports.lading.transport import LadingTransport

from .test_browser import WAIT_MS, browser, choose_poisoned, console, end, open_page, rows, start_console

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "console", "open_page"]


PARTITIONS = 300
"""A count asks for one after the other, so that there is time to cancel it."""


def describe_focus(page: Page) -> Any:
    return page.evaluate("document.activeElement.dataset.topic ?? document.activeElement.tagName")


def test_the_keyboard_alone_reaches_a_message(open_page: Callable[..., Page]) -> None:
    page = open_page("/")
    page.get_by_role("link", name="flights", exact=True).wait_for()
    page.keyboard.press("/")
    page.keyboard.type("flight")
    page.get_by_text("1 shown").wait_for()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    # the page is drawn anew every two seconds, and the focus stays
    page.wait_for_timeout(2500)
    assert describe_focus(page) == "flights"
    page.keyboard.press("Enter")
    page.wait_for_url("**/messages?topic=flights")
    rows(page).nth(49).wait_for()
    page.keyboard.press("o")
    page.wait_for_url("**order=old**")
    rows(page).nth(49).wait_for()
    for key in ("j", "j", "k", "Enter"):
        page.keyboard.press(key)
    page.locator("tr.detail").get_by_role("row", name=re.compile("^delay int16")).wait_for()
    page.keyboard.press("n")
    page.wait_for_url(lambda url: "order" not in url)
    page.keyboard.press("?")
    page.get_by_role("dialog", name="Keyboard").wait_for()
    # letters are no commands under an open dialog
    page.keyboard.press("g")
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    assert "/messages" in page.url
    page.keyboard.press("g")
    page.wait_for_url(re.compile("/$"))


def test_a_dialog_is_left_by_keyboard_and_changes_nothing(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("kept", b"one")
    page = open_page("/messages?topic=kept&open=0:0")
    choose_poisoned(page)
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    # the focus cannot leave it
    for _ in range(8):
        page.keyboard.press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        ), "behind the dialog"
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    with closing(LadingTransport(broker.url)) as admin:
        assert admin.states("kept", 0) == []


def test_a_count_is_cancelled_and_the_broker_reads_no_more(
    open_page: Callable[..., Page], broker: testing.BrokerProcess
) -> None:
    def reads() -> float:
        text = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        return float(re.search(r"^lading_broker_reads (.*)$", text, re.MULTILINE)[1])  # type: ignore[index]

    with closing(LadingTransport(broker.url)) as admin:
        admin.create_topic("wide", PARTITIONS)
    with Producer(broker.url) as producer:
        for number in range(PARTITIONS):
            producer.send("wide", b"x", partition=number, headers={"n": number})
    page = open_page("/messages?topic=wide&where=n+%3E%3D+0&partition=0")
    rows(page).nth(0).wait_for()
    page.goto("/messages?topic=wide&where=n+%3E%3D+0")
    page.get_by_role("button", name="count all that match").click()
    page.get_by_text("so far").wait_for()
    assert page.get_by_role("progressbar").is_visible()
    page.keyboard.press("Escape")
    page.get_by_text("cancelled").wait_for()
    assert page.get_by_role("progressbar").is_hidden()
    page.goto("/send?topic=wide")
    for _ in range(50):
        before = reads()
        page.wait_for_timeout(200)
        if reads() == before:
            return
    pytest.fail("the broker still reads for a count that was cancelled")


def test_mirrors_with_their_fidelity(browser: Any, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    settings = MirrorSettings(
        broker.url, broker.url, ("flights",), (), {"flights": "mirrored"}, fidelity=True,
        state=tmp_path / "state",
    )  # fmt: skip
    report = tmp_path / "fidelity.json"
    report.write_text(json.dumps(run_mirror(settings).as_document()))
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[1]")
    MirrorState(tmp_path / "idle").close()
    process, url = start_console(
        "--from", broker.url, "--mirror", str(tmp_path / "state"), "--mirror", str(report), "--mirror", str(wrong),
        "--mirror", str(tmp_path / "idle"),
    )  # fmt: skip
    try:
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{url}/")
        page.get_by_role("link", name="Mirrors").click()
        page.get_by_role("heading", name="Fidelity").wait_for()
        table = page.locator("table", has=page.get_by_role("columnheader", name="by carrier"))
        lost = table.get_by_role("columnheader").all_inner_texts().index("lost")
        shown = [row.locator("td").nth(lost).inner_text() for row in table.locator("tbody tr").all()]
        assert shown and set(shown) == {"0"}
        assert page.get_by_role("cell", name="300", exact=True).count() >= 2
        page.locator(".warning").get_by_text("neither").wait_for()
        assert page.get_by_text("Nothing has been copied yet").count() == 1
        page.close()
    finally:
        end(process)


def test_two_thousand_topics_are_listed_and_filtered(browser: Any, tmp_path: Path) -> None:
    with testing.broker(data_dir=tmp_path / "data", durability="os") as many:
        admin = AdminClient({"bootstrap.servers": many.endpoints["kafka"]})
        for made in admin.create_topics([NewTopic(f"topic-{number}", 1) for number in range(2000)]).values():
            made.result(60)
        process, url = start_console("--from", many.url)
        try:
            page = browser.new_page()
            page.set_default_timeout(WAIT_MS)
            page.goto(f"{url}/?q=topic-19")
            page.get_by_text("2,000 topics, 111 shown").wait_for()
            page.keyboard.press("/")
            page.keyboard.type("topic-1999")
            page.get_by_text("2,000 topics, 1 shown").wait_for()
            page.close()
        finally:
            end(process)


def test_two_browsers_see_the_same_and_each_its_own_place(
    browser: Any, console: str, broker: testing.BrokerProcess
) -> None:
    with Producer(broker.url) as producer:
        producer.send("shared", b"one")
        producer.flush()
        contexts = [browser.new_context(base_url=console) for _ in range(2)]
        first, second = (context.new_page() for context in contexts)
        for page in (first, second):
            page.set_default_timeout(WAIT_MS)
        first.goto("/messages?topic=shared&tail=1")
        second.goto("/messages?topic=shared")
        first.get_by_text("following").wait_for()
        rows(second).nth(0).wait_for()
        producer.send("shared", b"two")
        producer.flush()
        rows(first).nth(0).wait_for()
        assert rows(second).count() == 1, "a page that does not follow stays as it is"
        rows(second).nth(0).click()
        choose_poisoned(second)
        second.get_by_role("dialog").get_by_role("button", name="Set state").click()
        second.get_by_text("No messages here").or_(rows(second).filter(has_text="two")).first.wait_for()
        first.goto("/messages?topic=shared")
        rows(first).nth(0).wait_for()
        assert rows(first).count() == 1
        for context in contexts:
            context.close()


ATTACK = """<!doctype html><title>waiting</title><script>
const tries = [
  fetch("%(console)s/api/topics").then((answer) => answer.text()),
  fetch("%(console)s/api/send", {method: "POST", mode: "no-cors", headers: {"content-type": "text/plain"},
    body: JSON.stringify({topic: "attacked", message: {payload: "x"}})}).then((answer) => { throw answer.type; }),
  fetch("%(console)s/api/send", {method: "POST", headers: {"content-type": "application/json"},
    body: JSON.stringify({topic: "attacked", message: {payload: "x"}})}).then((answer) => answer.text()),
];
Promise.allSettled(tries).then((all) => { document.title = all.map((one) => one.status).join(" "); });
</script><form method="post" action="%(console)s/api/send" enctype="text/plain">
<input name='{"topic":"attacked","x":"' value='"}'>
<button>go</button></form><iframe src="%(console)s/"></iframe>"""


@pytest.fixture
def other_site(console: str) -> Iterator[str]:
    """A page of another origin that tries what a hostile one would."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write((ATTACK % {"console": console}).encode())

        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_a_page_of_another_site_reads_and_changes_nothing(
    browser: Any, other_site: str, broker: testing.BrokerProcess
) -> None:
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(other_site)
    page.wait_for_function("document.title !== 'waiting'")
    assert page.title() == "rejected rejected rejected"
    assert "Topics" not in (page.frames[1].content() if len(page.frames) > 1 else "")
    with page.expect_response(lambda response: "/api/send" in response.url) as answered:
        page.get_by_role("button", name="go").click()
    assert answered.value.status == 403
    page.close()
    with closing(LadingTransport(broker.url)) as admin:
        assert "attacked" not in [meta.name for meta in admin.topics()]


def test_from_the_earliest_turns_the_order_and_the_order_turns_back(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&at=earliest")
    page.locator("button[aria-pressed=true]", has_text="Oldest first").wait_for()
    assert rows(page).first.get_attribute("data-name") == "0:0"
    page.get_by_role("button", name="Show more").click()
    page.get_by_text("100 messages").wait_for()
    assert rows(page).last.get_attribute("data-name") == "0:99"
    page.get_by_role("button", name="Newest first").click()
    page.locator("tr[data-name='0:299']").wait_for()
    assert page.get_by_label("From").input_value() == ""
    page.get_by_label("From").fill("-70")
    page.get_by_role("button", name="Search").click()
    page.get_by_text("50 messages").wait_for()
    page.get_by_role("button", name="Show more").click()
    page.get_by_text("70 messages").wait_for()
    assert page.get_by_role("button", name="Show more").is_hidden()


def test_one_line_for_each_message_is_kept_by_the_browser(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights")
    rows(page).nth(49).wait_for()
    high = rows(page).first.bounding_box()
    page.keyboard.press("c")
    page.locator(".compact").wait_for()
    low = rows(page).first.bounding_box()
    assert high is not None and low is not None and low["height"] < high["height"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", rows(page).first.locator(".time").inner_text())
    page.reload()
    page.locator(".compact").wait_for()
    page.get_by_role("button", name="One line each").click()
    assert page.locator(".compact").count() == 0


def test_a_header_that_no_message_has_is_named_and_the_others_can_be_picked(open_page: Callable[..., Page]) -> None:
    page = open_page("/messages?topic=flights&where=dely+%3E+100")
    page.get_by_text("(did you mean 'delay'?)").wait_for()
    page.get_by_role("button", name="delay", exact=True).wait_for()
