"""The 256-byte headers around every request and reply, and the one that ends a connection (iggy-current.md B1)."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from ....model.errors import MalformedMessage

HEADER_BYTES: Final = 256
COMMAND_AT: Final = 60
REQUEST, REPLY, EVICTION = 5, 8, 13
"""Values of the command byte: a client's request, the response to it, and the notice that ends its connection."""

SIZE_AT: Final = 48
_REQUEST = struct.Struct("<48xIxxxxxxxxB67x16sQ8sQQB7xQII56x")
_REPLY = struct.Struct("<48xIxxxxxxxxB67x16s16s16sQQQQB7xI36x")
_EVICTION = struct.Struct("<48xIxxxxxxxxB67x16sII103xB")
assert _REQUEST.size == _REPLY.size == _EVICTION.size == HEADER_BYTES


class FrameHeader(NamedTuple):
    """Header of a request; ``command`` counts for operation 2 alone."""

    size_bytes: int
    """Bytes of header and body."""
    kind: int
    """5 for a request."""
    client: bytes
    """16 bytes that a client draws for itself."""
    checksum: int
    """XXH3-64 of the body, or 0 if none is sent."""
    checksum_rest: bytes
    time_us: int
    request: int
    operation: int
    session: int
    """Session number that a login gave, 0 before."""
    user_id: int
    code: int


def parse_request_header(data: memoryview, at: int = 0) -> FrameHeader:
    """Return the header at ``at``. Raises MalformedMessage if there are fewer than 256 bytes."""
    try:
        return FrameHeader(*_REQUEST.unpack_from(data, at))
    except struct.error:
        raise MalformedMessage(f"{len(data) - at} bytes are not a 256-byte header", at=at) from None


def reply_header(request: FrameHeader, body_bytes: int, status: int = 0, op: int = 0, commit: int = 0) -> bytes:
    """Return the header of a reply to ``request`` that has ``body_bytes`` after it.

    A reply with a ``status`` other than 0 has no body.
    """
    checksum = struct.pack("<Q", request.checksum) + request.checksum_rest
    return _REPLY.pack(
        HEADER_BYTES + body_bytes, REPLY, checksum, bytes(16), request.client, op, commit, 0, request.request,
        request.operation, status,
    )  # fmt: skip


def eviction_header(client: bytes, version: int, version_min: int, reason: int) -> bytes:
    """Return the frame that informs a client why it is disconnected; ``reason`` is one of ``Eviction``."""
    return _EVICTION.pack(HEADER_BYTES, EVICTION, client, version, version_min, reason)


def request_header(
    client: bytes,
    body_bytes: int,
    operation: int,
    *,
    checksum: int = 0,
    request: int = 0,
    session: int = 0,
    code: int = 0,
) -> bytes:
    """Return the header of a request that has ``body_bytes`` after it.

    ``code`` is that of a read, whose operation is 2.
    """
    size_bytes = HEADER_BYTES + body_bytes
    return _REQUEST.pack(size_bytes, REQUEST, client, checksum, bytes(8), 0, request, operation, session, 0, code)


class ReplyFacts(NamedTuple):
    """Header of a reply, or of what comes instead of one: ``kind`` is REPLY or EVICTION."""

    kind: int
    size_bytes: int
    operation: int
    status: int
    reason: int


def parse_reply_header(data: memoryview) -> ReplyFacts:
    """Return the facts in the header of a reply or of an eviction. Raises MalformedMessage for anything else."""
    if len(data) != HEADER_BYTES or data[COMMAND_AT] not in (REPLY, EVICTION):
        raise MalformedMessage("the bytes are not a reply of today's Iggy", at=0)
    size_bytes = struct.unpack_from("<I", data, SIZE_AT)[0]
    if size_bytes < HEADER_BYTES:
        raise MalformedMessage(f"a reply claims {size_bytes} bytes, less than its header", at=SIZE_AT)
    if data[COMMAND_AT] == EVICTION:
        return ReplyFacts(EVICTION, size_bytes, 0, 0, data[HEADER_BYTES - 1])
    facts = _REPLY.unpack_from(data, 0)
    return ReplyFacts(REPLY, size_bytes, facts[-2], facts[-1], 0)


class Eviction(IntEnum):
    """Why a client has to go: the last byte of the header that says so."""

    NO_SESSION = 1
    CLIENT_RELEASE_TOO_LOW = 2
    CLIENT_RELEASE_TOO_HIGH = 3
    INVALID_OPERATION = 4
    INVALID_BODY = 5
    INVALID_BODY_SIZE = 6
    SESSION_TOO_LOW = 7
    SESSION_RELEASE_MISMATCH = 8
    INVALID_CREDENTIALS = 9
    INVALID_TOKEN = 10
    USER_INACTIVE = 11
    SESSION_ERROR = 12
    STALE_CLIENT = 13
    INCOMPATIBLE_PROTOCOL = 14
    MALFORMED_LOGIN = 15
