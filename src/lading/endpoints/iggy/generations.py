"""Which generation of Iggy a client speaks, by the first bytes of its connection.

Frames of the current one begin with a header whose first 48 bytes are zero (iggy-current.md B1); those of the classic
framing with a length of at least 4.
"""

from __future__ import annotations

import struct
from typing import Final

from ...dialects.iggy.current.headers import SIZE_AT
from ..base.responses import Bytes

NO_LENGTH: Final = 0
"""A frame length of 0, which no classic frame has: such a connection may be of the current generation."""
_U32 = struct.Struct("<I")
_ZEROS: Final = bytes(8)
"""The first eight bytes decide: in a classic frame they are its length, then a command, so not both are zero."""


def is_current(first: Bytes) -> bool | None:
    """Return whether a connection with these first bytes is of the current generation; None if they are too few."""
    if len(first) < len(_ZEROS):
        return None
    return first[: len(_ZEROS)] == _ZEROS


def frame_bytes_of(first: Bytes) -> int | None:
    """Return the length that a frame with these first bytes gives, by the framing of its generation; None if they are
    too few.
    """
    is_later = is_current(first)
    if is_later is None or (len(first) < SIZE_AT + _U32.size and is_later):
        return None
    size: int = _U32.unpack_from(first, SIZE_AT)[0] if is_later else _U32.size + _U32.unpack_from(first)[0]
    return size
