"""Upkeep of the catalog: it is tried again after an error, and its log is moved into the file."""

from __future__ import annotations

from ...log.catalog import Catalog
from .component import Component


class CatalogUpkeep(Component):
    """The catalog of a broker, seen as a part of it."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def tick(self, now_us: int) -> None:
        """Repair the catalog and checkpoint it, each when it is due."""
        try:
            self._catalog.repair_when_due(now_us)
        finally:
            self._catalog.checkpoint_when_due()
