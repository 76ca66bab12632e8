"""The catalog's tables of producers: assigned ids, transactional ids, and positions of open transactions.

A decision and the positions that it commits are one SQLite transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Final

from ..model.lazy_dataclass import lazy_dataclass
from .catalog import Catalog
from .catalog_rows import PositionRow
from .catalog_schema import PRODUCER_SCHEMA, PUT_POSITION, CatalogRecordKind

_POSITION: Final = "protocol, topic, partition, consumer, offset, epoch, extra, updated_us"


@lazy_dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer with a transactional id; ``state`` is a ProducerState, ``deadline_us`` that of an open transaction."""

    name: str
    id: int
    epoch: int
    state: str
    timeout_us: int
    deadline_us: int
    updated_us: int


class ProducerTable:
    """Producers in the catalog; except for ``wait``, changes are on disk on return."""

    def __init__(self, catalog: Catalog) -> None:
        """Create the tables if an older Lading wrote the catalog."""
        self._catalog = catalog
        with catalog.write(CatalogRecordKind.PRODUCER) as db:
            for statement in PRODUCER_SCHEMA:
                db.execute(statement)

    def take_ids(self, count: int) -> int:
        """Return the first of ``count`` ids that were never assigned; those that the process does not use are gaps."""
        with self._catalog.write(CatalogRecordKind.PRODUCER) as db:
            row = db.execute(
                "INSERT INTO producer_ids VALUES (1, ?) ON CONFLICT DO UPDATE SET next = next + ? RETURNING next",
                (count, count),
            ).fetchone()
        return int(row[0]) - count

    def skip_ids(self, highest: int) -> None:
        """Never assign ids up to ``highest`` again: after the loss of a catalog, the new one does not know them."""
        known = self._catalog.rows("SELECT next FROM producer_ids")
        if known and known[0][0] > highest:
            return
        with self._catalog.write(CatalogRecordKind.PRODUCER) as db:
            db.execute("INSERT OR REPLACE INTO producer_ids VALUES (1, ?)", (highest + 1,))

    def rows(self) -> list[ProducerRow]:
        """Return all producers with a transactional id."""
        question = "SELECT name, id, epoch, state, timeout_us, deadline_us, updated_us FROM producers"
        return [ProducerRow(*row) for row in self._catalog.rows(question)]

    def waiting(self) -> list[tuple[str, PositionRow]]:
        """Return the positions that wait for a decision, with the transactional id of their producer."""
        question = f"SELECT producer, {_POSITION} FROM waiting_positions"
        return [(name, PositionRow(*row)) for name, *row in self._catalog.rows(question)]

    def put(self, row: ProducerRow) -> None:
        """Store the present row of a producer."""
        with self._catalog.write(CatalogRecordKind.PRODUCER) as db:
            self._put(db, row)

    def wait(self, name: str, rows: Iterable[PositionRow]) -> None:
        """Store positions that apply if the open transaction of ``name`` commits; durable with the next sync."""
        with self._catalog.write(CatalogRecordKind.WAITING_POSITION) as db:
            db.executemany(
                f"INSERT OR REPLACE INTO waiting_positions (producer, {_POSITION}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [(name, *row) for row in rows],
            )

    def decide(self, row: ProducerRow, positions: Sequence[PositionRow]) -> None:
        """Commit (with the ``positions`` that then apply) or abort (with none); waiting positions are deleted."""
        with self._catalog.write(CatalogRecordKind.PRODUCER, CatalogRecordKind.POSITION) as db:
            self._put(db, row)
            db.execute("DELETE FROM waiting_positions WHERE producer = ?", (row.name,))
            db.executemany(PUT_POSITION, positions)

    def remove(self, names: Iterable[str]) -> None:
        """Delete producers."""
        with self._catalog.write(CatalogRecordKind.PRODUCER) as db:
            db.executemany("DELETE FROM producers WHERE name = ?", [(name,) for name in names])

    def _put(self, db: sqlite3.Connection, row: ProducerRow) -> None:
        dates = self._catalog.dates
        times = (row.timeout_us, dates.of(row.deadline_us), dates.of(row.updated_us))
        db.execute(
            "INSERT OR REPLACE INTO producers VALUES (?, ?, ?, ?, ?, ?, ?)",
            (row.name, row.id, row.epoch, row.state, *times),
        )
