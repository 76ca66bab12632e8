"""The readable form of ``send_kernels.py``, function by function: the same arguments, the same bytes.

The columns are keys, payloads, headers and their values in Arrow's form: ends, bytes, and one byte an entry, 0 for
null. ``kinds`` are those of all headers; ``flags`` say of each message what its carrier holds (carrier/layout.py), 0
for those that have none.
"""

from __future__ import annotations

from typing import Any

import google_crc32c
import numpy as np

from lading.dialects.carrier.encoding import Entry, Facts, PayloadWas, Typed, encode, fingerprints, printable
from lading.dialects.carrier.layout import ENTRIES_FLAG, HEADERS_MAX, ID_BYTES, ID_FLAG, RAW, TIME_FLAG
from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.varint_fallback import store_varint
from lading.model.headers import Header

from .send_layout import CARRIER, ESCAPE, RECORD_HEAD_BYTES_MAX


def classify_messages(
    list_ends: Ints, name_ends: Ints, names: Bytes, kinds: Kinds, id_valid: Bytes, times_us: Longs, flags: Bytes
) -> int:
    """Write into ``flags`` which facts of each message need a carrier.

    Returns -1, or the first message that only ``carry`` can encode: one with very many headers, or with a name that
    needs an escape or is reserved.
    """
    for row in range(flags.size):
        first, last = int(list_ends[row]), int(list_ends[row + 1])
        told = [names[name_ends[at] : name_ends[at + 1]].tobytes() for at in range(first, last)]
        if len(told) > HEADERS_MAX or any(name.startswith((bytes((ESCAPE,)), CARRIER)) for name in told):
            return row
        typed = bool((kinds[first:last] != RAW).any())
        facts = {ID_FLAG: id_valid[row], TIME_FLAG: times_us[row] % 1000, ENTRIES_FLAG: typed}
        found = sum(flag for flag, lost in facts.items() if lost)
        # a time alone is cut, see targets.losses
        flags[row] = 0 if found == TIME_FLAG else found
    return -1


def weigh(
    key_ends: Ints,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    kinds: Kinds,
    flags: Bytes,
    sizes: Longs,
) -> None:
    """Write into ``sizes`` the most bytes that each message takes as a record."""
    columns = _Columns(
        key_ends, keys, key_valid, payload_ends, payloads, payload_valid, list_ends, name_ends, names,
        value_ends, values, value_valid, kinds,
    )  # fmt: skip
    nothing = np.zeros(ID_BYTES * sizes.size, np.uint8), np.zeros(sizes.size, np.int64)
    for row in range(sizes.size):
        sizes[row] = len(columns.tail(row, int(flags[row]), *nothing)) + RECORD_HEAD_BYTES_MAX


def write(
    key_ends: Ints,
    keys: Bytes,
    key_valid: Bytes,
    payload_ends: Ints,
    payloads: Bytes,
    payload_valid: Bytes,
    list_ends: Ints,
    name_ends: Ints,
    names: Bytes,
    value_ends: Ints,
    values: Bytes,
    value_valid: Bytes,
    kinds: Kinds,
    flags: Bytes,
    ids: Bytes,
    times_us: Longs,
    sizes: Longs,
    offsets: Longs,
    low: int,
    high: int,
    scratch: Bytes,
    target: Bytes,
    to: int,
) -> int:
    """Write messages ``low`` up to, not including, ``high`` as records at ``target[to:]``; return their end.

    ``sizes`` is the result of ``weigh``, ``scratch`` has room for the largest header. Offsets and times are written as
    their distance from those of ``low``, times cut to milliseconds.
    """
    columns = _Columns(
        key_ends, keys, key_valid, payload_ends, payloads, payload_valid, list_ends, name_ends, names,
        value_ends, values, value_valid, kinds,
    )  # fmt: skip
    for row in range(low, high):
        body = bytearray(1)
        store_varint(body, int(times_us[row]) // 1000 - int(times_us[low]) // 1000)
        store_varint(body, int(offsets[row]) - int(offsets[low]))
        body += columns.tail(row, int(flags[row]), ids, times_us)
        record = bytearray()
        store_varint(record, len(body))
        record += body
        target[to : to + len(record)] = np.frombuffer(record, np.uint8)
        to += len(record)
    return to


def checksum(data: Bytes, start: int, end: int) -> int:
    """Return the CRC-32C of ``data[start:end]``."""
    return int(google_crc32c.value(bytes(data[start:end])))


class _Columns:
    """The parts of messages, by row."""

    def __init__(
        self,
        key_ends: Ints,
        keys: Bytes,
        key_valid: Bytes,
        payload_ends: Ints,
        payloads: Bytes,
        payload_valid: Bytes,
        list_ends: Ints,
        name_ends: Ints,
        names: Bytes,
        value_ends: Ints,
        values: Bytes,
        value_valid: Bytes,
        kinds: Kinds,
    ) -> None:
        self._key = key_ends, keys, key_valid
        self._payload = payload_ends, payloads, payload_valid
        self._names = list_ends, name_ends, names
        self._values = value_ends, values, value_valid
        self._kinds = kinds

    def tail(self, row: int, flags: int, ids: Bytes, times_us: Longs) -> bytearray:
        """Return a record from its key on."""
        out = bytearray()
        _put(out, *self._key, row)
        _put(out, *self._payload, row)
        list_ends, name_ends, names = self._names
        first, last = int(list_ends[row]), int(list_ends[row + 1])
        store_varint(out, last - first + bool(flags))
        for header in range(first, last):
            name = names[name_ends[header] : name_ends[header + 1]].tobytes()
            store_varint(out, len(name))
            out += name
            _put(out, *self._values, header)
        if flags:
            id_ = ids[ID_BYTES * row : ID_BYTES * (row + 1)].tobytes() if flags & ID_FLAG else None
            time_us = int(times_us[row]) if flags & TIME_FLAG else None
            entries = self._list_entries(first, last) if flags & ENTRIES_FLAG else None
            data = printable(encode(Facts(None, PayloadWas.SHOWN, False, time_us, entries, id_)))
            for part in (CARRIER, data):
                store_varint(out, len(part))
                out += part
        return out

    def _list_entries(self, first: int, last: int) -> list[Entry]:
        _, name_ends, names = self._names
        ends, values, valid = self._values
        shown = [
            Header(
                names[name_ends[at] : name_ends[at + 1]].tobytes().decode(),
                RAW,
                values[ends[at] : ends[at + 1]].tobytes() if valid[at] else None,
            )
            for at in range(first, last)
        ]
        kinds = self._kinds[first:last].tolist()
        return [
            mark if kind == RAW else Typed(mark, kind) for mark, kind in zip(fingerprints(shown), kinds, strict=True)
        ]


def _put(out: bytearray, ends: Any, data: Any, valid: Any, row: int) -> None:
    if not valid[row]:
        store_varint(out, -1)
        return
    value = data[ends[row] : ends[row + 1]].tobytes()
    store_varint(out, len(value))
    out += value
