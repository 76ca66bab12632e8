"""The catalog: one SQLite file with everything about a data directory except messages.

Streams, topics, groups, positions, transactions and commit keys. ``SYNC_LEVEL`` says how durable each kind is
(docs/reference/catalog): FULL is on disk when the call returns; NORMAL survives the end of the process at once,
and a power cut after the next checkpoint.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ..model.errors import CorruptLog, Reason, Refusal
from ..runtime.clock import Dates
from .catalog_check import find_damage
from .catalog_copy import require_known_catalog
from .catalog_rows import GroupRow, PositionRow, StreamRow, TopicRow, TransactionRow
from .catalog_schema import PUT_POSITION, SCHEMA, SYNC_LEVEL, CatalogRecordKind, Level
from .catalog_state import CatalogOpening
from .catalog_wal import CatalogWal
from .disk import Disk, RealDisk, touch
from .formats import CATALOG, GATE

FILE_NAME: Final = "catalog.sqlite"
LOG: Final = logging.getLogger("lading.log")
CHECKPOINT_COMMITS: Final = 500
"""After how many writes SQLite's write-ahead log is checkpointed."""
REPAIR_US: Final = 1_000_000
"""The interval of retries while the catalog cannot be written."""
_NO_SPACE: Final = frozenset({sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN})
"""SQLite's errors if its log, or the index of it that connections share, has no space for its file."""


class Catalog:
    """The catalog of one data directory: transactions on its SQLite file, and its tables.

    Not thread-safe: one thread of the owning process uses it. A failed write changes nothing and raises Refusal:
    DISK_FULL without space, else READ_ONLY. After an I/O error the file is reopened before the next write, so that a
    repaired disk needs no restart.
    """

    def __init__(self, path: Path, disk: Disk | None = None, dates: Dates | None = None) -> None:
        """Open or create the file at ``path``. Raises CorruptLog if it is not a catalog or has a later version.

        ``disk`` syncs its write-ahead log. Times are stored as the ``dates`` of the times that callers pass.
        """
        self._leaving: dict[bytes, None] = {}
        """Topics whose removal was refused: others may have their names and ids by now."""
        self.path = path
        self.created = False
        """Whether the file was empty: either the data directory is new, or its catalog is lost."""
        self.dates = dates or Dates()
        self._stopped: str | None = None
        """Why nothing is written any more."""
        self.problem: str | None = None
        """Why the last write failed; None after one that succeeded."""
        self._disk = disk or RealDisk()
        self.wal = CatalogWal(path, self._disk, self._wal_failed)
        """The write-ahead log, for commits that make durable what was written at level NORMAL."""
        self._checkpoint: threading.Thread | None = None
        self._commits = 0
        self._is_sync_deferred = False
        self._is_broken = False
        """Whether the connection, or what SQLite assumes to be on disk, is unreliable."""
        self._repair_due_us = 0
        self._level: Level | None = None
        self._is_exclusive = False
        """Whether the connection keeps its index of SQLite's log in memory, and all others out: see ``_connect``."""
        self._opening = CatalogOpening(path, self._disk)
        try:
            try:
                self._find_catalog()
            except sqlite3.OperationalError:
                raise
            except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                self._opening.set_aside(str(error))
                self._find_catalog()
        except (sqlite3.DatabaseError, OSError) as error:
            raise CorruptLog(f"{path} cannot be opened as a catalog: {error}") from None

    def _find_catalog(self) -> None:
        """Open the file. Raises DatabaseError if it is damaged, its subclass OperationalError for anything else."""
        # files of a later Lading, SQLite's log included, keep every byte
        with contextlib.suppress(sqlite3.OperationalError):
            # on a full disk it cannot be examined here, only once it is open
            require_known_catalog(self.path)
        # SQLite gives its log the mode of this file
        touch(self.path)
        self._connect()
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def _open(self) -> None:
        # a catalog that could not be checked because of a full disk may be of a newer version of Lading
        GATE.require_known(CATALOG, self._db.execute("PRAGMA user_version").fetchone()[0], self.path)
        damage = find_damage(self._db)
        if damage is not None:
            raise sqlite3.DatabaseError(damage)
        self._migrate()
        self._opening.begin(self._db)

    def _connect(self) -> None:
        """Connect; on a full disk for readers, until there is space.

        Connections share an index of SQLite's log, in a file of its own. Without space for it a connection that shares
        with none keeps the index in its memory.
        """
        was_exclusive, self._is_exclusive = self._is_exclusive, False
        try:
            self._set_up()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode not in _NO_SPACE:
                raise
            self._is_exclusive = True
            self._set_up()
            # each write first tries to share again
            self._is_broken = True
            if not was_exclusive:
                self._set_problem(f"the catalog {self.path.name} cannot be written: {error}; is the disk full?")

    def _set_up(self) -> None:
        db = sqlite3.connect(self.path, isolation_level=None)
        try:
            if self._is_exclusive:
                db.execute("PRAGMA locking_mode = EXCLUSIVE")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA foreign_keys = ON")
            db.execute("PRAGMA wal_autocheckpoint = 0")
            # the first statement opens SQLite's log and its index
            db.execute("SELECT 1 FROM sqlite_master").fetchone()
        except BaseException:
            db.close()
            raise
        self._db, self._level = db, None

    @property
    def notes(self) -> list[str]:
        """Messages about lost parts of the catalog that was used last."""
        return self._opening.notes

    def _reconnect(self) -> None:
        """Checkpoint SQLite's log with a new connection, which replaces the old one."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self.wal.reopen()
        former = self._db
        if self._is_exclusive:
            # nobody else can connect while it has the file
            former.close()
        self._connect()
        with contextlib.suppress(sqlite3.Error):
            former.close()
        if self._is_exclusive:
            return
        # if not all frames can be moved, this connection can still be used, after the next attempt
        busy = self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        self._is_broken = bool(busy)

    def repair_when_due(self, now_us: int) -> None:
        """Retry a catalog that could not be written, if it is time."""
        if self._stopped is None and self.problem is not None and not 0 < self._repair_due_us - now_us <= REPAIR_US:
            self._repair_due_us = now_us + REPAIR_US
            with self._open_transaction(Level.FULL) as db:
                # the smallest possible write: the value that it already has
                version = db.execute("PRAGMA user_version").fetchone()[0]
                db.execute(f"PRAGMA user_version = {version}")
            LOG.warning("the catalog %s can be written again", self.path)

    def _wal_failed(self, error: OSError) -> None:
        self._is_broken = True
        self._set_problem(f"the catalog {self.path.name} could not be synced: {error.strerror or error}")

    def stop_writing(self, problem: str) -> None:
        """Refuse every change from now on with ``problem``: changes would not exist at the next start."""
        self.problem = self._stopped = problem

    def _set_problem(self, problem: str) -> None:
        if self.problem is None:
            LOG.error("%s; it is tried again", problem)
        self.problem = problem

    def _migrate(self) -> None:
        if self._db.execute("PRAGMA user_version").fetchone()[0] == 0:
            self.created = True
            with self._open_transaction(Level.FULL):
                for statement in SCHEMA.split(";"):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA user_version = {CATALOG.written}")

    @contextlib.contextmanager
    def _open_transaction(self, level: Level) -> Iterator[sqlite3.Connection]:
        if self._stopped is not None:
            raise Refusal(Reason.READ_ONLY, self._stopped)
        if not self._disk.is_durable:
            level = Level.OFF
        elif self._is_sync_deferred:
            level = Level.NORMAL
        try:
            if self._is_broken:
                self._reconnect()
            if self._level is not level:
                self._db.execute(f"PRAGMA synchronous = {level.value}")
                self._level = level
            self._db.execute("BEGIN IMMEDIATE")
            yield self._db
            self._db.execute("COMMIT")
            self._commits += 1
            # at level FULL SQLite has also synced what was written before
            self.wal.is_behind = level is Level.NORMAL
            if not self._is_exclusive:
                # a transaction without changes, as at a start, shows nothing about a full disk
                self.problem = None
        except BaseException as error:
            self._roll_back()
            if isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.IntegrityError):
                raise self._make_refusal(error) from None
            raise

    def _roll_back(self) -> None:
        try:
            # after some errors SQLite has rolled back by itself
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            # if left open, it would make every later transaction fail
            self._is_broken = True

    def _make_refusal(self, error: sqlite3.DatabaseError) -> Refusal:
        # an error that Python itself raises, such as for a closed connection, has no code
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        self._is_broken |= code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY)
        problem = f"the catalog {self.path.name} cannot be written: {error}"
        self._set_problem(problem)
        return Refusal(Reason.DISK_FULL if code == sqlite3.SQLITE_FULL else Reason.READ_ONLY, problem)

    def write(self, *kinds: CatalogRecordKind) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Open a transaction at the most durable level of these kinds, for tables in modules of their own."""
        firm = any(SYNC_LEVEL[kind] is Level.FULL for kind in kinds)
        return self._open_transaction(Level.FULL if firm else Level.NORMAL)

    @contextlib.contextmanager
    def defer_sync(self) -> Iterator[None]:
        """Write at level NORMAL in this block; the caller syncs ``wal`` before it acknowledges anything."""
        before, self._is_sync_deferred = self._is_sync_deferred, True
        try:
            yield
        finally:
            self._is_sync_deferred = before

    def rows(self, question: str) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT, for the same tables."""
        return self._db.execute(question).fetchall()

    def select(self, question: str, values: Sequence[int | str | bytes]) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT with ``values`` for its question marks. Raises Refusal if the catalog cannot be
        read.
        """
        try:
            return self._db.execute(question, values).fetchall()
        except sqlite3.DatabaseError as error:
            raise self._make_refusal(error) from None

    def checkpoint_when_due(self) -> None:
        """Checkpoint SQLite's log in another thread, once it is long enough.

        This syncs, which takes milliseconds that an event loop does not have; writers do not wait for it.
        """
        running = self._checkpoint is not None and self._checkpoint.is_alive()
        if self._commits >= CHECKPOINT_COMMITS and not running:
            self._commits = 0
            self._checkpoint = threading.Thread(target=_run_checkpoint, args=(self.path,), name="lading-checkpoint")
            self._checkpoint.start()

    def close(self) -> None:
        """Checkpoint and close; everything is then in the one file."""
        if self._checkpoint is not None:
            self._checkpoint.join()
        self.wal.reopen()
        # stored first: SQLite removes its log when it closes, and after a kill in between that must not look like a
        # lost log
        self._opening.end()
        with contextlib.suppress(sqlite3.OperationalError):
            self._db.close()

    # -- streams and topics

    @contextlib.contextmanager
    def _change_topology(self, *kinds: CatalogRecordKind) -> Iterator[sqlite3.Connection]:
        """Open a transaction for streams and topics; it first removes topics whose removal was refused before."""
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
        """Rename a stream to a free name, and give topics that refer to its topics other ``settings``."""
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
        """Remove a topic, its groups and positions; if that is refused, the next change of topics does it."""
        # a deletion is tried again after its messages were deleted from the disk
        self._leaving[uuid] = None
        with self._change_topology(CatalogRecordKind.TOPIC):
            pass

    def set_settings(self, uuid: bytes, settings: Mapping[str, Any]) -> None:
        """Replace the settings of a topic."""
        with self._change_topology(CatalogRecordKind.TOPIC) as db:
            _set_settings(db, {uuid: settings})

    def rename_topic(self, uuid: bytes, name: str, settings: Mapping[bytes, Mapping[str, Any]]) -> None:
        """Rename a topic to a free name of its stream, and give topics that refer to it other ``settings``."""
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
            raise self._make_refusal(error) from None
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
        """Delete transactions and keys that were settled before ``before_us``, and that no partition may
        need any more.
        """
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


def _run_checkpoint(path: Path) -> None:
    try:
        with contextlib.closing(sqlite3.connect(path)) as db:
            # PASSIVE makes no writer wait; frames that it leaves are moved the next time
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
    except sqlite3.Error as error:
        LOG.warning("the catalog %s: moving its log into the file failed, it is tried again: %s", path, error)
