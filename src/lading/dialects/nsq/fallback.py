"""The readable form of ``kernels.py``: the same arguments and results, but every ext is left to ``ext.py``."""

from __future__ import annotations

from typing import Any, NamedTuple

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs

from . import layout
from .layout import EXT, HEAD_BYTES, RECORD_BYTES_MIN


class _Refused(Exception):
    """A refusal, for a reason of ``layout.REASONS``."""

    def __init__(self, reason: int) -> None:
        self.reason = reason


class _Record(NamedTuple):
    """The places of the parts of a record."""

    end: int
    ext: int
    ext_bytes: int
    body: int


def _record(data: Any, at: int, end: int) -> _Record:
    if end - at < RECORD_BYTES_MIN:
        raise _Refused(layout.CUT)
    stop = at + HEAD_BYTES + int.from_bytes(data[at : at + 4], "big")
    if stop - at < RECORD_BYTES_MIN:
        raise _Refused(layout.BAD_LENGTH)
    if stop > end:
        raise _Refused(layout.CUT)
    if data[at + layout.EXT_VERSION] == layout.NO_EXT:
        return _Record(stop, at + RECORD_BYTES_MIN, 0, at + RECORD_BYTES_MIN)
    if stop - at < EXT:
        raise _Refused(layout.BAD_EXT)
    size = int.from_bytes(data[at + RECORD_BYTES_MIN : at + EXT], "big")
    if at + EXT + size > stop:
        raise _Refused(layout.BAD_EXT)
    return _Record(stop, at + EXT, size, at + EXT + size)


def scan(
    region: Bytes,
    chunks: Longs,
    cursor: Longs,
    first: int,
    end: int,
    max_rows: int,
    max_bytes: int,
    want_headers: bool,
    want_payload: bool,
    headers_room: int,
    rows: Longs,
    headers: Longs,
    totals: Longs,
) -> int:
    """Note the positions of the parts of the next messages (``rows``) and their headers (``headers``; see layout).

    Continues at ``cursor``: chunk, position (-1: its beginning), messages passed in it. Stops before a message that
    would exceed ``max_rows``, or ``max_bytes`` of the requested parts. Returns a reason of layout.REASONS.
    """
    data = region.data
    chunk, at, index = cursor.tolist()
    count = odd = payload_bytes = used = 0
    reason, full = layout.FINE, False
    try:
        while chunk < len(chunks) and not full:
            start, stop, low, records, high = chunks[chunk, :5].tolist()
            if high < first or low >= end:
                chunk, at = chunk + 1, -1
                continue
            if at < 0:
                at, index = start, 0
            if at < 0 or stop > region.size or stop < at:
                raise _Refused(layout.CUT)
            if low < 0 or records < 0 or low > layout.POSITION_MAX - 1 - records:
                raise _Refused(layout.BAD_OFFSET)
            while at < stop:
                if index >= records:
                    raise _Refused(layout.BAD_COUNT)
                record = _record(data, at, stop)
                if low + index >= end:
                    at, index = stop, records
                    break
                if low + index >= first:
                    body_bytes = record.end - record.body
                    cost = body_bytes * bool(want_payload) + record.ext_bytes * bool(want_headers)
                    if cost > layout.ARROW_BYTES_MAX:
                        raise _Refused(layout.TOO_LARGE)
                    if count == max_rows or (count and used + cost > max_bytes):
                        full = True
                        break
                    version = data[at + layout.EXT_VERSION]
                    left = want_headers and version != layout.NO_EXT
                    time_ns = int.from_bytes(data[at + layout.TIMESTAMP : at + layout.ATTEMPTS], "big", signed=True)
                    parts = (at + layout.ID, record.body, body_bytes, record.ext, record.ext_bytes)
                    rows[count] = low + index, max(time_ns, 0) // 1000, *parts, -1 - version if left else 0
                    count += 1
                    odd += bool(left)
                    used += cost
                    payload_bytes += body_bytes * bool(want_payload)
                at, index = record.end, index + 1
            if not full:
                if index != records:
                    raise _Refused(layout.BAD_COUNT)
                chunk, at = chunk + 1, -1
    except _Refused as refused:
        reason = refused.reason
    cursor[:] = chunk, at, index
    totals[:] = count, 0, odd, payload_bytes, at
    return reason


def _value_of(region: Bytes, side: Bytes, header: list[int]) -> bytes | None:
    """Return the bytes of a header's value; as Python reads all exts here, every value is ``aside``."""
    at, size = header[layout.VALUE], header[layout.VALUE_BYTES]
    return None if size < 0 else side[at : at + size].tobytes()


def _name(side: Bytes, header: list[int]) -> bytes:
    return side[header[layout.NAME_AT] : header[layout.NAME_AT] + header[layout.NAME_BYTES]].tobytes()


def fill(region: Bytes, side: Bytes, rows: Longs, headers: Longs, memory: Bytes, places: Longs) -> None:
    """Write the Arrow buffers (layout.OFFSETS and the next ones) of the noted messages and headers."""
    data = region.data
    _put(memory, places[layout.OFFSETS], rows[:, layout.ROW_OFFSET])
    _put(memory, places[layout.TIMESTAMPS], rows[:, layout.ROW_TIME_US])
    ids = b"".join(bytes(data[at : at + 16]) for at in rows[:, layout.ROW_ID].tolist())
    _put(memory, places[layout.IDS], np.frombuffer(ids, np.uint8))
    if places[layout.LIST_ENDS] >= 0:
        _put(memory, places[layout.LIST_ENDS], _ends_of(rows[:, layout.ROW_HEADERS].tolist()))
        told = headers.tolist()
        names, values = [_name(side, header) for header in told], [_value_of(region, side, header) for header in told]
        _put(memory, places[layout.NAME_ENDS], _ends_of(map(len, names)))
        _put(memory, places[layout.NAMES], np.frombuffer(b"".join(names), np.uint8))
        _put(memory, places[layout.KINDS], headers[:, layout.KIND].astype(np.int8))
        # bits after the last value are set, as the kernel leaves them
        present = np.ones(-(-len(values) // 8) * 8, np.bool_)
        present[: len(values)] = [value is not None for value in values]
        _put(memory, places[layout.VALUE_VALID], np.packbits(present, bitorder="little"))
        _put(memory, places[layout.VALUE_ENDS], _ends_of(len(value or b"") for value in values))
        _put(memory, places[layout.VALUES], np.frombuffer(b"".join(value or b"" for value in values), np.uint8))
    if places[layout.PAYLOAD_ENDS] >= 0:
        spans = rows[:, [layout.ROW_BODY, layout.ROW_BODY_BYTES]].tolist()
        _put(memory, places[layout.PAYLOAD_ENDS], _ends_of(size for _, size in spans))
        bodies = b"".join(bytes(data[at : at + size]) for at, size in spans)
        _put(memory, places[layout.PAYLOADS], np.frombuffer(bodies, np.uint8))


def _ends_of(sizes: Any) -> NDArray[np.int32]:
    return np.cumsum([0, *sizes], dtype=np.int32)


def _put(memory: Bytes, place: Any, values: NDArray[Any]) -> None:
    if place >= 0:
        held = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        memory[place : place + held.size] = held


def locate(
    region: Bytes,
    side: Bytes,
    rows: Longs,
    headers: Longs,
    keys: Bytes,
    key_ends: Longs,
    starts: Longs,
    lengths: Longs,
    kinds: NDArray[np.int8],
    memory: Bytes,
) -> None:
    """Copy the last value of each requested header (``keys`` up to ``key_ends``) of each message into ``memory``.

    Its start and size (-1 absent, -2 null) go to ``starts`` and ``lengths``.
    """
    low = [0, *key_ends[:-1].tolist()]
    asked = {keys[one:other].tobytes(): at for at, (one, other) in enumerate(zip(low, key_ends.tolist(), strict=False))}
    count = len(rows)
    starts[:, :count], lengths[:, :count], kinds[:, :count] = 0, -1, 0
    told = iter(headers.tolist())
    used = 0
    for row, headers_count in enumerate(rows[:, layout.ROW_HEADERS].tolist()):
        for _ in range(headers_count):
            header = next(told)
            index = asked.get(_name(side, header))
            if index is None:
                continue
            value = _value_of(region, side, header)
            data = value or b""
            starts[index, row], kinds[index, row] = used, header[layout.KIND]
            lengths[index, row] = -2 if value is None else len(data)
            memory[used : used + len(data)] = np.frombuffer(data, np.uint8)
            used += len(data)


def survey(
    region: Bytes, chunks: Longs, cursor: Longs, first: int, end: int, offsets: Longs, starts: Longs, sizes: Longs
) -> tuple[int, int, int]:
    """List offsets and record positions of the next messages: (messages, reason, position); see ``scan``."""
    data = region.data
    chunk, at, index = cursor.tolist()
    count, reason = 0, layout.FINE
    try:
        while chunk < len(chunks) and count < len(offsets):
            start, stop, low, records, high = chunks[chunk, :5].tolist()
            if high < first or low >= end:
                chunk, at = chunk + 1, -1
                continue
            if at < 0:
                at, index = start, 0
            if at < 0 or stop > region.size or stop < at:
                raise _Refused(layout.CUT)
            while index < records and count < len(offsets) and low + index < end:
                record = _record(data, at, stop)
                if low + index >= first:
                    offsets[count], starts[count], sizes[count] = low + index, at, record.end - at
                    count += 1
                at, index = record.end, index + 1
            if count == len(offsets) and index < records and low + index < end:
                break
            chunk, at = chunk + 1, -1
    except _Refused as refused:
        reason = refused.reason
    cursor[:] = chunk, at, index
    return count, reason, at


def intact(region: Bytes, start: int, stop: int, low: int, records: int, found: Longs, budget: int) -> int:
    """List offset, start and end of a damaged chunk's messages whose CRC-32C matches, and return how many there are.

    After damage, only the message's own id shows its offset, which must be between that of the one before and the
    chunk's last.
    """
    data = region.data
    at, index, count, damaged = start, 0, 0, False
    while stop - at >= RECORD_BYTES_MIN and index < records and budget > 0 and count < len(found):
        budget -= 1
        try:
            record = _record(data, at, stop)
        except _Refused:
            record = None
        if record is not None:
            budget -= record.end - at
            crc = int.from_bytes(data[at + layout.CRC : at + HEAD_BYTES], "big")
            if google_crc32c.value(bytes(data[at + layout.TIMESTAMP : record.end])) == crc:
                if damaged:
                    id_ = int.from_bytes(data[at + layout.ID : at + layout.TRACE], "big")
                    told = (id_ & ((1 << layout.OFFSET_BITS) - 1)) - 1 - low
                    if not index <= told < records:
                        at = record.end
                        continue
                    index = told
                found[count] = low + index, at, record.end
                count, index, at = count + 1, index + 1, record.end
                continue
        damaged = True
        at += 1
    return count
