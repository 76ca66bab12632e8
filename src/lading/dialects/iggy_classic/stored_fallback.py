"""Readable twins of ``stored_kernels.py``: same names, same arguments, same bytes; and where a message has what."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from lading.kernels.arrays import Bytes, Longs
from lading.model.state import State

from .layout import (
    BAD_POSITION,
    CUT,
    FINE,
    HEADER_BYTES_MIN,
    HEADERS,
    LENGTH_BYTES,
    POSITION_MAX,
    STATE,
    STORED_BYTES_MIN,
)

_HEAD = struct.Struct("<QBQ16sII")
_U32 = struct.Struct("<I")
_KIND_AND_SIZE = struct.Struct("<BI")
KNOWN_STATES = frozenset(int(state) for state in State)
"""State bytes that mean one."""


class StoredMessage(NamedTuple):
    """One stored message: the facts in front, and where headers, payload and end lie."""

    offset: int
    state: int
    timestamp_us: int
    id: bytes
    checksum: int
    headers_at: int
    length_at: int
    payload_at: int
    end: int


class HeaderPlace(NamedTuple):
    """One header inside a block: where its key and value lie, and its kind."""

    key_at: int
    key_size: int
    kind: int
    value_at: int
    value_size: int


def read_stored(data: memoryview, at: int, end: int) -> StoredMessage | None:
    """The message at ``at``, or None where it does not lie before ``end``."""
    if end - at < STORED_BYTES_MIN:
        return None
    offset, state, timestamp_us, id_, checksum, headers_size = _HEAD.unpack_from(data, at)
    length_at = at + HEADERS + headers_size
    if length_at + LENGTH_BYTES > end:
        return None
    payload_at = length_at + LENGTH_BYTES
    message_end = payload_at + _U32.unpack_from(data, length_at)[0]
    if message_end > end:
        return None
    return StoredMessage(offset, state, timestamp_us, id_, checksum, at + HEADERS, length_at, payload_at, message_end)


def headers(data: memoryview, at: int, end: int) -> Iterator[HeaderPlace | None]:
    """The headers of the block ``data[at:end]`` in order; None, and no more, where its lengths do not add up."""
    while at < end:
        if end - at < HEADER_BYTES_MIN:
            yield None
            return
        key_at = at + LENGTH_BYTES
        key_size = _U32.unpack_from(data, at)[0]
        if end - key_at < key_size + 5:
            yield None
            return
        kind, value_size = _KIND_AND_SIZE.unpack_from(data, key_at + key_size)
        value_at = key_at + key_size + 5
        at = value_at + value_size
        if at > end:
            yield None
            return
        yield HeaderPlace(key_at, key_size, kind, value_at, value_size)


def cut(
    region: Bytes, chunks: Longs, first: int, end: int, max_messages: int, max_bytes: int, parts: Longs
) -> tuple[int, int, int, int, int]:
    """The byte ranges of stored messages with first <= offset < end: (parts, messages, last offset, reason, where).

    At most ``max_messages``; stops before ``max_bytes`` are passed but never before one message, and when ``parts``
    (shape (n, 2), start and end) is full. A part lies in one chunk.
    """
    data = region.data
    part = count = size = 0
    last = -1
    for body_start, body_end, base, held, chunk_last in chunks[:, :5].tolist():
        if part == len(parts) or count >= max_messages:
            break
        if chunk_last < first or base >= end:
            continue
        if body_start < 0 or body_end > region.size or body_end < body_start:
            return part, count, last, CUT, body_start
        start = at = body_start
        full = False
        whole = base >= first and chunk_last < end and count + held <= max_messages
        if whole and held > 0 and size + body_end - at <= max_bytes:
            size, count, last, at = size + body_end - at, count + held, chunk_last, body_end
        while at < body_end:
            message = read_stored(data, at, body_end)
            if message is None:
                return part, count, last, CUT, at
            if message.offset < first:
                start = at = message.end
                continue
            too_large = count > 0 and size + message.end - at > max_bytes
            if message.offset > POSITION_MAX or message.offset >= end or count >= max_messages or too_large:
                full = True
                break
            size += message.end - at
            count += 1
            last = message.offset
            at = message.end
        if at > start:
            parts[part] = start, at
            part += 1
        if full:
            break
    return part, count, last, FINE, 0


def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    """What lies in ``region[start:end]``: (messages, first and last offset, lowest and highest timestamp, reason).

    Offsets have to rise. Where the bytes are not whole messages the count is -1 and the second number the position.
    """
    data = region.data
    at, last = start, -1
    count = first = low = high = 0
    while at < end:
        message = read_stored(data, at, end)
        if message is None:
            return -1, at, last, low, high, CUT
        if not last < message.offset <= POSITION_MAX or message.timestamp_us > POSITION_MAX:
            return -1, at, last, low, high, BAD_POSITION
        if not count:
            first, low, high = message.offset, message.timestamp_us, message.timestamp_us
        low, high = min(low, message.timestamp_us), max(high, message.timestamp_us)
        last, count, at = message.offset, count + 1, message.end
    return count, first, last, low, high, FINE


def set_states(array: Bytes, start: int, firsts: Longs, ends: Longs, states: Bytes) -> int:
    """Write the state byte of every message from ``array[start:]`` whose offset lies in a range: how many.

    Ranges are disjoint and rise, and so do the offsets. -1 - position where the bytes are not whole messages.
    """
    at, span, changed = start, 0, 0
    while at < array.size:
        message = read_stored(array.data, at, array.size)
        if message is None:
            return -1 - at
        known = message.offset <= POSITION_MAX
        while known and span < len(ends) and ends[span] <= message.offset:
            span += 1
        if known and span < len(ends) and firsts[span] <= message.offset:
            array[at + STATE] = states[span]
            changed += 1
        at = message.end
    return changed


def intact(body: Bytes, base_offset: int, count: int, found: Longs, budget: int) -> int:
    """Fill ``found`` with offset, start and end of whole messages in a damaged body whose CRC-32 holds: how many.

    A message that follows the one before it must have the next offset, else its offset is what is damaged. Where one
    does not parse or its checksum does not match, the search goes on at the next byte at which a message with one of
    the following offsets begins. ``budget`` bounds the bytes that are checked in all.
    """
    data = body.data
    at = kept = 0
    expected = base_offset
    aligned = True
    while at + STORED_BYTES_MIN <= body.size and expected < base_offset + count and 3 * kept < len(found):
        offset, state = struct.unpack_from("<QB", data, at)
        likely = aligned or expected <= offset < base_offset + count
        message = read_stored(data, at, body.size) if likely and state in KNOWN_STATES else None
        if (
            message is not None
            and message.timestamp_us <= POSITION_MAX
            and None not in headers(data, message.headers_at, message.length_at)
        ):
            budget -= message.end - at
            if budget < 0:
                return kept
            if zlib.crc32(data[message.payload_at : message.end]) == message.checksum:
                if offset == expected or not aligned:
                    found[3 * kept : 3 * kept + 3] = offset, at, message.end
                    kept += 1
                    expected = offset
                expected += 1
                at = message.end
                aligned = True
                continue
        aligned = False
        at += 1
    return kept
