"""Rows of SQL steps, staged by destination in tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from ..model.errors import LocalError
from ..tables.commit.staging import TableFiles, Target
from ..tables.commit.table_commit import StagedStepRows
from ..tables.storage.object_path import TablePath
from .job import PipelineJob

DESTINATION: Final = "_lading_destination"
"""The column with the number of a row's destination."""


def stage_rows(job: PipelineJob, batches: Iterator[pa.RecordBatch], task: int, attempt: str) -> StagedStepRows:
    """Stage the rows by destination, synced. Raises LocalError if a disk fails, after deleting the files begun."""
    results, options = job.plan.results, job.settings.document.pipeline
    stem = f"{job.run}-{attempt}-sql-{task:05d}"
    files: dict[TablePath, TableFiles] = {}
    for one in results:
        target = Target(one.path, Path(job.state), one.schema, (), int(options.file_size), options.compression)
        files.setdefault(one.path, TableFiles(target, 0, stem))
    counts: Counter[str] = Counter({"good": 0, "routed": 0})
    try:
        for batch in batches:
            chosen: Any = batch.column(DESTINATION)
            for at, one in enumerate(results):
                rows = batch.filter(pc.equal(chosen, pa.scalar(at, pa.int32())))
                if rows.num_rows:
                    files[one.path].add({name: rows.column(name) for name in one.schema.names})
                    counts[one.counter] += rows.num_rows
                    counts[f"to.{one.name}"] += rows.num_rows
        if long_values := sum(table.long_values for table in files.values()):
            counts["long_values"] = long_values
        done = tuple(file for table in files.values() for _, file in table.finish())
        return StagedStepRows(task, done, dict(counts))
    except BaseException as error:
        for table in files.values():
            table.discard()
        if isinstance(error, OSError):
            place = f" ({error.filename})" if error.filename else ""
            raise LocalError(
                f"pipeline {job.settings.id!r}: the rows that its steps made cannot be written{place}: "
                f"{error.strerror or error}. Nothing of this batch was published; run it again after fixing that"
            ) from None
        raise
