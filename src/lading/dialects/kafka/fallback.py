"""The readable form of ``kernels.py``, function by function: the same arguments, the same bytes."""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs
from lading.kernels.varint_fallback import add_wrapping, varint32, varint64
from lading.model.names import key_text

from . import layout
from .layout import BATCH_HEADER, BATCH_HEADER_BYTES, FRAME_BYTES, TIME_MS_MAX

HEADER_COST_BYTES = 9
"""Bytes that a header counts towards ``max_bytes`` besides its key and value."""


class _Refused(Exception):
    """A refusal, for a reason of ``layout.REASONS``."""

    def __init__(self, reason: int) -> None:
        self.reason = reason


def survey(
    region: Bytes, chunks: Longs, first: int, end: int, verify: bool, cursor: Longs, table: Longs
) -> tuple[int, int, int]:
    """Copy the headers of the batches with any offset of first <= offset < end into ``table``.

    Continues at ``cursor`` (chunk, position or -1) until the table is full; returns (batches, position, reason).
    ``verify``: whether CRCs are checked. The records are not read.
    """
    data = region.data
    found, reason = 0, layout.FINE
    chunk, at = cursor.tolist()
    try:
        while chunk < len(chunks) and found < len(table):
            start, body_end, low, _, high = chunks[chunk, :5].tolist()
            if at < 0:
                at = body_end if high < first or low >= end else start
            if not 0 <= at <= body_end <= region.size:
                raise _Refused(layout.CUT)
            while at < body_end and found < len(table):
                row = _read_batch(data, at, body_end, verify)
                if row[layout.LAST] >= first and row[layout.BASE] < end:
                    table[found] = (*row, chunk)
                    found += 1
                at = row[layout.END]
            if at >= body_end:
                chunk += 1
                if chunk < len(chunks):
                    at = -1
    except _Refused as refused:
        reason = refused.reason
    cursor[:] = chunk, at
    return found, at, reason


def _read_batch(data: Any, at: int, body_end: int, verify: bool) -> tuple[int, ...]:
    if body_end - at < BATCH_HEADER_BYTES:
        raise _Refused(layout.CUT)
    fields = BATCH_HEADER.unpack_from(data, at)
    base, length, _, magic, crc, attributes, delta, base_ms, max_ms, producer, _, _, count = fields
    stop = at + FRAME_BYTES + length
    if magic != layout.MAGIC:
        raise _Refused(layout.BAD_MAGIC)
    if length < BATCH_HEADER_BYTES - FRAME_BYTES or stop > body_end:
        raise _Refused(layout.CUT)
    if verify and google_crc32c.value(bytes(data[at + layout.ATTRIBUTES_AT : stop])) != crc:
        raise _Refused(layout.BAD_CRC)
    if base < 0 or delta < 0 or base > layout.POSITION_MAX - 1 - delta:
        raise _Refused(layout.BAD_POSITION)
    if not 0 <= count <= delta + 1:
        raise _Refused(layout.BAD_COUNT)
    return at, stop, base, count, base + delta, base_ms, max_ms, attributes & 0xFFFF, producer


def scan(
    region: Bytes,
    batches: Longs,
    cursor: Longs,
    first: int,
    end: int,
    max_rows: int,
    max_bytes: int,
    wants: int,
    keys: Bytes,
    key_ends: Longs,
    rows: Longs,
    starts: Longs,
    lengths: Longs,
    totals: Longs,
) -> int:
    """Note the positions of the parts of the next messages (``rows``, see layout.OFFSET and the next columns), and
    count.

    Continues at ``cursor``: batch, position (-1: its beginning), records passed in it, offset before. Stops before a
    message that would exceed ``max_rows``, or ``max_bytes`` of the requested parts. For every requested header
    (``keys`` up to ``key_ends``) the place of its last value goes to ``starts`` and ``lengths`` (-1 absent, -2 null).
    Returns a reason of layout.REASONS, with the position in ``totals``.
    """
    asked = [bytes(keys[low:high]) for low, high in zip([0, *key_ends[:-1].tolist()], key_ends.tolist(), strict=False)]
    scanner = _Scanner(region.data, wants, asked, rows.reshape(-1, layout.ROW_WORDS), starts, lengths)
    batch, at, done, before = cursor.tolist()
    reason, full = layout.FINE, False
    try:
        while batch < len(batches) and not full:
            start, stop, base, records, last, base_ms, max_ms, attributes, _, _ = batches[batch].tolist()
            append_us = _to_micros(max_ms) if attributes & layout.LOG_APPEND_TIME else None
            if at < 0:
                at, done, before = start, 0, base - 1
                if records > (stop - at) // layout.RECORD_BYTES_MIN:
                    raise _Refused(layout.BAD_COUNT)
            while done < records:
                if scanner.count == max_rows:
                    full = True
                    break
                here, record_end, ms_delta, offset = _record(region.data, at, stop, base)
                if not before < offset <= last:
                    raise _Refused(layout.BAD_POSITION)
                if offset >= end:
                    at, done = stop, records
                    break
                if offset >= first:
                    time_us = _to_micros(add_wrapping(base_ms, ms_delta)) if append_us is None else append_us
                    if not scanner.take(here, record_end, offset, time_us, max_bytes):
                        full = True
                        break
                at, before, done = record_end, offset, done + 1
            if not full:
                if at != stop:
                    raise _Refused(layout.BAD_COUNT)
                batch, at = batch + 1, -1
    except _Refused as refused:
        reason = refused.reason
    cursor[:] = batch, at, done, before
    scanner.report(totals)
    totals[layout.WHERE] = at
    return reason


def _record(data: Any, at: int, stop: int, base: int) -> tuple[int, int, int, int]:
    """Return the position of the key length of the record at ``at``, its end, its time delta and its offset."""
    length, here = varint32(data, at, stop)
    if here < 0 or not 0 <= length <= stop - here:
        raise _Refused(layout.CUT)
    record_end = here + length
    if length < layout.RECORD_BYTES_MIN - 1:
        raise _Refused(layout.BAD_RECORD)
    ms_delta, here = varint64(data, here + 1, record_end)
    delta, here = varint32(data, here, record_end) if here >= 0 else (0, -1)
    if here < 0:
        raise _Refused(layout.BAD_RECORD)
    return here, record_end, ms_delta, base + delta


class _Scanner:
    """The messages that ``scan`` has noted so far."""

    def __init__(self, data: Any, wants: int, asked: list[bytes], rows: Longs, starts: Longs, lengths: Longs) -> None:
        self._data = data
        self._wants = wants
        self._asked = {key: index for index, key in reversed(list(enumerate(asked)))}
        self._rows, self._starts, self._lengths = rows, starts, lengths
        self.count = self._headers = self._names = self._values = self._keys = self._payloads = 0
        self._odd = self._null_keys = self._null_values = self._null_payloads = 0

    def take(self, at: int, end: int, offset: int, time_us: int, max_bytes: int) -> bool:
        """Note one message; return False if it would exceed a limit."""
        data = self._data
        key_at, key_size, here = _read_sized(data, at, end, layout.BAD_RECORD)
        value_at, value_size, here = _read_sized(data, here, end, layout.BAD_RECORD)
        count, here = varint32(data, here, end)
        if here < 0 or not 0 <= count <= (end - here) // 2:
            raise _Refused(layout.BAD_HEADERS)
        headers_at = here
        headers = []
        want_headers = bool(self._wants & layout.WANT_HEADERS)
        if want_headers or self._asked:
            for _ in range(count):
                name_at, name_size, here = _read_sized(data, here, end, layout.BAD_HEADERS)
                if name_size < 0:
                    raise _Refused(layout.BAD_HEADERS)
                place, size, here = _read_sized(data, here, end, layout.BAD_HEADERS)
                headers.append((bytes(data[name_at : name_at + name_size]), place, size))
            if here != end:
                raise _Refused(layout.BAD_HEADERS)
        found = {self._asked[name]: (place, size) for name, place, size in headers if name in self._asked}
        for index in range(len(self._starts)):
            place, size = found.get(index, (0, -1))
            self._starts[index, self.count] = place
            self._lengths[index, self.count] = size if size >= 0 or index not in found else -2
        headers = headers if want_headers else []
        texts = [key_text(name).encode() for name, _, _ in headers]
        names = sum(map(len, texts))
        values = sum(max(size, 0) for _, _, size in headers)
        payload = max(value_size, 0) if self._wants & layout.WANT_PAYLOAD else 0
        key = max(key_size, 0) if self._wants & layout.WANT_KEY else 0
        cost = payload + key + names + values + HEADER_COST_BYTES * len(headers)
        if cost > layout.ARROW_BYTES_MAX:
            raise _Refused(layout.TOO_LARGE)
        used = self._names + self._values + self._keys + self._payloads + HEADER_COST_BYTES * self._headers
        if self.count and used + cost > max_bytes:
            return False
        self._rows[self.count] = offset, time_us, key_at, key_size, value_at, value_size, headers_at, count
        self.count += 1
        self._headers += len(headers)
        self._names += names
        self._values += values
        self._keys += key
        self._payloads += payload
        self._odd |= any(not name.isascii() or name.startswith(b"\\") for name, _, _ in headers)
        self._null_keys += bool(self._wants & layout.WANT_KEY and key_size < 0)
        self._null_values += sum(size < 0 for _, _, size in headers)
        self._null_payloads += bool(self._wants & layout.WANT_PAYLOAD and value_size < 0)
        return True

    def report(self, totals: Longs) -> None:
        """Write the counts into the totals."""
        totals[layout.TOTAL_COUNT] = self.count
        totals[layout.HEADER_COUNT] = self._headers
        totals[layout.NAME_BYTES] = self._names
        totals[layout.VALUE_BYTES] = self._values
        totals[layout.KEY_BYTES] = self._keys
        totals[layout.PAYLOAD_BYTES] = self._payloads
        totals[layout.ODD_NAMES] = self._odd
        totals[layout.NULL_KEYS] = self._null_keys
        totals[layout.NULL_VALUES] = self._null_values
        totals[layout.NULL_PAYLOADS] = self._null_payloads


def _read_sized(data: Any, at: int, end: int, reason: int) -> tuple[int, int, int]:
    """Read the size before some bytes. Returns their start, their size (-1: null) and their end."""
    size, here = varint32(data, at, end)
    if here < 0 or not -1 <= size <= end - here:
        raise _Refused(reason)
    return here, size, here + max(size, 0)


def _clamp_ms(ms: int) -> int:
    return min(max(ms, -TIME_MS_MAX), TIME_MS_MAX)


def _to_micros(ms: int) -> int:
    """Convert to microseconds since 1970; a time outside of a Batch's range becomes the nearest one inside."""
    return _clamp_ms(ms) * 1000


def fill(region: Bytes, rows: Longs, totals: Longs, memory: Bytes, places: Longs) -> None:
    """Write the Arrow buffers (layout.OFFSETS and the next ones) of the messages that ``scan`` noted in ``rows``."""
    data = region.data
    offsets, times, *parts = rows.T
    key_at, key_size, value_at, value_size, headers_at, headers_count = (part.tolist() for part in parts)
    _put(memory, places[layout.OFFSETS], offsets)
    _put(memory, places[layout.TIMESTAMPS], times)
    buffers = (places[layout.KEY_VALID], places[layout.KEY_ENDS], places[layout.KEYS])
    _write_column(memory, buffers, _cut_slices(data, key_at, key_size))
    buffers = (places[layout.PAYLOAD_VALID], places[layout.PAYLOAD_ENDS], places[layout.PAYLOADS])
    _write_column(memory, buffers, _cut_slices(data, value_at, value_size))
    if places[layout.LIST_ENDS] < 0:
        return
    names: list[bytes | None] = []
    values: list[bytes | None] = []
    for at, count in zip(headers_at, headers_count, strict=True):
        for _ in range(count):
            name_at, size, at = _read_sized(data, at, region.size, layout.BAD_HEADERS)
            names.append(key_text(bytes(data[name_at : name_at + size])).encode())
            place, size, at = _read_sized(data, at, region.size, layout.BAD_HEADERS)
            values += _cut_slices(data, [place], [size])
    _put(memory, places[layout.LIST_ENDS], np.cumsum([0, *headers_count], dtype=np.int32))
    _write_column(memory, (np.int64(-1), places[layout.NAME_ENDS], places[layout.NAMES]), names)
    _write_column(memory, (places[layout.VALUE_VALID], places[layout.VALUE_ENDS], places[layout.VALUES]), values)


def _cut_slices(data: Any, starts: list[int], sizes: list[int]) -> list[bytes | None]:
    return [bytes(data[at : at + size]) if size >= 0 else None for at, size in zip(starts, sizes, strict=True)]


def _write_column(memory: Bytes, places: tuple[Any, Any, Any], values: list[bytes | None]) -> None:
    """Write one binary column: validity bits, ends, bytes."""
    valid, ends, octets = places
    if ends < 0:
        return
    present = np.array([value is not None for value in values], np.bool_)
    # bits after the last value are set, as the kernel leaves them
    padded = np.ones(-(-len(values) // 8) * 8, np.bool_)
    padded[: len(values)] = present
    _put(memory, valid, np.packbits(padded, bitorder="little"))
    _put(memory, ends, np.cumsum([0, *(len(value or b"") for value in values)], dtype=np.int32))
    _put(memory, octets, np.frombuffer(b"".join(value or b"" for value in values), np.uint8))


def _put(memory: Bytes, place: Any, values: NDArray[Any]) -> None:
    if place >= 0:
        held = np.ascontiguousarray(values).view(np.uint8).reshape(-1)
        memory[place : place + held.size] = held
