"""Positions of the headers of a block: the readable form of ``header_block.py``, for fallbacks of kernels."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from .layout import HEADER_BYTES_MIN, STRING_KEY, VALUE_HEAD_BYTES

_U32 = struct.Struct("<I")
_KIND_AND_SIZE = struct.Struct("<BI")


class HeaderPlace(NamedTuple):
    """One header inside a block: where its key and value lie, and the kinds of both."""

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
