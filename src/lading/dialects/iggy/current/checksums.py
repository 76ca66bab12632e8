"""XXH3-64 over frames and batches, for one at a time; kernels do it for many (iggy-current.md B4)."""

from __future__ import annotations

import struct
from typing import Final

import xxhash

from .layout import (
    BASE_OFFSET,
    BATCH_CHECKSUM,
    MESSAGE_COUNT,
    PRODUCER,
    PRODUCER_END,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    PRODUCER_SEQUENCE,
)

_HASHED_END: Final = MESSAGE_COUNT + 4
_U64: Final = struct.Struct("<Q")

Bytes = bytes | bytearray | memoryview


def hash_bytes(data: Bytes) -> int:
    """Return the XXH3-64 of some bytes, with seed 0."""
    hashed: int = xxhash.xxh3_64_intdigest(data)
    return hashed


def hash_batch(head: Bytes, frame_checksums: Bytes) -> int:
    """Return the checksum of a batch: of the fields in its head, then the checksums of its frames in order.

    Who numbered its messages is between them, if somebody has.
    """
    producer = b""
    if head[PRODUCER]:
        id_and_epoch = bytes(head[PRODUCER_ID : PRODUCER_EPOCH + 2])
        producer = bytes((head[PRODUCER],)) + id_and_epoch + bytes(head[PRODUCER_SEQUENCE:PRODUCER_END])
    return hash_bytes(b"".join((head[:BATCH_CHECKSUM], head[MESSAGE_COUNT:_HASHED_END], producer, frame_checksums)))


def base_offset(head: Bytes) -> int:
    """Return the offset of the first message of a batch."""
    value: int = _U64.unpack_from(head, BASE_OFFSET)[0]
    return value
