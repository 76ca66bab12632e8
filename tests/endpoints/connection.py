"""A TCP connection for tests that speak a protocol by hand."""

from __future__ import annotations

import socket

TIMEOUT_S = 10.0


class Connection:
    """To ``host:port``; every wait ends after TIMEOUT_S."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def closed(self) -> bool:
        """Whether the server has closed: nothing more comes."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def receive(self, size: int) -> bytes:
        """Exactly so many bytes; ConnectionError where the server closed before."""
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError("the server closed the connection")
            data += part
        return bytes(data)
