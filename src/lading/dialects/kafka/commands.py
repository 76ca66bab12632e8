"""Requests to a broker and its responses: own code for Fetch and Produce, ``kafka.protocol`` for the rare messages.

Fetch and Produce have fixed versions, which every broker from 2.4 on supports; other APIs use the highest version that
both sides know (kafka.md 3.1).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lading.model.errors import MalformedMessage

from .schemas import message
from .versions import FETCH as FETCH
from .versions import PRODUCE as PRODUCE
from .versions import SERVED

PRODUCE_VERSION: Final = 8
FETCH_VERSION: Final = 11
READ_COMMITTED: Final = 1
EARLIEST, LATEST = -2, -1
"""Timestamps of ListOffsets that mean the ends of a partition."""


KEYS: Final = {api.name: key for key, api in SERVED.items() if api.asked is not None}
"""APIs that are encoded by ``kafka.protocol``, by their names there."""


def _message_class(name: str, kind: str) -> Any:
    module = SERVED[KEYS[name]].module
    assert module is not None
    return message(module, name + kind)


def encode_library_request(name: str, version: int, correlation: int, client: str, **fields: Any) -> bytes:
    """Return a whole frame of one of KEYS.

    Field names are those of ``kafka.protocol``, rows of arrays are mappings.
    """
    layout = _message_class(name, "Request")
    request = layout(version=version, **_build_rows(layout, version, fields))
    request.with_header(correlation_id=correlation, client_id=client)
    return bytes(request.encode(header=True, framed=True))


def _build_rows(layout: Any, version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields with mappings converted to the row classes of ``kafka.protocol``."""

    def row(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        inner = layout.fields[name].data_class
        return inner(version=version, **_build_rows(inner, version, value))

    return {
        name: [row(name, each) for each in value] if isinstance(value, list) else value
        for name, value in fields.items()
    }


def parse_library_response(name: str, version: int, answer: memoryview) -> Any:
    """Return the response, from the correlation id on. Raises MalformedMessage if it is not one."""
    try:
        return _message_class(name, "Response").decode(bytes(answer), version=version, header=True)
    except Exception as error:
        raise MalformedMessage(f"the response to {name} cannot be read: {error or type(error).__name__}") from None


_HEAD: Final = struct.Struct(">hhih")
_FETCH: Final = struct.Struct(">iiiibii")
_FETCH_PARTITION: Final = struct.Struct(">iiqqi")
_FETCHED: Final = struct.Struct(">ihqqqi")
_ABORTED: Final = struct.Struct(">qq")


def _build_frame(key: int, version: int, correlation: int, client: str, *parts: bytes, more_bytes: int = 0) -> bytes:
    """Return a request, or its beginning if ``more_bytes`` follow."""
    name = client.encode()
    size = _HEAD.size + len(name) + sum(map(len, parts)) + more_bytes
    return b"".join((struct.pack(">i", size), _HEAD.pack(key, version, correlation, len(name)), name, *parts))


def _encode_text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def encode_fetch(
    correlation: int,
    client: str,
    topic: str,
    partition: int,
    offset: int,
    *,
    leader_epoch: int = -1,
    max_bytes: int,
    wait_ms: int,
) -> bytes:
    """Encode a Fetch of one partition, without a session, for committed messages only.

    It waits only while nothing can be read. A leader of another epoch than ``leader_epoch`` (-1: any) refuses it.
    """
    return _build_frame(
        FETCH,
        FETCH_VERSION,
        correlation,
        client,
        _FETCH.pack(-1, wait_ms, 1 if wait_ms else 0, max_bytes, READ_COMMITTED, 0, -1),
        struct.pack(">i", 1),
        _encode_text(topic),
        struct.pack(">i", 1),
        _FETCH_PARTITION.pack(partition, leader_epoch, offset, -1, max_bytes),
        struct.pack(">i", 0),
        _encode_text(""),
    )


def encode_watch(
    correlation: int, client: str, places: Mapping[tuple[str, int], int], *, max_bytes: int, wait_ms: int
) -> bytes:
    """Return a Fetch of many partitions, each from its offset; its response comes when any has messages."""
    topics: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in sorted(places.items()):
        topics.setdefault(topic, []).append((partition, offset))
    rows = []
    for topic, parts in topics.items():
        rows += [_encode_text(topic), struct.pack(">i", len(parts))]
        rows += [_FETCH_PARTITION.pack(partition, -1, offset, -1, max_bytes) for partition, offset in parts]
    ask = _FETCH.pack(-1, wait_ms, 1, max_bytes, READ_COMMITTED, 0, -1)
    end = (struct.pack(">i", 0), _encode_text(""))
    return _build_frame(FETCH, FETCH_VERSION, correlation, client, ask, struct.pack(">i", len(topics)), *rows, *end)


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """Response of a broker for one partition; the batches are ``answer[start:end]``.

    ``aborted`` is (producer id, first offset) of transactions whose messages are not visible.
    """

    error: int
    high_watermark: int
    last_stable_offset: int
    first_offset: int
    aborted: Sequence[tuple[int, int]]
    start: int
    end: int
    throttle_ms: int = 0
    """How long the broker leaves the connection unread, since a quota is exhausted; the response is empty then."""


class _Reader:
    """Takes fields from the front. Raises MalformedMessage if the bytes end before."""

    __slots__ = ("at", "data")

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at = data, at

    def take(self, layout: struct.Struct) -> tuple[Any, ...]:
        try:
            fields = layout.unpack_from(self.data, self.at)
        except struct.error:
            raise MalformedMessage("a response is truncated", at=self.at) from None
        self.at += layout.size
        return fields

    def number(self, layout: struct.Struct) -> int:
        found: int = self.take(layout)[0]
        return found

    def count(self, entry_bytes: int) -> int:
        """Read the number of entries of a list, 0 for null; each has at least ``entry_bytes``."""
        count = self.number(_INT32)
        if count > (len(self.data) - self.at) // entry_bytes:
            raise MalformedMessage(f"a response claims {count} entries", at=self.at)
        return max(count, 0)

    def text(self) -> str | None:
        size = self.number(_INT16)
        if size < 0:
            return None
        if size > len(self.data) - self.at:
            raise MalformedMessage(f"a response claims a text of {size} bytes", at=self.at)
        self.at += size
        return str(self.data[self.at - size : self.at], "utf-8", "replace")


_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
_CORRELATION_BYTES: Final = 4


def parse_fetch(answer: memoryview) -> FetchResponse:
    """Return the response to ``encode_fetch``, from the correlation id on; the batches themselves are not parsed."""
    reader = _Reader(answer, _CORRELATION_BYTES)
    throttle_ms = reader.number(_INT32)
    error, _ = reader.take(struct.Struct(">hi"))
    if error or not reader.count(6):
        return FetchResponse(error, -1, -1, -1, (), len(answer), len(answer), throttle_ms)
    reader.text()
    if not reader.count(_FETCHED.size):
        raise MalformedMessage("a response to Fetch has no partition", at=reader.at)
    _, error, high, stable, first, aborted_count = reader.take(_FETCHED)
    if aborted_count > (len(answer) - reader.at) // _ABORTED.size:
        raise MalformedMessage(f"a response claims {aborted_count} aborted transactions", at=reader.at)
    aborted: Any = [reader.take(_ABORTED) for _ in range(max(aborted_count, 0))]
    reader.number(_INT32)
    size = max(reader.number(_INT32), 0)
    if size > len(answer) - reader.at:
        raise MalformedMessage(f"a response claims {size} bytes of batches", at=reader.at)
    return FetchResponse(error, high, stable, first, aborted, reader.at, reader.at + size, throttle_ms)


def encode_produce(
    correlation: int,
    client: str,
    topic: str,
    partition: int,
    batch_bytes: int,
    *,
    timeout_ms: int,
    transactional_id: str | None = None,
) -> bytes:
    """Encode a Produce request up to its one batch of ``batch_bytes``; all in-sync replicas must acknowledge it."""
    return _build_frame(
        PRODUCE,
        PRODUCE_VERSION,
        correlation,
        client,
        struct.pack(">h", -1) if transactional_id is None else _encode_text(transactional_id),
        struct.pack(">hii", -1, timeout_ms, 1),
        _encode_text(topic),
        struct.pack(">iii", 1, partition, batch_bytes),
        more_bytes=batch_bytes,
    )


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    """Result of a batch; ``message`` is the broker's own, if it gave one."""

    error: int
    base_offset: int
    message: str | None
    throttle_ms: int = 0
    """How long the broker leaves the connection unread, since a quota is exhausted."""


_PRODUCED: Final = struct.Struct(">ihqqq")


def parse_produce(answer: memoryview) -> ProduceResponse:
    """Return the response to ``encode_produce``, from the correlation id on."""
    reader = _Reader(answer, _CORRELATION_BYTES)
    if not reader.count(6):
        raise MalformedMessage("a response to Produce has no topic", at=reader.at)
    reader.text()
    if not reader.count(_PRODUCED.size):
        raise MalformedMessage("a response to Produce has no partition", at=reader.at)
    _, error, base_offset, _, _ = reader.take(_PRODUCED)
    error_message = None
    for _ in range(reader.count(6)):
        reader.number(_INT32)
        error_message = reader.text() or error_message
    message = reader.text() or error_message
    return ProduceResponse(error, base_offset, message, reader.number(_INT32))


def read_fetch_throttle(answer: memoryview) -> int:
    """Return for how many milliseconds the broker leaves the connection unread, from a response to Fetch."""
    return _Reader(answer, _CORRELATION_BYTES).number(_INT32)
