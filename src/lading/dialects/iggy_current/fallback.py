"""Readable twins of the kernels that make columns: same names, same arguments, same bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs
from lading.model.names import key_text

from ..iggy_messages.header_places import HeaderPlace, list_headers
from ..iggy_messages.layout import (
    ARROW_BYTES_MAX,
    BAD_HEADERS,
    BAD_KIND,
    BAD_POSITION,
    COUNT,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADER_COUNT,
    KEY_BYTES,
    ODD_KEYS,
    PAYLOAD_BYTES,
    POSITION_MAX,
    STORED_KIND_MAX,
    TOO_LARGE,
    TYPED,
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)
from ..iggy_messages.scanning_fallback import write_buffers
from .layout import (
    BATCH_HEAD_BYTES,
    LIST_ENDS,
    PAYLOADS,
)
from .stored_fallback import read_batch, read_frame


def scan(
    region: Bytes,
    chunks: Longs,
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
    kinds: NDArray[np.int8],
    totals: Longs,
) -> int:
    """Find the next messages with first <= offset < end and count what their columns will take; a reason or 0.

    Goes on at ``cursor`` (chunk, batch and frame, or -1) and leaves it behind the last row, or at the message it
    refuses. Fills ``rows`` with positions of frame and batch, ``starts``, ``lengths`` and ``kinds`` of shape (asked
    keys, rows) with the last value of each key in ``keys`` (kind, then bytes; ending at ``key_ends``), and ``totals``.
    Stops before ``max_rows`` or ``max_bytes`` are passed, but never before one row. Header blocks are looked into only
    when headers or keys are wanted.
    """
    data = region.data
    totals[:] = 0
    ends = [0, *key_ends.tolist()]
    asked = {keys[ends[k] : ends[k + 1]].tobytes(): k for k in range(len(key_ends))}
    want_headers = bool(wants & WANT_HEADERS)
    chunk, batch_at, at = (int(position) for position in cursor)
    reason = FINE
    full = False
    while chunk < len(chunks) and not full and not reason:
        body_end = int(chunks[chunk, 1])
        if batch_at < 0:
            skipped = chunks[chunk, 4] < first or chunks[chunk, 2] >= end
            batch_at = body_end if skipped else int(chunks[chunk, 0])
        if batch_at < 0 or body_end > region.size or body_end < batch_at:
            reason = CUT
            break
        while batch_at < body_end:
            batch = read_batch(data, batch_at, body_end)
            if batch is None:
                reason, at = CUT, batch_at
                break
            at = batch_at + BATCH_HEAD_BYTES if at < 0 else at
            while at < batch.end:
                count = int(totals[COUNT])
                if count == max_rows:
                    full = True
                    break
                frame = read_frame(data, at, batch.end)
                if frame is None:
                    reason = CUT
                    break
                offset = batch.base_offset + frame.offset_delta
                if offset <= POSITION_MAX and not first <= offset < end:
                    at = frame.end
                    continue
                if offset > POSITION_MAX or batch.base_time_us > POSITION_MAX:
                    reason = BAD_POSITION
                    break
                payload_size = frame.headers_at - frame.payload_at if wants & WANT_PAYLOAD else 0
                these_headers = these_keys = these_values = these_odd = 0
                if want_headers or asked:
                    starts[:, count], lengths[:, count], kinds[:, count] = 0, -1, 0
                    for place in list_headers(data, frame.headers_at, frame.end, TYPED):
                        if place is None:
                            reason = BAD_HEADERS
                            break
                        if place.kind > STORED_KIND_MAX or not place.key_kind:
                            reason = BAD_KIND
                            break
                        key = bytes(data[place.key_at : place.key_at + place.key_size])
                        if want_headers:
                            text = key_text(key, place.key_kind).encode()
                            these_headers += 1
                            these_keys += len(text)
                            these_values += place.value_size
                            these_odd |= text != key or not key.isascii()
                        index = asked.get(bytes((place.key_kind,)) + key)
                        if index is not None:
                            starts[index, count] = place.value_at
                            lengths[index, count] = place.value_size
                            kinds[index, count] = place.kind
                    if reason:
                        break
                cost = payload_size + these_keys + these_values + HEADER_BYTES_MIN * these_headers
                if cost > ARROW_BYTES_MAX:
                    reason = TOO_LARGE
                    break
                used = int(totals[KEY_BYTES] + totals[VALUE_BYTES] + totals[PAYLOAD_BYTES])
                if count and used + HEADER_BYTES_MIN * int(totals[HEADER_COUNT]) + cost > max_bytes:
                    full = True
                    break
                rows[count] = at, batch_at
                totals[COUNT] += 1
                totals[ODD_KEYS] |= these_odd
                totals[HEADER_COUNT] += these_headers
                totals[KEY_BYTES] += these_keys
                totals[VALUE_BYTES] += these_values
                totals[PAYLOAD_BYTES] += payload_size
                at = frame.end
            if reason or full:
                break
            batch_at, at = batch.end, -1
        if not reason and not full:
            chunk, batch_at, at = chunk + 1, -1, -1
    cursor[:] = chunk, batch_at, at
    totals[WHERE] = max(at, batch_at)
    return reason


def fill(region: Bytes, rows: Longs, odd: int, memory: Bytes, places: Longs) -> None:
    """Write the columns of the messages at ``rows`` as Arrow buffers into ``memory``, each from its place.

    The sizes are those that ``scan`` counted, with 8 spare bytes behind keys and values; a place of -1 is a buffer that
    nobody asked for. Header keys become text (names.key_text); ``odd`` = 0 promises that all of them are plain ASCII
    text without a leading backslash.
    """
    data = region.data
    keys, values, payloads, ids = bytearray(), bytearray(), bytearray(), bytearray()
    offsets, times, kinds = [], [], []
    list_ends, key_ends, value_ends, payload_ends = [0], [0], [0], [0]
    for at, batch_at in rows.tolist():
        batch, frame = read_batch(data, batch_at, region.size), read_frame(data, at, region.size)
        assert batch is not None, "scan found this batch"
        assert frame is not None, "scan found this row"
        offsets.append(batch.base_offset + frame.offset_delta)
        times.append(batch.base_time_us)
        ids += frame.id
        for place in list_headers(data, frame.headers_at, frame.end, TYPED) if places[LIST_ENDS] >= 0 else ():
            assert place is not None, "scan checked this block"
            keys += _text(data, place)
            values += data[place.value_at : place.value_at + place.value_size]
            kinds.append(place.kind)
            key_ends.append(len(keys))
            value_ends.append(len(values))
        list_ends.append(len(kinds))
        if places[PAYLOADS] >= 0:
            payloads += data[frame.payload_at : frame.headers_at]
            payload_ends.append(len(payloads))
    buffers = (
        np.array(offsets, np.int64),
        np.array(times, np.int64),
        ids,
        np.array(list_ends, np.int32),
        np.array(key_ends, np.int32),
        keys,
        np.array(kinds, np.int8),
        np.array(value_ends, np.int32),
        values,
        np.array(payload_ends, np.int32),
        payloads,
    )
    write_buffers(memory, places, buffers)


def _text(data: memoryview, place: HeaderPlace) -> bytes:
    return key_text(bytes(data[place.key_at : place.key_at + place.key_size]), place.key_kind).encode()
