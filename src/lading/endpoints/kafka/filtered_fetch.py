"""Fetch of a member whose group has a filter: the messages that meet it, and an empty batch for the rest.

A consumer continues after the last offset of the last batch that it gets, so that its position moves past messages that
the filter leaves out, as it moves past those that compaction has removed. A batch of which only some messages meet the
filter is built again of these, with their offsets. A Fetch reads on until it has ``fetch.min.bytes``, or its time is
over: if few messages meet the filter, a consumer gets one response per ``fetch.max.wait.ms``, not one for each message
that is left out.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...broker.core.group_condition import GroupCondition, select_offsets
from ...broker.core.read import ReadResult, RunSlice, read
from ...dialects import codes, registry
from ...dialects.kafka import batch_slicing
from ...dialects.kafka import protocol as kafka_row
from ...dialects.kafka.batch_slicing import Bytes
from ...dialects.kafka.errors import UNKNOWN_SERVER_ERROR
from ...dialects.kafka.fetch import FetchedPartition, FetchPartition, FetchRequest, fetch_answer
from ...model.batch import FIELDS_WITH_ORIGIN
from ...model.ranges import subtract_ranges
from ...model.scan_request import ScanRequest
from ...runtime.turns import Turn
from ..base.request_budget import ROW_BYTES
from ..base.responses import Slot
from ..base.services import now_us
from .fetcher import Fetcher
from .request_context import RequestContext

if TYPE_CHECKING:
    from ...broker.core.topology import Partition, Topic
    from ..base.carrying import Fit

log = logging.getLogger(__name__)

SCAN_BYTES: Final = 1 << 20
"""About this many bytes of a partition are read in one turn of a worker."""
SCAN_MESSAGES: Final = 1 << 14
"""Messages that a worker filters for one partition before others have their turn."""
WAIT_MS_MAX: Final = 300_000
MS_US: Final = 1_000


@dataclass(slots=True)
class FilteredPartition:
    """One partition of a request, and its selected messages so far."""

    wanted: FetchPartition
    offset: int
    """The offset up to which the partition was read."""
    partition: Partition | None = None
    error: int = 0
    parts: list[Bytes] = field(default_factory=list)
    size_bytes: int = 0
    end_offset: int = 0
    """The end of the last batch in ``parts``; 0 without one."""
    count: int = 0


class FilteredFetch:
    """One Fetch from its request to its response."""

    def __init__(
        self,
        fetcher: Fetcher,
        connection: RequestContext,
        slot: Slot,
        request: FetchRequest,
        condition: GroupCondition,
    ) -> None:
        self._fetcher = fetcher
        self._connection = connection
        self._slot = slot
        self._request = request
        self._condition = condition
        self._topics: list[tuple[bytes, list[FilteredPartition]]] = []
        self._limit_bytes = fetcher.limit(request.max_bytes)
        self._total_bytes = 0
        self._is_over = request.wait_ms <= 0
        self._has_more = False
        """Whether a partition has messages that were not read yet."""
        self._woken: Future[None] | None = None

    def begin(self) -> None:
        """Read, and respond when enough was found or the time is over."""
        self._connection.run_to_end(self._respond(), self._on_done)

    def cancel(self) -> None:
        """Stop waiting: the client has disconnected, its time is over, or its memory is needed."""
        self._is_over = True
        self._wake()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _on_done(self, done: Future[None]) -> None:
        error = done.exception()
        if error is not None:
            log.error("a fetch with a filter failed", exc_info=error, extra=self._connection.origin())
            self._connection.refuse(self._slot, "a fetch with a filter failed")

    async def _respond(self) -> None:
        wait_us = MS_US * min(self._request.wait_ms, WAIT_MS_MAX)
        rows_count = sum(len(wanted) for _, wanted in self._request.topics)
        services, connection = self._fetcher.context.services, self._connection
        reservation = services.requests.hold(ROW_BYTES * rows_count, self.cancel)
        cancel_timer = connection.call_later(wait_us, self.cancel)
        unstop = services.add_stop_callback(self.cancel)
        connection.cancels.add(self)
        try:
            await self._look_until_enough()
            if not connection.is_lost:
                self._send()
        finally:
            connection.cancels.discard(self)
            unstop()
            cancel_timer()
            reservation.release()

    async def _look_until_enough(self) -> None:
        while True:
            self._woken = asyncio.get_running_loop().create_future()
            await self._find_partitions()
            unwatch = await self._watch()
            try:
                progressed = await self._look()
                is_enough = self._total_bytes >= self._request.min_bytes and self._total_bytes > 0
                if is_enough or self._is_over or self._is_refused() or (self._has_more and not progressed):
                    return
                if not self._has_more:
                    await self._woken
            finally:
                for cancel in unwatch:
                    cancel()

    async def _find_partitions(self) -> None:
        """Find the partitions, or find them again: meanwhile a topic may have been deleted, or a right revoked."""
        places = self._fetcher.find_places(self._connection, self._request)
        if not self._topics:
            self._topics = [
                (name, [FilteredPartition(one, one.offset) for one in wanted]) for name, _, wanted in places
            ]
        turn, by_id = Turn(), self._request.by_id
        for (name, topic, _), (_, rows) in zip(places, self._topics, strict=True):
            for row in rows:
                wanted = row.wanted._replace(offset=max(row.offset, row.wanted.offset))
                error, partition = self._fetcher.find_partition(self._connection, by_id, name, topic, wanted)
                row.error, row.partition = error, None if error else partition
                await turn.give_way()

    def _is_refused(self) -> bool:
        return any(row.error for _, rows in self._topics for row in rows)

    async def _watch(self) -> list[Callable[[], None]]:
        """Have messages that arrive in any of the partitions wake this fetch."""
        watches: list[Callable[[], None]] = []
        turn = Turn()
        for _, rows in self._topics:
            for row in rows:
                if row.partition is not None:
                    watches.append(row.partition.add_visible_callback(self._wake))
                await turn.give_way()
        return watches

    async def _look(self) -> bool:
        """Read the next messages of each partition, as far as there is room; return whether there were any."""
        self._has_more = progressed = False
        turn = Turn()
        for _, rows in self._topics:
            for row in rows:
                await turn.give_way()
                if row.partition is None:
                    continue
                room = min(self._limit_bytes - self._total_bytes, row.wanted.max_bytes - row.size_bytes)
                if room > 0 or not self._total_bytes:
                    progressed |= await self._look_at(row, row.partition, max(room, 0))
                self._has_more |= row.offset < self._end_of(row.partition)
        return progressed

    def _end_of(self, partition: Partition) -> int:
        return partition.log.last_stable_offset if self._request.committed else partition.log.high_watermark

    async def _look_at(self, row: FilteredPartition, partition: Partition, room: int) -> bool:
        if row.offset >= self._end_of(partition):
            return False
        reading = read(
            partition,
            row.offset,
            reader=kafka_row.COMMITTED if self._request.committed else kafka_row.UNCOMMITTED,
            max_messages=SCAN_MESSAGES,
            max_bytes=SCAN_BYTES,
            counters=self._fetcher.broker.counters,
        )
        if reading.end_offset <= row.offset:
            return False
        left_out = partition.log.aborted_ranges(reading.first_offset, reading.end_offset)
        fit = self._fetcher.batcher.fit(partition.topic)
        work = partial(select_batches, self._condition, partition.topic, left_out, fit)
        selected = await self._fetcher.context.services.run_in_worker(1, 0, work, reading)
        taken, size_bytes = _count_fitting(selected, room, force=not self._total_bytes)
        for batch in selected[:taken]:
            row.parts.append(batch)
            row.end_offset = batch_slicing.find_batch_end(batch)
        row.offset = reading.end_offset if taken == len(selected) else max(row.end_offset, row.offset)
        row.size_bytes += size_bytes
        self._total_bytes += size_bytes
        row.count += sum(batch_slicing.count_records(batch) for batch in selected[:taken])
        return taken > 0 or row.offset == reading.end_offset

    # -- the response

    def _send(self) -> None:
        fetcher, connection = self._fetcher, self._connection
        topics = [(name, [self._describe(row) for row in rows]) for name, rows in self._topics]
        connection.count("Fetch", next((row.error for _, rows in topics for row in rows if row.error), 0))
        fetcher.messages_out(sum(row.count for _, rows in self._topics for row in rows))
        principal, throttle_ms = connection.principal, 0
        if principal is not None and principal.meter is not None:
            size_bytes = sum(row.size_bytes for _, rows in topics for row in rows)
            connection.throttle(principal.meter.take_read(size_bytes, now_us()))
            throttle_ms = connection.throttle_ms
        self._slot.fill(fetch_answer(self._request, topics, 0, throttle_ms))

    def _describe(self, row: FilteredPartition) -> FetchedPartition:
        if row.partition is None:
            return FetchedPartition(row.wanted.partition, row.error or UNKNOWN_SERVER_ERROR)
        log, parts = row.partition.log, row.parts
        covered = max(row.end_offset, row.wanted.offset)
        if covered < row.offset:
            parts = [*parts, batch_slicing.empty(covered, row.offset)]
        aborted: Sequence[tuple[int, int]] = ()
        if self._request.committed and row.offset > row.wanted.offset:
            aborted = self._fetcher.broker.producers.list_aborted(row.partition, row.wanted.offset, row.offset)
        return FetchedPartition(
            row.wanted.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.first_offset,
            parts,
            sum(map(len, parts)),
            aborted,
        )


def _count_fitting(batches: Sequence[Bytes], room: int, *, force: bool) -> tuple[int, int]:
    """Return how many batches fit, with ``force`` at least one, and their size in bytes."""
    size_bytes = 0
    for number, batch in enumerate(batches):
        if size_bytes + len(batch) > room and not (force and not number):
            return number, size_bytes
        size_bytes += len(batch)
    return len(batches), size_bytes


def select_batches(
    condition: GroupCondition, topic: Topic, left_out: Sequence[tuple[int, int]], fit: Fit, reading: ReadResult
) -> list[Bytes]:
    """Return batches with the messages of a reading that meet a condition, and with the control batches.

    Messages of other dialects in the ranges ``left_out`` are of aborted transactions. Callable from any thread.
    """
    found = condition.find_filter(topic)
    batches: list[Bytes] = []
    for piece in reading.pieces:
        offsets = select_offsets(piece.run, piece.first, piece.end, found)
        if piece.run.dialect != codes.KAFKA:
            for first, end in subtract_ranges(left_out, piece.first, piece.end):
                batches += _convert_selected(piece, first, end, offsets, fit)
        elif offsets is None:
            batches += batch_slicing.slice_visible(piece.run, piece.first, piece.end)
        else:
            batches += batch_slicing.slice_selected(piece.run, piece.first, piece.end, offsets)
    return [batch for batch in batches if len(batch)]


def _convert_selected(
    piece: RunSlice, first: int, end: int, offsets: NDArray[np.int64] | None, fit: Fit
) -> list[Bytes]:
    """Return messages of another dialect as batches of this one."""
    batches: list[Bytes] = []
    for decoded in registry.decode(piece.run, ScanRequest(first, end, FIELDS_WITH_ORIGIN)):
        rows = registry.to_batch(decoded)
        if offsets is not None:
            rows = rows.filter(pa.array(np.isin(rows.column("offset").to_numpy(), offsets)))
        if rows.num_rows:
            batches += batch_slicing.split_batches(registry.dialect(codes.KAFKA).encode(fit(rows).batch))
    return batches
