"""Ranges as tasks of Spark, a task each: what they did comes back to the driver, and they can be given up."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..tables.publish import Written
from ..tables.ranges import Range
from .workers import settle

if TYPE_CHECKING:
    from pyspark import TaskContext
    from pyspark.sql import SparkSession

LOOK_INTERVAL_S: Final = 0.1
GIVEN_UP_WAIT_S: Final = 10.0
"""How long tasks have to end that are not wanted any more, and a batch to be published that has its manifest."""


class Tasks:
    """Runs the tasks of one run. Spark schedules, distributes and retries them."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.spark = spark
        self._name = name
        self._tag = f"lading-{secrets.token_hex(4)}"

    def write(self, stage: Callable[[Range, str], Written], ranges: Sequence[Range]) -> list[Written]:
        """Call ``stage`` with every range and a name of the attempt, in a task each.

        Of attempts that failed nothing comes back. Errors are Spark's, around those of ``stage``.
        """
        # half of what a DataFrame of the same costs
        pieces = self.spark.sparkContext.parallelize(ranges, len(ranges))
        return pieces.mapPartitions(_staging(stage)).collect()

    def waited(self, work: Callable[[], None], look: Callable[[], None]) -> None:
        """Do ``work``, which runs tasks, in a thread of its own; ``look`` is called meanwhile and may raise.

        Then tasks are cancelled, and a batch that is being published has a moment to end.
        """
        context = self.spark.sparkContext
        failed: list[BaseException] = []

        def do() -> None:
            from .session import activate

            try:
                activate(self.spark)
                context.addJobTag(self._tag)
                context.setJobDescription(self._name)
                work()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=do, name="lading batch", daemon=True)
        thread.start()
        try:
            while thread.is_alive():
                thread.join(LOOK_INTERVAL_S)
                look()
        except BaseException:
            with suppress(Exception):
                context.cancelJobsWithTag(self._tag)
            thread.join(GIVEN_UP_WAIT_S)
            raise
        if failed:
            raise failed[0]


def _staging(stage: Callable[[Range, str], Written]) -> Callable[[Iterable[Range]], Iterator[Written]]:
    def staged(pieces: Iterable[Range]) -> Iterator[Written]:
        attempt = attempt_name()
        for piece in pieces:
            yield stage(piece, attempt)
        settle()

    return staged


def attempt_name() -> str:
    """In a task: a name that no other attempt of it, and no other task, has."""
    context = _context()
    return f"{context.stageId()}-{context.taskAttemptId()}"


def task_number() -> int:
    """In a task: which one of its job it is, whatever attempt."""
    return _context().partitionId()


def _context() -> TaskContext:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return context
