"""Consumer: reads messages from any transport, one at a time, by polling, or as Arrow batches."""

from __future__ import annotations

import math
import os
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

from ..model.errors import LadingError, LocalError, Reason, Refusal, SettingError
from ..model.message import Message
from ..transports.fetched import States
from ..transports.interface import Membership, Position, QueueMembership, Transport
from .arguments import find_group, open_for, require_choice
from .interceptors import LOG, ConsumerInterceptor, apply_interceptors, notify_interceptors
from .read_bounds import Bound, ReadBounds, TopicPartition, spans
from .readers import PartitionBatches, Readers
from .reading import OnLoss, Selection, columns_text
from .received import deserialize, to_messages
from .serdes import AnyDeserializer, accept_deserializer
from .unseen import DeclaredHeaders

if TYPE_CHECKING:
    import pyarrow as pa

HEARTBEAT_S = 2.0
STORE_ATTEMPTS = 3
COMMIT_S = 5.0
"""Longest time from processing a message until ``auto_commit`` stores its position."""


class Consumer:
    """Iterates over the messages of one or several topics at ``url``, or of an open transport (which it closes).

    ``start`` is ``earliest``, ``latest``, an offset, -N for the last N, a datetime, or one of these by partition (a
    mapping reads only the partitions that it names); ``end`` is the same for the place to stop at. ``timeout_s`` ends
    the iteration if no new message arrives within that time; None waits for ever, 0 stops at the present end.

    ``where`` keeps the messages for which it is true; over ``lading://`` the broker evaluates it, else the client.
    ``payload`` says how payloads are read, by the keys of ``[payload]`` in a contract; the client then evaluates it.
    ``states="all"`` includes unavailable, poisoned and marked messages. With ``verify_checksum`` a payload that does
    not match its CRC-32 is requested once more, then ChecksumMismatch names it.

    With ``group`` the partitions are shared among its members and reading starts at the group's stored positions. With
    ``auto_commit`` positions are stored while reading and at the end; a message counts as done when the next one is
    requested, or at a ``close`` without error. A member that does not read for the group's session time-out loses its
    partitions to others (over ``kafka://``, whose heartbeats are sent by a thread: for ``reading_timeout_s``).

    Over ``nsq://`` the group is the ``channel``; the option ``tag`` subscribes to the messages with that tag. There a
    message that was not finished is delivered again, and offsets only number what this consumer received. Messages have
    ``attempts``; ``requeue`` gives one back, ``touch`` keeps it longer.

    ``on_loss`` says what to do if messages at the position were deleted: ``fail`` with DataLoss, or ``skip`` with a
    warning. Other ``options`` go to the transport.
    """

    def __init__(
        self,
        url: str | Transport | None = None,
        topics: str | Sequence[str] = (),
        *,
        group: str | None = None,
        channel: str | None = None,
        where: str | None = None,
        states: States = "available",
        start: Bound = "earliest",
        end: Bound | None = None,
        key_deserializer: AnyDeserializer = None,
        value_deserializer: AnyDeserializer = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        verify_checksum: bool = True,
        auto_commit: bool = True,
        timeout_s: float | None = None,
        on_loss: OnLoss = "fail",
        max_bytes: int = 1 << 20,
        payload: Mapping[str, str] | None = None,
        **options: Any,
    ) -> None:
        require_choice("states", states, get_args(States))
        require_choice("on_loss", on_loss, get_args(OnLoss))
        self._key_deserializer = accept_deserializer("key_deserializer", key_deserializer)
        self._value_deserializer = accept_deserializer("value_deserializer", value_deserializer)
        group = find_group(group, channel, end)
        self._payload = payload
        self._selection = Selection.parse(None, where, states, verify_checksum, on_loss, payload)
        self.transport: Transport = open_for(Consumer, url, options)
        names = [topics] if isinstance(topics, str) else list(topics)
        if not names:
            raise SettingError(
                f"Consumer({self.transport.url!r}) names no topic; give one or several: topics='flights'"
            )
        self._start = start
        self._auto_commit = auto_commit
        self._timeout_s = timeout_s
        self._interceptors = list(interceptors)
        self._readers = Readers(self.transport, max_bytes)
        self._ready: deque[Message] = deque()
        self._at: MessageProgress | None = None
        self._error: Exception | None = None
        self._done: dict[TopicPartition, Position] = {}
        self._member: ConsumerMembership | None = None
        self._queue: QueueMembership | None = None
        self._unyielded: BatchProgress | None = None
        self._closed = False
        self._process_id = os.getpid()
        self._selects_none = bool(self._selection.keys)
        self._begun: list[ReadBounds] = []
        try:
            metas = [self.transport.topic(name) for name in dict.fromkeys(names)]
            self._names = [meta.name for meta in metas]
            if group is None:
                for span in spans(self.transport, metas, start, end).values():
                    self._readers.add(span.meta, span.partition, span.offset, end=span.end, is_explicit=span.sure)
                self._begun = self._readers.spans()
            else:
                membership = self.transport.join(group, self._names)
                self._queue = membership if isinstance(membership, QueueMembership) else None
                self._member = ConsumerMembership(membership, self._interceptors)
                self._take_assignment()
        except BaseException:
            self.transport.close()
            raise

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        self._mark_delivered_done()
        if not self._ready and not self._load(self._timeout_s):
            self._warn_of_empty_filter()
            raise StopIteration
        return self._hand_over()

    def poll(self, max_messages: int = 500, timeout_s: float = 1.0) -> list[Message]:
        """Return up to ``max_messages`` as soon as there is one, or an empty list after ``timeout_s`` without any."""
        return self.take(max_messages) if self.prefetch(timeout_s) else []

    def prefetch(self, timeout_s: float | None) -> bool:
        """Wait for messages as ``poll`` does, without returning them; return whether ``take`` has any."""
        self._mark_delivered_done()
        return bool(self._ready) or self._load(timeout_s)

    def take(self, max_messages: int) -> list[Message]:
        """Return up to ``max_messages`` of those that were prefetched, without waiting."""
        return [self._hand_over() for _ in range(min(max_messages, len(self._ready)))]

    def batches(self, columns: str | Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the same messages as Arrow batches, without a Python object each; ends as the iteration does.

        Batches have the Batch schema, or ``columns`` (``"offset, carrier string, delay int"`` or a list of such parts).
        Warns at the end of a header that no message has. Deserialisers and interceptors are not called. If an iteration
        is left, the next one for the same columns continues with the next batch; any other reads that fetch again.
        """
        selection = self._selection
        if columns is not None:
            selection = Selection.parse(
                columns_text(columns),
                selection.where,
                selection.states,
                selection.verify,
                selection.on_loss,
                self._payload,
            )
        self._forget_ready()
        declared = DeclaredHeaders(selection)
        begun = self._readers.spans()
        if self._unyielded is not None and self._unyielded.selection != selection:
            self._rewind_batches()
        while (at := self._unyielded or self._read_batches(selection)) is not None:
            self._unyielded = at
            while at is self._unyielded and at.left:
                batch = at.left.popleft()
                declared.add(batch)
                yield batch
            if at is self._unyielded:
                self._unyielded = None
                self._advance_position(at.place)
        if self._member is None:
            declared.warn_looking_at(self.transport, begun, ", ".join(self._names), stacklevel=2)
        else:
            declared.warn(", ".join(self._names), stacklevel=2)

    def _warn_of_empty_filter(self) -> None:
        """Warn, once, if ``where`` selected nothing and names a header that no message has."""
        if self._selects_none and self._begun:
            DeclaredHeaders(self._selection).warn_looking_at(
                self.transport, self._begun, ", ".join(self._names), stacklevel=3
            )
        self._selects_none = False

    def _hand_over(self) -> Message:
        message = self._ready.popleft()
        self._selects_none = False
        assert self._at is not None
        self._at.handed = message.offset + 1
        return message

    def _mark_delivered_done(self) -> None:
        """Mark the messages that the previous call returned as processed."""
        self._require_usable()
        at = self._at
        if at is not None and at.handed is not None:
            at.finished = at.handed
            if not self._ready:
                self._done[at.place] = at.after
                self._at = None
        if self._member is not None and self._ready:
            self._maintain_membership()

    def _read_batches(self, selection: Selection) -> BatchProgress | None:
        found = self._read(selection, self._timeout_s)
        return None if found is None else BatchProgress(selection, found.place, found.start, deque(found.batches))

    def _rewind_batches(self) -> None:
        """Have batches read again that an iteration did not yield; those that it yielded all count as processed."""
        at, self._unyielded = self._unyielded, None
        if at is not None and at.left:
            self._readers.rewind(at.place, at.start)
        elif at is not None:
            self._advance_position(at.place)

    def _load(self, timeout_s: float | None) -> bool:
        """Fill the queue of messages; return False if the time is over or everything was read."""
        self._rewind_batches()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        while (found := self._read(self._selection, timeout_s)) is not None:
            place, _, batches = found
            meta = self._readers.meta(place)
            messages = [each for batch in batches for each in to_messages(batch, meta.stream, meta.topic, place[1])]
            if self._queue is not None and messages:
                self._add_attempts(self._queue, messages)
            self._at = MessageProgress(place, self._readers.position(place))
            self._ready.extend(self._prepare(place[0], messages))
            if self._ready:
                return True
            if self._error is not None:
                return self._load(timeout_s)
            self._done[place], self._at = self._at.after, None
        return False

    def _prepare(self, topic: str, messages: list[Message]) -> Sequence[Message]:
        """Return the messages after deserialisers and interceptors.

        If a deserialiser fails, its error is raised after the messages before were returned.
        """
        if self._key_deserializer is not None or self._value_deserializer is not None:
            count, self._error = deserialize(topic, messages, self._key_deserializer, self._value_deserializer)
            if self._error is not None:
                self._back_to(messages[count].offset)
                messages = messages[:count]
        if not self._interceptors:
            return messages
        return apply_interceptors([each.on_consume for each in self._interceptors], messages)

    def _read(self, selection: Selection, timeout_s: float | None) -> PartitionBatches | None:
        return self._readers.next(
            selection,
            timeout_s,
            passed=self._advance_position,
            on_round=self._maintain_membership,
            endless=self._member is not None,
        )

    def _advance_position(self, place: TopicPartition) -> None:
        self._done[place] = self._readers.position(place)

    # positions

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next message of each (topic, partition)."""
        found = {place: position.offset for place, position in self._readers.positions().items()}
        if self._at is not None:
            found[self._at.place] = self._ready[0].offset if self._ready else self._at.after.offset
        if self._unyielded is not None and self._unyielded.left:
            found[self._unyielded.place] = self._unyielded.start
        return found

    def damage(self) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return, by (topic, partition), the ranges of damaged messages that were skipped with ``on_loss="skip"``."""
        return self._readers.damage()

    def lag(self) -> dict[TopicPartition, int]:
        """Return for each (topic, partition) how many offsets there are from the position to the present end."""
        metas = [self.transport.topic(name) for name in self._names]
        ends = {(meta.name, part.number): part.end_offset for meta in metas for part in meta.partitions}
        return {place: max(0, ends.get(place, 0) - offset) for place, offset in self.positions().items()}

    def seek(self, partition: int, offset: int, topic: str | None = None) -> None:
        """Continue at ``offset`` of a partition; ``topic`` may be omitted if there is only one."""
        self._require_usable()
        if topic is None and len(self._names) > 1:
            raise LocalError(f"this consumer reads several topics ({', '.join(self._names)}); pass topic= to seek")
        place = (topic or self._names[0], partition)
        if place not in self._readers:
            raise LocalError(
                f"this consumer does not read partition {partition} of topic {place[0]!r}; name one that it reads"
            )
        self._error = None
        self._forget_ready()
        self._rewind_batches()
        self._readers.seek(place, offset)
        self._done[place] = Position(offset)

    def commit(self) -> None:
        """Store the group's positions after all messages returned so far."""
        if self._member is None:
            raise LocalError("commit() needs a consumer group; use Consumer(..., group='name')")
        self._require_usable()
        if self._at is not None and self._at.handed is not None:
            self._at.finished = self._at.handed
        self._store()

    # queues

    def requeue(self, message: Message, delay_s: float = 0.0) -> None:
        """Give a message of a queue back: it is delivered again after ``delay_s``, to any reader of the channel.

        It needs no commit then. Raises LocalError if this consumer no longer has it, or does not read a queue.
        """
        if not 0 <= delay_s < math.inf:
            raise SettingError(f"delay_s is 0 or more, not {delay_s!r}")
        self._require_usable()
        self._require_queue("requeued").requeue(message.offset, round(delay_s * 1000))

    def touch(self, message: Message) -> None:
        """Restart the time-out of a message of a queue, for work that takes longer than ``message_timeout_s``.

        Raises LocalError if this consumer no longer has it, or does not read a queue.
        """
        self._require_usable()
        self._require_queue("touched").touch(message.offset)

    def _require_queue(self, verb: str) -> QueueMembership:
        if self._queue is None:
            raise LocalError(
                f"messages of {self.transport.url} cannot be {verb}: only those of a queue are, over nsq:// with a "
                "channel; seek() reads any message of a log again"
            )
        return self._queue

    @staticmethod
    def _add_attempts(queue: QueueMembership, messages: Sequence[Message]) -> None:
        first = messages[0].offset
        queued = queue.messages(first, messages[-1].offset + 1 - first)
        for message in messages:
            message.attempts = queued[message.offset - first].attempts

    # groups

    def _take_assignment(self) -> None:
        assert self._member is not None
        self._member.reassigned = False
        membership = self._member.membership
        assigned = [(topic, number) for topic, number in membership.partitions]
        if self._at is not None and self._at.place not in assigned:
            self._ready.clear()
            self._at = None
        if self._unyielded is not None and self._unyielded.place not in assigned:
            self._unyielded = None
        self._readers.keep(assigned)
        self._done = {place: position for place, position in self._done.items() if place in assigned}
        metas = {topic: self.transport.topic(topic) for topic in {topic for topic, _ in assigned}}
        for topic, number in assigned:
            if (topic, number) in self._readers:
                continue
            position = membership.position(topic, number)
            if position is not None:
                self._readers.add(metas[topic], number, position.offset, epoch=position.epoch)
                continue
            span = spans(self.transport, [metas[topic]], self._start, None).get((topic, number))
            if span is not None:
                self._readers.add(metas[topic], number, span.offset, is_explicit=span.sure)

    def _maintain_membership(self) -> None:
        if self._member is None:
            return
        changing = self._member.membership.is_rebalancing
        if changing and self._auto_commit:
            # the last moment at which this consumer has these partitions
            self._store()
        self._member.heartbeat_when_due(changing=changing)
        if self._member.reassigned:
            self._take_assignment()
        if self._auto_commit and self._member.store_due:
            self._store()

    def _store(self) -> None:
        assert self._member is not None
        done = dict(self._done)
        if self._at is not None and self._at.finished is not None:
            done[self._at.place] = Position(self._at.finished, self._at.after.epoch)
        self._member.store(done)

    # -- closing

    def close(self, *, failed: bool = False) -> None:
        """Store positions (with ``auto_commit``), leave the group, close the connection. Further calls do nothing.

        With ``failed`` the last returned message does not count as processed, so that it is read again.
        """
        if self._closed:
            return
        self._closed = True
        if self._process_id != os.getpid():
            # a forked child that leaves the block: the member and the connection belong to the parent
            return
        try:
            if self._member is not None:
                if self._queue is not None:
                    self._queue.stop()
                if self._auto_commit:
                    if self._at is not None and not failed:
                        self._at.finished = self._at.handed
                    self._store()
                self._member.membership.leave()
        finally:
            notify_interceptors([each.close for each in self._interceptors])
            self.transport.close()

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close(failed=error is not None)
        except LadingError:
            if error is None:
                raise
            # show the error that ended the block
            LOG.warning("positions were not stored", exc_info=True)

    def _require_usable(self) -> None:
        if self._closed:
            raise LocalError("this consumer is closed; make a new one")
        if self._process_id != os.getpid():
            raise LocalError("this consumer belongs to the process that forked this one; create one in each process")

    def _back_to(self, offset: int) -> None:
        """Read again from ``offset`` of the partition whose messages are being returned."""
        assert self._at is not None
        self._readers.rewind(self._at.place, offset)
        self._at.after = Position(offset, self._at.after.epoch)

    def _forget_ready(self) -> None:
        """Discard messages that were read but not returned; they are read again."""
        if self._at is not None and self._at.handed is not None:
            self._done[self._at.place] = Position(self._at.handed, self._at.after.epoch)
        if self._ready:
            self._back_to(self._ready[0].offset)
        self._ready.clear()
        self._at = None


class ConsumerMembership:
    """A consumer as a member of its group: heartbeats and commits over a ``membership``.

    ``reassigned``: its partitions changed, and reading has not begun again.
    """

    def __init__(self, membership: Membership, interceptors: Sequence[ConsumerInterceptor]) -> None:
        self.membership = membership
        self.reassigned = False
        self._interceptors = interceptors
        self._stored: dict[TopicPartition, Position] = {}
        self._heartbeat_at = self._commit_at = time.monotonic()

    @property
    def store_due(self) -> bool:
        """Whether the last commit is COMMIT_S ago."""
        return time.monotonic() - self._commit_at >= COMMIT_S

    def heartbeat_when_due(self, *, changing: bool) -> None:
        """Send a heartbeat every two seconds, and at once if the assignment is ``changing``."""
        now = time.monotonic()
        if changing or now - self._heartbeat_at >= HEARTBEAT_S:
            self._heartbeat_at = now
            self.reassigned |= self.membership.heartbeat()

    def store(self, done: Mapping[TopicPartition, Position]) -> None:
        """Store the positions that changed, except in partitions that another member has now."""
        self._commit_at = time.monotonic()
        changed = {place: position for place, position in done.items() if self._stored.get(place) != position}
        stored = {place: position for place, position in changed.items() if self._store_one(place, position)}
        self._stored.update(stored)
        notify_interceptors(
            [each.on_commit for each in self._interceptors],
            {place: position.offset for place, position in stored.items()},
        )

    def _store_one(self, place: TopicPartition, position: Position) -> bool:
        """Store one position; return False if the partition was assigned to another member."""
        for _ in range(STORE_ATTEMPTS):
            try:
                self.membership.store(*place, position)
                return True
            except Refusal as error:
                if error.reason is not Reason.STALE_GENERATION:
                    raise
            # the members changed; positions in partitions that are still ours can be stored under the new generation
            self.reassigned |= self.membership.heartbeat()
            if place not in self.membership.partitions:
                LOG.info("partition %d of topic %r went to another member with its position", place[1], place[0])
                return False
        return False


@dataclass(slots=True)
class MessageProgress:
    """The messages of one read of a partition, and how many of them the caller has.

    ``after`` is the position after all of them, ``handed`` after the last returned one, ``finished`` after the last one
    that the caller has processed.
    """

    place: TopicPartition
    after: Position
    handed: int | None = None
    finished: int | None = None


@dataclass(slots=True)
class BatchProgress:
    """The batches of one partition that are being yielded; an iteration may be left before the last one."""

    selection: Selection
    place: TopicPartition
    start: int
    """The offset from which the batches were read."""
    left: deque[pa.RecordBatch]
