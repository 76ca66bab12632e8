"""Which release a client is of whose login leaves that open: the forms of its requests differ.

Clients in languages other than Rust leave the version of their login empty, and a login by token has none.
"""

from __future__ import annotations

import struct
from typing import Final

from ...dialects.iggy.classic.releases import MessageForm, Release
from ...dialects.iggy.zero_copy.layout import (
    HEADERS_LENGTH,
    INDEX_BYTES,
    INDEX_END,
    PAYLOAD_LENGTH,
    SHORT_HEAD_BYTES,
)
from .send import SEND

_U32: Final = struct.Struct("<I")
_CLASSIC: Final = frozenset({MessageForm.HEADERS_ONLY, MessageForm.CLASSIC})
_SHORT: Final = frozenset({MessageForm.ZERO_COPY_CRC_32, MessageForm.ZERO_COPY_56})
_LONG: Final = frozenset({MessageForm.ZERO_COPY_64})


def narrow(releases: tuple[Release, ...], code: int, payload: memoryview) -> tuple[Release, ...]:
    """Return those of ``releases`` whose clients write such a request; all of them if none does."""
    if code == SEND:
        forms = _forms_of_send(payload)
        left = tuple(one for one in releases if one.form in forms)
    else:
        left = tuple(one for one in releases if one.commands.fits(code, payload))
    return left or releases


def _forms_of_send(payload: memoryview) -> frozenset[MessageForm]:
    """Return the forms in which the messages of a send may lie; all that it may be is said by its first message.

    A classic send begins with the kind and the length of an identifier. A zero-copy send begins with the length of what
    is in front of its index, whose two upper bytes are 0; an identifier with them would be a name of two NULs.
    """
    if len(payload) < _U32.size or payload[2] or payload[3]:
        return _CLASSIC
    index_at = _U32.size + _U32.unpack_from(payload)[0]
    if index_at < 2 * _U32.size or index_at > len(payload):
        return _CLASSIC
    (count,) = _U32.unpack_from(payload, index_at - _U32.size)
    first = index_at + INDEX_BYTES * count
    if not count or first + SHORT_HEAD_BYTES > len(payload):
        return _SHORT | _LONG
    (end,) = _U32.unpack_from(payload, index_at + INDEX_END)
    (headers_bytes,) = _U32.unpack_from(payload, first + HEADERS_LENGTH)
    (payload_bytes,) = _U32.unpack_from(payload, first + PAYLOAD_LENGTH)
    return _SHORT if end - headers_bytes - payload_bytes == SHORT_HEAD_BYTES else _LONG
