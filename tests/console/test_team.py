"""The console for several people: logins, sessions, rights, requests of other sites, audit lines."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from contextlib import closing
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.console.team.logins import require_users
from lading.console.team.settings import load_team
from lading.model.errors import LocalError, SettingError
from lading.transports.lading.transport import LadingTransport

from .team import COOKIE, PASSWORD, URL, Team, TeamClock, add_users, log_in

USERS = iter(f"user{number}" for number in range(100))


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[testing.BrokerProcess, LadingTransport]]:
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            producer.send("seed", b"x")
        with closing(add_users(broker)) as root:
            yield broker, root


@pytest.fixture
def root(started: tuple[testing.BrokerProcess, LadingTransport]) -> LadingTransport:
    return started[1]


@pytest.fixture
def team(started: tuple[testing.BrokerProcess, LadingTransport], tmp_path: Path) -> Iterator[Team]:
    with closing(Team(started[0].url, tmp_path, TeamClock())) as made:
        yield made


@pytest.fixture
def eve(root: LadingTransport) -> str:
    """A user of one test, with a right on ``mine``."""
    name = next(USERS)
    root.add_user(name, PASSWORD)
    rule = {"user": name, "kind": "topic", "pattern": "literal", "name": "mine", "operation": "read"}
    root.change_rules([rule])
    return name


# -- logging in


def test_a_visitor_sees_the_document_and_nothing_of_the_broker(team: Team) -> None:
    browser = team.browser()
    assert browser.get("/").status_code == browser.get("/static/app.js").status_code == 200
    for path in ("/api/about", "/api/topics", "/api/tail?topic=mine", "/api/nothing", "/api/"):
        answer = browser.get(path)
        assert (answer.status_code, answer.json()["needs_login"]) == (401, True)
        assert answer.json()["login_url"] == "/login"
    assert browser.post("/api/topic/create", json={"topic": "x"}).status_code == 401
    page = browser.get("/login?next=/topic%3Ftopic=mine")
    assert page.status_code == 200 and 'value="/topic?topic=mine"' in page.text
    assert page.headers["cache-control"] == "no-store" and "<script" not in page.text


def test_the_cookie_is_for_this_host_over_tls_and_no_script(team: Team) -> None:
    answer = log_in(team.browser(), "ann", goal="/topic?topic=mine")
    assert (answer.status_code, answer.headers["location"]) == (303, "/topic?topic=mine")
    (morsel,) = SimpleCookie(answer.headers["set-cookie"]).values()
    assert morsel.key == COOKIE and morsel.key.startswith("__Host-") and len(morsel.value) >= 43
    assert (morsel["path"], morsel["secure"], morsel["httponly"], morsel["samesite"], morsel["domain"]) == (
        "/", True, True, "Strict", "",
    )  # fmt: skip


@pytest.mark.parametrize("goal", ["//evil.test", "/\\evil.test", "https://evil.test", "/login", "/a\nb", "x", "/é"])
def test_a_login_leads_to_this_console_only(team: Team, goal: str) -> None:
    assert log_in(team.browser(), "ann", goal=goal).headers["location"] == "/"


@pytest.mark.parametrize(
    ("user", "password"),
    [
        ("ann", "wrong"),
        ("nobody", PASSWORD),
        ("", ""),
        ("ann:x", PASSWORD),
        ("a\nb", "x"),
        ("x" * 300, "x"),
        ("ann", ""),
    ],
)
def test_a_wrong_login_says_the_same_for_all(team: Team, user: str, password: str) -> None:
    browser = team.browser()
    answer = log_in(browser, user, password)
    assert answer.status_code == 401 and "wrong user name or password" in answer.text
    assert "set-cookie" not in answer.headers
    assert team.audit()[-1]["result"].startswith("refused: wrong user name")


def test_names_on_the_login_page_are_text(team: Team) -> None:
    answer = log_in(team.browser(), '"><script>x</script>')
    assert "<script" not in answer.text and "&lt;script&gt;" in answer.text


def test_wrong_passwords_slow_down_their_own_address_alone(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("lading.console.team.logins.asyncio.sleep", sleep)
    for _ in range(7):
        log_in(team.browser(), "nobody-here", "wrong")
    assert waits[0] == 0 and waits[-1] > 0
    log_in(team.browser(host="198.51.100.9"), "ann")
    assert waits[-1] == 0


def test_a_form_that_is_none_is_refused(team: Team) -> None:
    browser = team.browser()
    assert browser.post("/login", json={"user": "ann", "password": PASSWORD}).status_code == 400
    assert browser.post("/login", data={"user": "x" * 20_000}).status_code == 400
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert browser.post("/login", content=b"user=%ff&password=\xff", headers=form).status_code in (400, 401)
    assert browser.post("/login", content=b"&".join([b"a=1"] * 100), headers=form).status_code == 400
    assert browser.put("/login").status_code in (200, 405)


# -- rights


def test_a_user_sees_and_does_what_its_rights_allow(team: Team) -> None:
    ann, root = team.log_in("ann"), team.log_in("root")
    assert [row["name"] for row in ann.get("/api/topics").json()["topics"]] == ["mine"]
    assert {"mine", "secret"} <= {row["name"] for row in root.get("/api/topics").json()["topics"]}
    # the same sentence for a topic that exists and one that does not
    secret, absent = (ann.get(f"/api/topic?topic={name}") for name in ("secret", "absent"))
    assert secret.status_code == absent.status_code >= 400
    assert secret.text.replace("secret", "absent") == absent.text
    for path in ("/api/messages", "/api/count", "/api/profile", "/api/dead-letters", "/api/tail"):
        with ann.stream("GET", f"{path}?topic=secret") as answer:
            assert "error" in next(line for line in answer.iter_lines() if "error" in line), path
    sent = {"topic": "mine", "message": {"payload": "hello"}}
    assert ann.post("/api/send", json=sent).json()["sent"] == 1
    assert ann.post("/api/send", json={**sent, "topic": "secret"}).status_code in (400, 403)
    for name, document in (
        ("topic/create", {"topic": "new"}),
        ("topic/delete", {"topic": "mine"}),
        ("topic/settings", {"topic": "mine", "settings": ["hide_states=true"]}),
        ("group/delete", {"protocol": "kafka", "group": "g"}),
    ):
        answer = ann.post(f"/api/{name}", json=document)
        assert answer.status_code in (400, 403) and answer.json()["error"], name
    assert root.post("/api/topic/create", json={"topic": "made-by-root"}).status_code == 200
    assert ann.get("/api/about").json()["user"] == "ann"


def test_files_of_the_process_are_for_administrators(
    started: tuple[testing.BrokerProcess, LadingTransport], tmp_path: Path
) -> None:
    report = tmp_path / "mirror.json"
    report.write_text('{"source": "kafka://elsewhere:9092"}')
    files = {"mirrors": [str(report)], "pipelines": [str(tmp_path / "p.toml")]}
    with closing(Team(started[0].url, tmp_path, TeamClock(), **files)) as team:
        ann, root = team.log_in("ann"), team.log_in("root")
        assert (ann.get("/api/about").json()["shows_files"], root.get("/api/about").json()["shows_files"]) == (
            False,
            True,
        )
        assert ann.get("/api/mirrors").json() == {"mirrors": []} != root.get("/api/mirrors").json()
        assert ann.get("/api/pipelines").json() == {"pipelines": []} != root.get("/api/pipelines").json()
        assert ann.get("/api/failures").json()["pipelines"] == [] != root.get("/api/failures").json()["pipelines"]
        asked = f"/api/quarantine?pipeline={tmp_path / 'p.toml'}"
        assert "not shown here" in ann.get(asked).json()["error"]
        assert "not shown here" not in root.get(asked).json()["error"]


def test_what_one_user_saw_is_not_shown_to_another(team: Team, root: LadingTransport) -> None:
    # lists of groups are kept for some seconds
    first, second = team.log_in("root"), team.log_in("ann")
    with closing(LadingTransport(root.url)) as reader:
        reader.log_in("root", PASSWORD)
        reader.join("g-of-root", ["secret"]).heartbeat()
        assert "g-of-root" in [row["group"] for row in first.get("/api/groups").json()["groups"]]
        assert second.get("/api/groups").json()["groups"] == []


# -- sessions


def test_a_session_ends_at_a_logout(team: Team) -> None:
    browser = team.log_in("ann")
    token = browser.cookies[COOKIE]
    answer = browser.post("/logout", json={})
    assert "Max-Age=0" in answer.headers["set-cookie"] and browser.cookies.get(COOKIE) is None
    browser.cookies.set(COOKIE, token, domain="console.test")
    answer = browser.get("/api/topics")
    assert (answer.status_code, answer.json()["error"]) == (401, "you logged out; log in again")


def test_a_session_ends_without_use(team: Team) -> None:
    browser = team.log_in("ann")
    waiting = {"x-lading-console-background": "1"}
    for _ in range(3):
        team.clock.now_s += 29 * 60
        assert browser.get("/api/topics").status_code == 200
    for _ in range(2):
        # an open page asks by itself
        team.clock.now_s += 14 * 60
        assert browser.get("/api/topics", headers=waiting).status_code == 200
    team.clock.now_s += 3 * 60
    answer = browser.get("/api/topics", headers=waiting)
    assert (answer.status_code, "30 minutes" in answer.json()["error"]) == (401, True)


def test_a_session_ends_after_twelve_hours_of_use(team: Team) -> None:
    browser = team.log_in("ann")
    for _ in range(12 * 4 - 1):
        team.clock.now_s += 15 * 60
        assert browser.get("/api/about").status_code == 200
    team.clock.now_s += 15 * 60
    answer = browser.get("/api/about")
    assert (answer.status_code, "12 hours" in answer.json()["error"]) == (401, True)


def test_sessions_are_bounded(started: tuple[testing.BrokerProcess, LadingTransport], tmp_path: Path) -> None:
    limits = {"session": {"count_max": 3, "user_max": 2}}
    with closing(Team(started[0].url, tmp_path, TeamClock(), **limits)) as team:
        first, second = team.log_in("ann"), team.log_in("ann")
        assert first.get("/api/about").status_code == 200
        # the one used longest ago goes
        third = team.log_in("ann")
        assert [one.get("/api/about").status_code for one in (first, second, third)] == [200, 401, 200]
        assert "too often elsewhere" in second.get("/api/about").json()["error"]
        roots = [team.log_in("root") for _ in range(2)]
        assert [one.get("/api/about").status_code for one in (first, third, *roots)] == [401, 200, 200, 200]


@pytest.mark.parametrize("change", ["password", "deleted", "inactive", "administrator"])
def test_a_session_ends_with_its_user(team: Team, root: LadingTransport, eve: str, change: str) -> None:
    browser = team.log_in(eve)
    assert browser.get("/api/topics").status_code == 200
    if change == "password":
        root.set_password(eve, "another battery staple")
    elif change == "deleted":
        root.delete_user(eve)
    else:
        root._http.request(
            "PUT",
            "users",
            eve,
            again=False,
            document={"active": False} if change == "inactive" else {"administrator": True},
        )
    if change == "administrator":
        team.clock.now_s += 11
    answer = browser.get("/api/topics")
    assert (answer.status_code, answer.json()["needs_login"]) == (401, True)
    assert "have changed" in answer.json()["error"]
    assert browser.get("/api/about").status_code == 401


def test_a_session_that_only_waits_ends_with_its_user_too(team: Team, root: LadingTransport, eve: str) -> None:
    browser = team.log_in(eve)
    root.delete_user(eve)
    assert browser.get("/api/about").status_code == 200
    team.clock.now_s += 11
    assert browser.get("/api/about").status_code == 401


def test_rights_count_at_once(team: Team, root: LadingTransport, eve: str) -> None:
    browser = team.log_in(eve)
    assert [row["name"] for row in browser.get("/api/topics").json()["topics"]] == ["mine"]
    rule = {"user": eve, "kind": "topic", "pattern": "literal", "name": "mine", "operation": "read"}
    root.change_rules((), [rule])
    assert browser.get("/api/topics").json()["topics"] == []


def test_a_stream_ends_with_its_session(team: Team) -> None:
    browser = team.log_in("ann")
    team_sessions = team.console._sessions
    (session,) = team_sessions._sessions.values()
    with browser.stream("GET", "/api/count?topic=mine") as answer:
        assert '"end":true' in answer.read().decode()
    real = session.app

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        async def send_then_end(message: Any) -> None:
            await send(message)
            team_sessions.end(session, "you logged out; log in again")

        await real(scope, receive, send_then_end)

    session.app = slow
    with browser.stream("GET", "/api/tail?topic=mine") as answer:
        lines = answer.read().decode().splitlines()
    assert lines[-1] == '{"error":"you logged out; log in again","needs_login":true,"login_url":"/login"}'


# -- requests of other sites


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": URL}, 200),
        ({"origin": "https://evil.test"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://console.test"}, 403),
        ({"origin": "https://other.console.test"}, 403),
        ({"origin": ""}, 403),
        ({"origin": URL, "content-type": "text/plain"}, 415),
        ({"origin": URL, "content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
def test_changes_come_from_pages_of_this_console(team: Team, headers: dict[str, str], status: int) -> None:
    browser = team.log_in("ann")
    if not headers["origin"]:
        del browser.headers["origin"]
        headers = {}
    content = b'{"topic": "mine", "message": {"payload": "x"}}'
    answer = browser.post("/api/send", content=content, headers={"content-type": "application/json", **headers})
    assert answer.status_code == status
    if status == 403:
        assert browser.post("/login", data={"user": "ann", "password": PASSWORD}, headers=headers).status_code == 403
        assert browser.post("/logout", headers=headers).status_code == 403
        assert browser.get("/api/about", headers={"origin": URL}).status_code == 200


@pytest.mark.parametrize(
    ("path", "mode", "destination", "status"),
    [
        ("/topic?topic=mine", "navigate", "document", 200),
        ("/login", "navigate", "document", 200),
        ("/topic?topic=mine", "navigate", "iframe", 403),
        ("/static/app.js", "no-cors", "script", 403),
        ("/api/topics", "navigate", "document", 403),
        ("/api/topics", "cors", "empty", 403),
    ],
)
def test_a_link_on_another_site_leads_to_a_page_and_to_nothing_else(
    team: Team, path: str, mode: str, destination: str, status: int
) -> None:
    browser = team.log_in("ann")
    del browser.headers["origin"]
    headers = {"sec-fetch-site": "cross-site", "sec-fetch-mode": mode, "sec-fetch-dest": destination}
    assert browser.get(path, headers=headers).status_code == status
    assert browser.post("/login", headers=headers).status_code == 403


def test_a_name_of_another_host_is_refused(team: Team) -> None:
    assert team.browser(host="192.0.2.1").get("/login", headers={"host": "evil.test"}).status_code == 403


# -- audit


def test_each_change_has_an_audit_line(team: Team) -> None:
    root, ann = team.log_in("root", host="192.0.2.7"), team.log_in("ann")
    root.post("/api/topic/create", json={"topic": "audited", "partitions": 2})
    ann.post("/api/topic/delete", json={"topic": "audited"})
    ann.post("/api/send", json={"topic": "mine", "message": {"payload": "not in the file"}})
    ann.post("/api/send", json={"topic": "mine", "message": {"payload": "x"}, "dry_run": True})
    root.post("/api/group/reset", json={"protocol": "kafka", "group": "g", "to": "latest"})
    ann.get("/api/topics")
    ann.post("/logout", json={})
    lines = team.audit()
    assert [(one["user"], one["from"], one["action"], one["result"].partition(":")[0]) for one in lines] == [
        ("root", "192.0.2.7", "log in", "done"),
        ("ann", "192.0.2.1", "log in", "done"),
        ("root", "192.0.2.7", "topic/create", "done"),
        ("ann", "192.0.2.1", "topic/delete", "refused"),
        ("ann", "192.0.2.1", "send", "done"),
        ("ann", "192.0.2.1", "log out", "done"),
    ]
    assert lines[2]["given"] == {"topic": "audited", "partitions": 2} and lines[2]["done"] == {"partitions": 2}
    assert lines[4]["given"] == {"topic": "mine"} and lines[4]["done"] == {"sent": 1}
    text = team.audit_file.read_text()
    assert "not in the file" not in text and PASSWORD not in text
    assert stat.S_IMODE(team.audit_file.stat().st_mode) == 0o600


def test_nothing_is_changed_that_cannot_be_written_down(team: Team, root: LadingTransport) -> None:
    browser = team.log_in("root")
    team.audit_file.unlink()
    team.audit_file.mkdir()
    answer = browser.post("/api/topic/create", json={"topic": "unwritten"})
    assert answer.status_code == 400 and "audit file" in answer.json()["error"]
    assert "unwritten" not in {meta.name for meta in root.topics()}
    team.audit_file.rmdir()
    assert browser.post("/api/topic/create", json={"topic": "unwritten"}).status_code == 200
    assert [one["action"] for one in team.audit()] == ["topic/create"]


def test_a_moved_audit_file_is_begun_again(team: Team) -> None:
    browser = team.log_in("root")
    team.audit_file.rename(team.audit_file.with_suffix(".1"))
    browser.post("/logout", json={})
    assert [one["action"] for one in team.audit()] == ["log out"]


# -- settings and sources


def test_a_broker_without_users_is_refused(tmp_path: Path) -> None:
    with testing.broker() as broker:
        with pytest.raises(LocalError, match=r"has no users.*lading user add"):
            require_users(broker.url)
        with closing(Team(broker.url, tmp_path, TeamClock())) as team:
            answer = log_in(team.browser(), "ann")
            assert (answer.status_code, "has no users" in answer.text) == (503, True)


def test_a_broker_that_is_away_is_a_sentence_on_the_login_page(tmp_path: Path) -> None:
    with closing(Team("lading://127.0.0.1:1", tmp_path, TeamClock())) as team:
        require_users("lading://127.0.0.1:1")
        answer = log_in(team.browser(), "ann")
        assert (answer.status_code, "no broker is reachable" in answer.text) == (502, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('from = "lading://a"', "takes TLS"),
        ('from = "lading://a"\ntls.enabled = true\nsesion = {}', "unknown key sesion; did you mean session"),
        ('from = "lading://a"\n[tls]\nenabled = true\n[session]\nidle = 3', "unknown key session.idle"),
        ('from = "lading://a"\n[tls]\nenabled = true\n[session]\nhours = 0', "session.hours cannot be 0"),
        ("tls.enabled = true", "from is missing"),
        ('from = "./data"\ntls.enabled = true', "a directory has no users"),
        ('from = "lading://a"\ntls.enabled = true\npublic_url = "http://x"', "public_url"),
        ('from = "lading://a"\ntls.enabled = true\npublic_url = "https://x/path"', "public_url"),
        ("from = lading", "not valid TOML|invalid TOML"),
    ],
)
def test_a_wrong_file_is_refused_in_a_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "console.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match=words):
        load_team(file)
