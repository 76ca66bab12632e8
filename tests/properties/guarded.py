"""Memory that ends at a page nobody may touch: a kernel that reads or writes past its array ends the process."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
from numpy.typing import NDArray

_NONE = 0


class Guarded:
    """A buffer of up to ``capacity`` bytes whose last byte lies right before a forbidden page."""

    def __init__(self, capacity: int) -> None:
        pages = -(-capacity // mmap.PAGESIZE)
        self._map = mmap.mmap(-1, (pages + 1) * mmap.PAGESIZE)
        self._array = np.frombuffer(self._map, np.uint8)
        self.capacity = pages * mmap.PAGESIZE
        libc = ctypes.CDLL(None, use_errno=True)
        fence = ctypes.c_void_p(self._array.ctypes.data + self.capacity)
        if libc.mprotect(fence, mmap.PAGESIZE, _NONE):
            raise OSError(ctypes.get_errno(), "mprotect")

    def holding(self, data: bytes | bytearray) -> NDArray[np.uint8]:
        """The data, right up to the fence; good until the next call."""
        array = self._array[self.capacity - len(data) : self.capacity]
        array[:] = np.frombuffer(data, np.uint8)
        return array
