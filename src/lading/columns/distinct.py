"""Estimate of the number of distinct values, in bounded memory: the K smallest hashes (KMV), mergeable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import xxhash
from numpy.typing import NDArray

HASHES_KEPT: Final = 1024
"""Up to this number the count is exact; above it the relative standard error is about 1 / sqrt(K), 3 %."""


class DistinctCount:
    """Counts distinct byte strings."""

    __slots__ = ("_smallest",)

    def __init__(self) -> None:
        self._smallest: NDArray[np.uint64] = np.empty(0, np.uint64)

    def add(self, values: Iterable[bytes], *, seed: int = 0) -> None:
        """Count these values; equal bytes under different seeds are different values."""
        hashes = np.fromiter((xxhash.xxh3_64_intdigest(value, seed) for value in values), np.uint64)
        self._keep(hashes)

    def merge(self, other: DistinctCount) -> None:
        """Add the values that ``other`` counted."""
        self._keep(other._smallest)

    @property
    def exact(self) -> bool:
        """Whether ``count`` is exact rather than an estimate."""
        return len(self._smallest) < HASHES_KEPT

    @property
    def count(self) -> int:
        """The number of distinct values that were seen."""
        if self.exact:
            return len(self._smallest)
        return round((HASHES_KEPT - 1) * 2.0**64 / float(self._smallest[-1]))

    def _keep(self, hashes: NDArray[np.uint64]) -> None:
        if not self.exact:
            hashes = hashes[hashes < self._smallest[-1]]
        if len(hashes):
            self._smallest = np.unique(np.concatenate((self._smallest, hashes)))[:HASHES_KEPT]
