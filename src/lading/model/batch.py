"""Batch: many messages as one Arrow RecordBatch, the hub of the system (design.md Message).

All decoding ends in this schema and all encoding starts from it. Column names are public API.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

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

ORIGIN_TIMESTAMP: Final = "origin_timestamp"
SCHEMA_WITH_ORIGIN = pa.schema([*_FIELDS, pa.field(ORIGIN_TIMESTAMP, pa.timestamp("us", tz="UTC"))])
"""The batch schema with the time by the clock of the client that sent a message, which some generations of Iggy keep.

A Batch has this column only if it was asked for; null: the message has no such time."""
FIELDS_WITH_ORIGIN: Final = frozenset(SCHEMA_WITH_ORIGIN.names)


def schema_of_fields(names: Container[str]) -> pa.Schema:
    """Return the schema of a Batch by whether origin times are among the ``names`` of its columns."""
    return SCHEMA_WITH_ORIGIN if ORIGIN_TIMESTAMP in names else SCHEMA
