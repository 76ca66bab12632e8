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
SLICE_ROWS: Final = 8192
"""So many rows are made ready at once, before the first of them is sent."""
_TOO_LARGE: Final = (errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE)
_LOST_COUNT: Final = (errors.OUT_OF_ORDER_SEQUENCE, errors.UNKNOWN_PRODUCER_ID, errors.INVALID_PRODUCER_EPOCH)
Place = tuple[str, int]


@dataclass(slots=True)
class _Part:
    """Rows ``low`` up to, not including, ``high`` of ``records``: one record batch.

    ``first`` is the row of the whole batch that ``low`` is, ``sequence`` its number.
    """

    records: Records
    low: int
    high: int
    first: int
    sequence: int

    @property
    def end(self) -> int:
        """The row of the whole batch behind the last."""
        return self.first + self.high - self.low


@dataclass(slots=True)
class _Delivery:
    """What is left to send of one batch: rows of ``ready`` from ``prepared`` on, then ``left``, both in order.

    ``sent`` are the parts under way, ``sequence`` the number of the first row; ``done`` rows are acknowledged.
    """

    batch: Any
    ready: Any
    compression: Literal["lz4"] | None
    sequence: int
    now_us: int
    prepared: int = 0
    left: deque[_Part] = field(default_factory=deque)
    sent: deque[_Part] = field(default_factory=deque)
    done: int = 0
    base_offset: int | None = None

    @property
    def more(self) -> bool:
        """Whether anything is left to be sent."""
        return bool(self.left) or self.prepared < self.ready.num_rows

    def next(self) -> _Part:
        """The next part; rows are made ready a slice at a time, while the broker is busy with those before."""
        import numpy as np
        import pyarrow as pa

        if not self.left:
            first = self.prepared
            rows = fitted(self.ready.slice(first, SLICE_ROWS), "kafka", "Kafka", strict=False)
            times: Any = rows.column("timestamp").cast(pa.int64()).fill_null(self.now_us)
            records = Records(rows, np.ascontiguousarray(times.to_numpy(zero_copy_only=False)))
            for low, high in records.cuts():
                number = (self.sequence + first + low) % SEQUENCES
                self.left.append(_Part(records, low, high, first + low, number))
            self.prepared += rows.num_rows
        return self.left.popleft()

    def back(self) -> None:
        """What is under way is to be sent again."""
        self.left.extendleft(reversed(self.sent))
        self.sent.clear()

    def number_from(self, sequence: int) -> None:
        """Count the rows that are left from ``sequence`` on."""
        self.sequence = (sequence - self.done) % SEQUENCES
        for part in self.left:
            part.sequence = (self.sequence + part.first) % SEQUENCES


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
                self._sequences[place] = (delivery.sequence + delivery.done) % SEQUENCES
            else:
                self._unfinished[place] = delivery
            raise
        return Sent(batch.num_rows, delivery.base_offset)

    def _begun(
        self, place: Place, batch: pa.RecordBatch, strict: bool, compression: Literal["lz4"] | None
    ) -> _Delivery:
        ready = complete(batch)
        if strict:
            # nothing is sent where anything is refused
            ready = fitted(ready, "kafka", "Kafka", strict=True)
        self._identify()
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + batch.num_rows) % SEQUENCES
        return _Delivery(batch, ready, compression, sequence, time.time_ns() // 1000)

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
        while delivery.more:
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
            while delivery.more or delivery.sent:
                while delivery.more and len(delivery.sent) < UNDER_WAY_MAX:
                    self._send_part(broker, place, delivery)
                self._take_answer(broker, place, delivery)
        except BaseException:
            broker.close()
            raise

    def _send_part(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        known = self._identify()
        part = delivery.next()
        delivery.sent.append(part)
        producer = Producer(known.id, known.epoch, part.sequence)
        data = part.records.encode(part.low, part.high, producer, delivery.compression)
        broker.send_produce(*place, data, timeout_ms=int(self._cluster.timeout_s * 1000))

    def _take_answer(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        answer = broker.receive_produce()
        if answer.error not in (errors.NONE, errors.DUPLICATE_SEQUENCE):
            error = kafka_error(
                f"topic {place[0]!r}, partition {place[1]} did not take messages", answer.error, answer.message
            )
            raise Retriable(error) if answer.error in errors.RETRIABLE else _Refused(answer.error, error)
        part = delivery.sent.popleft()
        delivery.done = part.end
        if part.first == 0 and answer.base_offset >= 0:
            delivery.base_offset = answer.base_offset

    def _halve(self, place: Place, delivery: _Delivery) -> None:
        part = delivery.left.popleft()
        if part.high - part.low == 1:
            delivery.left.appendleft(part)
            self._sequences[place] = part.sequence
            raise LimitExceeded(
                f"message {part.first} of the batch takes {int(part.records.sizes[part.low])} bytes as a record; "
                f"topic {place[0]!r} does not take as many (max.message.bytes)"
            )
        half = (part.high - part.low) // 2
        after = (part.sequence + half) % SEQUENCES
        delivery.left.appendleft(_Part(part.records, part.low + half, part.high, part.first + half, after))
        delivery.left.appendleft(_Part(part.records, part.low, part.low + half, part.first, part.sequence))

    def _renumber(self, place: Place, delivery: _Delivery) -> None:
        self._producer = None
        self._sequences.clear()
        self._unfinished.clear()
        delivery.number_from(0)
        self._sequences[place] = delivery.ready.num_rows - delivery.done


class _Refused(Exception):
    """A batch was not taken, and not because of the time or the place."""

    def __init__(self, code: int, error: RemoteError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error
