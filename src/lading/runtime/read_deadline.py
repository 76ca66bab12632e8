"""Deadlines for what a server sends: for a whole response of ``http.client``, not for each read of it."""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from http.client import HTTPResponse

BYTES_PER_S_MIN: Final = 64 << 10
"""The slowest acceptable server: more time is given only for more bytes, so that a slower one meets the time-out."""
LINES_BYTES_MAX: Final = 128 << 10
"""The limit of a response's head and other lines, beyond half of what arrives."""
JOINED_BYTES: Final = 16 << 10
"""A longer content is sent after the head, without a copy."""


class ReadDeadline:
    """The time until which a response must have arrived: a time-out for all of it, not for each read.

    Every byte adds time according to ``BYTES_PER_S_MIN``, so that a large response has enough time, and a server that
    sends a byte a second does not.
    """

    __slots__ = ("_clock", "_end_s")

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + timeout_s

    def receive_into(self, connection: socket.socket, view: memoryview) -> int:
        """Return how many bytes were received. Raises TimeoutError at the deadline."""
        left_s = self._end_s - self._clock()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        count = connection.recv_into(view)
        self._end_s += count / BYTES_PER_S_MIN
        return count


class DeadlineSocket:
    """A connection for ``http.client`` whose responses have a deadline: ``begin`` before each request.

    ``http.client`` sends a request's content after its head: two packets, each of which wakes the server. Here the head
    waits for a short content.
    """

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self.begin(timeout_s)
        self._connection = connection
        self._readers_count = 0
        self._is_closed = False

    def begin(self, timeout_s: float, *, has_content: bool = False) -> None:
        """Give the next request this much time to be sent, and its response as much time to arrive.

        With ``has_content`` its content follows its head, and is not empty.
        """
        self._timeout_s = timeout_s
        self._is_head_next = has_content
        self._head = b""

    def sendall(self, data: Any) -> None:
        """Send all bytes within the time-out; the head of a request with content is sent together with that."""
        if self._is_head_next:
            self._is_head_next, self._head = False, bytes(data)
            return
        self._connection.settimeout(self._timeout_s)
        head, self._head = self._head, b""
        if head and len(data) <= JOINED_BYTES:
            self._connection.sendall(b"".join((head, data)))
            return
        if head:
            self._connection.sendall(head)
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of one response."""
        assert mode == "rb"
        self._readers_count += 1
        return _ResponseReader(_Reader(self._connection, ReadDeadline(self._timeout_s), self._end_reader))

    def fileno(self) -> int:
        """Return the number of the connection, for ``select``."""
        return self._connection.fileno()

    def close(self) -> None:
        """Close the connection; a response that is being read is read to its end first."""
        self._is_closed = True
        if not self._readers_count:
            self._connection.close()

    def _end_reader(self) -> None:
        self._readers_count -= 1
        if self._is_closed and not self._readers_count:
            self._connection.close()


class _Reader(io.RawIOBase):
    def __init__(self, connection: socket.socket, deadline: ReadDeadline, on_closed: Callable[[], None]) -> None:
        self._connection, self._deadline, self._on_closed = connection, deadline, on_closed
        self.received_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._deadline.receive_into(self._connection, memoryview(buffer))
        self.received_bytes += count
        return count

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._on_closed()


class _ResponseReader(io.BufferedReader):
    """A reader of one response that bounds its lines: its head, and the sizes and trailers of chunks.

    ``http.client`` reads any number of 1xx responses and trailers, and a line of 64 KiB for a chunk of one byte. They
    come fast enough for any deadline, and are not in the content, whose size the caller bounds.
    """

    def __init__(self, reader: _Reader) -> None:
        super().__init__(reader)
        self._reader = reader
        self._lines_bytes = 0

    def readline(self, size: int | None = -1, /) -> bytes:
        """Return a line. Raises ConnectionAbortedError if there are too many of them."""
        line = super().readline(size)
        self._lines_bytes += len(line)
        # half of a chunk of one byte is the line before it
        if self._lines_bytes > LINES_BYTES_MAX + self._reader.received_bytes // 2:
            raise ConnectionAbortedError(f"a response has more than {LINES_BYTES_MAX} bytes around its content")
        return line


def read_content(response: HTTPResponse, bytes_max: int) -> bytes | None:
    """Return the whole content of a response, or None if it is, or declares to be, longer than ``bytes_max``.

    Raises IncompleteRead if it ends before the declared length.
    """
    announced: int | None = response.length
    if announced is not None:
        # with a limit the library takes an incomplete content for a whole one
        return response.read() if announced <= bytes_max else None
    content = response.read(bytes_max + 1)
    return content if len(content) <= bytes_max else None
