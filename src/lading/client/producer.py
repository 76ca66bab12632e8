"""Producer: sends messages in batches to any transport."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from ..model.errors import LadingError, LocalError, Reason, Refusal, RemoteError, SettingError
from ..model.headers import Headers, HeadersLike
from ..transports.interface import PipeliningTransport, RememberingTransport, SendResult, TopicMeta, Transport
from ..transports.topics import UnknownTopic
from .arguments import open_for, to_message_id, to_microseconds
from .interceptors import LOG, Outgoing, ProducerInterceptor, apply_interceptors, notify_interceptors
from .linger import EXIT_FLUSH_S, Linger, watch
from .outgoing import BatchBuilder, normal, weigh
from .partitioning import PartitionChooser, choose_key_partitioner
from .serdes import AnySerializer, accept_serializer, require_bytes, to_bytes

if TYPE_CHECKING:
    import pyarrow as pa

RETRIABLE_REASONS = (Reason.DISK_FULL, Reason.READ_ONLY, Reason.STOPPING)
"""Refusals after which the same messages may be sent again; after others they are dropped with the error."""
Place = tuple[str, int]


class Producer:
    """Sends messages to the server at ``url`` (any scheme), or by an open transport (which it closes).

    ``send`` collects; messages leave when a partition's batch has ``batch_count`` messages or ``batch_bytes``, after
    ``linger_ms``, on ``flush``, on ``close`` and at the end of a ``with`` block. With ``linger_ms`` None they do not
    leave by time. The next call raises an error of the thread that sends by time. When the program ends, waiting
    messages are sent for at most ten seconds; those that are not are reported on standard error with their number.

    Threads may share a producer. After a fork it belongs to the parent: the child must create its own.

    Header types that the target cannot hold are sent by carrier, or refused if ``strict``. Over ``lading://`` batches
    have a sequence number per partition, so that a batch that is sent again after a broken connection is not
    duplicated. ``retries`` and ``timeout_s`` go to the transport. A missing topic is created with ``partitions``
    partitions unless ``create_topics`` is False. Messages without a key go to the partitions of their topic in turn,
    the first to number ``first_turn``, modulo how many there are.

    If sending fails for a reason that may pass (unreachable, disk full, KeyboardInterrupt), the batch is kept:
    ``flush`` retries, ``unsent`` counts; over ``lading://`` and ``kafka://`` nothing is doubled. If ``send`` raises,
    its own message was not accepted and its headers stay writable.
    """

    def __init__(
        self,
        url: str | Transport | None = None,
        *,
        strict: bool = False,
        batch_bytes: int = 1 << 20,
        batch_count: int = 10_000,
        linger_ms: float | None = 20,
        compression: Literal["lz4"] | None = None,
        retries: int | None = None,
        timeout_s: float | None = None,
        create_topics: bool = True,
        partitions: int = 1,
        first_turn: int = 0,
        interceptors: Sequence[ProducerInterceptor] = (),
        key_serializer: AnySerializer = to_bytes,
        value_serializer: AnySerializer = to_bytes,
        **options: Any,
    ) -> None:
        for name, value in (("batch_bytes", batch_bytes), ("batch_count", batch_count), ("partitions", partitions)):
            if value < 1:
                raise SettingError(f"{name} is 1 or more, not {value!r}")
        if linger_ms is not None and not 0 <= linger_ms <= threading.TIMEOUT_MAX * 1000:
            raise SettingError(f"linger_ms is None or 0 and more, not {linger_ms!r}")
        if compression not in (None, "lz4"):
            raise SettingError(f"compression is None or 'lz4', not {compression!r}")
        self._key_serializer = accept_serializer("key_serializer", key_serializer)
        self._value_serializer = accept_serializer("value_serializer", value_serializer)
        given = {"retries": retries, "timeout_s": timeout_s}
        self.transport: Transport = open_for(
            Producer, url, {**options, **{name: value for name, value in given.items() if value is not None}}
        )
        self._strict = strict
        kept = self.transport.capabilities
        self._limits = kept if strict else kept.with_carrier()
        self._batch_bytes = batch_bytes
        self._batch_count = batch_count
        self._compression = compression
        self._create = partitions if create_topics else None
        self._interceptors = list(interceptors)
        self._on_send: list[Callable[[Outgoing], Outgoing]] = [each.on_send for each in interceptors]
        self._outboxes: dict[Place, Outbox] = {}
        self._partitions: dict[str, int] = {}
        self.created_topics: list[TopicMeta] = []
        """Topics that did not exist when the first message was sent to them, and that this producer created."""
        self._chooser = PartitionChooser(batch_count, choose_key_partitioner(self.transport), first_turn)
        self._late: Exception | None = None
        self._late_lost = 0
        self._given_up_count = 0
        self._closed = False
        self._forked = False
        self._make_locks()
        self._linger = Linger(None if linger_ms is None else linger_ms / 1000)
        watch(self, self._linger)

    def _make_locks(self) -> None:
        # _wire is held by the thread that talks to the server, _lock by the one that adds messages. No thread waits for
        # _wire while holding _lock, so that messages can be added while a batch is on its way
        self._wire = threading.RLock()
        self._lock = threading.RLock()

    def send(
        self,
        topic: str,
        payload: Any,
        *,
        key: Any = None,
        headers: HeadersLike = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        id: bytes | int | UUID | None = None,
    ) -> None:
        """Accept one message; it is not yet acknowledged when this returns.

        ``payload`` and ``key`` are bytes, str or None, or what the serialisers accept. ``headers`` is a mapping, pairs,
        or Headers; a Headers object is read-only afterwards (one that already was is copied if an interceptor or
        serialiser adds to it). Without ``partition`` the key chooses it as the protocol's own clients do (Kafka's by
        murmur2, Iggy's by the hash of the server's release); without a key partitions are chosen round robin.
        ``timestamp`` is a datetime or microseconds since 1970 UTC; None means the time of the append.
        ``id`` is 16 bytes, a UUID (its bytes) or a number (little-endian, as Iggy's clients write it).
        """
        with self._lock:
            self._require_usable()
            own = headers if isinstance(headers, Headers) and not headers.sealed else Headers(headers)
            id_bytes = None if id is None else to_message_id(id)
            message = Outgoing(topic, payload, key, own, partition, to_microseconds(timestamp), id_bytes)
            if self._on_send:
                message = apply_interceptors(self._on_send, message)
                topic, own = message.topic, message.headers
            key_bytes = self._key_serializer(topic, own, message.key)
            data = self._value_serializer(topic, own, message.payload)
            require_bytes("key", key_bytes)
            require_bytes("value", data)
            size = weigh(self._limits, key_bytes, own, data, message.timestamp_us)
        number = self._chooser.choose(topic, message.partition, key_bytes, self._partition_count(topic))
        while True:
            with self._lock:
                outbox = self._outboxes.setdefault((topic, number), Outbox())
                if outbox.is_closing:
                    outbox.close_batch()
                gathering = outbox.gathering
                if not gathering.count or (
                    gathering.count < self._batch_count and gathering.size_bytes + size <= self._batch_bytes
                ):
                    if self._on_send:
                        # remove a part of a message that an interrupt prevented from being added
                        del outbox.messages[gathering.count :]
                        outbox.messages.append(message)
                    gathering.add(key_bytes, own, data, message.timestamp_us, size, message.id)
                    own.seal()
                    if gathering.count == 1:
                        self._linger.begin(self)
                    return
                outbox.close_batch()
            self._drain([((topic, number), outbox)])

    def send_batch(self, topic: str, batch: pa.RecordBatch | pa.Table, *, partition: int | None = None) -> None:
        """Send messages that are in Arrow form; all are acknowledged when this returns.

        The batch need not have all of the Batch columns (``payload``, ``headers``, ``key``, ``timestamp``, ``id``). Its
        messages follow those that ``send`` collected; interceptors and serialisers are not called. If it raises for a
        reason that may pass, the batch is kept for ``flush``.
        """
        self._require_usable()
        parts = normal(batch)
        count = self._partition_count(topic)
        with self._lock:
            for part in parts:
                for number, rows in self._chooser.split(topic, part, partition, count):
                    outbox = self._outboxes.setdefault((topic, number), Outbox())
                    outbox.close_batch()
                    outbox.waiting.append((rows, []))
        self._drain(self._close_batches(topic))

    def send_batches(
        self, topic: str, batches: Iterable[pa.RecordBatch | pa.Table], *, partition: int | None = None
    ) -> int:
        """Send many batches, each as ``send_batch`` does; return the number of messages once all are acknowledged.

        Over ``kafka://`` several are in flight at a time. If it raises, no batch is kept, and some may have been sent.
        """
        self._require_usable()
        count = self._partition_count(topic)
        with self._wire:
            self._drain(self._close_batches(topic))
            parts = (
                piece
                for batch in batches
                for part in normal(batch)
                for piece in self._chooser.split(topic, part, partition, count)
            )
            options: dict[str, Any] = {"strict": self._strict, "compression": self._compression}
            if isinstance(self.transport, PipeliningTransport):
                return self.transport.send_all(topic, parts, **options)
            return sum(self.transport.send(topic, number, rows, **options).count for number, rows in parts)

    def flush(self) -> None:
        """Send all waiting messages; every message accepted so far is acknowledged when this returns."""
        self._belongs_here()
        # wait for the thread that sends by time: it may have a batch whose error it has not stored yet
        with self._wire:
            late, lost = self._take_late()
            try:
                self._drain(self._close_batches())
            except Exception:
                self._keep_late(late, lost)
                raise
        # kept batches were sent just now; messages that were given up still have to be reported
        if late is not None and lost:
            raise late

    @property
    def unsent(self) -> int:
        """The number of waiting messages: collected, or kept after a failure."""
        return sum(outbox.count for outbox in list(self._outboxes.values()))

    def close(self) -> None:
        """Flush, then close the connection, even if flushing fails. Further calls do nothing."""
        if self._closed or self._forked:
            return
        try:
            self.flush()
        finally:
            with self._wire:
                self._closed = True
                self._linger.stop()
                notify_interceptors([each.close for each in self._interceptors])
                self.transport.close()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except LadingError as unsent_error:
            if error is None:
                raise
            # show the error that ended the block: a second traceback on a terminal would hide it
            LOG.warning("%d messages were not sent: %s", self.unsent, unsent_error)

    def _require_usable(self) -> None:
        self._belongs_here()
        if self._late is not None:
            late, _ = self._take_late()
            if late is not None:
                raise late

    def _belongs_here(self) -> None:
        if self._forked:
            raise LocalError("this producer belongs to the process that forked this one; create one in each process")
        if self._closed:
            raise LocalError("this producer is closed; make a new one")

    def _partition_count(self, topic: str) -> int:
        count = self._partitions.get(topic)
        if count is None:
            with self._wire:
                try:
                    meta = self.transport.topic(topic)
                except UnknownTopic:
                    if self._create is None:
                        raise
                    meta = self._create_topic(topic, self._create)
            count = len(meta.partitions)
            if not count:
                raise LocalError(f"topic {topic!r} has no partitions; nothing can be sent to it")
            self._partitions[topic] = count
        return count

    def _create_topic(self, topic: str, partitions: int) -> TopicMeta:
        try:
            meta = self.transport.create_topic(topic, partitions)
            self.created_topics.append(meta)
            return meta
        except Refusal as error:
            # another thread has done it meanwhile
            if error.reason is not Reason.TOPIC_NAME_EXISTS:
                raise
            return self.transport.topic(topic)

    def _close_batches(self, topic: str | None = None) -> list[tuple[Place, Outbox]]:
        """Close the batches being filled, of one topic or of all; return the outboxes with something to send."""
        with self._lock:
            chosen = [item for item in self._outboxes.items() if topic is None or item[0][0] == topic]
            for _, outbox in chosen:
                outbox.close_batch()
        return [item for item in chosen if item[1].waiting]

    def _drain(self, outboxes: Sequence[tuple[Place, Outbox]]) -> None:
        """Send the closed batches of these outboxes, each in its order."""
        try:
            with self._wire:
                self._belongs_here()
                for place, outbox in outboxes:
                    self._send_outbox(place, outbox)
        finally:
            self._settle_linger()

    def _settle_linger(self) -> None:
        with self._lock:
            if self._closed or (self._late is None and not self.unsent):
                self._linger.end()
            else:
                # failed batches wait for the next call, or for the end of the program
                self._linger.begin(self, timed=any(outbox.gathering.count for outbox in self._outboxes.values()))

    def _send_outbox(self, place: Place, outbox: Outbox) -> None:
        topic, number = place
        while outbox.waiting:
            batch, messages = outbox.waiting[0]
            sent = None
            if outbox.is_under_way and isinstance(self.transport, RememberingTransport):
                # an error, such as KeyboardInterrupt, may come after the response to the batch
                sent = self.transport.find_acknowledged(topic, number, batch)
            outbox.is_under_way = True
            try:
                if sent is None:
                    sent = self.transport.send(topic, number, batch, strict=self._strict, compression=self._compression)
            except Exception as error:
                if _is_fatal(error):
                    outbox.remove_first()
                    self._partitions.pop(topic, None)
                    error.add_note(f"{batch.num_rows} messages for topic {topic!r}, partition {number}, were not sent")
                    self._given_up_count += batch.num_rows
                    self._tell(messages, None, error)
                raise
            outbox.remove_first()
            self._tell(messages, sent, None)

    def _tell(self, messages: Sequence[Outgoing], sent: SendResult | None, error: Exception | None) -> None:
        calls = [each.on_acknowledgement for each in self._interceptors]
        base = None if sent is None else sent.base_offset
        if messages and sent is not None and sent.traces is not None:
            for row, receipt in sent.traces.items():
                messages[row].trace = receipt
        for at, message in enumerate(messages):
            notify_interceptors(calls, message, None if base is None else base + at, error)

    # the thread, the end of the program, and forks: see linger.py

    def flush_late(self) -> None:
        """Send all waiting messages; keep an error for the next call."""
        with self._wire:
            before = self._given_up_count
            try:
                self._drain(self._close_batches())
            except Exception as error:
                if not self._closed:
                    self._keep_late(error, self._given_up_count - before)
                    self._settle_linger()

    def describe_lost(self) -> str | None:
        """Return how many messages were not sent, their topics and the cause; None if all were."""
        count = self.unsent + self._late_lost
        if not count:
            return None
        why = self._late or f"they were still on their way {EXIT_FLUSH_S:g} s after the program ended"
        return f"{count:,} message{'s' * (count > 1)} to {self.transport.url} not sent: {why}"

    def forget_in_child(self) -> None:
        """Make the producer unusable in a forked process: messages and connection belong to the parent."""
        self._forked = True
        self._make_locks()
        self._outboxes, self._late, self._late_lost = {}, None, 0

    def _take_late(self) -> tuple[Exception | None, int]:
        with self._lock:
            late, lost = self._late, self._late_lost
            self._late, self._late_lost = None, 0
        return late, lost

    def _keep_late(self, late: Exception | None, lost: int) -> None:
        with self._lock:
            self._late_lost += lost
            self._late = late if self._late is None or lost else self._late


def _is_fatal(error: Exception) -> bool:
    """Return whether resending the batch cannot succeed."""
    if isinstance(error, Refusal):
        return error.reason not in RETRIABLE_REASONS
    return not isinstance(error, RemoteError)


class Outbox:
    """Closed batches in order, each with its messages if interceptors need them, and the batch still being filled.

    ``is_under_way``: the transport got the first waiting batch before, so that the server may have it. ``taken``: the
    messages of the batch that was removed last. One thread fills and closes batches while another one sends and removes
    them.
    """

    __slots__ = ("gathering", "is_under_way", "messages", "taken", "waiting")

    def __init__(self) -> None:
        self.gathering = BatchBuilder()
        self.messages: list[Outgoing] = []
        self.waiting: deque[tuple[pa.RecordBatch, list[Outgoing]]] = deque()
        self.is_under_way = False
        self.taken: list[Outgoing] | None = None

    def close_batch(self) -> None:
        """Close the batch that is being filled, if it has messages."""
        if self.is_closing:
            self._begin_batch()
        if self.gathering.count:
            # an earlier interrupt left a message that was not accepted
            del self.messages[self.gathering.count :]
            self.waiting.append((self.gathering.batch(), self.messages))
            self._begin_batch()

    @property
    def is_closing(self) -> bool:
        """Whether an interrupt, which may come between any two instructions, left the closed batch in place of the open
        one.
        """
        if self.taken is self.messages:
            return True
        if not self.waiting:
            return False
        try:
            return self.waiting[-1][1] is self.messages
        except IndexError:
            # the thread that sends has removed the last batch meanwhile
            return self.taken is self.messages

    def remove_first(self) -> None:
        """Remove the first waiting batch: it was sent, or given up."""
        # before it is removed from ``waiting``: other threads find a closed batch in one of the two at any time
        self.taken = self.waiting[0][1]
        self.waiting.popleft()
        self.is_under_way = False

    def _begin_batch(self) -> None:
        # in this order: the messages show other threads that the batch is closed
        self.gathering = BatchBuilder()
        self.messages = []

    @property
    def count(self) -> int:
        """The number of waiting messages."""
        gathered_count = 0 if self.is_closing else self.gathering.count
        return gathered_count + sum(batch.num_rows for batch, _ in self.waiting)
