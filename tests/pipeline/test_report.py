"""What the report page says of redrives: messages that were sent again are read, and counted, once more."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lading.pipeline.report import page
from lading.tables.formats.manifest import Manifest


def manifest(number: int, **counts: int) -> Manifest:
    return Manifest(
        pipeline="p", number=number, run="r", written_us=number, ranges=(), files=(), counts=Counter(counts),
        schemas={}, positions={}, covered={},
    )  # fmt: skip


def test_redrives_are_counted_once() -> None:
    runs = [
        manifest(1, read=100, good=80, routed=10, quarantined=10),
        manifest(2, read=7, good=6, routed=0, quarantined=1),
    ]
    shown = page("p", runs, Path(), redriven=7)
    assert "good + routed + quarantined = read: 86 + 10 + 11 = 107" in shown
    assert "7 of the quarantined were sent again" in shown
    assert "without them 86 good + 10 routed + 4 in quarantine = 100" in shown
    assert "sent again" not in page("p", runs, Path())
