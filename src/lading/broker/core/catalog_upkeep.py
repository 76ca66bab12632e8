"""Upkeep of the catalog: tried again after an error, synced in the background, its log moved into the file."""

from __future__ import annotations

from typing import Final

from ...log.catalog import Catalog
from ...log.interface import Commit
from .component import NEVER_US, Component

SYNC_US: Final = 100_000
"""What was written without a sync is synced so often. Few positions are lost by a power cut then, not many more than by
``kill -9``; a sync for each would make polls and FINs wait for the disk."""


class CatalogUpkeep(Component):
    """The catalog of a broker, seen as a part of it."""

    def __init__(self, catalog: Catalog, commit: Commit) -> None:
        self._catalog = catalog
        self._commit = commit
        self._sync_due_us = 0

    def tick(self, now_us: int) -> None:
        """Repair the catalog, checkpoint it and sync it, each when it is due."""
        try:
            self._catalog.repair_when_due(now_us)
        finally:
            self._catalog.checkpoint_when_due()
        if self._catalog.wal.is_behind and now_us >= self._sync_due_us:
            self._sync_due_us = now_us + SYNC_US
            # a failure is in the catalog's ``problem``, and the next write opens the file anew
            self._commit.submit(self._catalog.wal)

    @property
    def due_us(self) -> int:
        """Return when what the parts before have written is synced."""
        return self._sync_due_us if self._catalog.wal.is_behind else NEVER_US
