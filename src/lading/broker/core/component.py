"""Interface of every part of the broker: a start, topics and partitions that come and go, syncs, time, and the end.

The broker keeps its parts in one ordered list and goes through it, so that a new part is one line. A part overrides
what it cares for. tests/broker/test_lifecycle.py holds the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from .callbacks import ignore
from .settings import BrokerSettings
from .topology import Partition, Topic

SOON_US: Final = 0
"""A time before all others: the work is due at the next tick."""
NEVER_US: Final = 1 << 62


class Component:
    """A part of the broker; each of its methods does nothing unless it is overridden."""

    on_due: Callable[[], None] = staticmethod(ignore)
    """Called when ``due_us`` becomes earlier outside of ``tick``."""

    def load(self, topics: Sequence[Topic]) -> None:
        """Resume the work of the last run; the components before this one have done so."""

    def on_topic_resized(self, topic: Topic) -> None:
        """Note that the topic's number of partitions has changed."""

    def on_partition_deleted(self, partition: Partition) -> None:
        """Fail or forget what waits for a partition that is about to be deleted.

        The parts hear of it in reverse order: what one undoes may still concern those that it is built on.
        """

    def on_topic_deleted(self, topic: Topic) -> None:
        """Forget a topic that is about to be deleted; its partitions are forgotten already."""

    def on_synced(self, partition: Partition) -> None:
        """Note that the partition's log has synced, or failed to; called at every sync."""

    def on_settings_changed(self, settings: BrokerSettings) -> None:
        """Apply other settings; values that a part has passed to other objects stay as they were at the start."""

    def tick(self, now_us: int) -> None:
        """Do the due work; an error is counted, and the next tick tries again."""

    @property
    def due_us(self) -> int:
        """When ``tick`` has something to do; asked when every part has ticked, since one gives work to another."""
        return NEVER_US

    def close(self, now_us: int) -> None:
        """Store pending changes, before the logs and the catalog are closed; called in reverse order."""


def partitions_of(topics: Iterable[Topic]) -> list[Partition]:
    """Return all partitions of the topics."""
    return [partition for topic in topics for partition in topic.partitions]
