"""Ingest with Spark as the executor (docs/reference/spark.md).

Spark distributes, schedules and retries the tasks. Its own streaming costs more to start than a million messages to
read, so that only the tasks are its.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables.ingest import IngestReport
from ..tables.ingest import ingest as ingest_with
from .tasks import SparkExecutor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ingest(spark: SparkSession, from_: str | Path, topic: str, to: str | Path, **options: Any) -> IngestReport:
    """Write what ``topic`` holds into the Parquet table ``to``, and go on there when called again.

    ``options``, what is promised and what is raised: ``lading.tables.ingest.ingest``.
    """
    executor = SparkExecutor(spark, f"lading ingest {topic}", f"the table {to}")
    return ingest_with(executor, from_, topic, to, **options)
