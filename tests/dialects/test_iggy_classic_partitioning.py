"""The partition of a messages key: hashes and choices that the reference server makes (iggy.md A2)."""

from __future__ import annotations

import pytest

from lading.dialects.iggy.classic.partitioning import murmur3_128, partition_by_murmur3

# key -> hash, partition of 3
REFERENCE = [
    (b"k1", 0xF51EAA11E82EF5188FF1825F5A8325FA, 2),
    (b"user-123", 0x77A8A7CCDBBC3E65F0E77D24BB13717B, 1),
    (b"order-key", 0x3104B45B0C4F8EF599B4B5B746FA7DA5, 3),
]


@pytest.mark.parametrize(("key", "hashed", "partition"), REFERENCE)
def test_reference_keys(key: bytes, hashed: int, partition: int) -> None:
    assert murmur3_128(key) == hashed
    assert partition_by_murmur3(key, 3) == partition


@pytest.mark.parametrize("size", range(1, 64))
def test_every_length_lands_in_a_partition(size: int) -> None:
    for partitions in (1, 2, 7, 1000):
        assert 1 <= partition_by_murmur3(bytes(range(size)), partitions) <= partitions
