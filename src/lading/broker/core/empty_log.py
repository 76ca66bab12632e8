"""A log without records, for topics that are described and have nothing to read."""

from __future__ import annotations

from typing import cast

from ...log.interface import PartitionLog, ReadableLog, SegmentInfo, Span


class EmptyLog(ReadableLog):
    """A log without records, in memory: it begins and ends at 0."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.epoch = self.first_offset = self.next_offset = self.high_watermark = self.last_stable_offset = 0
        self.epochs = [(0, 0)]
        self.tail = None

    @property
    def size_bytes(self) -> int:
        return 0

    @property
    def segments_count(self) -> int:
        return 1

    @property
    def rolls_count(self) -> int:
        return 0

    def read(self, offset: int, max_bytes: int) -> Span | None:
        return None

    def damaged_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return []

    def offset_at(self, timestamp_us: int) -> int:
        return 0

    def unavailable_ranges(self, first: int, end: int, count_max: int | None = None) -> list[tuple[int, int, int]]:
        return []

    @property
    def has_unavailable(self) -> bool:
        return False

    def aborted_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return []

    def control_ranges(self, first: int, end: int) -> list[tuple[int, int]]:
        return []

    def segments(self) -> list[SegmentInfo]:
        return []


def create_empty_log(topic_id: bytes) -> PartitionLog:
    """Return a log for readers alone: its owner has to refuse what would append to it."""
    return cast("PartitionLog", EmptyLog(topic_id))
