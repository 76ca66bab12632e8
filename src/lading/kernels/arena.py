"""Memory for the columns of one batch, used again when the last of them is gone.

Fresh memory costs a page fault for every 4 KiB, as much as decoding into it. Each batch takes one arena for all its
columns; an arena goes back to a small pool when Arrow lets go of the last buffer in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

ALIGNMENT: Final = 64
POOL_BYTES_MAX: Final = 16 << 20
"""An arena larger than this is given back to the system instead."""

_NOTHING: Final[NDArray[np.uint8]] = np.empty(0, np.uint8)
_pool: deque[NDArray[np.uint8]] = deque(maxlen=3)


class Arena:
    """Memory with room for buffers of the given sizes; a size of -1 is a buffer that nobody wants.

    ``memory`` is all of it, ``places`` where each buffer begins in it (-1: nowhere), 64-byte aligned.
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
