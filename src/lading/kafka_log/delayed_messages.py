"""Publications with a delay over a cluster: they are sent at once, with the header of ``due_dates``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..broker.core.component import NEVER_US
from ..broker.core.delayed_messages import DelayedMessages
from .appender import ClusterAppender

if TYPE_CHECKING:
    from ..broker.core.append.append import Write
    from ..broker.core.pending_append import Append
    from ..broker.core.topology import Partition, Topic


class ClusterDelayedMessages(DelayedMessages):
    """Delayed messages of a gateway: they do not wait here, but are sent to the cluster with their date."""

    def load(self, topics: Sequence[Topic]) -> None:
        """Load nothing."""

    def append(
        self, partition: Partition, due_us: int, dialect: int, flags: int, room_bytes: int, write: Write
    ) -> Append:
        """Send messages with a header that has their due date."""
        assert isinstance(self._appender, ClusterAppender), "made for the same store"
        due_date_us = self._catalog.dates.of(due_us)
        return self._appender.append(partition, dialect, flags, room_bytes, write, due_date_us=due_date_us)

    @property
    def due_us(self) -> int:
        """Never: no messages wait here."""
        return NEVER_US
