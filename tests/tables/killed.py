"""A run of ingest in a process to be killed: ``python -m tests.tables.killed SERVER TOPIC TARGET STATE``."""

from __future__ import annotations

import sys
from pathlib import Path

from lading.tables.ingest import IngestSettings, ingest

from .direct import DirectExecutor
from .logged_forms import COLUMNS

if __name__ == "__main__":
    server, topic, target, state = sys.argv[1:]
    ingest(DirectExecutor(), server, topic, target, IngestSettings(columns=COLUMNS, state_dir=Path(state)))
