"""Fetch for a client that knows the topic's id: a topic that was created again under the name is not read (KIP-516)."""

from __future__ import annotations

import struct
from typing import Final

from lading.model.errors import MalformedMessage

from .commands import FETCH, READ_COMMITTED, FetchResponse
from .fields import INT16, INT32, INT64, NO_TAGS, Reader, raise_malformed, uvarint
from .requests import HEAD

VERSION: Final = 13
ID_BYTES: Final = 16
_ASK: Final = struct.Struct(">iiiibii")
_PARTITION: Final = struct.Struct(">iiqiqi")
_ONE, _NONE = uvarint(2), uvarint(1)
"""Lengths of compact lists and texts."""


def encode_fetch_by_id(
    correlation: int,
    client: str,
    topic_id: bytes,
    partition: int,
    offset: int,
    *,
    leader_epoch: int,
    max_bytes: int,
    wait_ms: int,
) -> bytes:
    """Return the whole frame of a request like that of ``commands.encode_fetch``, for the topic with this id and no
    other.
    """
    name = client.encode()
    parts = (
        HEAD.pack(FETCH, VERSION, correlation, len(name)),
        name,
        NO_TAGS,
        _ASK.pack(-1, wait_ms, 1 if wait_ms else 0, max_bytes, READ_COMMITTED, 0, -1),
        _ONE,
        topic_id,
        _ONE,
        _PARTITION.pack(partition, leader_epoch, offset, -1, -1, max_bytes),
        NO_TAGS,
        NO_TAGS,
        _NONE,
        _NONE,
        NO_TAGS,
    )
    frame = b"".join(parts)
    return INT32.pack(len(frame)) + frame


@raise_malformed
def parse_fetch_by_id(answer: memoryview) -> FetchResponse:
    """Return the response, from the correlation id on, without parsing its batches. Raises MalformedMessage."""
    reader = Reader(answer, INT32.size, True)
    reader.tags()
    throttle_ms = reader.number(INT32)
    error = reader.number(INT16)
    reader.number(INT32)
    if error or not reader.count(ID_BYTES):
        return FetchResponse(error, -1, -1, -1, (), len(answer), len(answer), throttle_ms)
    reader.take(ID_BYTES)
    if not reader.count(1):
        raise MalformedMessage("a response to Fetch has no partition", at=reader.at)
    reader.number(INT32)
    error = reader.number(INT16)
    high, stable, first = reader.number(INT64), reader.number(INT64), reader.number(INT64)
    aborted = []
    for _ in range(reader.count(2 * INT64.size)):
        aborted.append((reader.number(INT64), reader.number(INT64)))
        reader.tags()
    reader.number(INT32)
    start, size = reader.data()
    return FetchResponse(error, high, stable, first, aborted, start, start + max(size, 0), throttle_ms)
