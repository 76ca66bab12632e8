"""Streams of compressed NSQ connections, against zlib's and snappy's own readers and writers."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import cramjam
import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lading.dialects.nsq.compression import (
    PIECE_BYTES_MAX,
    SNAPPY_CHUNK_BYTES_MAX,
    STREAM_BYTES,
    DeflateReader,
    DeflateWriter,
    SnappyReader,
    SnappyWriter,
)
from lading.model.errors import MalformedMessage

STREAM_ID = b"\xff\x06\x00\x00sNaPpY"
READERS: list[Callable[[], Any]] = [DeflateReader, SnappyReader]


def read_all(reader: Any, data: bytes, room_bytes: int) -> tuple[bytes, int]:
    """All that a reader gives for ``data``, and how many bytes it leaves for later."""
    unread, plain = memoryview(data), b""
    while True:
        read_bytes, part = reader.decompress(unread, room_bytes)
        assert len(part) <= room_bytes
        unread, plain = unread[read_bytes:], plain + bytes(part)
        if not (read_bytes or part):
            assert not reader.holds_output
            return plain, len(unread)


def deflate(data: bytes, level: int = 6) -> bytes:
    stream = zlib.compressobj(level, zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush(zlib.Z_SYNC_FLUSH)


def snappy(data: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(data))


def chunk(kind: int, plain: bytes, block: bytes | None = None) -> bytes:
    crc = google_crc32c.value(plain)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    block = plain if block is None else block
    return struct.pack("<I", len(block) + 4 << 8 | kind) + struct.pack("<I", masked) + block


@pytest.mark.parametrize(("new_reader", "compress"), [(DeflateReader, deflate), (SnappyReader, snappy)])
@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=3000), times=st.integers(1, 60), room_bytes=st.integers(1, 1 << 17), cut=st.integers(0))
def test_readers_read_what_other_writers_wrote(
    new_reader: Callable[[], Any],
    compress: Callable[[bytes], bytes],
    data: bytes,
    times: int,
    room_bytes: int,
    cut: int,
) -> None:
    data *= times
    stream = compress(data)
    reader, cut = new_reader(), cut % (len(stream) + 1)
    plain, left_bytes = read_all(reader, stream[:cut], max(room_bytes, 64))
    more, rest_bytes = read_all(reader, stream[cut - left_bytes :], max(room_bytes, 64))
    assert (plain + more, rest_bytes) == (data, 0)


@settings(max_examples=30, deadline=None)
@given(parts=st.lists(st.binary(min_size=1, max_size=2000), min_size=1, max_size=8), level=st.integers(0, 9))
def test_other_readers_read_each_write_at_once(parts: list[bytes], level: int) -> None:
    deflated, deflater = zlib.decompressobj(-15), DeflateWriter(level)
    snapped, written = SnappyWriter(), b""
    for count, part in enumerate(parts, 1):
        part *= 50
        assert deflated.decompress(deflater.compress(part)) == part
        written += snapped.compress(part)
        assert bytes(cramjam.snappy.decompress(written)) == b"".join(one * 50 for one in parts[:count])


def test_snappy_sends_as_it_is_what_does_not_shrink() -> None:
    assert SnappyWriter().compress(b"xyz") == STREAM_ID + chunk(1, b"xyz")


def test_snappy_passes_over_what_may_be_skipped() -> None:
    skipped = struct.pack("<I", 3 << 8 | 0xFE) + b"\0\0\0" + struct.pack("<I", 0 << 8 | 0x80)
    stream = STREAM_ID + skipped + chunk(1, b"a") + STREAM_ID + chunk(0, b"b" * 100, bytes(snappy(b"b" * 100)[18:]))
    assert read_all(SnappyReader(), stream, 10) == (b"a" + b"b" * 100, 0)


@pytest.mark.parametrize(
    "stream",
    [
        chunk(1, b"a"),
        STREAM_ID + chunk(2, b"a"),
        b"\xff\x06\x00\x00snappy",
        STREAM_ID + chunk(1, b"a", b"b"),
        STREAM_ID + struct.pack("<I", 3 << 8 | 1) + b"abc",
        STREAM_ID + chunk(0, b"a", b"\xff\xff\xff\xff\x0f"),
        STREAM_ID + chunk(0, b"", b""),
        STREAM_ID + struct.pack("<I", SNAPPY_CHUNK_BYTES_MAX + 1 << 8 | 1),
        STREAM_ID + chunk(1, bytes(65_537)),
    ],
)
def test_snappy_refuses_what_no_writer_sends(stream: bytes) -> None:
    with pytest.raises(MalformedMessage, match="snappy"):
        read_all(SnappyReader(), stream, 1 << 16)


def test_deflate_refuses_what_is_none_and_ends_with_its_stream() -> None:
    with pytest.raises(MalformedMessage, match="deflate"):
        read_all(DeflateReader(), b"\xff" * 20, 100)
    stream, reader = zlib.compressobj(6, zlib.DEFLATED, -15), DeflateReader()
    assert reader.decompress(memoryview(stream.compress(b"end") + stream.flush()), 100)[1] == b"end"
    assert reader.is_finished


@pytest.mark.parametrize("kind", ["deflate", "snappy"])
def test_a_small_stream_that_stands_for_much_takes_no_memory(kind: str) -> None:
    stream = deflate(bytes(16 << 20), 9) if kind == "deflate" else snappy(bytes(16 << 20))
    reader: Any = DeflateReader() if kind == "deflate" else SnappyReader()
    unread, plain_bytes = memoryview(stream), 0
    tracemalloc.start()
    try:
        while True:
            read_bytes, part = reader.decompress(unread, 1 << 20)
            assert len(part) <= PIECE_BYTES_MAX
            unread, plain_bytes = unread[read_bytes:], plain_bytes + len(part)
            if not (read_bytes or part):
                break
        assert tracemalloc.get_traced_memory()[1] < 4 * PIECE_BYTES_MAX
    finally:
        tracemalloc.stop()
    assert plain_bytes == 16 << 20


def test_a_stream_holds_no_more_than_is_counted_for_it() -> None:
    """zlib's own words: (1 << window + 2) + (1 << level + 9) to write, 1 << window and 7 KiB to read."""
    from lading.dialects.nsq import compression

    written_bytes = (1 << compression.DEFLATE_WINDOW_BITS + 2) + (1 << compression.DEFLATE_MEMORY_LEVEL + 9)
    assert written_bytes + (1 << zlib.MAX_WBITS) + (7 << 10) <= STREAM_BYTES
