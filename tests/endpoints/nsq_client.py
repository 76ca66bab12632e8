"""A client of nsqd that sends bytes and takes frames apart, and nothing more."""

from __future__ import annotations

import json
import socket
import ssl
import struct
from typing import Any, NamedTuple

from tests.endpoints.compressed_socket import CompressedSocket

TIMEOUT_S = 5.0
Ext = "bytes | None"


class Message(NamedTuple):
    """A message frame; ``ext`` is None where the frame has no ext block."""

    time_ns: int
    attempts: int
    id: bytes
    version: int | None
    ext: bytes
    body: bytes

    @property
    def offset(self) -> int:
        return (int.from_bytes(self.id[:8], "big") & (1 << 50) - 1) - 1


def message_of(data: bytes, *, extended: bool) -> Message:
    time_ns, attempts = struct.unpack_from(">qH", data)
    version, ext, at = None, b"", 26
    if extended:
        version, at = data[26], 27
        if version:
            (size,) = struct.unpack_from(">H", data, 27)
            ext, at = data[29 : 29 + size], 29 + size
    return Message(time_ns, attempts, data[10:26], version, ext, data[at:])


class NsqClient:
    """One connection, identified when ``told`` says something."""

    def __init__(
        self, address: str, *, magic: bytes = b"  V2", context: ssl.SSLContext | None = None,
        buffer_bytes: int = 0, **told: Any
    ) -> None:  # fmt: skip
        """``context``: begin with TLS; ``buffer_bytes``: what the system buffers on this side, if given."""
        host, _, port = address.rpartition(":")
        self.extended = bool(told.get("extend_support"))
        self._socket = socket.socket()
        if buffer_bytes:
            for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
                self._socket.setsockopt(socket.SOL_SOCKET, option, buffer_bytes)
        self._socket.settimeout(TIMEOUT_S)
        self._socket.connect((host, int(port)))
        if context is not None:
            self.start_tls(context)
        self._buffer = b""
        self._taken = 0
        self.send(magic)
        if told:
            self.identity = json.loads(self.identify(feature_negotiation=True, **told))

    def start_tls(self, context: ssl.SSLContext) -> None:
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")

    def start_compression(self, kind: str) -> None:
        compressed: Any = CompressedSocket(kind, self._socket)
        self._socket = compressed
        # the server may have said more by then, in the new form
        self._buffer, self._taken = compressed.stream.decompress(self._buffer[self._taken :]), 0

    def close(self) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send_until_full(self, data: bytes, times: int) -> int:
        """Send the same again and again until the server takes no more; how often it did."""
        self._socket.settimeout(0.5)
        for sent in range(times):
            try:
                self._socket.sendall(data)
            except TimeoutError:
                return sent
        return times

    def identify(self, **told: Any) -> bytes:
        return self.ask(sized(b"IDENTIFY\n", json.dumps(told).encode()))

    def frame(self, timeout_s: float = TIMEOUT_S) -> tuple[int, bytes]:
        """The next frame that is no heartbeat; EOFError where the server has closed."""
        while True:
            (size,) = struct.unpack(">I", self._read(4, timeout_s))
            data = self._read(size, timeout_s)
            if data[4:] != b"_heartbeat_":
                return int.from_bytes(data[:4], "big"), data[4:]

    def ask(self, data: bytes) -> bytes:
        """What a command is answered; an error shows as its text."""
        self.send(data)
        return self.frame()[1]

    def message(self) -> Message:
        kind, data = self.frame()
        assert kind == 2, data
        return message_of(data, extended=self.extended)

    def messages(self, count: int) -> list[Message]:
        return [self.message() for _ in range(count)]

    def quiet(self, seconds: float = 0.15) -> bool:
        """Whether nothing comes for a moment."""
        try:
            self.frame(seconds)
        except TimeoutError:
            return True
        return False

    def closed(self, timeout_s: float = TIMEOUT_S) -> bool:
        """Whether the server has closed, after at most what is still on its way."""
        try:
            while True:
                self.frame(timeout_s)
        except (EOFError, ConnectionError):
            return True

    def fin(self, *messages: Message) -> None:
        self.send(b"".join(b"FIN " + each.id + b"\n" for each in messages))

    def _read(self, size: int, timeout_s: float) -> bytes:
        self._socket.settimeout(timeout_s)
        while len(self._buffer) - self._taken < size:
            data = self._socket.recv(1 << 16)
            if not data:
                raise EOFError
            # what was taken is cut off here, not at each frame: a test reads 600,000 frames of ten bytes
            self._buffer, self._taken = self._buffer[self._taken :] + data, 0
        end = self._taken + size
        read, self._taken = self._buffer[self._taken : end], end
        return read


def sized(line: bytes, body: bytes) -> bytes:
    return line + struct.pack(">i", len(body)) + body


def pub(topic: str, body: bytes, ext: bytes | None = None) -> bytes:
    if ext is None:
        return sized(b"PUB %s\n" % topic.encode(), body)
    return sized(b"PUB_EXT %s\n" % topic.encode(), struct.pack(">H", len(ext)) + ext + body)


def mpub(topic: str, *bodies: bytes) -> bytes:
    items = b"".join(struct.pack(">i", len(body)) + body for body in bodies)
    return sized(b"MPUB %s\n" % topic.encode(), struct.pack(">i", len(bodies)) + items)


def mpub_ext(topic: str, *items: tuple[bytes, bytes]) -> bytes:
    told = b"".join(struct.pack(">iH", 2 + len(ext) + len(body), len(ext)) + ext + body for ext, body in items)
    return sized(b"MPUB_EXT %s\n" % topic.encode(), struct.pack(">i", len(items)) + told)
