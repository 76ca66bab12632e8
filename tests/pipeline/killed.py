"""A pipeline's run in a process of its own, to be killed: ``python -m tests.pipeline.killed FILE``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from lading.pipeline import run
from lading.pipeline.settings import PipelineSettings
from lading.spark import session
from tests.pipeline.faults import FaultyWriter

if __name__ == "__main__":
    settings = PipelineSettings.load(Path(sys.argv[1]))
    spark = session("killed", "local[2]")
    vars(run)["PipelineWriter"] = FaultyWriter
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    Path(settings.state_directory, "_lading", "pids").write_text(f"{gateway.proc.pid} {os.getpid()}")
    run.run(lambda: spark, settings)
