"""Memory that is not needed any more goes back to the system.

The C library keeps free memory for later, without a limit: a thread's heap that grew for a large request stays as it
is. So a quiet broker that has grown since it was last trimmed trims its heaps in a worker. Under load free memory is
used again, so nothing is trimmed unless the broker has grown by a lot.

Cycles of objects are collected in small pieces (``garbage``). If a broker has grown although its heaps were trimmed, a
full collection looks for them; if a client may be waiting, only after growth by a lot.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from ...kernels import engine
from .garbage import collect_all, collecting_in_pieces
from .services import Services

LOOK_S: Final = 5.0
GROWN_BYTES: Final = 24 << 20
"""A process that has grown by less is left alone."""
MUCH_GROWN_BYTES: Final = 256 << 20
"""A process that has grown by this much is trimmed also under load: it may be garbage."""
QUIET_BYTES: Final = 16 << 20
"""A broker that received less than this since the look before is quiet."""
COLLECT_GROWN_BYTES: Final = 256 << 20
"""An idle process that has grown by this since the last full collection makes another one. It is not less, because a
client that comes meanwhile waits for 60 ms, or 0.6 s with ten thousand partitions, and because none was ever found:
what adversaries make the broker take comes back without (tests/faults/test_memory_returns.py).
"""
COLLECT_MUCH_GROWN_BYTES: Final = 512 << 20
"""A busy process that has grown by this is collected too: a client may wait for it, but more would be worse."""
IDLE_BYTES: Final = 4 << 10
"""A broker that received less than this since the look before is idle: a few heartbeats."""
MAPPED_BYTES: Final = 8 << 20
"""Allocations of at least this size are mapped by themselves, and unmapped when it is freed.

The C library raises this limit to 32 MiB by itself, after which the heap of each thread keeps the largest that it ever
had.
"""
HEAP_TOP_BYTES: Final = 16 << 20
"""How much free memory stays at the end of a heap."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_STATM: Final = Path("/proc/self/statm")


def read_resident_bytes() -> int:
    """Return the resident memory that is this process' own; 0 if the system does not say.

    Pages of mapped files are not counted: those of the log come with writes and reads, are not garbage, and the system
    takes them back whenever it needs them.
    """
    try:
        resident, of_files = map(int, _STATM.read_text().split()[1:3])
        return (resident - of_files) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


class HeapTrimmer:
    """Decides when to trim, and when to look for garbage everywhere."""

    def __init__(
        self,
        received_bytes: Callable[[], float],
        trim: Callable[[], object],
        collect: Callable[[], object],
        resident_bytes: Callable[[], int] = read_resident_bytes,
    ) -> None:
        """``received_bytes``: of all requests so far. ``trim`` may return early: it calls ``on_trimmed`` when done."""
        self._received_bytes = received_bytes
        self._trim = trim
        self._collect = collect
        self._resident_bytes = resident_bytes
        self._seen_bytes = 0.0
        self._floor_bytes = self._collected_bytes = resident_bytes()
        self._is_trimming = False

    def look(self) -> None:
        """Trim if the process is quiet and has grown since the last time, or has grown by a lot.

        Memory that trimming did not return may be garbage: then that is collected before.
        """
        resident_bytes, received_bytes = self._resident_bytes(), self._received_bytes()
        came_bytes = received_bytes - self._seen_bytes
        self._seen_bytes = received_bytes
        self._floor_bytes = min(self._floor_bytes, resident_bytes)
        self._collected_bytes = min(self._collected_bytes, resident_bytes)
        if self._is_trimming:
            return
        trim_from_bytes = GROWN_BYTES if came_bytes < QUIET_BYTES else MUCH_GROWN_BYTES
        collect_from_bytes = COLLECT_GROWN_BYTES if came_bytes < IDLE_BYTES else COLLECT_MUCH_GROWN_BYTES
        is_due = resident_bytes - self._floor_bytes >= trim_from_bytes
        if not is_due and resident_bytes - self._collected_bytes >= collect_from_bytes:
            is_due = True
            self._collect()
            # what is left now is in use, so that it is not looked through again and again
            self._collected_bytes = resident_bytes
        if is_due:
            self._is_trimming = True
            self._trim()

    def settle(self) -> None:
        """Treat the present memory as memory in use: kernels were loaded."""
        self._collected_bytes = self._resident_bytes()

    def on_trimmed(self) -> None:
        """Treat the remaining memory as memory in use, so that trimming is not repeated in vain."""
        self._floor_bytes, self._is_trimming = self._resident_bytes(), False


@contextmanager
def trimming(services: Services) -> Iterator[None]:
    """Collect garbage in pieces until the block ends, and trim this process's heaps if the C library can."""
    loop = asyncio.get_running_loop()
    malloc_trim = _find_malloc_trim()
    received = services.metrics.received_bytes.values

    def trim() -> None:
        done = loop.run_in_executor(services.workers, malloc_trim, 0)
        done.add_done_callback(lambda _: trimmer.on_trimmed())

    trimmer = HeapTrimmer(lambda: sum(received.values()), trim, collect_all)
    timer: asyncio.TimerHandle
    loaded = -1

    def look() -> None:
        nonlocal timer, loaded
        try:
            if loaded != engine.count_loaded():
                loaded = engine.count_loaded()
                trimmer.settle()
            trimmer.look()
        finally:
            timer = loop.call_later(LOOK_S, look)

    timer = loop.call_later(LOOK_S, look)
    try:
        with collecting_in_pieces():
            yield
    finally:
        timer.cancel()


def _find_malloc_trim() -> Callable[[int], object]:
    """Return the function that returns free memory to the system; it does nothing if the C library lacks one."""
    try:
        library = ctypes.CDLL(None)
        malloc_trim: Callable[[int], object] = library.malloc_trim
    except (OSError, AttributeError):
        return lambda _: None
    library.mallopt(_M_MMAP_THRESHOLD, MAPPED_BYTES)
    library.mallopt(_M_TRIM_THRESHOLD, HEAP_TOP_BYTES)
    return malloc_trim
