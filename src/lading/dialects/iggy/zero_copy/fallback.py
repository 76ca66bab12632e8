"""Readable fallbacks of the kernels that make columns: same names, same arguments, same bytes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lading.kernels.arrays import Bytes, Longs

from ..messages.layout import BAD_POSITION, FINE, POSITION_MAX, TYPED
from ..messages.scanning_fallback import list_messages, open_body, scan_messages, write_buffers
from .layout import LIST_ENDS, PAYLOADS
from .stored_fallback import ZeroCopyMessage, read_message

_OPEN = open_body(read_message)


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
    return scan_messages(_OPEN, _judge, TYPED, region, chunks, *span, keys, key_ends, *tables)


def _judge(message: ZeroCopyMessage) -> int:
    return BAD_POSITION if message.timestamp_us > POSITION_MAX else FINE


def fill(region: Bytes, rows: Longs, odd: int, memory: Bytes, places: Longs) -> None:
    """Write the columns of the messages at ``rows`` as Arrow buffers into ``memory``, see ``classic.fallback``."""
    headers, payloads = places[LIST_ENDS] >= 0, places[PAYLOADS] >= 0
    listed = list_messages(_OPEN, TYPED, region, rows, headers=headers, payloads=payloads)
    messages: list[ZeroCopyMessage] = list(listed.messages)
    # in the order of layout.OFFSETS and what follows
    buffers = (
        np.array([message.offset for message in messages], np.int64),
        np.array([message.timestamp_us for message in messages], np.int64),
        b"".join(message.id for message in messages),
        *listed.buffers,
    )
    write_buffers(memory, places[: len(buffers)], buffers)
