"""Produce: from the request's bytes straight into the log's open chunk, acknowledged when durable (kafka.md 2.3).

All requests take the same way: the head is looked up, or parsed; batches are checked, here or in a worker, and appended
in their order; the response is sent when all of them are durable or refused.

``acks`` 1 and -1 mean the same here: the response comes when the messages are as durable as the broker's setting
promises. With 0 no response is sent, and a refused batch closes the connection, as in Kafka.

* Produce 3-13, listed from 0 on: old librdkafka sends uncompressed to a broker that does not list 0 (KAFKA-18659). 3
  transactional ids and record batches (KIP-98); 7 zstd (KIP-110); 8 which records were refused, and why (KIP-467); 9
  tagged fields; 10 the new leader of a partition (KIP-951), which never changes here; 11 TRANSACTION_ABORTABLE
  (KIP-890); 12 begins a transaction, and adds partitions to it, by itself (KIP-890); 13 topics by id (KIP-516).
"""

from __future__ import annotations

import logging
import struct
from asyncio import Future
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...broker.core.access.rights import Resource, ResourceKind, Right
from ...broker.core.append.append import BEFORE_IN_PLACE_BYTES, InPlace, WriteResult
from ...broker.core.pending_append import Append
from ...broker.core.settings import COMPACT, UNLIMITED
from ...broker.kafka.append import BatchSequence
from ...broker.kafka.transactional_producer import Caller
from ...broker.native.append import PLAIN
from ...dialects import codes
from ...dialects.kafka import validation
from ...dialects.kafka.errors import (
    INVALID_RECORD,
    INVALID_REQUIRED_ACKS,
    INVALID_TXN_STATE,
    TRANSACTION_ABORTABLE,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNSUPPORTED_VERSION,
    code_of,
)
from ...dialects.kafka.produce import (
    ABORTABLE_FROM,
    BEGINS_FROM,
    FLEXIBLE,
    PREFIX_AT,
    WITH_IDS,
    Outcome,
    ProduceRequest,
    ResponseLayout,
    encode_response,
    parse_produce_request,
    response_layout,
    with_throttle,
)
from ...dialects.kafka.requests import LENGTH_BYTES, RequestHeader, parse_request_header, read_uvarint
from ...dialects.kafka.single_produce_layout import PRODUCER, PRODUCER_EPOCH, RECORDS, SEQUENCE
from ...dialects.kafka.validation import BatchHeader, BatchRejected, OldFormat, Times
from ...dialects.kafka.versions import PRODUCE, PRODUCE_LOW, SERVED
from ...kernels.arrays import Table
from ...model.errors import LadingError, MalformedMessage
from ...runtime.turns import Turn
from ...schemas.subjects import TOPIC
from ..base.request_budget import ROWS_MAX, MemoryReservation
from ..base.route_cache import UserRouteCaches
from ..base.services import now_us
from .configs import to_time_bound_us
from .handling import Context
from .partition_batch import PartitionBatch, judge, judge_inline, without_traceback
from .request_context import ProduceHead, ProduceRoute, RequestContext

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic
    from ..io.lent_sockets import LentRequests

log = logging.getLogger(__name__)

Bytes = NDArray[np.uint8]

IN_PLACE_BYTES: Final = 64 << 10
"""A batch of at least this size is written from the receive buffer, as a chunk of its own."""

ACKS: Final = (0, 1, -1)
ROWS_INLINE: Final = 100
"""A request with more topics and partitions than this is handled in turns: each costs 50 microseconds."""

_SEQUENCE_COLUMNS: Final = (PRODUCER, PRODUCER_EPOCH, SEQUENCE, RECORDS)

_HEAD = struct.Struct(">hhi")
_PARTITION = struct.Struct(">ii")
_INT32 = struct.Struct(">i")
_TAGS_BYTES: Final = 3
"""Bytes after the records of a request for one partition: tags of the partition, the topic and the request."""


class ProduceHandler:
    """Handles Produce requests; one for all connections."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._broker = context.broker
        self.topology = context.broker.topology
        self.routes: UserRouteCaches[ProduceHead, ProduceRoute] = UserRouteCaches(self.topology)
        """Known routes, by user, version and head."""
        self._default_bytes_max = int(context.settings.message_bytes_max)
        self._default_before_max_us = to_time_bound_us(context.settings.message_timestamp_before_max_ms)
        self._default_after_max_us = to_time_bound_us(context.settings.message_timestamp_after_max_ms)
        self._labels = (context.name,)
        self._messages_in = context.services.metrics.messages_in.values

    def receive(self, connection: RequestContext, start: int, end: int) -> None:
        """Handle the request ``inbox.view[start:end]``. Raises MalformedMessage if the connection must be closed."""
        pending = self._read_known(connection, start, end) or self._read(connection, start, end)
        try:
            self._begin(pending, start, end)
        except BaseException:
            # the connection closes after the earlier responses, which must not wait for this request
            pending.give_up()
            raise

    def _read_known(self, connection: RequestContext, start: int, end: int) -> PendingProduce | None:
        """Return the request if it consists of a known head and one batch, else None."""
        inbox = connection.inbox
        at = start + PREFIX_AT + connection.produce_head_bytes
        if at + _PARTITION.size > end:
            return None
        _, version, correlation = _HEAD.unpack_from(inbox.data, start)
        head = (version, bytes(inbox.view[start + PREFIX_AT : at]))
        route = connection.produce_routes.get(head)
        if route is None:
            return None
        if version >= FLEXIBLE:
            (index,) = _INT32.unpack_from(inbox.data, at)
            size, batch_at = read_uvarint(inbox.view, at + 4)
            size_bytes, tail_bytes = size - 1, _TAGS_BYTES
        else:
            index, size_bytes = _PARTITION.unpack_from(inbox.data, at)
            batch_at, tail_bytes = at + _PARTITION.size, 0
        if size_bytes < 0 or batch_at + size_bytes + tail_bytes != end or any(inbox.view[end - tail_bytes : end]):
            return None
        batch = self._prepare_batch(inbox.array, start, index, batch_at - start, size_bytes, route.topic, version)
        batch.transaction = route.transaction
        facts = batch.facts
        is_alone = start == LENGTH_BYTES and end == inbox.have
        if is_alone and facts is not None and not facts.attributes:
            connection.produced = head
            connection.loan.requests_left -= 1
        return PendingProduce(connection, correlation, route.acks, route.layout, [batch])

    def _read(self, connection: RequestContext, start: int, end: int) -> PendingProduce:
        """Parse and return any request; if it is for a single partition, its head is remembered."""
        inbox = connection.inbox
        frame = inbox.view[start:end]
        head = parse_request_header(frame)
        version = head.version
        if not 0 <= version <= SERVED[PRODUCE].high:
            raise MalformedMessage(f"version {version} of Produce is not served")
        request = parse_produce_request(frame, head, ROWS_INLINE)
        layout = response_layout(version, [(name, len(partitions)) for name, partitions in request.topics])
        refused = self._find_problem(connection, version, request)
        transaction = _find_transaction(version, request)
        batches: list[PartitionBatch] = []
        for name, partitions in request.topics:
            topic = refused or self._find_topic(connection, name, by_id=version >= WITH_IDS)
            if isinstance(topic, LadingError):
                batches += (PartitionBatch(one.partition, one.start, topic) for one in partitions)
                continue
            if len(request.topics) == len(partitions) == 1:
                key = version, bytes(frame[PREFIX_AT : request.prefix_end])
                connection.produce_routes.add(key, ProduceRoute(request.acks, topic, layout, transaction))
                connection.produce_head_bytes = len(key[1])
            batches += (
                self._prepare_batch(inbox.array, start, one.partition, one.start, one.size_bytes, topic, version)
                for one in partitions
            )
        for batch in batches:
            batch.transaction = transaction
        return PendingProduce(connection, head.correlation, request.acks, layout, batches)

    def receive_many(self, connection: RequestContext, start: int, end: int) -> None:
        """Handle the request ``inbox.view[start:end]`` in turns, as it has more rows than ``receive`` handles.

        Its memory is reserved. Later requests wait.
        """
        frame = memoryview(bytes(connection.inbox.view[start:end]))
        head = parse_request_header(frame)
        pending = PendingManyProduce(connection, head.correlation, 0, ResponseLayout(head.version, ()), [])
        pending.reservation = connection.take_reservation()
        connection.hold(True)
        connection.run_to_end(self._take_many(pending, head, frame), partial(self._on_many_begun, pending))

    async def _take_many(self, pending: PendingManyProduce, head: RequestHeader, frame: memoryview) -> None:
        connection, services, turn = pending.connection, self._context.services, Turn()
        data = np.frombuffer(frame, np.uint8)
        parse = partial(parse_produce_request, frame, head)
        request = await services.run_in_worker(1, 0, parse, ROWS_MAX)
        counts = [(name, len(partitions)) for name, partitions in request.topics]
        pending.expect(request.acks, await services.run_in_worker(1, 0, partial(response_layout, head.version), counts))
        refused = self._find_problem(connection, head.version, request)
        transaction = _find_transaction(head.version, request)
        for name, partitions in request.topics:
            topic = refused or self._find_topic(connection, name, by_id=head.version >= WITH_IDS)
            for one in partitions:
                if isinstance(topic, LadingError):
                    batch = PartitionBatch(one.partition, one.start, topic)
                else:
                    batch = self._prepare_batch(data, 0, one.partition, one.start, one.size_bytes, topic, head.version)
                batch.transaction = transaction
                pending.batches.append(batch)
                await turn.give_way()
            await turn.give_way()
        await services.run_in_worker(1, 0, partial(_judge_all, data), pending.batches)
        for batch in pending.batches:
            self._append_all(pending, (batch,), data, 0, None)
            await turn.give_way()
        connection.wait_for_disk()

    def _on_many_begun(self, pending: PendingManyProduce, begun: Future[None]) -> None:
        connection, error = pending.connection, begun.exception()
        if error is None:
            pending.settle()
        else:
            if not isinstance(error, MalformedMessage):
                log.error("a request failed", exc_info=error, extra=connection.origin())
            connection.close_on_error(str(error))
            pending.give_up()
        connection.hold(False)

    def _find_problem(self, connection: RequestContext, version: int, request: ProduceRequest) -> LadingError | None:
        """Return why the whole request is refused, or None."""
        problem = _version_or_acks(version, request.acks)
        if problem is None and request.transactional_id is not None:
            name = request.transactional_id.decode(errors="replace")
            resource = Resource(ResourceKind.TRANSACTION, name)
            if not self._broker.access.allows(connection.principal, Right.WRITE, resource):
                sentence = f"transactional id {name!r}: no right to write with it; have it granted"
                return BatchRejected(TRANSACTIONAL_ID_AUTHORIZATION_FAILED, sentence)
        return problem

    def _topic_by_id(self, connection: RequestContext, topic_id: bytes) -> Topic:
        """Return a topic by its 16 bytes. Raises Refusal if it does not exist, or the client may not write to it."""
        topic = self._context.find_by_id(connection.principal, topic_id, Right.WRITE)
        return self._context.topics.require_changeable(topic)

    def _find_topic(self, connection: RequestContext, name: bytes, *, by_id: bool) -> Topic | LadingError:
        try:
            if by_id:
                return self._topic_by_id(connection, name)
            return self._context.resolve_to_change(connection.principal, name.decode(), Right.WRITE)
        except UnicodeDecodeError:
            return MalformedMessage("a topic name is no UTF-8")
        except LadingError as error:
            return without_traceback(error)

    def _prepare_batch(
        self, source: Bytes, request_at: int, index: int, start: int, size_bytes: int, topic: Topic, version: int
    ) -> PartitionBatch:
        batch = PartitionBatch(index, start)
        try:
            batch.partition = topic.partition(index)
            settings = topic.settings
            size_max = settings.message_bytes_max or self._default_bytes_max
            policy = settings.cleanup_policy
            batch.needs_keys = policy is not None and COMPACT in policy
            batch.needs_schemas = settings.validate_schemas
            batch.facts = validation.parse_batch_header(
                source, request_at + start, size_bytes, version=version, size_max=size_max
            )
        except LadingError as error:
            batch.refused = without_traceback(error)
        return batch

    def _begin(self, pending: PendingProduce, start: int, end: int) -> None:
        connection, batches = pending.connection, pending.batches
        inbox = connection.inbox
        if not judge_inline(inbox.array, start, batches):
            self._judge_in_worker(pending, inbox.view[start:end])
            return
        source: object = None
        if len(batches) == 1:
            (batch,) = batches
            at = start + batch.start
            if batch.facts is not None and batch.facts.size_bytes >= IN_PLACE_BYTES and at >= BEFORE_IN_PLACE_BYTES:
                # everything before the batch is known: the head of this request, and earlier ones
                source = InPlace(inbox.array, at)
            elif end == inbox.have:
                source = connection
        self._append_all(pending, batches, inbox.array, start, source)
        connection.wait_for_disk()
        pending.settle()

    def _judge_in_worker(self, pending: PendingProduce, frame: memoryview) -> None:
        """Check in a worker; later requests of the connection wait, so that its batches stay in order."""
        connection = pending.connection
        copy = np.frombuffer(bytes(frame), np.uint8)

        def judged(done: Future[None]) -> None:
            try:
                done.result()
                self._append_all(pending, pending.batches, copy, 0, None)
                connection.wait_for_disk()
                pending.settle()
            except Exception:
                log.exception("checking a batch failed", extra=connection.origin())
                connection.close_on_error("checking a batch failed")
                pending.give_up()
            finally:
                connection.hold(False)

        connection.hold(True)
        connection.run_in_worker(partial(_judge_all, copy, pending.batches), judged)

    def _append_all(
        self, pending: PendingProduce, batches: Sequence[PartitionBatch], array: Bytes, start: int, source: object
    ) -> None:
        """Append the batches at ``array[start:]`` that are not refused.

        ``source`` is as in ``Appender.append``.
        """
        for batch in batches:
            refused = batch.refused
            if refused is None:
                try:
                    append = batch.append = self._append(batch, array, start + batch.start, source)
                except LadingError as error:
                    refused = batch.refused = without_traceback(error)
                else:
                    pending.wait_for(append)
            if refused is not None and isinstance(refused, OldFormat):
                pending.connection.tell_old_format(str(refused))

    def _append(self, batch: PartitionBatch, array: Bytes, start: int, source: object) -> Append:
        """Append the batch at ``array[start:]``, which was checked. Raises Refusal."""
        partition, facts, times = batch.partition, batch.facts, batch.times
        assert partition is not None and facts is not None and times is not None
        append_ms = None
        settings = partition.topic.settings
        if settings.append_time:
            append_ms = partition.log.append_time_us(now_us()) // 1000
        else:
            before_us = settings.timestamp_before_max_us or self._default_before_max_us
            after_us = settings.timestamp_after_max_us or self._default_after_max_us
            if before_us < UNLIMITED or after_us < UNLIMITED:
                clock_us = now_us()
                allowed = Times((clock_us - before_us) // 1000, (clock_us + after_us) // 1000)
                validation.require_times(array, start, facts, times, allowed)
        if batch.needs_schemas:
            self._require_schemas(batch, partition.topic)
        if batch.transaction is not None and facts.transactional:
            caller = Caller(batch.transaction, facts.producer_id, facts.producer_epoch)
            self._broker.producers.add_partitions(caller, (partition,), now_us=now_us())
        write = partial(_write, array, start, facts, times, partition.log.epoch, append_ms)
        if facts.producer_id < 0:
            append = self._broker.appender.append(partition, codes.KAFKA, PLAIN, facts.size_bytes, write, source)
        else:
            append = self._broker.producers.append(partition, _to_sequence(facts), facts.size_bytes, write, source)
        self._messages_in[self._labels] += append.count
        return append

    def append_judged(self, kernels: Any, partition: Partition, requests: LentRequests, who: object) -> Append | None:
        """Append the batches of single requests, which ``kernels`` have judged, all to one partition.

        Returns None, with nothing appended, if something else is to be said of one of them, or written on it. Numbered
        batches that are not the next of their producer are left out of ``requests``.
        """
        topic = partition.topic
        settings = topic.settings
        size_bytes, largest_bytes, count, lowest_ms, highest_ms, numbered_count = kernels.sum_up(requests.facts)
        batches: list[BatchSequence] = []
        if numbered_count:
            batches = _list_sequences(requests.facts)
            places = self._broker.producers.find_next(partition, batches)
            if not places:
                return None
            if len(places) < len(batches):
                requests.keep(places)
                batches = [batches[place] for place in places]
                size_bytes, largest_bytes, count, lowest_ms, highest_ms, _ = kernels.sum_up(requests.facts)
        source, facts = requests.scratch, requests.facts
        is_compacted = settings.cleanup_policy is not None and COMPACT in settings.cleanup_policy
        if (
            settings.append_time
            or settings.validate_schemas
            or is_compacted
            or largest_bytes > (settings.message_bytes_max or self._default_bytes_max)
        ):
            return None
        before_us = settings.timestamp_before_max_us or self._default_before_max_us
        after_us = settings.timestamp_after_max_us or self._default_after_max_us
        if before_us < UNLIMITED or after_us < UNLIMITED:
            clock_us = now_us()
            if lowest_ms < (clock_us - before_us) // 1000 or highest_ms > (clock_us + after_us) // 1000:
                return None
        epoch = partition.log.epoch

        def write(array: Bytes, at: int, base_offset: int) -> WriteResult:
            if kernels.store_batches(source, facts, array, at, base_offset, epoch) < 0:
                raise IndexError("batches of single requests do not fit into the chunk")
            return WriteResult(size_bytes, count, max(lowest_ms, 0) * 1000, max(highest_ms, 0) * 1000)

        if batches:
            append = self._broker.producers.append_next(partition, batches, size_bytes, write, who)
        else:
            append = self._broker.appender.append(partition, codes.KAFKA, PLAIN, size_bytes, write, who)
        self._messages_in[self._labels] += count
        return append

    def _require_schemas(self, batch: PartitionBatch, topic: Topic) -> None:
        """Raise BatchRejected, which names the records, if a schema id does not belong to the topic's subject."""
        strategy = topic.settings.subject_strategy or TOPIC
        errors = []
        for frame, number in batch.frames.items():
            problem = self._broker.schemas.find_frame_problem(frame, topic.flat_name, strategy)
            if problem is not None:
                errors.append((number, problem))
        if errors:
            errors = errors[: validation.RECORD_ERRORS_MAX]
            raise BatchRejected(INVALID_RECORD, f"record {errors[0][0]} of the batch: {errors[0][1]}", errors)


def _judge_all(data: Bytes, batches: list[PartitionBatch]) -> None:
    for batch in batches:
        judge(data, batch)


def _list_sequences(facts: Table) -> list[BatchSequence]:
    rows = facts[:, _SEQUENCE_COLUMNS].tolist()
    return [BatchSequence(producer, epoch, sequence, records) for producer, epoch, sequence, records in rows]


def _to_sequence(facts: BatchHeader) -> BatchSequence:
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
    """Copy a batch to its place, unless it is there, and set the fields that a broker sets."""
    size_bytes = facts.size_bytes
    if array is not source:
        array[at : at + size_bytes] = source[start : start + size_bytes]
    validation.stamp(array, at, facts, times, base_offset, epoch, append_ms)
    lowest_ms, highest_ms = times if append_ms is None else (append_ms, append_ms)
    return WriteResult(size_bytes, facts.records, max(lowest_ms, 0) * 1000, max(highest_ms, 0) * 1000)


def _find_transaction(version: int, request: ProduceRequest) -> str | None:
    """Return the transactional id if the request itself begins the transaction, else None."""
    if version < BEGINS_FROM or request.transactional_id is None:
        return None
    return request.transactional_id.decode(errors="replace")


def _version_or_acks(version: int, acks: int) -> LadingError | None:
    if version < PRODUCE_LOW:
        return OldFormat(
            UNSUPPORTED_VERSION, f"Produce is taken from version {PRODUCE_LOW} on: older formats have no headers"
        )
    if acks not in ACKS:
        return BatchRejected(INVALID_REQUIRED_ACKS, f"invalid acks {acks}; use one of {ACKS}")
    return None


class PendingProduce:
    """A request in progress: its response is sent when all of its batches are durable or refused."""

    __slots__ = ("_acks", "_correlation", "_layout", "_slot", "_waiting", "batches", "connection")

    def __init__(
        self,
        connection: RequestContext,
        correlation: int,
        acks: int,
        layout: ResponseLayout,
        batches: list[PartitionBatch],
    ) -> None:
        self.connection = connection
        self.batches = batches
        self._correlation = correlation
        self._acks = acks
        self._layout = layout
        self._waiting = 1
        """Number of appends in progress, plus one for the request until all of them have begun."""
        self._slot = connection.responses.slot()

    def wait_for(self, append: Append) -> None:
        """Respond after an append is done."""
        if not append.done:
            self._waiting += 1
            append.add_done_callback(self.settle)

    def settle(self, append: Append | None = None) -> None:
        """Note that an append is done, or, without one, that all have begun."""
        self._waiting -= 1
        if self._waiting:
            return
        version = self._layout.version
        outcomes = [_outcome_of(batch, version) for batch in self.batches]
        failed: Outcome | None = None
        for outcome in outcomes:
            if outcome.error:
                failed = outcome
                break
        self.connection.count("Produce", failed.error if failed else 0)
        if self._acks:
            response = encode_response(self._layout, self._correlation, outcomes)
            if self.connection.throttle_end_us:
                response = with_throttle(self._layout, response, self.connection.throttle_ms)
            self._slot.fill((response,))
        elif failed:
            self.connection.refuse(self._slot, failed.message or "")
        else:
            self._slot.fill(())

    def give_up(self) -> None:
        """Send no response: the connection closes after the earlier ones."""
        self._slot.fill(())


class PendingManyProduce(PendingProduce):
    """A request for many partitions, whose response a worker makes."""

    __slots__ = ("reservation",)

    reservation: MemoryReservation

    def expect(self, acks: int, layout: ResponseLayout) -> None:
        """Note the acks of the request, and the layout of its response, once its beginning was read."""
        self._acks, self._layout = acks, layout

    def settle(self, append: Append | None = None) -> None:
        self._waiting -= 1
        if not self._waiting:
            self.connection.run_in_worker(self._encode, self._on_encoded)

    def give_up(self) -> None:
        self.connection.release(self.reservation)
        super().give_up()

    def _encode(self) -> tuple[Outcome | None, bytes]:
        outcomes = [_outcome_of(batch, self._layout.version) for batch in self.batches]
        failed = next((outcome for outcome in outcomes if outcome.error), None)
        response = encode_response(self._layout, self._correlation, outcomes)
        if self.connection.throttle_end_us:
            # in the worker: copying ten megabytes keeps the loop for 30 ms
            response = with_throttle(self._layout, response, self.connection.throttle_ms)
        return failed, response

    def _on_encoded(self, encoded: Future[tuple[Outcome | None, bytes]]) -> None:
        self.connection.release(self.reservation)
        error = encoded.exception()
        if error is not None:
            log.error("encoding an answer failed", exc_info=error, extra=self.connection.origin())
            self.connection.refuse(self._slot, str(error))
            return
        failed, response = encoded.result()
        self.connection.count("Produce", failed.error if failed else 0)
        if self._acks:
            self._slot.fill((response,))
        elif failed:
            self.connection.refuse(self._slot, failed.message or "")
        else:
            self._slot.fill(())


def _outcome_of(batch: PartitionBatch, version: int) -> Outcome:
    """Return the response for one batch in a version of Produce."""
    append, error = batch.append, batch.refused
    if append is not None:
        error = append.error
        if error is None:
            assert batch.partition is not None
            return Outcome(batch.index, 0, append.base_offset, -1, batch.partition.log.first_offset)
    assert error is not None
    code = error.code if isinstance(error, BatchRejected) else code_of(error)
    if code == INVALID_TXN_STATE and version >= ABORTABLE_FROM:
        code = TRANSACTION_ABORTABLE
    record_errors = error.record_errors if isinstance(error, BatchRejected) else ()
    return Outcome(batch.index, code, message=str(error), record_errors=record_errors)
