"""Memory for open chunks, shared by all partitions so that only busy ones hold some."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

_SIZES: Final = (64 << 10, 256 << 10, (1 << 20) + (256 << 10), 4 << 20)
_KEPT_EACH: Final = (64, 16, 8, 2)


class Buffer:
    """A buffer as an array for kernels and as a view for the file."""

    __slots__ = ("array", "size", "view")

    def __init__(self, array: NDArray[np.uint8]) -> None:
        self.size = array.size
        self.array = array
        self.view = array.data


class BufferPool:
    """Buffers of a few sizes, kept for reuse; larger ones are not kept."""

    def __init__(self) -> None:
        self._free: dict[int, list[Buffer]] = {size: [] for size in _SIZES}
        self._kept = dict(zip(_SIZES, _KEPT_EACH, strict=True))

    def take(self, size: int) -> Buffer:
        """Return a buffer of at least ``size`` bytes with undefined content."""
        for fit in _SIZES:
            if size <= fit:
                free = self._free[fit]
                return free.pop() if free else Buffer(np.empty(fit, np.uint8))
        return Buffer(np.empty(size, np.uint8))

    def give(self, buffer: Buffer) -> None:
        """Return a buffer to the pool; the caller may not use it any more."""
        free = self._free.get(buffer.size)
        if free is not None and len(free) < self._kept[buffer.size]:
            free.append(buffer)
