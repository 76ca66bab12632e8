"""Memory for what a peer sends, used again when nobody looks at it any more.

Fresh memory costs a page fault for every 4 KiB, about as much as receiving into it, and the allocator gives an answer
of eight MiB back to the system each time in a thread that only fetches.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

SMALL_BYTES: Final = 256 << 10
"""Below this, memory comes from the allocator, which has it at hand."""
KEPT_BYTES_MAX: Final = 16 << 20
"""Memory larger than this is given back to the system."""

_pool: deque[NDArray[np.uint8]] = deque(maxlen=3)
"""What one reader needs that decodes one answer while the next one comes."""


def memory(size_bytes: int) -> NDArray[np.uint8]:
    """So many bytes, with whatever was in them before."""
    if size_bytes < SMALL_BYTES:
        return np.empty(size_bytes, np.uint8)
    return np.asarray(_Lease(size_bytes))[:size_bytes]


class _Lease:
    """An array protocol of its own, so that every view made of it keeps the lease and not only the memory."""

    def __init__(self, size_bytes: int) -> None:
        try:
            self._memory = _pool.popleft()
        except IndexError:
            self._memory = np.empty(0, np.uint8)
        if self._memory.size < size_bytes:
            # an eighth more, so that answers of about one size fit the first time
            self._memory = np.empty(size_bytes + size_bytes // 8, np.uint8)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self._memory.__array_interface__

    def __del__(self) -> None:
        if self._memory.size <= KEPT_BYTES_MAX:
            _pool.append(self._memory)
