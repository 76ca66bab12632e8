"""Periodic maintenance of the broker: timeouts, retention, offset flushes, checkpoints.

A tick does all that is due. It comes every 50 ms while there is something to watch, and seldom while there is not: an
idle process that wakes up pays for cold caches, and so does what is asked of it meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from ...log.catalog import Catalog
from ...log.interface import PartitionLog
from ...log.retention import AgeClock
from ...model.errors import Refusal
from ..kafka.group_coordinator import KafkaGroupCoordinator
from ..kafka.transaction_coordinator import TransactionCoordinator
from ..native.groups import NativeGroups
from ..native.transactions import NativeTransactions
from . import retention
from .callbacks import ignore
from .counters import Counters
from .positions import Positions
from .settings import BrokerSettings
from .topology import Partition
from .writer_state import WriterStateManager

LOG: Final = logging.getLogger("lading.broker")
TICK_US: Final = 50_000
LATER_US: Final = 1_000_000
"""A log never wants to be maintained later than this."""
QUIET_US: Final = 250_000
"""Between two ticks while there is nothing to watch."""


class TimedComponent(Protocol):
    """What may have something to do soon."""

    @property
    def busy(self) -> bool:
        """Whether it has to be asked every 50 ms."""


class MaintainedComponent(TimedComponent, Protocol):
    """A room of the broker with duties of its own."""

    def tick(self, now_us: int) -> None:
        """Do what is due."""

    def store(self, now_us: int) -> None:
        """Write down what may otherwise wait."""


class Maintenance:
    """Positions, time-outs, retention, upkeep of logs and catalog. What the disk refuses is tried again."""

    def __init__(
        self,
        settings: BrokerSettings,
        counters: Counters,
        catalog: Catalog,
        positions: Positions,
        native_groups: NativeGroups,
        transactions: NativeTransactions,
        memory: WriterStateManager,
        producers: TransactionCoordinator,
        coordinated_groups: KafkaGroupCoordinator,
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
        self.others: list[MaintainedComponent] = []
        """Rooms that are asked at every tick, and at the end."""
        self.on_due: Callable[[], None] = ignore
        """Called when the next tick should come in 50 ms, and not when the last one said."""
        self.on_idle: Callable[[PartitionLog, int], None] = lambda log, busy: None
        """Called with a log in which nothing is under way any more, and how many logs are busy."""
        self._quiet = False
        """The last tick said that the next one can wait."""
        self._lively: dict[Partition, int] = {}
        """Logs in which something happened, each with the time from which on it is to be maintained."""
        self._last_failure = ""
        self._age_clock = AgeClock()
        self._retention_due_us = now_us + settings.retention_check_us
        self._forget_due_us = now_us + settings.transaction_memory_us

    def mark_active(self, partition: Partition) -> None:
        """Something happened in the partition: its log has things to write down in the next moments."""
        self._lively[partition] = 0
        self.request_tick()

    def request_tick(self) -> None:
        """Request an early tick."""
        if self._quiet:
            self._quiet = False
            self.on_due()

    def abandon(self, partition: Partition) -> None:
        """The partition is deleted."""
        self._lively.pop(partition, None)

    def tick(self, now_us: int, date_us: int) -> int:
        """Do what is due; gives when to call again."""
        self.now_us = now_us
        self._quiet = False
        age_us = self._age_clock.now_us(date_us, now_us)
        self._maintain()
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
            self.enforce_retention(age_us)
        if now_us >= self._forget_due_us:
            self._forget_due_us = now_us + self._settings.transaction_memory_us
            self._attempt(self._forget_transactions)
        self._attempt(self._catalog.repair_when_due, now_us)
        self._attempt(self._catalog.checkpoint_when_due)
        due_us = self._due_us(now_us)
        self._quiet = due_us > now_us + TICK_US
        return due_us

    def _due_us(self, now_us: int) -> int:
        """When the next tick should come, in 50 ms at the soonest."""
        soon_us = now_us + TICK_US
        watched: tuple[TimedComponent, ...] = (self._native_groups, self._transactions, self._producers, *self.others)
        if any(room.busy for room in watched):
            return soon_us
        due_us = min(
            now_us + QUIET_US,
            self._coordinated_groups.due_us,
            self._positions.due_us or now_us + QUIET_US,
            *self._lively.values(),
        )
        return max(due_us, soon_us)

    def enforce_retention(self, now_us: int) -> int:
        """Delete what is too old or too much everywhere and was marked before, mark what follows; how many went."""
        before = self._counters.retention_deleted_offsets
        for partition in self._partitions():
            self._attempt(self._enforce_retention, partition, now_us)
        return self._counters.retention_deleted_offsets - before

    def _enforce_retention(self, partition: Partition, now_us: int) -> None:
        marked, deleted = retention.enforce(partition, self._settings, now_us)
        if marked or deleted:
            self.mark_active(partition)
        self._counters.retention_marked_messages += marked
        self._counters.retention_deleted_offsets += deleted

    def finish(self) -> None:
        """Write down what may otherwise wait, before the logs are closed."""
        self._attempt(self._write_positions)
        for room in self.others:
            self._attempt(room.store, self.now_us)
        for partition in self._partitions():
            self._attempt(self._memory.snapshot, partition)

    def _attempt(self, action: Callable[..., object], *arguments: object) -> None:
        """Do one thing; no other duty waits for what the disk refuses now, or for a fault of ours."""
        try:
            action(*arguments)
        except Exception as error:
            self._counters.failed_maintenance += 1
            if str(error) != self._last_failure:
                self._last_failure = str(error)
                # of what the disk refuses nobody needs the stack
                fault = None if isinstance(error, (Refusal, OSError)) else error
                LOG.warning("%s; trying again", error, exc_info=fault)

    def _maintain(self) -> None:
        for partition, due_us in list(self._lively.items()):
            # a clock that was set back makes it due too
            if not 0 < due_us - self.now_us <= LATER_US:
                self._attempt(self._maintain_log, partition)

    def _maintain_log(self, partition: Partition) -> None:
        # where it fails its turn comes back a little later, after those of the others
        self._lively[partition] = self.now_us + TICK_US
        next_us = partition.log.maintain(self.now_us)
        if next_us is None:
            del self._lively[partition]
            self.on_idle(partition.log, len(self._lively))
        else:
            self._lively[partition] = next_us

    def _write_positions(self) -> None:
        self._counters.positions_written += self._positions.flush()

    def _forget_transactions(self) -> None:
        # after these snapshots no start has to ask for what was decided before them
        for partition in self._partitions():
            self._memory.snapshot(partition)
        before_us = self.now_us - self._settings.transaction_memory_us
        self._catalog.forget_transactions(before_us)
        self._producers.forget_before(before_us)
