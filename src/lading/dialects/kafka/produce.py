"""Produce on the server's side: the request parsed without copying batches, and its response (kafka.md 2.3, 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from .fields import INT16, INT32, NO_TAGS, Reader, count, raise_malformed, text
from .requests import LENGTH_BYTES, RequestHeader
from .versions import PRODUCE, SERVED

FLEXIBLE: Final = SERVED[PRODUCE].flexible
_WITH_TRANSACTIONAL_ID, _WITH_THROTTLE, _WITH_TIME, _WITH_START, _WITH_MESSAGES = 3, 1, 2, 5, 8
ABORTABLE_FROM, BEGINS_FROM, WITH_IDS = 11, 12, 13
"""From these versions on: TRANSACTION_ABORTABLE, transactions that are begun by a Produce, topics by id."""
ID_BYTES: Final = 16
PREFIX_AT: Final = 8
"""Position, after the correlation id, from which all requests of a producer for one partition begin with
the same bytes.
"""


class PartitionProduceData(NamedTuple):
    """Batches for one partition: ``size_bytes`` from ``start`` on (-1: null)."""

    partition: int
    start: int
    size_bytes: int


class ProduceRequest(NamedTuple):
    """A Produce; positions are those in the frame. ``prefix_end`` is the start of the first partition.

    Topics are named by UTF-8 bytes or, from version 13 on, by the 16 bytes of their ids.
    """

    acks: int
    transactional_id: bytes | None
    topics: list[tuple[bytes, list[PartitionProduceData]]]
    prefix_end: int


class Outcome(NamedTuple):
    """Result of the batches for one partition. Times are in ms, -1 if producers set them."""

    partition: int
    error: int
    base_offset: int = -1
    append_time_ms: int = -1
    first_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str]] = ()
    """Records for which the batch is refused: number within the batch, and error."""


@raise_malformed
def parse_produce_request(frame: memoryview, head: RequestHeader, rows_max: int) -> ProduceRequest:
    """Return the body of a Produce of any version.

    Raises MalformedMessage if it is cut short or its lengths are wrong, RowsExceeded if it has more than ``rows_max``
    topics and partitions.
    """
    reader = Reader(frame, head.body_at, head.version >= FLEXIBLE, rows_max)
    transactional_id = reader.text() if head.version >= _WITH_TRANSACTIONAL_ID else None
    acks = reader.number(INT16)
    reader.number(INT32)
    topics = []
    prefix_end = 0
    by_id = head.version >= WITH_IDS
    for _ in range(reader.count(3)):
        name = bytes(reader.take(ID_BYTES)) if by_id else reader.text() or b""
        partitions = []
        entries = reader.count(5)
        prefix_end = prefix_end or reader.at
        for _ in range(entries):
            index = reader.number(INT32)
            start, size_bytes = reader.data()
            reader.tags()
            partitions.append(PartitionProduceData(index, start, size_bytes))
        reader.tags()
        topics.append((name, partitions))
    reader.tags()
    return ProduceRequest(acks, transactional_id, topics, prefix_end)


class ResponseLayout(NamedTuple):
    """The parts of a response that do not depend on the outcomes: the bytes before each outcome, and after the last."""

    version: int
    around: tuple[bytes, ...]


def response_layout(version: int, topics: Sequence[tuple[bytes, int]]) -> ResponseLayout:
    """Return the layout of a response for topics by name and count of partitions, in their order."""
    flexible = version >= FLEXIBLE
    around: list[bytes] = []
    before = (NO_TAGS if flexible else b"") + count(len(topics), flexible)
    for name, partitions_count in topics:
        before += (name if version >= WITH_IDS else text(name, flexible)) + count(partitions_count, flexible)
        for _ in range(partitions_count):
            around.append(before)
            before = b""
        before += NO_TAGS if flexible else b""
    throttle = INT32.pack(0) if version >= _WITH_THROTTLE else b""
    return ResponseLayout(version, (*around, before + throttle + (NO_TAGS if flexible else b"")))


def encode_response(layout: ResponseLayout, correlation: int, outcomes: Sequence[Outcome]) -> bytes:
    """Return the whole frame of a response; ``outcomes`` are in the order of the request."""
    version, around = layout
    parts: list[bytes] = []
    for before, outcome in zip(around, outcomes, strict=False):
        parts += before, _encode_outcome(version, outcome)
    parts += around[-1:]
    body = b"".join(parts)
    return _CORRELATED.pack(LENGTH_BYTES + len(body), correlation) + body


def with_throttle(layout: ResponseLayout, frame: bytes, throttle_ms: int) -> bytes:
    """Return the frame of a response that has the client wait; unchanged if its version has no field for that."""
    if layout.version < _WITH_THROTTLE:
        return frame
    end = len(frame) - (len(NO_TAGS) if layout.version >= FLEXIBLE else 0)
    return frame[: end - INT32.size] + INT32.pack(throttle_ms) + frame[end:]


_CORRELATED: Final = struct.Struct(">ii")
_PLAIN: Final = struct.Struct(">ihq")
_TIMED: Final = struct.Struct(">ihqq")
_STARTED: Final = struct.Struct(">ihqqq")
_NO_MESSAGES: Final = {True: b"\1\0\0", False: b"\0\0\0\0\xff\xff"}


def _encode_outcome(version: int, outcome: Outcome) -> bytes:
    index, error, base_offset, time_ms, first_offset, message, record_errors = outcome
    if version < _WITH_TIME:
        return _PLAIN.pack(index, error, base_offset)
    if version < _WITH_START:
        return _TIMED.pack(index, error, base_offset, time_ms)
    row = _STARTED.pack(index, error, base_offset, time_ms, first_offset)
    if version < _WITH_MESSAGES:
        return row
    flexible = version >= FLEXIBLE
    if message is None:
        return row + _NO_MESSAGES[flexible]
    tags = NO_TAGS if flexible else b""
    rows = (INT32.pack(number) + text(why.encode(), flexible) + tags for number, why in record_errors)
    return row + count(len(record_errors), flexible) + b"".join(rows) + text(message.encode(), flexible) + tags
