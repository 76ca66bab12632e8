"""Iggy's idempotent producers (protocol 0.12): batches that are stored once, and sessions, whose numbers are part of
producers' ids.

A producer derives its id from the number of its session, which no other session may ever have had.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...dialects.codes import IGGY_CURRENT
from ...dialects.iggy.current.layout import NUMBERED
from ...dialects.iggy.current.producers import BatchProducer, producer_of
from ...model.errors import Reason, Refusal
from ..core.append.append import Write
from ..core.append.numbered_append import NumberedAppender
from ..core.component import Component, partitions_of
from ..core.pending_append import Append
from ..core.topology import Partition, Topic

INDEX_BITS: Final = 20
"""Bits at the low end of a producer's id that count the producers of a session; the others are the session's number."""
US_PER_SESSION: Final = 1000


class ProducerBatch(NamedTuple):
    """A batch of a producer in one partition."""

    producer: BatchProducer
    records: int
    transactional: bool = False
    """Always false: this protocol has no transactions."""

    @property
    def writer(self) -> bytes:
        """The producer in the form of a writer's name."""
        return self.producer.writer

    @property
    def epoch(self) -> int:
        """The epoch of the producer."""
        return self.producer.epoch

    @property
    def sequence(self) -> int:
        """The number of the first message."""
        return self.producer.sequence

    def __str__(self) -> str:
        return f"producer {self.producer.id} epoch {self.producer.epoch}"


class IggyProducers(Component):
    """Appends of numbered batches, and the numbers of sessions."""

    def __init__(self, numbered: NumberedAppender) -> None:
        self._numbered = numbered
        self._last_session = 0

    def load(self, topics: Sequence[Topic]) -> None:
        """Continue after the sessions of all known producers.

        If a session were assigned twice, batches of one producer would be taken for repetitions of another's.
        """
        for partition in partitions_of(topics):
            for writer, _ in () if partition.writers is None else partition.writers.items():
                ident = producer_of(writer)
                if ident is not None:
                    self._last_session = max(self._last_session, ident >> INDEX_BITS)

    def take_session(self, now_us: int) -> int:
        """Return the number of a new session: the milliseconds since 1970, or one more than the last number.

        So numbers are not assigned again after a restart; ids have 43 bits for them.
        """
        self._last_session = max(self._last_session + 1, now_us // US_PER_SESSION)
        return self._last_session

    def append(
        self, partition: Partition, batch: ProducerBatch, room_bytes: int, write: Write, source: object = None
    ) -> Append:
        """Append a batch, or return the earlier append of the same batch.

        Raises PRODUCER_UNKNOWN if the producer is not known here and the batch is not its first one, PRODUCER_FENCED or
        OUT_OF_SEQUENCE as in ``NumberedAppender``. ``source`` is as in ``Appender.append``.
        """
        writers = partition.writers
        if batch.sequence and (writers is None or writers.get(batch.writer) is None):
            raise Refusal(
                Reason.PRODUCER_UNKNOWN,
                f"{batch}: is not known here, and begins at {batch.sequence}, not 0; begin a new epoch at record 0",
            )
        repeated = self._numbered.find_duplicate(partition, batch)
        if repeated is not None:
            return repeated
        return self._numbered.append(partition, (batch,), IGGY_CURRENT, NUMBERED, room_bytes, write, source)
