"""Messages as Iggy 0.0.30 polled them: those of 0.0.40 without state and checksum (iggy.md A4)."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ....kernels import engine
from ....model.errors import MalformedMessage
from ....model.run import Run
from ....model.scan_request import MAX_OFFSET
from ....model.state import State
from ..messages.layout import ARROW_BYTES_MAX, COUNT, REASONS, SPARE_BYTES, TOTALS, WHERE
from . import fallback, layout
from .messages import KERNEL_MODULE, parse_polled_run

_HEAD: Final = struct.Struct("<QQ16sI")
"""Offset, timestamp, id, length of the headers."""
_STORED_HEAD: Final = struct.Struct("<QBQ16sII")
_U32: Final = struct.Struct("<I")


def complete(polled: bytes | bytearray | memoryview) -> bytearray:
    """Return polled messages of 0.0.30, without the count in front, as 0.0.40 has them; MalformedMessage.

    Each gets the state available and the CRC-32 of its payload: 0.0.30 sends neither.
    """
    data, out, at = memoryview(polled), bytearray(), 0
    while at < len(data):
        if at + _HEAD.size > len(data):
            raise MalformedMessage("the message is cut short", at=at)
        offset, time_us, id_, headers_size = _HEAD.unpack_from(data, at)
        headers_at = at + _HEAD.size
        length_at = headers_at + headers_size
        payload_at = length_at + _U32.size
        end = payload_at + _U32.unpack_from(data, length_at)[0] if payload_at <= len(data) else len(data) + 1
        if end > len(data):
            raise MalformedMessage("the message is cut short", at=at)
        checksum = zlib.crc32(data[payload_at:end])
        out += _STORED_HEAD.pack(offset, State.AVAILABLE, time_us, id_, checksum, headers_size)
        out += data[headers_at:end]
        at = end
    return out


def strip(polled: bytes) -> bytes:
    """Return polled messages of 0.0.40, without the count in front, as 0.0.30 has them; MalformedMessage."""
    starts = _locate(parse_polled_run(polled, 0))
    kept = np.ones(len(polled), np.bool_)
    kept[starts + layout.STATE] = False
    for byte in range(layout.CHECKSUM, layout.HEADERS_LENGTH):
        kept[starts + byte] = False
    return np.frombuffer(polled, np.uint8)[kept].tobytes()


def _locate(run: Run) -> NDArray[np.int64]:
    """Return the position of each message in the region of a Run of one chunk."""
    room = run.region.size // layout.STORED_BYTES_MIN + 1
    rows, totals = np.empty(room, np.int64), np.zeros(TOTALS, np.int64)
    no_keys = np.zeros(SPARE_BYTES, np.uint8), np.empty(0, np.int64)
    no_places = np.empty((0, room), np.int64), np.empty((0, room), np.int64), np.empty((0, room), np.int8)
    span = (np.array([0, -1, -1], np.int64), 0, MAX_OFFSET, room, ARROW_BYTES_MAX, 0)
    kernels = engine.select(KERNEL_MODULE, fallback, run.region.size)
    reason = kernels.scan(run.region, run.chunks, *span, *no_keys, rows, *no_places, totals)
    if reason:
        raise MalformedMessage(f"the message {REASONS[reason]}", at=int(totals[WHERE]))
    return rows[: int(totals[COUNT])]
