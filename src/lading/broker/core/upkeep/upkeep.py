"""Upkeep that may be late by a moment: logs and their open files, the catalog, the memory of settled transactions."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final

from ....log.catalog import Catalog
from ....log.interface import Commit, KeptLog
from ..append.writer_state import WriterStateManager
from ..component import NEVER_US, SOON_US, Component
from ..maintenance import TICK_US, Attempts
from ..topology import Partition
from .rounds import Round

FILES_EACH: Final = 5
"""Open files of a log: segment, watermark, states, and maps of one or two segments that are read."""
LATER_US: Final = 1_000_000
"""The longest time until a log is maintained."""
SYNC_US: Final = 100_000
"""The interval at which writes without a sync of their own are synced.

A power cut then loses few positions, not many more than ``kill -9`` does; a sync for each would make polls and FINs
wait for the disk.
"""


class IdleLogs(Component):
    """Idle logs with open files, the most recently used one at the end."""

    def __init__(self, files_max: int) -> None:
        self._logs_max = max(files_max // FILES_EACH, 1)
        self._idle: OrderedDict[int, KeptLog] = OrderedDict()

    def add(self, log: KeptLog, busy: int) -> None:
        """Note that ``log`` is idle; ``busy`` other logs have files open too."""
        self._idle[id(log)] = log
        self._idle.move_to_end(id(log))
        while self._idle and len(self._idle) + busy > self._logs_max:
            # a log that was written to meanwhile refuses, and is added again when it is idle
            self._idle.popitem(last=False)[1].rest()

    def on_partition_deleted(self, partition: Partition) -> None:
        """Forget a log that is going to be closed."""
        self._idle.pop(id(partition.log), None)


class LogUpkeep(Component):
    """The logs that have something to write, each with the time from which on it is to be maintained.

    It is the first part to be notified of a sync, and so the last to forget a deleted partition: other parts may mark
    that as active when they forget it.
    """

    def __init__(
        self,
        attempts: Attempts,
        idle_logs: IdleLogs,
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
    ) -> None:
        self.round = Round(self._maintain_if_lively, call_at_end_of_pass)
        self._attempts = attempts
        self._idle_logs = idle_logs
        self._lively: dict[Partition, int] = {}
        self._now_us = 0

    def mark_active(self, partition: Partition) -> None:
        """Note activity in the partition: its log has something to write in the next moments."""
        self._lively[partition] = SOON_US
        self.on_due()

    on_synced = mark_active

    def on_partition_deleted(self, partition: Partition) -> None:
        """Stop maintaining the log of a deleted partition."""
        self._lively.pop(partition, None)
        self.round.leave_out(partition)

    def tick(self, now_us: int) -> None:
        """Maintain the logs that are due; if there are many, in the next passes of the event loop."""
        self._now_us = now_us
        # after the clock was set back a log may be due earlier
        self.round.go(one for one, due_us in self._lively.items() if not 0 < due_us - now_us <= LATER_US)

    def _maintain_if_lively(self, partition: Partition) -> None:
        if partition in self._lively:
            self._attempts.attempt(self._maintain_log, partition, self._now_us)

    @property
    def due_us(self) -> int:
        """Return when the first log is to be maintained."""
        return min(self._lively.values(), default=NEVER_US)

    def _maintain_log(self, partition: Partition, now_us: int) -> None:
        # after a failure its next turn is a little later, after the other logs
        self._lively[partition] = now_us + TICK_US
        next_us = partition.log.maintain(now_us)
        if next_us is None:
            del self._lively[partition]
            self._idle_logs.add(partition.log, len(self._lively))
        else:
            self._lively[partition] = next_us


class CatalogUpkeep(Component):
    """The broker's catalog as a component, so that it is maintained."""

    def __init__(self, catalog: Catalog, commit: Commit) -> None:
        self._catalog = catalog
        self._commit = commit
        self._sync_due_us = 0

    def tick(self, now_us: int) -> None:
        """Repair the catalog, checkpoint it and sync it, each when it is due."""
        try:
            self._catalog.repair_when_due(now_us)
        finally:
            self._catalog.checkpoint_when_due()
        if self._catalog.wal.is_behind and now_us >= self._sync_due_us:
            self._sync_due_us = now_us + SYNC_US
            # the failure is in the catalog's ``problem``, and the next write opens the file again
            self._commit.submit(self._catalog.wal)

    @property
    def due_us(self) -> int:
        """Return when the writes of the earlier components are synced."""
        return self._sync_due_us if self._catalog.wal.is_behind else NEVER_US


class TransactionMemory(Component):
    """Makes components forget settled transactions once they are ``keep_us`` old."""

    def __init__(
        self, memory: WriterStateManager, forget: Sequence[Callable[[int], None]], keep_us: int, now_us: int
    ) -> None:
        """Each function in ``forget`` drops transactions that were settled before the time it is given."""
        self._memory = memory
        self._forget = forget
        self._keep_us = keep_us
        self._due_us = now_us + keep_us

    def tick(self, now_us: int) -> None:
        """Forget once every ``keep_us``."""
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._keep_us
        # with these snapshots no start needs decisions from before them
        self._memory.snapshot_all()
        for forget in self._forget:
            forget(now_us - self._keep_us)
