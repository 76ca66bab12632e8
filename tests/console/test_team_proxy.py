"""The console behind a reverse proxy that names the user of each request, and behind one that lies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.console.team.logins import require_administrator
from lading.console.team.settings import parse_team
from lading.model.errors import LocalError, SettingError
from lading.transports.lading.transport import LadingTransport

from .conftest import TestClient
from .team import COOKIE, PASSWORD, URL, Team, TeamClock, add_users, log_in

PROXY = "10.1.2.3"
SECRET = "a secret that the proxy knows"
HEADER = "x-forwarded-user"
Started = tuple[testing.BrokerProcess, LadingTransport, str]


@pytest.fixture(scope="module")
def started() -> Iterator[Started]:
    with testing.broker() as broker, closing(add_users(broker)) as root:
        yield broker, root, root.add_token("root", "console")


@pytest.fixture
def proxied(started: Started, tmp_path: Path) -> Iterator[Team]:
    with closing(make_team(started, tmp_path)) as team:
        yield team


def make_team(started: Started, place: Path, **more: Any) -> Team:
    (place / "token").write_text(started[2])
    settings = {"addresses": "10.1.2.0/24,::1", "user_header": "X-Forwarded-User", **more}
    return Team(
        f"{started[0].url}?token_file={place / 'token'}", place, TeamClock(), tls={"enabled": False}, proxy=settings
    )


def as_user(team: Team, user: str, host: str = PROXY, **more: str) -> TestClient:
    return team.browser(host=host, **{HEADER: user, **more})


def test_the_named_user_has_its_own_rights(proxied: Team) -> None:
    ann, root = as_user(proxied, "ann"), as_user(proxied, "root")
    assert [row["name"] for row in ann.get("/api/topics").json()["topics"]] == ["mine"]
    assert {"mine", "secret"} <= {row["name"] for row in root.get("/api/topics").json()["topics"]}
    about = ann.get("/api/about").json()
    assert (about["user"], about["can_log_out"], about["shows_files"]) == ("ann", False, False)
    assert ann.post("/api/topic/delete", json={"topic": "mine"}).status_code in (400, 403)
    assert ann.post("/api/send", json={"topic": "mine", "message": {"payload": "x"}}).json()["sent"] == 1
    # a name that only the proxy knows has the rights that rules give it: none
    assert as_user(proxied, "eve@example.com").get("/api/topics").json()["topics"] == []
    assert ann.get("/login").status_code == ann.post("/login").status_code == ann.post("/logout").status_code == 404
    assert ann.get("/").status_code == 200 and "set-cookie" not in ann.get("/api/topics").headers


def test_audit_lines_have_the_visitors_address(proxied: Team) -> None:
    chain = {"x-forwarded-for": "198.51.100.1, 192.0.2.44"}
    as_user(proxied, "root", **chain).post("/api/topic/create", json={"topic": "by-proxy"})
    as_user(proxied, "root").post("/api/topic/delete", json={"topic": "by-proxy"})
    as_user(proxied, "root", **{"x-forwarded-for": "x; rm -rf"}).post("/api/topic/create", json={"topic": "by-proxy"})
    assert [(one["user"], one["from"], one["action"]) for one in proxied.audit()] == [
        ("root", "192.0.2.44", "log in"),
        ("root", "192.0.2.44", "topic/create"),
        ("root", PROXY, "topic/delete"),
        ("root", PROXY, "topic/create"),
    ]


@pytest.mark.parametrize("path", ["/", "/login", "/static/app.js", "/api/topics", "/nothing"])
@pytest.mark.parametrize("host", ["10.1.3.1", "127.0.0.1", "192.0.2.1", "testclient", "", "::2", "::ffff:10.1.3.1"])
def test_a_visitor_that_is_not_the_proxy_is_refused(proxied: Team, path: str, host: str) -> None:
    browser = as_user(proxied, "root", host=host)
    answer = browser.get(path)
    assert (answer.status_code, "through its reverse proxy alone" in answer.json()["error"]) == (403, True)
    assert browser.post("/api/topic/create", json={"topic": "lie"}).status_code == 403


@pytest.mark.parametrize(
    ("names", "status", "words"),
    [
        ([], 401, "named no user"),
        ([""], 401, "named no user"),
        (["ann", "root"], 403, "more than once"),
        (["root", "root"], 403, "more than once"),
        (["ann, root"], 403, "not one name"),
        (["ann,root"], 403, "not one name"),
        (["ro\tot"], 403, "not one name"),
        (["x" * 300], 403, "not one name"),
        (["*"], 401, "wrong user name"),
        (["ANONYMOUS"], 401, "wrong user name"),
    ],
)
def test_a_proxy_that_lies_lets_nobody_in(proxied: Team, names: list[str], status: int, words: str) -> None:
    browser = proxied.browser(host=PROXY)
    answer = browser.get("/api/topics", headers=[(HEADER, name) for name in names])
    assert (answer.status_code, words in answer.json()["error"]) == (status, True), answer.text
    if status == 401:
        # the page leads to the proxy, which has a login
        assert answer.json()["login_url"] == "/"


def test_a_cookie_is_no_login_behind_a_proxy_that_names_users(proxied: Team) -> None:
    as_user(proxied, "root").get("/api/topics")
    browser = proxied.browser(host=PROXY)
    browser.cookies.set(COOKIE, "user root", domain="console.test")
    assert browser.get("/api/topics").status_code == 401


def test_changes_come_from_pages_of_the_public_address(proxied: Team) -> None:
    for origin in ("https://evil.test", "http://console.test", "null", "http://127.0.0.1:7071"):
        answer = as_user(proxied, "root", origin=origin).post("/api/topic/create", json={"topic": "lie"})
        assert answer.status_code == 403, origin


def test_a_secret_proves_the_proxy(started: Started, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    with closing(make_team(started, tmp_path, secret_file=str(tmp_path / "secret"))) as team:
        right = {"x-lading-proxy-secret": SECRET}
        assert as_user(team, "ann", **right).get("/api/about").json()["user"] == "ann"
        for host, given in ((PROXY, [SECRET[:-1]]), (PROXY, []), (PROXY, [SECRET, SECRET]), ("192.0.2.1", [SECRET])):
            headers = [("x-lading-proxy-secret", one) for one in given]
            assert as_user(team, "ann", host=host).get("/api/about", headers=headers).status_code == 403


def test_a_proxy_that_names_nobody_leaves_logins_to_the_console(started: Started, tmp_path: Path) -> None:
    with closing(make_team(started, tmp_path, user_header=None)) as team:
        browser = team.browser(host=PROXY, **{HEADER: "root", "x-forwarded-for": "192.0.2.9"})
        assert browser.get("/api/topics").status_code == 401
        assert log_in(browser, "ann").status_code == 303
        about = browser.get("/api/about").json()
        assert (about["user"], about["can_log_out"]) == ("ann", True)
        assert team.audit()[-1]["from"] == "192.0.2.9"


def test_a_deactivated_user_is_out_at_once(proxied: Team, started: Started) -> None:
    root = started[1]
    root.add_user("gone", PASSWORD)
    browser = as_user(proxied, "gone")
    assert browser.get("/api/topics").status_code == 200
    root._http.request("PUT", "users", "gone", again=False, document={"active": False})
    assert (browser.get("/api/topics").status_code, browser.get("/api/topics").status_code) == (401, 401)


def test_the_console_needs_an_administrators_token(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    broker, root, token = started
    monkeypatch.setenv("LADING_TOKEN", token)
    require_administrator(broker.url)
    monkeypatch.setenv("LADING_TOKEN", root.add_token("ann", "console"))
    with pytest.raises(LocalError, match="needs an administrator's token"):
        require_administrator(broker.url)
    monkeypatch.delenv("LADING_TOKEN")
    with pytest.raises(LocalError, match="needs an administrator's token"):
        require_administrator(broker.url)


@pytest.mark.parametrize(
    ("proxy", "words"),
    [
        ({}, "set addresses or secret_file"),
        ({"addresses": "10.1.2.300"}, "10.1.2.300"),
        ({"addresses": "10.1.2.3/8"}, "host bits"),
        ({"addresses": "10.1.2.3", "user_header": "X Y"}, "name of a header"),
        ({"address": "10.1.2.3"}, "did you mean addresses"),
    ],
)
def test_wrong_settings_of_a_proxy_are_refused_in_a_sentence(tmp_path: Path, proxy: dict[str, Any], words: str) -> None:
    document = {"from": "lading://a", "public_url": URL, "proxy": proxy}
    with pytest.raises(SettingError, match=words):
        parse_team(document, "test", tmp_path)
    with pytest.raises(SettingError, match="set public_url"):
        parse_team({"from": "lading://a", "proxy": {"addresses": "10.1.2.3"}}, "test", tmp_path)
    header = {"addresses": "10.1.2.3", "user_header": "X-User"}
    with pytest.raises(SettingError, match="broker of Lading"):
        parse_team({**document, "from": "kafka://a", "proxy": header}, "test", tmp_path)
