"""Kernels that find, mark and rescue stored messages; ``stored_fallback.py`` says what each does."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Longs, Table
from lading.kernels.crc32 import crc32
from lading.kernels.memory import base, load8, load32, loadi64, store8
from lading.kernels.signature import (
    BYTES,
    CHUNKS,
    LONG,
    LONGS,
    OUT_BYTES,
    OUT_LONGS,
    OUT_TABLE,
    Data,
    inline,
    int64,
    kernel,
    several,
    step,
)
from lading.model.state import State

from ..messages.cutting import cut_messages, find_intact_messages, survey_messages
from ..messages.header_block import headers_add_up
from ..messages.layout import UNTYPED
from ..messages.scanning import MessageParts
from .layout import (
    CHECKSUM,
    HEADERS,
    HEADERS_LENGTH,
    OFFSET,
    STATE,
    STORED_BYTES_MIN,
    TIMESTAMP,
)

_KNOWN_STATES = sum(1 << code for code in State)
"""A bit for each; the highest is 30."""


@step
def find_message(data: Data, at: int, end: int) -> MessageParts:
    """Locate the parts of the message at ``at``, see ``messages.scanning``."""
    # in bounds: each length is read only if it lies before ``end``, which callers keep inside their array
    if end - at < STORED_BYTES_MIN:
        return -1, 0, 0, 0, 0, 0
    length_at = at + HEADERS + int64(load32(data, at + HEADERS_LENGTH))
    if length_at + 4 > end:
        return -1, 0, 0, 0, 0, 0
    payload_size = int64(load32(data, length_at))
    message_end = length_at + 4 + payload_size
    if message_end > end:
        return -1, 0, 0, 0, 0, 0
    return message_end, loadi64(data, at + OFFSET), at + HEADERS, length_at, length_at + 4, payload_size


@inline
def is_known_state(state: int) -> bool:
    """Whether a byte is the code of a state."""
    code = int64(state)
    return code < 64 and (_KNOWN_STATES >> code) & 1 == 1


@kernel(several(5)(BYTES, CHUNKS, *[LONG] * 4, OUT_TABLE))
def cut(
    region: Bytes, chunks: Table, first: int, end: int, max_messages: int, max_bytes: int, parts: Table
) -> tuple[int, int, int, int, int]:
    return cut_messages(find_message, region, chunks, first, end, max_messages, max_bytes, parts)


@kernel(several(6)(BYTES, LONG, LONG))
def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    return survey_messages(find_message, TIMESTAMP, region, start, end)


@kernel(LONG(OUT_BYTES, LONG, LONGS, LONGS, BYTES))
def set_states(array: Bytes, start: int, firsts: Longs, ends: Longs, states: Bytes) -> int:
    data, size = base(array), array.size
    changed = 0
    span = 0
    at = start
    while at < size:
        message_end, offset, _, _, _, _ = find_message(data, at, size)
        if message_end < 0:
            return -1 - at
        # in bounds: ``find_message`` found the whole message
        while span < ends.size and ends[span] <= offset:
            span += 1
        if span < ends.size and firsts[span] <= offset:
            store8(data, at + STATE, states[span])
            changed += 1
        at = message_end
    return changed


@step
def _is_sound(data: Data, at: int, message: MessageParts) -> bool:
    # in bounds: callers have found the whole message
    fields = is_known_state(load8(data, at + STATE)) and loadi64(data, at + TIMESTAMP) >= 0
    # messages never have an empty payload: zeros after the offset, left by a power cut, would read as one, CRC and all
    return fields and message[5] > 0 and headers_add_up(data, message[2], message[3], UNTYPED)


@step
def _is_unchanged(data: Data, at: int, message: MessageParts) -> bool:
    # in bounds: callers have found the whole message
    unchanged: bool = crc32(data, message[4], message[5]) == load32(data, at + CHECKSUM)
    return unchanged


@kernel(LONG(BYTES, LONG, LONG, OUT_LONGS, LONG))
def intact(body: Bytes, base_offset: int, count: int, found: Longs, budget: int) -> int:
    return find_intact_messages(
        find_message, _is_sound, _is_unchanged, OFFSET, STORED_BYTES_MIN, body, base_offset, count, found, budget
    )
