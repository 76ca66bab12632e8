"""How far this process grows at most while something runs, from the system's own mark: it costs the run nothing.

Free memory that the process has already would hide growth: what ``malloc`` has is given back to the system first, and
free blocks of Python's allocator are occupied. Free parts of a page stay; they are less than what objects add.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

_CLEAR_REFS: Final = Path("/proc/self/clear_refs")
_STATUS: Final = Path("/proc/self/status")
_RESET_PEAK: Final = "5"
_CLASS: Final = re.compile(r"^ +\d+ +(\d+) +\d+ +\d+ +(\d+)$", re.MULTILINE)
"""A line of ``sys._debugmallocstats``: the size of a class of blocks, and how many of them are free."""
_POOLS: Final = re.compile(r"^(\d+) unused pools \* (\d+) bytes", re.MULTILINE)
_LARGEST_BYTES: Final = 512
"""Larger objects are ``malloc``'s."""
_BYTES_OVERHEAD: Final = sys.getsizeof(b"")


class ProcessGrowth:
    """The growth since ``begin_growth``."""

    def __init__(self) -> None:
        self._ballast = _occupy_free_blocks()
        _return_free_memory()
        self._free_bytes = _count_free_bytes()
        _CLEAR_REFS.write_text(_RESET_PEAK)
        self._began_bytes = _read_status("VmRSS")

    def read_bytes(self) -> int:
        """Return the most memory that was taken at a time since the beginning, rather more than less."""
        return _read_status("VmHWM") - self._began_bytes + self._free_bytes


def begin_growth() -> ProcessGrowth | None:
    """Begin to measure; None on a system that keeps no mark, or for a Python with another allocator."""
    return ProcessGrowth() if _is_supported() else None


@cache
def _is_supported() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK)
        _return_free_memory()
        return bool(_CLASS.search(_read_statistics()) and _read_status("VmHWM"))
    except (OSError, AttributeError, LookupError):
        return False


def _read_status(name: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    raise LookupError(name)


def _return_free_memory() -> None:
    ctypes.CDLL(None).malloc_trim(0)


def _read_statistics() -> str:
    """Return what Python's allocator writes about itself, to the process's standard error."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        return file.read().decode()


def _count_free_bytes() -> int:
    """Return the free bytes in pools of one size; pools without a size are new, and not in memory yet."""
    return sum(int(size) * int(count) for size, count in _CLASS.findall(_read_statistics()))


def _occupy_free_blocks() -> list[Any]:
    """Return objects that take the free blocks of each size, and then the pools that have no size yet."""
    statistics = _read_statistics()
    ballast: list[Any] = []
    for size, count in _CLASS.findall(statistics):
        ballast += [_create_object(int(size)) for _ in range(int(count))]
    pools = _POOLS.search(_read_statistics())
    assert pools is not None
    # one more begins a new arena
    blocks_each = int(pools[2]) // _LARGEST_BYTES
    ballast += [_create_object(_LARGEST_BYTES) for _ in range((int(pools[1]) + 1) * blocks_each)]
    return ballast


def _create_object(size_bytes: int) -> object:
    if size_bytes < _BYTES_OVERHEAD:
        return object() if size_bytes == object().__sizeof__() else int.from_bytes(os.urandom(5)) | 1 << 40
    return bytes(size_bytes - _BYTES_OVERHEAD)
