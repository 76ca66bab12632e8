"""Batch: many messages as one Arrow RecordBatch, the hub of the system (design.md Message).

All decoding ends in this schema and all encoding starts from it. Column names are public API.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

HEADER_TYPE = pa.struct(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("value", pa.binary()),
    ]
)
HEADERS_TYPE = pa.list_(pa.field("item", HEADER_TYPE, nullable=False))
_FIELDS: list[pa.Field[Any]] = [
    pa.field("offset", pa.int64(), nullable=False),
    pa.field("state", pa.int8(), nullable=False),
    pa.field("timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("id", pa.binary(16)),
    pa.field("checksum", pa.uint32()),
    pa.field("key", pa.binary()),
    pa.field("headers", HEADERS_TYPE, nullable=False),
    pa.field("payload", pa.binary()),
]
SCHEMA = pa.schema(_FIELDS)
"""The Batch schema: offset, state, timestamp, id, checksum, key, headers, payload."""

FIELDS: tuple[str, ...] = tuple(SCHEMA.names)
