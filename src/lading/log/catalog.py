"""The catalog: one SQLite file that lasts, with everything about a data directory that is no message.

Streams, topics, groups, positions, transactions and commit keys. Who writes what how firmly is in ``SYNC_LEVEL``
(docs/reference/catalog): FULL is on disk when the call returns; NORMAL survives the end of the process at once
and a power cut after the next checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, Final

from ..clock import Dates
from ..model.errors import CorruptLog, Reason, Refusal
from .catalog_rows import GroupRow, PositionRow, StreamRow, TopicRow, TransactionRow
from .catalog_state import CatalogOpening, wal_path
from .catalog_wal import CatalogWal
from .disk import Disk, RealDisk, touch
from .formats import CATALOG, GATE

LOG: Final = logging.getLogger("lading.log")
FILE_NAME: Final = "catalog.sqlite"
CHECKPOINT_COMMITS: Final = 500
"""SQLite's log is moved to the file after so many writes."""
REPAIR_US: Final = 1_000_000
"""While the catalog cannot be written it is tried so often whether it can again."""


class Level(Enum):
    """SQLite's synchronous levels that the catalog uses, in write-ahead-log mode."""

    NORMAL = "NORMAL"
    FULL = "FULL"


class CatalogRecordKind(Enum):
    """What the catalog holds."""

    STREAM = "streams"
    TOPIC = "topics"
    GROUP = "groups"
    COORDINATED_GROUP = "coordinated_groups"
    POSITION = "positions"
    WAITING_POSITION = "waiting_positions"
    TRANSACTION = "transactions"
    COMMIT_KEY = "commit_keys"
    WRITER = "writer_partitions"
    MARKING = "markings"
    MARKING_PROGRESS = "markings_done"
    PRODUCER = "producers"


SYNC_LEVEL: Final[Mapping[CatalogRecordKind, Level]] = {
    CatalogRecordKind.STREAM: Level.FULL,
    CatalogRecordKind.TOPIC: Level.FULL,
    CatalogRecordKind.GROUP: Level.FULL,
    CatalogRecordKind.COORDINATED_GROUP: Level.NORMAL,
    CatalogRecordKind.POSITION: Level.NORMAL,
    CatalogRecordKind.WAITING_POSITION: Level.NORMAL,
    CatalogRecordKind.TRANSACTION: Level.FULL,
    CatalogRecordKind.COMMIT_KEY: Level.FULL,
    CatalogRecordKind.WRITER: Level.FULL,
    CatalogRecordKind.MARKING: Level.FULL,
    CatalogRecordKind.MARKING_PROGRESS: Level.NORMAL,
    CatalogRecordKind.PRODUCER: Level.FULL,
}
"""How firmly each kind is written; the table of docs/reference/catalog."""

_SCHEMA: Final = """
CREATE TABLE streams (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, created_us INTEGER NOT NULL
);
CREATE TABLE topics (
    uuid BLOB PRIMARY KEY, stream_id INTEGER NOT NULL REFERENCES streams(id), id INTEGER NOT NULL,
    name TEXT NOT NULL, created_us INTEGER NOT NULL, partitions INTEGER NOT NULL, next_epoch INTEGER NOT NULL,
    settings TEXT NOT NULL, UNIQUE (stream_id, id), UNIQUE (stream_id, name)
) WITHOUT ROWID;
CREATE TABLE groups (
    protocol TEXT NOT NULL, scope BLOB NOT NULL, name TEXT NOT NULL, generation INTEGER NOT NULL,
    PRIMARY KEY (protocol, scope, name)
) WITHOUT ROWID;
CREATE TABLE positions (
    protocol TEXT NOT NULL, topic BLOB NOT NULL, partition INTEGER NOT NULL, consumer TEXT NOT NULL,
    offset INTEGER NOT NULL, epoch INTEGER, extra BLOB, updated_us INTEGER NOT NULL,
    PRIMARY KEY (protocol, topic, partition, consumer)
) WITHOUT ROWID;
CREATE TABLE writer_partitions (
    topic BLOB NOT NULL, partition INTEGER NOT NULL, PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE transactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, state TEXT NOT NULL,
    deadline_us INTEGER NOT NULL, settled_us INTEGER
);
CREATE INDEX transactions_by_state ON transactions (state, scope);
CREATE TABLE commit_keys (
    key TEXT PRIMARY KEY, winners TEXT NOT NULL, committed_us INTEGER NOT NULL
) WITHOUT ROWID;
"""
PUT_POSITION: Final = (
    "INSERT INTO positions VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "offset = excluded.offset, epoch = excluded.epoch, extra = excluded.extra, updated_us = excluded.updated_us"
)


class Catalog:
    """The catalog of one data directory. Not thread-safe: one thread of the owning process uses it.

    A write that fails changes nothing and is a Refusal: DISK_FULL where space is missing, else READ_ONLY. After an
    I/O error the file is opened anew before the next write: a mended disk needs no restart.
    """

    def __init__(self, path: Path, disk: Disk | None = None, dates: Dates | None = None) -> None:
        """Opens or creates the file at ``path``; CorruptLog where it is no catalog or of a later version.

        ``disk`` is where its log is synced. Times are kept as ``dates`` of what callers give.
        """
        self.path = path
        self.created = False
        """There was nothing in it: either a new data directory, or its catalog is lost."""
        self.dates = dates or Dates()
        self.problem: str | None = None
        """Why the last write failed; None from the next one on that does not."""
        self.wal = CatalogWal(path, disk or RealDisk(), self._wal_failed)
        """For a commit that is to make durable what was written at level NORMAL."""
        self._checkpoint: threading.Thread | None = None
        self._commits = 0
        self._is_broken = False
        """The connection, or what SQLite believes to be on disk, cannot be relied on."""
        self._repair_due_us = 0
        self._opening = CatalogOpening(path)
        try:
            self._require_known_version()
            # SQLite gives its log the mode that this file has
            touch(path)
            self._db = sqlite3.connect(path, isolation_level=None)
            try:
                self._open()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.OperationalError as error:
            raise CorruptLog(f"{path} cannot be opened as a catalog: {error}") from None
        except sqlite3.DatabaseError as error:
            raise self._damaged(str(error)) from None

    def _open(self) -> None:
        self._set_up()
        found = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if found != "ok":
            raise self._damaged(" ".join(found.split()))
        self._migrate()
        self._opening.begin(self._db)

    def _set_up(self) -> None:
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA foreign_keys = ON")
        self._db.execute("PRAGMA wal_autocheckpoint = 0")
        self._level: Level | None = None

    def _damaged(self, problem: str) -> CorruptLog:
        return CorruptLog(
            f"{self.path} cannot be opened as a catalog: {problem}; put a whole copy in its place, or move it away "
            "with its -wal file: topics are then taken in from their directories, without groups and positions"
        )

    @property
    def notes(self) -> list[str]:
        """Sentences about what is lost of the catalog that was used last."""
        return self._opening.notes

    def _require_known_version(self) -> None:
        """Ask on a connection that changes nothing: a file of a later Lading keeps every byte, its log too."""
        if not self.path.exists() or not self.path.stat().st_size:
            return
        # without a log beside it a read-only connection would begin one
        how = "mode=ro" if wal_path(self.path).exists() else "immutable=1"
        with contextlib.closing(sqlite3.connect(f"{self.path.absolute().as_uri()}?{how}", uri=True)) as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
        GATE.require_known(CATALOG, version, self.path)

    def _reopen(self) -> None:
        """Move what SQLite's log holds into the file by a new connection, which takes the place of the old one."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self.wal.reopen()
        former, self._db = self._db, sqlite3.connect(self.path, isolation_level=None)
        with contextlib.suppress(sqlite3.Error):
            former.close()
        self._set_up()
        # where it cannot all be moved this connection serves too, after the next attempt
        busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self._is_broken = bool(busy)

    def repair_when_due(self, now_us: int) -> None:
        """Try whether a catalog that could not be written can be again."""
        if self.problem is not None and not 0 < self._repair_due_us - now_us <= REPAIR_US:
            self._repair_due_us = now_us + REPAIR_US
            with self._transaction(Level.FULL) as db:
                # the smallest write there is: what it says already
                version = db.execute("PRAGMA user_version").fetchone()[0]
                db.execute(f"PRAGMA user_version = {version}")
            LOG.warning("the catalog %s can be written again", self.path)

    def _wal_failed(self, error: OSError) -> None:
        self._is_broken = True
        self._set_problem(f"the catalog {self.path.name} could not be synced: {error.strerror or error}")

    def _set_problem(self, problem: str) -> None:
        if self.problem is None:
            LOG.error("%s; it is tried again", problem)
        self.problem = problem

    def _migrate(self) -> None:
        if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
            self.created = True
            with self._transaction(Level.FULL):
                for statement in _SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {CATALOG.written}")

    @contextlib.contextmanager
    def _transaction(self, level: Level) -> Iterator[sqlite3.Connection]:
        try:
            if self._is_broken:
                self._reopen()
            if self._level is not level:
                self._db.execute(f"PRAGMA synchronous = {level.value}")
                self._level = level
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
            self._commits += 1
            self.problem = None
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
                raise self._refusal(error) from None
            raise

    def _roll_back(self) -> None:
        try:
            # after some errors SQLite has rolled back by itself
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            # left open it would refuse every transaction after it
            self._is_broken = True

    def _refusal(self, error: sqlite3.DatabaseError) -> Refusal:
        # an error that Python found itself, such as a closed connection, has no code
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        self._is_broken |= code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
        problem = f"the catalog {self.path.name} cannot be written: {error}"
        self._set_problem(problem)
        return Refusal(Reason.DISK_FULL if code == sqlite3.SQLITE_FULL else Reason.READ_ONLY, problem)

    def write(self, *kinds: CatalogRecordKind) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A transaction at the level of the firmest of these kinds, for tables that have a page of their own."""
        firm = any(SYNC_LEVEL[kind] is Level.FULL for kind in kinds)
        return self._transaction(Level.FULL if firm else Level.NORMAL)

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """The answer to a SELECT, likewise."""
        return self._db.execute(question).fetchall()

    # -- streams and topics

    def streams(self) -> list[StreamRow]:
        """All streams by id."""
        return [StreamRow(*row) for row in self._db.execute("SELECT id, name, created_us FROM streams ORDER BY id")]

    def add_stream(self, row: StreamRow) -> None:
        """A new stream; its id and name are free (the caller has checked)."""
        with self.write(CatalogRecordKind.STREAM) as db:
            db.execute("INSERT INTO streams VALUES (?, ?, ?)", (row.id, row.name, row.created_us))

    def remove_stream(self, stream_id: int) -> None:
        """A stream without topics."""
        with self.write(CatalogRecordKind.STREAM) as db:
            db.execute("DELETE FROM streams WHERE id = ?", (stream_id,))

    def topics(self) -> list[TopicRow]:
        """All topics by stream and id."""
        rows = self._db.execute(
            "SELECT uuid, stream_id, id, name, created_us, partitions, next_epoch, settings FROM topics "
            "ORDER BY stream_id, id"
        )
        return [
            TopicRow(uuid, stream_id, ident, name, created_us, partitions, next_epoch, json.loads(settings))
            for uuid, stream_id, ident, name, created_us, partitions, next_epoch, settings in rows
        ]

    def add_topic(self, row: TopicRow) -> None:
        """A new topic of an existing stream."""
        with self.write(CatalogRecordKind.TOPIC) as db:
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
        """The topic with its groups and positions."""
        with self.write(CatalogRecordKind.TOPIC) as db:
            db.execute("DELETE FROM topics WHERE uuid = ?", (uuid,))
            db.execute("DELETE FROM groups WHERE scope = ?", (uuid,))
            db.execute("DELETE FROM positions WHERE topic = ?", (uuid,))
            db.execute("DELETE FROM writer_partitions WHERE topic = ?", (uuid,))

    def set_settings(self, uuid: bytes, settings: Mapping[str, Any]) -> None:
        """Other settings of a topic."""
        with self.write(CatalogRecordKind.TOPIC) as db:
            db.execute("UPDATE topics SET settings = ? WHERE uuid = ?", (json.dumps(dict(settings)), uuid))

    def resize_topic(self, uuid: bytes, partitions: int, next_epoch: int) -> None:
        """A new partition count; positions of partitions that are no more go away."""
        with self.write(CatalogRecordKind.TOPIC) as db:
            db.execute(
                "UPDATE topics SET partitions = ?, next_epoch = ? WHERE uuid = ?", (partitions, next_epoch, uuid)
            )
            db.execute("DELETE FROM positions WHERE topic = ? AND partition >= ?", (uuid, partitions))
            db.execute("DELETE FROM writer_partitions WHERE topic = ? AND partition >= ?", (uuid, partitions))

    # -- groups and positions

    def groups(self) -> list[GroupRow]:
        """All groups of all protocols."""
        return [GroupRow(*row) for row in self._db.execute("SELECT protocol, scope, name, generation FROM groups")]

    def put_group(self, row: GroupRow, kind: CatalogRecordKind = CatalogRecordKind.GROUP) -> None:
        """A new group, or a new generation of it."""
        with self.write(kind) as db:
            db.execute(
                "INSERT INTO groups VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET generation = excluded.generation",
                (row.protocol, row.scope, row.name, row.generation),
            )

    def remove_group(self, protocol: str, scope: bytes, name: str) -> None:
        """The group without its positions (those go by ``remove_positions``)."""
        with self.write(CatalogRecordKind.GROUP) as db:
            db.execute("DELETE FROM groups WHERE protocol = ? AND scope = ? AND name = ?", (protocol, scope, name))

    def positions(self) -> list[PositionRow]:
        """All positions of all protocols."""
        rows = self._db.execute(
            "SELECT protocol, topic, partition, consumer, offset, epoch, extra, updated_us FROM positions"
        )
        return [PositionRow(*row) for row in rows]

    def put_positions(self, rows: Iterable[PositionRow]) -> None:
        """Many positions in one transaction, each over the one before."""
        with self.write(CatalogRecordKind.POSITION) as db:
            db.executemany(
                PUT_POSITION,
                [
                    (r.protocol, r.topic, r.partition, r.consumer, r.offset, r.epoch, r.extra, r.updated_us)
                    for r in rows
                ],
            )

    def remove_positions(self, protocol: str, topic: bytes, consumer: str, partition: int | None = None) -> None:
        """Every position of one consumer or group in one topic; only that in ``partition`` where it is given."""
        with self.write(CatalogRecordKind.POSITION) as db:
            db.execute(
                "DELETE FROM positions WHERE protocol = ?1 AND topic = ?2 AND consumer = ?3 "
                "AND partition = ifnull(?4, partition)",
                (protocol, topic, consumer, partition),
            )

    # -- writers and transactions

    def writer_partitions(self) -> set[tuple[bytes, int]]:
        """(topic uuid, partition number) where native writers wrote in sequence or in a transaction."""
        return set(self._db.execute("SELECT topic, partition FROM writer_partitions"))

    def add_writer_partition(self, topic: bytes, partition: int) -> None:
        """Note it before the first such block, so that the others need not be searched at start."""
        with self.write(CatalogRecordKind.WRITER) as db:
            db.execute("INSERT OR IGNORE INTO writer_partitions VALUES (?, ?)", (topic, partition))

    def add_writer_partitions(self, topic: bytes, count: int) -> None:
        """Note it for all partitions of a topic of which nothing is known."""
        with self.write(CatalogRecordKind.WRITER) as db:
            rows = [(topic, number) for number in range(count)]
            db.executemany("INSERT OR IGNORE INTO writer_partitions VALUES (?, ?)", rows)

    def skip_transaction_ids(self, highest: int) -> None:
        """Give out no transaction id up to ``highest`` any more."""
        with self.write(CatalogRecordKind.TRANSACTION) as db:
            db.execute("DELETE FROM sqlite_sequence WHERE name = 'transactions' AND seq < ?", (highest,))
            db.execute(
                "INSERT INTO sqlite_sequence (name, seq) SELECT 'transactions', ? "
                "WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'transactions')",
                (highest,),
            )

    def begin(self, scope: str, deadline_us: int) -> int:
        """A new open transaction; its id was never given before."""
        with self.write(CatalogRecordKind.TRANSACTION) as db:
            cursor = db.execute(
                "INSERT INTO transactions (scope, state, deadline_us) VALUES (?, 'open', ?)",
                (scope, self.dates.of(deadline_us)),
            )
            return int(cursor.lastrowid or 0)

    def transactions(self) -> list[TransactionRow]:
        """All transactions that are remembered."""
        return [
            TransactionRow(*row) for row in self._db.execute("SELECT id, scope, state, deadline_us FROM transactions")
        ]

    def commit_key(self, key: str) -> tuple[int, ...] | None:
        """The transactions that were committed under ``key``; None where the key is new."""
        try:
            row = self._db.execute("SELECT winners FROM commit_keys WHERE key = ?", (key,)).fetchone()
        except sqlite3.DatabaseError as error:
            raise self._refusal(error) from None
        return None if row is None else tuple(json.loads(row[0]))

    def settle(self, key: str | None, committed: Iterable[int], aborted: Iterable[int], now_us: int) -> None:
        """Key, winners and losers in one transaction: all of it or nothing is remembered."""
        winners = sorted(committed)
        now_us = self.dates.of(now_us)
        with self.write(CatalogRecordKind.TRANSACTION, CatalogRecordKind.COMMIT_KEY) as db:
            if key is not None:
                db.execute("INSERT INTO commit_keys VALUES (?, ?, ?)", (key, json.dumps(winners), now_us))
            settle = "UPDATE transactions SET state = ?, settled_us = ? WHERE id = ?"
            db.executemany(settle, [("committed", now_us, one) for one in winners])
            db.executemany(settle, [("aborted", now_us, one) for one in aborted])

    def forget_transactions(self, before_us: int) -> None:
        """Drop transactions and keys settled before ``before_us``; no partition may still need to ask for them."""
        before_us = self.dates.of(before_us)
        with self.write(CatalogRecordKind.TRANSACTION, CatalogRecordKind.COMMIT_KEY) as db:
            db.execute("DELETE FROM transactions WHERE settled_us < ?", (before_us,))
            db.execute("DELETE FROM commit_keys WHERE committed_us < ?", (before_us,))

    def checkpoint_when_due(self) -> None:
        """Move what was written from SQLite's log to the file, in another thread, once it is worth it.

        This syncs, which takes milliseconds that no event loop has; writers do not wait for it.
        """
        running = self._checkpoint is not None and self._checkpoint.is_alive()
        if self._commits >= CHECKPOINT_COMMITS and not running:
            self._commits = 0
            self._checkpoint = threading.Thread(target=_checkpoint, args=(self.path,), name="lading-checkpoint")
            self._checkpoint.start()

    def close(self) -> None:
        """Checkpoint and close; what was written is in the one file then."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self.wal.reopen()
        # said first: SQLite removes its log when it closes, and a kill in between must not look like a lost one
        self._opening.end()
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.close()


def _checkpoint(path: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            # PASSIVE keeps no writer waiting; what it leaves the next one moves
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        LOG.warning("the catalog %s: moving its log into the file failed, it is tried again: %s", path, error)
