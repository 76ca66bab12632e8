"""Dead letters: a message that is marked poisoned is copied once to the topic that its topic's settings name.

First the intent is in the catalog, then the states are on disk, then the copies are made. A crash anywhere between is
made good at the next start: states that an intent stands for are set, copies that were made are recognised by the
writer id of their block, so that every marking has exactly one copy. Reading, headers and blocks of the copies are
work for another thread: ``next``, ``DeadLetterBatch.encode``, ``send``, in this order, one copy at a time.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa

from ...columns.rewrite import with_headers
from ...dialects import registry
from ...dialects.native import protocol as native_row
from ...dialects.native.messages import BlockHeader, encode_block
from ...log.catalog import Catalog
from ...log.dead_letter_intents import DeadLetterIntentRow, DeadLetterIntentStore
from ...model.batch import SCHEMA
from ...model.errors import LimitExceeded, MalformedMessage, Reason, Refusal
from ...model.kinds import Kind
from ...model.reason_headers import DETAIL, MARKED_AT, ORIGIN, REASON, REASON_HEADERS
from ...model.scan_request import ScanRequest
from ...model.state import State
from .component import Component
from .counters import Counters
from .dead_letter_rights import GrantorAllows, is_other_target, place_of_target, require_setter_rights
from .pending_append import Append
from .read import RunSlice, read
from .topology import Partition, Topic

LOG: Final = logging.getLogger("lading.broker")
RANGES_PER_MARKING: Final = 64
MESSAGES_PER_MARKING: Final = 1_000
READ_BYTES: Final = 8 << 20
"""Chunks to read for one block of copies; more only if one message needs it."""
RETRY_US: Final = 1_000_000
REASON_LENGTH_MAX: Final = 1_000

Ranges = Sequence[tuple[int, int]]
SHARE_GROUP_HEADERS: Final = tuple(
    f"__dlq.errors.{name}" for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
"""Headers of KIP-1191, by which clients find out why a share group gave a message up."""
_SHARE_GROUP_REASON: Final = re.compile(
    r'share group (?P<group>".*") (?P<rejected>rejected it at delivery|gave it up after) (?P<count>\d+)( deliveries)?',
    re.DOTALL,
)


class ShareGroupReason(NamedTuple):
    """The reason why a share group delivers a message no more; its text is that of a marking."""

    group: str
    deliveries: int
    is_rejected: bool

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Return the reason that a text of ``str`` is, or None."""
        found = _SHARE_GROUP_REASON.fullmatch(text)
        if found is None:
            return None
        return cls(json.loads(found["group"]), int(found["count"]), found["rejected"].startswith("rejected"))

    def __str__(self) -> str:
        """Return a sentence."""
        group = f"share group {json.dumps(self.group, ensure_ascii=False)}"
        if self.is_rejected:
            return f"{group} rejected it at delivery {self.deliveries}"
        return f"{group} gave it up after {self.deliveries} deliveries"

    def to_headers(self, source: Partition, offsets: pa.Array[Any]) -> dict[str, Any]:
        """Return KIP-1191's headers of messages of a partition, by key."""
        # the texts are Apache Kafka's
        message = "Offset rejected by client." if self.is_rejected else "Offset delivery count exceeded the threshold."
        values: list[Any] = [
            source.topic.flat_name, str(source.number), offsets.cast(pa.string()), self.group, str(self.deliveries),
            message,
        ]  # fmt: skip
        rows = len(offsets)
        return {
            key: pa.repeat(pa.scalar(value, pa.string()), rows) if isinstance(value, str) else value
            for key, value in zip(SHARE_GROUP_HEADERS, values, strict=True)
        }


@dataclass(slots=True, eq=False)
class PendingDeadLetter:
    """A marking whose copies are not all made."""

    row: DeadLetterIntentRow
    partition: Partition
    read_bytes: int = READ_BYTES
    due_us: int = 0
    states_waiting: bool = False
    """Whether its states are not known to be on disk."""


class DeadLetters(Component):
    """All markings of a broker."""

    def __init__(
        self,
        catalog: Catalog,
        counters: Counters,
        topic_by_uuid: Callable[[bytes], Topic | None],
        resolve: Callable[[str], Topic],
        create: Callable[[str, str, int, int], Topic],
        append: Callable[[Partition, memoryview, int], Append],
        allows: GrantorAllows,
    ) -> None:
        """``create(stream, topic, partitions, now_us)`` makes a topic, ``append(partition, block, now_us)`` a block."""
        self.on_pending: Callable[[], None] = lambda: None
        """Called when ``next`` may have new work."""
        self._store = DeadLetterIntentStore(catalog)
        self._counters = counters
        self._resolve = resolve
        self._create = create
        self._append = append
        self._allows = allows
        self._markings: dict[int, PendingDeadLetter] = {}
        self._soft: dict[int, Partition] = {}
        """The partitions of markings whose confirmation a power cut may still undo."""
        self._topics = topic_by_uuid
        self._last_failure = ""

    # ------------------------------------------------------------------------------------------ marking

    def load(self, topics: Sequence[Topic]) -> None:
        """Continue after a start: set the intended states; intended copies wait for ``next``."""
        gone = []
        for row in self._store.all():
            topic = self._topics(row.topic)
            if topic is None or row.partition >= len(topic.partitions):
                gone.append(row.id)
            else:
                self._take_in(PendingDeadLetter(row, topic.partitions[row.partition]))
                self._soft[row.id] = topic.partitions[row.partition]
        if gone:
            # on a full disk they are found again at the next start
            with suppress(Refusal):
                self._store.remove(gone, firm=False)
        for marking in list(self._markings.values()):
            try:
                self._set_again(marking)
            except Refusal as refusal:
                LOG.warning("%s", refusal)

    @contextmanager
    def marking(
        self, partition: Partition, changed: Ranges, state: int, reason: str | None, now_us: int
    ) -> Iterator[None]:
        """Wrap the setting of a state: record the intended copies before it, confirm them after it, or undo them."""
        if reason is not None and len(reason) > REASON_LENGTH_MAX:
            raise Refusal(Reason.MALFORMED, f"a reason has at most {REASON_LENGTH_MAX} characters, not {len(reason)}")
        if state != State.POISONED:
            self._confirm_over(partition)
        elif partition.topic.settings.dead_letter_topic is not None:
            yield from self._record_intents(partition, changed, reason, now_us)
            return
        yield

    def _record_intents(self, partition: Partition, changed: Ranges, reason: str | None, now_us: int) -> Iterator[None]:
        target = self._open_target(partition, now_us)
        topic = partition.topic
        drafts = [
            DeadLetterIntentRow(
                0, topic.uuid, partition.number, ranges, target.topic.uuid, target.number, False, reason, now_us
            )
            for ranges in _split_into_portions(changed)
        ]
        rows = [replace(draft, id=ident) for draft, ident in zip(drafts, self._store.add(drafts), strict=True)]
        ids = [row.id for row in rows]
        # with them all that was written to the file before is there for good
        self._soft = {ident: where for ident, where in self._soft.items() if not self._is_confirmed(ident)}
        self._soft |= dict.fromkeys(ids, partition)
        for row in rows:
            self._take_in(PendingDeadLetter(row, partition, states_waiting=True))
        try:
            yield
        except BaseException:
            self._drop(ids)
            # if this fails too, the next start sets the states after all
            self._store.remove(ids, firm=True)
            raise
        for row in rows:
            marking = self._markings.get(row.id)
            if marking is not None:
                marking.row, marking.states_waiting = replace(row, confirmed=True), False
        self._store.confirm(ids, firm=False)
        self.on_pending()

    def copy(self, partition: Partition, changed: Ranges, reason: str, now_us: int) -> None:
        """Copy messages without setting their state; the intent is durable on return. Raises Refusal."""
        target = self._open_target(partition, now_us)
        topic = partition.topic
        drafts = [
            DeadLetterIntentRow(
                0, topic.uuid, partition.number, ranges, target.topic.uuid, target.number, True, reason, now_us
            )
            for ranges in _split_into_portions(changed)
        ]
        # all or none, in one sync: the caller tries all of them again after a refusal
        for draft, ident in zip(drafts, self._store.add(drafts), strict=True):
            self._take_in(PendingDeadLetter(replace(draft, id=ident), partition))
        self.on_pending()

    def _is_confirmed(self, ident: int) -> bool:
        marking = self._markings.get(ident)
        return marking is None or marking.row.confirmed

    def _take_in(self, marking: PendingDeadLetter) -> None:
        self._markings[marking.row.id] = marking
        self._counters.dead_letters_waiting += _count_messages(marking.row.ranges)
        marking.partition.first_uncopied_offset = partial(self._first_of, marking.partition)

    def _first_of(self, partition: Partition) -> int | None:
        """Return the first offset that is still to be copied."""
        return min(
            (one.row.ranges[0][0] for one in self._markings.values() if one.partition is partition), default=None
        )

    def _drop(self, ids: Iterable[int]) -> None:
        for ident in ids:
            marking = self._markings.pop(ident, None)
            self._soft.pop(ident, None)
            if marking is not None:
                self._counters.dead_letters_waiting -= _count_messages(marking.row.ranges)

    def _confirm_over(self, partition: Partition) -> None:
        """Other states replace some that a start would set again: make sure that it does not."""
        ids = [ident for ident, where in self._soft.items() if where is partition]
        if ids:
            self._store.confirm(ids, firm=True)
            self._soft = {ident: where for ident, where in self._soft.items() if where is not partition}

    def _set_again(self, marking: PendingDeadLetter) -> None:
        row, log = marking.row, marking.partition.log
        if row.confirmed:
            return
        for first, end in row.ranges:
            log.set_state(first, end, State.POISONED, row.marked_us)
        log.sync_states()
        self._store.confirm([row.id], firm=False)
        marking.row = replace(row, confirmed=True)

    def _open_target(self, partition: Partition, now_us: int) -> Partition:
        """Return the topic that copies go to, created with as many partitions as here if it does not exist."""
        topic = partition.topic
        name = topic.settings.dead_letter_topic
        assert name is not None
        require_setter_rights(self._allows, topic, self._resolve)
        try:
            target = self._resolve(name)
        except Refusal:
            stream, plain = place_of_target(name)
            try:
                target = self._create(stream, plain, len(topic.partitions), now_us)
            except Refusal as refusal:
                raise Refusal(
                    refusal.reason, f"dead letter topic {name!r} of {topic.flat_name!r} cannot be created: {refusal}"
                ) from None
        if target is topic:
            raise Refusal(Reason.MALFORMED, f"the dead letter topic of {name!r} is that topic itself; name another")
        return target.partition(partition.number % max(len(target.partitions), 1))

    def on_partition_deleted(self, partition: Partition) -> None:
        """Drop the intended copies from the partition."""
        ids = [ident for ident, marking in self._markings.items() if marking.partition is partition]
        self._drop(ids)
        if ids:
            self._store.remove(ids, firm=False)

    # ------------------------------------------------------------------------------------------ copying

    def next(self, now_us: int) -> DeadLetterBatch | None:
        """Return a batch to copy now: encode it in any thread, then pass it to ``send``. None without one."""
        for marking in self._markings.values():
            if marking.due_us > now_us or marking.states_waiting:
                continue
            try:
                copy = self._begin(marking, now_us)
            except Refusal as refusal:
                self._put_off(marking, refusal, now_us)
                continue
            if copy is not None:
                return copy
            # what an open transaction may still take back is not copied yet
            marking.due_us = now_us + RETRY_US
        return None

    @property
    def next_due_us(self) -> int | None:
        """When ``next`` should be asked again at the latest; None if nothing waits."""
        return min((one.due_us for one in self._markings.values() if not one.states_waiting), default=None)

    def _begin(self, marking: PendingDeadLetter, now_us: int) -> DeadLetterBatch | None:
        self._set_again(marking)
        row, partition = marking.row, marking.partition
        if row.ranges[-1][1] > partition.log.last_stable_offset:
            return None
        require_setter_rights(self._allows, partition.topic, self._resolve)
        target = self._topics(row.target)
        if (
            target is None
            or row.target_partition >= len(target.partitions)
            or is_other_target(partition.topic, target, self._resolve)
        ):
            found = self._open_target(partition, now_us) if partition.topic.settings.dead_letter_topic else None
            if found is None:
                raise Refusal(
                    Reason.TOPIC_NAME_NOT_FOUND,
                    f"the dead letter topic of {partition.topic.flat_name!r} was deleted; name another in its settings",
                )
            row = marking.row = replace(row, target=found.topic.uuid, target_partition=found.number)
            self._store.advance(row)
            target = found.topic
        pieces, covered = self._read_pieces(marking)
        return DeadLetterBatch(
            row, partition, target.partitions[row.target_partition], pieces, covered, _writer_id(row)
        )

    def _read_pieces(self, marking: PendingDeadLetter) -> tuple[list[RunSlice], int]:
        """Return messages of the marking, about as many bytes as it may read, and the offset they reach to."""
        pieces: list[RunSlice] = []
        left_bytes = marking.read_bytes
        covered = 0
        for first, end in marking.row.ranges:
            at = first
            while at < end:
                if left_bytes <= 0:
                    return pieces, covered
                reading = read(
                    marking.partition, at, reader=native_row.ALL_STATES, max_messages=end - at, max_bytes=left_bytes,
                    counters=self._counters,
                )  # fmt: skip
                pieces += [
                    RunSlice(piece.run, piece.first, min(piece.end, end))
                    for piece in reading.pieces
                    if piece.first < end
                ]
                left_bytes -= max(reading.size_bytes, 1)
                covered = at = min(max(reading.end_offset, at), end) if reading.end_offset > at else end
        return pieces, covered

    def send(self, copy: DeadLetterBatch, now_us: int) -> Append | None:
        """Append an encoded copy; done by itself when the Append is. None if there was nothing to send."""
        marking = self._markings.get(copy.row.id)
        if marking is None or marking.row is not copy.row:
            return None
        for sentence in copy.skipped:
            LOG.warning("%s", sentence)
        if copy.block is None:
            self._advance(marking, copy.covered, now_us)
            return None
        try:
            append = self._append(copy.target, memoryview(copy.block), now_us)
        except Refusal as refusal:
            self._put_off(marking, refusal, now_us)
            return None
        append.add_done_callback(lambda done: self._on_copy_appended(copy, done, now_us))
        return append

    def _on_copy_appended(self, copy: DeadLetterBatch, done: Append, now_us: int) -> None:
        marking = self._markings.get(copy.row.id)
        if marking is None or marking.row is not copy.row:
            return
        if done.error is not None:
            self._put_off(marking, done.error, now_us)
            return
        count = len(copy.offsets)
        if done.duplicate:
            # this block was sent before a crash: what counts is what lay in it then
            before = done.end_offset - done.base_offset
            if before > count:
                marking.read_bytes *= 4
                self.on_pending()
                return
            covered = copy.covered if before == count else copy.offsets[before - 1] + 1
        else:
            self._counters.dead_letters += count
            covered = copy.covered
        self._advance(marking, covered, now_us)

    def _advance(self, marking: PendingDeadLetter, covered: int, now_us: int) -> None:
        """Note that all messages before ``covered`` are copied."""
        row = marking.row
        left = [(max(first, covered), end) for first, end in row.ranges if end > covered]
        try:
            if left:
                marking.row = replace(row, ranges=left)
                self._counters.dead_letters_waiting -= _count_messages(row.ranges) - _count_messages(left)
                self._store.advance(marking.row)
            else:
                self._drop([row.id])
                self._store.remove([row.id], firm=False)
        except Refusal as refusal:
            # the next start sends again what was sent, and finds that it was
            self._put_off(marking, refusal, now_us)
        self.on_pending()

    def _put_off(self, marking: PendingDeadLetter, refusal: Refusal, now_us: int) -> None:
        marking.due_us = now_us + RETRY_US
        self._counters.failed_maintenance += 1
        if str(refusal) != self._last_failure:
            self._last_failure = str(refusal)
            LOG.warning("dead letters of %s wait: %s; trying again", marking.partition, refusal)


def _writer_id(row: DeadLetterIntentRow) -> bytes:
    """Return the name under which the next block of a marking is written to a target: the same after any restart.

    The time is part of it: ids of rows begin again at 1 after a catalog was lost.
    """
    place = row.topic + row.target + b"%d/%d/%d/%d/%d" % (
        row.partition, row.target_partition, row.id, row.marked_us, row.ranges[0][0],
    )  # fmt: skip
    return blake2b(place, digest_size=16, person=b"lading-dead").digest()


def _split_into_portions(ranges: Ranges) -> Iterator[list[tuple[int, int]]]:
    """Ranges, cut and put together so that each portion is a bounded piece of work."""
    portion: list[tuple[int, int]] = []
    room = MESSAGES_PER_MARKING
    for first, end in ranges:
        at = first
        while at < end:
            stop = min(end, at + room)
            portion.append((at, stop))
            room -= stop - at
            at = stop
            if not room or len(portion) == RANGES_PER_MARKING:
                yield portion
                portion, room = [], MESSAGES_PER_MARKING
    if portion:
        yield portion


def _count_messages(ranges: Ranges) -> int:
    return sum(end - first for first, end in ranges)


@dataclass(slots=True, eq=False)
class DeadLetterBatch:
    """One block of copies: complete, in order, with headers that give the reason and the origin.

    ``pieces`` hold all messages of the marking ``row`` before the offset ``covered``.
    """

    row: DeadLetterIntentRow
    source: Partition
    target: Partition
    pieces: list[RunSlice]
    covered: int
    writer_id: bytes
    block: bytes | None = None
    """The native block; None before ``encode``, and if there is nothing to copy."""
    offsets: list[int] = field(default_factory=list)
    """Offsets of the block's messages in the source."""
    skipped: list[str] = field(default_factory=list)
    """Sentences about messages that cannot be copied."""

    def encode(self) -> None:
        """Make the block; in any thread, once. A message that no block can hold is left out and named."""
        batches: list[pa.RecordBatch] = []
        for run, first, end in self.pieces:
            try:
                batches += [registry.to_batch(part) for part in registry.decode(run, ScanRequest(first, end))]
            except MalformedMessage as error:
                self.skipped.append(f"{self.source}: offsets {first} to {end - 1} cannot be copied: {error}")
        if not batches:
            return
        messages = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        rows = messages.num_rows
        while rows and self.block is None:
            self._encode(messages, rows)
            rows //= 2
        if self.block is None:
            offset = messages.column("offset")[0].as_py()
            self.skipped.append(f"{self.source}: offset {offset} is too large to be copied to {self.target}")
            self.covered = offset + 1

    def _encode(self, messages: pa.RecordBatch, rows: int) -> None:
        batch = self._with_reason(messages.slice(0, rows))
        header = BlockHeader(self.writer_id)
        try:
            self.block = encode_block(batch, header)
        except LimitExceeded:
            return
        self.offsets = batch.column("offset").to_numpy().tolist()
        if rows < messages.num_rows:
            self.covered = self.offsets[-1] + 1

    def _with_reason(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        rows = messages.num_rows
        moment = datetime.fromtimestamp(self.row.marked_us / 1e6, UTC).isoformat(timespec="milliseconds")
        place = f"{self.source}/"
        added: dict[str, Any] = {
            REASON: pa.repeat(pa.scalar(State.POISONED.word), rows),
            DETAIL: pa.repeat(pa.scalar(self.row.reason, pa.string()), rows),
            ORIGIN: pa.array([f"{place}{offset}" for offset in messages.column("offset").to_pylist()]),
            MARKED_AT: pa.repeat(pa.scalar(moment.replace("+00:00", "Z")), rows),
        }
        given_up = ShareGroupReason.parse(self.row.reason or "")
        if given_up is not None:
            added |= given_up.to_headers(self.source, messages.column("offset"))
        headers = with_headers(
            messages.column("headers"),
            added,
            dict.fromkeys(added, Kind.STRING),
            drop=(*REASON_HEADERS, *SHARE_GROUP_HEADERS),
        )
        columns = dict(zip(messages.schema.names, messages.columns, strict=True))
        columns |= {"headers": headers, "state": pa.repeat(pa.scalar(int(State.AVAILABLE), pa.int8()), rows)}
        return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)
