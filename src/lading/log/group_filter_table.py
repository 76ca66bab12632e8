"""The catalog's table of the filters of groups and channels.

Writes are at level FULL: what a group's members get must not change with a power cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from ..model.errors import Refusal
from .catalog import Catalog
from .catalog_schema import GROUP_FILTER_SCHEMA, CatalogRecordKind


class GroupFilterKey(NamedTuple):
    """A group of a protocol; ``topic`` is the id of the only topic that it reads, empty if it may read several."""

    protocol: str
    topic: bytes
    name: str


class GroupFilterTable:
    """Filters as documents, by group. A failed write changes nothing and raises Refusal."""

    def __init__(self, catalog: Catalog) -> None:
        """Create the table if an older Lading wrote the catalog."""
        self._catalog = catalog
        with suppress(Refusal):
            # a broker starts on a full disk, for readers: the next filter that is set tries again
            self._create()

    def _create(self) -> None:
        if not self._has_table():
            with self._catalog.write(CatalogRecordKind.GROUP_FILTER) as db:
                db.execute(GROUP_FILTER_SCHEMA)

    def _has_table(self) -> bool:
        return bool(self._catalog.rows("SELECT 1 FROM sqlite_master WHERE name = 'group_filters'"))

    def list_all(self) -> list[tuple[GroupFilterKey, dict[str, Any]]]:
        """Return the filters of all groups."""
        if not self._has_table():
            return []
        rows = self._catalog.rows("SELECT protocol, topic, name, document FROM group_filters")
        return [(GroupFilterKey(protocol, topic, name), json.loads(text)) for protocol, topic, name, text in rows]

    def put(self, key: GroupFilterKey, document: Mapping[str, Any]) -> None:
        """Set the filter of a group, or replace it."""
        self._create()
        with self._catalog.write(CatalogRecordKind.GROUP_FILTER) as db:
            db.execute("INSERT OR REPLACE INTO group_filters VALUES (?, ?, ?, ?)", (*key, json.dumps(document)))

    def remove(self, key: GroupFilterKey) -> None:
        """Remove the filter of a group."""
        with self._catalog.write(CatalogRecordKind.GROUP_FILTER) as db:
            db.execute("DELETE FROM group_filters WHERE protocol = ? AND topic = ? AND name = ?", key)
