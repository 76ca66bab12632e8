"""The readable form of ``send_kernels.py``, function by function: the same arguments, the same bytes.

The columns of both functions are keys, payloads, headers and their values as Arrow has them: ends, bytes, and one byte
an entry that says whether it is there (0: null).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.kernels.varint_twin import store_varint

from .send_layout import RECORD_HEAD_BYTES_MAX

Bytes = NDArray[np.uint8]
Ends = NDArray[np.int32]
Longs = NDArray[np.int64]


def weigh(
    key_ends: Ends,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ends,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ends,
    name_ends: Ends,
    names: Bytes,
    value_ends: Ends,
    values: Bytes,
    value_valid: Bytes,
    sizes: Longs,
) -> None:
    """The most bytes that each message takes as a record, into ``sizes``."""
    columns = _Columns(
        (key_ends, keys, key_valid),
        (payload_ends, payloads, payload_valid),
        (list_ends, name_ends, names),
        (value_ends, values, value_valid),
    )
    for row in range(sizes.size):
        sizes[row] = len(columns.tail(row)) + RECORD_HEAD_BYTES_MAX


def write(
    key_ends: Ends,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ends,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ends,
    name_ends: Ends,
    names: Bytes,
    value_ends: Ends,
    values: Bytes,
    value_valid: Bytes,
    sizes: Longs,
    offsets: Longs,
    times_ms: Longs,
    low: int,
    high: int,
    target: Bytes,
    to: int,
) -> int:
    """Write messages ``low`` up to, not including, ``high`` as records at ``target[to:]``; where they end.

    ``sizes`` is what ``weigh`` gave. Offsets and times are written as their distance from those of ``low``.
    """
    columns = _Columns(
        (key_ends, keys, key_valid),
        (payload_ends, payloads, payload_valid),
        (list_ends, name_ends, names),
        (value_ends, values, value_valid),
    )
    for row in range(low, high):
        body = bytearray(1)
        store_varint(body, int(times_ms[row]) - int(times_ms[low]))
        store_varint(body, int(offsets[row]) - int(offsets[low]))
        body += columns.tail(row)
        record = bytearray()
        store_varint(record, len(body))
        record += body
        target[to : to + len(record)] = np.frombuffer(record, np.uint8)
        to += len(record)
    return to


class _Columns:
    """The parts of messages, by row."""

    def __init__(
        self,
        key: tuple[Ends, Bytes, Bytes],
        payload: tuple[Ends, Bytes, Bytes],
        names: tuple[Ends, Ends, Bytes],
        values: tuple[Ends, Bytes, Bytes],
    ) -> None:
        self._key, self._payload, self._names, self._values = key, payload, names, values

    def tail(self, row: int) -> bytearray:
        """A record from its key on."""
        out = bytearray()
        _put(out, *self._key, row)
        _put(out, *self._payload, row)
        list_ends, name_ends, names = self._names
        first, last = int(list_ends[row]), int(list_ends[row + 1])
        store_varint(out, last - first)
        for header in range(first, last):
            name = names[name_ends[header] : name_ends[header + 1]].tobytes()
            store_varint(out, len(name))
            out += name
            _put(out, *self._values, header)
        return out


def _put(out: bytearray, ends: Any, data: Any, valid: Any, row: int) -> None:
    if not valid[row]:
        store_varint(out, -1)
        return
    value = data[ends[row] : ends[row + 1]].tobytes()
    store_varint(out, len(value))
    out += value
