"""Iggy over HTTP beyond the captures: bad bodies, limits, states, and the same messages on both faces."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from lading.testing import BrokerProcess
from tests.endpoints.frames import Frames, header, message, payloads, poll, to_partition

TEXT = "text/plain; charset=utf-8"


@pytest.fixture
def http(broker: BrokerProcess) -> httpx.Client:
    """A client of the HTTP endpoint."""
    return httpx.Client(base_url=f"http://{broker.endpoints['iggy_http']}", timeout=10)


@pytest.fixture
def path(topic: bytes) -> str:
    """The path of the topic that ``topic`` made over TCP."""
    return f"/streams/{int.from_bytes(topic[2:6], 'little')}/topics/1"


def sending(payload: bytes = b"x", headers: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """The document of a send of one message to partition 1."""
    one = {"payload": base64.b64encode(payload).decode(), "headers": headers, **more}
    return {"partitioning": {"kind": "partition_id", "value": "AQAAAA=="}, "messages": [one]}


def test_curl_documents_of_the_seed(http: httpx.Client, path: str) -> None:
    """The documents as the seed's sample file writes them, with ``consumer_id`` as number or text."""
    body = {
        "partitioning": {"kind": "partition_id", "value": "AQAAAA=="},
        "messages": [
            {
                "id": 0,
                "payload": "aGVsbG8=",
                "headers": {
                    "key_1": {"kind": "string", "value": "VmFsdWUgMQ=="},
                    "key 2": {"kind": "bool", "value": "AQ=="},
                    "key-3": {"kind": "uint64", "value": "e8gBAAAAAAA="},
                },
            }
        ],
    }
    assert http.post(f"{path}/messages", json=body).status_code == 201
    answer = http.get(f"{path}/messages?consumer_id=1&partition_id=1&kind=next&value=0&count=5&auto_commit=true")
    (polled,) = answer.json()
    assert (polled["offset"], polled["state"], polled["payload"]) == (0, "available", "aGVsbG8=")
    assert polled["headers"] == body["messages"][0]["headers"]  # type: ignore[index]
    assert http.get(f"{path}/consumer-offsets?consumer_id=1&partition_id=1").json() == {"consumer_id": 1, "offset": 0}
    for consumer in ({"consumer_id": 9}, {"consumer_id": "9"}, {"id": "9"}, {"id": 9}):
        stored = http.put(f"{path}/consumer-offsets", json={**consumer, "partition_id": 1, "offset": 0})
        assert stored.status_code == 204


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"": {"kind": "string", "value": "eA=="}}, 4018),
        ({"k": {"kind": "string", "value": ""}}, 4019),
        ({"k" * 256: {"kind": "string", "value": "eA=="}}, 4018),
        ({"k": {"kind": "raw", "value": base64.b64encode(bytes(256)).decode()}}, 4019),
        ({f"k{at}": {"kind": "raw", "value": base64.b64encode(bytes(255)).decode()} for at in range(402)}, 4017),
    ],
    ids=["empty key", "empty value", "long key", "long value", "over 100 KiB in sum"],
)
def test_refused_headers(http: httpx.Client, path: str, headers: dict[str, Any], code: int) -> None:
    """The real server takes empty keys and values over HTTP and then loses the topic (iggy.md M5)."""
    answer = http.post(f"{path}/messages", json=sending(headers=headers))
    assert (answer.status_code, answer.json()["id"]) == (400, code)
    assert http.get(f"{path}/messages").json() == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"\xff\xfe", 400),
        (b"[]", 422),
        (b'{"partitioning":{"kind":"balanced","value":""}}', 422),
        (b'{"partitioning":{"kind":"sometimes","value":""},"messages":[]}', 422),
        (b'{"partitioning":{"kind":"balanced","value":""},"messages":[{"payload":"?"}]}', 422),
        (b'{"partitioning":{"kind":"balanced","value":""},"messages":[{"id":-1,"payload":"eA=="}]}', 422),
        (b'{"a":' * 2000 + b"1" + b"}" * 2000, 400),
        (b" " * (2 << 20) + b" ", 413),
    ],
    ids=[
        "broken",
        "no UTF-8",
        "a list",
        "no messages",
        "unknown kind",
        "no base64",
        "negative id",
        "deep",
        "too large",
    ],
)
def test_bodies_that_are_none(http: httpx.Client, path: str, body: bytes, status: int) -> None:
    answer = http.post(f"{path}/messages", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, answer.headers["content-type"]) == (status, TEXT)
    assert http.get("/ping").text == "pong"


def test_a_body_without_length_is_cut_at_the_limit(http: httpx.Client, path: str) -> None:
    answer = http.post(f"{path}/messages", content=(b" " * 65536 for _ in range(64)))
    assert answer.status_code == 413


@pytest.mark.parametrize(
    ("method", "place", "status", "code"),
    [
        ("GET", "/streams/0", 404, 1009),
        ("GET", "/streams/999999", 404, 1009),
        ("GET", "/streams/nobody", 400, 1010),
        ("GET", "/streams/1/topics/nothing", 400, 2011),
        ("GET", "/streams/1/topics/1/messages?partition_id=0", 404, 3007),
        ("GET", "/streams/1/topics/1/consumer-groups/0", 400, 5003),
        ("GET", "/clients/0", 404, 100),
    ],
)
def test_refusals(http: httpx.Client, path: str, method: str, place: str, status: int, code: int) -> None:
    answer = http.request(method, place.replace("/streams/1/topics", path.removesuffix("/1")))
    assert (answer.status_code, answer.json()["id"]) == (status, code)


@pytest.mark.parametrize(
    ("method", "place", "status"),
    [
        ("GET", "/streams/1/topics/1/messages?count=many", 400),
        ("GET", "/streams/1/topics/1/messages?auto_commit=perhaps", 400),
        ("DELETE", "/streams/1/topics/1/partitions", 400),
        ("GET", "/clients/me", 400),
    ],
)
def test_queries_that_are_none(http: httpx.Client, path: str, method: str, place: str, status: int) -> None:
    answer = http.request(method, place)
    assert (answer.status_code, answer.headers["content-type"]) == (status, TEXT)


def test_methods_that_a_path_does_not_have(http: httpx.Client) -> None:
    answer = http.put("/streams")
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, POST")


def test_both_faces_show_the_same_messages(http: httpx.Client, path: str, frames: Frames, topic: bytes) -> None:
    sent = message(b"binary", header(b"carrier", 2, b"UA") + header(b"raw", 1, b"\xff\0"), id_=77)
    assert frames.ask(101, topic + to_partition(1) + sent) == (0, b"")
    assert http.post(
        f"{path}/messages", json=sending(b"text", {"n": {"kind": "int8", "value": "/w=="}}, id=78)
    ).is_success
    first, second = http.get(f"{path}/messages?partition_id=1&value=0&count=10").json()
    assert (first["id"], first["payload"]) == (77, "YmluYXJ5")
    assert first["headers"] == {
        "carrier": {"kind": "string", "value": "VUE="},
        "raw": {"kind": "raw", "value": "/wA="},
    }
    assert (second["id"], second["headers"]) == (78, {"n": {"kind": "int8", "value": "/w=="}})
    body = frames.ask(100, poll(topic))[1]
    assert payloads(body) == [b"binary", b"text"]
    assert header(b"n", 4, b"\xff") in body


def test_states_are_set_listed_and_shown_on_both_faces(
    http: httpx.Client, path: str, frames: Frames, topic: bytes
) -> None:
    for number in range(6):
        assert frames.ask(101, topic + to_partition(1) + message(b"%d" % number)) == (0, b"")
    states = f"{path}/partitions/1/states"
    assert http.put(states, json={"first": 1, "end": 3, "state": "poisoned"}).status_code == 204
    assert http.put(states, json={"offsets": [5, 4], "state": "marked_for_deletion"}).status_code == 204
    assert http.get(states).json() == [
        {"first": 1, "end": 3, "state": "poisoned"},
        {"first": 4, "end": 6, "state": "marked_for_deletion"},
    ]
    assert http.get(f"{states}?first=2&end=5").json() == [
        {"first": 2, "end": 3, "state": "poisoned"},
        {"first": 4, "end": 5, "state": "marked_for_deletion"},
    ]
    words = [one["state"] for one in http.get(f"{path}/messages?partition_id=1").json()]
    assert words == ["available", "poisoned", "poisoned", "available", "marked_for_deletion", "marked_for_deletion"]
    body = frames.ask(100, poll(topic))[1]
    codes, at = [], 4
    while at < len(body):
        codes.append(body[at + 8])
        at += 46
    assert codes == [1, 20, 20, 1, 30, 30]
    assert http.put(states, json={"first": 0, "end": 6, "state": "available"}).status_code == 204
    assert http.get(states).json() == []


@pytest.mark.parametrize(
    "document",
    [
        {"first": 0, "end": 1, "state": "tired"},
        {"first": 0, "end": 1},
        {"first": 3, "end": 3, "state": "poisoned"},
        {"first": 0, "end": 99, "state": "poisoned"},
        {"first": -1, "end": 1, "state": "poisoned"},
        {"offsets": [], "state": "poisoned"},
        {"offsets": [True], "state": "poisoned"},
        {"offsets": [0], "first": 0, "end": 1, "state": "poisoned"},
        [1],
    ],
    ids=json.dumps,
)
def test_states_that_cannot_be_set(http: httpx.Client, path: str, frames: Frames, topic: bytes, document: Any) -> None:
    assert frames.ask(101, topic + to_partition(1) + message(b"x")) == (0, b"")
    answer = http.put(f"{path}/partitions/1/states", json=document)
    assert answer.status_code == 400, answer.text
    assert http.get(f"{path}/partitions/1/states").json() == []


def test_clients_of_the_binary_face_are_listed(http: httpx.Client, connect: Callable[[], Frames]) -> None:
    frames = connect()
    host, port = frames.socket.getsockname()
    listed = {client["address"]: client for client in http.get("/clients").json()}
    client = listed[f"{host}:{port}"]
    assert client["transport"] == "TCP"
    details = http.get(f"/clients/{client['id']}").json()
    assert details == {**client, "consumer_groups": []}


@pytest.mark.turns(2, part=1)
def test_mutated_documents(http: httpx.Client, path: str, full: bool) -> None:
    """Seeded mutations of a good send: taken or refused with a status of the protocol, never an internal error."""
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    good = json.dumps(sending(b"payload", {"carrier": {"kind": "string", "value": "VUE="}}, id=7)).encode()
    rounds = 5_000 if full else 300
    statuses: dict[int, int] = {}
    for _ in range(rounds):
        body = bytearray(good)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(body))
            body[at : at + chance.randint(0, 3)] = chance.choice(
                (b"", b"0", b'"', b"}", b"[", b"null", b"\xff", b"1e999")
            )
        answer = http.post(f"{path}/messages", content=bytes(body))
        status = answer.status_code
        # a partition number that is not 4 bytes is code 204, which the real server too answers with 500
        fine = status in (201, 400, 404, 422) or (status == 500 and answer.json()["id"] == 204)
        assert fine, f"{status} for {bytes(body)!r}, seed {seed}"
        statuses[status] = statuses.get(status, 0) + 1
    assert http.get(f"{path}/messages?count=1").status_code == 200
    print(f"{rounds} mutated documents: {statuses}")


def test_readers_ask_for_messages_by_state(broker: BrokerProcess, http: httpx.Client, path: str) -> None:
    for number in range(8):
        assert http.post(f"{path}/messages", json=sending(b"%d" % number)).status_code == 201
    states = f"{path}/partitions/1/states"
    for document in ({"first": 2, "end": 4, "state": "poisoned"}, {"offsets": [6], "state": "unavailable"}):
        assert http.put(states, json=document).status_code == 204

    def ask(query: str) -> list[tuple[int, str]]:
        answer = http.get(f"{path}/messages?{query}")
        assert answer.status_code == 200, answer.text
        return [(message["offset"], message["state"]) for message in answer.json()]

    everything = ask("count=100")
    assert len(everything) == 8
    assert ask("count=100&state=all") == everything
    assert ask("count=100&state=poisoned") == [(2, "poisoned"), (3, "poisoned")]
    assert ask("count=1&state=poisoned") == [(2, "poisoned")]
    assert ask("count=100&value=3&state=unavailable,poisoned") == [(3, "poisoned"), (6, "unavailable")]
    assert [offset for offset, _ in ask("count=100&state=available")] == [0, 1, 4, 5, 7]
    assert [offset for offset, _ in ask("count=2&kind=last&state=available")] == [5, 7]
    assert [offset for offset, _ in ask("count=2&kind=last&state=poisoned,unavailable")] == [3, 6]
    assert ask("count=100&state=marked_for_deletion") == []
    # a consumer that goes on where it was gets each of them once
    assert ask("id=5&kind=next&count=1&auto_commit=true&state=poisoned,unavailable") == [(2, "poisoned")]
    assert ask("id=5&kind=next&count=9&auto_commit=true&state=poisoned,unavailable")[-1] == (6, "unavailable")
    answer = http.get(f"{path}/messages?state=ill")
    assert (answer.status_code, "state: unknown variant `ill`" in answer.text) == (400, True)
    # what a topic hides stays hidden
    stream = int(path.split("/")[2])
    admin = f"http://{broker.endpoints['admin']}/topics/stream{stream}/topic/settings"
    assert httpx.put(admin, json={"hide_states": True}).status_code == 200
    assert ask("count=100&state=poisoned") == []
    assert [offset for offset, _ in ask("count=100&state=available,poisoned")] == [0, 1, 4, 5, 7]


def test_an_unknown_parameter_of_a_query_is_refused_by_name(http: httpx.Client, path: str) -> None:
    for place in (f"{path}/messages", f"{path}/consumer-offsets", f"{path}/partitions/1/states", path, "/streams"):
        answer = http.get(f"{place}?autocommit=true")
        assert (answer.status_code, "unknown field `autocommit`" in answer.text) == (400, True), (place, answer.text)
    assert http.get(f"{path}/messages?id=1&partition_id=1&kind=offset&value=0&count=1&auto_commit=false").json() == []
