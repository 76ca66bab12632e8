"""Fetch on the server's side: the request, and the response around unchanged batches (kafka.md 3)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from .fields import INT32, INT64, NO_TAGS, ROWS_UNBOUNDED, Reader, count, raise_malformed, text
from .requests import RequestHeader
from .versions import FETCH, SERVED

FLEXIBLE: Final = SERVED[FETCH].flexible
_WITH_START, _WITH_SESSION, _WITH_EPOCH, _WITH_RACK, _WITH_LAST_EPOCH, _WITH_IDS, _WITHOUT_REPLICA = (
    5,
    7,
    9,
    11,
    12,
    13,
    15,
)
ID_BYTES: Final = 16

Bytes = bytes | bytearray | memoryview


class FetchPartition(NamedTuple):
    """The request for a partition; ``epoch`` is the leader epoch that the client knows, -1 for none."""

    partition: int
    offset: int
    epoch: int
    max_bytes: int


class FetchRequest(NamedTuple):
    """A Fetch. Topics are named by UTF-8 bytes or, with ``by_id``, by 16-byte ids."""

    correlation: int
    version: int
    wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session_id: int
    session_epoch: int
    by_id: bool
    topics: list[tuple[bytes, list[FetchPartition]]]


class FetchedPartition(NamedTuple):
    """The response for a partition: batches in ``parts``, ``size_bytes`` in all.

    ``aborted`` is (producer id, first offset) of transactions whose batches the reader leaves out.
    """

    partition: int
    error: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    first_offset: int = -1
    parts: Sequence[Bytes] = ()
    size_bytes: int = 0
    aborted: Sequence[tuple[int, int]] = ()


def _head_layout(version: int) -> struct.Struct:
    replica = "" if version >= _WITHOUT_REPLICA else "4x"
    return struct.Struct(f">{replica}iiib{'ii' if version >= _WITH_SESSION else ''}")


def _row_layout(version: int) -> struct.Struct:
    epoch = "i" if version >= _WITH_EPOCH else ""
    last_epoch = "4x" if version >= _WITH_LAST_EPOCH else ""
    start = "8x" if version >= _WITH_START else ""
    return struct.Struct(f">i{epoch}q{last_epoch}{start}i")


_VERSIONS: Final = range(SERVED[FETCH].low, SERVED[FETCH].high + 1)
_HEADS: Final = {version: _head_layout(version) for version in _VERSIONS}
"""Longest wait, smallest and largest number of bytes, isolation level, and the session's id and epoch."""
_ROWS: Final = {version: _row_layout(version) for version in _VERSIONS}
"""The row of a partition by version (number, epoch of its leader, offset, largest number of bytes)."""


@raise_malformed
def parse_fetch_request(frame: memoryview, head: RequestHeader, rows_max: int = ROWS_UNBOUNDED) -> FetchRequest:
    """Return the body of a Fetch of a served version; if a partition is listed again, its last row counts.

    Raises MalformedMessage if it is cut short, its lengths are wrong, or it has more than ``rows_max`` rows.
    """
    version = head.version
    flexible = version >= FLEXIBLE
    reader = Reader(frame, head.body_at, flexible, rows_max)
    wait_ms, min_bytes, max_bytes, isolation, *session = reader.numbers(_HEADS[version])
    session_id, session_epoch = session or (0, -1)
    by_id, with_epoch, row = version >= _WITH_IDS, version >= _WITH_EPOCH, _ROWS[version]
    topics: list[tuple[bytes, list[FetchPartition]]] = []
    has_repeated = False
    for _ in range(reader.count(2)):
        name = bytes(reader.take(ID_BYTES)) if by_id else reader.text() or b""
        partitions = []
        for _ in range(reader.count(row.size)):
            if with_epoch:
                number, epoch, offset, room = reader.numbers(row)
            else:
                (number, offset, room), epoch = reader.numbers(row), -1
            if flexible:
                reader.tags()
            partitions.append(FetchPartition(number, offset, epoch, room))
        reader.tags()
        topics.append((name, partitions))
        if len(partitions) > 1:
            has_repeated = has_repeated or len({row.partition for row in partitions}) < len(partitions)
    if has_repeated or (len(topics) > 1 and len({name for name, _ in topics}) < len(topics)):
        topics = _merge_repeated(topics)
    # the rest is not needed: topics that leave a session, the rack and tagged fields
    committed = isolation == 1
    return FetchRequest(
        head.correlation, version, wait_ms, min_bytes, max_bytes, committed, session_id, session_epoch, by_id, topics
    )


def _merge_repeated(topics: list[tuple[bytes, list[FetchPartition]]]) -> list[tuple[bytes, list[FetchPartition]]]:
    """Return each partition once, at its first place with its last row, as Apache Kafka does."""
    merged: dict[bytes, dict[int, FetchPartition]] = {}
    for name, partitions in topics:
        rows = merged.setdefault(name, {})
        for row in partitions:
            rows[row.partition] = row
    return [(name, list(rows.values())) for name, rows in merged.items()]


_PARTITION: Final = struct.Struct(">ihqq")
_ABORTED: Final = struct.Struct(">qq")
_NO_REPLICA: Final = INT32.pack(-1)


_PLAIN: Final = {False: struct.Struct(">ihqqqii"), True: struct.Struct(">ihqqqbi")}
"""A partition without aborted transactions, for versions with racks, by whether the version is flexible."""


def fetch_answer(
    request: FetchRequest,
    topics: Sequence[tuple[bytes, Sequence[FetchedPartition]]],
    error: int = 0,
    throttle_ms: int = 0,
) -> list[Bytes]:
    """Return the whole frame of a response, in pieces: the batches are not copied."""
    version = request.version
    flexible = version >= FLEXIBLE
    head: list[bytes] = [INT32.pack(request.correlation), NO_TAGS if flexible else b"", INT32.pack(throttle_ms)]
    if version >= _WITH_SESSION:
        head.append(struct.pack(">hi", error, 0))
    head.append(count(len(topics), flexible))
    pieces: list[Bytes] = []
    size_bytes = 0
    for name, partitions in topics:
        head += name if request.by_id else text(name, flexible), count(len(partitions), flexible)
        for one in partitions:
            head.append(_answer_row(version, one, request.committed))
            if one.size_bytes:
                piece = b"".join(head)
                head = []
                pieces.append(piece)
                pieces += one.parts
                size_bytes += len(piece) + one.size_bytes
            if flexible:
                head.append(NO_TAGS)
        if flexible:
            head.append(NO_TAGS)
    if flexible:
        head.append(NO_TAGS)
    last = b"".join(head)
    size_bytes += len(last)
    if pieces:
        pieces[0] = INT32.pack(size_bytes) + pieces[0]
        return [*pieces, last] if last else pieces
    return [INT32.pack(size_bytes) + last]


def _answer_row(version: int, one: FetchedPartition, committed: bool) -> bytes:
    """Return the response for a partition up to its batches; aborted transactions are null unless it was
    read committed.
    """
    flexible = version >= FLEXIBLE
    size = count(one.size_bytes, flexible)
    if not one.aborted and version >= _WITH_RACK:
        none = flexible if committed and not one.error else flexible - 1
        return _PLAIN[flexible].pack(*one[:5], none, -1) + size
    out = [_PARTITION.pack(one.partition, one.error, one.high_watermark, one.last_stable_offset)]
    if version >= _WITH_START:
        out.append(INT64.pack(one.first_offset))
    out.append(count(len(one.aborted), flexible))
    for producer_id, first in one.aborted:
        out.append(_ABORTED.pack(producer_id, first))
        if flexible:
            out.append(NO_TAGS)
    if version >= _WITH_RACK:
        out.append(_NO_REPLICA)
    out.append(size)
    return b"".join(out)
