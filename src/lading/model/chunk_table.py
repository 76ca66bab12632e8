"""Columns of the table of chunks that kernels read messages by: ``Run.chunks``, int64, one row a chunk."""

from __future__ import annotations

BODY_START, BODY_END, BASE_OFFSET, COUNT, LAST_OFFSET, MIN_TIMESTAMP_US, MAX_TIMESTAMP_US, FLAGS = range(8)
COLUMNS = 8
