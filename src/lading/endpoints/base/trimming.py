"""Memory that was freed, given back to the system: the C library keeps what it may need again, without a limit.

A thread's heap that grew for a large request stays as it is. So a broker that is quiet, and has grown since it was last
trimmed, trims its heaps in a worker. Under load nothing is trimmed: what is free is used again then.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .services import Services

LOOK_S: Final = 5.0
GROWN_BYTES: Final = 24 << 20
"""A process that has grown by less is left alone."""
QUIET_BYTES: Final = 16 << 20
"""A broker that received less than this since the look before is quiet."""
MAPPED_BYTES: Final = 8 << 20
"""What is at least so large is mapped by itself, and unmapped when it is freed. The C library raises this limit to
32 MiB by itself, after which the heap of each thread keeps the largest that it ever had."""
HEAP_TOP_BYTES: Final = 16 << 20
"""So much free memory stays at the end of a heap."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_STATM: Final = Path("/proc/self/statm")


def read_resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not say."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class HeapTrimmer:
    """Decides when to trim."""

    def __init__(
        self,
        received_bytes: Callable[[], float],
        trim: Callable[[], object],
        resident_bytes: Callable[[], int] = read_resident_bytes,
    ) -> None:
        """``received_bytes``: of all requests so far. ``trim`` may return early: it calls ``on_trimmed`` when done."""
        self._received_bytes = received_bytes
        self._trim = trim
        self._resident_bytes = resident_bytes
        self._seen_bytes = 0.0
        self._floor_bytes = resident_bytes()
        self._is_trimming = False

    def look(self) -> None:
        """Trim if the process is quiet and has grown since the last time."""
        resident_bytes, received_bytes = self._resident_bytes(), self._received_bytes()
        is_quiet = received_bytes - self._seen_bytes < QUIET_BYTES
        self._seen_bytes = received_bytes
        self._floor_bytes = min(self._floor_bytes, resident_bytes)
        if resident_bytes - self._floor_bytes >= GROWN_BYTES and is_quiet and not self._is_trimming:
            self._is_trimming = True
            self._trim()

    def on_trimmed(self) -> None:
        """Take what is left for what is in use, so that it is not tried again and again."""
        self._floor_bytes, self._is_trimming = self._resident_bytes(), False


@contextmanager
def trimming(services: Services) -> Iterator[None]:
    """Trim the heaps of this process until the end of the block, where the C library can."""
    loop = asyncio.get_running_loop()
    try:
        library = ctypes.CDLL(None)
        malloc_trim = library.malloc_trim
    except (OSError, AttributeError):
        yield
        return
    library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, HEAP_TOP_BYTES)
    received = services.metrics.received_bytes.values

    def trim() -> None:
        done = loop.run_in_executor(services.workers, malloc_trim, 0)
        done.add_done_callback(lambda _: trimmer.on_trimmed())

    trimmer = HeapTrimmer(lambda: sum(received.values()), trim)
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        try:
            trimmer.look()
        finally:
            timer = loop.call_later(LOOK_S, look)

    timer = loop.call_later(LOOK_S, look)
    try:
        yield
    finally:
        timer.cancel()
