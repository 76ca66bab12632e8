"""Positions of consumers, in their protocol's own terms (design.md Names), written to the catalog together and a little
later.

Iggy stores the last consumed offset, native groups the next one with its epoch. A stored position is in the catalog
at most ``position_flush_us`` later and when the broker stops; a crash may repeat what was consumed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final

from ...log.catalog import Catalog
from ...log.catalog_rows import PositionRow
from ...model.errors import Refusal
from ...runtime.turns import ROWS_AT_ONCE, Turn
from .component import NEVER_US, Component, partitions_of
from .counters import Counters
from .pending_result import PendingResult
from .position import PositionKey, StoredPosition
from .topology import Partition, Topic

WRITE_S: Final = 0.002
"""How long positions are written in one transaction, some hundred of them, before others have their turn."""


class Positions(Component):
    """Positions of all partitions; they live on the partitions, and changes wait here for the catalog."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        flush_us: int,
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
    ) -> None:
        self._catalog = catalog
        self._call_at_end_of_pass = call_at_end_of_pass
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

    def find(self, partition: Partition, key: PositionKey) -> StoredPosition | None:
        """Return a position, or None if none is stored. Raises NotLoaded if it is not on this machine."""
        return partition.positions.get(key)

    def confirm(self, partition: Partition, key: PositionKey) -> PendingResult[None] | None:
        """Return a result for a client to wait for until its position is stored; None here, as it need not wait."""
        return None

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
        """Forget a consumer in one partition; does nothing if it has no position there."""
        if key in partition.positions:
            del partition.positions[key]
            self._changed.pop((partition, key), None)
            self._catalog.remove_positions(key.protocol, partition.topic.uuid, key.consumer, partition.number)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Remove the positions of the partition, unwritten ones too."""
        for key in partition.positions:
            self._changed.pop((partition, key), None)
        partition.positions.clear()

    @property
    def due_us(self) -> int:
        """Return when positions must be written to the catalog."""
        return self._due_us

    def tick(self, now_us: int) -> None:
        """Write the changes when they are due, those that are many in the passes of the event loop after this."""
        if self._due_us <= now_us and self.flush_some():
            self._call_at_end_of_pass(self._write_on)

    def _write_on(self) -> None:
        # what is refused is due at the next tick
        with suppress(Refusal):
            if self.flush_some():
                self._call_at_end_of_pass(self._write_on)

    def close(self, now_us: int) -> None:
        """Write the changes."""
        while self.flush_some():
            pass

    def flush_some(self) -> bool:
        """Write the oldest changes, those of one turn. Return whether there are more.

        If that is refused, they wait for the next time.
        """
        written: list[tuple[Partition, PositionKey]] = []
        if self._changed:
            self._catalog.put_positions(self._take_rows(written))
            self._counters.positions_written += len(written)
        for one in written:
            del self._changed[one]
        if self._changed:
            return True
        self._due_us = NEVER_US
        return False

    def _take_rows(self, taken: list[tuple[Partition, PositionKey]]) -> Iterator[PositionRow]:
        """Yield rows until the turn is over, and note in ``taken`` whose they are."""
        turn = Turn(WRITE_S)
        for partition, key in self._changed:
            taken.append((partition, key))
            yield PositionRow(
                key.protocol, partition.topic.uuid, partition.number, key.consumer, *partition.positions[key]
            )
            if not len(taken) % ROWS_AT_ONCE and turn.is_over():
                return
