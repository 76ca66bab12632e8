"""Records of ``states.log``: what was decided about offset ranges after they were written.

A record is ``length u32 · crc32c u32 (of what follows) · version u8 · kind u8 · state u8 · reserved u8 · first u64 ·
end u64 · timestamp_us u64``, little-endian; ``length`` counts all bytes after the crc field.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

import google_crc32c

from lading.model.errors import LimitExceeded
from lading.model.state import State

from ..model.lazy_dataclass import lazy_dataclass

_FRAME: Final = struct.Struct("<II")
_RECORD: Final = struct.Struct("<BBBBQQQ")
RECORD_BYTES: Final = _FRAME.size + _RECORD.size
VERSION: Final = 1
_POSITION_MAX: Final = (1 << 63) - 1


class RangeKind(IntEnum):
    """Kinds of ranges of offsets."""

    STATE = 1
    ABORTED = 2
    CONTROL = 3


_STATES: Final = {
    RangeKind.STATE: frozenset(int(state) for state in State),
    RangeKind.ABORTED: frozenset({0}),
    RangeKind.CONTROL: frozenset({0}),
}


@lazy_dataclass(frozen=True, slots=True)
class OverlayRecord:
    """Offsets ``first`` to ``end`` (exclusive): set to ``state`` (kind STATE), aborted or control records (state 0)."""

    kind: RangeKind
    state: int
    first: int
    end: int
    timestamp_us: int


def pack(record: OverlayRecord) -> bytes:
    """Encode one framed record of ``RECORD_BYTES``. Raises LimitExceeded for values that a record cannot hold."""
    if not _is_sound(record.kind, record.state, record.first, record.end, record.timestamp_us):
        raise LimitExceeded(f"the overlay cannot hold {record}")
    body = _RECORD.pack(VERSION, record.kind, record.state, 0, record.first, record.end, record.timestamp_us)
    return _FRAME.pack(len(body), google_crc32c.value(body)) + body


def unpack_all(data: bytes | bytearray | memoryview) -> tuple[list[OverlayRecord], int]:
    """Return the records at the start of ``data``, up to the first incomplete or invalid one, and their size in bytes.

    Bytes after the valid ones are a torn tail or damage: the caller decides. Never raises, whatever the bytes.
    """
    ranges: list[OverlayRecord] = []
    at = 0
    while len(data) - at >= RECORD_BYTES:
        length, crc = _FRAME.unpack_from(data, at)
        body = bytes(data[at + _FRAME.size : at + RECORD_BYTES])
        if length != _RECORD.size or google_crc32c.value(body) != crc:
            break
        version, kind, state, reserved, first, end, timestamp_us = _RECORD.unpack(body)
        if version != VERSION or reserved or not _is_sound(kind, state, first, end, timestamp_us):
            break
        ranges.append(OverlayRecord(RangeKind(kind), state, first, end, timestamp_us))
        at += RECORD_BYTES
    return ranges, at


def _is_sound(kind: int, state: int, first: int, end: int, timestamp_us: int) -> bool:
    known = state in _STATES.get(kind, ())  # type: ignore[call-overload]
    return bool(known) and 0 <= first < end <= _POSITION_MAX and 0 <= timestamp_us <= _POSITION_MAX
