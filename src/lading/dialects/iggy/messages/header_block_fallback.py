"""Header blocks without Numba: the readable form of ``header_block.py``, for fallbacks of kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs

from . import limits
from .layout import FITS, HEADER_BYTES_MIN, KEY_SIZE, STRING_KEY, TYPED_KEY, UNKNOWN_KIND, VALUE_HEAD_BYTES, VALUE_SIZE

_U32 = struct.Struct("<I")
_KIND_AND_SIZE = struct.Struct("<BI")


class HeaderPlace(NamedTuple):
    """One header inside a block: the positions of its key and value, and the kinds of both."""

    key_at: int
    key_size: int
    kind: int
    value_at: int
    value_size: int
    key_kind: int = STRING_KEY


def list_headers(data: memoryview, at: int, end: int, typed: int) -> Iterator[HeaderPlace | None]:
    """Yield the headers of the block ``data[at:end]`` in order; None as the last if its lengths do not add up."""
    while at < end:
        if end - at < HEADER_BYTES_MIN + typed:
            yield None
            return
        key_kind = data[at] if typed else STRING_KEY
        key_at = at + typed + _U32.size
        key_size = _U32.unpack_from(data, at + typed)[0]
        if end - key_at < key_size + VALUE_HEAD_BYTES:
            yield None
            return
        kind, value_size = _KIND_AND_SIZE.unpack_from(data, key_at + key_size)
        value_at = key_at + key_size + VALUE_HEAD_BYTES
        at = value_at + value_size
        if at > end:
            yield None
            return
        yield HeaderPlace(key_at, key_size, kind, value_at, value_size, key_kind)


class RefusedMessage(Exception):
    """A message breaks a rule; ``code`` is Iggy's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def check_header(data: memoryview, at: int, end: int, typed: int) -> tuple[bytes, int, int]:
    """Check the header at ``at`` of a block. Returns its key, the size of its value in bytes, and its end.

    The key has its kind in front if keys are typed. Raises RefusedMessage if the header breaks a rule.
    """
    if end - at < HEADER_BYTES_MIN + typed:
        raise RefusedMessage(limits.MALFORMED)
    key_kind = data[at] if typed else STRING_KEY
    if not 1 <= key_kind <= limits.KIND_MAX:
        raise RefusedMessage(limits.MALFORMED)
    (key_size,) = _U32.unpack_from(data, at + typed)
    if not 1 <= key_size <= limits.KEY_BYTES_MAX:
        raise RefusedMessage(limits.INVALID_HEADER_KEY)
    key_at = at + typed + _U32.size
    kind_at = key_at + key_size
    if end - kind_at < VALUE_HEAD_BYTES:
        raise RefusedMessage(limits.MALFORMED)
    key = bytes(data[key_at:kind_at])
    if key_kind == STRING_KEY and not _is_utf8(key):
        raise RefusedMessage(limits.INVALID_HEADER_KEY)
    kind, value_size = _KIND_AND_SIZE.unpack_from(data, kind_at)
    if not 1 <= kind <= limits.KIND_MAX:
        raise RefusedMessage(limits.MALFORMED)
    if not 1 <= value_size <= limits.VALUE_BYTES_MAX:
        raise RefusedMessage(limits.INVALID_HEADER_VALUE)
    if end - kind_at - VALUE_HEAD_BYTES < value_size:
        raise RefusedMessage(limits.MALFORMED)
    return bytes([key_kind] * typed) + key, value_size, kind_at + VALUE_HEAD_BYTES + value_size


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


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
