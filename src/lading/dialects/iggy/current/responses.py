"""Bodies of replies that are not those of a command: logins, sends, polls and result sections (iggy-current.md B3)."""

from __future__ import annotations

import struct
from typing import Final

from .codecs import NAME

_RESULT = struct.Struct("<III")
_PLACE = struct.Struct("<IIIIQ")
_LOGIN = struct.Struct("<IQI")
_CONTEXT = struct.Struct("<QQQ")
_SECTION = struct.Struct("<IIQI")
_SECTION_END = struct.Struct("<QI")
U32: Final = struct.Struct("<I")
POLLED: Final = struct.Struct("<IQI")
"""Head of polled batches: partition, its last offset, and how many messages."""

OK: Final = U32.pack(0)
"""A result section that says that all went well; a payload follows."""


def rejection(code: int) -> bytes:
    """Encode a result section that refuses with this error code."""
    return _RESULT.pack(1, 0, code)


def context_block(incarnation: int) -> bytes:
    """Encode the history of a partition: no owner of a group counts here, and no change of topics is waited for."""
    return _CONTEXT.pack(incarnation, 0, 0)


def section_block(
    partition: int, status: int, last_offset: int, messages_count: int, incarnation: int, next_offset: int, size: int
) -> bytes:
    """Encode a line of the table before fetched messages; ``size`` is how many bytes of them are this partition's."""
    head = _SECTION.pack(partition, status, last_offset, messages_count)
    return head + context_block(incarnation) + _SECTION_END.pack(next_offset, size)


def login_block(user_id: int, session: int, version: int, server: str) -> bytes:
    """Encode the response to a login."""
    return _LOGIN.pack(user_id, session, version) + NAME.write(server)


def place_block(stream: int, topic: int, partition: int, base_offset: int) -> bytes:
    """Encode the place of a send's one batch."""
    return _PLACE.pack(1, stream, topic, partition, base_offset)
