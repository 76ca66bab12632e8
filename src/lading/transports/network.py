"""Connections to servers: TCP, or TLS over it, and deadlines for what they send."""

from __future__ import annotations

import io
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..model.errors import RemoteError

if TYPE_CHECKING:
    from http.client import HTTPResponse

IGGY_TCP: Final = "Iggy's TCP"
_ERROR_START: Final = b"E_"
"""The first bytes of every error of NSQ's servers."""
_ERROR_BYTES_MAX: Final = 1 << 16
BYTES_PER_S_MIN: Final = 64 << 10
"""The slowest acceptable server: more time is given only for more bytes, so that a slower one meets the time-out."""


def recognise_protocol(start: bytes) -> str | None:
    """Return the protocol whose servers reject unknown bytes with such a response; None for any other start.

    ``start``: the first eight bytes of the response, or a few more.
    """
    if start.startswith(b"HTTP"):
        return "HTTP"
    if len(start) < 8:
        return None
    big, kind = struct.unpack_from(">iI", start)
    if 0 < big <= _ERROR_BYTES_MAX:
        if start[4:6] == _ERROR_START:
            return "the TCP protocol of nsqlookupd"
        # size and type of an error frame, and perhaps its first letters
        return "NSQ" if kind == 1 and start[8:10] in (b"", _ERROR_START) else None
    status, size_bytes = struct.unpack_from("<II", start)
    return IGGY_TCP if 0 < status <= _ERROR_BYTES_MAX and not size_bytes else None


def connect(address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection without Nagle's delay, encrypted if there is a ``context``. Raises OSError if that fails."""
    connection = socket.create_connection(address, timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if context is None else context.wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise


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


def receive_exactly(connection: socket.socket, view: memoryview, timeout_s: float) -> None:
    """Fill ``view``, then give the connection the time-out that it had before.

    Raises TimeoutError after ``ReadDeadline``, ConnectionResetError if the server closes the connection.
    """
    deadline = ReadDeadline(timeout_s)
    while view:
        count = deadline.receive_into(connection, view)
        if not count:
            raise ConnectionResetError("the server closed the connection")
        view = view[count:]
    connection.settimeout(timeout_s)


class DeadlineSocket:
    """A connection for ``http.client`` whose responses have a deadline: ``begin`` before each request."""

    def __init__(self, connection: socket.socket, timeout_s: float) -> None:
        self.begin(timeout_s)
        self._connection = connection
        self._readers_count = 0
        self._is_closed = False

    def begin(self, timeout_s: float) -> None:
        """Give the next request this much time to be sent, and its response as much time to arrive."""
        self._timeout_s = timeout_s

    def sendall(self, data: Any) -> None:
        """Send all bytes within the time-out."""
        self._connection.settimeout(self._timeout_s)
        self._connection.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """Return a reader of one response."""
        assert mode == "rb"
        self._readers_count += 1
        return io.BufferedReader(_Reader(self._connection, ReadDeadline(self._timeout_s), self._end_reader))

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

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._deadline.receive_into(self._connection, memoryview(buffer))

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._on_closed()


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


@contextmanager
def reading_response(remedy: str) -> Iterator[None]:
    """Raise RemoteError, with ``remedy``, for a response without the expected form: another server sent it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise RemoteError(f"a response of the server has another form than is known; {remedy}") from None
