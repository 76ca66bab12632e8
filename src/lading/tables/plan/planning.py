"""Planning in the driver: the start and end of a batch, and the detection of losses."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...model.errors import DataLoss
from ...transports.epochs import fill_epochs
from ...transports.interface import PartitionMeta, TopicMeta, Transport
from ...transports.open import open_transport
from .offset_options import require_ordered_range, resolve_offsets
from .offsets import Loss, PartitionOffset, PartitionOffsets, find_loss, to_partition_offset
from .options import SourceOptions
from .ranges import OffsetRange, limit_rows, split_ranges
from .spooling import SpoolProcess, refuse_queue

LOG = logging.getLogger("lading.spark")


class Planner:
    """Plans batches of one topic at one URL. It may be pickled, without its connection, which is reopened."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._transport: Transport | None = None
        self._filling = SpoolProcess()

    def __getstate__(self) -> dict[str, Any]:
        return {"options": self.options, "_transport": None, "_filling": SpoolProcess()}

    @property
    def transport(self) -> Transport:
        """The open transport; a queue's spool is filled while it is used."""
        self._filling.start(self.options)
        if self._transport is None:
            refuse_queue(self.options)
            self._transport = open_transport(self.options.from_, **self.options.transport)
        return self._transport

    def topic(self) -> TopicMeta:
        """Return the topic in its present state."""
        return self.transport.topic(self.options.topic)

    def disconnect(self) -> None:
        """Close the connection; the next request opens a new one. A queue's spool is filled meanwhile."""
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    def close(self) -> None:
        """Close the connection, and end the process that fills a queue's spool."""
        self.disconnect()
        self._filling.stop()

    def commit(self, marks: PartitionOffsets) -> None:
        """Mark everything before these positions as consumed: the spool of a queue may delete it."""
        self._filling.release(min((mark.offset for mark in marks.values()), default=0))

    def batch(self) -> list[OffsetRange]:
        """Return the ranges of a batch read: from startingOffsets to endingOffsets, resolved now."""
        options, meta = self.options, self.topic()
        start, end = self.resolve_range(meta)
        parts = {part.number: part for part in meta.partitions}
        start = self._skip_losses(meta, start)
        # an end beyond what is there would wait for messages that are not sent yet
        bounded = {
            number: replace(mark, offset=min(mark.offset, parts[number].end_offset)) for number, mark in end.items()
        }
        return split_ranges(options.topic, start, bounded, options.max_rows_per_partition)

    def skip_losses(self, start: PartitionOffsets) -> PartitionOffsets:
        """Return ``start``, moved past messages that were deleted since. Raises DataLoss if that fails the read."""
        return self._skip_losses(self.topic(), start)

    def _skip_losses(self, meta: TopicMeta, start: PartitionOffsets) -> PartitionOffsets:
        meta = fill_epochs(self.transport, meta, {number: mark.epoch for number, mark in start.items()})
        found = dict(start)
        for part in meta.partitions:
            mark = start.get(part.number)
            lost = None if mark is None else find_loss(mark, meta, part)
            if mark is not None and lost is not None:
                self._accept(lost, part.number, mark)
                found[part.number] = replace(mark, offset=lost.resume)
        return found

    def initial_offsets(self) -> PartitionOffsets:
        """Return the offsets at which a stream without a checkpoint starts.

        Raises SettingError if the options name a range that begins after its end.
        """
        return self.resolve_range(self.topic())[0]

    def end_offsets(self) -> PartitionOffsets:
        """Return the present end of the topic, or the end that the options name if that is before it.

        Raises SettingError if the options name a range that begins after its end.
        """
        options, meta = self.options, self.topic()
        present = {part.number: to_partition_offset(meta, part, part.end_offset) for part in meta.partitions}
        if options.ending == "latest":
            return present
        return clip_offsets(present, self.resolve_range(meta)[1])

    def resolve_range(self, meta: TopicMeta) -> tuple[PartitionOffsets, PartitionOffsets]:
        """Return the positions that startingOffsets and endingOffsets mean in the topic as it is.

        Raises SettingError if they name a range that begins after its end.
        """
        options = self.options
        start = resolve_offsets("startingOffsets", options.starting, self.transport, meta, "earliest")
        end = resolve_offsets("endingOffsets", options.ending, self.transport, meta, "latest")
        require_ordered_range(options.starting, options.ending, meta, start, end)
        return start, end

    def latest_offsets(self, start: PartitionOffsets) -> PartitionOffsets:
        """Return the present end of the topic for a reader at ``start``; losses raise DataLoss or are skipped.

        A partition with nothing new keeps its mark as it is, so that Spark sees no change.
        """
        meta = fill_epochs(self.transport, self.topic(), {number: mark.epoch for number, mark in start.items()})
        return {part.number: self._end(meta, part, start.get(part.number)) for part in meta.partitions}

    def next_offsets(
        self, since: PartitionOffsets, rows_max: int | None, bytes_max: int | None, target: PartitionOffsets | None
    ) -> PartitionOffsets:
        """Return the end of the batch after ``since``, within ``target`` and the limits; ``since`` if nothing is new.

        Everything before ``since`` is committed. Raises DataLoss if messages after it were deleted and losses fail.
        """
        end = self.reachable_offsets(since, target)
        return keep_unchanged(since, self.apply_limits(since, end, rows_max, bytes_max))

    def reachable_offsets(self, since: PartitionOffsets, target: PartitionOffsets | None) -> PartitionOffsets:
        """Return the end of what can be read after ``since``, within ``target``; what is before is committed."""
        self.commit(since)
        end = self.latest_offsets(since)
        return end if target is None else clip_offsets(end, target)

    def apply_limits(
        self, start: PartitionOffsets, end: PartitionOffsets, rows_max: int | None, bytes_max: int | None
    ) -> PartitionOffsets:
        """Return ``end`` reduced so that about ``rows_max`` messages and ``bytes_max`` stored bytes are before it."""
        if bytes_max is not None:
            per_row = self._bytes_per_row()
            by_bytes = max(1, int(bytes_max / per_row))
            rows_max = by_bytes if rows_max is None else min(rows_max, by_bytes)
        return end if rows_max is None else limit_rows(start, end, rows_max)

    def ranges(self, start: PartitionOffsets, end: PartitionOffsets) -> list[OffsetRange]:
        """Return the ranges between two positions of a checkpoint: a pure function of them."""
        return split_ranges(self.options.topic, start, end, self.options.max_rows_per_partition)

    def _end(self, meta: TopicMeta, part: PartitionMeta, since: PartitionOffset | None) -> PartitionOffset:
        now = to_partition_offset(meta, part, part.end_offset)
        if since is None:
            return replace(now, resumed_at=part.first_offset)
        lost = find_loss(since, meta, part)
        if lost is not None:
            self._accept(lost, part.number, since)
            return replace(now, offset=max(now.offset, lost.resume), resumed_at=lost.resume)
        return now if now.offset > since.offset else since

    def _accept(self, lost: Loss, number: int, mark: PartitionOffset) -> None:
        sentence = lost.sentence(self.options.topic, number, mark.offset)
        if self.options.fail_on_data_loss:
            raise DataLoss(sentence)
        LOG.warning("%s (failOnDataLoss=false)", sentence)

    def _bytes_per_row(self) -> float:
        return bytes_per_row([self.topic()]) or 1024.0


def bytes_per_row(metas: Iterable[TopicMeta]) -> float | None:
    """Return the average size of a message of topics in the log; None if the server does not report it."""
    sizes = [
        (part.size_bytes, part.end_offset - part.first_offset)
        for meta in metas
        for part in meta.partitions
        if part.size_bytes is not None
    ]
    rows = sum(count for _, count in sizes)
    return max(1.0, sum(size for size, _ in sizes) / rows) if rows else None


def keep_unchanged(since: PartitionOffsets, end: PartitionOffsets) -> PartitionOffsets:
    """Return ``end`` with the marks of ``since`` for partitions that have nothing new."""
    unchanged = {
        number: mark for number, mark in since.items()
        if number not in end or (end[number].offset <= mark.offset and end[number].resumed_at is None)
    }  # fmt: skip
    return {**end, **unchanged}


def clip_offsets(end: PartitionOffsets, target: Mapping[int, PartitionOffset]) -> PartitionOffsets:
    """Return ``end`` clipped to ``target``, the end of the topic when an availableNow run began."""
    return {
        number: replace(mark, offset=min(mark.offset, target[number].offset))
        if _is_same_topic(mark, target[number])
        else mark
        for number, mark in end.items()
        if number in target
    }


def _is_same_topic(mark: PartitionOffset, target: PartitionOffset) -> bool:
    return mark.topic_id == target.topic_id
