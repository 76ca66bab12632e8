"""The key of a console that logs in with a secret, in Chromium: no other port of this machine receives it."""

from __future__ import annotations

import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing

from .test_browser import CHROMIUM, WAIT_MS

SAID = re.compile(r"(http://\S+/)#key=(\S+)")


@pytest.fixture
def other() -> Iterator[tuple[str, list[str]]]:
    """The server of another user of this machine: its address, and all that it receives."""
    received: list[str] = []

    class Recorder(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(f"{self.requestline}\n{self.headers}")
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>other</title>")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Recorder) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/", received
        server.shutdown()
        thread.join()


@pytest.fixture
def console(full: bool, broker: testing.BrokerProcess, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A console that has a secret: its address and its key."""
    if not full:
        pytest.skip("a browser takes ten seconds of CPU: only with LADING_TEST_FULL=1; test_console.py asks the server")
    words = ["console", "--from", broker.url, "--state", str(tmp_path), "--address", "127.0.0.1:0", "--with-parent"]
    with subprocess.Popen(
        [sys.executable, "-m", "lading.cli.main", *words, "--output", "json"], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"LADING_TOKEN": "x"},
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["event"] == "ready"
        said = SAID.search(process.stderr.readline())
        assert said is not None
        yield said[1], said[2]
        process.terminate()
        process.communicate(timeout=30)


def test_only_the_console_receives_its_key(console: tuple[str, str], other: tuple[str, list[str]]) -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: pip install playwright")
    address, key = console
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(base_url=address)
        context.set_default_timeout(WAIT_MS)
        asked: list[str] = []
        context.on("request", lambda request: asked.append(request.url))
        page = context.new_page()
        page.goto("/messages?topic=flights")
        page.get_by_text("This console needs its key").wait_for()
        if shots := os.environ.get("LADING_TEST_SHOTS"):
            page.screenshot(path=f"{shots}/key.png")
        # the printed address, in the tab that is open: what was shown is shown, and the key is in no address
        page.evaluate("fragment => { location.hash = fragment; }", f"key={key}")
        page.locator("tr.message").nth(9).wait_for()
        assert page.url == f"{address}messages?topic=flights"
        page.reload()
        page.locator("tr.message").nth(9).wait_for()
        if shots:
            page.screenshot(path=f"{shots}/messages.png")
        assert context.cookies() == []
        # another tab asks the first one
        second = context.new_page()
        second.goto("/")
        second.get_by_role("row", name=re.compile("flights")).wait_for()
        # a tab of a later day, with the address as it was printed
        page.close()
        second.close()
        third = context.new_page()
        third.goto("/")
        third.get_by_text("This console needs its key").wait_for()
        third.goto(f"/topic?topic=flights#key={key}")
        third.get_by_role("heading", name=re.compile("flights")).wait_for()
        # then the other user's page, by a link and by hand, with all that a browser sends along
        third.goto(other[0])
        assert third.title() == "other"
        stored = third.evaluate(
            "JSON.stringify([document.cookie, {...sessionStorage}, {...localStorage}, document.referrer])"
        )
        browser.close()
    assert other[1] and key not in "".join(other[1]) and key not in stored
    assert "cookie:" not in "".join(other[1]).lower()
    assert [url for url in asked if key in url.partition("#")[0]] == []
