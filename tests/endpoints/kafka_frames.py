"""Kafka frames by hand and through kafka-python's own codec, so that tests can also send what no client would."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import count
from typing import Any
from uuid import UUID

import google_crc32c

from lading.dialects.kafka import later_messages
from tests.endpoints.connection import Connection

# at once and here: a broker of the same process loads them too, in another thread, and two that begin at different
# ends of a package's circle wait for each other
_MODULES = [import_module(f"kafka.protocol.{name}") for name in ("admin", "consumer", "metadata", "producer", "sasl")]
_MODULES.append(later_messages)


def message(name: str) -> Any:
    """A class of ``kafka.protocol``, such as ProduceRequest."""
    for module in _MODULES:
        found = getattr(module, name, None)
        if found is not None:
            return found
    raise LookupError(name)


def _made(kind: Any, version: int, fields: Mapping[str, Any]) -> Any:
    """An object of ``kafka.protocol``, structs given as mappings."""
    values = {}
    for name, value in fields.items():
        field = kind.fields[name]
        if field.for_version_q(version):
            if field.is_struct_array() and value is not None:
                value = [_made(getattr(kind, field.type_str), version, one) for one in value]
            values[name] = value
    return kind(version=version, **values)


def request_frame(name: str, version: int, correlation: int, **fields: Any) -> bytes:
    """A request of one API without its length, encoded by kafka-python."""
    made = _made(message(name + "Request"), version, fields)
    made.with_header(correlation_id=correlation, client_id="frames")
    return bytes(made.encode(header=True))


class KafkaFrames(Connection):
    """One TCP connection."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._ids = count(1)

    def send(self, frame: bytes) -> None:
        """A request, without its length."""
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)

    def answer(self) -> bytes:
        """The next answer, without its length; ConnectionError where the server closed instead."""
        return self.receive(struct.unpack(">i", self.receive(4))[0])

    def request(self, name: str, version: int, **fields: Any) -> bytes:
        """A request of one API, encoded by kafka-python."""
        return request_frame(name, version, next(self._ids), **fields)

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        """A request and its answer, decoded by kafka-python; the correlation ids must agree."""
        frame = self.request(name, version, **fields)
        self.send(frame)
        answer = self.answer()
        assert answer[:4] == frame[4:8]
        return message(name + "Response").decode(answer, version=version, header=True)


def varint(value: int) -> bytes:
    """A zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def sized(data: bytes | None) -> bytes:
    """Bytes with their size in front."""
    return varint(-1) if data is None else varint(len(data)) + data


Headers = Sequence[tuple[bytes, bytes | None]]


def record(delta: int, value: bytes | None, key: bytes | None = None, headers: Headers = (), ms: int = 0) -> bytes:
    """One record of a batch."""
    body = b"\0" + varint(ms) + varint(delta) + sized(key) + sized(value) + varint(len(headers))
    body += b"".join(sized(name) + sized(held) for name, held in headers)
    return varint(len(body)) + body


NOW_MS = 1_700_000_000_000


def batch(
    records: bytes,
    count: int,
    *,
    attributes: int = 0,
    magic: int = 2,
    last_delta: int | None = None,
    base_ms: int = NOW_MS,
    max_ms: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    crc: int | None = None,
    length: int | None = None,
) -> bytes:
    """A record batch, from kafka.md 2.1; whatever is given stands in it, right or wrong."""
    delta = count - 1 if last_delta is None else last_delta
    top = base_ms if max_ms is None else max_ms
    tail = struct.pack(">hiqqqhii", attributes, delta, base_ms, top, *producer, count) + records
    told = google_crc32c.value(tail) if crc is None else crc
    size = len(tail) + 9 if length is None else length
    return struct.pack(">qiibI", 0, size, -1, magic, told) + tail


def one_batch(*values: bytes, **fields: Any) -> bytes:
    """A batch of these values."""
    return batch(b"".join(record(delta, value) for delta, value in enumerate(values)), len(values), **fields)


def produce(
    topic: str | UUID, data: bytes | None, *, acks: int = -1, partition: int = 0, transaction: str | None = None
) -> dict[str, Any]:
    """Fields of a ProduceRequest for one partition, of a topic by its name or, from version 13 on, by its id."""
    place = {"name": topic} if isinstance(topic, str) else {"topic_id": topic}
    rows = [{**place, "partition_data": [{"index": partition, "records": data}]}]
    return {"transactional_id": transaction, "acks": acks, "timeout_ms": 1000, "topic_data": rows}


def fetch(
    topic: str | UUID, offset: int = 0, *, partition: int = 0, wait_ms: int = 0, min_bytes: int = 1,
    max_bytes: int = 1 << 20, partition_bytes: int = 1 << 20, committed: int = 1, epoch: int = -1, **session: int,
) -> dict[str, Any]:  # fmt: skip
    """Fields of a FetchRequest for one partition."""
    place = {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}
    part = {
        "partition": partition,
        "fetch_offset": offset,
        "current_leader_epoch": epoch,
        "partition_max_bytes": partition_bytes,
    }
    named = {"session_id": 0, "session_epoch": -1, **session}
    return {
        "max_wait_ms": wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": committed,
        **named,
        "topics": [{**place, "partitions": [part]}],
    }
