"""Retention of all partitions, every now and then; retention.py says what may go."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...clock import Dates
from ...log.retention import AgeClock
from . import retention
from .attempts import Attempts
from .component import SOON_US, Component
from .counters import Counters
from .settings import BrokerSettings
from .topology import Partition


class RetentionEnforcer(Component):
    """Enforces retention in every partition, once in ``retention_check_us``."""

    def __init__(
        self,
        settings: BrokerSettings,
        dates: Dates,
        counters: Counters,
        attempts: Attempts,
        partitions: Callable[[], Iterable[Partition]],
        mark_active: Callable[[Partition], None],
        now_us: int,
    ) -> None:
        """``mark_active`` is called with every partition in which something was marked or deleted."""
        self._settings = settings
        self._dates = dates
        self._counters = counters
        self._attempts = attempts
        self._partitions = partitions
        self._mark_active = mark_active
        self._age_clock = AgeClock()
        self._due_us = now_us + settings.retention_check_us

    def on_settings_changed(self, settings: BrokerSettings) -> None:
        """Check by them at the next tick."""
        self._settings, self._due_us = settings, SOON_US
        self.on_due()

    def tick(self, now_us: int) -> None:
        """Enforce retention when a check is due."""
        # asked at every tick: it sees by how much the machine's clock was set
        age_us = self._age_clock.now_us(self._dates.of(now_us), now_us)
        if now_us >= self._due_us:
            self._due_us = now_us + self._settings.retention_check_us
            self.enforce(age_us)

    def enforce(self, now_us: int) -> int:
        """Delete what is too old or too much everywhere and was marked before, mark what follows; how many went."""
        before = self._counters.retention_deleted_offsets
        for partition in self._partitions():
            self._attempts.attempt(self._enforce, partition, now_us)
        return self._counters.retention_deleted_offsets - before

    def _enforce(self, partition: Partition, now_us: int) -> None:
        marked, deleted = retention.enforce(partition, self._settings, now_us)
        if marked or deleted:
            self._mark_active(partition)
        self._counters.retention_marked_messages += marked
        self._counters.retention_deleted_offsets += deleted
