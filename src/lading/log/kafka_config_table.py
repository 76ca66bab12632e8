"""The catalog's table of configs that Kafka's clients set for the broker and for groups.

Writes are at level NORMAL: the caller confirms them by a sync (``CatalogCommit``) before it responds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress

from ..model.errors import Refusal
from .catalog import Catalog
from .catalog_schema import KAFKA_CONFIG_SCHEMA, CatalogRecordKind


class KafkaConfigTable:
    """Configs by kind and name of their resource. A failed write changes nothing and raises Refusal."""

    def __init__(self, catalog: Catalog) -> None:
        """Create the table if an older Lading wrote the catalog."""
        self._catalog = catalog
        self.version = 0
        """Grows with each change."""
        known = {name for (name,) in catalog.rows("SELECT name FROM sqlite_master WHERE type = 'table'")}
        self._exists = "kafka_configs" in known
        with suppress(Refusal):
            # a broker starts on a full disk, for readers: the next config that is set tries again
            self._create()

    def _create(self) -> None:
        if not self._exists:
            with self._catalog.write(CatalogRecordKind.KAFKA_CONFIG) as db:
                db.execute(KAFKA_CONFIG_SCHEMA)
            self._exists = True

    def find(self, kind: int, name: str) -> dict[str, str]:
        """Return the configs of a resource by name; empty without any."""
        if not self._exists:
            return {}
        question = "SELECT document FROM kafka_configs WHERE kind = ? AND name = ?"
        for (document,) in self._catalog.select(question, (kind, name)):
            found: dict[str, str] = json.loads(document)
            return found
        return {}

    def list_names(self, kind: int) -> list[str]:
        """Return the names of all resources of a kind that have configs, in order."""
        if not self._exists:
            return []
        rows = self._catalog.select("SELECT name FROM kafka_configs WHERE kind = ? ORDER BY name", (kind,))
        return [name for (name,) in rows]

    def count(self) -> int:
        """Return how many resources have configs."""
        if not self._exists:
            return 0
        ((count,),) = self._catalog.rows("SELECT count(*) FROM kafka_configs")
        return int(count)

    def replace(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        """Replace the configs of a resource; without any its row is removed."""
        if configs:
            self._create()
        elif not self._exists:
            return
        with self._catalog.write(CatalogRecordKind.KAFKA_CONFIG) as db:
            if configs:
                db.execute("INSERT OR REPLACE INTO kafka_configs VALUES (?, ?, ?)", (kind, name, json.dumps(configs)))
            else:
                db.execute("DELETE FROM kafka_configs WHERE kind = ? AND name = ?", (kind, name))
        self.version += 1
