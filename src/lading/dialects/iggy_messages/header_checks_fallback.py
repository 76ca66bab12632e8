"""Readable fallback of ``header_checks.py``."""

from __future__ import annotations

import struct

from . import limits
from .layout import HEADER_BYTES_MIN, STRING_KEY, VALUE_HEAD_BYTES

_U32 = struct.Struct("<I")
_KIND_AND_SIZE = struct.Struct("<BI")


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
