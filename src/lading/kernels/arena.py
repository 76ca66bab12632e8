"""Memory for the columns of one batch, and for other large pieces, used again once no array refers to it.

Fresh memory costs a page fault for every 4 KiB, as much as decoding into it, and giving it back costs about the same
again. Each batch takes one arena for all its columns; an arena returns to a small pool when Arrow releases the last
buffer in it. Memory that NumPy reads comes from a ``Pool`` of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ALIGNMENT: Final = 64
POOL_BYTES_MAX: Final = 16 << 20
"""An arena larger than this is given back to the system instead."""

SMALL_BYTES: Final = 256 << 10
"""Below this, memory comes from the allocator, which has it at hand."""

_NOTHING: Final[NDArray[np.uint8]] = np.empty(0, np.uint8)
_pool: deque[NDArray[np.uint8]] = deque(maxlen=3)


class Arena:
    """Memory with room for buffers of the given sizes; a size of -1 is a buffer that is not wanted.

    ``memory`` is all of it, ``places`` the position of each buffer in it (-1: absent), 64-byte aligned.
    """

    def __init__(self, sizes_bytes: Sequence[int]) -> None:
        need = sum(-(-size // ALIGNMENT) for size in sizes_bytes if size >= 0) * ALIGNMENT + ALIGNMENT
        try:
            self.memory = _pool.popleft()
        except IndexError:
            self.memory = _NOTHING
        if self.memory.size < need:
            # a quarter more, so that batches of about one size fit the first time
            self.memory = np.empty(need + need // 4, np.uint8)
        self._address: int = self.memory.ctypes.data
        self._sizes = sizes_bytes
        places = []
        at = -self._address % ALIGNMENT
        for size in sizes_bytes:
            places.append(at if size >= 0 else -1)
            at += -(-size // ALIGNMENT) * ALIGNMENT if size >= 0 else 0
        self.places = np.array(places, np.int64)

    def buffers(self) -> list[pa.Buffer | None]:
        """The buffers for Arrow; each keeps the arena."""
        return [
            pa.foreign_buffer(self._address + place, size, self) if size >= 0 else None
            for place, size in zip(self.places.tolist(), self._sizes, strict=True)
        ]

    def __del__(self) -> None:
        if self.memory.size <= POOL_BYTES_MAX:
            _pool.append(self.memory)


class Pool:
    """Memory for one purpose, so that its pieces are of about one size; at most ``pieces`` wait to be used again."""

    def __init__(self, pieces: int) -> None:
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=pieces)

    def memory(self, size_bytes: int) -> NDArray[np.uint8]:
        """Return this many bytes, with their old content; they return to the pool with the last view of them."""
        if size_bytes < SMALL_BYTES:
            return np.empty(size_bytes, np.uint8)
        return np.asarray(_Lease(self._free, size_bytes))[:size_bytes]


class _Lease:
    """An array for NumPy by its own protocol, so that views keep the lease and not only the memory."""

    def __init__(self, free: deque[NDArray[np.uint8]], size_bytes: int) -> None:
        self._free = free
        try:
            self._memory = free.popleft()
        except IndexError:
            self._memory = _NOTHING
        if self._memory.size < size_bytes:
            self._memory = np.empty(size_bytes + size_bytes // 8, np.uint8)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        if self._memory.size <= POOL_BYTES_MAX:
            self._free.append(self._memory)
