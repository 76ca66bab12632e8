"""Limits that no setting changes, with their sources; per-dialect limits live beside each dialect."""

from __future__ import annotations

from typing import Final

CHUNK_BODY_BYTES_MAX: Final = 1 << 20
"""A chunk's body stays below this unless one producer batch is larger (design.md Log)."""

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
"""Arrow batches handed to readers: at most this many rows and about this many bytes (docs/reference/limits.md)."""

REQUEST_BYTES_MAX: Final = 64 << 20
"""No endpoint takes memory for a larger request, whatever its length field says."""
