"""Messages whose bytes follow from their offset, so that a reader can tell a wrong one without remembering it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random

from lading.chunk.runs import runs
from lading.log.disk import Disk, RealDisk
from lading.log.interface import Span
from lading.log.partition import DiskPartitionLog, open_partition
from lading.model.chunk_table import BASE_OFFSET, BODY_END, BODY_START, LAST_OFFSET

TOPIC = bytes(range(16))
DIALECT = 2
NOW = 1_700_000_000_000_000
_FRAME = struct.Struct("<QI")


@cache
def message(offset: int, salt: int = 0) -> bytes:
    """The one message that belongs at ``offset``: its offset, its length and 0 to 300 bytes."""
    random = Random(offset * 1_000_003 + salt)
    data = random.randbytes(random.choice((0, 1, 17, 60, 300)))
    return _FRAME.pack(offset, len(data)) + data


def body(first: int, count: int, salt: int = 0) -> bytes:
    """Messages ``first`` to ``first + count``."""
    return b"".join(message(offset, salt) for offset in range(first, first + count))


def split(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(offset, bytes) of each message of a body; anything that is none raises."""
    at = 0
    while at < len(data):
        offset, length = _FRAME.unpack_from(data, at)
        yield offset, data[at : at + _FRAME.size + length]
        at += _FRAME.size + length


def opened(
    path: Path, disk: Disk | None = None, *, segment_bytes: int = 1 << 20, now_us: int = NOW
) -> DiskPartitionLog:
    """The partition in ``path``, with no transaction open."""
    log = open_partition(disk or RealDisk(), path, TOPIC, segment_bytes=segment_bytes, now_us=now_us)
    log.hold_last_stable_offset(None)
    return log


def add(log: DiskPartitionLog, count: int, *, now_us: int = NOW, flags: int = 0, salt: int = 0) -> int:
    """Append ``count`` messages; they are in the open chunk then."""
    first = log.next_offset
    return log.append(DIALECT, flags, body(first, count, salt), count, now_us, now_us + count - 1)


def messages_of(span: Span) -> dict[int, bytes]:
    """The messages of an undamaged span by offset; raises where chunks and messages do not agree."""
    found: dict[int, bytes] = {}
    assert not span.damaged
    for run in runs(span.region, span.start, span.end, verify=False):
        for row in run.chunks.tolist():
            data = run.region[row[BODY_START] : row[BODY_END]].tobytes()
            held = dict(split(data))
            assert list(held) == list(range(row[BASE_OFFSET], row[LAST_OFFSET] + 1))
            found |= held
    return found


def read_all(log: DiskPartitionLog, first: int = 0, max_bytes: int = 4096) -> dict[int, bytes]:
    """All messages that the log gives out, damaged chunks left out."""
    found: dict[int, bytes] = {}
    at = first
    while (span := log.read(at, max_bytes)) is not None:
        assert span.end_offset > at and span.base_offset < span.end_offset <= log.high_watermark
        if not span.damaged:
            found |= messages_of(span)
        at = span.end_offset
    return found
