"""The tables of the catalog, and how durable writes to each are (docs/reference/catalog)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Level(Enum):
    """SQLite's synchronous levels that the catalog uses, in write-ahead-log mode."""

    OFF = "OFF"
    NORMAL = "NORMAL"
    FULL = "FULL"


class CatalogRecordKind(Enum):
    """The kinds of records in the catalog."""

    STREAM = "streams"
    TOPIC = "topics"
    GROUP = "groups"
    COORDINATED_GROUP = "coordinated_groups"
    POSITION = "positions"
    WAITING_POSITION = "waiting_positions"
    TRANSACTION = "transactions"
    COMMIT_KEY = "commit_keys"
    WRITER = "writer_partitions"
    MARKING = "markings"
    MARKING_PROGRESS = "markings_done"
    PRODUCER = "producers"
    ACCESS = "access"
    SCHEMA = "registry_schemas"
    KAFKA_CONFIG = "kafka_configs"
    GROUP_FILTER = "group_filters"


SYNC_LEVEL: Final[Mapping[CatalogRecordKind, Level]] = {
    CatalogRecordKind.STREAM: Level.FULL,
    CatalogRecordKind.TOPIC: Level.FULL,
    CatalogRecordKind.GROUP: Level.FULL,
    CatalogRecordKind.COORDINATED_GROUP: Level.NORMAL,
    CatalogRecordKind.POSITION: Level.NORMAL,
    CatalogRecordKind.WAITING_POSITION: Level.NORMAL,
    CatalogRecordKind.TRANSACTION: Level.FULL,
    CatalogRecordKind.COMMIT_KEY: Level.FULL,
    CatalogRecordKind.WRITER: Level.FULL,
    CatalogRecordKind.ACCESS: Level.NORMAL,
    CatalogRecordKind.MARKING: Level.FULL,
    CatalogRecordKind.MARKING_PROGRESS: Level.NORMAL,
    CatalogRecordKind.PRODUCER: Level.FULL,
    CatalogRecordKind.SCHEMA: Level.NORMAL,
    CatalogRecordKind.KAFKA_CONFIG: Level.NORMAL,
    CatalogRecordKind.GROUP_FILTER: Level.FULL,
}
"""Durability of each kind; the table of docs/reference/catalog."""

SCHEMA: Final = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_us INTEGER NOT NULL
);
CREATE TABLE topics (
    uuid BLOB PRIMARY KEY, stream_id INTEGER NOT NULL REFERENCES streams(id), id INTEGER NOT NULL,
    name TEXT NOT NULL, created_us INTEGER NOT NULL, partitions INTEGER NOT NULL, next_epoch INTEGER NOT NULL,
    settings TEXT NOT NULL, UNIQUE (stream_id, id), UNIQUE (stream_id, name)
) WITHOUT ROWID;
CREATE TABLE groups (
    protocol TEXT NOT NULL, scope BLOB NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL,
    PRIMARY KEY (protocol, scope, name)
) WITHOUT ROWID;
CREATE TABLE positions (
    protocol TEXT NOT NULL, topic BLOB NOT NULL, partition INTEGER NOT NULL, consumer TEXT NOT NULL,
    offset INTEGER NOT NULL, epoch INTEGER, extra BLOB, updated_us INTEGER NOT NULL,
    PRIMARY KEY (protocol, topic, partition, consumer)
) WITHOUT ROWID;
CREATE TABLE writer_partitions (
    topic BLOB NOT NULL, partition INTEGER NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE transactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, state TEXT NOT NULL,
    deadline_us INTEGER NOT NULL, settled_us INTEGER
);
CREATE INDEX transactions_by_state ON transactions (state, scope);
CREATE TABLE commit_keys (
    key TEXT PRIMARY KEY, winners TEXT NOT NULL, committed_us INTEGER NOT NULL
) WITHOUT ROWID;
"""
MARKING_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS markings (
    id INTEGER PRIMARY KEY AUTOINCREMENT, topic BLOB NOT NULL, partition INTEGER NOT NULL, ranges TEXT NOT NULL,
    target BLOB NOT NULL, target_partition INTEGER NOT NULL, confirmed INTEGER NOT NULL, reason TEXT,
    marked_us INTEGER NOT NULL
)
"""
PRODUCER_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS producer_ids (one INTEGER PRIMARY KEY CHECK (one = 1), next INTEGER NOT NULL)""",
    """CREATE TABLE IF NOT EXISTS producers (
        name TEXT PRIMARY KEY, id INTEGER NOT NULL, epoch INTEGER NOT NULL, state TEXT NOT NULL,
        timeout_us INTEGER NOT NULL, deadline_us INTEGER NOT NULL, updated_us INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS waiting_positions (
        producer TEXT NOT NULL, protocol TEXT NOT NULL, topic BLOB NOT NULL, partition INTEGER NOT NULL,
        consumer TEXT NOT NULL, offset INTEGER NOT NULL, epoch INTEGER, extra BLOB, updated_us INTEGER NOT NULL,
        PRIMARY KEY (producer, protocol, topic, partition, consumer)
    ) WITHOUT ROWID""",
)
ACCESS_SCHEMA: Final = (
    "CREATE TABLE IF NOT EXISTS access (one INTEGER PRIMARY KEY CHECK (one = 1), serial INTEGER NOT NULL)"
)
REGISTRY_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS registry_schemas (
        id INTEGER PRIMARY KEY AUTOINCREMENT, guid BLOB NOT NULL, digest BLOB NOT NULL, kind TEXT NOT NULL,
        text BLOB NOT NULL, details TEXT NOT NULL
    )""",
    "CREATE INDEX IF NOT EXISTS registry_schemas_by_guid ON registry_schemas (guid)",
    "CREATE INDEX IF NOT EXISTS registry_schemas_by_digest ON registry_schemas (digest)",
    """CREATE TABLE IF NOT EXISTS registry_versions (
        subject TEXT NOT NULL, version INTEGER NOT NULL, schema INTEGER NOT NULL, deleted INTEGER NOT NULL,
        PRIMARY KEY (subject, version)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS registry_versions_by_schema ON registry_versions (schema, subject, version)",
    """CREATE TABLE IF NOT EXISTS registry_references (
        subject TEXT NOT NULL, version INTEGER NOT NULL, schema INTEGER NOT NULL,
        PRIMARY KEY (subject, version, schema)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS registry_references_by_schema ON registry_references (schema)",
    """CREATE TABLE IF NOT EXISTS registry_settings (
        subject TEXT PRIMARY KEY, document TEXT NOT NULL
    ) WITHOUT ROWID""",
)
KAFKA_CONFIG_SCHEMA: Final = """CREATE TABLE IF NOT EXISTS kafka_configs (
    kind INTEGER NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID"""
GROUP_FILTER_SCHEMA: Final = """CREATE TABLE IF NOT EXISTS group_filters (
    protocol TEXT NOT NULL, topic BLOB NOT NULL, name TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (protocol, topic, name)
) WITHOUT ROWID"""
LATER_SCHEMAS: Final = (
    MARKING_SCHEMA, *PRODUCER_SCHEMA, ACCESS_SCHEMA, *REGISTRY_SCHEMA, KAFKA_CONFIG_SCHEMA, GROUP_FILTER_SCHEMA,
)  # fmt: skip
"""Tables that a catalog of an older Lading lacks; each is created by the module that uses it."""
PUT_POSITION: Final = (
    "INSERT INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "offset = excluded.offset, epoch = excluded.epoch, extra = excluded.extra, updated_us = excluded.updated_us"
)
