"""Upkeep of logs in which something happened: what may lag (watermark, index, states) is written a little later."""

from __future__ import annotations

from typing import Final

from .attempts import Attempts
from .component import NEVER_US, SOON_US, Component
from .idle_logs import IdleLogs
from .maintenance import TICK_US
from .topology import Partition

LATER_US: Final = 1_000_000
"""A log never wants to be maintained later than this."""


class LogUpkeep(Component):
    """The logs that have something to write down, each with the time from which on it is to be maintained.

    First of the parts that hear of a sync, and so the last that forgets a deleted partition: the others may mark it
    as active when they forget it.
    """

    def __init__(self, attempts: Attempts, idle_logs: IdleLogs) -> None:
        self._attempts = attempts
        self._idle_logs = idle_logs
        self._lively: dict[Partition, int] = {}

    def mark_active(self, partition: Partition) -> None:
        """Something happened in the partition: its log has things to write down in the next moments."""
        self._lively[partition] = SOON_US
        self.on_due()

    on_synced = mark_active

    def on_partition_deleted(self, partition: Partition) -> None:
        """Maintain its log no more."""
        self._lively.pop(partition, None)

    def tick(self, now_us: int) -> None:
        """Maintain the logs whose time has come."""
        for partition, due_us in list(self._lively.items()):
            # a clock that was set back makes it due too
            if not 0 < due_us - now_us <= LATER_US:
                self._attempts.attempt(self._maintain, partition, now_us)

    @property
    def due_us(self) -> int:
        """When the first log is to be maintained."""
        return min(self._lively.values(), default=NEVER_US)

    def _maintain(self, partition: Partition, now_us: int) -> None:
        # where it fails its turn comes back a little later, after those of the others
        self._lively[partition] = now_us + TICK_US
        next_us = partition.log.maintain(now_us)
        if next_us is None:
            del self._lively[partition]
            self._idle_logs.add(partition.log, len(self._lively))
        else:
            self._lively[partition] = next_us
