"""Storing and refusing the messages of publishing commands: a run of PUB commands, or the items of an MPUB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ....broker.core.append.append import WriteResult
from ....dialects.nsq import limits, publishing, send_layout
from ....dialects.nsq.commands import Command
from ....dialects.nsq.errors import NsqProtocolError, publication_error
from ....dialects.nsq.ext import first_text
from ....dialects.nsq.publishing import Stored

Bytes = NDArray[np.uint8]
Store = Callable[[int, int, Bytes, int, int], WriteResult]
"""(partition, time in us, array, at, base offset) -> what was stored there; raises Fault if nothing may be stored."""

_SIZE_BYTES: Final = 4
COUNT_BYTES: Final = 4
_TRACE_BYTES: Final = 8
_COUNT_MAX: Final = (limits.REQUEST_BYTES_MAX - COUNT_BYTES) // 5


class MessageStore(Protocol):
    """The messages of one append; their outcome is known after ``store`` was called."""

    room_bytes: int
    """The most bytes that the messages can take in the log."""
    answers: bytes
    """Frames to send when the messages are durable."""
    commands_count: int
    end: int
    """Position of the next command."""

    def store(self, partition: int, time_us: int, array: Bytes, at: int, base_offset: int) -> WriteResult:
        """Write the messages. Raises Fault if none may be stored."""


class RunStore:
    """The PUB commands with the same line at ``source[start:stop]``; the body of the first begins at ``body``."""

    def __init__(
        self, command: Command, topic: str, takes_ext: bool, source: Bytes, start: int, body: int, stop: int
    ) -> None:
        self._command, self._topic, self._takes_ext = command, topic, takes_ext
        self._source, self._start, self._size_at, self._stop = source, start, body - _SIZE_BYTES, stop
        self.room_bytes = publishing.pubs_room(stop - start, self._size_at - start)
        self.answers = b""
        self.commands_count = 0
        self.end = start

    def store(self, partition: int, time_us: int, array: Bytes, at: int, base_offset: int) -> WriteResult:
        """Write all commands before the first incomplete or refused one. Raises Fault if the very first is refused."""
        source, start = self._source, self._start
        stored = publishing.store_pubs(
            source, start, self._stop, self._size_at - start, self._command.form or 0, self._takes_ext,
            array, at, base_offset, partition, time_us * 1_000,
        )  # fmt: skip
        if not stored.messages_count:
            raise _refusal_error(stored, self._command, self._topic, source[self._size_at :])
        self.answers, self.commands_count, self.end = stored.answers, stored.messages_count, stored.end
        return WriteResult(stored.size_bytes, stored.messages_count, time_us, time_us)


class BatchStore:
    """The items of the MPUB whose body is ``source[body:end]``: either all are stored, or none."""

    commands_count = 1

    def __init__(self, command: Command, topic: str, takes_ext: bool, source: Bytes, body: int, end: int) -> None:
        size_bytes = end - body
        if command.form == send_layout.EXT and not takes_ext:
            raise publication_error(send_layout.PLAIN_TOPIC, size_bytes, limits.MESSAGE_BYTES_MAX, topic)
        self._command, self._topic, self._takes_ext = command, topic, takes_ext
        self._source, self._body, self.end = source, body, end
        self._count = require_count(size_at(source, body) if size_bytes >= COUNT_BYTES else -1)
        self.room_bytes = publishing.batch_room(size_bytes, self._count)
        self.answers = b""

    def store(self, partition: int, time_us: int, array: Bytes, at: int, base_offset: int) -> WriteResult:
        """Write all items. Raises Fault if any is refused."""
        source, body = self._source, self._body
        stored = publishing.store_batch(
            source, body + COUNT_BYTES, self.end, self._count, self._command.form or 0, self._takes_ext,
            array, at, base_offset, partition, time_us * 1_000,
        )  # fmt: skip
        if stored.reason or not stored.messages_count:
            raise _refusal_error(stored, self._command, self._topic, source[body:])
        self.answers = stored.answers
        return WriteResult(stored.size_bytes, stored.messages_count, time_us, time_us)


def require_count(count: int) -> int:
    """Return the number of messages that an MPUB declares. Raises NsqProtocolError E_BAD_BODY."""
    if not 0 < count <= _COUNT_MAX:
        raise NsqProtocolError("E_BAD_BODY", f"MPUB invalid message count {count}")
    if publishing.exceeds_fallback(count):
        # a million messages would block the event loop for 5 to 20 s
        raise NsqProtocolError(
            "E_BAD_BODY",
            f"MPUB invalid message count {count}: this broker has no compiled kernels and takes "
            f"{publishing.COMPILING_ITEMS_MAX} at most; send fewer, or see in its log why it has none",
        )
    return count


def item_size_error(reason: int, index: int, size: int) -> NsqProtocolError:
    """Return the error of item ``index`` of an MPUB that declares this size."""
    if reason == send_layout.NO_BODY:
        return NsqProtocolError("E_BAD_MESSAGE", f"MPUB invalid message({index}) body size {size}")
    return NsqProtocolError("E_BAD_MESSAGE", f"MPUB message too big {size} > {limits.MESSAGE_BYTES_MAX}")


def size_at(source: Bytes, at: int) -> int:
    """Return the signed number of four bytes."""
    return int.from_bytes(source[at : at + 4].tobytes(), "big", signed=True)


def _refusal_error(stored: Stored, command: Command, topic: str, published: Bytes) -> NsqProtocolError:
    """Return the fault for the first message that is refused; in a batch that is item ``stored.messages_count``."""
    batch = command.batch
    at = 0
    if batch:
        # done by the kernel: there may be a million items before it
        _, at, _, _ = publishing.pass_items(
            published, COUNT_BYTES, published.size, published.size, stored.messages_count
        )
    size, most = size_at(published, at), limits.MESSAGE_BYTES_MAX
    if batch and stored.reason == send_layout.BAD_ITEM:
        is_traced = command.form == send_layout.TRACED and 0 < size <= _TRACE_BYTES
        text = f" body size {size} for tracing" if is_traced else ": the items do not add up to the body"
        return NsqProtocolError("E_BAD_MESSAGE", f"MPUB invalid message({stored.messages_count}){text}")
    if batch and stored.reason in (send_layout.NO_BODY, send_layout.TOO_LARGE):
        return item_size_error(stored.reason, stored.messages_count, size)
    traced = False
    if stored.reason == send_layout.BAD_TRACE:
        message = published[at + 4 : at + 4 + size].tobytes()
        traced = first_text(message[2 : 2 + int.from_bytes(message[:2], "big")], limits.TRACE_NAME)[1] is not None
    short = command.form == send_layout.EXT and size <= 2
    if stored.reason == send_layout.BAD_EXT_LENGTH and short:
        return NsqProtocolError("E_BAD_BODY", f"invalid body size {size} with ext json header enabled")
    if stored.reason == send_layout.BAD_ITEM:
        return NsqProtocolError("E_BAD_BODY", f"invalid body size {size} with trace id enabled")
    return publication_error(stored.reason, size, most, topic, traced=traced)
