"""Connections to servers: TCP, or TLS over it."""

from __future__ import annotations

import socket
import ssl


def connect(address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None = None) -> socket.socket:
    """Return a connection without Nagle's delay, encrypted if there is a ``context``; OSError where there is none."""
    connection = socket.create_connection(address, timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection if context is None else context.wrap_socket(connection, server_hostname=address[0])
    except BaseException:
        connection.close()
        raise
