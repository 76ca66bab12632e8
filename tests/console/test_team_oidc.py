"""Logins at an identity provider: the flow with a real one, oidc-provider of npm, and providers that do not respond."""

from __future__ import annotations

import html
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import httpx
import pytest

from lading import testing
from lading.console.team.settings import parse_team
from lading.model.errors import SettingError
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient
from .team import COOKIE, URL, Team, TeamClock, add_users

PACKAGE = "oidc-provider@9.13.3"
SCRIPT = Path(__file__).with_name("oidc_provider.mjs")
CALLBACK = f"{URL}/login/oidc/callback"
NODE, NPM = shutil.which("node"), shutil.which("npm")
INSTALL_S = 180
Started = tuple[testing.BrokerProcess, LadingTransport, str]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with testing.broker() as broker, closing(add_users(broker)) as root:
        yield broker, root, root.add_token("root", "console")


@pytest.fixture(scope="module")
def packages() -> Path:
    """The directory with the provider, installed once for this user."""
    if NODE is None or NPM is None:
        pytest.skip("there is no Node.js with npm: apt-get install nodejs npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lading-tests" / PACKAGE
    if not (cache / "node_modules" / "oidc-provider").is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        words = [NPM, "install", "--no-audit", "--no-fund", "--prefix", str(cache), PACKAGE]
        done = subprocess.run(words, capture_output=True, text=True, timeout=INSTALL_S, check=False)
        if done.returncode:
            pytest.skip(f"npm cannot install {PACKAGE}: {done.stderr.strip()[-200:]}")
    return cache


@pytest.fixture(scope="module")
def issuer(packages: Path) -> Iterator[str]:
    assert NODE is not None
    with subprocess.Popen(
        [NODE, str(SCRIPT), str(packages), CALLBACK],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None and process.stdin is not None
        line = process.stdout.readline().strip()
        assert line, "the provider did not start"
        yield line
        process.stdin.close()
        process.wait(20)


@contextmanager
def team_of(started: Started, place: Path, issuer: str, clock: TeamClock | None = None, **more: Any) -> Iterator[Team]:
    (place / "token").write_text(started[2])
    (place / "client.secret").write_text("a secret of the client+%\n")
    oidc = {"issuer": issuer, "client_id": "console", "client_secret_file": "client.secret", "label": "Example", **more}
    url = f"{started[0].url}?token_file={place / 'token'}"
    with closing(Team(url, place, clock or TeamClock(), oidc=oidc)) as team:
        yield team


def begin(browser: TestClient, goal: str = "/") -> str:
    """Begin a login and return the address at the provider to which the browser is sent."""
    answer = browser.get("/login/oidc", params={"next": goal})
    assert answer.status_code == 303, answer.text
    return str(answer.headers["location"])


def log_in_at(address: str, user: str) -> dict[str, str]:
    """Log in on the provider's own pages; return the query with which it sends the browser back to the console."""
    with httpx.Client(follow_redirects=False, timeout=20) as person:
        answer = person.get(address)
        for _ in range(12):
            if answer.is_redirect:
                goal = httpx.URL(answer.url).join(answer.headers["location"])
                if str(goal).startswith(CALLBACK):
                    return dict(parse_qsl(goal.query.decode()))
                answer = person.get(goal)
                continue
            action = html.unescape(re.search(r'<form[^>]*action="([^"]+)"', answer.text)[1])  # type: ignore[index]
            prompt = re.search(r'name="prompt" value="(\w+)"', answer.text)
            fields = {"prompt": prompt[1] if prompt else "login", "login": user, "password": "any"}
            answer = person.post(httpx.URL(answer.url).join(action), data=fields)
    raise AssertionError(f"the provider did not send the browser back: {answer.status_code} {answer.text[:300]}")


def finish(browser: TestClient, query: dict[str, str]) -> httpx.Response:
    # as a browser does that another site sends back
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    del browser.headers["origin"]
    answer: Any = browser.get(f"/login/oidc/callback?{urlencode(query)}", headers=headers)
    browser.headers["origin"] = URL
    return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize("client", [{}, {"client_id": "public", "client_secret_file": None}])
def test_a_person_logs_in_at_the_provider(
    started: Started, issuer: str, tmp_path: Path, client: dict[str, Any]
) -> None:
    with team_of(started, tmp_path, issuer, **client) as team:
        browser = team.browser()
        assert "Log in with Example" in browser.get("/login?next=/topic?topic=mine").text
        address = begin(browser, "/topic?topic=mine")
        asked = parse_qs(urlsplit(address).query)
        assert asked["code_challenge_method"] == ["S256"] and asked["redirect_uri"] == [CALLBACK]
        assert len(asked["state"][0]) == len(asked["nonce"][0]) == 43
        answer = finish(browser, log_in_at(address, "ann"))
        assert answer.status_code == 200 and 'url=/topic?topic=mine"' in answer.text, answer.text
        assert "SameSite=Strict" in answer.headers["set-cookie"] and COOKIE in browser.cookies
        about = browser.get("/api/about").json()
        assert (about["user"], about["can_log_out"], about["shows_files"]) == ("ann", True, False)
        assert [row["name"] for row in browser.get("/api/topics").json()["topics"]] == ["mine"]
        assert [(one["user"], one["result"]) for one in team.audit()] == [("ann", "done")]
        assert browser.post("/logout", json={}).status_code == 200
        assert browser.get("/api/topics").status_code == 401


def test_the_claim_of_the_settings_names_the_user(started: Started, issuer: str, tmp_path: Path) -> None:
    with team_of(started, tmp_path, issuer, user_claim="preferred_username") as team:
        browser = team.browser()
        assert finish(browser, log_in_at(begin(browser), "eve")).status_code == 200
        # no user of the broker, and no rules: a login without rights
        assert browser.get("/api/about").json()["user"] == "eve@example"
        assert browser.get("/api/topics").json()["topics"] == []


def test_what_comes_back_belongs_to_the_login_of_this_browser(started: Started, issuer: str, tmp_path: Path) -> None:
    with team_of(started, tmp_path, issuer) as team:
        victim, attacker = team.browser(), team.browser()
        stolen = log_in_at(begin(attacker), "root")
        for browser in (victim, team.browser()):
            answer = finish(browser, stolen)
            assert (answer.status_code, "not begun in this browser" in answer.text) == (401, True)
        # of a login that the victim began: another state, another issuer, a code of another login
        begin(victim)
        assert finish(victim, stolen).status_code == 401
        mine = log_in_at(begin(victim), "ann")
        for change, words in (
            ({"state": stolen["state"]}, "not begun in this browser"),
            ({"state": ""}, "not begun in this browser"),
            ({"iss": "https://evil.test"}, "another identity provider"),
            ({"code": stolen["code"]}, "does not take the code"),
            ({"code": ""}, "did not log you in"),
            ({"error": "access_denied", "error_description": "<b>you said no</b>"}, "&lt;b&gt;you said no"),
        ):
            answer = finish(victim, {**mine, **change})
            assert (answer.status_code, words in answer.text) == (401, True), answer.text
        assert COOKIE not in victim.cookies
        # a code counts once
        first = log_in_at(begin(victim), "ann")
        assert [finish(victim, first).status_code, finish(victim, first).status_code] == [200, 401]


def test_a_login_ends_after_ten_minutes(started: Started, issuer: str, tmp_path: Path) -> None:
    with team_of(started, tmp_path, issuer) as team:
        provider = team.console._services.provider
        assert provider is not None
        browser, now_s = team.browser(), provider._clock()
        query = log_in_at(begin(browser), "ann")
        provider._clock = lambda: now_s + 602
        answer = finish(browser, query)
        assert (answer.status_code, "too long ago" in answer.text) == (401, True)


# -- providers that do not respond as they should


class Provider(http.server.ThreadingHTTPServer):
    """Answers each path with (status, content type, body), or never."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[int, str, bytes] | None] = {}
        self.release = threading.Event()
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issuer = f"http://127.0.0.1:{self.server_address[1]}"

    def configure(self, **change: Any) -> None:
        document = {
            "issuer": self.issuer, "authorization_endpoint": f"{self.issuer}/auth",
            "token_endpoint": f"{self.issuer}/token", "jwks_uri": f"{self.issuer}/jwks", **change,
        }  # fmt: skip
        body = json.dumps(document).encode()
        self.pages["/.well-known/openid-configuration"] = (200, "application/json", body)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path)
        if page is None:
            self.server.release.wait(30)
            return
        self.send_response(page[0])
        self.send_header("content-type", page[1])
        self.send_header("content-length", str(len(page[2])))
        self.end_headers()
        self.wfile.write(page[2])

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def odd() -> Iterator[Provider]:
    with Provider() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.release.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ((200, "text/html", b"<html>maintenance</html>"), "it sent a page"),
        ((200, "application/json", b"[]"), "it sent a page"),
        ((503, "text/html", b"<html>"), "HTTP status 503"),
        ((302, "text/html", b""), "HTTP status 302"),
        ((200, "application/json", b'{"a":"' + b"x" * 300_000 + b'"}'), "longer than"),
        ((200, "application/json", b'{"issuer": "https://evil.test"}'), "of the issuer &#x27;https://evil.test&#x27;"),
        (None, "no whole response within 0.3 s"),
    ],
)
def test_a_provider_that_is_no_use_is_a_sentence_on_the_login_page(
    started: Started, odd: Provider, tmp_path: Path, page: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading.console.team.oidc.FETCH_S", 0.3)
    monkeypatch.setattr("lading.console.team.oidc.RETRY_S", 0)
    odd.pages["/.well-known/openid-configuration"] = page
    with team_of(started, tmp_path, odd.issuer) as team:
        browser = team.browser()
        answer = browser.get("/login/oidc")
        assert (answer.status_code, words in answer.text, "cannot be used now" in answer.text) == (502, True, True)
        assert answer.text.count('role="alert"') == 1 and 'name="password"' in answer.text
        # it comes back, and sends a page in place of a token
        odd.configure()
        state = parse_qs(urlsplit(begin(browser)).query)["state"][0]
        for token, status, sentence in (
            ((200, "text/html", b"<html>"), 502, "it sent a page"),
            ((400, "application/json", b'{"error":"invalid_grant"}'), 401, "does not take the code"),
            ((500, "application/json", b"{}"), 502, "HTTP status 500"),
            ((200, "application/json", b"{}"), 401, "no ID token"),
            ((200, "application/json", b'{"id_token": "a.b.c"}'), 401, "not valid here"),
        ):
            odd.pages["/token"] = token
            answer = finish(browser, {"code": "c", "state": state})
            assert (answer.status_code, sentence in answer.text) == (status, True), answer.text


def test_a_provider_that_is_away_is_a_sentence_and_logins_by_password_go_on(started: Started, tmp_path: Path) -> None:
    with team_of(started, tmp_path, "http://127.0.0.1:1") as team:
        answer = team.browser().get("/login/oidc")
        assert (answer.status_code, "Example cannot be used now" in answer.text) == (502, True)
        team.log_in("ann")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"oidc": {"issuer": "http://login.example", "client_id": "c"}}, "https:// address"),
        ({"oidc": {"issuer": "https://login.example"}}, "oidc.client_id is missing"),
        ({"oidc": {"issuer": "https://login.example", "client_id": "c", "scopes": "email"}}, "has to have openid"),
        ({"oidc": {"issuer": "https://login.example", "client_id": "c"}, "public_url": None}, "set public_url"),
        ({"oidc": {"issuer": "https://login.example", "client_id": "c"}, "from": "kafka://a"}, "broker of Lading"),
        ({"passwords": False}, "no other login"),
    ],
)
def test_wrong_settings_of_a_provider_are_refused_in_a_sentence(
    tmp_path: Path, document: dict[str, Any], words: str
) -> None:
    usual: dict[str, Any] = {"from": "lading://a", "public_url": URL, "tls": {"enabled": True}}
    with pytest.raises(SettingError, match=words):
        parse_team(usual | document, "test", tmp_path)
