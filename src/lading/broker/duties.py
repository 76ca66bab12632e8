"""What the broker does by itself, when its time has come: a tick every 50 ms does all that is due."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ..log.catalog import Catalog
from ..log.retention import AgeClock
from ..model.errors import Refusal
from . import retention
from .coordinated_groups import CoordinatedGroups
from .counters import Counters
from .native_groups import NativeGroups
from .positions import Positions
from .producers import Producers
from .settings import BrokerSettings
from .topology import Partition
from .transactions import Transactions
from .writer_memory import WriterMemory

LOG: Final = logging.getLogger("lading.broker")
TICK_US: Final = 50_000
LIVELY_US: Final = 1_000_000
"""A log is maintained for this long after something happened in it."""


class Room(Protocol):
    """A room of the broker with duties of its own."""

    def tick(self, now_us: int) -> None:
        """Do what is due."""

    def store(self, now_us: int) -> None:
        """Write down what may otherwise wait."""


class Duties:
    """Positions, time-outs, retention, upkeep of logs and catalog. What the disk refuses is tried again."""

    def __init__(
        self,
        settings: BrokerSettings,
        counters: Counters,
        catalog: Catalog,
        positions: Positions,
        native_groups: NativeGroups,
        transactions: Transactions,
        memory: WriterMemory,
        producers: Producers,
        coordinated_groups: CoordinatedGroups,
        partitions: Callable[[], Sequence[Partition]],
        now_us: int,
    ) -> None:
        self.now_us = now_us
        """The time of the last tick."""
        self._settings = settings
        self._counters = counters
        self._catalog = catalog
        self._positions = positions
        self._native_groups = native_groups
        self._transactions = transactions
        self._memory = memory
        self._producers = producers
        self._coordinated_groups = coordinated_groups
        self._partitions = partitions
        self.others: list[Room] = []
        """Rooms that are asked at every tick, and at the end."""
        self._lively: dict[Partition, int] = {}
        self._last_failure = ""
        self._age_clock = AgeClock()
        self._retention_due_us = now_us + settings.retention_check_us
        self._forget_due_us = now_us + settings.transaction_memory_us

    def touched(self, partition: Partition) -> None:
        """Something happened in the partition: its log has things to write down in the next moments."""
        self._lively[partition] = self.now_us

    def abandon(self, partition: Partition) -> None:
        """The partition is deleted."""
        self._lively.pop(partition, None)

    def tick(self, now_us: int, monotonic_us: int) -> int:
        """Do what is due; gives when to call again."""
        self.now_us = now_us
        age_us = self._age_clock.now_us(now_us, monotonic_us)
        self._attempt(self._maintain)
        due_us = self._positions.due_us
        if due_us is not None and due_us <= now_us:
            self._attempt(self._write_positions)
        self._attempt(self._native_groups.expire, now_us)
        self._attempt(self._coordinated_groups.expire, now_us)
        self._attempt(self._transactions.expire, now_us)
        self._attempt(self._producers.expire, now_us)
        for room in self.others:
            self._attempt(room.tick, now_us)
        if now_us >= self._retention_due_us:
            self._retention_due_us = now_us + self._settings.retention_check_us
            self._attempt(self.enforce_retention, age_us)
        if now_us >= self._forget_due_us:
            self._forget_due_us = now_us + self._settings.transaction_memory_us
            self._attempt(self._forget_transactions)
        self._attempt(self._catalog.checkpoint_when_due)
        return now_us + TICK_US

    def enforce_retention(self, now_us: int) -> int:
        """Delete what is too old or too much everywhere and was marked before, mark what follows; how many went."""
        gone = 0
        for partition in self._partitions():
            marked, deleted = retention.enforce(partition, self._settings, now_us)
            if marked or deleted:
                self.touched(partition)
            self._counters.retention_marked += marked
            self._counters.retention_deleted += deleted
            gone += deleted
        return gone

    def finish(self) -> None:
        """Write down what may otherwise wait, before the logs are closed."""
        self._attempt(self._write_positions)
        for room in self.others:
            self._attempt(room.store, self.now_us)
        for partition in self._partitions():
            self._attempt(self._memory.snapshot, partition)

    def _attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """No other duty waits for what the disk refuses now."""
        try:
            action(*arguments)
        except (Refusal, OSError) as error:
            self._counters.failed_duties += 1
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                LOG.warning("%s; trying again", error)

    def _maintain(self) -> None:
        for partition, since_us in list(self._lively.items()):
            if self.now_us - since_us > LIVELY_US:
                del self._lively[partition]
            partition.log.maintain(self.now_us)

    def _write_positions(self) -> None:
        self._counters.positions_written += self._positions.flush()

    def _forget_transactions(self) -> None:
        # after these snapshots no start has to ask for what was decided before them
        for partition in self._partitions():
            self._memory.snapshot(partition)
        before_us = self.now_us - self._settings.transaction_memory_us
        self._catalog.forget_transactions(before_us)
        self._producers.forget_before(before_us)
