"""Producer ids: each is given once, over restarts, the loss of the catalog, and backups that are restored."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...log.producer_table import ProducerTable
from ..core.topology import Partition
from .append import KafkaAppender

IDS_AT_ONCE: Final = 1000
IDS_PER_SECOND: Final = 1 << 20
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

    def skip_given(self, partitions: Iterable[Partition], now_us: int) -> None:
        """Skip the ids that were given before the catalog was lost, or after the backup that it was restored from.

        The batches of the second owner would be taken for repetitions of what the first one sent. The partitions know
        the ids of what was written; those of producers that write only now are found by no log, so that ids continue
        at a number that is higher the later it is: no broker gives more than ``IDS_PER_SECOND``.
        """
        written = [
            one.identity.producer_id for place in partitions for one in self._produced.list_active_producers(place)
        ]
        highest = max((one for one in written if one < ID_MAX), default=0)
        self._table.skip_ids(max(highest + IDS_AT_ONCE, now_us * IDS_PER_SECOND // 1_000_000))
