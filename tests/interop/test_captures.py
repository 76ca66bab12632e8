"""Every exchange recorded with the real 0.0.40 server, replayed against ours: the same answer, or a listed reason."""

from __future__ import annotations

import dataclasses
import json
import socket
import struct
import zlib
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from lading import testing
from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic import responses as r
from tests.interop.differences import HTTP, TCP, VOLATILE

VECTORS = Path(__file__).parents[1] / "vectors"
HEAD = struct.Struct("<II")
POLLED_HEAD = struct.Struct("<QBQ16sII")


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (VECTORS / name).read_text().splitlines()]


TCP_EXCHANGES = recorded("iggy_classic_capture.jsonl")
HTTP_EXCHANGES = recorded("iggy_classic_http_capture.jsonl")


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


def receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part, "the connection was closed in the middle of an answer"
        data += part
    return data


@pytest.fixture(scope="module")
def tcp_answers(broker: testing.BrokerProcess) -> list[tuple[int, bytes]]:
    """(status, body) of every TCP exchange, on one connection as when they were recorded."""
    host, port = broker.endpoints["iggy_tcp"].split(":")
    answers = []
    second_us = b""
    own_id = None
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        address = "{}:{}".format(*connection.getsockname())
        own_id = zlib.crc32(address.encode())
        for exchange in TCP_EXCHANGES:
            request = bytearray.fromhex(exchange["request_hex"])
            # two requests hold what only the answers before them tell
            if exchange["name"] == "message.poll (timestamp of the second)":
                request[30:38] = second_us
            elif exchange["name"] == "client.get (self)":
                request[8:12] = own_id.to_bytes(4, "little")
            connection.sendall(request)
            status, size = HEAD.unpack(receive(connection, HEAD.size))
            body = receive(connection, size)
            if exchange["name"] == "message.poll (offset 1, count 2)":
                second_us = body[4 + 9 : 4 + 17]
            answers.append((status, body))
    return answers


@pytest.mark.parametrize("at", range(len(TCP_EXCHANGES)), ids=lambda at: TCP_EXCHANGES[at]["name"])
def test_tcp_exchange(tcp_answers: list[tuple[int, bytes]], at: int) -> None:
    exchange = TCP_EXCHANGES[at]
    status, body = tcp_answers[at]
    real = bytes.fromhex(exchange["response_hex"])
    real_status, _ = HEAD.unpack_from(real)
    assert exchange["name"] not in TCP
    assert status == real_status
    if status:
        assert body == b""
        return
    command = c.ROW_BY_CODE[HEAD.unpack_from(bytes.fromhex(exchange["request_hex"]))[1]].request
    assert comparable(c.parse_response(command, body)) == comparable(c.parse_response(command, real[8:]))


def comparable(value: Any) -> Any:
    """The parsed answer with its volatile parts reduced to their form."""
    if isinstance(value, r.PolledMessages):
        return value.count, messages(bytes(value.messages))
    if isinstance(value, r.ClientInfo):
        assert value.id == zlib.crc32(value.address.encode())
    if isinstance(value, r.TopicDetails):
        # see "partition_order": the whole list is compared, sorted
        value = dataclasses.replace(value, partitions=sorted(value.partitions, key=lambda partition: partition.id))
    if isinstance(value, r.MemberInfo):
        return "client_id", sorted(value.partitions)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: reduced(value, field.name, comparable(getattr(value, field.name)))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, list | tuple):
        return [comparable(one) for one in value]
    return value


def reduced(value: Any, name: str, part: Any) -> Any:
    if isinstance(value, r.ClientInfo) and name == "id":
        name = "client_id"
    return type(part).__name__ if name in VOLATILE else part


def messages(data: bytes) -> list[tuple[Any, ...]]:
    """Polled messages: facts, headers by key, payload; ids that a server made are told by their form."""
    found, at, before_us = [], 0, 0
    while at < len(data):
        offset, state, timestamp_us, id_, checksum, headers_size = POLLED_HEAD.unpack_from(data, at)
        headers_at = at + POLLED_HEAD.size
        length_at = headers_at + headers_size
        (payload_size,) = struct.unpack_from("<I", data, length_at)
        payload = data[length_at + 4 : length_at + 4 + payload_size]
        assert checksum == zlib.crc32(payload)
        assert timestamp_us > before_us
        before_us = timestamp_us
        found.append((offset, state, shown_id(id_), checksum, headers(data[headers_at:length_at]), payload))
        at = length_at + 4 + payload_size
    return found


def shown_id(id_: bytes) -> str:
    number = int.from_bytes(id_, "little")
    if number < 1 << 16 or number == (1 << 128) - 1:
        return str(number)
    assert id_[6] >> 4 == 4, "an id that the server made is a UUID of version 4"
    assert id_[8] >> 6 == 0b10
    return "made_id"


def headers(block: bytes) -> dict[bytes, tuple[int, bytes]]:
    found, at = {}, 0
    while at < len(block):
        (key_size,) = struct.unpack_from("<I", block, at)
        key = block[at + 4 : at + 4 + key_size]
        kind, value_size = struct.unpack_from("<BI", block, at + 4 + key_size)
        at += 9 + key_size
        found[key] = (kind, block[at : at + value_size])
        at += value_size
    return found


@pytest.fixture(scope="module")
def http_answers() -> list[tuple[int, str | None, str]]:
    """(status, content type, body) of every HTTP exchange, on a broker of their own."""
    answers = []
    with testing.broker() as broker:
        connection = HTTPConnection(broker.endpoints["iggy_http"], timeout=60)
        for exchange in HTTP_EXCHANGES:
            content_type = {"content-type": "application/json"} if exchange["body"] is not None else {}
            connection.request(exchange["method"], exchange["path"], exchange["body"], content_type)
            response = connection.getresponse()
            answers.append((response.status, response.getheader("content-type"), response.read().decode()))
        connection.close()
    return answers


@pytest.mark.parametrize("at", range(len(HTTP_EXCHANGES)), ids=lambda at: HTTP_EXCHANGES[at]["name"])
def test_http_exchange(http_answers: list[tuple[int, str | None, str]], at: int) -> None:
    exchange = HTTP_EXCHANGES[at]
    status, content_type, body = http_answers[at]
    real = exchange["status"], exchange["content_type"], exchange["response"]
    if exchange["name"] in HTTP:
        assert (status, content_type, body) != real, "no difference any more: take it out of the table"
        if real[1] == "text/plain; charset=utf-8" and status != 204:
            assert (status, content_type) == real[:2]
            assert body.partition(": ")[0] == real[2].partition(": ")[0]
        return
    assert (status, content_type) == real[:2]
    if content_type == "application/json":
        assert plain(json.loads(body)) == plain(json.loads(real[2]))
        assert members(json.loads(body)) == members(json.loads(real[2]))
    else:
        assert body == real[2]


def plain(value: Any, name: str = "") -> Any:
    """The document with its volatile parts reduced to their type."""
    if isinstance(value, dict):
        return {key: plain(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [plain(part) for part in value]
    if name == "id" and isinstance(value, int) and 1 << 32 < value < (1 << 128) - 1:
        return shown_id(value.to_bytes(16, "little"))
    return type(value).__name__ if name in VOLATILE else value


def members(value: Any) -> Any:
    """The names of members in their order, which curl users see; not those of headers, see "header_order"."""
    if isinstance(value, dict):
        return [(key, members(part)) for key, part in value.items() if key != "headers"]
    return [members(part) for part in value] if isinstance(value, list) else None
