"""Streams of a compressed connection: deflate and snappy, as ``IDENTIFY`` negotiates them (nsq.md 1.5).

Without I/O, and bounded: a reader returns at most as many bytes as its caller allows.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import cramjam
import google_crc32c

from ...model.errors import MalformedMessage

Bytes = bytes | bytearray | memoryview

DEFLATE_WINDOW_BITS: Final = 13
DEFLATE_MEMORY_LEVEL: Final = 6
"""Memory level for sent data: 64 KiB for each connection, instead of zlib's 256. Any peer can read the result."""
STREAM_BYTES: Final = 128 << 10
"""Memory of both directions of a stream, with a window of 32 KiB for received data."""
PIECE_BYTES_MAX: Final = 64 << 10
"""At most this many bytes are decompressed in one step."""

SNAPPY_BLOCK_BYTES_MAX: Final = 65_536
SNAPPY_CHUNK_BYTES_MAX: Final = 76_490 + 4
"""The largest chunk: a block that does not shrink, and its checksum; Go's reader refuses longer chunks too."""
_SNAPPY_STREAM_ID: Final = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _UNCOMPRESSED, _SKIPPABLE, _STREAM_ID = 0x00, 0x01, 0x80, 0xFF
_HEAD: Final = struct.Struct("<I")
_HEAD_BYTES: Final = 4


class DeflateReader:
    """A raw deflate stream, for reading."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(-zlib.MAX_WBITS)
        self.holds_output = False
        """Whether more can be returned without another byte from the peer."""

    @property
    def is_finished(self) -> bool:
        """Whether the peer has ended its stream."""
        return self._stream.eof

    def decompress(self, data: memoryview, bytes_max: int) -> tuple[int, Bytes]:
        """Return how many bytes of ``data`` were read, and at most ``bytes_max`` decompressed ones.

        Return 0 and no bytes if more of the stream has to arrive first. Raises MalformedMessage.
        """
        piece, bytes_max = data[:PIECE_BYTES_MAX], min(bytes_max, PIECE_BYTES_MAX)
        try:
            plain = self._stream.decompress(piece, bytes_max)
        except zlib.error as error:
            raise MalformedMessage(f"deflate stream: {error}") from None
        self.holds_output = len(plain) == bytes_max
        return len(piece) - len(self._stream.unconsumed_tail), plain


class DeflateWriter:
    """A raw deflate stream, for writing."""

    def __init__(self, level: int) -> None:
        self._stream = zlib.compressobj(level, zlib.DEFLATED, -DEFLATE_WINDOW_BITS, DEFLATE_MEMORY_LEVEL)

    def compress(self, data: Bytes) -> bytes:
        """Return the bytes to send, from which the peer can read all of ``data`` at once."""
        return self._stream.compress(data) + self._stream.flush(zlib.Z_SYNC_FLUSH)


class SnappyReader:
    """A stream in snappy's framing format, for reading chunk by chunk."""

    is_finished: Final = False

    def __init__(self) -> None:
        self._plain = memoryview(b"")
        """Decompressed bytes that were not returned yet: the rest of one block."""
        self._has_begun = False

    @property
    def holds_output(self) -> bool:
        """Whether more can be returned without another byte from the peer."""
        return len(self._plain) > 0

    def decompress(self, data: memoryview, bytes_max: int) -> tuple[int, Bytes]:
        """Return how many bytes of ``data`` were read, and at most ``bytes_max`` decompressed ones.

        Return 0 and no bytes if more of the stream has to arrive first. Raises MalformedMessage.
        """
        read_bytes = 0
        if not self._plain:
            if len(data) < _HEAD_BYTES:
                return 0, b""
            kind, size_bytes = data[0], _HEAD.unpack_from(data)[0] >> 8
            if size_bytes > SNAPPY_CHUNK_BYTES_MAX:
                raise MalformedMessage(f"snappy chunk of {size_bytes} bytes: longer than {SNAPPY_CHUNK_BYTES_MAX}")
            read_bytes = _HEAD_BYTES + size_bytes
            if len(data) < read_bytes:
                return 0, b""
            self._plain = memoryview(self._read_chunk(kind, data[:read_bytes]))
        plain, self._plain = self._plain[:bytes_max], self._plain[bytes_max:]
        return read_bytes, plain

    def _read_chunk(self, kind: int, chunk: memoryview) -> bytes:
        if kind == _STREAM_ID:
            if bytes(chunk) != _SNAPPY_STREAM_ID:
                raise MalformedMessage("snappy stream identifier: not sNaPpY")
            self._has_begun = True
            return b""
        if not self._has_begun:
            raise MalformedMessage("snappy stream: no stream identifier")
        if kind >= _SKIPPABLE:
            return b""
        if kind > _UNCOMPRESSED:
            raise MalformedMessage(f"snappy chunk of kind {kind}: not supported")
        block = chunk[2 * _HEAD_BYTES :]
        if len(chunk) < 2 * _HEAD_BYTES:
            raise MalformedMessage("snappy chunk: no room for its checksum")
        plain = bytes(block) if kind == _UNCOMPRESSED else _decompress_block(block)
        if len(plain) > SNAPPY_BLOCK_BYTES_MAX:
            raise MalformedMessage(f"snappy block of {len(plain)} bytes: longer than {SNAPPY_BLOCK_BYTES_MAX}")
        if _HEAD.unpack_from(chunk, _HEAD_BYTES)[0] != _mask_checksum(plain):
            raise MalformedMessage("snappy block: wrong checksum")
        return plain


class SnappyWriter:
    """A stream in snappy's framing format, for writing."""

    def __init__(self) -> None:
        self._has_begun = False

    def compress(self, data: Bytes) -> bytes:
        """Return the bytes to send, from which the peer can read all of ``data`` at once."""
        parts = [] if self._has_begun else [_SNAPPY_STREAM_ID]
        self._has_begun = True
        view = memoryview(data)
        for start in range(0, len(view), SNAPPY_BLOCK_BYTES_MAX):
            plain = bytes(view[start : start + SNAPPY_BLOCK_BYTES_MAX])
            kind, block = _COMPRESSED, bytes(cramjam.snappy.compress_raw(plain))
            # as the format's own writers do: a block that saves less than an eighth is sent uncompressed
            if len(block) >= len(plain) - len(plain) // 8:
                kind, block = _UNCOMPRESSED, plain
            head = _HEAD.pack(len(block) + _HEAD_BYTES << 8 | kind)
            parts += (head, _HEAD.pack(_mask_checksum(plain)), block)
        return b"".join(parts)


def _decompress_block(block: memoryview) -> bytes:
    try:
        size_bytes = cramjam.snappy.decompress_raw_len(block)
        if size_bytes > SNAPPY_BLOCK_BYTES_MAX:
            raise MalformedMessage(f"snappy block of {size_bytes} bytes: longer than {SNAPPY_BLOCK_BYTES_MAX}")
        return bytes(cramjam.snappy.decompress_raw(block))
    except (cramjam.DecompressionError, OSError, ValueError, OverflowError) as error:
        raise MalformedMessage(f"snappy block: {error}") from None


def _mask_checksum(plain: bytes) -> int:
    """Return the CRC-32C of ``plain`` in the masked form of the framing format."""
    checksum: int = google_crc32c.value(plain)
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF
