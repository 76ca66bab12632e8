"""Batches on their way to a Kafka cluster: with carriers, cut, numbered, several in progress at a time."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from ...dialects.kafka import errors
from ...dialects.kafka.encode import ProducerSequence, RecordEncoder
from ...dialects.kafka.protocol import RECORDS
from ...model.errors import LocalError, RemoteError
from ...model.protocol import MessageBound
from ..fitting import MessageRefused, MessageTooLarge, fill_missing_columns, fit_to_target
from ..interface import SendResult
from .cluster import FIRST_PAUSE_S, KafkaCluster, Retriable, kafka_error
from .sizes import LONE_CODEC, encode_records, measure_record
from .socket import KafkaSocket
from .topics import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    import pyarrow as pa

IN_FLIGHT_MAX: Final = 5
"""Batches of one partition that are sent and not acknowledged: a broker remembers the last five of each producer."""
SEQUENCES: Final = 1 << 31
SLICE_ROWS: Final = 16_384
"""Rows that are encoded together, before the first of them is sent."""
_TOO_LARGE: Final = (errors.MESSAGE_TOO_LARGE, errors.RECORD_LIST_TOO_LARGE)
_UNACCEPTED: Final = (errors.INVALID_RECORD, errors.INVALID_TIMESTAMP)
"""The cluster refuses a record of the batch because of its content, such as a time outside of the topic's limits."""
_LOST_COUNT: Final = (errors.OUT_OF_ORDER_SEQUENCE, errors.UNKNOWN_PRODUCER_ID, errors.INVALID_PRODUCER_EPOCH)
Place = tuple[str, int]
OnAcknowledged = Callable[[int, int, int], None]
"""Called with (first row, end row, offset of the first) of each record batch that the cluster has.

The offset is -1 if the cluster had the batch before and does not report it.
"""


@dataclass(slots=True)
class _Part:
    """Rows ``low`` up to, not including, ``high`` of ``records``: one record batch.

    ``first`` is the row of the whole batch that ``low`` is, ``sequence`` its number.
    """

    records: RecordEncoder
    low: int
    high: int
    first: int
    sequence: int
    compression: Literal["lz4"] | None = None

    @property
    def end(self) -> int:
        """The row of the whole batch after the last."""
        return self.first + self.high - self.low


@dataclass(slots=True)
class _Delivery:
    """Batches left to send to one partition: parts in ``left``, then batches in ``waiting`` by first row, in order.

    ``sent`` are the parts in progress, ``sequence`` the number of the very first row; ``rows`` were taken, and ``done``
    of them are acknowledged. Rows up to ``sent_end`` were sent without a response: the broker may have them. ``now_us``
    is a whole millisecond.

    Any instruction may raise KeyboardInterrupt: rows enter their next queue before they leave the last one. Those that
    are in both are sent twice under the same numbers, and the broker appends them once.
    """

    sequence: int
    compression: Literal["lz4"] | None
    now_us: int
    on_acknowledged: OnAcknowledged | None = None
    batch: Any = None
    waiting: deque[tuple[int, Any]] = field(default_factory=deque)
    rows: int = 0
    left: deque[_Part] = field(default_factory=deque)
    sent: deque[_Part] = field(default_factory=deque)
    done: int = 0
    sent_end: int = 0
    base_offset: int | None = None

    @property
    def is_unsure(self) -> bool:
        """Whether the broker may have more rows than it acknowledged."""
        return self.done < self.sent_end

    @property
    def more(self) -> bool:
        """Whether anything remains to be sent."""
        return bool(self.left or self.waiting)

    @property
    def next_sequence(self) -> int:
        """The number of the row after the last."""
        return (self.sequence + self.rows) % SEQUENCES

    def take(self, ready: pa.RecordBatch) -> None:
        """Add complete rows."""
        self.waiting.append((self.rows, ready))
        self.rows += ready.num_rows

    def next(self) -> _Part:
        """Return the next part, which is in progress from now on.

        Rows are encoded a slice at a time, while the broker works on earlier ones.
        """
        if not self.left:
            first, ready = self.waiting[0]
            records = encode_records(ready.slice(0, SLICE_ROWS), self.now_us)
            parts = []
            for low, high in records.split_batches():
                number = (self.sequence + first + low) % SEQUENCES
                parts.append(_Part(records, low, high, first + low, number, self.compression))
            self.left.extend(parts)
            if ready.num_rows > SLICE_ROWS:
                self.waiting[0] = (first + SLICE_ROWS, ready.slice(SLICE_ROWS))
            else:
                self.waiting.popleft()
        part = self.left[0]
        self.sent.append(part)
        self.left.popleft()
        return part

    def back_unsure(self) -> None:
        """Requeue the batches in flight, whose responses are lost: the broker may have them."""
        if self.sent:
            self.sent_end = max(self.sent_end, self.sent[-1].end)
        self.back()

    def back(self) -> None:
        """Requeue the batches in flight, in order."""
        self.left.extendleft(reversed(self.sent))
        self.sent.clear()

    def number_from(self, sequence: int) -> None:
        """Number the remaining rows from ``sequence`` on."""
        self.sequence = (sequence - self.done) % SEQUENCES
        for part in self.left:
            part.sequence = (self.sequence + part.first) % SEQUENCES


class WriterTransaction(Protocol):
    """The transaction of a writer, with what the writer needs of it."""

    @property
    def id(self) -> str:
        """The transactional id of the writer."""
        ...

    @property
    def producer(self) -> ProducerSequence:
        """The only producer of the transaction."""
        ...

    def add_partition(self, place: Place) -> None:
        """Register a partition of the transaction at the cluster, before writing to it."""
        ...


class KafkaWriter:
    """An idempotent producer: the cluster knows each batch by producer id and sequence, and appends it once.

    If the outcome of a batch is unknown and the same object is sent again, it continues at its first unconfirmed row.
    If another batch follows instead, a new producer id begins: under the old one the cluster might take the new batch
    for a repetition, and drop it. The same happens if a response is lost and the repetition is refused. A
    ``transaction`` has one producer id: after such an error it accepts no other batch.
    """

    def __init__(self, cluster: KafkaCluster, transaction: WriterTransaction | None = None) -> None:
        self._cluster = cluster
        self._transaction = transaction
        self._producer: ProducerSequence | None = None
        self._sequences: dict[Place, int] = {}
        self._unfinished: dict[Place, _Delivery] = {}
        self._acknowledged: dict[Place, tuple[weakref.ref[pa.RecordBatch], SendResult]] = {}
        self._open: dict[Place, _Delivery] = {}
        self._turns: dict[str, int] = {}
        self._has_lost_count = False
        """Whether the transaction may have a batch whose numbers the next one would get."""

    def turn(self, topic: str, partitions: int) -> int:
        """Return the partition whose turn it is, and pass the turn on to the next."""
        turn = self._turns.get(topic, 0)
        self._turns[topic] = turn + 1
        return turn % partitions

    def send(
        self,
        topic: str,
        partition: int,
        batch: pa.RecordBatch,
        *,
        strict: bool,
        compression: Literal["lz4"] | None,
        on_acknowledged: OnAcknowledged | None = None,
    ) -> SendResult:
        """Send all rows in order; a null timestamp becomes the time now. All are acknowledged when this returns.

        ``on_acknowledged`` is called for each acknowledgement, even if an error follows.

        Raises MessageRefused for a message that the cluster refuses even alone; messages before it are appended then,
        later ones are not.
        """
        if not batch.num_rows:
            return SendResult(0)
        place = (topic, partition)
        delivery = self._unfinished.get(place)
        if delivery is not None and delivery.batch is not batch:
            self._reset_producer_id()
            delivery = None
        if delivery is None:
            ready = _fit_batch(batch, strict)
            delivery = self._begin_delivery(place, compression)
            delivery.batch, delivery.on_acknowledged = batch, on_acknowledged
            delivery.take(ready)
            self._unfinished[place] = delivery
        self._open = {place: delivery}
        try:
            self._deliver(place, delivery)
        except BaseException as error:
            delivery.back()
            error.add_note(f"{delivery.done} of {batch.num_rows} messages for topic {topic!r} were confirmed before")
            code = getattr(error, "code", None) if isinstance(error, RemoteError) else None
            refused = code is not None and code not in errors.RETRIABLE
            if (refused or isinstance(error, MessageRefused)) and not delivery.is_unsure:
                # the broker refused: the rows that it did not take have no numbers
                self._sequences[place] = (delivery.sequence + delivery.done) % SEQUENCES
                self._unfinished.pop(place, None)
            else:
                self._unfinished[place] = delivery
            raise
        result = SendResult(batch.num_rows, delivery.base_offset)
        self._sequences[place] = delivery.next_sequence
        self._acknowledged[place] = (weakref.ref(batch), result)
        # missing if the producer id was reset meanwhile
        self._unfinished.pop(place, None)
        return result

    def find_acknowledged(self, topic: str, partition: int, batch: pa.RecordBatch) -> SendResult | None:
        """Return the result of ``batch`` if it is the last one that ``send`` sent to the partition; None otherwise."""
        known, result = self._acknowledged.get((topic, partition), (None, None))
        return result if known is not None and known() is batch else None

    def send_all(
        self,
        topic: str,
        parts: Iterable[tuple[int, pa.RecordBatch]],
        *,
        strict: bool,
        compression: Literal["lz4"] | None,
    ) -> int:
        """Send each (partition, batch) without waiting for earlier acknowledgements; return the number of messages.

        All are acknowledged on return. Raises as ``send``; some batches may have been sent by then.
        """
        if self._unfinished:
            self._reset_producer_id()
        self._open = {}
        flight: deque[tuple[KafkaSocket, Place]] = deque()
        try:
            for partition, batch in parts:
                place = (topic, partition)
                if place not in self._open:
                    if self._transaction is not None:
                        # the response to the next request would come after the outstanding ones
                        self._receive_acks(flight, 0)
                    self._open[place] = self._begin_delivery(place, compression)
                self._open[place].take(_fit_batch(batch, strict))
                self._send_in_flight(place, flight)
            self._receive_acks(flight, 0)
        except BaseException as error:
            done = sum(delivery.done for delivery in self._open.values())
            error.add_note(f"{done} messages for topic {topic!r} were confirmed before")
            for broker, _ in flight:
                # the next request, such as the end of the transaction, must not receive the responses to these
                broker.close()
            self._reset_producer_id()
            raise
        self._sequences |= {place: delivery.next_sequence for place, delivery in self._open.items()}
        return sum(delivery.done for delivery in self._open.values())

    def _send_in_flight(self, place: Place, flight: deque[tuple[KafkaSocket, Place]]) -> None:
        """Send the waiting messages of a partition, and receive responses if too many are outstanding."""
        delivery = self._open[place]
        while delivery.more:
            try:
                while len(delivery.sent) >= self._in_flight_max(place, delivery):
                    self._receive_acks(flight, len(flight) - 1)
                if not delivery.more:
                    # one of the responses was a refusal, after which all taken rows have been sent again
                    return
                broker = self._cluster.leader(*place)
                flight.append((broker, place))
                self._send_part(broker, place, delivery)
            except (OSError, Retriable, _Refused):
                self._land_one_by_one(flight)

    def _receive_acks(self, flight: deque[tuple[KafkaSocket, Place]], left: int) -> None:
        """Receive responses, in the order of the requests, until ``left`` are outstanding."""
        try:
            while len(flight) > left:
                broker, place = flight[0]
                self._take_answer(broker, place, self._open[place])
                flight.popleft()
        except (OSError, Retriable, _Refused):
            self._land_one_by_one(flight)

    def _land_one_by_one(self, flight: deque[tuple[KafkaSocket, Place]]) -> None:
        """After an error, begin new connections, and finish all taken rows, partition after partition."""
        for broker, _ in flight:
            broker.close()
        flight.clear()
        for delivery in self._open.values():
            delivery.back_unsure()
        for place, delivery in self._open.items():
            self._cluster.forget(place[0])
            self._deliver(place, delivery)

    def _reset_producer_id(self) -> None:
        """Have the next batch use a new producer id, which is impossible in a transaction."""
        self._has_lost_count = self._transaction is not None
        self._producer = None
        self._sequences.clear()
        self._unfinished.clear()

    def _begin_delivery(self, place: Place, compression: Literal["lz4"] | None) -> _Delivery:
        self._identify()
        if self._transaction is not None:
            if self._has_lost_count:
                raise LocalError(
                    f"transaction {self._transaction.id!r}: an earlier batch failed, and may be in it; abort it, and "
                    "send everything in another one"
                )
            self._transaction.add_partition(place)
        return _Delivery(self._sequences.get(place, 0), compression, time.time_ns() // 1_000_000 * 1000)

    def _identify(self) -> ProducerSequence:
        """Return producer id and epoch, requesting them on first use."""
        if self._transaction is not None:
            return self._transaction.producer
        if self._producer is None:

            def ask() -> ProducerSequence:
                answer = self._cluster.ask(
                    "InitProducerId", transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1,
                    producer_epoch=-1,
                )  # fmt: skip
                if answer.error_code:
                    error = kafka_error("no producer id was given", answer.error_code)
                    raise Retriable(error) if answer.error_code in errors.RETRIABLE else error
                return ProducerSequence(answer.producer_id, answer.producer_epoch)

            self._producer = self._cluster.retry(ask)
        return self._producer

    def _deliver(self, place: Place, delivery: _Delivery) -> None:
        tries, pause_s, numbered = self._cluster.retries, FIRST_PAUSE_S, False
        reconnects, end_s = self._cluster.reconnects, self._cluster.begin_patience()
        while delivery.more:
            before = delivery.done
            try:
                self._send_through(place, delivery)
            except (OSError, Retriable) as failure:
                self._cluster.forget(place[0])
                delivery.back_unsure()
                if delivery.done > before:
                    tries, reconnects = self._cluster.retries, self._cluster.reconnects
                    end_s = self._cluster.begin_patience()
                is_broken = isinstance(failure, OSError)
                if not tries or (is_broken and not reconnects) or self._cluster.is_over(end_s):
                    raise (
                        failure.error if isinstance(failure, Retriable) else self._cluster.unreachable(failure)
                    ) from None
                tries, reconnects = tries - 1, reconnects - is_broken
                pause_s = self._cluster.shorten(self._cluster.pause(pause_s))
            except _Refused as refused:
                delivery.back()
                if refused.code in _TOO_LARGE or refused.code in _UNACCEPTED:
                    self._halve_part(place, delivery, refused)
                elif refused.code in _LOST_COUNT and not numbered and self._transaction is None:
                    # the broker has forgotten this producer, as after retention deleted its messages
                    numbered = True
                    self._renumber_all()
                else:
                    raise refused.error from None

    def _send_through(self, place: Place, delivery: _Delivery) -> None:
        """Send the remaining rows over one connection and receive the responses; any error closes it."""
        broker = self._cluster.leader(*place)
        try:
            while delivery.more or delivery.sent:
                while delivery.more and len(delivery.sent) < self._in_flight_max(place, delivery):
                    self._send_part(broker, place, delivery)
                self._take_answer(broker, place, delivery)
        except BaseException:
            broker.close()
            raise

    def _in_flight_max(self, place: Place, delivery: _Delivery) -> int:
        """Return how many batches may be in progress.

        A broker accepts any sequence number from an unknown producer. So the first batch is sent alone: if it is
        refused, no later one may be appended.
        """
        return IN_FLIGHT_MAX if delivery.done or place in self._sequences else 1

    def _send_part(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        known = self._identify()
        part = delivery.next()
        producer = replace(known, sequence=part.sequence)
        data = part.records.encode(part.low, part.high, producer, part.compression)
        id_ = None if self._transaction is None else self._transaction.id
        broker.send_produce(*place, data, timeout_ms=int(self._cluster.timeout_s * 1000), transactional_id=id_)

    def _take_answer(self, broker: KafkaSocket, place: Place, delivery: _Delivery) -> None:
        answer = broker.receive_produce()
        if answer.error not in (errors.NONE, errors.DUPLICATE_SEQUENCE):
            error = kafka_error(
                f"topic {place[0]!r}, partition {place[1]} refused messages", answer.error, answer.message
            )
            raise Retriable(error) if answer.error in errors.RETRIABLE else _Refused(answer.error, error)
        part = delivery.sent.popleft()
        delivery.done = part.end
        if part.first == 0 and answer.base_offset >= 0:
            delivery.base_offset = answer.base_offset
        if delivery.on_acknowledged is not None:
            delivery.on_acknowledged(part.first, part.end, answer.base_offset)

    def _halve_part(self, place: Place, delivery: _Delivery, refused: _Refused) -> None:
        part = delivery.left[0]
        if part.high - part.low == 1:
            if refused.code in _UNACCEPTED:
                raise MessageRefused(
                    f"message {part.first} of the batch: {refused.error}", partition=place[1], row=part.first
                )
            if part.compression is None:
                # the topic's limit applies to the bytes that are sent
                part.compression = LONE_CODEC
                return
            raise MessageTooLarge(
                f"message {part.first} of the batch takes {int(part.records.sizes[part.low])} bytes as a record; "
                f"topic {place[0]!r} does not accept as many ({MESSAGE_BYTES_MAX})",
                MessageBound(measure_record(part.records, part.low, 0) - 1, MESSAGE_BYTES_MAX, is_told=False),
                partition=place[1],
                row=part.first,
            )
        half = (part.high - part.low) // 2
        after = (part.sequence + half) % SEQUENCES
        second = replace(part, low=part.low + half, first=part.first + half, sequence=after)
        delivery.left = deque([replace(part, high=part.low + half), second, *islice(delivery.left, 1, None)])

    def _renumber_all(self) -> None:
        self._reset_producer_id()
        for delivery in self._open.values():
            delivery.number_from(0)


def _fit_batch(batch: pa.RecordBatch, strict: bool) -> pa.RecordBatch:
    """Return the batch with all columns; with ``strict`` nothing is sent if anything is refused."""
    ready = fill_missing_columns(batch)
    return fit_to_target(ready, RECORDS, "Kafka", strict=True) if strict else ready


class _Refused(Exception):
    """A batch was refused for a reason that neither time nor another broker changes."""

    def __init__(self, code: int, error: RemoteError) -> None:
        super().__init__(str(error))
        self.code = code
        self.error = error
