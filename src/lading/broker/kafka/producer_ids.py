"""Producer ids: each is given once, over restarts and over the loss of the catalog."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...log.producer_table import ProducerTable
from ..core.topology import Partition
from .append import KafkaAppender

IDS_AT_ONCE: Final = 1000
ID_MAX: Final = 1 << 62
"""Higher ones are a client's invention."""


class ProducerIds:
    """Gives ids of a block that the catalog has noted as taken."""

    def __init__(self, table: ProducerTable, produced: KafkaAppender) -> None:
        self._table = table
        self._produced = produced
        self._next_id = self._end_id = 0

    def take(self) -> int:
        """Return an id that nobody had."""
        if self._next_id == self._end_id:
            self._next_id = self._table.take_ids(IDS_AT_ONCE)
            self._end_id = self._next_id + IDS_AT_ONCE
        self._next_id += 1
        return self._next_id - 1

    def skip_known(self, partitions: Iterable[Partition]) -> None:
        """Skip the producer ids that the partitions know: if the catalog was lost, it would assign them again.

        The batches of the second owner would then be taken for repetitions of what the first one sent.
        """
        written = [
            one.identity.producer_id for place in partitions for one in self._produced.list_active_producers(place)
        ]
        highest = max((one for one in written if one < ID_MAX), default=None)
        if highest is not None:
            self._table.skip_ids(highest + IDS_AT_ONCE)
