"""The catalog's tables of schemas: their texts, the versions of subjects, references between them, and settings.

Every lookup goes through an index. Writes are at level NORMAL: the caller confirms them by one sync for all that arrive
meanwhile (``CatalogCommit``), before it responds.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from .catalog import Catalog
from .catalog_schema import REGISTRY_SCHEMA, CatalogRecordKind

GLOBAL: Final = ""
"""The subject of settings for all subjects without settings of their own."""


class SchemaRow(NamedTuple):
    """A schema; ``guid`` is 16 bytes, ``digest`` that of kind, text and details.

    ``details`` is a JSON object with its references, and what else was registered with it.
    """

    id: int
    guid: bytes
    digest: bytes
    kind: str
    text: str
    details: dict[str, Any]


class VersionRow(NamedTuple):
    """A version of a subject: a number from 1, the id of its schema, and whether it was deleted softly."""

    subject: str
    version: int
    schema: int
    deleted: bool


class SchemaTable:
    """Schemas in the catalog. A failed write changes nothing and raises Refusal."""

    def __init__(self, catalog: Catalog) -> None:
        """Create the tables if an older Lading wrote the catalog."""
        self._catalog = catalog
        known = {name for (name,) in catalog.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if "registry_settings" not in known:
            with catalog.write(CatalogRecordKind.SCHEMA) as db:
                for statement in REGISTRY_SCHEMA:
                    db.execute(statement)

    # -- reading

    def find_by_id(self, schema_id: int) -> SchemaRow | None:
        """Return the schema with this id."""
        return self._find("id = ?", schema_id)

    def find_by_guid(self, guid: bytes) -> SchemaRow | None:
        """Return the schema with this GUID."""
        return self._find("guid = ?", guid)

    def find_by_digest(self, digest: bytes) -> SchemaRow | None:
        """Return the schema with this content."""
        return self._find("digest = ?", digest)

    def _find(self, condition: str, value: int | bytes) -> SchemaRow | None:
        rows = self._select(
            f"SELECT id, guid, digest, kind, text, details FROM registry_schemas WHERE {condition} ORDER BY id LIMIT 1",
            value,
        )
        for ident, guid, digest, kind, text, details in rows:
            return SchemaRow(ident, guid, digest, kind, text.decode(), json.loads(details))
        return None

    def list_versions(self, subject: str) -> list[VersionRow]:
        """Return all versions of a subject, deleted ones too, ascending."""
        return self._select_versions("subject = ? ORDER BY version", subject)

    def find_version(self, subject: str, version: int) -> VersionRow | None:
        """Return a version of a subject, deleted or not."""
        return next(iter(self._select_versions("subject = ? AND version = ?", subject, version)), None)

    def find_latest(self, subject: str, *, with_deleted: bool) -> VersionRow | None:
        """Return the newest version of a subject."""
        found = self._select_versions(
            "subject = ? AND deleted <= ? ORDER BY version DESC LIMIT 1", subject, with_deleted
        )
        return next(iter(found), None)

    def list_uses(self, schema_id: int, after: str = "", limit: int = -1) -> list[VersionRow]:
        """Return the versions that have a schema, deleted ones too, ordered by subject, from subject ``after`` on."""
        order = "schema = ? AND subject >= ? ORDER BY subject, version LIMIT ?"
        return self._select_versions(order, schema_id, after, limit)

    def has_schema(self, subject: str, schema_id: int) -> bool:
        """Return whether a version of a subject that is not deleted has this schema."""
        question = "SELECT 1 FROM registry_versions WHERE schema = ? AND subject = ? AND deleted = 0 LIMIT 1"
        return bool(self._select(question, schema_id, subject))

    def list_subject_rows(self, after: tuple[str, int], limit: int) -> list[VersionRow]:
        """Return versions of all subjects in their order, those that come after a subject and version."""
        return self._select_versions("(subject, version) > (?, ?) ORDER BY subject, version LIMIT ?", *after, limit)

    def _select_versions(self, condition: str, *values: int | str) -> list[VersionRow]:
        rows = self._select(
            f"SELECT subject, version, schema, deleted FROM registry_versions WHERE {condition}", *values
        )
        return [VersionRow(subject, version, schema, bool(deleted)) for subject, version, schema, deleted in rows]

    def list_referring(self, subject: str, version: int) -> list[int]:
        """Return the ids of schemas that refer to a version, ascending."""
        question = "SELECT schema FROM registry_references WHERE subject = ? AND version = ? ORDER BY schema"
        return [ident for (ident,) in self._select(question, subject, version)]

    def find_settings(self, subject: str) -> dict[str, Any]:
        """Return the settings of a subject, or GLOBAL ones; empty without any."""
        for (document,) in self._select("SELECT document FROM registry_settings WHERE subject = ?", subject):
            settings: dict[str, Any] = json.loads(document)
            return settings
        return {}

    def has_schemas(self, subject: str | None = None) -> bool:
        """Return whether a subject, or any, has a version that is not deleted."""
        if subject is not None:
            return self.find_latest(subject, with_deleted=False) is not None
        return bool(self._select("SELECT 1 FROM registry_versions WHERE deleted = 0 LIMIT 1"))

    def _select(self, question: str, *values: int | str | bytes) -> list[tuple[Any, ...]]:
        return self._catalog.select(question, values)

    # -- writing

    def add_version(
        self,
        subject: str,
        version: int,
        schema: SchemaRow,
        referred: Sequence[tuple[str, int]],
        replaced: Sequence[int],
    ) -> int:
        """Add a version, with its schema if that is new (``id`` 0 takes the next one), and return the schema's id.

        Versions ``replaced`` of the subject are deleted.
        """
        with self._catalog.write(CatalogRecordKind.SCHEMA) as db:
            ident = schema.id
            if not ident or not db.execute("SELECT 1 FROM registry_schemas WHERE id = ?", (ident,)).fetchone():
                cursor = db.execute(
                    "INSERT INTO registry_schemas (id, guid, digest, kind, text, details) VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        ident or None, schema.guid, schema.digest, schema.kind, schema.text.encode(),
                        json.dumps(schema.details),
                    ),
                )  # fmt: skip
                ident = int(cursor.lastrowid or 0)
                rows = [(of, number, ident) for of, number in referred]
                db.executemany("INSERT OR IGNORE INTO registry_references VALUES (?, ?, ?)", rows)
            _remove_versions(db, subject, replaced, kept_schema=ident)
            db.execute("INSERT INTO registry_versions VALUES (?, ?, ?, 0)", (subject, version, ident))
        return ident

    def set_deleted(self, subject: str, versions: Sequence[int], *, deleted: bool) -> None:
        """Delete versions softly, or undo that."""
        with self._catalog.write(CatalogRecordKind.SCHEMA) as db:
            rows = [(deleted, subject, version) for version in versions]
            db.executemany("UPDATE registry_versions SET deleted = ? WHERE subject = ? AND version = ?", rows)

    def remove_versions(self, subject: str, versions: Sequence[int], *, with_settings: bool) -> None:
        """Remove versions, and the schemas that no version has any more."""
        with self._catalog.write(CatalogRecordKind.SCHEMA) as db:
            _remove_versions(db, subject, versions)
            if with_settings:
                db.execute("DELETE FROM registry_settings WHERE subject = ?", (subject,))

    def set_settings(self, subject: str, settings: dict[str, Any]) -> None:
        """Replace the settings of a subject, or GLOBAL ones; empty ones are removed."""
        with self._catalog.write(CatalogRecordKind.SCHEMA) as db:
            if settings:
                db.execute("INSERT OR REPLACE INTO registry_settings VALUES (?, ?)", (subject, json.dumps(settings)))
            else:
                db.execute("DELETE FROM registry_settings WHERE subject = ?", (subject,))


def _remove_versions(
    db: sqlite3.Connection, subject: str, versions: Sequence[int], kept_schema: int | None = None
) -> None:
    """Remove versions, and the schemas that no version has any more; ``kept_schema`` is about to get another one."""
    for version in versions:
        key = (subject, version)
        row = db.execute(
            "DELETE FROM registry_versions WHERE subject = ? AND version = ? RETURNING schema", key
        ).fetchone()
        if row is None or row == (kept_schema,):
            continue
        if db.execute("SELECT 1 FROM registry_versions WHERE schema = ? LIMIT 1", row).fetchone():
            continue
        db.execute("DELETE FROM registry_schemas WHERE id = ?", row)
        db.execute("DELETE FROM registry_references WHERE schema = ?", row)
