"""Counting the messages that match a filter, by several threads if this process reads and filters the log itself."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final

from ..client.reading import PartitionReader, Selection
from ..model.ranges import OffsetSpan
from ..transports.interface import TopicMeta, Transport
from .responses import Document
from .source import ConsoleSource

PROGRESS_S: Final = 0.2
"""The time between two progress reports of a search."""
COUNT_BYTES: Final = 8 << 20
"""Bytes that one request of a counting search reads."""
COUNT_ROWS: Final = 1 << 15
"""Messages that are filtered together: more than readers get in a batch, since they share the cost of a step, and few
enough for a processor's cache."""
THREADS_MAX: Final = 4
RANGE_OFFSETS: Final = 250_000
"""How many offsets a thread takes at a time: few enough that all threads end at about the same time."""

_Range = tuple[int, int, int]
"""Partition, first offset, and the offset after the last."""
_Damaged = list[tuple[int, OffsetSpan]]
"""Damaged partitions and ranges that reads met; threads append to the list."""


def count_matches(
    source: ConsoleSource, topic: str, partition: int | None, selection: Selection, threads: int | None = None
) -> Iterator[Document]:
    """Yield how many messages matched and were read so far; the last document has the totals.

    A server is asked for one read after the other, which it may filter. For a directory this process decodes and
    filters by itself, in as many ``threads`` as there are cores: compiled kernels and Arrow release the interpreter.
    """
    began_s = time.monotonic()
    with source.lend() as transport:
        meta = transport.topic(topic)
        source.mask_of(meta).require_searchable(selection.filter)
        wanted = [
            (part.number, part.first_offset, part.end_offset)
            for part in meta.partitions
            if partition in (None, part.number)
        ]
        total = sum(max(0, end - first) for _, first, end in wanted)
        if threads is None:
            threads = 1 if source.is_writable else min(THREADS_MAX, len(os.sched_getaffinity(0)))
        damaged: _Damaged = []
        counts = _count_in_order(transport, meta, wanted, selection, damaged)
        if threads > 1:
            counts = _count_side_by_side(source, meta, _cut(wanted), selection, threads, damaged)
        found = looked_at = 0
        told_s = began_s
        for found_more, looked_more in counts:
            found, looked_at = found + found_more, looked_at + looked_more
            if time.monotonic() - told_s > PROGRESS_S:
                told_s = time.monotonic()
                yield {"found": found, "looked_at": looked_at, "total": total}
    by_partition: defaultdict[int, list[OffsetSpan]] = defaultdict(list)
    for number, span in damaged:
        by_partition[number].append(span)
    lost, seconds = source.met_damage.describe(meta, by_partition), time.monotonic() - began_s
    yield {"end": True, "found": found, "looked_at": total, "total": total, "seconds": seconds, "lost": lost}


def _count_in_order(
    transport: Transport, meta: TopicMeta, ranges: list[_Range], selection: Selection, damaged: _Damaged
) -> Iterator[tuple[int, int]]:
    """Yield for each read how many messages match, and the number of offsets read; add damage to ``damaged``."""
    for number, first, end in ranges:
        reader = PartitionReader(
            transport, meta, number, first, end=end, sure=False, max_bytes=COUNT_BYTES, max_rows=COUNT_ROWS
        )
        while not reader.done:
            before = reader.position
            found = sum(batch.num_rows for batch in reader.read(selection))
            yield found, reader.position - before
            if reader.position == before:
                # no message follows, such as after the last message of a transaction
                break
        damaged += [(number, span) for span in reader.damaged]


def _count_side_by_side(
    source: ConsoleSource, meta: TopicMeta, ranges: list[_Range], selection: Selection, threads: int,
    damaged: _Damaged,
) -> Iterator[tuple[int, int]]:  # fmt: skip
    """Yield what ``_count_in_order`` does, every ``PROGRESS_S`` for all threads; the threads end soon after the caller
    stops."""
    left, lock = threading.Event(), threading.Lock()
    counted = [0, 0]

    def count(one: _Range) -> None:
        if left.is_set():
            return
        with source.lend() as transport:
            for found, looked_at in _count_in_order(transport, meta, [one], selection, damaged):
                with lock:
                    counted[0] += found
                    counted[1] += looked_at
                if left.is_set():
                    return

    def take() -> tuple[int, int]:
        with lock:
            taken = counted[0], counted[1]
            counted[:] = 0, 0
        return taken

    with ThreadPoolExecutor(threads, "lading-console-count") as pool:
        try:
            pending = {pool.submit(count, one) for one in ranges}
            while pending:
                done, pending = wait(pending, PROGRESS_S, FIRST_EXCEPTION)
                for future in done:
                    future.result()
                yield take()
        finally:
            left.set()
            pool.shutdown(wait=False, cancel_futures=True)


def _cut(ranges: list[_Range]) -> list[_Range]:
    return [
        (number, at, min(end, at + RANGE_OFFSETS))
        for number, first, end in ranges
        for at in range(first, end, RANGE_OFFSETS)
    ]
