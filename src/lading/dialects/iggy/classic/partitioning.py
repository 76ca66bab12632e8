"""Which partition a messages key means, by the hash of each release (docs/reference/protocols/iggy.md#releases)."""

from __future__ import annotations

import struct
from typing import Final

import xxhash

_MASK: Final = (1 << 64) - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


def partition_by_murmur3(key: bytes, partitions_count: int) -> int:
    """Choose the partition, counted from 1, of a key among ``partitions_count``, as releases up to 0.0.40 do."""
    return murmur3_128(key) % partitions_count or partitions_count


def partition_by_xxhash32(key: bytes, partitions_count: int) -> int:
    """Choose the partition, counted from 1, of a key as releases do that count from 1 and hash by xxHash32."""
    return xxhash.xxh32_intdigest(key) % partitions_count or partitions_count


def partition_by_xxhash32_from_0(key: bytes, partitions_count: int) -> int:
    """Choose the partition of a key as releases do that count from 0 and hash by xxHash32; the result counts from 1."""
    return xxhash.xxh32_intdigest(key) % partitions_count + 1


def number_of_consumer(ident: int | str) -> int:
    """Return the number under which the position of a consumer is stored; for a name its xxHash32, as in Iggy."""
    return xxhash.xxh32_intdigest(ident.encode()) if isinstance(ident, str) else ident


def murmur3_128(key: bytes) -> int:
    """Return the MurmurHash3_x64_128 of a key, with seed 0, as one number with the second half on top."""
    h1 = h2 = 0
    whole = len(key) - len(key) % 16
    for k1, k2 in struct.iter_unpack("<QQ", key[:whole]):
        h1 = (_rotate_left(h1 ^ _mix_first(k1), 27) + h2) * 5 + 0x52DCE729 & _MASK
        h2 = (_rotate_left(h2 ^ _mix_second(k2), 31) + h1) * 5 + 0x38495AB5 & _MASK
    k1, k2 = struct.unpack("<QQ", key[whole:].ljust(16, b"\0"))
    h1 ^= _mix_first(k1) ^ len(key)
    h2 ^= _mix_second(k2) ^ len(key)
    h1 = h1 + h2 & _MASK
    h2 = h2 + h1 & _MASK
    h1, h2 = _mix_bits(h1), _mix_bits(h2)
    h1 = h1 + h2 & _MASK
    return (h2 + h1 & _MASK) << 64 | h1


def _rotate_left(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _MASK


def _mix_first(word: int) -> int:
    return _rotate_left(word * _C1 & _MASK, 31) * _C2 & _MASK


def _mix_second(word: int) -> int:
    return _rotate_left(word * _C2 & _MASK, 33) * _C1 & _MASK


def _mix_bits(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _MASK
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
    return value ^ value >> 33
