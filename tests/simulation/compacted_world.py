"""Lives in which segments are rewritten and merged all the time, on a disk that is slow, full, failing or cut off.

Their messages have no keys, so that compaction must keep every one of them; records of aborted transactions go.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.store import LocalLogStore
from lading.model.errors import Refusal
from tests.simulation.life import SEGMENT_BYTES
from tests.simulation.world import World

COMPACTED_FROM = 6_000_000
"""Seeds from here on are such lives, all of them with transactions."""
CHECK_US = 200_000


class CompactedWorld(World):
    """A world whose topic is compacted several times a second."""

    def __init__(self, seed: int, data: Path) -> None:
        self.rewritten = 0
        super().__init__(seed, data)
        topic = self.partition.topic
        settings = replace(
            topic.settings, cleanup_policy="compact", dirty_share_min=0.0, tombstone_retention_us=0,
            segment_bytes=self.random.choice((SEGMENT_BYTES // 4, SEGMENT_BYTES, 8 * SEGMENT_BYTES)),
        )  # fmt: skip
        self.broker.at_once.alter_topic(topic, settings)
        self.settle()

    def open(self) -> None:
        """Start a broker that compacts often."""
        self.commit = self.make_commit()
        store = LocalLogStore(self.data, self.commit, segment_bytes=SEGMENT_BYTES, disk=self.disk)
        settings = BrokerSettings(segment_bytes=SEGMENT_BYTES, compaction_check_us=CHECK_US)
        self.broker = Broker(store, settings, now_us=self.now_us)

    def tick(self) -> None:
        """Close the active segment now and then, and compact."""
        if self.random.random() < 0.3:
            self.close_segment()
        before = self.broker.counters.compaction_read_bytes
        super().tick()
        self.rewritten += self.broker.counters.compaction_read_bytes > before

    def close_segment(self) -> None:
        """Close the active segment, unless the disk refuses that."""
        with suppress(Refusal):
            self.broker.close_segment(self.partition)
