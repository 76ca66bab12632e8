"""The table path with failures put in where a crash would hurt: imported by Spark's workers.

A fault is a file ``STATE/_lading/faults/PHASE`` that says ``fail`` or ``kill``; whoever removes it has it.
"""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from lading.tables import ingest
from lading.tables.commit import table_commit
from lading.tables.commit.table_commit import StagedBatch, StagedRange
from lading.tables.ingest import TableWriter
from lading.tables.plan.ranges import OffsetRange

PHASES = ("task", "manifest", "renames", "published")
"""After a task's file was written; after the manifest, before any rename; between renames; when all is published."""


def arm(state: Path, phase: str, how: str) -> None:
    """Let the next run fail once in ``phase``."""
    (state / "_lading" / "faults").mkdir(parents=True, exist_ok=True)
    (state / "_lading" / "faults" / phase).write_text(how)


def strike(state: Path, phase: str) -> None:
    """Fail here if this phase is armed."""
    path = state / "_lading" / "faults" / phase
    try:
        how = path.read_text()
        path.unlink()
    except FileNotFoundError:
        return
    if how == "kill":
        for pid in (state / "_lading" / "pids").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        # a worker is a child of the JVM and ends with it; nothing more may happen before that
        time.sleep(60)
    raise RuntimeError(f"injected: {phase}")


class FaultyWriter(TableWriter):
    """Takes the place of the table path's own writer, and fails where it is told."""

    def stage_range(self, piece: OffsetRange, attempt: str) -> StagedRange:
        written = super().stage_range(piece, attempt)
        strike(Path(self.job.state), "task")
        return written

    def publish(self, batch: StagedBatch) -> None:
        state = Path(self.job.state)
        renamed = 0

        def rename(source: Path, target: Path) -> Any:
            nonlocal renamed
            strike(state, "renames" if renamed else "manifest")
            renamed += 1
            source.replace(target)

        vars(ingest)["commit"] = partial(table_commit.commit, rename=rename)
        super().publish(batch)
        strike(state, "published")
