"""The five codecs of a record batch, by cramjam, with limited memory (kafka.md 2.6)."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import cramjam
import numpy as np
import xxhash
from numpy.typing import NDArray

from lading.model.errors import MalformedMessage

from .limits import (
    DECOMPRESSING_BYTES_MAX,
    DECOMPRESSING_BYTES_UNCOUNTED,
    PLAIN_BYTES_FREE,
    PLAIN_BYTES_MAX,
    PLAIN_RATIO_MAX,
)

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

XERIAL: Final = b"\x82SNAPPY\x00"
"""Start of the framing that Java's clients put around blocks of Snappy; librdkafka sends a single raw block."""
_XERIAL_HEAD_BYTES: Final = 16
_FIRST_RATIO: Final = 8
_LEAST_ROOM_BYTES: Final = 64 << 10
_NO_ROOM: Final = "write whole buffer"

_codecs: Any = cramjam
_INTO: Final[dict[int, Callable[[Any, Any], int]]] = {
    GZIP: _codecs.gzip.decompress_into,
    LZ4: _codecs.lz4.decompress_into,
    ZSTD: _codecs.zstd.decompress_into,
}
_ERRORS: Final = (cramjam.DecompressionError, OSError, ValueError, OverflowError)


class DecompressionBudget:
    """Memory for decompression, shared by all threads of a process, and reserved before it is allocated."""

    def __init__(self, bytes_max: int = DECOMPRESSING_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._taken_bytes = 0
        self._given = threading.Condition()

    @contextmanager
    def hold(self, size_bytes: int) -> Iterator[None]:
        """Reserve ``size_bytes`` for the block; wait while others have reserved too much for that.

        A thread with a reservation must not request more: two could wait for each other.
        """
        if size_bytes <= DECOMPRESSING_BYTES_UNCOUNTED:
            yield
            return
        with self._given:
            # a single thread always has its turn, however small the budget is
            self._given.wait_for(lambda: not self._taken_bytes or self._taken_bytes + size_bytes <= self._bytes_max)
            self._taken_bytes += size_bytes
        try:
            yield
        finally:
            with self._given:
                self._taken_bytes -= size_bytes
                self._given.notify_all()


BUDGET: Final = DecompressionBudget()


def plain_bytes_max(size_bytes: int) -> int:
    """Return the decompressed size that is allowed for a producer's batch of ``size_bytes``."""
    return min(max(PLAIN_RATIO_MAX * size_bytes, PLAIN_BYTES_FREE), PLAIN_BYTES_MAX)


def decompress(
    codec: int, data: memoryview, spare_bytes: int = 0, *, bytes_max: int = PLAIN_BYTES_MAX
) -> tuple[NDArray[np.uint8], int]:
    """Decompress ``data``. Returns memory with the records and ``spare_bytes`` after them, and the records' size.

    Memory is allocated by the size of ``data`` and grows up to ``bytes_max``, whatever size the bytes declare. Raises
    MalformedMessage for invalid or larger data; the error does not keep the memory alive.
    """
    with decompressing(codec, data, spare_bytes, bytes_max=bytes_max) as done:
        return done


@contextmanager
def decompressing(
    codec: int,
    data: memoryview,
    spare_bytes: int = 0,
    *,
    bytes_max: int = PLAIN_BYTES_MAX,
    scratch: NDArray[np.uint8] | None = None,
) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Decompress for a ``with`` block, as ``decompress`` does; the memory stays reserved until the block ends.

    ``scratch`` is used instead of new memory if it is large enough. The block must not raise: the exception would keep
    the memory.
    """
    if codec == LZ4 and scratch is not None:
        size = _lz4_blocks(data, scratch[: min(scratch.size - spare_bytes, bytes_max)])
        if size is not None:
            yield scratch, size
            return
    blocks: list[memoryview] = []
    if codec == SNAPPY:
        blocks = _snappy_blocks(data)
        room = sum(map(_snappy_size, blocks))
        if room > bytes_max:
            raise MalformedMessage(f"the batch claims {room} bytes of records; the maximum is {bytes_max}")
    elif codec in _INTO:
        room = max(_FIRST_RATIO * len(data), _LEAST_ROOM_BYTES)
    else:
        raise MalformedMessage(f"the batch has the unknown compression codec {codec}")
    while True:
        room = min(room, bytes_max)
        is_scratch = scratch is not None and room + spare_bytes <= scratch.size
        with BUDGET.hold(0 if is_scratch else room):
            if is_scratch:
                assert scratch is not None
                target = scratch
                room = min(scratch.size - spare_bytes, bytes_max)
            else:
                target = np.empty(room + spare_bytes, np.uint8)
            if codec == SNAPPY:
                size, failure = _unsnap_into(blocks, target[:room])
            else:
                size, failure = _decompress_into(codec, data, target[:room])
            if not failure:
                yield target, size
                return
            # before anything is raised: an exception keeps the variables of all functions on its way alive
            del target
        if _NO_ROOM not in failure:
            raise MalformedMessage(f"the batch cannot be decompressed as {NAMES[codec]}: {failure}")
        if room >= bytes_max:
            raise MalformedMessage(
                f"the batch of {len(data)} bytes becomes more than {bytes_max} as {NAMES[codec]}; send smaller batches"
            )
        room *= 4


def _decompress_into(codec: int, data: memoryview, target: NDArray[np.uint8]) -> tuple[int, str]:
    """Return the size, and the library's error text, which is empty without an error."""
    try:
        return _INTO[codec](np.frombuffer(data, np.uint8), target), ""
    except _ERRORS as error:
        return 0, str(error) or type(error).__name__


def _lz4_blocks(data: memoryview, target: NDArray[np.uint8]) -> int | None:
    """Decompress a frame of independent blocks into ``target`` and return the size.

    Returns None for frames that only the library's reader can handle: linked blocks, dictionaries, several frames,
    larger output than ``target``, invalid bytes. For small batches this takes a tenth of the time. Checksums inside are
    not checked, as the batch has its own.
    """
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC or data[4] & 0xE1 != _LZ4_INDEPENDENT:
        return None
    flags = data[4]
    block_bytes_max = 1 << (8 + 2 * (data[5] >> 4 & 7))
    at = 7 + (8 if flags & 8 else 0)
    size = 0
    try:
        while True:
            (length,) = _LZ4_LENGTH.unpack_from(data, at)
            at += 4
            if not length:
                at += 4 if flags & 4 else 0
                return size if at == len(data) else None
            stored, length = length & _LZ4_STORED, length & ~_LZ4_STORED
            room = target[size : size + block_bytes_max]
            if length > len(data) - at or (stored and length > room.size):
                return None
            if stored:
                room[:length] = np.frombuffer(data[at : at + length], np.uint8)
                size += length
            else:
                size += _codecs.lz4.decompress_block_into(data[at : at + length], room)
            at += length + (4 if flags & 16 else 0)
    except (struct.error, *_ERRORS):
        return None


def compress_lz4(data: NDArray[np.uint8], room_bytes: int = 0) -> NDArray[np.uint8]:
    """Return an LZ4 frame of independent blocks: Java's clients refuse linked ones, which cramjam's own frames have.

    ``room_bytes`` are left free in front of it.
    """
    blocks = [data[at : at + _LZ4_BLOCK_BYTES] for at in range(0, data.size, _LZ4_BLOCK_BYTES)]
    bound = sum(_codecs.lz4.compress_block_bound(block) + _LZ4_LENGTH.size for block in blocks)
    target = np.empty(room_bytes + len(_LZ4_HEAD) + bound + len(_LZ4_END), np.uint8)
    out = target.data
    at = room_bytes + len(_LZ4_HEAD)
    out[room_bytes:at] = _LZ4_HEAD
    for block in blocks:
        start = at + _LZ4_LENGTH.size
        size = _codecs.lz4.compress_block_into(block, target[start:], store_size=False)
        stored = size >= block.size
        if stored:
            size = block.size
            target[start : start + size] = block
        _LZ4_LENGTH.pack_into(out, at, size | (_LZ4_STORED if stored else 0))
        at = start + size
    out[at : at + len(_LZ4_END)] = _LZ4_END
    return target[: at + len(_LZ4_END)]


_LZ4_BLOCK_BYTES: Final = 1 << 20
_LZ4_DESCRIPTOR: Final = b"\x60\x60"
"""Version 1, independent blocks; blocks of 1 MiB at most."""
_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_INDEPENDENT: Final = 0x60
_LZ4_LENGTH: Final = struct.Struct("<I")
_LZ4_HEAD: Final = _LZ4_MAGIC + _LZ4_DESCRIPTOR + bytes((xxhash.xxh32_intdigest(_LZ4_DESCRIPTOR) >> 8 & 0xFF,))
_LZ4_STORED: Final = 1 << 31
_LZ4_END: Final = bytes(4)


def _snappy_blocks(data: memoryview) -> list[memoryview]:
    """Return the single raw block, or the blocks of the Java framing, each of which follows its size."""
    if bytes(data[: len(XERIAL)]) != XERIAL:
        return [data]
    blocks = []
    at = _XERIAL_HEAD_BYTES
    while at < len(data):
        size = struct.unpack_from(">I", data, at)[0] if len(data) - at >= 4 else len(data)
        if size > len(data) - at - 4:
            raise MalformedMessage("a Snappy block of the batch is truncated", at=at)
        blocks.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return blocks


def _unsnap_into(blocks: list[memoryview], target: NDArray[np.uint8]) -> tuple[int, str]:
    """Return the size, and the error text, which is empty without an error."""
    at = 0
    for block in blocks:
        size = _snappy_size(block)
        try:
            written = _codecs.snappy.decompress_raw_into(np.frombuffer(block, np.uint8), target[at : at + size])
        except _ERRORS as error:
            return 0, str(error) or type(error).__name__
        if written != size:
            return 0, "a block is not as long as it says"
        at += size
    return at, ""


def _snappy_size(block: memoryview) -> int:
    """Return the size that a raw block declares; no block shrinks to less than a 24th (a 3-byte copy makes 64)."""
    value = shift = 0
    for byte in block[:5]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value > 24 * len(block) + 64:
                raise MalformedMessage(f"a Snappy block of {len(block)} bytes claims to become {value}")
            return value
    raise MalformedMessage("a Snappy block does not say what it becomes")
