"""Memory that is not needed any more: cycles of objects are collected, and what is free goes back to the system.

Python looks for cycles by itself after a number of allocations. A look through everything takes a third of a second
where there are ten thousand partitions, in which nobody is answered, so it is left to the moments below; the younger
objects are looked through as ever, in a few milliseconds. And the C library keeps what it may need again, without a
limit: a thread's heap that grew for a large request stays as it is. So a broker that is quiet, and has grown since it
was last trimmed, collects its garbage and trims its heaps in a worker. Under load, where what is free is used again,
nothing is trimmed unless the broker has grown by a lot.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .services import Services

LOOK_S: Final = 5.0
GROWN_BYTES: Final = 24 << 20
"""A process that has grown by less is left alone."""
MUCH_GROWN_BYTES: Final = 256 << 20
"""A process that has grown by so much is trimmed also under load: it may be garbage."""
FULL_COLLECTIONS_NEVER: Final = 1 << 30
"""So many collections of younger objects come before Python looks through all by itself."""
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
        """Trim if the process is quiet and has grown since the last time, or has grown by a lot."""
        resident_bytes, received_bytes = self._resident_bytes(), self._received_bytes()
        is_quiet = received_bytes - self._seen_bytes < QUIET_BYTES
        self._seen_bytes = received_bytes
        self._floor_bytes = min(self._floor_bytes, resident_bytes)
        grown_bytes = resident_bytes - self._floor_bytes
        is_due = grown_bytes >= (GROWN_BYTES if is_quiet else MUCH_GROWN_BYTES)
        if is_due and not self._is_trimming:
            self._is_trimming = True
            self._trim()

    def on_trimmed(self) -> None:
        """Take what is left for what is in use, so that it is not tried again and again."""
        self._floor_bytes, self._is_trimming = self._resident_bytes(), False


@contextmanager
def trimming(services: Services) -> Iterator[None]:
    """Collect garbage until the end of the block, and trim the heaps of this process where the C library can."""
    loop = asyncio.get_running_loop()
    malloc_trim = _find_malloc_trim()
    received = services.metrics.received_bytes.values

    def trim() -> None:
        gc.collect()
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
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], FULL_COLLECTIONS_NEVER)
    try:
        yield
    finally:
        timer.cancel()
        gc.set_threshold(*thresholds)


def _find_malloc_trim() -> Callable[[int], object]:
    """Return what gives free memory back to the system; nothing does where the C library has no such function."""
    try:
        library = ctypes.CDLL(None)
        malloc_trim: Callable[[int], object] = library.malloc_trim
    except (OSError, AttributeError):
        return lambda _: None
    library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, HEAP_TOP_BYTES)
    return malloc_trim
