"""Stored messages found, measured and rescued inside kernels, whatever their generation.

``find`` is as in ``scanning.py``; of a message that was found ``is_sound(data, at, message)`` says whether its fields
and the lengths of its headers are what they may be, and ``is_unchanged`` whether its checksum holds.
"""

from __future__ import annotations

from collections.abc import Callable

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.memory import base, loadi64
from lading.kernels.signature import Data, step
from lading.model import chunk_table

from .layout import BAD_POSITION, CUT, FINE
from .scanning import FindMessage, MessageParts

CheckMessage = Callable[[Data, int, MessageParts], bool]


@step
def cut_messages(
    find: FindMessage,
    region: Bytes,
    chunks: Table,
    first: int,
    end: int,
    max_messages: int,
    max_bytes: int,
    parts: Table,
) -> tuple[int, int, int, int, int]:
    """Do what ``cut`` of a dialect does, see its fallback."""
    data = base(region)
    part = 0
    count = 0
    size = 0
    last = -1
    for chunk in range(chunks.shape[0]):
        if part == parts.shape[0] or count >= max_messages:
            break
        low, high = chunks[chunk, chunk_table.BASE_OFFSET], chunks[chunk, chunk_table.LAST_OFFSET]
        held = chunks[chunk, chunk_table.COUNT]
        if high < first or low >= end:
            continue
        at = chunks[chunk, chunk_table.BODY_START]
        body_end = chunks[chunk, chunk_table.BODY_END]
        if at < 0 or body_end > region.size or body_end < at:
            return part, count, last, CUT, at
        # in bounds: the body is inside the region, and ``find`` reads no byte at or after its end
        start = at
        full = False
        whole = low >= first and high < end and count + held <= max_messages
        if whole and held > 0 and size + body_end - at <= max_bytes:
            size += body_end - at
            count += held
            last = high
            at = body_end
        while at < body_end:
            message_end, offset, _, _, _, _ = find(data, at, body_end)
            if message_end < 0:
                return part, count, last, CUT, at
            if 0 <= offset < first:
                at = message_end
                start = at
                continue
            if offset < 0 or offset >= end or count >= max_messages:
                full = True
                break
            if count > 0 and size + message_end - at > max_bytes:
                full = True
                break
            size += message_end - at
            count += 1
            last = offset
            at = message_end
        if at > start:
            parts[part, 0] = start
            parts[part, 1] = at
            part += 1
        if full:
            break
    return part, count, last, FINE, 0


@step
def survey_messages(
    find: FindMessage, timestamp_at: int, region: Bytes, start: int, end: int
) -> tuple[int, int, int, int, int, int]:
    """Do what ``survey`` of a dialect does; timestamps are ``timestamp_at`` bytes after the start of a message."""
    data = base(region)
    count = 0
    first = 0
    last = -1
    low = 0
    high = 0
    at = start
    while at < end:
        message_end, offset, _, _, _, _ = find(data, at, end)
        if message_end < 0:
            return -1, at, last, low, high, CUT
        # in bounds: ``find`` found the whole message
        timestamp = loadi64(data, at + timestamp_at)
        if offset <= last or timestamp < 0:
            return -1, at, last, low, high, BAD_POSITION
        if count == 0:
            first = offset
            low = timestamp
            high = timestamp
        low = min(low, timestamp)
        high = max(high, timestamp)
        last = offset
        count += 1
        at = message_end
    return count, first, last, low, high, FINE


@step
def find_intact_messages(
    find: FindMessage,
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
    """Do what ``intact`` of a dialect does; offsets are ``offset_at`` bytes after the start of a message."""
    data, body_size = base(body), body.size
    at = 0
    kept = 0
    expected = base_offset
    aligned = True
    while at + bytes_min <= body_size and expected < base_offset + count and 3 * kept < found.size:
        # in bounds: the loop sees to bytes_min, ``find`` to the whole message
        offset = loadi64(data, at + offset_at)
        message = (-1, 0, 0, 0, 0, 0)
        if aligned or expected <= offset < base_offset + count:
            message = find(data, at, body_size)
        if message[0] >= 0 and is_sound(data, at, message):
            end = message[0]
            budget -= end - at
            if budget < 0:
                return kept
            if is_unchanged(data, at, message):
                if offset == expected or not aligned:
                    found[3 * kept] = offset
                    found[3 * kept + 1] = at
                    found[3 * kept + 2] = end
                    kept += 1
                    expected = offset
                expected += 1
                at = end
                aligned = True
                continue
        aligned = False
        at += 1
    return kept
