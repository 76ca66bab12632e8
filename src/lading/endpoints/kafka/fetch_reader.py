"""Reads partitions for a Kafka consumer: batches as they are stored, or converted in a worker.

Messages of other dialects go through Batch and carrier; marked messages get a header if the topic shows them. A message
that even the carrier cannot hold is replaced by a stub that keeps its offset and gives the reason.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ...broker.core.append.pass_through import Ahead, whole_chunks
from ...broker.core.read import ReadResult, RunSlice, read
from ...broker.core.state_header import add_state
from ...dialects import codes, registry
from ...dialects.kafka import batch_slicing
from ...dialects.kafka import protocol as kafka_row
from ...model.batch import FIELDS_WITH_ORIGIN
from ...model.ranges import split_by_mark, subtract_ranges
from ...model.scan_request import ScanRequest

if TYPE_CHECKING:
    from ...broker.broker import Broker
    from ...broker.core.topology import Partition, Topic
    from ..base.carrying import Carrying, Fit

CACHE_BYTES: Final = 32 << 20
"""Converted batches that are kept for other consumers of the same messages; one of more than a quarter is not kept."""
MESSAGES_UNBOUNDED: Final = 1 << 62

Bytes = bytes | bytearray | memoryview
Key = tuple[object, ...]
SHOWN: Final = "shown"
"""Value of the topic setting ``kafka_states`` with which marked messages are shown."""
Change = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class PartitionRecords:
    """The response for a partition from one offset up to ``end_offset``: ``count`` messages, about ``size_bytes``.

    If ``make`` is set, a worker has to call it to make the records, which are kept under ``key``.
    """

    parts: Sequence[Bytes] = ()
    size_bytes: int = 0
    end_offset: int = 0
    count: int = 0
    make: Callable[[], ConvertedBatches] | None = None
    key: Key = ()


_NOTHING: Final = PartitionRecords()


@dataclass(frozen=True, slots=True)
class ConvertedBatches:
    """Batches converted for readers, and the number of stubs among their messages."""

    parts: Sequence[Bytes]
    size_bytes: int
    stubs: int


class FetchReader:
    """Reads partitions for Kafka consumers; converted batches are kept for the next reader, as far as memory allows."""

    def __init__(self, broker: Broker, carrying: Carrying) -> None:
        self._broker = broker
        self._carrying = carrying
        self._made: OrderedDict[Key, ConvertedBatches] = OrderedDict()
        self._made_bytes = 0

    def read(
        self, partition: Partition, offset: int, *, committed: bool, max_bytes: int, force: bool, ahead: Ahead
    ) -> PartitionRecords:
        """Return batches from ``offset`` on, at most ``max_bytes``; with ``force`` at least one, if there is any."""
        log = partition.log
        # checked first: most partitions of most fetches have nothing new
        if offset >= (log.last_stable_offset if committed else log.high_watermark) or (max_bytes <= 0 and not force):
            return _NOTHING
        reader = kafka_row.COMMITTED if committed else kafka_row.UNCOMMITTED
        whole = whole_chunks(
            partition, offset, reader=reader, dialect=codes.KAFKA, max_bytes=max_bytes,
            max_chunks=batch_slicing.CHUNKS_MAX, ahead=ahead, counters=self._broker.counters,
        )  # fmt: skip
        if whole is not None:
            # no message is marked: ``reader`` is one that would not see marked messages
            return PartitionRecords(
                batch_slicing.join_small(whole.bodies, whole.size_bytes),
                whole.size_bytes,
                whole.end_offset,
                whole.messages_count,
            )
        if shows_states(partition.topic):
            reader = kafka_row.COMMITTED_SHOWING if committed else kafka_row.UNCOMMITTED_SHOWING
        reading = read(
            partition,
            offset,
            reader=reader,
            max_messages=MESSAGES_UNBOUNDED,
            max_bytes=max(max_bytes, 1),
            counters=self._broker.counters,
        )
        if reading.end_offset <= offset:
            return _NOTHING
        if not reading.pieces:
            made = batch_slicing.empty(offset, reading.end_offset)
            return PartitionRecords((made,), len(made), reading.end_offset)
        if _is_pass_through(reading, offset):
            return _slice_stored(reading, max_bytes, force=force)
        return self._to_make(partition, reading, offset)

    def _to_make(self, partition: Partition, reading: ReadResult, offset: int) -> PartitionRecords:
        left_out = partition.log.aborted_ranges(reading.first_offset, reading.end_offset)
        spans = tuple((piece.first, piece.end) for piece in reading.pieces)
        fit, with_carriers = self._carrying.fit(partition.topic), self._carrying.is_on(partition.topic)
        marks = tuple(reading.hidden)
        key = (partition, partition.log.epoch, offset, reading.end_offset, spans, tuple(left_out), with_carriers, marks)
        made = self._made.get(key)
        if made is not None:
            self._made.move_to_end(key)
            return PartitionRecords(made.parts, made.size_bytes, reading.end_offset, reading.count)

        def make() -> ConvertedBatches:
            return _convert_reading(reading, left_out, fit)

        return PartitionRecords((), reading.size_bytes, reading.end_offset, reading.count, make, key)

    def fit(self, topic: Topic) -> Fit:
        """Return the function that converts messages of other dialects for a Kafka consumer."""
        return self._carrying.fit(topic)

    def keep(self, key: Key, made: ConvertedBatches) -> None:
        """Keep converted batches, and drop the least recently used ones."""
        if made.size_bytes > CACHE_BYTES // 4 or key in self._made:
            return
        self._made[key] = made
        self._made_bytes += made.size_bytes
        while self._made_bytes > CACHE_BYTES:
            self._made_bytes -= self._made.popitem(last=False)[1].size_bytes


def _is_pass_through(reading: ReadResult, offset: int) -> bool:
    """Return whether all messages read are Kafka's own, none is left out, and none is marked."""
    at = offset
    for piece in reading.pieces:
        if piece.run.dialect != codes.KAFKA or piece.first != at:
            return False
        at = piece.end
    return at == reading.end_offset and not reading.damaged and not reading.hidden


def _slice_stored(reading: ReadResult, max_bytes: int, *, force: bool) -> PartitionRecords:
    parts: list[Bytes] = []
    size_bytes, end_offset = 0, reading.first_offset
    for piece in reading.pieces:
        room = max_bytes - size_bytes
        passed = batch_slicing.slice_stored(piece.run, piece.first, piece.end, room, force=force and not parts)
        parts += passed.parts
        size_bytes += passed.size_bytes
        end_offset = passed.end_offset
        if passed.end_offset < piece.end:
            break
    return PartitionRecords(parts, size_bytes, end_offset, end_offset - reading.first_offset)


def _convert_reading(reading: ReadResult, left_out: Sequence[tuple[int, int]], fit: Fit) -> ConvertedBatches:
    """Return the batches of a reading for a Kafka consumer; from any thread."""
    parts: list[Bytes] = []
    stubs, covered = 0, reading.first_offset
    for piece in reading.pieces:
        for begin, behind, change in split_by_state(reading.hidden, piece.first, piece.end):
            if piece.run.dialect == codes.KAFKA:
                parts += batch_slicing.slice_visible(piece.run, begin, behind, change)
                covered = behind
                continue
            for first, end in subtract_ranges(left_out, begin, behind):
                for some, unholdable in _carry_messages(piece, first, end, fit, change):
                    parts.append(some)
                    stubs += unholdable
                covered = end
    if covered < reading.end_offset:
        parts.append(batch_slicing.empty(covered, reading.end_offset))
    return ConvertedBatches(parts, sum(map(len, parts)), stubs)


def _carry_messages(
    piece: RunSlice, first: int, end: int, fit: Fit, change: Change | None
) -> Iterator[tuple[bytes, int]]:
    """Return messages of another dialect, restored from their carriers, as batches of this one, and the
    number of stubs.
    """
    for decoded in registry.decode(piece.run, ScanRequest(first, end, FIELDS_WITH_ORIGIN)):
        messages = registry.to_batch(decoded)
        carried = fit(messages if change is None else change(messages))
        yield registry.dialect(codes.KAFKA).encode(carried.batch), len(carried.unholdable)


def shows_states(topic: Topic) -> bool:
    """Return whether Kafka readers of the topic also get messages that are not available."""
    return topic.settings.kafka_states == SHOWN


def split_by_state(
    hidden: Sequence[tuple[int, int, int]], first: int, end: int
) -> Iterator[tuple[int, int, Change | None]]:
    """Yield the ranges of ``first`` to ``end`` in order, each with the treatment of its messages if they are marked."""
    for start, stop, state in split_by_mark(hidden, first, end):
        yield start, stop, None if state is None else partial(add_state, state)
