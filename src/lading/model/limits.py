"""Limits that no setting changes, with their sources; per-dialect limits live beside each dialect."""

from __future__ import annotations

from typing import Final

CHUNK_BODY_BYTES_MAX: Final = 1 << 20
"""The body of a chunk is smaller than this, unless one producer batch is larger (design.md Log)."""

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 8 << 20
"""Arrow batches that readers get have at most this many rows and about this many bytes (docs/reference/limits.md)."""

REQUEST_BYTES_MAX: Final = 64 << 20
"""Endpoints refuse larger requests by their length field, before they allocate memory for them."""

INSTANT_MIN_US: Final = -62_135_596_800_000_000
INSTANT_MAX_US: Final = 253_402_300_799_999_999
"""The years 1 to 9999, beyond which neither Python nor Spark has a date."""
