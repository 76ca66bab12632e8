"""Messages of the toy, as they are sent, stored and read: headers first.

A message is its size, then headers and payload; stored ones have offset and time before the headers. A header is the
size of its name, the name, its kind, the size of its value, the value.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from lading.model.batch import SCHEMA
from lading.model.errors import LimitExceeded, MalformedMessage
from lading.model.state import State

from . import limits

STORED: Final = struct.Struct("<IqqI")
"""Bytes that follow the size, offset, time in microseconds, CRC-32 of what follows."""
_SIZE: Final = struct.Struct("<I")
_COUNT: Final = struct.Struct("<H")
_HEADER: Final = struct.Struct("<BH")
"""Kind and size of the value."""

Header = tuple[str, int, bytes]


class ToyMessage(NamedTuple):
    """One stored message."""

    offset: int
    timestamp_us: int
    headers: Sequence[Header]
    payload: bytes


def pack_body(headers: Sequence[Header], payload: bytes) -> bytes:
    """Return headers and payload as they follow each other. LimitExceeded for a header that has no form."""
    parts = [_COUNT.pack(len(headers))]
    for name, kind, value in headers:
        data = name.encode()
        if value is None or not 1 <= len(data) <= limits.NAME_BYTES_MAX or len(value) > limits.VALUE_BYTES_MAX:
            raise LimitExceeded(f"header {name!r} has no form in the toy; a carrier has to hold it")
        parts += [bytes((len(data),)), data, _HEADER.pack(kind, len(value)), value]
    return b"".join((*parts, payload))


def parse_body(data: bytes) -> tuple[list[Header], bytes]:
    """Return headers and payload of a message; MalformedMessage for what is none."""
    try:
        (count,) = _COUNT.unpack_from(data)
        at = _COUNT.size
        headers = []
        for _ in range(count):
            name = data[at + 1 : at + 1 + data[at]]
            at += 1 + data[at]
            kind, size = _HEADER.unpack_from(data, at)
            at += _HEADER.size + size
            if at > len(data) or not name or not 1 <= kind <= limits.KIND_MAX:
                raise MalformedMessage("a header is not whole, or of no kind", at=at)
            headers.append((name.decode(), kind, data[at - size : at]))
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MalformedMessage(f"the headers are cut short: {error}") from None
    return headers, data[at:]


def split_sent(data: bytes) -> list[bytes]:
    """Return the bodies of sent messages; MalformedMessage if one is not whole."""
    bodies, at = [], 0
    while at < len(data):
        if at + _SIZE.size > len(data):
            raise MalformedMessage("a message is cut short", at=at)
        (size,) = _SIZE.unpack_from(data, at)
        body = data[at + _SIZE.size : at + _SIZE.size + size]
        if len(body) < size:
            raise MalformedMessage("a message is cut short", at=at)
        parse_body(body)
        bodies.append(body)
        at += _SIZE.size + size
    return bodies


def pack_sent(body: bytes) -> bytes:
    """Return a message as it is sent."""
    return _SIZE.pack(len(body)) + body


def pack_stored(offset: int, timestamp_us: int, body: bytes) -> bytes:
    """Return a message as it is stored and read."""
    return STORED.pack(len(body), offset, timestamp_us, zlib.crc32(body)) + body


def iter_stored(data: memoryview) -> Iterator[ToyMessage]:
    """Yield stored messages; MalformedMessage at what is none."""
    at = 0
    while at < len(data):
        try:
            size, offset, timestamp_us, checksum = STORED.unpack_from(data, at)
        except struct.error:
            raise MalformedMessage("a stored message is cut short", at=at) from None
        body = bytes(data[at + STORED.size : at + STORED.size + size])
        if len(body) < size or zlib.crc32(body) != checksum:
            raise MalformedMessage("a stored message is cut short or changed", at=at)
        yield ToyMessage(offset, timestamp_us, *parse_body(body))
        at += STORED.size + size


def to_batch(messages: Sequence[ToyMessage]) -> pa.RecordBatch:
    """Return the messages as a Batch."""
    nothing = [None] * len(messages)
    columns: dict[str, list[Any]] = {
        "offset": [message.offset for message in messages],
        "state": [int(State.AVAILABLE)] * len(messages),
        "timestamp": [message.timestamp_us for message in messages],
        "id": nothing,
        "checksum": nothing,
        "key": nothing,
        "headers": [
            [{"key": key, "kind": kind, "value": value} for key, kind, value in message.headers] for message in messages
        ],
        "payload": [message.payload for message in messages],
    }
    return pa.RecordBatch.from_arrays([pa.array(columns[one.name], one.type) for one in SCHEMA], schema=SCHEMA)


def bodies_of(batch: pa.RecordBatch) -> list[bytes]:
    """Return the bodies of a Batch's messages. LimitExceeded for what no message holds; a carrier has to."""
    bodies = []
    for row in batch.select(["headers", "payload"]).to_pylist():
        if row["payload"] is None:
            raise LimitExceeded("a message of the toy has a payload, also if it is empty")
        bodies.append(pack_body([(one["key"], one["kind"], one["value"]) for one in row["headers"]], row["payload"]))
    return bodies


def encode_stored(batch: pa.RecordBatch) -> bytes:
    """Return the messages of a Batch as they are stored, with its offsets and times."""
    offsets: list[Any] = batch.column("offset").to_pylist()
    times_us: list[Any] = batch.column("timestamp").cast(pa.int64()).to_pylist()
    rows = zip(offsets, times_us, bodies_of(batch), strict=True)
    return b"".join(pack_stored(offset, time_us, body) for offset, time_us, body in rows)
