"""An ingest in a process of its own, to be killed: ``python -m tests.spark.killed STATE FROM TOPIC COLUMNS``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lading.spark import session
from lading.spark.table_sink import RangeSource
from lading.spark.tables import ingest
from tests.spark.faults import FaultySink

if __name__ == "__main__":
    state, from_, topic, columns = sys.argv[1:]
    spark = session("killed", "local[2]")
    spark.dataSource.register(RangeSource)
    spark.dataSource.register(FaultySink)
    spark._lading_table_path = True
    gateway = spark.sparkContext._gateway
    Path(state, "_lading", "pids").write_text(f"{gateway.proc.pid} {os.getpid()}")
    ingest(spark, from_, topic, state, columns=columns, max_rows=30_000, max_rows_per_partition=8_000)
