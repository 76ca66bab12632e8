"""Compression that a client asks for within its protocol: a layer that is put around a session that has begun.

A connection without it has no such layer, and pays nothing for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from ...model.errors import MalformedMessage
from ..base.deadlines import Stage
from ..base.responses import Bytes, Sink
from ..base.session import ConnectionHandle, ProtocolSession, ReceiveResult
from .layer import SessionLayer

log = logging.getLogger(__name__)

TURN_BYTES: Final = 256 << 10
"""Bytes that are decompressed before other connections have their turn."""
STEP_BYTES_MIN: Final = 4 << 10
"""A step counts as at least this much: a small block costs some ten microseconds."""
PENDING_BYTES_MAX: Final = 64 << 10
"""Responses wait for those of the same pass of the event loop up to this, and are compressed together."""


class DecompressionStream(Protocol):
    """Decompression of what a client sends; see ``dialects.nsq.compression``."""

    @property
    def holds_output(self) -> bool:
        """Whether more can be returned without another byte from the client."""

    @property
    def is_finished(self) -> bool:
        """Whether the client has ended its stream."""

    def decompress(self, data: memoryview, bytes_max: int) -> tuple[int, Bytes]:
        """Return how many bytes of ``data`` were read, and at most ``bytes_max`` decompressed ones."""


class CompressionStream(Protocol):
    """Compression of what a client is sent."""

    def compress(self, data: Bytes) -> bytes:
        """Return the bytes to send, from which the client can read all of ``data`` at once."""


class CompressedSession(SessionLayer):
    """A session of compressed bytes around the session of the client's protocol."""

    def __init__(
        self,
        reader: DecompressionStream,
        writer: CompressionStream,
        held_bytes: int,
        connection: ConnectionHandle,
        inner: ProtocolSession,
    ) -> None:
        """``held_bytes``: memory of both streams, which the inbox of ``inner`` holds until now."""
        is_congested = inner.is_congested
        super().__init__(connection, inner)
        self.is_congested, self.is_blocked, self.requests_count = is_congested, inner.is_blocked, inner.requests_count
        self._reader, self._writer, self._held_bytes = reader, writer, held_bytes
        self._turn_bytes_left = 0
        self._is_over = False
        """Whether nothing more is read: the stream has ended, or is invalid."""
        self._pending = bytearray()
        """Responses that are not compressed yet."""
        self._is_flush_due = False
        self._sink: Sink | None = None
        inner.inbox.hold_elsewhere(0)
        self.inbox.hold_elsewhere(held_bytes)
        self.responses.wrap_sink(self.wrap)
        if unread := inner.inbox.unread:
            # sent by a client that did not wait for the response to its request for compression
            self.inbox.append(unread)
            inner.inbox.have = inner.inbox.at
            connection.call_soon(connection.proceed)

    # congestion ends a pass over received bytes, so that the session within has to know it at once

    @property
    def is_congested(self) -> bool:
        """Whether the inner session must not begin a request."""
        return self.inner.is_congested

    @is_congested.setter
    def is_congested(self, is_congested: bool) -> None:
        self.inner.is_congested = is_congested

    # -- what the connection calls

    def wrap(self, sink: Sink) -> Sink:
        self._sink = sink
        return self

    def receive(self, now_us: int) -> ReceiveResult:
        self._turn_bytes_left, self.is_turn_over = TURN_BYTES, False
        result = super().receive(now_us)
        if self._is_over and result is ReceiveResult.DONE and not self.is_ended:
            self.lingers = True
            self.end()
        self._flush()
        return result

    def fill(self) -> bool:
        inbox, inner = self.inbox, self.inner.inbox
        while not (self._is_over or self.is_ended):
            room_bytes = len(inner.view) - inner.have
            if not room_bytes:
                return True
            if inbox.at == inbox.have and not self._reader.holds_output:
                return False
            if self._turn_bytes_left <= 0:
                self.is_turn_over = True
                return False
            try:
                read_bytes, plain = self._reader.decompress(inbox.unread, room_bytes)
            except MalformedMessage as error:
                self._is_over = True
                self.connection.count_dropped("compression")
                log.info("closing the connection: %s", error, extra=self.connection.origin())
                break
            inbox.at += read_bytes
            inner.view[inner.have : inner.have + len(plain)] = plain
            inner.have += len(plain)
            self._turn_bytes_left -= max(len(plain), STEP_BYTES_MIN)
            if self._reader.is_finished:
                self._is_over = True
            elif not (read_bytes or plain):
                return False
        # there must be room for what still comes
        inbox.at = inbox.have
        return False

    def release_memory(self) -> None:
        super().release_memory()
        if not self.is_ended:
            # the streams still hold theirs
            self.inbox.hold_elsewhere(self._held_bytes)

    def say_goodbye(self) -> None:
        self.inner.say_goodbye()
        self._flush()

    # -- what deadlines and the end of the connection depend on

    @property
    def unread(self) -> memoryview:
        return self.inner.unread or self.inbox.unread

    def stage(self) -> Stage:
        is_partial = self.inbox.have > self.inbox.at and not (self.is_ended or self.is_congested or self.is_busy)
        return Stage.PARTIAL if is_partial else super().stage()

    # -- the sink of responses

    def write(self, data: Bytes) -> None:
        """Send ``data``, compressed with what else is sent in this pass of the event loop."""
        self._pending += data
        if len(self._pending) >= PENDING_BYTES_MAX:
            self._flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self.connection.call_soon(self._flush_due)

    def writelines(self, list_of_data: Sequence[Bytes]) -> None:
        """Send all of these, compressed, one after the other."""
        for data in list_of_data:
            self.write(data)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()

    def _flush(self) -> None:
        if self._pending and self._sink is not None and not self.is_lost:
            pending, self._pending = self._pending, bytearray()
            self._sink.write(self._writer.compress(pending))
