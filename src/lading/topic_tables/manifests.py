"""Manifests and manifest lists of a snapshot, in Iceberg's second format (specification: Manifests, Manifest Lists)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .avro import (
    encode_array,
    encode_bytes,
    encode_int_map,
    encode_long,
    encode_optional,
    encode_string,
    write_container,
)
from .file_facts import FileFacts
from .table_schema import TableSchema

EXISTING: Final = 0
ADDED: Final = 1


class SnapshotFile(NamedTuple):
    """A file of a snapshot: its location, its facts, and the snapshot that added it."""

    location: str
    facts: FileFacts
    added_by: int


class ListedManifest(NamedTuple):
    """A manifest as the list of its snapshot names it."""

    location: str
    size_bytes: int
    status: int
    snapshot_id: int
    files: Sequence[SnapshotFile]


def _field_schema(name: str, field_id: int, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, "field-id": field_id, **more}


def _optional_field(name: str, field_id: int, type_: Any) -> dict[str, Any]:
    return _field_schema(name, field_id, ["null", type_], default=None)


def _map_schema(key_id: int, value_id: int, value: str) -> dict[str, Any]:
    record = {
        "type": "record",
        "name": f"k{key_id}_v{value_id}",
        "fields": [_field_schema("key", key_id, "int"), _field_schema("value", value_id, value)],
    }
    return {"type": "array", "items": record, "logicalType": "map"}


_DATA_FILE: Final = {
    "type": "record",
    "name": "r2",
    "fields": [
        _field_schema("content", 134, "int"),
        _field_schema("file_path", 100, "string"),
        _field_schema("file_format", 101, "string"),
        _field_schema("partition", 102, {"type": "record", "name": "r102", "fields": []}),
        _field_schema("record_count", 103, "long"),
        _field_schema("file_size_in_bytes", 104, "long"),
        _optional_field("value_counts", 109, _map_schema(119, 120, "long")),
        _optional_field("null_value_counts", 110, _map_schema(121, 122, "long")),
        _optional_field("nan_value_counts", 137, _map_schema(138, 139, "long")),
        _optional_field("lower_bounds", 125, _map_schema(126, 127, "bytes")),
        _optional_field("upper_bounds", 128, _map_schema(129, 130, "bytes")),
        _optional_field("split_offsets", 132, {"type": "array", "items": "long", "element-id": 133}),
        _optional_field("sort_order_id", 140, "int"),
    ],
}
ENTRY_SCHEMA: Final = {
    "type": "record",
    "name": "manifest_entry",
    "fields": [
        _field_schema("status", 0, "int"),
        _optional_field("snapshot_id", 1, "long"),
        _optional_field("sequence_number", 3, "long"),
        _optional_field("file_sequence_number", 4, "long"),
        _field_schema("data_file", 2, _DATA_FILE),
    ],
}
LIST_SCHEMA: Final = {
    "type": "record",
    "name": "manifest_file",
    "fields": [
        _field_schema("manifest_path", 500, "string"),
        _field_schema("manifest_length", 501, "long"),
        _field_schema("partition_spec_id", 502, "int"),
        _field_schema("content", 517, "int"),
        _field_schema("sequence_number", 515, "long"),
        _field_schema("min_sequence_number", 516, "long"),
        _field_schema("added_snapshot_id", 503, "long"),
        _field_schema("added_files_count", 504, "int"),
        _field_schema("existing_files_count", 505, "int"),
        _field_schema("deleted_files_count", 506, "int"),
        _field_schema("added_rows_count", 512, "long"),
        _field_schema("existing_rows_count", 513, "long"),
        _field_schema("deleted_rows_count", 514, "long"),
    ],
}


def write_manifest(schema: TableSchema, status: int, snapshot_id: int, files: Sequence[SnapshotFile]) -> bytes:
    """Return the manifest of files that a snapshot added, or that were there before it."""
    metadata = {
        "schema": json.dumps(schema.document(), separators=(",", ":")),
        "schema-id": str(schema.schema_id),
        "partition-spec": "[]",
        "partition-spec-id": "0",
        "format-version": "2",
        "content": "data",
    }
    return write_container(ENTRY_SCHEMA, metadata, (_encode_entry(status, file) for file in files))


def _encode_entry(status: int, file: SnapshotFile) -> bytes:
    facts, number = file.facts, encode_optional(encode_long, file.added_by)
    return b"".join(
        (
            encode_long(status),
            # a snapshot's sequence number is its id, which grows
            number * 3,
            encode_long(0),
            encode_string(file.location),
            encode_string("PARQUET"),
            encode_long(facts.rows),
            encode_long(facts.size_bytes),
            *(
                encode_optional(lambda counts: encode_int_map(encode_long, counts), counts)
                for counts in (facts.values, facts.nulls, facts.nans)
            ),
            *(
                encode_optional(lambda bounds: encode_int_map(encode_bytes, bounds), bounds)
                for bounds in (facts.lower, facts.upper)
            ),
            encode_optional(lambda splits: encode_array(encode_long, splits), facts.splits),
            encode_optional(encode_long, None),
        )
    )


def write_manifest_list(snapshot_id: int, parent_id: int | None, manifests: Sequence[ListedManifest]) -> bytes:
    """Return the manifest list of a snapshot."""
    metadata = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(snapshot_id),
        "format-version": "2",
    }
    return write_container(LIST_SCHEMA, metadata, map(_encode_manifest, manifests))


def _encode_manifest(manifest: ListedManifest) -> bytes:
    files, rows = len(manifest.files), sum(file.facts.rows for file in manifest.files)
    least = min((file.added_by for file in manifest.files), default=manifest.snapshot_id)
    added = (files, 0) if manifest.status == ADDED else (0, files)
    added_rows = (rows, 0) if manifest.status == ADDED else (0, rows)
    numbers = (
        manifest.size_bytes, 0, 0, manifest.snapshot_id, least, manifest.snapshot_id, *added, 0, *added_rows, 0,
    )  # fmt: skip
    return encode_string(manifest.location) + b"".join(map(encode_long, numbers))
