"""Ingest with Spark as the executor (docs/reference/spark.md).

Spark distributes, schedules and retries the tasks. Its streaming is not used, because starting it costs more than
reading a million messages.
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
    """Copy the messages of ``topic`` into the Parquet table ``to``; a later call continues there.

    For ``options``, guarantees and errors see ``lading.tables.ingest.ingest``.
    """
    executor = SparkExecutor(spark, f"lading ingest {topic}", f"the table {to}")
    return ingest_with(executor, from_, topic, to, **options)
