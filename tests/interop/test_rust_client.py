"""A client nobody here wrote: the Rust crate iggy 0.0.40 over TCP, QUIC, HTTP; what it sees is held to the protocol."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from tests.interop import rust_client

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1500)]

Steps = dict[str, dict[str, Any]]

KINDS: dict[str, bytes] = {
    "raw": bytes([0, 255, 128]),
    "string": "žluťoučký".encode(),
    "bool": b"\1",
    "int8": struct.pack("<b", -128),
    "int16": struct.pack("<h", -32767),
    "int32": struct.pack("<i", -3),
    "int64": struct.pack("<q", 2**63 - 1),
    "int128": (-(2**127)).to_bytes(16, "little", signed=True),
    "uint8": b"\xff",
    "uint16": struct.pack("<H", 65_534),
    "uint32": struct.pack("<I", 4_000_000_000),
    "uint64": b"\xff" * 8,
    "uint128": (2**128 - 2).to_bytes(16, "little"),
    "float32": struct.pack("<f", 1.5),
    "float64": struct.pack("<d", -2.5e300),
}
"""What the program sends, one header a kind; the key is the kind's word."""

PAYLOADS = [b"every kind", b"largest id", bytes([0, 255, 10]), b"fourth"]


@pytest.fixture(scope="module")
def program() -> Path:
    """The client, or a skip that says why there is none."""
    try:
        return rust_client.build()
    except rust_client.Unavailable as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module", params=["tcp", "quic", "http"])
def steps(request: pytest.FixtureRequest, program: Path) -> Iterator[Steps]:
    """What the client saw, by step, on a fresh broker."""
    with testing.broker() as broker:
        address = {name: broker.endpoints[f"iggy_{name}"] for name in ("tcp", "quic", "http")}
        address["http"] = f"http://{address['http']}/"
        lines = rust_client.run(program, "scenario", request.param, address[request.param])
    found = {line["step"]: line for line in lines}
    found["transport"] = {"ok": request.param}
    yield found


def ok(steps: Steps, step: str) -> Any:
    """What a step gave; it must have succeeded."""
    assert "ok" in steps[step], f"{step}: {steps[step].get('error')}"
    return steps[step]["ok"]


def refused(steps: Steps, step: str, code: int, word: str) -> None:
    """A step must have been refused with this code, as its transport tells it."""
    error = steps[step]["error"]
    if ok(steps, "transport") != "http":
        assert error == f"InvalidResponse({code})"
    else:
        assert f'\\"id\\":{code}' in error
        assert word in error


def payloads(messages: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(message["payload"]) for message in messages]


@pytest.mark.turns(3)
def test_streams_and_topics(steps: Steps) -> None:
    ok(steps, "ping")
    assert ok(steps, "streams before") == []
    ok(steps, "create stream")
    stream = ok(steps, "get stream")
    assert (stream["id"], stream["name"], stream["topics_count"]) == (1, "rust.stream", 0)
    assert ok(steps, "get stream by name") == stream
    refused(steps, "create stream again", 1011, "stream_id_already_exists")
    refused(steps, "create stream of the same name", 1012, "stream_name_already_exists")
    refused(steps, "get missing stream", 1009, "stream_id_not_found")
    ok(steps, "create topic")
    refused(steps, "create topic again", 2012, "topic_id_already_exists")
    topic = ok(steps, "get topic")
    assert (topic["id"], topic["name"], topic["partitions_count"]) == (1, "kinds", 3)
    assert [partition["id"] for partition in topic["partitions"]] == [1, 2, 3]
    assert [one["name"] for one in ok(steps, "topics")] == ["kinds"]
    ok(steps, "delete topic")
    ok(steps, "delete stream")
    assert ok(steps, "streams after") == []


def test_every_header_kind_comes_back_exact(steps: Steps) -> None:
    ok(steps, "send to partition 1")
    messages = ok(steps, "poll offset")[:4]
    assert payloads(messages) == PAYLOADS
    headers = messages[0]["headers"]
    assert {key: header["kind"] for key, header in headers.items()} == {kind: kind for kind in KINDS}
    assert {key: base64.b64decode(header["value"]) for key, header in headers.items()} == KINDS
    assert [message["headers"] for message in messages[1:]] == [None, None, None]


def test_what_the_server_adds(steps: Steps) -> None:
    messages = ok(steps, "poll offset")[:4]
    assert [message["offset"] for message in messages] == [0, 1, 2, 3]
    assert [message["checksum"] for message in messages] == [zlib.crc32(payload) for payload in PAYLOADS]
    assert {message["state"] for message in messages} == {"available"}
    assert [messages[0]["id"], messages[1]["id"], messages[3]["id"]] == [7, 2**128 - 1, 9]
    # an id of 0 becomes a UUID of version 4, its bytes in the order of the wire
    made = messages[2]["id"].to_bytes(16, "little")
    assert made[6] >> 4 == 4
    assert made[8] >> 6 == 0b10
    times = [message["timestamp"] for message in messages]
    assert times == sorted(set(times))


def test_partitioning(steps: Steps) -> None:
    """By turns from partition 1; by key as MurmurHash3 says (iggy.md A2): k1 -> 2, user-123 -> 1, order-key -> 3."""
    for step in ("send balanced", "send balanced again", "send by key k1", "send by key user-123"):
        ok(steps, step)
    ok(steps, "send by key order-key")
    assert payloads(ok(steps, "poll offset"))[4:] == [b"balanced 1", b"user-123"]
    assert payloads(ok(steps, "poll partition 2")) == [b"balanced 2", b"k1"]
    assert payloads(ok(steps, "poll partition 3")) == [b"order-key"]
    refused(steps, "send to a missing partition", 3007, "partition_not_found")


def test_polling_strategies(steps: Steps) -> None:
    def offsets(step: str) -> list[int]:
        return [message["offset"] for message in ok(steps, step)]

    assert offsets("poll offset") == [0, 1, 2, 3, 4, 5]
    assert offsets("poll offset 1 count 2") == [1, 2]
    assert offsets("poll past the end") == []
    assert offsets("poll timestamp") == [1]
    assert offsets("poll first") == [0]
    assert offsets("poll last") == [5]
    assert offsets("poll next") == [0, 1]
    assert offsets("poll next again") == [2]
    refused(steps, "poll missing partition", 3007, "partition_not_found")


def test_offsets(steps: Steps) -> None:
    assert ok(steps, "get offset") == {"consumer_id": 5, "offset": 2}
    ok(steps, "store offset")
    refused(steps, "store offset too high", 4100, "invalid_offset")
    assert [message["offset"] for message in ok(steps, "poll next after store")] == [1]


def test_groups(steps: Steps) -> None:
    ok(steps, "create group")
    refused(steps, "create group again", 5001, "consumer_group_already_exists")
    assert ok(steps, "groups") == [{"id": 1, "partitions_count": 3, "members_count": 0}]
    ok(steps, "delete group")
    group = ok(steps, "get group")
    if ok(steps, "transport") == "http":
        assert group == {"id": 1, "partitions_count": 3, "members_count": 0, "members": []}
        return
    refused(steps, "poll as no member", 5002, "consumer_group_member_not_found")
    ok(steps, "join")
    me = ok(steps, "me")
    assert me["consumer_groups"] == [{"stream_id": 1, "topic_id": 1, "consumer_group_id": 1}]
    assert me["id"] == zlib.crc32(me["address"].encode())
    assert ok(steps, "get client") == me
    assert [client["id"] for client in ok(steps, "clients")] == [me["id"]]
    assert group["members"] == [{"id": me["id"], "partitions_count": 3, "partitions": [1, 2, 3]}]
    # the member's partitions take turns, and each goes on behind what it gave
    polled = [payloads(ok(steps, f"poll as member {turn}")) for turn in range(1, 8)]
    assert polled == [
        PAYLOADS[:2],
        [b"balanced 2", b"k1"],
        [b"order-key"],
        PAYLOADS[2:],
        [],
        [],
        [b"balanced 1", b"user-123"],
    ]
    ok(steps, "leave")


def test_stats(steps: Steps) -> None:
    stats = ok(steps, "stats")
    counted = ("streams_count", "topics_count", "partitions_count", "messages_count", "consumer_groups_count")
    assert {name: stats[name] for name in counted} == {
        "streams_count": 1,
        "topics_count": 1,
        "partitions_count": 3,
        "messages_count": 9,
        "consumer_groups_count": 0,
    }
    assert stats["process_id"] > 0
    assert 0 < stats["memory_usage"] < stats["total_memory"]
    assert stats["hostname"]
