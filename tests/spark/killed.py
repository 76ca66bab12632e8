"""An ingest in a process of its own, to be killed: ``python -m tests.spark.killed STATE FROM TOPIC COLUMNS``."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from lading.spark import session, tables
from lading.tables import ingest
from tests.spark.faults import FaultyWriter

if __name__ == "__main__":
    state, from_, topic, columns = sys.argv[1:]
    spark = session("killed", "local[2]")
    vars(ingest)["TableWriter"] = FaultyWriter
    gateway: Any = spark.sparkContext._gateway
    Path(state, "_lading", "pids").write_text(f"{gateway.proc.pid} {os.getpid()}")
    tables.ingest(spark, from_, topic, state, columns=columns, max_rows=30_000, max_rows_per_partition=8_000)
