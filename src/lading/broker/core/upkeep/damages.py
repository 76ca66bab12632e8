"""Disk faults of partitions, logged once: damage that reading finds, and appends that are refused.

Damage is reported as long as its offsets are kept; present refusals are in ``PartitionLog.refusal``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final

from ....log.interface import Damage
from ....model.errors import Refusal
from ..component import Component, partitions_of
from ..topology import Partition, Topic

LOG: Final = logging.getLogger("lading.broker")
RANGES_MAX: Final = 20
"""At most this many ranges of a partition are reported; a failing disk may have thousands."""


class Damages(Component):
    """The partitions of a broker in which messages are damaged."""

    def __init__(self) -> None:
        self._places: dict[Partition, set[tuple[int, int]]] = {}

    def load(self, topics: Sequence[Topic]) -> None:
        """Watch all partitions."""
        self.watch(partitions_of(topics))

    def watch(self, partitions: Iterable[Partition]) -> None:
        """Watch these partitions for damage that is found from now on; the opener reports what it found itself."""
        for partition in partitions:
            if partition.log.recovery.damage:
                self._places[partition] = {(one.first, one.end) for one in partition.log.recovery.damage}
            partition.log.on_damage = partial(self._report_damage, partition)
            partition.log.on_refusal = partial(_tell_refusal, partition)
            if partition.log.refusal is not None:
                _tell_refusal(partition, partition.log.refusal)

    def _report_damage(self, partition: Partition, damage: Sequence[Damage]) -> None:
        known = self._places.setdefault(partition, set())
        for one in damage:
            if (one.first, one.end) not in known:
                known.add((one.first, one.end))
                LOG.warning("%s: %s; readers are given what is intact of them and moved on", partition, one)

    def on_partition_deleted(self, partition: Partition) -> None:
        """Stop reporting damage of a deleted partition."""
        self._places.pop(partition, None)

    def sentences(self) -> dict[str, str]:
        """Return sentences with the damaged offsets of each partition that are still kept."""
        known = {}
        for partition in self._places:
            log = partition.log
            ranges = sorted(set(log.damaged_ranges(log.first_offset, log.next_offset)))
            if ranges:
                named = ", ".join(f"{first} to {end - 1}" for first, end in ranges[:RANGES_MAX])
                more = f" and {len(ranges) - RANGES_MAX} other ranges" if len(ranges) > RANGES_MAX else ""
                known[str(partition)] = (
                    f"offsets {named}{more} are damaged on the disk; what is intact of them is served"
                )
        return known


def _tell_refusal(partition: Partition, refusal: Refusal | None) -> None:
    if refusal is None:
        LOG.info("%s accepts messages again", partition)
    else:
        LOG.warning("%s accepts no messages: %s", partition, refusal)
