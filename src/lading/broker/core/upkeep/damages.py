"""Disk faults of partitions, logged once: damage that reading finds, and appends that are refused.

Damage is named as long as its offsets are kept; what is refused at present stands in ``PartitionLog.refusal``.
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
"""As many ranges of a partition are named; a disk that fails may have thousands."""


class Damages(Component):
    """The partitions of a broker in which messages are damaged."""

    def __init__(self) -> None:
        self._places: dict[Partition, set[tuple[int, int]]] = {}

    def load(self, topics: Sequence[Topic]) -> None:
        """Watch all partitions."""
        self.watch(partitions_of(topics))

    def watch(self, partitions: Iterable[Partition]) -> None:
        """Watch these partitions for damage found from now on; what opening found is reported by the opener."""
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
        """Name its damage no more."""
        self._places.pop(partition, None)

    def sentences(self) -> dict[str, str]:
        """Return which offsets are damaged, by partition, as far as that is kept."""
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
