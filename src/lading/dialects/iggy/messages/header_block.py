"""Header blocks inside kernels: measured, searched, copied, checked and written.

``header_block_fallback.py`` does the same without Numba. A header is ``[key length u32][key][kind u8][value length u32]
[value]``, with the kind of the key in front if keys are ``typed`` (layout.TYPED, else UNTYPED).

In bounds: each length is read only if it is before ``end``. Keys are loaded in whole words: callers provide SPARE_BYTES
after a block, or after its last key if keys have no kinds; ``…_at_edge`` does the same if these may be missing, with a
copy of the block. For ``check_header`` the bytes after the last key are enough if more than a value follows there.
Headers are written from a Batch: Arrow's ends are inside their data, and callers made ``out`` large enough for all
parts.
"""

from __future__ import annotations

import numpy as np

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.key_text import (
    SHORT_BYTES,
    copy_odd_text,
    copy_typed_text,
    copy_words,
    is_plain,
    measure_typed_text,
    odd_text_size,
    same,
)
from lading.kernels.memory import base, load8, load32, loadi64, memcpy, store8, store32, store64
from lading.kernels.signature import Data, inline, int64, routine, step
from lading.kernels.text import UTF8_BAD, ascii_only, utf8_check

from . import limits
from .layout import (
    BAD_HEADERS,
    BAD_KIND,
    FINE,
    FITS,
    HEADER_BYTES_MIN,
    KEY_SIZE,
    SPARE_BYTES,
    STORED_KIND_MAX,
    STRING_KEY,
    TYPED,
    TYPED_KEY,
    UNKNOWN_KIND,
    VALUE_HEAD_BYTES,
    VALUE_SIZE,
)

_OK, _MALFORMED = limits.OK, limits.MALFORMED
_BAD_KEY, _BAD_VALUE = limits.INVALID_HEADER_KEY, limits.INVALID_HEADER_VALUE
_KEY_MAX, _VALUE_MAX, _KIND_MAX = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX


@inline
def key_kind_at(data: Data, at: int, typed: int) -> int:
    """The kind of the key of the header at ``at``."""
    return int64(load8(data, at)) if typed == TYPED else STRING_KEY


@step
def measure_headers(data: Data, at: int, end: int, typed: int) -> tuple[int, int, int, int]:
    """Of a header block: (headers, key bytes as text, value bytes, whether some key is odd); -reason for headers."""
    count = 0
    keys = 0
    values = 0
    odd = 0
    while at < end:
        if end - at < HEADER_BYTES_MIN + typed:
            return -BAD_HEADERS, keys, values, odd
        key_kind = key_kind_at(data, at, typed)
        at += typed
        key_size = int64(load32(data, at))
        at += 4
        if end - at < key_size + VALUE_HEAD_BYTES:
            return -BAD_HEADERS, keys, values, odd
        if key_kind != STRING_KEY:
            keys += measure_typed_text(key_kind, key_size)
            odd = 1
        elif is_plain(data, at, key_size):
            keys += key_size
        else:
            keys += odd_text_size(data, at, key_size)
            odd = 1
        at += key_size
        kind = load8(data, at)
        value_size = int64(load32(data, at + 1))
        at += VALUE_HEAD_BYTES + value_size
        if at > end:
            return -BAD_HEADERS, keys, values, odd
        if kind > STORED_KIND_MAX or key_kind == 0:
            return -BAD_KIND, keys, values, odd
        values += value_size
        count += 1
    return count, keys, values, odd


@routine
def measure_headers_at_edge(data: Data, at: int, end: int, typed: int) -> tuple[int, int, int, int]:
    """``measure_headers`` of a block that SPARE_BYTES may not follow."""
    copy = np.empty(end - at + SPARE_BYTES, np.uint8)
    memcpy(base(copy), 0, data, at, end - at)
    measured = measure_headers(base(copy), 0, end - at, typed)
    # Numba frees an array after its last use: this one was used by its address
    copy[0] = 0
    return measured


@routine
def locate_headers(
    data: Data,
    at: int,
    end: int,
    typed: int,
    keys: Data,
    key_ends: Data,
    asked: int,
    starts: Data,
    lengths: Data,
    kinds: Data,
    room: int,
) -> int:
    """Write the position of the last value of each asked key; a reason or 0.

    An asked key has its kind in front if keys are ``typed``. ``starts``, ``lengths`` and ``kinds`` are addresses of one
    row; the next key's row is ``room`` further on.
    """
    for index in range(asked):
        store64(starts, 8 * index * room, 0)
        store64(lengths, 8 * index * room, -1)
        store8(kinds, index * room, 0)
    # headers mostly come in the order of the keys: each search begins after the last key found
    likely = int64(0)
    while at < end:
        if end - at < HEADER_BYTES_MIN + typed:
            return BAD_HEADERS
        key_kind = key_kind_at(data, at, typed)
        key_at = at + typed + 4
        key_size = int64(load32(data, at + typed))
        if end - key_at < key_size + VALUE_HEAD_BYTES:
            return BAD_HEADERS
        kind = load8(data, key_at + key_size)
        value_size = int64(load32(data, key_at + key_size + 1))
        value_at = key_at + key_size + VALUE_HEAD_BYTES
        at = value_at + value_size
        if at > end:
            return BAD_HEADERS
        if kind > STORED_KIND_MAX or key_kind == 0:
            return BAD_KIND
        for _ in range(asked):
            likely = likely if likely < asked else int64(0)
            key_end = loadi64(key_ends, 8 * likely)
            key = loadi64(key_ends, 8 * (likely - 1)) if likely > 0 else int64(0)
            likely += 1
            same_kind = typed != TYPED or int64(load8(keys, key)) == key_kind
            if key_end - key == key_size + typed and same_kind and same(data, key_at, keys, key + typed, key_size):
                store64(starts, 8 * (likely - 1) * room, value_at)
                store64(lengths, 8 * (likely - 1) * room, value_size)
                store8(kinds, (likely - 1) * room, kind)
                break
    return FINE


@routine
def locate_headers_at_edge(
    data: Data,
    at: int,
    end: int,
    typed: int,
    keys: Data,
    key_ends: Data,
    asked: int,
    starts: Data,
    lengths: Data,
    kinds: Data,
    room: int,
) -> int:
    """``locate_headers`` of a block that SPARE_BYTES may not follow."""
    copy = np.empty(end - at + SPARE_BYTES, np.uint8)
    memcpy(base(copy), 0, data, at, end - at)
    # positions stay those of the block
    moved = base(copy) - at
    reason = locate_headers(moved, at, end, typed, keys, key_ends, asked, starts, lengths, kinds, room)
    copy[0] = 0
    return reason


@step
def copy_headers(
    out: Data,
    key_ends: int,
    keys: int,
    kinds: int,
    value_ends: int,
    values: int,
    header: int,
    key: int,
    value: int,
    data: Data,
    at: int,
    end: int,
    typed: int,
    odd: int,
    spare: bool,
) -> tuple[int, int, int]:
    """Append a measured block to columns of headers in ``out``: how many headers, key and value bytes there are now.

    ``header``, ``key`` and ``value`` are how many were written before; ``odd`` is the result of ``measure_headers`` for
    all blocks. Without ``spare``, SPARE_BYTES after the block, values are copied byte by byte; columns need them
    anyway.
    """
    while at < end:
        key_kind = key_kind_at(data, at, typed)
        key_size = int64(load32(data, at + typed))
        at += typed + 4
        if odd and key_kind != STRING_KEY:
            key += copy_typed_text(out, keys + key, data, at, key_size, key_kind)
        elif odd:
            key += copy_odd_text(out, keys + key, data, at, key_size)
        else:
            copy_words(out, keys + key, data, at, key_size)
            key += key_size
        at += key_size
        store8(out, kinds + header, load8(data, at))
        value_size = int64(load32(data, at + 1))
        at += VALUE_HEAD_BYTES
        if spare and value_size <= SHORT_BYTES:
            copy_words(out, values + value, data, at, value_size)
        else:
            memcpy(out, values + value, data, at, value_size)
        at += value_size
        value += value_size
        header += 1
        store32(out, key_ends + 4 * header, key)
        store32(out, value_ends + 4 * header, value)
    return header, key, value


@routine
def copy_headers_at_edge(
    out: Data,
    key_ends: int,
    keys: int,
    kinds: int,
    value_ends: int,
    values: int,
    header: int,
    key: int,
    value: int,
    data: Data,
    at: int,
    end: int,
    typed: int,
    odd: int,
) -> tuple[int, int, int]:
    """``copy_headers`` of a block that SPARE_BYTES may not follow."""
    copy = np.empty(end - at + SPARE_BYTES, np.uint8)
    memcpy(base(copy), 0, data, at, end - at)
    to = (out, key_ends, keys, kinds, value_ends, values, header, key, value)
    counted = copy_headers(*to, base(copy), 0, end - at, typed, odd, True)
    copy[0] = 0
    return counted


@inline
def headers_add_up(data: Data, at: int, end: int, typed: int) -> bool:
    """Whether the lengths of a block end exactly at its end."""
    while at < end:
        if end - at < HEADER_BYTES_MIN + typed:
            return False
        at += 4 + typed + int64(load32(data, at + typed))
        if end - at < VALUE_HEAD_BYTES:
            return False
        at += VALUE_HEAD_BYTES + int64(load32(data, at + 1))
    return at == end


@step
def check_header(data: Data, at: int, end: int, typed: int) -> tuple[int, int, int]:
    """Check the header at ``at`` of a block: a status of ``limits``, bytes of its value, start of the next one."""
    if end - at < HEADER_BYTES_MIN + typed:
        return _MALFORMED, 0, at
    key_kind = key_kind_at(data, at, typed)
    if key_kind < 1 or key_kind > _KIND_MAX:
        return _MALFORMED, 0, at
    key_size = int64(load32(data, at + typed))
    if key_size < 1 or key_size > _KEY_MAX:
        return _BAD_KEY, 0, at
    key_at = at + typed + 4
    kind_at = key_at + key_size
    if end - kind_at < VALUE_HEAD_BYTES:
        return _MALFORMED, 0, at
    text = key_kind != STRING_KEY or ascii_only(data, key_at, key_size)
    if not text and utf8_check(data, key_at, key_size) == UTF8_BAD:
        return _BAD_KEY, 0, at
    kind = load8(data, kind_at)
    if kind < 1 or kind > _KIND_MAX:
        return _MALFORMED, 0, at
    value_size = int64(load32(data, kind_at + 1))
    if value_size < 1 or value_size > _VALUE_MAX:
        return _BAD_VALUE, 0, at
    if end - kind_at - VALUE_HEAD_BYTES < value_size:
        return _MALFORMED, 0, at
    return _OK, value_size, kind_at + VALUE_HEAD_BYTES + value_size


@step
def write_headers(
    out: Data,
    at: int,
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
) -> tuple[int, int]:
    """Write the headers from ``first`` to ``end``: why one does not fit, or FITS, and the position after them.

    ``where[1]`` is left at the header that does not fit.
    """
    key_data, value_data = base(keys), base(values)
    for header in range(first, end):
        where[1] = header
        key_at = int64(key_ends[header])
        key_size = int64(key_ends[header + 1]) - key_at
        value_at = int64(value_ends[header])
        value_size = int64(value_ends[header + 1]) - value_at
        kind = kinds[header]
        key_kind = key_kinds[header]
        if key_kind != STRING_KEY and (typed != TYPED or key_kind < 1 or key_kind > _KIND_MAX):
            return TYPED_KEY, at
        if key_size < 1 or key_size > _KEY_MAX:
            return KEY_SIZE, at
        if kind < 1 or kind > _KIND_MAX:
            return UNKNOWN_KIND, at
        if value_size < 1 or value_size > _VALUE_MAX:
            return VALUE_SIZE, at
        if typed == TYPED:
            store8(out, at, key_kind)
            at += 1
        store32(out, at, key_size)
        memcpy(out, at + 4, key_data, key_at, key_size)
        at += 4 + key_size
        store8(out, at, kind)
        store32(out, at + 1, value_size)
        memcpy(out, at + VALUE_HEAD_BYTES, value_data, value_at, value_size)
        at += VALUE_HEAD_BYTES + value_size
    return FITS, at
