"""Dead letter intents: messages whose state was set and that have yet to be copied to a dead letter topic.

An intent is written before the states that it announces, so that after a crash between the two, or before the last
copy, the next start completes it. ``confirmed`` says that the states are on disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from ..model.lazy_dataclass import lazy_dataclass
from .catalog import Catalog
from .catalog_schema import MARKING_SCHEMA, CatalogRecordKind

_COLUMNS: Final = "topic, partition, ranges, target, target_partition, confirmed, reason, marked_us"


@lazy_dataclass(frozen=True, slots=True)
class DeadLetterIntentRow:
    """Offset ``ranges`` of a partition of ``topic`` (16 bytes) that have yet to be copied to ``target``.

    ``id`` is never assigned twice; it is 0 in a new row.
    """

    id: int
    topic: bytes
    partition: int
    ranges: Sequence[tuple[int, int]]
    target: bytes
    target_partition: int
    confirmed: bool
    reason: str | None
    marked_us: int


class DeadLetterIntentStore:
    """The table of intents in a catalog. A failed write changes nothing and raises Refusal."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        with catalog.write(CatalogRecordKind.MARKING) as db:
            db.execute(MARKING_SCHEMA)

    def all(self) -> list[DeadLetterIntentRow]:
        """Return every intent, the oldest first."""
        return [
            DeadLetterIntentRow(
                ident,
                topic,
                partition,
                [(first, end) for first, end in json.loads(ranges)],
                target,
                target_partition,
                bool(confirmed),
                reason,
                marked_us,
            )
            for ident, topic, partition, ranges, target, target_partition, confirmed, reason, marked_us in (
                self._catalog.rows(f"SELECT id, {_COLUMNS} FROM markings ORDER BY id")
            )
        ]

    def add(self, rows: Iterable[DeadLetterIntentRow]) -> list[int]:
        """Add intents, all or none, and return their ids; on disk on return."""
        with self._catalog.write(CatalogRecordKind.MARKING) as db:
            return [
                int(
                    db.execute(
                        f"INSERT INTO markings ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                        (
                            row.topic, row.partition, json.dumps(list(row.ranges)), row.target, row.target_partition,
                            row.confirmed, row.reason, row.marked_us,
                        ),
                    ).lastrowid
                    or 0
                )
                for row in rows
            ]  # fmt: skip

    def confirm(self, ids: Iterable[int], *, firm: bool) -> None:
        """Record that their states are on disk; with ``firm`` the record itself is on disk on return."""
        with self._catalog.write(CatalogRecordKind.MARKING if firm else CatalogRecordKind.MARKING_PROGRESS) as db:
            db.executemany("UPDATE markings SET confirmed = 1 WHERE id = ?", [(ident,) for ident in ids])

    def advance(self, row: DeadLetterIntentRow) -> None:
        """Update an intent some of whose messages are done, or whose target has changed."""
        with self._catalog.write(CatalogRecordKind.MARKING) as db:
            db.execute(
                "UPDATE markings SET ranges = ?, target = ?, target_partition = ? WHERE id = ?",
                (json.dumps(list(row.ranges)), row.target, row.target_partition, row.id),
            )

    def remove(self, ids: Iterable[int], *, firm: bool) -> None:
        """Remove intents that are done or void. Unless ``firm``, a power cut may bring them back."""
        with self._catalog.write(CatalogRecordKind.MARKING if firm else CatalogRecordKind.MARKING_PROGRESS) as db:
            db.executemany("DELETE FROM markings WHERE id = ?", [(ident,) for ident in ids])
