"""Ranges as Spark tasks, one each: their results return to the driver, and they can be cancelled."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..tables.commit.table_commit import StagedRange
from ..tables.executor import Stage, watch_thread
from ..tables.plan.ranges import OffsetRange
from .failures import cause, disk_refused
from .workers import freeze_modules

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import SparkSession


class SparkExecutor:
    """Runs tasks on Spark, which schedules, distributes and retries them."""

    def __init__(self, spark: SparkSession, description: str, run_name: str) -> None:
        """``description`` is for Spark's UI, ``run_name`` is how messages about the run start."""
        self.spark = spark
        self._description = description
        self._run_name = run_name
        self._tag = f"lading-{secrets.token_hex(4)}"

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        """Call ``stage`` with every range, in a task each. Raises Spark's errors, which contain those of ``stage``."""
        # half of what a DataFrame of the same costs
        pieces = self.spark.sparkContext.parallelize(ranges, len(ranges))
        return pieces.mapPartitions(_make_stage(stage)).collect()

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        """Run ``work`` with a job tag of this run; if ``on_poll`` raises, the jobs with the tag are cancelled."""
        context = self.spark.sparkContext

        def tagged() -> None:
            from .session import activate

            activate(self.spark)
            context.addJobTag(self._tag)
            context.setJobDescription(self._description)
            work()

        def cancel() -> None:
            with suppress(Exception):
                context.cancelJobsWithTag(self._tag)

        watch_thread(tagged, on_poll, cancel)

    def original_error(self, error: Exception) -> Exception:
        """Return our error inside Spark's, or the one for a disk that failed Spark, else ``error``."""
        return cause(error) or disk_refused(error, self._run_name) or error

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""


def _make_stage(stage: Stage) -> Callable[[Iterable[OffsetRange]], Iterator[StagedRange]]:
    def staged(pieces: Iterable[OffsetRange]) -> Iterator[StagedRange]:
        attempt = attempt_name()
        for piece in pieces:
            yield stage(piece, attempt)
        freeze_modules()

    return staged


def attempt_name() -> str:
    """Return a name for this attempt that no other attempt and no other task has. Called in a task."""
    context = _task_context()
    return f"{context.stageId()}-{context.taskAttemptId()}"


def task_number() -> int:
    """Return the number of this task in its job, the same for all attempts. Called in a task."""
    return _task_context().partitionId()


def _task_context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context
