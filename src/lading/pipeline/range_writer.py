"""The part of executors: one offset range classified and staged as files. Rows never enter the JVM."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..columns.instants import drop_unreadable_times
from ..model.batch import FIELDS, SCHEMA
from ..model.errors import LocalError
from ..model.ranges import ranges_of_rising
from ..model.run import Decoded
from ..model.scan_request import ScanRequest
from ..model.state import State
from ..tables.commit.staging import TASK_ROWS, TableFiles, Target, staging_stem
from ..tables.commit.table_commit import StagedRange
from ..tables.formats.manifest import TABLE, DataFile
from ..tables.plan.ranges import OffsetRange
from ..tables.scan.scan import FetchedRange, fetch_range
from ..tables.storage.files import OWN, STAGED
from ..tables.storage.object_path import TablePath
from ..tables.topic_tables import table_of_topic
from ..transports.fitting import find_refused
from .classification import ClassifiedBatch, classify_messages
from .job import PipelineJob
from .rows import COPY_SCHEMA, copies, quarantine_columns
from .staged_messages import COPIES, COPIES_REFUSED, PASSED, STATES, StagedArrow, StagedTopics, name_target

_STATE_FIELDS: list[pa.Field[Any]] = [
    pa.field("topic", pa.string()), pa.field("partition", pa.int32()), pa.field("first", pa.int64()),
     pa.field("end", pa.int64()), pa.field("state", pa.int8()),
]  # fmt: skip
STATE_SCHEMA = pa.schema(_STATE_FIELDS)
DELAY_UNIT_US = 1000
TASK_US = "task_us"
"""The count of the time that tasks took, from the first byte requested to the last one staged."""


def write_range(job: PipelineJob, piece: OffsetRange, attempt: str) -> StagedRange:
    """Classify every message of one range and stage it for its destination; the files are synced on return.

    Raises the errors of reading, and LocalError if a disk fails; the files begun are deleted then.
    """
    work, begun_ns = _Range(job, piece, attempt), time.perf_counter_ns()
    try:
        for stretch in fetch_range(job.reading(piece), piece):
            work.take(stretch)
        files = tuple(work.finish())
        return StagedRange(piece, files, {**work.counts, TASK_US: (time.perf_counter_ns() - begun_ns) // 1000})
    except OSError as error:
        work.discard()
        place = f" ({error.filename})" if error.filename else ""
        raise LocalError(
            f"pipeline {job.settings.id!r}: the files of topic {piece.topic!r}, partition {piece.partition}, offsets "
            f"{piece.start} to {piece.end - 1} cannot be written{place}: {error.strerror or error}. Nothing of this "
            "batch was published; run it again after fixing that"
        ) from None
    except BaseException:
        work.discard()
        raise


class _Range:
    def __init__(self, job: PipelineJob, piece: OffsetRange, attempt: str) -> None:
        self._job = job
        self._plan = job.plan
        self._piece = piece
        self._stem = staging_stem(job.run, piece, attempt)
        options = job.settings.document.pipeline

        def files(table: TablePath, schema: pa.Schema, repeating: tuple[str, ...], kind: str, stem: str) -> TableFiles:
            size, state = int(options.file_size), Path(job.state)
            target = Target(table, state, schema, repeating, size, options.compression, kind)
            return TableFiles(target, piece.start, stem)

        kind, stem = (PASSED, f"{self._stem}-{PASSED}") if job.settings.document.step else (TABLE, self._stem)
        self._files = {
            table.path: files(table_of_topic(table.path, piece.topic), table.schema, table.repeating, kind, stem)
            for table in self._plan.tables
        }
        failed = ("reason", "header", "detail")
        self._failed = files(self._plan.quarantine, self._plan.quarantine_schema, failed, TABLE, self._stem)
        self._copies: StagedArrow | None = None
        self._topics = StagedTopics(job, self._stem)
        self._marked: list[tuple[int, int, int]] = []
        outcomes = (one.counter for one in self._plan.destinations)
        begun: tuple[str, ...] = ("read", "quarantined", *outcomes, "good", "routed")
        begun += tuple(one.counter for one in self._plan.expectations)
        self.counts: Counter[str] = Counter(dict.fromkeys(begun, 0))

    def take(self, stretch: FetchedRange) -> None:
        """Classify and stage the messages of one fetch."""
        source = self._job.source_of(self._piece.topic)
        request = ScanRequest(stretch.first, stretch.end, self._plan.fields, self._plan.keys, TASK_ROWS)
        for decoded in stretch.fetched.decode(request, states=source.states):
            if decoded.count:
                judged = classify_messages(self._plan, decoded, stretch.place)
                self._topics.take(self._plan, decoded, judged, stretch.place)
                now_us = time.time_ns() // 1000
                self._count(decoded, judged, now_us)
                self._hand_out(judged)
                if judged.failed:
                    self._stage_failed(stretch, judged, now_us)

    def finish(self) -> list[tuple[int, DataFile]]:
        """Close the files; return each with the number that orders it."""
        files = [entry for table in (*self._files.values(), self._failed) for entry in table.finish()]
        if long_values := sum(table.long_values for table in self._files.values()):
            self.counts["long_values"] = long_values
        if self._copies is not None:
            files.append((self._piece.start, self._copies.close()))
        files += [(self._piece.start, file) for file in self._topics.finish()]
        if self._marked:
            files.append((self._piece.start, self._stage_states()))
        return files

    def discard(self) -> None:
        """Delete the files of this attempt."""
        for table in (*self._files.values(), self._failed):
            table.discard()
        for path in (Path(self._job.state) / OWN / STAGED).glob(f"{self._stem}-*"):
            path.unlink(missing_ok=True)

    def _count(self, decoded: Decoded, judged: ClassifiedBatch, now_us: int) -> None:
        counts, plan = self.counts, self._plan
        counts["read"] += decoded.count
        unreadable = drop_unreadable_times(decoded.columns["timestamp"])[1]
        if unreadable is not None:
            counts["unreadable_times"] += unreadable.true_count
        for expectation, violations in zip(plan.expectations, judged.violations, strict=True):
            counts[expectation.counter] += violations
        for at, one in enumerate(plan.destinations):
            if one.failure is not None:
                continue
            count = int(np.count_nonzero(judged.destination == at))
            counts[one.counter] += count
            if one.counter != "passed":
                counts[f"to.{one.name}"] += count
        if judged.failed:
            failed = np.bincount(judged.failure[judged.failure >= 0], minlength=len(plan.failures)).tolist()
            for failure, count in zip(plan.failures, failed, strict=True):
                if count:
                    counts["quarantined"] += count
                    counts[failure.counter] += count
        sent_us: Any = decoded.columns["timestamp"].view(pa.int64()).to_numpy(zero_copy_only=False)
        low, high = (
            max(1, (now_us - int(bound)) // DELAY_UNIT_US).bit_length() - 1 for bound in (sent_us.max(), sent_us.min())
        )
        if low == high:
            # messages of one fetch were most often sent at about the same time
            counts[f"delay.{low}"] += decoded.count
            return
        units = np.maximum(1, (now_us - sent_us) // DELAY_UNIT_US)
        for power, count in enumerate(np.bincount(np.log2(units).astype(np.int64)).tolist()):
            if count:
                counts[f"delay.{power}"] += count

    def _hand_out(self, judged: ClassifiedBatch) -> None:
        for at, one in enumerate(self._plan.destinations):
            rows = judged.destination == at
            taken = np.count_nonzero(rows)
            if not taken:
                continue
            if one.table is not None:
                batch = judged.batch.select(list(one.table.projection.order))
                batch = batch if taken == len(rows) else batch.filter(pa.array(rows))
                self._files[one.table.path].add(_columns_of(batch))
            if one.state is not None:
                self._mark(judged.batch.column("offset").to_numpy()[rows], one.state)

    def _mark(self, offsets: NDArray[np.int64], state: State) -> None:
        self._marked += [(first, end, int(state)) for first, end in ranges_of_rising(offsets).tolist()]

    def _stage_failed(self, stretch: FetchedRange, judged: ClassifiedBatch, now_us: int) -> None:
        """Stage the messages that failed, decoded once more and whole: most batches have none."""
        rows = np.flatnonzero(judged.failure >= 0)
        offsets = judged.batch.column("offset").to_numpy()[rows]
        request = ScanRequest(int(offsets[0]), int(offsets[-1]) + 1)
        for decoded in stretch.fetched.decode(request, states=self._job.source_of(self._piece.topic).states):
            held = decoded.columns["offset"].to_numpy(zero_copy_only=False)
            at = np.searchsorted(offsets, held)
            mine = (at < len(offsets)) & (offsets[np.minimum(at, len(offsets) - 1)] == held)
            if mine.any():
                batch = pa.RecordBatch.from_arrays([decoded.columns[name] for name in FIELDS], schema=SCHEMA)
                chosen = rows[at[mine]]
                which = pa.array(judged.failure[chosen])
                details = pa.array([judged.details.get(row) for row in chosen.tolist()], pa.string())
                self._add_quarantined(
                    batch.filter(pa.array(mine)), which, stretch.place, now_us, details if judged.details else None
                )

    def _add_quarantined(
        self, messages: pa.RecordBatch, which: pa.Array[Any], place: Mapping[str, str | int], now_us: int,
        details: pa.Array[Any] | None,
    ) -> None:  # fmt: skip
        made = quarantine_columns(messages, list(self._plan.failures), which, place, now_us, details)
        self._failed.add(made)
        address = self._job.settings.copies
        if address is not None:
            if self._copies is None:
                target = name_target(address)
                self._copies = StagedArrow(
                    Path(self._job.state), f"{self._stem}-copies.arrow", COPY_SCHEMA, COPIES, target
                )
            copied = copies(made, self._piece.topic, self._job.settings.id)
            refused = [row for row, _ in find_refused(copied, self._job.capabilities_at(address))]
            # the quarantine table has every message: a copy that the topic refuses is only counted
            self.counts[COPIES_REFUSED] += len(refused)
            self._copies.add(copied.take(np.delete(np.arange(copied.num_rows), refused)) if refused else copied)

    def _stage_states(self) -> DataFile:
        first, end, state = zip(*self._marked, strict=True)
        rows = len(first)
        columns: list[Any] = [
            pa.repeat(pa.scalar(self._piece.topic), rows),
            pa.repeat(pa.scalar(self._piece.partition, pa.int32()), rows),
            pa.array(first, pa.int64()), pa.array(end, pa.int64()), pa.array(state, pa.int8()),
        ]  # fmt: skip
        server = self._job.source_of(self._piece.topic).server
        staged = StagedArrow(Path(self._job.state), f"{self._stem}-states.arrow", STATE_SCHEMA, STATES, server)
        staged.add(pa.RecordBatch.from_arrays(columns, schema=STATE_SCHEMA))
        return staged.close()


def _columns_of(batch: pa.RecordBatch) -> dict[str, pa.Array[Any]]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))
