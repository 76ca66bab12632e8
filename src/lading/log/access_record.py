"""The catalog's record of ``access.json``: the number of its last change, to notice a missing or older file.

The table is created with the first user: a directory that never had users lacks it.
"""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from pathlib import Path
from typing import Final

from ..model.errors import Refusal
from .catalog import Catalog
from .catalog_copy import connect_read_only
from .catalog_schema import ACCESS_SCHEMA, CatalogRecordKind

LOG: Final = logging.getLogger("lading.log")
_HAS_TABLE: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'access'"
_SERIAL: Final = "SELECT serial FROM access"


class AccessRecord:
    """The record in an open catalog. Threads: that of the catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def load(self) -> int:
        """Return the number of the last change of users and rights; 0 if the directory never had any."""
        rows = self._catalog.rows(_SERIAL) if self._catalog.rows(_HAS_TABLE) else []
        return int(rows[0][0]) if rows else 0

    def save(self, serial: int) -> None:
        """Store the number; if the disk refuses it, the next change or start does it, as the file is the newer one."""
        try:
            with self._catalog.write(CatalogRecordKind.ACCESS) as db:
                db.execute(ACCESS_SCHEMA)
                db.execute(
                    "INSERT INTO access VALUES (1, ?) ON CONFLICT DO UPDATE SET serial = excluded.serial", (serial,)
                )
        except Refusal as refusal:
            LOG.warning("users and rights: the catalog does not know of their last change yet (%s)", refusal)


def read_recorded_serial(catalog: Path) -> int:
    """Return the number in the catalog at ``catalog``, which no broker has open; 0 if it cannot be read."""
    with contextlib.suppress(sqlite3.Error, OSError):
        if catalog.is_file() and catalog.stat().st_size:
            with connect_read_only(catalog) as db:
                row = db.execute(_SERIAL).fetchone() if db.execute(_HAS_TABLE).fetchone() else None
                return int(row[0]) if row else 0
    return 0
