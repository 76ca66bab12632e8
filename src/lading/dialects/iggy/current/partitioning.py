"""Which partition a messages key means: XXH32 of its bytes with seed 0, modulo the partitions (iggy-current.md B2)."""

from __future__ import annotations

import xxhash


def choose_by_key(key: bytes, partitions_count: int) -> int:
    """Choose the partition, counted from 0, of a key among ``partitions_count``."""
    hashed: int = xxhash.xxh32_intdigest(key)
    return hashed % partitions_count
