"""Kernels that find and rescue stored messages; ``stored_fallback.py`` says what each does."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.memory import load32, load64, loadi64
from lading.kernels.signature import (
    BYTES,
    CHUNKS,
    LONG,
    OUT_LONGS,
    OUT_TABLE,
    Data,
    int64,
    kernel,
    several,
    step,
)
from lading.kernels.xxh3 import xxh3_64

from ..messages.cutting import cut_messages, find_intact_messages, survey_messages
from ..messages.header_block import headers_add_up
from ..messages.layout import TYPED
from ..messages.scanning import MessageParts
from .layout import (
    CHECKSUM,
    HEAD_BYTES,
    HEADERS_LENGTH,
    OFFSET,
    PAYLOAD_LENGTH,
    STORED_BYTES_MIN,
    TIMESTAMP,
    UNHASHED_BYTES,
)


@step
def find_message(data: Data, at: int, end: int) -> MessageParts:
    """Locate the parts of the message at ``at``, see ``messages.scanning``."""
    # in bounds: each length is read only if it lies before ``end``, which callers keep inside their array
    if end - at < STORED_BYTES_MIN:
        return -1, 0, 0, 0, 0, 0
    payload_size = int64(load32(data, at + PAYLOAD_LENGTH))
    headers_at = at + HEAD_BYTES + payload_size
    message_end = headers_at + int64(load32(data, at + HEADERS_LENGTH))
    if message_end > end:
        return -1, 0, 0, 0, 0, 0
    return message_end, loadi64(data, at + OFFSET), headers_at, message_end, at + HEAD_BYTES, payload_size


@kernel(several(5)(BYTES, CHUNKS, *[LONG] * 4, OUT_TABLE))
def cut(
    region: Bytes, chunks: Table, first: int, end: int, max_messages: int, max_bytes: int, parts: Table
) -> tuple[int, int, int, int, int]:
    return cut_messages(find_message, region, chunks, first, end, max_messages, max_bytes, parts)


@kernel(several(6)(BYTES, LONG, LONG))
def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    return survey_messages(find_message, TIMESTAMP, region, start, end)


@step
def _is_sound(data: Data, at: int, message: MessageParts) -> bool:
    # in bounds: callers have found the whole message
    return loadi64(data, at + TIMESTAMP) >= 0 and headers_add_up(data, message[2], message[3], TYPED)


@step
def _is_unchanged(data: Data, at: int, message: MessageParts) -> bool:
    # in bounds: callers have found the whole message
    hashed = xxh3_64(data, at + UNHASHED_BYTES, message[0] - at - UNHASHED_BYTES)
    unchanged: bool = hashed == load64(data, at + CHECKSUM)
    return unchanged


@kernel(LONG(BYTES, LONG, LONG, OUT_LONGS, LONG))
def intact(body: Bytes, base_offset: int, count: int, found: Longs, budget: int) -> int:
    return find_intact_messages(
        find_message, _is_sound, _is_unchanged, OFFSET, STORED_BYTES_MIN, body, base_offset, count, found, budget
    )
