"""HTTP faces with users: logins, rights, and what is told to strangers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import httpx
import pytest

from lading.broker.core.access.rights import ResourceKind, Right
from lading.testing import BrokerProcess
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule

RULES = [
    rule("ann", Right.READ, "orders"),
    rule("ann", Right.WRITE, "in-*"),
    rule("ann", Right.ALL, "own-*"),
    rule("ann", Right.READ, "g", kind=ResourceKind.GROUP),
    rule("bob", Right.ALL, "*", kind=ResourceKind.USER),
]
_hosts = count(2)
SETTINGS = {"endpoints.admin.token": "the token of the settings"}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, dict[str, str]]]:
    with broker_with_users(tmp_path_factory.mktemp("users") / "data", RULES, SETTINGS) as found:
        root = client(found[0], "admin", basic="root")
        for topic in ("orders", "secret"):
            assert root.post(f"/topics/default/{topic}", json={}).status_code == 201
        yield found


def client(
    running: BrokerProcess, endpoint: str = "admin", *, basic: str = "", bearer: str = "", host: str = "127.0.0.1"
) -> httpx.Client:
    headers = {"authorization": f"Bearer {bearer}"} if bearer else {}
    auth = httpx.BasicAuth(basic.encode(), PASSWORDS[basic].encode()) if basic else None
    return httpx.Client(
        base_url=f"http://{running.endpoints[endpoint]}",
        auth=auth,
        headers=headers,
        timeout=20,
        transport=httpx.HTTPTransport(local_address=host),
    )


Started = tuple[BrokerProcess, dict[str, str]]


@pytest.mark.parametrize(
    ("endpoint", "method", "path"),
    [
        ("admin", "GET", "/topics"),
        ("admin", "GET", "/metrics"),
        ("admin", "GET", "/overview"),
        ("admin", "GET", "/users"),
        ("admin", "GET", "/me"),
        ("admin", "POST", "/users/eve"),
        ("admin", "GET", "/topics/default/orders/0/chunks"),
        ("admin", "GET", "/no/such/path"),
        ("nsqd_http", "POST", "/pub?topic=orders"),
        ("nsqd_http", "GET", "/stats"),
        ("nsqlookupd_http", "GET", "/lookup?topic=orders"),
        ("nsqlookupd_http", "GET", "/nodes"),
        ("iggy_http", "GET", "/streams"),
        ("iggy_http", "GET", "/streams/default/topics/orders/messages"),
    ],
)
def test_strangers_are_told_nothing(started: Started, endpoint: str, method: str, path: str) -> None:
    # wrong logins are slowed down by address: these are no subject here
    stranger = client(started[0], endpoint, host=f"127.0.0.{next(_hosts)}")
    wrong = {"authorization": "Bearer lading_wrong"}
    for headers in ({}, wrong, {"authorization": "Basic cm9vdDp3cm9uZw=="}, {"authorization": "Basic !"}):
        answer = stranger.request(method, path, headers=headers)
        assert answer.status_code == 401, headers
        # Iggy's clients log in by a request, and are told so in Iggy's words
        assert endpoint == "iggy_http" or answer.headers["www-authenticate"].startswith("Basic"), headers
        assert "orders" not in answer.text


def test_health_needs_no_login(started: Started) -> None:
    # what has a name is told to those who may see the broker
    for path, status in (("/health", "ok"), ("/ready", "ready")):
        stranger, ann, root = (client(started[0], **who) for who in ({}, {"basic": "ann"}, {"basic": "root"}))
        assert stranger.get(path).json() == ann.get(path).json() == {"status": status}
        assert root.get(path).json().keys() > {"status"}
    assert client(started[0], bearer="lading_wrong").get("/health").status_code == 401
    assert client(started[0], "nsqd_http").get("/ping").text == "OK"


def test_every_way_in(started: Started) -> None:
    running, tokens = started
    for one in (
        client(running, basic="root"),
        client(running, bearer=tokens["root"]),
        client(running, bearer=SETTINGS["endpoints.admin.token"]),
    ):
        assert {row["name"] for row in one.get("/topics").json()} >= {"orders", "secret"}


def test_a_user_sees_what_the_rules_allow(started: Started) -> None:
    running, tokens = started
    ann = client(running, bearer=tokens["ann"])
    assert [row["name"] for row in ann.get("/topics").json()] == ["orders"]
    assert ann.get("/topics/default/orders/0/chunks").status_code == 200
    assert ann.delete("/topics/default/orders").status_code == 403
    # nothing tells whether a topic exists
    one, other = (ann.get(f"/topics/default/{name}/0/chunks") for name in ("secret", "absent"))
    assert one.status_code == other.status_code == 403
    assert one.text.replace("secret", "absent") == other.text
    assert one.json()["reason"] == "unauthorized"
    assert ann.get("/groups/g/positions/default/orders/0").status_code in (200, 404)
    assert ann.get("/metrics").status_code == 403


def test_an_administrator_acts_on_behalf_of_a_user(started: Started) -> None:
    running, tokens = started
    as_ann = {"lading-on-behalf-of": "ann"}
    for root in (client(running, bearer=tokens["root"]), client(running, bearer=SETTINGS["endpoints.admin.token"])):
        assert root.get("/me", headers=as_ann).json() == {"name": "ann", "administrator": False, "has_users": True}
        assert [row["name"] for row in root.get("/topics", headers=as_ann).json()] == ["orders"]
        assert root.delete("/topics/default/orders", headers=as_ann).status_code == 403
        # a name that only rules know, as of another issuer, and one that has no rules
        nobody = {"lading-on-behalf-of": "eve%40example.com"}
        assert root.get("/me", headers=nobody).json()["name"] == "eve@example.com"
        assert root.get("/topics", headers=nobody).json() == []
        for wrong in ("", "*", "ANONYMOUS", "x" * 5_000, "%ff"):
            assert root.get("/topics", headers={"lading-on-behalf-of": wrong}).status_code in (400, 401), wrong
        twice = [("lading-on-behalf-of", "ann"), ("lading-on-behalf-of", "root")]
        assert root.get("/topics", headers=twice).status_code == 403
    ann = client(running, bearer=tokens["ann"])
    for name in ("root", "ann", "bob"):
        assert ann.get("/topics", headers={"lading-on-behalf-of": name}).status_code == 403
    stranger = client(running, host=f"127.0.0.{next(_hosts)}")
    assert stranger.get("/topics", headers={"lading-on-behalf-of": "root"}).status_code == 401


def test_nsq_over_http_asks_for_rights_on_the_topic(started: Started) -> None:
    running, tokens = started
    ann = client(running, "nsqd_http", bearer=tokens["ann"])
    assert ann.post("/pub?topic=in-nsq", content=b"x").text == "OK"
    assert ann.post("/pub?topic=orders", content=b"x").status_code == 403
    assert ann.post("/topic/delete?topic=in-nsq").status_code == 403
    assert client(running, "nsqlookupd_http", bearer=tokens["ann"]).get("/lookup?topic=secret").status_code == 403
    assert client(running, "nsqlookupd_http", bearer=tokens["ann"]).get("/lookup?topic=orders").status_code == 200


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("nsqlookupd_http", "/topics"),
        ("nsqlookupd_http", "/topics?metaInfo=true"),
        ("nsqlookupd_http", "/nodes"),
        ("nsqlookupd_http", "/listlookup"),
        ("nsqd_http", "/config/log_level"),
        ("nsqd_http", "/stats"),
    ],
)
def test_a_topic_in_a_query_does_not_decide_the_right_on_all(started: Started, endpoint: str, path: str) -> None:
    running, tokens = started
    ann = client(running, endpoint, bearer=tokens["ann"])
    assert ann.get(path).status_code == 403
    mark = "&" if "?" in path else "?"
    for query in ("topic=own-1", "topic=secret&topic=own-1", "topic=own-1&topic=secret", "topic=own-1&topic="):
        answer = ann.get(f"{path}{mark}{query}")
        if path == "/stats" and query.startswith("topic=own-1"):
            # figures of that topic alone, of which there are none; of two parameters nsqd takes the first
            assert answer.status_code == 200 and "secret" not in answer.text
        else:
            assert answer.status_code == 403, query


def test_users_are_managed_by_those_who_may(started: Started) -> None:
    running, tokens = started
    root, ann, bob = (client(running, bearer=tokens[name]) for name in ("root", "ann", "bob"))
    assert ann.post("/users/eve", json={"password": "p"}).status_code == 403
    assert [row["name"] for row in ann.get("/users").json()] == ["ann"]
    assert bob.post("/users/eve", json={"password": "p"}).status_code == 201
    # who may manage users becomes no administrator by that
    assert bob.put("/users/bob", json={"administrator": True}).status_code == 403
    assert bob.put("/users/root", json={"password": "mine"}).status_code == 403
    assert bob.post("/users/root/tokens/mine", json={}).status_code == 403
    assert bob.delete("/users/root").status_code == 403
    assert root.delete("/users/root").status_code == 409
    assert root.post("/users/eve", json={"password": "p"}).status_code == 409
    assert bob.delete("/users/eve").status_code == 204
    assert bob.delete("/users/eve").status_code == 404
    text = root.get("/users").text + root.get("/users/ann/tokens").text + root.get("/rules").text
    assert "password" not in text and "scram" not in text and "hash" not in text
    assert all(token not in text for token in tokens.values())


def test_who_manages_users_deletes_no_token_of_an_administrator(started: Started) -> None:
    running, tokens = started
    root = client(running, bearer=tokens["root"])
    row = {"user": "bob", "kind": "user", "pattern": "any", "name": "*", "operation": "all"}
    assert root.post("/rules", json={"add": [row]}).status_code == 204
    bob = client(running, bearer=tokens["bob"])
    assert bob.post("/users/ann/tokens/other", json={}).status_code == 201
    assert bob.delete("/users/ann/tokens/other").status_code == 204
    assert bob.delete("/users/root/tokens/test").status_code == 403
    assert root.get("/users/root/tokens").json()[0]["name"] == "test"


def test_own_tokens_and_their_end(started: Started) -> None:
    running, tokens = started
    ann = client(running, bearer=tokens["ann"])
    token = ann.post("/users/ann/tokens/second", json={"days": 1}).json()["token"]
    second = client(running, bearer=token)
    assert second.get("/topics").status_code == 200
    assert {row["name"] for row in ann.get("/users/ann/tokens").json()} == {"test", "second"}
    assert ann.post("/users/bob/tokens/x", json={}).status_code == 403
    assert ann.delete("/users/ann/tokens/second").status_code == 204
    assert second.get("/topics").status_code == 401


def test_rules_change_at_once(started: Started) -> None:
    running, tokens = started
    root, ann = client(running, bearer=tokens["root"]), client(running, bearer=tokens["ann"])
    row = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "secret", "operation": "read"}
    path = "/topics/default/secret/0/chunks"
    assert ann.get(path).status_code == 403
    assert root.post("/rules", json={"add": [row]}).status_code == 204
    assert ann.get(path).status_code == 200
    assert root.post("/rules", json={"delete": [row]}).status_code == 204
    assert ann.get(path).status_code == 403
    assert ann.post("/rules", json={"add": [row]}).status_code == 403
    for wrong in ({"kind": "x"}, {"operation": "x"}, {"pattern": "any"}, {"user": ""}, {"kind": "cluster"}):
        assert root.post("/rules", json={"add": [row | wrong]}).status_code == 400, wrong
    rows = json.loads(root.get("/rules").text)
    # what is read can be sent back, also a rule that only follows from another one
    rows.append(row | {"implied": True})
    assert root.post("/rules", json={"add": rows, "delete": rows[-1:]}).status_code == 204


def test_wrong_passwords_harm_nobody_else(started: Started) -> None:
    running, tokens = started
    host = f"127.0.0.{next(_hosts)}"

    def attempt(number: int) -> int | None:
        # unknown names cost a hash of full strength each: one is enough
        name = "root" if number else "nobody"
        with client(running, host=host) as stranger:
            try:
                return stranger.get("/topics", auth=(name, "wrong"), timeout=1).status_code
            except httpx.TimeoutException:
                # it waits for its turn: the pause grows with each failure
                return None

    with ThreadPoolExecutor(16) as pool:
        attempts = [pool.submit(attempt, number) for number in range(64)]
        # by a password, and by a token, from the address that others log in from
        for other in (client(running, basic="root"), client(running, bearer=tokens["ann"])):
            assert other.get("/topics", timeout=5).status_code == 200
        assert {each.result(20) for each in attempts} <= {401, None}
    text = client(running, basic="root").get("/metrics").text
    (line,) = [line for line in text.splitlines() if line.startswith("lading_failed_logins ")]
    assert float(line.split()[1]) >= 5
    # one line a minute, however many there are
    assert running.log_file.read_text().count("wrong logins: ") <= 2
