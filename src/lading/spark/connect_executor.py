"""Ranges as Spark tasks through Spark Connect: the driver of the run is the client, which has no JVM."""

from __future__ import annotations

import pickle
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ..tables.commit.table_commit import StagedRange
from ..tables.executor import Executor, Stage, watch_thread
from ..tables.plan.ranges import OffsetRange
from .failures import cause, disk_refused
from .session import is_connect
from .tasks import SparkExecutor, attempt_name
from .workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_executor(spark: SparkSession, description: str, run_name: str) -> Executor:
    """Return the executor of a session: of a SparkContext in this process, or of a Connect server."""
    kind = ConnectExecutor if is_connect(spark) else SparkExecutor
    return kind(spark, description, run_name)


class ConnectExecutor:
    """Runs tasks on the server of a Spark Connect session, whose Python needs Lading.

    Tables and the state are at the same places for the client, which publishes, and for the server's workers.
    """

    def __init__(self, spark: SparkSession, description: str, run_name: str) -> None:
        """``description`` tags the operations of this run, ``run_name`` is how messages about it start."""
        self.spark = spark
        self._run_name = run_name
        # a tag takes no spaces or commas
        self._tag = f"{re.sub('[^A-Za-z0-9._-]+', '-', description)}-{secrets.token_hex(4)}"

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        """Call ``stage`` with every range, in a task each. Raises Spark's errors, which contain those of ``stage``."""
        from pyspark.sql.functions import col, udf

        run = udf(_run_range(stage, ranges), "binary")
        # a row a partition: of each range one task is made
        rows = self.spark.range(0, len(ranges), 1, len(ranges)).select(run(col("id")).alias("staged")).collect()
        return [pickle.loads(bytes(row.staged)) for row in rows]

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        """Run ``work`` with a tag of this run; if ``on_poll`` raises, the operations with the tag are interrupted."""

        def tagged() -> None:
            self.spark.addTag(self._tag)
            work()

        def cancel() -> None:
            with suppress(Exception):
                self.spark.interruptTag(self._tag)

        watch_thread(tagged, on_poll, cancel)

    def original_error(self, error: Exception) -> Exception:
        """Return our error inside Spark's, or the one for a disk that failed Spark, else ``error``."""
        return cause(error) or disk_refused(error, self._run_name) or error

    def close(self) -> None:
        """Do nothing: the session belongs to the caller."""


def _run_range(stage: Stage, ranges: Sequence[OffsetRange]) -> Callable[[int], bytes]:
    def run(number: int) -> bytes:
        staged = pickle.dumps(stage(ranges[number], attempt_name()))
        freeze_modules()
        return staged

    return run
