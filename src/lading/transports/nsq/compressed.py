"""Compression of a connection to an nsqd, as the option ``connection_compression`` requests it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from ...dialects.nsq.compression import PIECE_BYTES_MAX, DeflateReader, DeflateWriter, SnappyReader, SnappyWriter
from ...model.errors import SettingError

DEFLATE_LEVEL: Final = 6
"""The default level of NSQ's own clients, and the highest level that nsqd allows by default."""
_LEVELS: Final = range(1, 10)


@dataclass(frozen=True, slots=True)
class ClientCompression:
    """Both directions by ``name``, which is deflate or snappy; ``level`` is deflate's."""

    name: str
    level: int = 0

    def to_identify(self) -> dict[str, Any]:
        """Return the members of IDENTIFY that request it."""
        return {self.name: True} | ({"deflate_level": self.level} if self.level else {})


def parse_compression(text: str | None) -> ClientCompression | None:
    """Return the compression that ``snappy``, ``deflate`` or ``deflate:LEVEL`` names. Raises SettingError."""
    name, colon, level = (text or "").partition(":")
    if not text:
        return None
    if name == "snappy" and not colon:
        return ClientCompression(name)
    if name == "deflate" and not colon:
        return ClientCompression(name, DEFLATE_LEVEL)
    if name == "deflate" and level.isdecimal() and int(level) in _LEVELS:
        return ClientCompression(name, int(level))
    raise SettingError(
        f"connection_compression {text!r}: not supported; use 'snappy', 'deflate', or a level from 'deflate:1' to "
        "'deflate:9'"
    )


class CompressedStream:
    """Both directions of one connection, after the server agreed to compression."""

    def __init__(self, compression: ClientCompression, level: int) -> None:
        """``level`` is the one that the server agreed to."""
        is_snappy = compression.name == "snappy"
        self._reader: DeflateReader | SnappyReader = SnappyReader() if is_snappy else DeflateReader()
        self._writer: DeflateWriter | SnappyWriter = SnappyWriter() if is_snappy else DeflateWriter(level)
        self._unread = b""

    def compress(self, data: bytes) -> bytes:
        """Return the bytes to send for ``data``."""
        return self._writer.compress(data)

    def decompress(self, data: bytes) -> bytes:
        """Return all bytes that can be decompressed after adding ``data``. Raises MalformedMessage."""
        waiting, start = memoryview(self._unread + data), 0
        parts: list[bytes] = []
        while True:
            read_bytes, plain = self._reader.decompress(waiting[start:], PIECE_BYTES_MAX)
            if not read_bytes and not plain:
                break
            start += read_bytes
            parts.append(bytes(plain))
        self._unread = bytes(waiting[start:])
        return b"".join(parts)
