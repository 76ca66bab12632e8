"""nsqd with users: AUTH before anything with topics, by a token or by name and password, and rights on topics."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from lading.broker.core.access.rights import Right
from lading.testing import BrokerProcess
from tests.endpoints.identity import PASSWORDS, broker_with_users, rule
from tests.endpoints.nsq_client import NsqClient, mpub, pub, sized
from tests.endpoints.test_http_users import client as http_client

Started = tuple[BrokerProcess, dict[str, str]]
RULES = [rule("ann", Right.WRITE, "orders"), rule("ann", Right.READ, "orders")]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Started]:
    with broker_with_users(tmp_path_factory.mktemp("nsq") / "data", RULES) as found:
        root = http_client(found[0], basic="root")
        for name in ("orders", "secret"):
            assert root.post(f"/topics/default/{name}", json={}).status_code == 201
        yield found


@pytest.fixture
def client(started: Started) -> Iterator[NsqClient]:
    found = NsqClient(started[0].endpoints["nsqd_tcp"])
    yield found
    found.close()


def auth(client: NsqClient, secret: str) -> tuple[int, bytes]:
    client.send(sized(b"AUTH\n", secret.encode()))
    return client.frame()


def test_identify_says_that_auth_is_required(client: NsqClient) -> None:
    assert json.loads(client.identify(feature_negotiation=True))["auth_required"] is True


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (pub("orders", b"x"), b"PUB"), (mpub("orders", b"x"), b"MPUB"), (b"SUB orders c\n", b"SUB"),
        (sized(b"DPUB orders 5\n", b"x"), b"DPUB"), (b"INTERNAL_CREATE_TOPIC t 0\n", b"INTERNAL_CREATE_TOPIC"),
    ],
)  # fmt: skip
def test_a_stranger_has_to_show_something_first(client: NsqClient, line: bytes, name: bytes) -> None:
    client.send(line)
    assert client.frame() == (1, b"E_AUTH_FIRST AUTH required before " + name)
    assert client.closed()


def test_by_a_token_and_by_a_password(started: Started) -> None:
    for secret in (started[1]["ann"], f"ann:{PASSWORDS['ann']}"):
        one = NsqClient(started[0].endpoints["nsqd_tcp"])
        kind, answer = auth(one, secret)
        assert (kind, json.loads(answer)) == (0, {"identity": "ann", "identity_url": "", "permission_count": 2})
        for _ in range(3):
            one.send(pub("orders", b"from ann"))
            assert one.frame() == (0, b"OK")
        one.send(b"SUB orders c\n")
        assert one.frame() == (0, b"OK")
        one.send(b"RDY 1\n")
        message = one.message()
        assert message.body == b"from ann"
        one.close()


def test_commands_behind_auth_wait_for_it(client: NsqClient) -> None:
    client.send(sized(b"AUTH\n", f"ann:{PASSWORDS['ann']}".encode()) + pub("orders", b"x"))
    assert client.frame()[0] == 0
    assert client.frame() == (0, b"OK")


@pytest.mark.parametrize("secret", ["ann:wrong", "nobody:wrong", "lading_wrong", ":", "\0"])
def test_what_is_wrong_is_told_in_one_way(client: NsqClient, secret: str) -> None:
    assert auth(client, secret) == (1, b"E_AUTH_FAILED AUTH failed")
    assert client.closed()


def test_who_has_no_rights_is_not_let_in(client: NsqClient, started: Started) -> None:
    assert auth(client, started[1]["bob"]) == (1, b"E_UNAUTHORIZED AUTH No authorizations found")


@pytest.mark.parametrize("topic", ["secret", "absent"])
def test_what_is_forbidden_looks_like_what_does_not_exist(started: Started, topic: str) -> None:
    for line, command in ((pub(topic, b"x"), "PUB"), (f"SUB {topic} c\n".encode(), "SUB")):
        one = NsqClient(started[0].endpoints["nsqd_tcp"])
        auth(one, started[1]["ann"])
        one.send(line)
        assert one.frame() == (1, f'E_UNAUTHORIZED AUTH failed for {command} on "{topic}"'.encode())
        one.close()


def test_to_read_creates_no_topic_and_to_create_changes_none(started: Started) -> None:
    """To subscribe took the right to read alone and created the topic; to create one added partitions to another's."""
    root = http_client(started[0], basic="root")
    assert root.post("/topics/default/orders2", json={"settings": {}}).status_code == 201
    rows = [
        {"user": "bob", "kind": "topic", "pattern": "prefix", "name": "orders", "operation": right}
        for right in ("read", "create")
    ]
    assert root.post("/rules", json={"add": rows[:1]}).status_code == 204

    def ask(line: bytes) -> bytes:
        one = NsqClient(started[0].endpoints["nsqd_tcp"])
        assert auth(one, started[1]["bob"])[0] == 0
        one.send(line)
        answer: bytes = one.frame()[1]
        one.close()
        return answer

    bob = http_client(started[0], "nsqlookupd_http", bearer=started[1]["bob"])
    nsqd = http_client(started[0], "nsqd_http", bearer=started[1]["bob"])
    assert ask(b"SUB orders c2\n") == b"OK"
    assert ask(b"SUB orders9 c\n") == b'E_UNAUTHORIZED AUTH failed for SUB on "orders9"'
    answer = bob.post("/channel/create?topic=orders9&channel=c")
    assert answer.status_code in (403, 500) and "E_UNAUTHORIZED" in answer.text
    assert root.get("/topics/default/orders9").status_code == 404
    assert root.post("/rules", json={"add": rows[1:]}).status_code == 204
    refused = b'E_UNAUTHORIZED AUTH failed for CREATE_TOPIC on "orders2"'
    assert ask(b"INTERNAL_CREATE_TOPIC orders2 0\n") == b"OK"
    assert ask(b"INTERNAL_CREATE_TOPIC orders2 3\n") == refused
    for face in (bob, nsqd):
        answer = face.post("/topic/create?topic=orders2&extend=true")
        assert answer.status_code in (403, 500) and "E_UNAUTHORIZED" in answer.text
        assert face.post("/topic/create?topic=orders2").status_code == 200
    document = root.get("/topics/default/orders2").json()
    assert (len(document["partitions"]), document["settings"]) == (1, {})
    assert ask(b"SUB orders8 c\n") == b"OK"
    assert bob.post("/channel/create?topic=orders7&channel=c").status_code == 200


def test_rights_and_users_that_go_while_connected(started: Started) -> None:
    root = http_client(started[0], basic="root")
    assert root.post("/users/eve", json={"password": "eve's"}).status_code == 201
    row = {"user": "eve", "kind": "topic", "pattern": "literal", "name": "orders", "operation": "write"}
    assert root.post("/rules", json={"add": [row]}).status_code == 204
    eve, other = (NsqClient(started[0].endpoints["nsqd_tcp"]) for _ in range(2))
    for one in (eve, other):
        auth(one, "eve:eve's")
        for _ in range(3):
            one.send(pub("orders", b"x"))
            assert one.frame() == (0, b"OK")
    root.post("/rules", json={"delete": [row]})
    eve.send(pub("orders", b"x"))
    assert eve.frame()[1].startswith(b"E_UNAUTHORIZED")
    assert root.delete("/users/eve").status_code == 204
    assert other.closed()


def test_nodes_have_no_login_and_are_not_let_in(started: Started) -> None:
    host, _, port = started[0].endpoints["nsqlookupd_tcp"].rpartition(":")
    with socket.create_connection((host, int(port)), 10) as node:
        node.sendall(b"  V1PING\n")
        with suppress(ConnectionResetError):
            assert node.recv(100) == b""
