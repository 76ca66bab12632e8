"""A console for several people in Chromium: the login, and a page that stays open when its session ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing
from tests.endpoints.authority import Authority

from .team import COOKIE, PASSWORD, add_users
from .test_browser import CHROMIUM, WAIT_MS
from .test_team_command import team_console


@pytest.fixture
def console(full: bool, tmp_path: Path) -> Iterator[str]:
    if not full:
        pytest.skip("a browser takes ten seconds of CPU: only with LADING_TEST_FULL=1; test_team.py asks the server")
    with testing.broker() as broker:
        add_users(broker).close()
        words = ["--from", broker.url, "--address", "127.0.0.1:0", "--state", str(tmp_path)]
        with team_console(*words, "--certificate", str(Authority(tmp_path).sign("console"))) as (url, _):
            yield url


def test_an_ended_session_loses_nothing_that_was_typed(console: str) -> None:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api", reason="there is no Playwright: pip install playwright")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        context = browser.new_context(base_url=console, ignore_https_errors=True)
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()

        def log_in(tab: object) -> None:
            tab.get_by_label("User").fill("ann")  # type: ignore[attr-defined]
            tab.get_by_label("Password").fill(PASSWORD)  # type: ignore[attr-defined]
            tab.get_by_role("button", name="Log in").click()  # type: ignore[attr-defined]

        # a page that was asked for is shown after the login
        page.goto("/send?topic=mine")
        if shots := os.environ.get("LADING_TEST_SHOTS"):
            page.get_by_label("User").wait_for()
            page.screenshot(path=f"{shots}/login.png")
        log_in(page)
        page.get_by_label("Payload", exact=True).fill("typed before")
        assert page.url.endswith("/send?topic=mine")
        page.get_by_role("button", name="Log out").wait_for()
        assert page.get_by_role("link", name="Mirrors").count() == 0
        (cookie,) = [one for one in context.cookies() if one["name"] == COOKIE]
        assert cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Strict"
        # another tab logs out
        other = context.new_page()
        other.goto("/")
        other.get_by_role("button", name="Log out").click()
        other.get_by_label("User").wait_for()
        page.get_by_role("button", name="Send…").click()
        page.get_by_text("you are not logged in").wait_for()
        if shots:
            page.screenshot(path=f"{shots}/ended.png")
        with context.expect_page() as opened:
            page.get_by_role("link", name="Log in in a new tab").click()
        log_in(opened.value)
        opened.value.get_by_role("button", name="Log out").wait_for()
        assert page.get_by_label("Payload", exact=True).input_value() == "typed before"
        page.get_by_role("button", name="Send…").click()
        page.get_by_role("dialog").get_by_role("button", name="Send").click()
        page.get_by_text("See the newest messages").wait_for()
        browser.close()
