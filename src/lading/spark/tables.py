"""Ingest with Spark as the executor (docs/reference/spark.md).

Spark distributes, schedules and retries the tasks. Its streaming is not used, because starting it costs more than
reading a million messages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..tables.ingest import IngestProgress, IngestReport, IngestSettings
from ..tables.ingest import ingest as ingest_with
from .connect_executor import make_executor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def ingest(
    spark: SparkSession,
    from_: str | Path,
    topic: str | None,
    to: str | Path,
    *,
    on_progress: Callable[[IngestProgress], None] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    **settings: Any,
) -> IngestReport:
    r"""Copy the messages of ``topic`` into the Parquet table ``to``; a later call continues there.

    With ``topic`` None the settings select several, as ``topics=["flights", "orders"]`` or
    ``topic_pattern=r"flights\..*"``. ``settings`` are the fields of ``lading.tables.ingest.IngestSettings``; for
    guarantees and errors see ``ingest`` there.
    """
    chosen = IngestSettings(**settings)
    topics = topic or chosen.topic_pattern or ",".join(chosen.topics)
    executor = make_executor(spark, f"lading ingest {topics}", f"the table {to}")
    return ingest_with(executor, from_, topic, to, chosen, on_progress=on_progress, stopped=stopped)
