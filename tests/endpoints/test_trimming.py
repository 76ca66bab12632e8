"""When heaps are trimmed: after a process has grown, and is quiet."""

from __future__ import annotations

from dataclasses import dataclass

from lading.endpoints.base.trimming import GROWN_BYTES, MUCH_GROWN_BYTES, QUIET_BYTES, HeapTrimmer


@dataclass
class Figures:
    received_bytes: float = 0.0
    resident_bytes: int = 100 << 20
    trims: int = 0

    def trim(self) -> None:
        self.trims += 1
        self.resident_bytes -= GROWN_BYTES // 2


def test_a_process_that_has_grown_is_trimmed_once_it_is_quiet() -> None:
    figures = Figures()
    trimmer = HeapTrimmer(lambda: figures.received_bytes, figures.trim, lambda: figures.resident_bytes)
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
    trimmer = HeapTrimmer(lambda: figures.received_bytes, figures.trim, lambda: figures.resident_bytes)
    figures.resident_bytes -= GROWN_BYTES
    trimmer.look()
    figures.resident_bytes += GROWN_BYTES
    trimmer.look()
    assert figures.trims == 1


def test_a_process_that_has_grown_by_a_lot_is_trimmed_under_load() -> None:
    figures = Figures()
    trimmer = HeapTrimmer(lambda: figures.received_bytes, figures.trim, lambda: figures.resident_bytes)
    figures.resident_bytes += MUCH_GROWN_BYTES
    figures.received_bytes += 10 * QUIET_BYTES
    trimmer.look()
    assert figures.trims == 1
