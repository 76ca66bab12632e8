"""Which offsets one batch reads, cut into tasks: admission control and ranges, as pure functions of positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

from .offsets import PartitionOffset, PartitionOffsets

K = TypeVar("K")

ROWS_PER_PARTITION = 500_000
"""Messages of one Spark partition unless ``maxRowsPerPartition`` says otherwise: large enough to make starting it
cheap, small enough to keep all cores busy with one topic partition."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``start`` to ``end`` (not included) of one topic partition, read by one Spark task.

    ``epoch`` is that of ``end``; ``resumed`` says that ``start`` is not the previous position of the reader: it may be
    below that if a recovery cut the log back.
    """

    topic: str
    partition: int
    topic_id: str | None
    epoch: int
    start: int
    end: int
    resumed: bool = False

    @property
    def rows(self) -> int:
        """Offsets in the range: the most messages it can hold."""
        return self.end - self.start

    def document(self) -> dict[str, Any]:
        """Return the range as a JSON document for manifests, to be read by ``parse``."""
        row = {name: getattr(self, name) for name in ("topic", "partition", "topic_id", "epoch", "start", "end")}
        return row | ({"resumed": True} if self.resumed else {})

    @classmethod
    def parse(cls, row: Mapping[str, Any]) -> OffsetRange:
        """Parse what ``document`` returned."""
        return cls(**row)


def split_ranges(
    topic: str, start: PartitionOffsets, end: PartitionOffsets, rows_max: int = ROWS_PER_PARTITION
) -> list[OffsetRange]:
    """Cut the offsets from ``start`` to ``end`` into ranges of at most ``rows_max`` offsets and about equal size.

    A position that was resumed begins at its ``resumed_at``, a partition without a start at offset 0.
    """
    ranges: list[OffsetRange] = []
    for number, until in sorted(end.items()):
        resumed = until.resumed_at is not None
        first = _first_offset_of(number, start, until)
        if until.offset <= first:
            continue
        pieces = -(-(until.offset - first) // rows_max)
        cuts = [first + (until.offset - first) * piece // pieces for piece in range(pieces + 1)]
        ranges += [
            OffsetRange(topic, number, until.topic_id, until.epoch, low, high, resumed) for low, high in pairwise(cuts)
        ]
    return ranges


def limit_rows(
    start: Mapping[K, PartitionOffset], end: Mapping[K, PartitionOffset], rows_max: int
) -> dict[K, PartitionOffset]:
    """``end`` moved back so that about ``rows_max`` offsets lie before it, shared in proportion to what waits.

    Keys are partitions, of one topic or of several. Every partition with anything waiting moves on by at least one
    offset, so that none starves.
    """
    begin = {number: _first_offset_of(number, start, until) for number, until in end.items()}
    waiting = {number: until.offset - begin[number] for number, until in end.items()}
    total = sum(count for count in waiting.values() if count > 0)
    if total <= rows_max:
        return dict(end)
    admitted: dict[K, PartitionOffset] = {}
    for number, until in end.items():
        if waiting[number] <= 0:
            admitted[number] = until
            continue
        share = max(1, rows_max * waiting[number] // total)
        admitted[number] = replace(until, offset=begin[number] + min(share, waiting[number]))
    return admitted


def _first_offset_of(number: K, start: Mapping[K, PartitionOffset], until: PartitionOffset) -> int:
    """Return the first offset of the range that ends at ``until``; the end itself if the start has reached it."""
    since = start.get(number)
    if since == until:
        return until.offset
    if until.resumed_at is not None:
        return until.resumed_at
    return 0 if since is None else since.offset


def merge_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Neighbouring ranges of one partition as one, however they were cut: what identifies a batch."""
    result: list[OffsetRange] = []
    for piece in sorted(ranges, key=lambda piece: (piece.topic, piece.topic_id or "", piece.partition, piece.start)):
        last = result[-1] if result else None
        if (
            last is not None
            and (last.topic, last.topic_id, last.partition) == (piece.topic, piece.topic_id, piece.partition)
            and last.end == piece.start
        ):
            result[-1] = replace(last, end=piece.end, epoch=piece.epoch)
        else:
            result.append(piece)
    return result
