"""Headers written inside kernels, from columns of a Batch.

In bounds: Arrow's ends lie inside their data, and callers made ``out`` as large as all parts add up to.
"""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Ints, Kinds, Longs
from lading.kernels.memory import base, memcpy, store8, store32
from lading.kernels.signature import Data, int64, step

from . import limits
from .layout import FITS, KEY_SIZE, STRING_KEY, TYPED, TYPED_KEY, UNKNOWN_KIND, VALUE_HEAD_BYTES, VALUE_SIZE

_KEY_MAX, _VALUE_MAX, _KIND_MAX = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX


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
    """Write the headers from ``first`` to ``end``: why one does not fit, or FITS, and the position behind them.

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
