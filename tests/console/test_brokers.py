"""Several brokers in one console: a file of them, a part of each address, and logins of their own in a team."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lading import Producer, testing
from lading.console.brokers_file import list_brokers, load_brokers
from lading.console.server import make_app
from lading.console.settings import ConsoleSettings
from lading.console.source import ConsoleSource
from lading.console.team.server import guard, make_console, switch_consoles
from lading.console.team.settings import parse_teams
from lading.model.address import Address
from lading.model.errors import SettingError
from lading.serve.local_server import listen
from tests import forked_command

from .conftest import TestClient
from .team import PASSWORD, URL, add_users
from .test_team_command import CONSOLE


@pytest.fixture(scope="module")
def places(broker: testing.BrokerProcess) -> Iterator[tuple[testing.BrokerProcess, testing.BrokerProcess]]:
    """Two brokers; the second one is asked over Kafka's protocol."""
    with testing.broker() as second:
        with Producer(second.url) as producer:
            producer.send("events", b"hello", headers=[("site", "second")])
        yield broker, second


def write_file(place: Path, first: str, second: str) -> Path:
    file = place / "brokers.toml"
    file.write_text(
        f'[broker.production]\nfrom = "{first}"\nread_only = true\n[broker."eu.events"]\nfrom = "{second}"\n'
        "[broker.away]\nfrom = 'lading://127.0.0.1:1'\ntransport = { timeout_s = 2 }\n"
    )
    return file


@pytest.mark.parametrize(
    ("scheme", "variable", "secret"),
    [("lading", "LADING_TOKEN", "token"), ("kafka", "LADING_PASSWORD_FILE", "password")],
)
def test_a_secret_of_the_environment_is_not_sent_to_each_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, variable: str, secret: str
) -> None:
    first = f'[broker.first]\nfrom = "{scheme}://127.0.0.1:1"\ntransport = {{ {secret}_env = "FIRST" }}\n'
    file = tmp_path / "brokers.toml"
    monkeypatch.setenv(variable, "meant for one")
    file.write_text(first)
    assert len(load_brokers(file)) == 1
    file.write_text(first + f'[broker.second]\nfrom = "{scheme}://127.0.0.1:2"\n')
    with pytest.raises(SettingError, match=f"{variable} is set, and broker.second would be sent it"):
        load_brokers(file)
    monkeypatch.delenv(variable)
    assert len(load_brokers(file)) == 2


@pytest.fixture
def page(
    places: tuple[testing.BrokerProcess, testing.BrokerProcess], listener: socket.socket, tmp_path: Path
) -> TestClient:
    first, second = places
    named = load_brokers(write_file(tmp_path, first.url, f"kafka://{second.endpoints['kafka']}"))
    shared = ConsoleSettings("", state=tmp_path)
    settings = [one.make_settings(shared, list_brokers(named, is_read_only=False)) for one in named]
    app = make_app([(one, ConsoleSource(one.url, one.registry)) for one in settings], listener)
    return TestClient(app, base_url="http://127.0.0.1:7071", follow_redirects=False)


def test_each_address_shows_its_own_broker(page: TestClient) -> None:
    names = {
        name: [row["name"] for row in page.get(f"/at/{name}/api/topics").json()["topics"]]
        for name in ("production", "eu.events")
    }
    assert "flights" in names["production"] and "events" not in names["production"]
    assert "events" in names["eu.events"] and "flights" not in names["eu.events"]
    about = page.get("/at/eu.events/api/about").json()
    assert about["broker"] == "eu.events" and not about["is_broker"] and about["has_groups"]
    assert [(one["name"], one["is_read_only"]) for one in about["brokers"]] == [
        ("production", True), ("eu.events", False), ("away", False),
    ]  # fmt: skip
    response = page.get("/at/eu.events/api/messages", params={"topic": "events"})
    assert '"site"' in response.text and '"second"' in response.text


def test_a_broker_that_is_away_is_named_and_the_others_are_shown(page: TestClient) -> None:
    away = page.get("/at/away/api/topics")
    assert away.status_code == 502 and "127.0.0.1:1" in away.json()["error"]
    assert page.get("/at/production/api/topics").status_code == 200


def test_read_only_is_that_of_the_broker(page: TestClient) -> None:
    message = {"topic": "sent", "message": {"payload": "x", "headers": []}}
    refused = page.post("/at/production/api/send", json=message)
    assert refused.status_code == 403 and "changes nothing" in refused.json()["error"]
    sent = page.post("/at/eu.events/api/send", json={**message, "topic": "events"})
    assert sent.status_code == 200 and sent.json()["sent"] == 1


@pytest.mark.parametrize(
    ("path", "goal"),
    [
        ("/", "/at/production/"),
        ("/messages?topic=a%20b&open=0:1", "/at/production/messages?topic=a%20b&open=0:1"),
        ("/at/eu.events", "/at/eu.events/"),
        ("//evil.example/", "/at/production//evil.example/"),
    ],
)
def test_an_address_without_a_broker_leads_to_the_first(page: TestClient, path: str, goal: str) -> None:
    response = page.request("GET", f"http://127.0.0.1:7071{path}")
    assert (response.status_code, response.headers["location"]) == (307, goal)


def test_a_broker_that_is_not_in_the_file_is_named(page: TestClient) -> None:
    assert page.get("/at/staging/messages?topic=x").status_code == 404
    response = page.get("/at/staging/api/about")
    assert response.status_code == 404
    assert response.json()["broker_names"] == ["production", "eu.events", "away"]
    assert "no broker 'staging'; choose one of production, eu.events, away" in response.json()["error"]
    # no request goes to a broker that it does not name
    for method, path in (("GET", "/api/topics"), ("POST", "/api/send"), ("POST", "/")):
        response = page.request(method, path, json={})
        assert response.status_code == 404 and "no broker is named" in response.json()["error"], path
    assert page.get("/static/app.js").status_code == 200


def test_the_key_holds_for_all_brokers(
    places: tuple[testing.BrokerProcess, testing.BrokerProcess], listener: socket.socket, tmp_path: Path
) -> None:
    named = load_brokers(write_file(tmp_path, places[0].url, places[1].url))
    settings = [one.make_settings(ConsoleSettings(""), ()) for one in named]
    app = make_app([(one, ConsoleSource(one.url)) for one in settings], listener, "secret")
    page = TestClient(app, base_url="http://127.0.0.1:7071")
    for name in ("production", "eu.events"):
        assert page.get(f"/at/{name}/api/topics").status_code == 403
        assert page.get(f"/at/{name}/api/topics", headers={"x-lading-console-key": "secret"}).status_code == 200


# -- the file


def test_credentials_are_references_and_paths_are_relative_to_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONSOLE_USER", "ann smith")
    file = tmp_path / "brokers.toml"
    file.write_text(
        '[broker.a]\nfrom = "kafka://k:9092?ca_file=ca.pem"\npipelines = ["flights.toml"]\n[broker.a.transport]\n'
        'tls = true\nusername = "${CONSOLE_USER}"\npassword_file = "a b.secret"\n'
        '[broker.b]\nfrom = "kafka://k:9093"\ntransport = { username = "bob", password = "${BOB}" }\n'
        '[broker.c]\nfrom = "data"\n'
    )
    first, second, third = load_brokers(file)
    secret = str(tmp_path / "a b.secret").replace(" ", "%20")
    assert first.url == f"kafka://k:9092?ca_file={tmp_path}/ca.pem&tls=true&username=ann%20smith&password_file={secret}"
    assert second.url == "kafka://k:9093?username=bob&password_env=BOB"
    assert third.url == str(tmp_path / "data")
    shared = ConsoleSettings("", state=tmp_path / "state", is_read_only=True)
    made = first.make_settings(shared, ())
    assert made.pipelines == (tmp_path / "flights.toml",)
    # topics of one name at two brokers do not share what was redriven
    assert made.state == tmp_path / "state" / "a" and made.is_read_only


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'broker is missing; write for example [broker.production] with from = "lading://127.0.0.1:7070"'),
        ("broker = 3", "broker is not a table for each broker; write for example"),
        ("[broker]\na = 3", "broker.a is not a table for each broker; write for example"),
        ("[broker.a]\nread_only = true", "broker.a.from is missing; write for example"),
        ("[broker.a]\nform = 'lading://a'", "unknown key broker.a.form; did you mean from?"),
        ("[brokers.a]\nfrom = 'x://a'", "unknown key brokers; did you mean broker?"),
        ("[broker.a]\nfrom = 'x://a'", "broker.a: 'x://a': 'x' URLs are not supported"),
        ("[broker.a]\nfrom = 'nsq://a:4150'", "broker.a: nsq://a:4150 is a queue"),
        ("[broker.a]\nfrom = 'lading://a'\nread_only = 'no way'", "broker.a.read_only cannot be 'no way'"),
        ("[broker.'a/b']\nfrom = 'lading://a'", "broker.a/b: a name begins with a letter or digit"),
        ("[broker.a]\nfrom = 'lading://a'\n[broker.A]\nfrom = 'lading://b'", "differ by case alone; rename one"),
        (
            "[broker.a]\nfrom = 'kafka://a'\ntransport = { pasword_file = 'x' }",
            "broker.a.transport has no option 'pasword_file'; did you mean password_file?",
        ),
        (
            "[broker.a]\nfrom = 'kafka://a'\ntransport = { password = 'x' }",
            "broker.a.transport.password is in the file in clear text",
        ),
        (
            "[broker.a]\nfrom = 'kafka://a'\ntransport = { username = '${NOT_SET_ANYWHERE}' }",
            "broker.a.transport.username: the variable 'NOT_SET_ANYWHERE' is not set in the environment; set it",
        ),
        ("[broker.a]\nfrom = 'lading://a'\nmirror_services = ['x']", "broker.a: "),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = tmp_path / "brokers.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match=re.escape(sentence)) as caught:
        load_brokers(file)
    assert str(caught.value).startswith(f"brokers file {file}: ") and "\n" not in str(caught.value)


def test_options_of_one_broker_are_refused_beside_a_file(tmp_path: Path) -> None:
    file = write_file(tmp_path, "lading://127.0.0.1:1", "lading://127.0.0.1:2")
    for words in (["--from", "lading://127.0.0.1:1"], ["--registry", "http://127.0.0.1:1"], ["--pipeline", "x.toml"]):
        done = forked_command.run([*CONSOLE, "--brokers", str(file), *words], timeout=60)
        assert done.returncode != 0 and "each broker of --brokers has its own" in done.stderr, words
    done = forked_command.run([*CONSOLE, "--brokers", str(tmp_path / "none.toml")], timeout=60)
    assert done.returncode != 0 and "cannot read the brokers file" in done.stderr


# -- a team


@pytest.fixture(scope="module")
def team_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Path]]:
    """A console for several people over two brokers, each of which has users of the same names."""
    place = tmp_path_factory.mktemp("team")
    with ExitStack() as stack:
        first, second = stack.enter_context(testing.broker()), stack.enter_context(testing.broker())
        for one in (first, second):
            stack.callback(add_users(one).close)
        file = write_file(place, first.url, second.url)
        document = {"brokers": file.name, "public_url": URL, "tls": {"enabled": True}, "state": "."}
        brokers = parse_teams(document, "test", place)
        consoles = [make_console(one.team, name=one.name, listed=one.listed, masks=one.masks) for one in brokers]
        bound = stack.enter_context(listen(Address("127.0.0.1", 0), "console"))
        for console in consoles:
            stack.callback(console.close)
        yield guard(switch_consoles(brokers, consoles), bound, brokers[0].team, brokers[0].team.list_names()), place


def browse(app: Any) -> TestClient:
    return TestClient(app, base_url=URL, headers={"origin": URL}, follow_redirects=False, client=("192.0.2.1", 5_000))


def test_each_broker_has_logins_and_rights_of_its_own(team_url: tuple[Any, Path]) -> None:
    app, place = team_url
    browser = browse(app)
    form = browser.get("/at/production/login").text
    assert 'action="/at/production/login"' in form and '<a href="/at/eu.events/">eu.events</a>' in form
    answer = browser.post(
        "/at/production/login", data={"user": "ann", "password": PASSWORD, "next": "/messages?topic=mine"}
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/at/production/messages?topic=mine")
    assert [row["name"] for row in browser.get("/at/production/api/topics").json()["topics"]] == ["mine"]
    # a login at one broker is none at another
    assert browser.get("/at/eu.events/api/topics").status_code == 401
    answer = browser.post("/at/eu.events/login", data={"user": "root", "password": PASSWORD})
    assert answer.status_code == 303
    topics = [row["name"] for row in browser.get("/at/eu.events/api/topics").json()["topics"]]
    assert topics == ["mine", "secret"]
    # the first one is still ann's: without the other topic, and read-only
    assert [row["name"] for row in browser.get("/at/production/api/topics").json()["topics"]] == ["mine"]
    assert browser.get("/at/production/api/about").json()["user"] == "ann"
    refused = browser.post("/at/production/api/topic/empty", json={"topic": "mine"})
    assert refused.status_code == 403 and "changes nothing" in refused.json()["error"]
    assert browser.post("/at/eu.events/api/topic/empty", json={"topic": "mine"}).status_code == 200
    # logging out ends one login
    assert browser.post("/at/eu.events/logout").status_code == 200
    assert browser.get("/at/eu.events/api/topics").status_code == 401
    assert browser.get("/at/production/api/topics").status_code == 200
    lines = [json.loads(line) for line in (place / "console-audit.jsonl").read_text().splitlines()]
    assert [(one["broker"], one["user"], one["action"]) for one in lines] == [
        ("production", "ann", "log in"), ("eu.events", "root", "log in"), ("eu.events", "root", "topic/empty"),
        ("eu.events", "root", "log out"),
    ]  # fmt: skip


def test_a_team_without_a_login_sees_nothing_of_any_broker(team_url: tuple[Any, Path]) -> None:
    browser = browse(team_url[0])
    assert browser.get("/", headers={"accept": "text/html"}).headers["location"] == "/at/production/"
    for path in ("/at/production/api/about", "/at/eu.events/api/topics", "/at/away/api/overview"):
        assert browser.get(path).status_code == 401
    assert browser.get("/api/topics").status_code == 404


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"from": "lading://a"}, "from is a key of each broker in the file that brokers names"),
        ({"registry": "http://a"}, "registry is a key of each broker"),
        ({"brokers": 3}, "brokers names a file"),
        ({"brokers": "none.toml"}, "cannot read the brokers file"),
        ({"broker": "x"}, "unknown key broker; did you mean brokers?"),
    ],
)
def test_a_wrong_file_of_a_team_is_one_sentence(tmp_path: Path, more: dict[str, Any], sentence: str) -> None:
    write_file(tmp_path, "lading://127.0.0.1:1", "lading://127.0.0.1:2")
    document = {"brokers": "brokers.toml", "tls": {"enabled": True}, **more}
    with pytest.raises(SettingError, match=re.escape(sentence)):
        parse_teams(document, "test", tmp_path)
