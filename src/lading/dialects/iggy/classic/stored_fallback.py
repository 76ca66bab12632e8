"""Readable fallbacks of ``stored_kernels.py``: same names, same arguments, same bytes; and the parts of a message."""

from __future__ import annotations

import struct
import zlib
from typing import NamedTuple

from lading.kernels.arrays import Bytes, Longs
from lading.model.state import State

from ..messages.cutting_fallback import cut_messages, find_intact_messages, survey_messages
from ..messages.header_block_fallback import list_headers
from ..messages.layout import POSITION_MAX, UNTYPED
from .layout import HEADERS, LENGTH_BYTES, OFFSET, STATE, STORED_BYTES_MIN

_HEAD = struct.Struct("<QBQ16sII")
_U32 = struct.Struct("<I")
KNOWN_STATES = frozenset(int(state) for state in State)
"""State bytes that mean one."""


class StoredMessage(NamedTuple):
    """One stored message: the fields of its head, and the positions of headers, payload and end."""

    offset: int
    state: int
    timestamp_us: int
    id: bytes
    checksum: int
    headers_at: int
    headers_end: int
    payload_at: int
    end: int

    @property
    def payload_end(self) -> int:
        """Return the position of the message's end."""
        return self.end


def read_stored(data: memoryview, at: int, end: int) -> StoredMessage | None:
    """Return the message at ``at``, or None if it does not end by ``end``."""
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


def cut(
    region: Bytes, chunks: Longs, first: int, end: int, max_messages: int, max_bytes: int, parts: Longs
) -> tuple[int, int, int, int, int]:
    """See ``cutting_fallback.cut_messages``."""
    return cut_messages(read_stored, region, chunks, first, end, max_messages, max_bytes, parts)


def survey(region: Bytes, start: int, end: int) -> tuple[int, int, int, int, int, int]:
    """See ``cutting_fallback.survey_messages``."""
    return survey_messages(read_stored, region, start, end)


def set_states(array: Bytes, start: int, firsts: Longs, ends: Longs, states: Bytes) -> int:
    """Write the state byte of every message from ``array[start:]`` whose offset lies in a range: how many.

    Ranges are disjoint and ascending, as are the offsets. Returns -1 - position if the bytes are not whole messages.
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
    """See ``cutting_fallback.find_intact_messages``."""
    span = (base_offset, count, found, budget)
    return find_intact_messages(read_stored, _is_sound, _is_unchanged, OFFSET, STORED_BYTES_MIN, body, *span)


def _is_sound(data: memoryview, message: StoredMessage) -> bool:
    if message.end == message.payload_at:
        # messages never have an empty payload: zeros after the offset, left by a power cut, would read as one, CRC and
        # all
        return False
    headers = list_headers(data, message.headers_at, message.headers_end, UNTYPED)
    return message.state in KNOWN_STATES and message.timestamp_us <= POSITION_MAX and None not in headers


def _is_unchanged(data: memoryview, message: StoredMessage) -> bool:
    return zlib.crc32(data[message.payload_at : message.end]) == message.checksum
