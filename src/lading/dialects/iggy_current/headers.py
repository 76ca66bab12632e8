"""The 256-byte headers around every request and reply, and the one that ends a connection (iggy-current.md B1)."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from ...model.errors import MalformedMessage

HEADER_BYTES: Final = 256
COMMAND_AT: Final = 60
REQUEST, REPLY, EVICTION = 5, 8, 13
"""Values of the command byte: what a client sends, what it is answered, and that it has to go."""

SIZE_AT: Final = 48
_REQUEST = struct.Struct("<48xIxxxxxxxxB67x16sQ8sQQB7xQII56x")
_REPLY = struct.Struct("<48xIxxxxxxxxB67x16s16s16sQQQQB7xI36x")
_EVICTION = struct.Struct("<48xIxxxxxxxxB67x16sII103xB")
assert _REQUEST.size == _REPLY.size == _EVICTION.size == HEADER_BYTES


class FrameHeader(NamedTuple):
    """What a client says about its request; ``command`` counts for operation 2 alone."""

    size_bytes: int
    """Of header and body."""
    kind: int
    """5 for a request."""
    client: bytes
    """16 bytes that a client draws for itself."""
    checksum: int
    """XXH3-64 of the body, or 0 where none is sent."""
    checksum_rest: bytes
    time_us: int
    request: int
    operation: int
    session: int
    """What a login gave, 0 before."""
    user_id: int
    code: int


def parse_request_header(data: memoryview, at: int = 0) -> FrameHeader:
    """The header at ``at``; MalformedMessage where there are not 256 bytes."""
    try:
        return FrameHeader(*_REQUEST.unpack_from(data, at))
    except struct.error:
        raise MalformedMessage(f"{len(data) - at} bytes are no 256-byte header", at=at) from None


def reply_header(request: FrameHeader, body_bytes: int, status: int = 0, op: int = 0, commit: int = 0) -> bytes:
    """The header of a reply to ``request`` with so many bytes behind it; a ``status`` other than 0 has no body."""
    checksum = struct.pack("<Q", request.checksum) + request.checksum_rest
    return _REPLY.pack(
        HEADER_BYTES + body_bytes, REPLY, checksum, bytes(16), request.client, op, commit, 0, request.request,
        request.operation, status,
    )  # fmt: skip


def eviction_header(client: bytes, version: int, version_min: int, reason: int) -> bytes:
    """The last word to a client that may not stay; ``reason`` is one of ``Eviction``."""
    return _EVICTION.pack(HEADER_BYTES, EVICTION, client, version, version_min, reason)
