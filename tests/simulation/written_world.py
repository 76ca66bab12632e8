"""One simulated life with ``durability = "os"``: what is written is acknowledged, and only the process is killed.

What arrives alone in a pass of the event loop is written at once here, which no broker that waits for the disk does.
"""

from __future__ import annotations

from typing import Final

from lading.broker.core.pending_append import Append
from lading.broker.core.topology import Partition
from lading.log.group_commit import WriteOnly
from tests.broker.kafka_batches import produce
from tests.broker.room import append
from tests.simulation.history import SentMessages
from tests.simulation.world import World

WRITTEN_FROM: Final = 4_000_000
"""Seeds from here on acknowledge what is written, and have transactions."""


class WrittenWorld(World):
    """A broker whose messages outlast it, but no power cut."""

    written_at_once = 0
    """How many appends were done when they returned."""

    def make_commit(self) -> WriteOnly:
        return WriteOnly()

    def crash(self, *, power_is_cut: bool) -> None:
        """Kill the broker's process: what a power cut takes was never promised."""
        super().crash(power_is_cut=False)

    def _source(self, sent: SentMessages) -> str | None:
        """Return who appends if nothing else of it is read in this pass, so that it may be written at once."""
        return sent.writer if self.random.random() < 0.7 else None

    def _send_iggy(self, partition: Partition, sent: SentMessages, sequence: int) -> Append:
        return self._count(
            append(self.broker, partition, *sent.payloads, now_us=self.now_us, source=self._source(sent))
        )

    def _send_kafka(self, partition: Partition, sent: SentMessages, sequence: int) -> Append:
        producer, source = int(sent.writer.split()[1]), self._source(sent)
        return self._count(
            produce(
                self.broker, partition, *sent.payloads, producer=producer, sequence=sequence, flush=False, source=source
            )
        )

    def _count(self, done: Append) -> Append:
        self.written_at_once += done.done
        return done
