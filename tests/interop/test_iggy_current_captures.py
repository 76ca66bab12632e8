"""Every exchange recorded with the real server of the current generation, replayed: the same answer, or its reason."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from lading import testing
from tests.dialects.iggy_current import parse_batches

EXCHANGES: Final[list[dict[str, Any]]] = [
    json.loads(line)
    for line in (Path(__file__).parents[1] / "vectors" / "iggy_current_capture.jsonl").read_text().splitlines()
]

OPTIONS: Final = "the two durability options of the client are taken, which its own server refuses (4041)"
CREATED: Final = "the topic is there, since the request before was not refused"
KEPT: Final = "the topic has the durability options of the first request, which its own server refused"
DIFFERENT: Final[Mapping[str, str]] = {
    "topic.create (3 partitions)": OPTIONS,
    "topic.create (raw body without options)": CREATED,
    "topic.create (same name)": OPTIONS,
    "topic.create (missing stream)": OPTIONS,
    "topic.get": KEPT,
    "topic.list": KEPT,
    "message.send (balanced)": KEPT,
    "describe_options topic": "the catalog lists the two durability options, since they are taken",
    "login (wrong password)": "while no users are set up, every login succeeds",
}
"""Exchanges with another outcome."""

RESULT_OPERATIONS: Final = {1, *range(128, 150), 161, 162}
STREAM, TOPIC, PARTITION = struct.Struct("<IQIQQ"), struct.Struct("<IQIQBQQQ"), struct.Struct("<IQIQQQ")
STATS = struct.Struct("<IffQQQQQQQQIIIIQII")


def requests(exchange: dict[str, Any]) -> list[bytes]:
    found = exchange.get("request_frames") or [exchange["request_hex"]]
    return [bytes.fromhex(one) for one in found if one]


def replies(exchange: dict[str, Any]) -> list[bytes]:
    found = exchange.get("response_frames") or [exchange["response_hex"]]
    return [bytes.fromhex(one) for one in found if one]


def receive(connection: socket.socket) -> bytes:
    data = b""
    wanted = 256
    while len(data) < wanted:
        part = connection.recv(wanted - len(data))
        assert part, "the connection was closed in the middle of a reply"
        data += part
        if len(data) == 256:
            (wanted,) = struct.unpack_from("<I", data, 48)
    return data


@pytest.fixture(scope="module")
def answers() -> Iterator[list[list[bytes]]]:
    """The replies to each exchange, on one connection as when they were recorded."""
    found: list[list[bytes]] = []
    second_us = b""
    with testing.broker() as broker:
        host, port = broker.endpoints["iggy_tcp"].split(":")
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            for exchange in EXCHANGES:
                own = []
                for request in requests(exchange):
                    frame = bytearray(request)
                    if exchange["name"] == "message.poll (timestamp of the second)":
                        frame[256 + 25 : 256 + 33] = second_us
                    connection.sendall(frame)
                    own.append(receive(connection))
                if exchange["name"] == "message.poll (offset 1, count 2)":
                    second_us = own[0][256 + 16 + 16 : 256 + 16 + 24]
                found.append(own)
    yield found


@pytest.mark.parametrize("at", range(len(EXCHANGES)), ids=lambda at: EXCHANGES[at]["name"])
def test_exchange(answers: list[list[bytes]], at: int) -> None:
    exchange = EXCHANGES[at]
    ours, real = answers[at], replies(exchange)
    assert len(ours) == len(real)
    seen = [facts(request, reply) for request, reply in zip(requests(exchange), ours, strict=True)]
    wanted = [facts(request, reply) for request, reply in zip(requests(exchange), real, strict=True)]
    if exchange["name"] in DIFFERENT:
        assert seen != wanted, "no difference any more: take it out of the table"
    else:
        assert seen == wanted


def test_every_reply_answers_its_request(answers: list[list[bytes]]) -> None:
    """What a client may check: client, number, checksum and operation are those of the request."""
    for exchange, own in zip(EXCHANGES, answers, strict=True):
        for request, reply in zip(requests(exchange), own, strict=True):
            assert reply[60] == 8
            assert reply[128:144] == request[144:160]
            assert reply[160:176] == request[128:144]
            assert reply[200:208] == request[168:176]
            assert reply[208] == request[176]


def facts(request: bytes, reply: bytes) -> dict[str, Any]:
    """What a reply says, without times, sizes on disk and what differs from machine to machine."""
    if reply[60] == 13:
        return {"evicted": reply[255]}
    operation = request[176]
    (code,) = struct.unpack_from("<I", request, 196)
    (status,) = struct.unpack_from("<I", reply, 216)
    body = reply[256:]
    found: dict[str, Any] = {"status": status}
    if operation in RESULT_OPERATIONS and not status:
        (refused,) = struct.unpack_from("<I", body)
        if refused:
            return {**found, "refused": body.hex()}
        body = body[4:]
    if status or not body:
        return {**found, "body": body}
    match operation, code:
        case (1, _):
            user, session, version, size = struct.unpack_from("<IQIB", body)
            return {**found, "user": user, "session": session > 0, "version": version, "size": len(body) - size}
        case (2, 10):
            return {**found, "stats": stats(body)}
        case (2, 12):
            return {**found, "nodes": struct.unpack_from("<I", body, 4 + body[0])[0]}
        case (2, 13):
            return {**found, "options": options(body)}
        case (2, 100):
            partition, last, count = struct.unpack_from("<IQI", body)
            messages = [one._replace(timestamp_us=0) for one in parse_batches(body[16:])]
            assert len(messages) == count
            return {**found, "partition": partition, "last": last, "messages": messages}
        case (2, 200 | 201) | (128, _):
            return {**found, "stream": stream(body)}
        case (2, 300) | (132, _):
            return {**found, "topic": topic(body)}
        case (2, 301):
            (count,) = struct.unpack_from("<I", body)
            return {**found, "count": count, "topic": topic(body[4:])}
        case (2, 600) if len(body) > 20:
            ident, partitions, members, size = struct.unpack_from("<IIIB", body)
            return {**found, "group": (ident, partitions, members), "held": body[13 + size + 4 :]}
        case _:
            return {**found, "body": body}


def stats(body: bytes) -> Any:
    """The counts of the numbers, and how many texts stand behind them."""
    numbers = STATS.unpack_from(body)
    at = STATS.size
    for _ in range(5):
        at += 4 + struct.unpack_from("<I", body, at)[0]
    version, caches = struct.unpack_from("<II", body, at)
    return version, numbers[11:17], len(body) - at - (28 * caches)


def options(body: bytes) -> Any:
    """Names, kinds and defaults; the sentences are each server's own."""
    (count,) = struct.unpack_from("<I", body)
    at, found = 4, []
    for _ in range(count):
        name = body[at + 1 : at + 1 + body[at]]
        at += 1 + body[at]
        kind, size = struct.unpack_from("<BI", body, at)
        found.append((name, kind, body[at + 5 : at + 5 + size]))
        at += 5 + size
        at += 4 + struct.unpack_from("<I", body, at)[0]
    assert at == len(body)
    return found


def stream(body: bytes) -> Any:
    ident, _, topics, _, messages = STREAM.unpack_from(body)
    return ident, topics, messages, body[STREAM.size :]


def topic(body: bytes) -> Any:
    ident, _, partitions, expiry, compression, size_max, _, messages = TOPIC.unpack_from(body)
    at = TOPIC.size
    name = body[at + 1 : at + 1 + body[at]]
    at += 1 + body[at]
    blocks = []
    for _ in range(2):
        (size,) = struct.unpack_from("<I", body, at)
        blocks.append(body[at + 4 : at + 4 + size])
        at += 4 + size
    parts = []
    while at < len(body):
        number, _, segments, last, _, held = PARTITION.unpack_from(body, at)
        parts.append((number, segments, last, held))
        at += PARTITION.size
    return ident, partitions, expiry, compression, size_max, messages, name, blocks, parts
