"""A client's half of a compressed connection, by zlib and by snappy's own framing."""

from __future__ import annotations

import socket
import zlib
from typing import Any

import cramjam

STREAM_ID = b"\xff\x06\x00\x00sNaPpY"


class Deflate:
    def __init__(self) -> None:
        self._writing, self._reading = zlib.compressobj(6, zlib.DEFLATED, -15), zlib.decompressobj(-15)

    def compress(self, data: bytes) -> bytes:
        return self._writing.compress(data) + self._writing.flush(zlib.Z_SYNC_FLUSH)

    def decompress(self, data: bytes) -> bytes:
        return self._reading.decompress(data)


class Snappy:
    def __init__(self) -> None:
        self._written, self._unread, self._has_begun = False, b"", False

    def compress(self, data: bytes) -> bytes:
        stream = bytes(cramjam.snappy.compress(data))
        stream, self._written = stream[10:] if self._written else stream, True
        return stream

    def decompress(self, data: bytes) -> bytes:
        self._unread += data
        end = 0
        while len(self._unread) >= end + 4:
            following = end + 4 + int.from_bytes(self._unread[end + 1 : end + 4], "little")
            if following > len(self._unread):
                break
            end = following
        whole, self._unread = self._unread[:end], self._unread[end:]
        if not whole:
            return b""
        if not self._has_begun:
            assert whole.startswith(STREAM_ID)
            whole, self._has_begun = whole[10:], True
        return bytes(cramjam.snappy.decompress(STREAM_ID + whole))


STREAMS: dict[str, type[Any]] = {"deflate": Deflate, "snappy": Snappy}


class CompressedSocket:
    """What ``NsqClient`` asks of a socket."""

    def __init__(self, kind: str, plain: socket.socket) -> None:
        self._plain, self.stream = plain, STREAMS[kind]()

    def sendall(self, data: bytes) -> None:
        self._plain.sendall(self.stream.compress(data))

    def recv(self, size: int) -> bytes:
        while data := self._plain.recv(size):
            if plain := self.stream.decompress(data):
                return bytes(plain)
        return b""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plain, name)
