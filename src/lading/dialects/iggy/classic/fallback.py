"""Readable fallbacks of the kernels that make columns: same names, same arguments, same bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs

from ..messages.layout import BAD_POSITION, BAD_STATE, FINE, POSITION_MAX, UNTYPED
from ..messages.scanning_fallback import list_messages, open_body, scan_messages, write_buffers
from .layout import LIST_ENDS, PAYLOADS
from .stored_fallback import KNOWN_STATES, StoredMessage, read_stored

_OPEN = open_body(read_stored)


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
    """See ``scanning_fallback.scan_messages``."""
    span = (cursor, first, end, max_rows, max_bytes, wants)
    tables = (rows, starts, lengths, kinds, totals)
    return scan_messages(_OPEN, _judge, UNTYPED, region, chunks, *span, keys, key_ends, *tables)


def _judge(message: StoredMessage) -> int:
    if message.timestamp_us > POSITION_MAX:
        return BAD_POSITION
    return FINE if message.state in KNOWN_STATES else BAD_STATE


def fill(region: Bytes, rows: Longs, odd: int, memory: Bytes, places: Longs) -> None:
    """Write the columns of the messages at ``rows`` as Arrow buffers into ``memory``, each from its place.

    The sizes are those that ``scan`` counted, with 8 spare bytes after keys and values; a place of -1 is a buffer that
    was not requested. Header keys become text (names.key_text); ``odd`` = 0 promises that all of them are plain ASCII
    without a leading backslash.
    """
    headers, payloads = places[LIST_ENDS] >= 0, places[PAYLOADS] >= 0
    listed = list_messages(_OPEN, UNTYPED, region, rows, headers=headers, payloads=payloads)
    messages: list[StoredMessage] = list(listed.messages)
    # in the order of layout.OFFSETS and what follows
    buffers = (
        np.array([message.offset for message in messages], np.int64),
        np.array([message.state for message in messages], np.int8),
        np.array([message.timestamp_us for message in messages], np.int64),
        b"".join(message.id for message in messages),
        np.array([message.checksum for message in messages], np.uint32),
        *listed.buffers,
    )
    write_buffers(memory, places[: len(buffers)], buffers)
