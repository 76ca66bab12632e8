"""One of the two topics, read by a thread of its own: its messages become ranges with a digest each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..client.read_bounds import spans
from ..client.reading import PartitionReader, Selection
from ..model.errors import LocalError
from ..model.scan_request import MAX_OFFSET
from ..transports.interface import TopicMeta
from ..transports.open import open_transport
from ..transports.topic_address import TopicAddress
from .digests import RangeDigest
from .settings import VerifySettings

if TYPE_CHECKING:
    import pyarrow as pa

FETCH_BYTES: Final = 4 << 20
WAIT_MS: Final = 200


@dataclass(frozen=True, slots=True)
class DigestedRange:
    """Consecutive messages of a partition; it was read from offset ``first``, and the next one begins at ``end``.

    ``number`` counts the ranges of a partition from 0.
    """

    partition: int
    number: int
    first: int
    end: int
    count: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """Border of two ranges of a partition: the number of ranges before it, and the offset of the next message."""

    ranges: int = 0
    offset: int | None = None
    """None: the beginning of the topic."""


@dataclass(slots=True)
class _PartitionRead:
    """A partition that is being read: its incomplete range, and how many messages were read so far."""

    reader: PartitionReader
    number: int
    first: int
    digest: RangeDigest
    count: int = 0


class TopicSide:
    """One of the two topics, with its ends as they were when it was opened."""

    def __init__(
        self, address: TopicAddress, settings: VerifySettings, options: Mapping[str, Any] | None = None
    ) -> None:
        """Open the topic. Raises LocalError if it does not exist, Unreachable if its server cannot be reached."""
        self.address = address
        self._settings = settings
        self._selection = Selection(states=settings.states, skip_remedy="compare ranges that both topics still have")
        self._transport = open_transport(address.server, **(options or {}))
        try:
            self.meta: TopicMeta = self._transport.topic(address.topic)
        except BaseException:
            self.close()
            raise
        self._ends = {part.number: part.end_offset for part in self.meta.partitions}

    @property
    def partitions(self) -> list[int]:
        """The numbers of its partitions."""
        return sorted(self._ends)

    def count_left(self, resumed: Mapping[int, ResumePoint]) -> int:
        """Return about how many messages are to be read."""
        firsts = {part.number: part.first_offset for part in self.meta.partitions}
        begun = {number: point.offset for number, point in resumed.items()}
        return sum(max(0, end - (begun.get(number) or firsts[number])) for number, end in self._ends.items())

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError, LocalError):
            self._transport.close()

    def iter_ranges(
        self,
        resumed: Mapping[int, ResumePoint],
        is_left_out: Callable[[int], bool],
        find_wanted: Callable[[int], int | None] | None = None,
    ) -> Iterator[DigestedRange]:
        """Yield the ranges of all partitions in turn, up to their ends; the last one of each may be short.

        ``is_left_out`` says that a partition needs no more reading. With ``find_wanted``, a partition with fewer
        messages than that returns (None: not known yet) is read beyond its end, as long as something new comes within
        the time to wait.
        """
        reads = self._begin(resumed)
        moved = True
        while moved:
            moved = False
            for number, read in reads.items():
                if read.reader.position < self._ends[number] and not is_left_out(number):
                    moved = True
                    yield from self._read_some(read, 0, None)
        for number, read in reads.items():
            if find_wanted is not None and not is_left_out(number):
                yield from self._read_late_messages(read, find_wanted, is_left_out)
            if not is_left_out(number):
                yield self._end_range(read)

    def _begin(self, resumed: Mapping[int, ResumePoint]) -> dict[int, _PartitionRead]:
        reads = {}
        for bounds in spans(self._transport, [self.meta], "earliest", "latest").values():
            number = bounds.partition
            point = resumed.get(number, ResumePoint())
            offset = bounds.offset if point.offset is None else point.offset
            if offset > self._ends[number]:
                raise LocalError(
                    f"{self.address.url}, partition {number}: it ends at offset {self._ends[number]}, before {offset}, "
                    "up to which it was compared; it is another topic now: name another --state, or none"
                )
            reader = PartitionReader(
                self._transport, self.meta, number, offset, end=self._ends[number],
                sure=point.offset is not None, max_bytes=FETCH_BYTES,
            )  # fmt: skip
            count = point.ranges * self._settings.range_messages
            reads[number] = _PartitionRead(reader, point.ranges, offset, self._new_digest(), count)
        return reads

    def _new_digest(self) -> RangeDigest:
        return RangeDigest(self._settings.facts, self._settings.ignored_headers)

    def _read_some(self, read: _PartitionRead, wait_ms: int, count_max: int | None) -> Iterator[DigestedRange]:
        """Read the next messages, at most up to ``count_max`` of the partition; yield the ranges that are complete."""
        for whole in read.reader.read(self._selection, wait_ms):
            batch = whole if count_max is None else whole.slice(0, max(0, count_max - read.count))
            while batch.num_rows:
                part = batch.slice(0, self._settings.range_messages - read.digest.count)
                read.digest.add(part)
                read.count += part.num_rows
                batch = batch.slice(part.num_rows)
                if read.digest.count == self._settings.range_messages:
                    yield self._end_range(read, _offset_after(part))

    def _end_range(self, read: _PartitionRead, end: int | None = None) -> DigestedRange:
        """Return the complete range, and begin the next one."""
        end = read.reader.position if end is None else end
        done = DigestedRange(
            read.reader.partition, read.number, read.first, end, read.digest.count, read.digest.digest()
        )
        read.number, read.first, read.digest = read.number + 1, end, self._new_digest()
        return done

    def _read_late_messages(
        self, read: _PartitionRead, find_wanted: Callable[[int], int | None], is_left_out: Callable[[int], bool]
    ) -> Iterator[DigestedRange]:
        """Read beyond the end as it was, until the partition has as many messages as are wanted, or none come."""
        number = read.reader.partition
        while (wanted := find_wanted(number)) is None:
            if is_left_out(number):
                return
            time.sleep(WAIT_MS / 1000)
        read.reader.end, news_at = MAX_OFFSET, time.monotonic()
        while read.count < wanted and not is_left_out(number):
            before = read.count
            yield from self._read_some(read, WAIT_MS, wanted)
            if read.count > before:
                news_at = time.monotonic()
            elif (time.monotonic() - news_at) * 1000 >= self._settings.wait_ms:
                return

    def end_of(self, partition: int) -> int:
        """Return the offset at which a partition ended when the topic was opened."""
        return self._ends[partition]

    def iter_rows(self, one: DigestedRange, end: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the messages of a range once more, and those after it, up to the present end or to offset ``end``."""
        reader = PartitionReader(
            self._transport, self.meta, one.partition, one.first, end=end, sure=True, max_bytes=FETCH_BYTES
        )
        while True:
            before = reader.position
            yield from reader.read(self._selection)
            if reader.position == before:
                return


def _offset_after(batch: pa.RecordBatch) -> int:
    last: int = batch.column("offset")[batch.num_rows - 1].as_py()
    return last + 1
