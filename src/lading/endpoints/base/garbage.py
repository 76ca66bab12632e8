"""Collection of garbage in small pieces: while Python looks for cycles, no client is served.

Python's own full collection visits all objects, which takes a third of a second with ten thousand partitions. Here each
collection visits only new objects: survivors are frozen, so that the next one skips them, and the next one comes before
many objects are new. A frozen object is freed like any other when the last reference to it goes; only cycles of frozen
objects stay. Parts of the broker that live long and come and go, connections, topics and partitions, therefore cut
their cycles themselves when they end. Cycles that remain anyway, from here or from a library, are found by a full
collection if the process has grown and no client would notice (``trimming``).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

YOUNG_OBJECTS, PER_MIDDLE = 700, 5
"""New objects before the youngest are collected, and collections of these before one of the next older. The first is
Python's own, set here since the command line has put collections off for its start; the second is half of it."""
YOUNG_PER_FULL: Final = 2
"""Collections of the middle generation, one every 4,200 new objects, before a collection of all objects created since
the last one. That takes 1.5 ms, or five times as long if the collecting thread loses its core to others meanwhile."""


@contextmanager
def collecting_in_pieces() -> Iterator[None]:
    """Until the end of the block, let each full collection visit only objects created since the one before."""
    thresholds = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, PER_MIDDLE, YOUNG_PER_FULL)
    gc.callbacks.append(_freeze_survivors)
    try:
        yield
    finally:
        gc.callbacks.remove(_freeze_survivors)
        gc.set_threshold(*thresholds)


def collect_all() -> None:
    """Collect among all objects, frozen ones included: it takes a third of a second with ten thousand partitions."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    # Python delays the next full collection by the number of long-lived objects, which is near zero after this
    gc.collect()


def _freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
