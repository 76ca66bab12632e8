"""Readable fallbacks of ``cutting.py``: same results, whatever the generation of the messages."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from lading.kernels.arrays import Bytes, Longs

from .layout import BAD_POSITION, CUT, FINE, POSITION_MAX
from .scanning_fallback import ReadMessage

_U64 = struct.Struct("<Q")
CheckMessage = Callable[[memoryview, Any], bool]


def cut_messages(
    read: ReadMessage,
    region: Bytes,
    chunks: Longs,
    first: int,
    end: int,
    max_messages: int,
    max_bytes: int,
    parts: Longs,
) -> tuple[int, int, int, int, int]:
    """Find the byte ranges of messages with first <= offset < end: (parts, messages, last offset, reason, position).

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
            message = read(data, at, body_end)
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


def survey_messages(read: ReadMessage, region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Survey the messages in ``region[start:end]``, whose offsets have to rise.

    Returns (messages, first and last offset, lowest and highest timestamp, reason). If the bytes are not whole messages
    the count is -1 and the second number the position.
    """
    data = region.data
    at, last = start, -1
    count = first = low = high = 0
    while at < end:
        message = read(data, at, end)
        if message is None:
            return -1, at, last, low, high, CUT
        if not last < message.offset <= POSITION_MAX or message.timestamp_us > POSITION_MAX:
            return -1, at, last, low, high, BAD_POSITION
        if not count:
            first, low, high = message.offset, message.timestamp_us, message.timestamp_us
        low, high = min(low, message.timestamp_us), max(high, message.timestamp_us)
        last, count, at = message.offset, count + 1, message.end
    return count, first, last, low, high, FINE


def find_intact_messages(
    read: ReadMessage,
    is_sound: CheckMessage,
    is_unchanged: CheckMessage,
    offset_at: int,
    bytes_min: int,
    body: Bytes,
    base_offset: int,
    count: int,
    found: Longs,
    budget: int,
) -> int:
    """Fill ``found`` with offset, start and end of whole messages in a damaged body whose CRC-32 holds: how many.

    A message that follows the one before it must have the next offset, else its offset is damaged. If one
    does not parse or its checksum does not match, the search continues at the next byte at which a message with one of
    the following offsets begins. ``budget`` bounds the bytes that are checked in all.
    """
    data = body.data
    at = kept = 0
    expected = base_offset
    aligned = True
    while at + bytes_min <= body.size and expected < base_offset + count and 3 * kept < len(found):
        (offset,) = _U64.unpack_from(data, at + offset_at)
        likely = aligned or expected <= offset < base_offset + count
        message = read(data, at, body.size) if likely else None
        if message is not None and is_sound(data, message):
            budget -= message.end - at
            if budget < 0:
                return kept
            if is_unchanged(data, message):
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
