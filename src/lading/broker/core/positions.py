"""Where consumers are, in their protocol's own terms (design.md Names), written to the catalog together and a little
later.

Iggy stores the last consumed offset, native groups the next one with its epoch. A stored position is in the catalog
at most ``position_flush_us`` later and when the broker stops; a crash may repeat what was consumed in between.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...log.catalog import Catalog
from ...log.catalog_rows import PositionRow
from .component import NEVER_US, Component, partitions_of
from .counters import Counters
from .position import PositionKey, StoredPosition
from .topology import Partition, Topic


class Positions(Component):
    """Positions of all partitions; they live on the partitions, and changes wait here for the catalog."""

    def __init__(self, catalog: Catalog, counters: Counters, flush_us: int) -> None:
        self._catalog = catalog
        self._counters = counters
        self._flush_us = flush_us
        self._changed: dict[tuple[Partition, PositionKey], None] = {}
        self._due_us = NEVER_US

    def load(self, topics: Sequence[Topic]) -> None:
        """Put what the catalog holds on the partitions."""
        by_place = {(partition.topic.uuid, partition.number): partition for partition in partitions_of(topics)}
        for row in self._catalog.positions():
            partition = by_place.get((row.topic, row.partition))
            if partition is not None:
                partition.positions[PositionKey(row.protocol, row.consumer)] = StoredPosition(
                    row.offset, row.epoch, row.extra, row.updated_us
                )

    def store(self, partition: Partition, key: PositionKey, position: StoredPosition) -> None:
        """Replace a position; in memory at once, in the catalog soon."""
        partition.positions[key] = position
        self._changed[partition, key] = None
        if self._due_us == NEVER_US:
            self._due_us = position.updated_us + self._flush_us
            self.on_due()

    def remove(self, topic: Topic, key: PositionKey) -> None:
        """Forget a consumer of one topic."""
        for partition in topic.partitions:
            partition.positions.pop(key, None)
            self._changed.pop((partition, key), None)
        self._catalog.remove_positions(key.protocol, topic.uuid, key.consumer)

    def remove_from(self, partition: Partition, key: PositionKey) -> None:
        """Forget a consumer in one partition; that it has no position there is no error."""
        if key in partition.positions:
            del partition.positions[key]
            self._changed.pop((partition, key), None)
            self._catalog.remove_positions(key.protocol, partition.topic.uuid, key.consumer, partition.number)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Write nothing more about it."""
        for key in partition.positions:
            self._changed.pop((partition, key), None)
        partition.positions.clear()

    @property
    def due_us(self) -> int:
        """When the catalog must be told."""
        return self._due_us

    def tick(self, now_us: int) -> None:
        """Write the changes when they are due."""
        if self._due_us <= now_us:
            self.close(now_us)

    def close(self, now_us: int) -> None:
        """Write the changes."""
        self._counters.positions_written += self.flush()

    def flush(self) -> int:
        """Write every change; gives how many. Where that is refused they wait for the next flush."""
        rows = [
            PositionRow(key.protocol, partition.topic.uuid, partition.number, key.consumer, *partition.positions[key])
            for partition, key in self._changed
        ]
        if rows:
            self._catalog.put_positions(rows)
        self._changed.clear()
        self._due_us = NEVER_US
        return len(rows)
