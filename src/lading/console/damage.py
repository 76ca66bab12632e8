"""Damaged messages that reads of the console met: reported on the page that lacks them, and in the list of topics."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Final

from ..client.read_bounds import TopicPartition
from ..model.ranges import OffsetSpan, clip_ranges, merge_ranges
from ..transports.interface import TopicMeta
from ..transports.losses import describe_damage

DamagedOffsets = Mapping[int, Iterable[OffsetSpan]]
"""Ranges by partition."""


class MetDamage:
    """The damage that reads have met so far, of all topics; any thread may use it.

    A server knows of damage only once it has read there, and for a directory no process keeps track of it.
    """

    def __init__(self) -> None:
        self._ranges: dict[TopicPartition, tuple[bytes | None, list[OffsetSpan]]] = {}
        self._lock: Final = threading.Lock()

    def add(self, meta: TopicMeta, damaged: DamagedOffsets) -> None:
        """Note the damage that a read of a topic met."""
        with self._lock:
            for number, ranges in damaged.items():
                topic_id, known = self._ranges.get((meta.name, number), (meta.topic_id, []))
                if topic_id != meta.topic_id:
                    # a new topic has this name now
                    known = []
                if merged := merge_ranges([*known, *ranges]):
                    self._ranges[meta.name, number] = meta.topic_id, merged

    def of(self, meta: TopicMeta) -> dict[int, list[OffsetSpan]]:
        """Return the known damage of a topic for each damaged partition, without offsets that were deleted since."""
        found = {}
        with self._lock:
            for part in meta.partitions:
                topic_id, known = self._ranges.get((meta.name, part.number), (None, []))
                kept = clip_ranges(known, part.first_offset, part.end_offset)
                if kept and topic_id == meta.topic_id:
                    found[part.number] = kept
        return found

    def describe(self, meta: TopicMeta, damaged: DamagedOffsets) -> str | None:
        """Note the damage that a read of a topic met, and return a sentence about it; None without damage."""
        self.add(meta, damaged)
        return describe_damage(damaged, len(meta.partitions)) or None
