"""Connections to servers: TCP, or TLS over it, and what their first bytes say of them."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from ..model.errors import RemoteError
from ..runtime.read_deadline import ReadDeadline

IGGY_TCP: Final = "Iggy's TCP"
_ERROR_START: Final = b"E_"
"""The first bytes of every error of NSQ's servers."""
_ERROR_BYTES_MAX: Final = 1 << 16
"""Error responses are short; a larger number is not the size of one, nor a status of Iggy."""


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


@contextmanager
def reading_response(remedy: str) -> Iterator[None]:
    """Raise RemoteError, with ``remedy``, for a response without the expected form: another server sent it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
        raise RemoteError(f"a response of the server has another form than is known; {remedy}") from None
