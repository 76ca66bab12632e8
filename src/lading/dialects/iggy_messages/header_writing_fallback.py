"""Readable fallback of ``header_writing.py``."""

from __future__ import annotations

import struct

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs

from . import limits
from .layout import FITS, KEY_SIZE, STRING_KEY, TYPED_KEY, UNKNOWN_KIND, VALUE_SIZE

_U32 = struct.Struct("<I")
_KIND_AND_SIZE = struct.Struct("<BI")


def write_headers(
    out: bytearray,
    first: int,
    end: int,
    typed: int,
    key_ends: Ints,
    keys: Bytes,
    key_kinds: Kinds,
    kinds: Kinds,
    value_ends: Ints,
    values: Bytes,
    where: Longs,
) -> int:
    """Append the headers from ``first`` to ``end``: why one does not fit, or FITS; ``where[1]`` is left at it."""
    for header in range(first, end):
        where[1] = header
        key = keys[key_ends[header] : key_ends[header + 1]].tobytes()
        value = values[value_ends[header] : value_ends[header + 1]].tobytes()
        key_kind = int(key_kinds[header])
        if key_kind != STRING_KEY and not (typed and 1 <= key_kind <= limits.KIND_MAX):
            return TYPED_KEY
        if not 1 <= len(key) <= limits.KEY_BYTES_MAX:
            return KEY_SIZE
        if not 1 <= kinds[header] <= limits.KIND_MAX:
            return UNKNOWN_KIND
        if not 1 <= len(value) <= limits.VALUE_BYTES_MAX:
            return VALUE_SIZE
        out += bytes([key_kind] * typed) + _U32.pack(len(key)) + key
        out += _KIND_AND_SIZE.pack(kinds[header], len(value)) + value
    return FITS
