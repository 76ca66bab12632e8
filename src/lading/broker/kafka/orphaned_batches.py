"""Batches in the log that no open transaction knows, such as those whose producer was forgotten with the catalog."""

from __future__ import annotations

from collections.abc import Callable

from ...model.errors import Refusal
from ..core.topology import Partition
from .append import KafkaAppender, producer_of


class OrphanedBatches:
    """Partitions with such batches, by writer, until a control record ends them."""

    def __init__(self, produced: KafkaAppender) -> None:
        self._produced = produced
        self._places: set[tuple[Partition, bytes]] = set()

    def __bool__(self) -> bool:
        return bool(self._places)

    def add(self, partition: Partition, writer: bytes) -> None:
        """Note that the writer has something open in the partition."""
        self._places.add((partition, writer))

    def mark(self, partition: Partition, writer: bytes, committed: bool, now_us: int) -> None:
        """Write the control record. Raises Refusal if the log does not take it."""
        known = partition.writers and partition.writers.get(writer)
        self._produced.write_transaction_marker(partition, writer, known.epoch if known else 0, committed, now_us)
        self._places.discard((partition, writer))

    def mark_all(self, is_committed: Callable[[int], bool], now_us: int) -> list[Refusal]:
        """Write all control records, by the decision for the producer id; return the refusals of those that wait."""
        refused = []
        for partition, writer in list(self._places):
            try:
                self.mark(partition, writer, is_committed(producer_of(writer)), now_us)
            except Refusal as refusal:
                refused.append(refusal)
        return refused

    def on_partition_deleted(self, partition: Partition) -> None:
        """End nothing in it any more."""
        self._places = {one for one in self._places if one[0] is not partition}
