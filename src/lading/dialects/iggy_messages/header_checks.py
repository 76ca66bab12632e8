"""Headers of a send request checked inside kernels, one at a time; ``header_checks_fallback.py`` needs no Numba.

In bounds: each length is read only if it lies before ``end``, and callers see to SPARE_BYTES behind the block, or
behind its last key if more than a value follows there.
"""

from __future__ import annotations

from lading.kernels.memory import load8, load32
from lading.kernels.signature import Data, int64, step
from lading.kernels.text import UTF8_BAD, ascii_only, utf8_check

from . import limits
from .header_block import key_kind_at
from .layout import HEADER_BYTES_MIN, STRING_KEY, VALUE_HEAD_BYTES

_OK, _MALFORMED = limits.OK, limits.MALFORMED
_BAD_KEY, _BAD_VALUE = limits.INVALID_HEADER_KEY, limits.INVALID_HEADER_VALUE
_KEY_MAX, _VALUE_MAX, _KIND_MAX = limits.KEY_BYTES_MAX, limits.VALUE_BYTES_MAX, limits.KIND_MAX


@step
def check_header(data: Data, at: int, end: int, typed: int) -> tuple[int, int, int]:
    """Check the header at ``at`` of a block: a status of ``limits``, bytes of its value, where the next one begins."""
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
