"""When heaps are trimmed: after a process has grown, and is quiet."""

from __future__ import annotations

from dataclasses import dataclass

from lading.endpoints.base.trimming import (
    COLLECT_GROWN_BYTES,
    COLLECT_MUCH_GROWN_BYTES,
    GROWN_BYTES,
    IDLE_BYTES,
    MUCH_GROWN_BYTES,
    QUIET_BYTES,
    HeapTrimmer,
)


@dataclass
class Figures:
    received_bytes: float = 0.0
    resident_bytes: int = 100 << 20
    trims: int = 0
    collections: int = 0

    def trim(self) -> None:
        self.trims += 1
        self.resident_bytes -= GROWN_BYTES // 2

    def collect(self) -> None:
        self.collections += 1

    def trimmer(self) -> HeapTrimmer:
        return HeapTrimmer(lambda: self.received_bytes, self.trim, self.collect, lambda: self.resident_bytes)


def test_a_process_that_has_grown_is_trimmed_once_it_is_quiet() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    trimmer.look()
    figures.resident_bytes += GROWN_BYTES
    figures.received_bytes += QUIET_BYTES
    trimmer.look()
    assert figures.trims == 0
    trimmer.look()
    assert figures.trims == 1
    trimmer.on_trimmed()
    # what is left is in use: it is not tried again and again
    for _ in range(5):
        trimmer.look()
    assert figures.trims == 1
    figures.resident_bytes += GROWN_BYTES
    trimmer.look()
    assert figures.trims == 2


def test_a_process_that_shrinks_by_itself_is_measured_from_there() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    figures.resident_bytes -= GROWN_BYTES
    trimmer.look()
    figures.resident_bytes += GROWN_BYTES
    trimmer.look()
    assert figures.trims == 1


def test_a_process_that_has_grown_by_a_lot_is_trimmed_under_load() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    figures.resident_bytes += MUCH_GROWN_BYTES
    figures.received_bytes += 10 * QUIET_BYTES
    trimmer.look()
    assert figures.trims == 1


def test_what_trimming_does_not_give_back_is_looked_for_once_in_an_idle_process() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    for _ in range(COLLECT_GROWN_BYTES * 2 // GROWN_BYTES + 1):
        figures.resident_bytes += GROWN_BYTES
        figures.received_bytes += IDLE_BYTES
        trimmer.look()
        trimmer.on_trimmed()
    trims, collections = figures.trims, [figures.collections]
    # it is quiet, but somebody asks
    figures.received_bytes += IDLE_BYTES
    for _ in range(2):
        trimmer.look()
        collections.append(figures.collections)
    assert collections == [0, 0, 1]
    # what was garbage goes back to the system
    assert figures.trims == trims + 1
    trimmer.on_trimmed()
    for _ in range(5):
        trimmer.look()
    assert figures.collections == 1


def test_under_load_garbage_is_looked_for_where_the_process_has_grown_by_a_lot() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    for _ in range(COLLECT_MUCH_GROWN_BYTES // MUCH_GROWN_BYTES + 1):
        figures.resident_bytes += MUCH_GROWN_BYTES
        for _ in range(2):
            figures.received_bytes += 10 * QUIET_BYTES
            trimmer.look()
            trimmer.on_trimmed()
    assert (figures.collections, figures.trims) == (1, 4)


def test_what_a_start_takes_is_no_garbage() -> None:
    figures = Figures()
    trimmer = figures.trimmer()
    figures.resident_bytes += COLLECT_GROWN_BYTES + GROWN_BYTES
    trimmer.settle()
    for _ in range(3):
        trimmer.look()
        trimmer.on_trimmed()
    assert (figures.trims, figures.collections) == (1, 0)
