"""A copy of a catalog as it is at one moment, taken while its broker runs or after it ended."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ..model.errors import CorruptLog
from .catalog_state import wal_path
from .formats import CATALOG, GATE

_DECISIONS: Final = {
    "producers": "SELECT name, id, epoch, state FROM producers ORDER BY name",
    "transactions": "SELECT id, state FROM transactions ORDER BY id",
    "markings": "SELECT id, confirmed FROM markings ORDER BY id",
}
"""The columns that decide about messages in more than one partition, by table. A table may not exist yet."""


class CatalogCopy(NamedTuple):
    """The bytes of the copy, (topic id, partition count) of its topics, and its decisions, to be compared."""

    data: bytes
    topics: list[tuple[bytes, int]]
    decisions: dict[str, list[tuple[object, ...]]]
    opening: int
    """The number of the opening that the copy is of."""


def copy_catalog(path: Path) -> CatalogCopy:
    """Copy the catalog at ``path``. Raises CorruptLog if it is missing or damaged, NewerFormat if it is later."""
    if not path.is_file():
        raise CorruptLog(f"catalog {path}: does not exist; name the data directory of a broker")
    try:
        with connect_read_only(path) as source, contextlib.closing(sqlite3.connect(":memory:")) as copy:
            GATE.require_known(CATALOG, source.execute("PRAGMA user_version").fetchone()[0], path)
            # in one step, so within one transaction of SQLite
            source.backup(copy)
            found = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise CorruptLog(f"catalog {path}: damaged: {' '.join(found.split())}; restore it from a backup")
            return CatalogCopy(
                copy.serialize(),
                copy.execute("SELECT uuid, partitions FROM topics ORDER BY uuid").fetchall(),
                _read_decisions(copy),
                copy.execute("PRAGMA application_id").fetchone()[0],
            )
    except sqlite3.DatabaseError as error:
        raise CorruptLog(f"catalog {path}: cannot be read: {error}") from None


def require_known_catalog(path: Path) -> None:
    """Raise NewerFormat for a catalog of a later Lading; accepts a missing or empty one."""
    if path.exists() and path.stat().st_size:
        with connect_read_only(path) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
        GATE.require_known(CATALOG, version, path)


def read_decisions(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return the decisions as they are now, to be compared with those of a copy."""
    with connect_read_only(path) as db:
        return _read_decisions(db)


def _read_decisions(db: sqlite3.Connection) -> dict[str, list[tuple[object, ...]]]:
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    return {table: db.execute(question).fetchall() for table, question in _DECISIONS.items() if table in there}


@contextlib.contextmanager
def connect_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Give a connection that changes no byte of the catalog and its log."""
    # without a log next to it, a read-only connection would create one
    how = "mode=ro" if wal_path(path).exists() else "immutable=1"
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=10)) as db:
        yield db
