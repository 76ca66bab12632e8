"""Operations of the current generation: the byte of a request's header, and the command that it stands for.

NON_REPLICATED has a command code beside it, which is that of the classic framing; a command that changes something has
an operation of its own (iggy-current.md B2, B3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ....model.errors import MalformedMessage, Reason
from ..classic.command_table import CommandSpec
from ..classic.primitives import PARTITIONING, U32, Identifier, Partitioning
from .codecs import IDENTIFIER_FROM_ZERO, SECRET
from .layouts import TABLE_0_11

REGISTER: Final = 1
NON_REPLICATED: Final = 2
LOGOUT: Final = 3
SEND_MESSAGES: Final = 160
DELETE_SEGMENTS: Final = 138
STORE_OFFSET, DELETE_OFFSET = 161, 162
PING, POLL = 1, 100
POLL_DEFERRED, CANCEL, FETCH = 106, 108, 109
"""Polls that may wait; a request to end one has no reply."""
UPDATE_RESOURCE: Final = 150
RESULT_FIRST, RESULT_LAST = 128, UPDATE_RESOURCE
"""Operations whose outcome is in the body, in a result section; the header's status is for what never began."""

READS: Final[Mapping[int, CommandSpec]] = {row.code: row for row in TABLE_0_11.rows if not row.operation}
"""Commands that change nothing, by code."""
WRITES: Final[Mapping[int, CommandSpec]] = {row.operation: row for row in TABLE_0_11.rows if row.operation}
"""Commands that change something, by their operation byte."""
OPERATIONS: Final[Mapping[int, int]] = {row.code: operation for operation, row in WRITES.items()}
"""The operation of a command that changes something, by its code; all others are NON_REPLICATED."""


def find_command(operation: int, code: int) -> CommandSpec | None:
    """Return the command that a request's header names, or None if it does not exist.

    Its code, name and class are the same in all releases, its layout is that of 0.11.
    """
    return READS.get(code) if operation == NON_REPLICATED else WRITES.get(operation)


SECRET_BYTES: Final = 32
"""A secret of a session, before name and password (``ProtocolVersion.binds_sessions``)."""


def parse_login(rest: memoryview) -> tuple[str | None, str]:
    """Return the user name and password after the versions of a login, or None and a token.

    Raises MalformedMessage if the bytes are neither. A login by token has one text less: the form is the one whose last
    field ends with the body.
    """
    for is_token in (True, False):
        try:
            first, at = SECRET.read(rest, 0)
            second, at = (first, at) if is_token else SECRET.read(rest, at)
            size_bytes, at = U32.read(rest, at)
            if at + size_bytes == len(rest):
                return (None, first) if is_token else (first, second)
        except MalformedMessage:
            continue
    raise MalformedMessage("a login has neither name and password nor a token", reason=Reason.MALFORMED)


def encode_send(stream: Identifier, topic: Identifier, partitioning: Partitioning, count: int, batch: bytes) -> bytes:
    """Encode the body of a send: its destination and one batch of ``count`` messages."""
    place = IDENTIFIER_FROM_ZERO.write(stream) + IDENTIFIER_FROM_ZERO.write(topic)
    where = place + PARTITIONING.write(partitioning) + U32.write(count)
    return U32.write(len(where)) + where + batch
