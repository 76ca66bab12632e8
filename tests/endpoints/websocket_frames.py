"""Iggy's frames as messages of a WebSocket: a client of a library, and frames by hand that no client would send."""

from __future__ import annotations

import os
import struct
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.endpoints.connection import TIMEOUT_S, Connection
from tests.endpoints.frames import HEAD

HANDSHAKE = (
    "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
ACCEPT = b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""What answers this key, from RFC 6455, 1.3."""
CONT, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def encode_frame(opcode: int, data: bytes, key: bytes | None, *, fin: bool = True, claimed: int | None = None) -> bytes:
    """Return a frame that is masked by this key, if there is one; ``claimed`` is the length that it says it has."""
    size = len(data) if claimed is None else claimed
    mask = 0 if key is None else 0x80
    head = bytes([opcode | (0x80 if fin else 0)])
    if size < 126:
        head += bytes([size | mask])
    elif size < 1 << 16:
        head += bytes([126 | mask]) + struct.pack("!H", size)
    else:
        head += bytes([127 | mask]) + struct.pack("!Q", size)
    if key is None:
        return head + data
    return head + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(data))


class WebSocketFrames:
    """A client that a library makes; every wait ends after TIMEOUT_S."""

    def __init__(self, address: str, scheme: str = "ws", **options: Any) -> None:
        self.socket: ClientConnection = connect(
            f"{scheme}://{address}/", compression=None, max_size=None, open_timeout=TIMEOUT_S, **options
        )

    def send(self, code: int, payload: bytes = b"") -> None:
        """A request."""
        self.socket.send(HEAD.pack(4 + len(payload), code) + payload)

    def answer(self) -> tuple[int, bytes]:
        """Status and body of the next message."""
        message = self.socket.recv(TIMEOUT_S)
        assert isinstance(message, bytes)
        status, size = HEAD.unpack_from(message)
        assert len(message) == HEAD.size + size
        return status, message[HEAD.size :]

    def ask(self, code: int, payload: bytes = b"") -> tuple[int, bytes]:
        """A request and its answer."""
        self.send(code, payload)
        return self.answer()

    def close(self) -> None:
        """Say goodbye."""
        self.socket.close()


class RawWebSocket(Connection):
    """Frames by hand."""

    def __init__(self, address: str, handshake: str | None = HANDSHAKE) -> None:
        super().__init__(address)
        if handshake is not None:
            self.socket.sendall(f"{handshake}\r\n".encode())
            self.head = self.receive_head()

    def receive_head(self) -> bytes:
        """The head of an HTTP response."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self.receive(1)
        return head

    def frame(
        self, opcode: int, data: bytes, *, fin: bool = True, masked: bool = True, claimed: int | None = None
    ) -> None:
        """Send a frame; ``claimed`` is the length that it says it has."""
        key = os.urandom(4) if masked else None
        self.socket.sendall(encode_frame(opcode, data, key, fin=fin, claimed=claimed))

    def receive_frame(self) -> tuple[int, bytes]:
        """Opcode and data of the next frame, which is whole and not masked."""
        first, size = self.receive(2)
        assert first & 0x80
        if size == 126:
            (size,) = struct.unpack("!H", self.receive(2))
        elif size == 127:
            (size,) = struct.unpack("!Q", self.receive(8))
        return first & 0x0F, self.receive(size)

    def close_code(self) -> int:
        """The code of the close frame that comes next, and with it the end."""
        opcode, data = self.receive_frame()
        assert opcode == CLOSE
        assert self.closed()
        code: int = struct.unpack_from("!H", data)[0]
        return code
