"""Readable fallbacks of ``scanning.py``: same results, whatever the generation of the messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs
from lading.model.names import key_text

from ....model.lazy_dataclass import lazy_dataclass
from .header_block_fallback import list_headers
from .layout import (
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
    VALUE_BYTES,
    WANT_HEADERS,
    WANT_PAYLOAD,
    WHERE,
)


class MessagePlaces(Protocol):
    """A message that was found: what the fallbacks of all generations ask of it."""

    @property
    def offset(self) -> int: ...

    @property
    def timestamp_us(self) -> int: ...

    @property
    def headers_at(self) -> int: ...

    @property
    def headers_end(self) -> int: ...

    @property
    def payload_at(self) -> int: ...

    @property
    def payload_end(self) -> int: ...

    @property
    def end(self) -> int: ...


ReadMessage = Callable[[memoryview, int, int], Any]
"""Gives MessagePlaces, or None."""
OpenBatch = Callable[[memoryview, int, int], tuple[int, int, ReadMessage] | None]
"""Returns start and end of the messages of the batch at a position, and a reader of them; None if it is not whole."""
JudgeMessage = Callable[[Any], int]


def open_body(read: ReadMessage) -> OpenBatch:
    """Return what takes a chunk's whole body for one batch, whose messages ``read`` reads."""
    return lambda data, at, end: (at, end, read)


def scan_messages(
    open_batch: OpenBatch,
    judge: JudgeMessage,
    typed: int,
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

    Continues at ``cursor`` (chunk, batch or -1, message or -1) and leaves it after the last row, or at the message it
    refuses. Fills ``rows`` with positions, ``starts``, ``lengths`` and ``kinds`` of shape (asked keys, rows) with the
    last value of each key in ``keys`` (ending at ``key_ends``; if keys are typed, its kind comes first), and
    ``totals``. Stops before ``max_rows`` or ``max_bytes`` are passed, but never before one row. Looks into header
    blocks only if headers or keys are wanted. ``rows`` of two columns take the position of the batch too.

    ``judge`` gives a reason to refuse a message, or FINE.
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
            batch = open_batch(data, batch_at, body_end)
            if batch is None:
                reason, at = CUT, batch_at
                break
            first_at, stop_at, read = batch
            at = first_at if at < 0 else at
            while at < stop_at:
                count = int(totals[COUNT])
                if count == max_rows:
                    full = True
                    break
                message = read(data, at, stop_at)
                if message is None:
                    reason = CUT
                    break
                if message.offset <= POSITION_MAX and not first <= message.offset < end:
                    at = message.end
                    continue
                reason = BAD_POSITION if message.offset > POSITION_MAX else judge(message)
                if reason:
                    break
                payload_size = message.payload_end - message.payload_at if wants & WANT_PAYLOAD else 0
                these_headers = these_keys = these_values = these_odd = 0
                if want_headers or asked:
                    starts[:, count], lengths[:, count], kinds[:, count] = 0, -1, 0
                    for place in list_headers(data, message.headers_at, message.headers_end, typed):
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
                        sought = bytes([place.key_kind] * typed) + key
                        if sought in asked:
                            index = asked[sought]
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
                rows[count] = at if rows.ndim == 1 else (at, batch_at)
                totals[COUNT] += 1
                totals[ODD_KEYS] |= these_odd
                totals[HEADER_COUNT] += these_headers
                totals[KEY_BYTES] += these_keys
                totals[VALUE_BYTES] += these_values
                totals[PAYLOAD_BYTES] += payload_size
                at = message.end
            if reason or full:
                break
            batch_at, at = stop_at, -1
        if not reason and not full:
            chunk, batch_at, at = chunk + 1, -1, -1
    cursor[:] = chunk, batch_at, at
    totals[WHERE] = max(at, batch_at)
    return reason


@lazy_dataclass(frozen=True, slots=True)
class ListedMessages:
    """Some messages, and their headers and payloads as Arrow has them."""

    messages: Sequence[Any]
    buffers: tuple[NDArray[Any] | bytes, ...]
    """Ends of header lists; ends of keys, keys, kinds, ends of values, values; ends of payloads, payloads. They follow
    the other columns in the layout of every generation."""


def list_messages(
    open_batch: OpenBatch, typed: int, region: Bytes, rows: Longs, *, headers: bool, payloads: bool
) -> ListedMessages:
    """Read the messages at ``rows``, with their headers and payloads if these are wanted."""
    data = region.data
    found: list[Any] = []
    keys, values, bodies = bytearray(), bytearray(), bytearray()
    kinds: list[int] = []
    list_ends, key_ends, value_ends, payload_ends = [0], [0], [0], [0]
    for row in rows.reshape(len(rows), -1).tolist():
        at, batch_at = row[0], row[-1]
        batch = open_batch(data, batch_at, region.size)
        assert batch is not None, "scan found this batch"
        _, stop_at, read = batch
        message = read(data, at, stop_at)
        assert message is not None, "scan found this row"
        found.append(message)
        for place in list_headers(data, message.headers_at, message.headers_end, typed) if headers else ():
            assert place is not None, "scan checked this block"
            key = bytes(data[place.key_at : place.key_at + place.key_size])
            keys += key_text(key, place.key_kind).encode()
            values += data[place.value_at : place.value_at + place.value_size]
            kinds.append(place.kind)
            key_ends.append(len(keys))
            value_ends.append(len(values))
        list_ends.append(len(kinds))
        if payloads:
            bodies += data[message.payload_at : message.payload_end]
            payload_ends.append(len(bodies))
    return ListedMessages(
        found,
        (
            np.array(list_ends, np.int32),
            np.array(key_ends, np.int32),
            bytes(keys),
            np.array(kinds, np.int8),
            np.array(value_ends, np.int32),
            bytes(values),
            np.array(payload_ends, np.int32),
            bytes(bodies),
        ),
    )


def write_buffers(memory: Bytes, places: Longs, buffers: Sequence[Any]) -> None:
    """Write each of ``buffers`` to its place in ``memory``, those of a place of -1 not at all."""
    for place_at, content in zip(places.tolist(), buffers, strict=True):
        if place_at >= 0:
            octets = np.frombuffer(content, np.uint8)
            memory[place_at : place_at + octets.size] = octets
