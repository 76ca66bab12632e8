"""Batches on their way to a Kafka cluster: carried, cut, numbered, several under way at a time."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from ..dialects.kafka import errors
from ..dialects.kafka.encode import Producer, Records
from ..model.errors import LimitExceeded, RemoteError
from .fitting import complete, fitted
from .interface import Sent
from .kafka_cluster import FIRST_PAUSE_S, KafkaCluster, Retriable, kafka_error
from .kafka_socket import KafkaSocket

if TYPE_CHECKING:
    import pyarrow as pa

UNDER_WAY_MAX: Final = 5
"""Batches of one partition sent and not acknowledged: a broker remembers the last five of each producer."""
SEQUENCES: Final = 1 << 31
_TOO_LARGE: Final = (errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE)
_LOST_COUNT: Final = (errors.OUT_OF_ORDER_SEQUENCE, errors.UNKNOWN_PRODUCER_ID, errors.INVALID_PRODUCER_EPOCH)
Place = tuple[str, int]


@dataclass(slots=True)
class _Part:
    """Rows ``low`` up to, not including, ``high``, with the sequence of the first; one record batch."""

    low: int
    high: int
    sequence: int


@dataclass(slots=True)
class _Delivery:
    """What is left to send of one batch; ``sent`` are the parts under way, in order."""

    batch: Any
    records: Records
    compression: Literal["lz4"] | None
    left: deque[_Part] = field(default_factory=deque)
    sent: deque[_Part] = field(default_factory=deque)
    done: int = 0
    base_offset: int | None = None

    def back(self) -> None:
        """What is under way is to be sent again."""
        self.left.extendleft(reversed(self.sent))
        self.sent.clear()


class KafkaWriter:
    """An idempotent producer: the cluster knows each batch by producer id and sequence, and appends it once.

    A batch whose fate stayed unknown goes on where it stopped when the same object is sent again; when another batch
    follows instead, a new producer id begins, because the count of the old one is unsure.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._producer: Producer | None = None
        self._sequences: dict[Place, int] = {}
        self._unfinished: dict[Place, _Delivery] = {}
        self._turns: dict[str, int] = {}

    def turn(self, topic: str, partitions: int) -> int:
        """The partition whose turn it is."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % partitions

    def send(
        self, topic: str, partition: int, batch: pa.RecordBatch, *, strict: bool, compression: Literal["lz4"] | None
    ) -> Sent:
        """Send all rows in order; a null timestamp becomes the time now. All are acknowledged when this returns.

        LimitExceeded for a message that the cluster does not take even alone.
        """
        if not batch.num_rows:
            return Sent(0)
        place = (topic, partition)
        delivery = self._unfinished.pop(place, None)
        if delivery is not None and delivery.batch is not batch:
            self._producer = None
            self._sequences.clear()
            delivery = None
        if delivery is None:
            delivery = self._begun(place, batch, strict, compression)
        try:
            self._deliver(place, delivery)
        except BaseException as error:
            delivery.back()
            error.add_note(f"{delivery.done} of {batch.num_rows} messages for topic {topic!r} were confirmed before")
            if isinstance(error, RemoteError) and getattr(error, "code", None) is not None:
                # the broker said no: what it did not take has no place in the count
                self._sequences[place] = delivery.left[0].sequence
            else:
                self._unfinished[place] = delivery
            raise
        return Sent(batch.num_rows, delivery.base_offset)

    def _begun(
        self, place: Place, batch: pa.RecordBatch, strict: bool, compression: Literal["lz4"] | None
    ) -> _Delivery:
        import numpy as np
        import pyarrow as pa

        ready = fitted(complete(batch), "kafka", "Kafka", strict=strict)
        now_us = time.time_ns() // 1000
        times: Any = ready.column("timestamp").cast(pa.int64()).fill_null(now_us)
        records = Records(ready, np.ascontiguousarray(times.to_numpy(zero_copy_only=False)))
        self._identify()
        delivery = _Delivery(batch, records, compression)
        sequence = self._sequences.get(place, 0)
        for low, high in records.cuts():
            delivery.left.append(_Part(low, high, (sequence + low) % SEQUENCES))
        self._sequences[place] = (sequence + records.rows) % SEQUENCES
        return delivery

    def _identify(self) -> Producer:
        """Who we are to the cluster; asked for when first needed."""
        if self._producer is None:

            def ask() -> Producer:
                answer = self._cluster.ask(
                    "InitProducerId", transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1,
                    producer_epoch=-1,
                )  # fmt: skip
                if answer.error_code:
                    error = kafka_error("no producer id was given", answer.error_code)
                    raise Retriable(error) if answer.error_code in errors.RETRIABLE else error
                return Producer(answer.producer_id, answer.producer_epoch)

            self._producer = self._cluster.again(ask)
        return self._producer

    def _deliver(self, place: Place, delivery: _Delivery) -> None:
        tries, pause_s, numbered = self._cluster.retries, FIRST_PAUSE_S, False
        while delivery.left:
            before = delivery.done
            try:
                self._sent_through(place, delivery)
            except (OSError, Retriable) as failure:
                self._cluster.forget(place[0])
                delivery.back()
                tries = self._cluster.retries if delivery.done > before else tries
                if not tries:
                    raise (
                        failure.error if isinstance(failure, Retriable) else self._cluster.unreachable(failure)
                    ) from None
                tries -= 1
                pause_s = self._cluster.pause(pause_s)
            except _Refused as refused:
                delivery.back()
                if refused.code in _TOO_LARGE:
                    self._halve(place, delivery)
                elif refused.code in _LOST_COUNT and not numbered:
                    # the broker has forgotten us, as after our messages were deleted by retention
                    numbered = True
                    self._renumber(place, delivery)
                else:
                    raise refused.error from None

    def _sent_through(self, place: Place, delivery: _Delivery) -> None:
        """Send what is left over one connection and take the answers; anything unexpected closes it."""
        broker = self._cluster.leader(*place)
        try:
            while delivery.left or delivery.sent:
                while delivery.left and len(delivery.sent) < UNDER_WAY_MAX:
                    self._send_part(broker, place, delivery)
                self._take_answer(broker, place, delivery)
        except BaseException:
            broker.close()
            raise

    def _send_part(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        part = delivery.left[0]
        known = self._identify()
        producer = Producer(known.id, known.epoch, part.sequence)
        data = delivery.records.encode(part.low, part.high, producer, delivery.compression)
        delivery.sent.append(delivery.left.popleft())
        broker.send_produce(*place, data, timeout_ms=int(self._cluster.timeout_s * 1000))

    def _take_answer(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        answer = broker.receive_produce()
        if answer.error not in (errors.NONE, errors.DUPLICATE_SEQUENCE):
            error = kafka_error(
                f"topic {place[0]!r}, partition {place[1]} did not take messages", answer.error, answer.message
            )
            raise Retriable(error) if answer.error in errors.RETRIABLE else _Refused(answer.error, error)
        part = delivery.sent.popleft()
        delivery.done = part.high
        if part.low == 0 and answer.base_offset >= 0:
            delivery.base_offset = answer.base_offset

    def _halve(self, place: Place, delivery: _Delivery) -> None:
        part = delivery.left.popleft()
        if part.high - part.low == 1:
            delivery.left.appendleft(part)
            self._sequences[place] = part.sequence
            raise LimitExceeded(
                f"message {part.low} of the batch takes {int(delivery.records.sizes[part.low])} bytes as a record; "
                f"topic {place[0]!r} does not take as many (max.message.bytes)"
            )
        middle = (part.low + part.high) // 2
        after = (part.sequence + middle - part.low) % SEQUENCES
        delivery.left.extendleft((_Part(middle, part.high, after), _Part(part.low, middle, part.sequence)))

    def _renumber(self, place: Place, delivery: _Delivery) -> None:
        self._producer = None
        self._sequences.clear()
        self._unfinished.clear()
        first = delivery.left[0].low
        for part in delivery.left:
            part.sequence = part.low - first
        self._sequences[place] = delivery.records.rows - first


class _Refused(Exception):
    """A batch was not taken, and not because of the time or the place."""

    def __init__(self, code: int, error: RemoteError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error
