"""The catalog: one SQLite file with everything about a data directory except messages.

Streams, topics, groups, positions, transactions and commit keys. ``SYNC_LEVEL`` says how durable each kind is
(docs/reference/catalog): FULL is on disk when the call returns; NORMAL survives the end of the process at once,
and a power cut after the next checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ..runtime.clock import Dates
from .catalog_database import CatalogDatabase
from .catalog_rows import GroupRow, PositionRow, StreamRow, TopicRow, TransactionRow
from .catalog_schema import PUT_POSITION, CatalogRecordKind
from .disk import Disk

FILE_NAME: Final = "catalog.sqlite"


class Catalog(CatalogDatabase):
    """The catalog of one data directory, table by table."""

    def __init__(self, path: Path, disk: Disk | None = None, dates: Dates | None = None) -> None:
        """See ``CatalogDatabase``."""
        super().__init__(path, disk, dates)
        self._leaving: dict[bytes, None] = {}
        """Topics whose removal was refused: others may have their names and ids by now."""

    # -- streams and topics

    @contextlib.contextmanager
    def _change_topology(self, *kinds: CatalogRecordKind) -> Iterator[sqlite3.Connection]:
        """Open a transaction for streams and topics; first in it go the topics that a refused one has left."""
        with self.write(*kinds) as db:
            for uuid in self._leaving:
                _remove_topic(db, uuid)
            yield db
        self._leaving.clear()

    def streams(self) -> list[StreamRow]:
        """Return all streams by id."""
        return [StreamRow(*row) for row in self._db.execute("SELECT id, name, created_us FROM streams ORDER BY id")]

    def add_stream(self, row: StreamRow) -> None:
        """Add a stream. The caller has checked that id and name are free."""
        with self._change_topology(CatalogRecordKind.STREAM) as db:
            db.execute("INSERT INTO streams VALUES (?, ?, ?)", (row.id, row.name, row.created_us))

    def remove_stream(self, stream_id: int) -> None:
        """Remove a stream, which has no topics."""
        with self._change_topology(CatalogRecordKind.STREAM) as db:
            db.execute("DELETE FROM streams WHERE id = ?", (stream_id,))

    def rename_stream(self, stream_id: int, name: str, settings: Mapping[bytes, Mapping[str, Any]]) -> None:
        """Give a stream another name, which is free, and topics that refer to its topics other ``settings``."""
        with self._change_topology(CatalogRecordKind.STREAM, CatalogRecordKind.TOPIC) as db:
            db.execute("UPDATE streams SET name = ? WHERE id = ?", (name, stream_id))
            _set_settings(db, settings)

    def topics(self) -> list[TopicRow]:
        """Return all topics by stream and id."""
        rows = self._db.execute(
            "SELECT uuid, stream_id, id, name, created_us, partitions, next_epoch, settings FROM topics "
            "ORDER BY stream_id, id"
        )
        return [
            TopicRow(uuid, stream_id, ident, name, created_us, partitions, next_epoch, json.loads(settings))
            for uuid, stream_id, ident, name, created_us, partitions, next_epoch, settings in rows
        ]

    def add_topic(self, row: TopicRow) -> None:
        """Add a topic to an existing stream."""
        with self._change_topology(CatalogRecordKind.TOPIC) as db:
            db.execute(
                "INSERT INTO topics (uuid, stream_id, id, name, created_us, partitions, next_epoch, settings) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    row.uuid,
                    row.stream_id,
                    row.id,
                    row.name,
                    row.created_us,
                    row.partitions,
                    row.next_epoch,
                    json.dumps(row.settings),
                ),
            )

    def remove_topic(self, uuid: bytes) -> None:
        """Remove a topic, its groups and positions; the next change of topics does it if this one is refused."""
        # a deletion tries again once its messages are gone from the disk
        self._leaving[uuid] = None
        with self._change_topology(CatalogRecordKind.TOPIC):
            pass

    def set_settings(self, uuid: bytes, settings: Mapping[str, Any]) -> None:
        """Replace the settings of a topic."""
        with self._change_topology(CatalogRecordKind.TOPIC) as db:
            _set_settings(db, {uuid: settings})

    def rename_topic(self, uuid: bytes, name: str, settings: Mapping[bytes, Mapping[str, Any]]) -> None:
        """Give a topic another name, free in its stream, and topics that refer to it other ``settings``."""
        with self._change_topology(CatalogRecordKind.TOPIC) as db:
            db.execute("UPDATE topics SET name = ? WHERE uuid = ?", (name, uuid))
            _set_settings(db, settings)

    def resize_topic(self, uuid: bytes, partitions: int, next_epoch: int) -> None:
        """Set the number of partitions; positions of partitions that no longer exist are deleted."""
        with self._change_topology(CatalogRecordKind.TOPIC) as db:
            db.execute(
                "UPDATE topics SET partitions = ?, next_epoch = ? WHERE uuid = ?", (partitions, next_epoch, uuid)
            )
            db.execute("DELETE FROM positions WHERE topic = ? AND partition >= ?", (uuid, partitions))
            db.execute("DELETE FROM writer_partitions WHERE topic = ? AND partition >= ?", (uuid, partitions))

    # -- groups and positions

    def groups(self, protocol: str | None = None) -> list[GroupRow]:
        """Return all groups of a protocol, or of all."""
        rows = self._db.execute(
            "SELECT protocol, scope, name, generation FROM groups WHERE protocol = ifnull(?, protocol)", (protocol,)
        )
        return list(map(GroupRow._make, rows))

    def put_group(self, row: GroupRow, kind: CatalogRecordKind = CatalogRecordKind.GROUP) -> None:
        """Add a group, or a new generation of it."""
        with self.write(kind) as db:
            db.execute(
                "INSERT INTO groups VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET generation = excluded.generation",
                (row.protocol, row.scope, row.name, row.generation),
            )

    def remove_group(self, protocol: str, scope: bytes, name: str) -> None:
        """Remove a group, but not its positions (see ``remove_positions``)."""
        with self.write(CatalogRecordKind.GROUP) as db:
            db.execute("DELETE FROM groups WHERE protocol = ? AND scope = ? AND name = ?", (protocol, scope, name))

    def positions(self, protocol: str | None = None) -> list[PositionRow]:
        """Return all positions of a protocol, or of all."""
        rows = self._db.execute(
            "SELECT protocol, topic, partition, consumer, offset, epoch, extra, updated_us FROM positions "
            "WHERE protocol = ifnull(?, protocol)",
            (protocol,),
        )
        return list(map(PositionRow._make, rows))

    def put_positions(self, rows: Iterable[PositionRow]) -> None:
        """Store many positions in one transaction, each replacing the previous one."""
        with self.write(CatalogRecordKind.POSITION) as db:
            # the fields of a row are the columns, in their order
            db.executemany(PUT_POSITION, rows)

    def remove_positions(self, protocol: str, topic: bytes, consumer: str, partition: int | None = None) -> None:
        """Remove the positions of one consumer or group in one topic, or only that of ``partition`` if given."""
        with self.write(CatalogRecordKind.POSITION) as db:
            db.execute(
                "DELETE FROM positions WHERE protocol = ?1 AND topic = ?2 AND consumer = ?3 "
                "AND partition = ifnull(?4, partition)",
                (protocol, topic, consumer, partition),
            )

    # -- writers and transactions

    def writer_partitions(self) -> set[tuple[bytes, int]]:
        """Return (topic uuid, partition number) of partitions with sequenced or transactional native writes."""
        return set(self._db.execute("SELECT topic, partition FROM writer_partitions"))

    def add_writer_partition(self, topic: bytes, partition: int) -> None:
        """Record the partition before its first such block, so that others need not be searched at start."""
        with self.write(CatalogRecordKind.WRITER) as db:
            db.execute("INSERT OR IGNORE INTO writer_partitions VALUES (?, ?)", (topic, partition))

    def add_writer_partitions(self, topic: bytes, count: int) -> None:
        """Record all partitions of a topic, if it is unknown which have such writes."""
        with self.write(CatalogRecordKind.WRITER) as db:
            rows = [(topic, number) for number in range(count)]
            db.executemany("INSERT OR IGNORE INTO writer_partitions VALUES (?, ?)", rows)

    def skip_transaction_ids(self, highest: int) -> None:
        """Never assign transaction ids up to ``highest`` again."""
        with self.write(CatalogRecordKind.TRANSACTION) as db:
            db.execute("DELETE FROM sqlite_sequence WHERE name = 'transactions' AND seq < ?", (highest,))
            db.execute(
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'transactions', ? "
                "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'transactions')",
                (highest,),
            )

    def begin(self, scope: str, deadline_us: int) -> int:
        """Begin a transaction; return its id, which was never assigned before."""
        with self.write(CatalogRecordKind.TRANSACTION) as db:
            cursor = db.execute(
                "INSERT INTO transactions (scope, state, deadline_us) VALUES (?, 'open', ?)",
                (scope, self.dates.of(deadline_us)),
            )
            return int(cursor.lastrowid or 0)

    def transactions(self) -> list[TransactionRow]:
        """Return all transactions that are stored."""
        return [
            TransactionRow(*row) for row in self._db.execute("SELECT id, scope, state, deadline_us FROM transactions")
        ]

    def commit_key(self, key: str) -> tuple[int, ...] | None:
        """Return the transactions that were committed under ``key``, or None for a new key."""
        try:
            row = self._db.execute("SELECT winners FROM commit_keys WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from None
        return None if row is None else tuple(json.loads(row[0]))

    def settle(self, key: str | None, committed: Iterable[int], aborted: Iterable[int], now_us: int) -> None:
        """Store a key with its committed and aborted transactions, all or nothing."""
        winners = sorted(committed)
        now_us = self.dates.of(now_us)
        with self.write(CatalogRecordKind.TRANSACTION, CatalogRecordKind.COMMIT_KEY) as db:
            if key is not None:
                db.execute("INSERT INTO commit_keys VALUES (?, ?, ?)", (key, json.dumps(winners), now_us))
            settle = "UPDATE transactions SET state = ?, settled_us = ? WHERE id = ?"
            db.executemany(settle, [("committed", now_us, one) for one in winners])
            db.executemany(settle, [("aborted", now_us, one) for one in aborted])

    def forget_transactions(self, before_us: int) -> None:
        """Delete transactions and keys settled before ``before_us``, which no partition may need any more."""
        before_us = self.dates.of(before_us)
        with self.write(CatalogRecordKind.TRANSACTION, CatalogRecordKind.COMMIT_KEY) as db:
            db.execute("DELETE FROM transactions WHERE settled_us < ?", (before_us,))
            db.execute("DELETE FROM commit_keys WHERE committed_us < ?", (before_us,))


def _remove_topic(db: sqlite3.Connection, uuid: bytes) -> None:
    db.execute("DELETE FROM topics WHERE uuid = ?", (uuid,))
    db.execute("DELETE FROM groups WHERE scope = ?", (uuid,))
    db.execute("DELETE FROM positions WHERE topic = ?", (uuid,))
    db.execute("DELETE FROM writer_partitions WHERE topic = ?", (uuid,))


def _set_settings(db: sqlite3.Connection, settings: Mapping[bytes, Mapping[str, Any]]) -> None:
    rows = [(json.dumps(dict(one)), uuid) for uuid, one in settings.items()]
    db.executemany("UPDATE topics SET settings = ? WHERE uuid = ?", rows)
