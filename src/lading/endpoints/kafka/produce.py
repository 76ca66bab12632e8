"""Produce: from the request's bytes straight into the log's open chunk, acknowledged when it lasts (kafka.md 2.3).

``acks`` 1 and -1 mean the same here: the answer comes when the messages are as durable as the broker's setting
promises. With 0 there is no answer, and a batch that is refused closes the connection, as Kafka does it.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...broker.core.append import BEFORE_IN_PLACE_BYTES, Append, InPlace, WriteResult
from ...broker.kafka.append import BatchSequence
from ...broker.native.append import PLAIN
from ...dialects import codes
from ...dialects.kafka import validation
from ...dialects.kafka.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from ...dialects.kafka.errors import (
    INVALID_REQUIRED_ACKS,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
    code_of,
)
from ...dialects.kafka.produce import (
    FLEXIBLE,
    PREFIX_AT,
    OneTopic,
    Outcome,
    PartitionProduceData,
    one_answer,
    one_topic,
    parse_produce_request,
    produce_answer,
)
from ...dialects.kafka.requests import parse_request_header, unsigned
from ...dialects.kafka.validation import BatchHeader, BatchRejected, OldFormat, Times
from ...dialects.kafka.versions import PRODUCE, PRODUCE_LOW, SERVED
from ...kernels import engine
from ...model.errors import LadingError, MalformedMessage
from ..base.services import now_us
from .handling import Context
from .session import NAME, KafkaConnection, ResponseSlot

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic

log = logging.getLogger(__name__)

Bytes = NDArray[np.uint8]

INLINE_BYTES: Final = 4 << 20
"""Plain batches up to this are judged on the event loop: about 0.3 ms a MiB."""
INLINE_COMPRESSED_BYTES: Final = {GZIP: 16 << 10, SNAPPY: 256 << 10, LZ4: 256 << 10, ZSTD: 256 << 10}
INLINE_PLAIN_BYTES: Final = 1 << 20
"""Compressed ones up to this, where their records are no more than that: handing them over costs more."""
INLINE_TWIN_BYTES: Final = 8 << 10
"""Any, while kernels are not loaded."""

IN_PLACE_BYTES: Final = 64 << 10
"""From here on a batch is written from where it was received, as a chunk of its own."""

ACKS: Final = (0, 1, -1)

_HEAD = struct.Struct(">hhi")
_PARTITION = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_TAGS_BYTES: Final = 3
"""Behind the records of a request for one partition: its tags, the topic's, the request's."""


class ProduceTarget(NamedTuple):
    """Where a producer sends again and again: the bytes that say so, and what they mean while topics stay the same."""

    prefix: bytes
    version: int
    acks: int
    topic: Topic
    topology: int
    answer: OneTopic


class PartitionBatch(NamedTuple):
    """The batch for one partition, and what its header says; or why it is refused."""

    sent: PartitionProduceData
    partition: Partition | None = None
    facts: BatchHeader | None = None
    refused: LadingError | None = None


class ProduceHandler:
    """Takes Produce requests; one for all connections."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker = context.broker
        self._default_bytes_max = int(context.settings.message_bytes_max)
        self._labels = (NAME,)
        self._messages_in = context.services.metrics.messages_in.values

    def produce(self, connection: KafkaConnection, start: int, end: int) -> None:
        """The request ``inbox.view[start:end]``; MalformedMessage where the connection must be closed."""
        inbox = connection.inbox
        place = connection.place
        if place is not None and self._again(connection, place, start, end):
            return
        frame = inbox.view[start:end]
        head = parse_request_header(frame)
        if not 0 <= head.version <= SERVED[PRODUCE].high:
            raise MalformedMessage(f"version {head.version} of Produce is not served")
        request = parse_produce_request(frame, head)
        answer = _Answer(self, connection, head.correlation, head.version, request.acks)
        rows: list[tuple[bytes, list[PartitionBatch]]] = []
        for name, partitions in request.topics:
            topic = self._topic(name)
            if request.acks in ACKS and head.version >= PRODUCE_LOW and not isinstance(topic, LadingError):
                if len(request.topics) == len(partitions) == 1:
                    prefix = bytes(frame[PREFIX_AT : request.prefix_end])
                    known = one_topic(head.version, name)
                    connection.place = ProduceTarget(
                        prefix, head.version, request.acks, topic, self._broker.topology_version, known
                    )
                rows.append((name, [self._row(inbox.array, start, one, topic, head.version) for one in partitions]))
            else:
                refused = _version_or_acks(head.version, request.acks) or topic
                assert isinstance(refused, LadingError)
                rows.append((name, [PartitionBatch(one, refused=refused) for one in partitions]))
        judged = self._validate_inline(inbox.array, start, rows)
        if judged is None:
            self._validate_in_worker(connection, answer, rows, frame)
        else:
            answer.begin(rows, judged, inbox.array, start)

    def _again(self, connection: KafkaConnection, place: ProduceTarget, start: int, end: int) -> bool:
        """The request, if it is one batch for a place that is known, and needs no worker; whether it was."""
        inbox = connection.inbox
        at = start + PREFIX_AT + len(place.prefix)
        if at + _PARTITION.size > end or place.topology != self._broker.topology_version:
            return False
        _, version, correlation = _HEAD.unpack_from(inbox.data, start)
        if version != place.version or not inbox.data.startswith(place.prefix, start + PREFIX_AT):
            return False
        if version >= FLEXIBLE:
            (index,) = _INT32.unpack_from(inbox.data, at)
            size, batch_at = unsigned(inbox.view, at + 4)
            size_bytes, tail = size - 1, _TAGS_BYTES
        else:
            index, size_bytes = _PARTITION.unpack_from(inbox.data, at)
            batch_at, tail = at + _PARTITION.size, 0
        if size_bytes < 0 or batch_at + size_bytes + tail != end or any(inbox.view[end - tail : end]):
            return False
        row = self._row(inbox.array, 0, PartitionProduceData(index, batch_at, size_bytes), place.topic, version)
        if row.facts is not None and _takes_long(row.facts):
            return False
        outcome: Append | LadingError
        if row.facts is None or row.partition is None:
            assert row.refused is not None
            outcome = row.refused
        else:
            try:
                times = _judge_inline(inbox.array, batch_at, row.facts)
                if times is None:
                    return False
                source: object = connection if end == inbox.have else None
                if size_bytes >= IN_PLACE_BYTES and batch_at >= BEFORE_IN_PLACE_BYTES:
                    # what lies before the batch is understood: the head of this request, and earlier ones
                    source = InPlace(inbox.array, batch_at)
                outcome = self.append(row.partition, row.facts, times, inbox.array, batch_at, source)
            except LadingError as error:
                outcome = _kept(error)
        _OneAnswer(self, connection, correlation, place, row).begin(outcome)
        connection.wait_for_disk()
        return True

    def _topic(self, name: bytes) -> Topic | LadingError:
        try:
            return self._broker.resolve(name.decode())
        except UnicodeDecodeError:
            return MalformedMessage("a topic name is no UTF-8")
        except LadingError as error:
            return _kept(error)

    def _row(self, source: Bytes, start: int, sent: PartitionProduceData, topic: Topic, version: int) -> PartitionBatch:
        try:
            partition = topic.partition(sent.partition)
            size_max = topic.settings.message_bytes_max or self._default_bytes_max
            facts = validation.parse_batch_header(
                source, start + sent.start, sent.size_bytes, version=version, size_max=size_max
            )
        except LadingError as error:
            return PartitionBatch(sent, refused=_kept(error))
        return PartitionBatch(sent, partition, facts)

    def _validate_inline(
        self, source: Bytes, start: int, rows: list[tuple[bytes, list[PartitionBatch]]]
    ) -> list[Times | LadingError] | None:
        """What is to be said of each row with facts; None where only a worker may find out."""
        judged: list[Times | LadingError] = []
        for row in (row for _, some in rows for row in some):
            if row.facts is None:
                continue
            try:
                times = None if _takes_long(row.facts) else _judge_inline(source, start + row.sent.start, row.facts)
            except LadingError as error:
                judged.append(_kept(error))
                continue
            if times is None:
                return None
            judged.append(times)
        return judged

    def _judged(self, source: Bytes, start: int, row: PartitionBatch) -> Times | LadingError:
        assert row.facts is not None
        try:
            return validation.validate_batch(source, start + row.sent.start, row.facts)
        except LadingError as error:
            return _kept(error)

    def _validate_in_worker(
        self,
        connection: KafkaConnection,
        answer: _Answer,
        rows: list[tuple[bytes, list[PartitionBatch]]],
        frame: memoryview,
    ) -> None:
        """In a worker; what the connection sends next waits, so that the order of its batches stays."""
        copy = np.frombuffer(bytes(frame), np.uint8)
        work = [row for _, row_list in rows for row in row_list if row.facts is not None]

        def judge() -> list[Times | LadingError]:
            return [self._judged(copy, 0, row) for row in work]

        def judged(future: asyncio.Future[list[Times | LadingError]]) -> None:
            try:
                if not connection.lost and not future.cancelled():
                    answer.begin(rows, future.result(), copy, 0)
            except Exception:
                log.exception("checking a batch failed", extra=connection.origin())
                connection.close_on_error("checking a batch failed")
                answer.give_up()
            finally:
                connection.checking(False)

        connection.checking(True)
        loop = asyncio.get_running_loop()
        loop.run_in_executor(self._context.services.workers, judge).add_done_callback(judged)

    def append(
        self, partition: Partition, facts: BatchHeader, times: Times, array: Bytes, start: int, source: object = None
    ) -> Append:
        """Append the batch at ``array[start:]``, which was judged; Refusal. ``source`` is as in ``Appender.append``."""
        append_ms = None
        if partition.topic.settings.append_time:
            append_ms = self._broker.append_time_us(partition, now_us()) // 1000
        write = partial(_write, array, start, facts, times, partition.log.epoch, append_ms)
        if facts.producer_id < 0:
            append = self._broker.appender.append(partition, codes.KAFKA, PLAIN, facts.size_bytes, write, source)
        else:
            append = self._broker.producers.append(partition, _sequenced(facts), facts.size_bytes, write, source)
        self._messages_in[self._labels] += append.count
        return append


def _kept(error: LadingError) -> LadingError:
    """Return an error that is kept as a value, without what it saw: the frames that it passed would keep themselves
    alive by it, and with them whatever a request had in hand."""
    error.__context__ = None
    return error.with_traceback(None)


def _sequenced(facts: BatchHeader) -> BatchSequence:
    return BatchSequence(facts.producer_id, facts.producer_epoch, facts.sequence, facts.records, facts.transactional)


def _write(
    source: Bytes,
    start: int,
    facts: BatchHeader,
    times: Times,
    epoch: int,
    append_ms: int | None,
    array: Bytes,
    at: int,
    base_offset: int,
) -> WriteResult:
    """Copy a batch to where it is to be, unless it lies there, and write on it what a broker does."""
    size_bytes = facts.size_bytes
    if array is not source:
        array[at : at + size_bytes] = source[start : start + size_bytes]
    validation.stamp(array, at, facts, times, base_offset, epoch, append_ms)
    lowest_ms, highest_ms = times if append_ms is None else (append_ms, append_ms)
    return WriteResult(size_bytes, facts.records, max(lowest_ms, 0) * 1000, max(highest_ms, 0) * 1000)


def _takes_long(facts: BatchHeader) -> bool:
    """Whether judging a batch would hold up the event loop."""
    if engine.get_loaded(validation.KERNEL_MODULE) is None:
        return facts.size_bytes > INLINE_TWIN_BYTES
    return facts.size_bytes > INLINE_COMPRESSED_BYTES.get(facts.codec, INLINE_BYTES)


def _judge_inline(source: Bytes, start: int, facts: BatchHeader) -> Times | None:
    """The times of a batch; None where only a worker may find out."""
    if facts.codec == NONE:
        return validation.validate_batch(source, start, facts)
    try:
        return validation.validate_batch(source, start, facts, INLINE_PLAIN_BYTES)
    except BatchRejected:
        return None


def _version_or_acks(version: int, acks: int) -> LadingError | None:
    if version < PRODUCE_LOW:
        return OldFormat(
            UNSUPPORTED_VERSION, f"Produce is taken from version {PRODUCE_LOW} on: older formats have no headers"
        )
    if acks not in ACKS:
        return BatchRejected(INVALID_REQUIRED_ACKS, f"invalid acks {acks}; use one of {ACKS}")
    return None


def _outcome(row: PartitionBatch, result: Append | LadingError) -> Outcome:
    """What a client is told of one batch."""
    error = result if isinstance(result, LadingError) else result.error
    if error is not None:
        code = error.code if isinstance(error, BatchRejected) else code_of(error)
        return Outcome(row.sent.partition, code, message=str(error))
    assert isinstance(result, Append) and row.partition is not None
    return Outcome(row.sent.partition, 0, result.base_offset, -1, row.partition.log.first_offset)


class _OneAnswer:
    """The answer to a request for one partition."""

    __slots__ = ("_connection", "_correlation", "_place", "_row", "_slot")

    def __init__(
        self,
        producer: ProduceHandler,
        connection: KafkaConnection,
        correlation: int,
        place: ProduceTarget,
        row: PartitionBatch,
    ) -> None:
        self._connection = connection
        self._correlation = correlation
        self._place = place
        self._row = row
        self._slot: ResponseSlot | None = None

    def begin(self, result: Append | LadingError) -> None:
        self._slot = self._connection.slot()
        if isinstance(result, LadingError):
            if isinstance(result, OldFormat):
                self._connection.tell_old_format(str(result))
            self._fill(_outcome(self._row, result))
        else:
            result.add_done_callback(self._done)

    def _done(self, append: Append) -> None:
        self._fill(_outcome(self._row, append))

    def _fill(self, outcome: Outcome) -> None:
        assert self._slot is not None
        self._connection.count("Produce", outcome.error)
        if self._place.acks:
            self._slot.fill((one_answer(self._place.answer, self._correlation, outcome),))
        elif outcome.error:
            self._slot.refuse(outcome.message or "")
        else:
            self._slot.fill(())


class _Answer:
    """The answer to a request for any number of partitions: it goes out when all of them are decided."""

    def __init__(
        self, producer: ProduceHandler, connection: KafkaConnection, correlation: int, version: int, acks: int
    ) -> None:
        self._producer = producer
        self._connection = connection
        self._correlation = correlation
        self._version = version
        self._acks = acks
        self._topics: list[tuple[bytes, list[Outcome]]] = []
        self._waiting = 1
        self._slot = connection.slot()

    def begin(
        self,
        rows: Sequence[tuple[bytes, list[PartitionBatch]]],
        judged: Sequence[Times | LadingError],
        source: Bytes,
        start: int,
    ) -> None:
        """Append what may be appended of ``rows``; ``judged`` is in the order of those with facts."""
        verdicts = iter(judged)
        for name, some in rows:
            outcomes: list[Outcome] = []
            self._topics.append((name, outcomes))
            for row in some:
                result = row.refused if row.facts is None else self._appended(row, next(verdicts), source, start)
                assert result is not None
                outcomes.append(Outcome(row.sent.partition, UNKNOWN_SERVER_ERROR))
                if isinstance(result, LadingError):
                    if isinstance(result, OldFormat):
                        self._connection.tell_old_format(str(result))
                    outcomes[-1] = _outcome(row, result)
                else:
                    self._waiting += 1
                    result.add_done_callback(partial(self._done, row, outcomes, len(outcomes) - 1))
        self._connection.wait_for_disk()
        self._settled()

    def give_up(self) -> None:
        """Answer nothing: the connection closes behind what was asked before."""
        self._slot.fill(())

    def _appended(
        self, row: PartitionBatch, verdict: Times | LadingError, source: Bytes, start: int
    ) -> Append | LadingError:
        if isinstance(verdict, LadingError):
            return verdict
        assert row.partition is not None and row.facts is not None
        try:
            return self._producer.append(row.partition, row.facts, verdict, source, start + row.sent.start)
        except LadingError as error:
            return _kept(error)

    def _done(self, row: PartitionBatch, outcomes: list[Outcome], place: int, append: Append) -> None:
        outcomes[place] = _outcome(row, append)
        self._settled()

    def _settled(self) -> None:
        self._waiting -= 1
        if self._waiting:
            return
        errors = [outcome for _, outcomes in self._topics for outcome in outcomes if outcome.error]
        self._connection.count("Produce", errors[0].error if errors else 0)
        if self._acks:
            self._slot.fill((produce_answer(self._correlation, self._version, self._topics),))
        elif errors:
            self._slot.refuse(errors[0].message or "")
        else:
            self._slot.fill(())
