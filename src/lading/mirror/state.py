"""State of a mirror: positions, the work that was begun, and the offsets of source and target.

One SQLite file in a directory of the mirror's own. A work is written down with its exact ranges before anything of it
is sent, so that a repeat sends the same messages: that is what lets targets recognise it. SQLite has no checksums, and
a position that a flipped bit moved would lose messages or send them again: each row has a digest, which every opening
compares.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from ..model.errors import LocalError, directory_error
from ..runtime.owned_directory import lock_directory, own_directory
from ..runtime.private_files import make_private_directory, open_private
from ..runtime.sqlite_log import find_log_damage
from ..transports.interface import Position

LOCK_FILE: Final = "mirror.lock"
DATABASE: Final = "mirror.sqlite"
VERSION: Final = 2
_DIGEST_BYTES: Final = 8
_COLUMNS: Final = {
    "facts": "name, value",
    "positions": "topic, partition, offset, epoch",
    "works": "topic, number, ranges",
    "offsets": "topic, partition, first, end, target, exact",
}
"""Columns of each table, after which each has its ``digest``, which states of version 1 lack."""
_TABLES: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, digest BLOB) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (
    topic TEXT, partition INTEGER, offset INTEGER NOT NULL, epoch INTEGER NOT NULL, digest BLOB,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS works (
    topic TEXT PRIMARY KEY, number INTEGER NOT NULL, ranges TEXT NOT NULL, digest BLOB
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS offsets (
    topic TEXT, partition INTEGER, first INTEGER, end INTEGER NOT NULL, target INTEGER NOT NULL, exact INTEGER NOT NULL,
    digest BLOB, PRIMARY KEY (topic, partition, first)
) WITHOUT ROWID;
"""


class Range(NamedTuple):
    """Source offsets from ``first`` up to, not including, ``end``; the target's partition ended at ``target_end``."""

    partition: int
    first: int
    end: int
    target_end: int | None
    epoch: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """Messages of one topic that become visible together: its number in this mirror, and their ranges.

    Numbers begin again in a state that was put back from a backup; the random ``token`` does not. It is empty in a work
    that an older Lading began. ``refused`` are the (partition, offset) of messages that the target refused, which are
    written down before the others of the work become visible.
    """

    number: int
    ranges: tuple[Range, ...]
    token: str = ""
    refused: tuple[tuple[int, int], ...] = ()

    @property
    def name(self) -> str:
        """The name under which the target knows this work of the mirror, and no other one."""
        return f"{self.number}-{self.token}" if self.token else str(self.number)


class MappedRange(NamedTuple):
    """Source offsets and the target's offset of the first of them; the others follow, one by one, if ``exact``."""

    first: int
    end: int
    target: int
    exact: bool


class MirrorState:
    """The state of one mirror; one process writes it at a time."""

    def __init__(self, directory: Path) -> None:
        """Open the state, or create it. Raises LocalError if it is of a later version, damaged, or cannot be read."""
        try:
            make_private_directory(directory)
            # SQLite gives its log the mode that this file has
            os.close(open_private(directory / DATABASE, os.O_WRONLY | os.O_CREAT))
        except OSError as error:
            raise directory_error("the state directory", directory, error) from None
        self._path = directory / DATABASE
        try:
            self._db = sqlite3.connect(self._path)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.create_function("row_digest", -1, _digest_row, deterministic=True)
            self._db.executescript(_TABLES)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LocalError(f"{self._path} is not the state of a mirror ({error}); name another directory") from None
        self._require_intact()
        self.fact("version", str(VERSION))
        self.id = self.fact("id", secrets.token_hex(8))

    def _require_intact(self) -> None:
        """Add digests to a state of version 1, and compare those of a later one."""
        try:
            found = self._db.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if found != "ok":
                raise damage_error(self._path, " ".join(found.split()))
            row = self._db.execute("SELECT value FROM facts WHERE name = 'version'").fetchone()
            if row is not None and int(row[0]) > VERSION:
                raise LocalError(f"{self._path} was written by a later version of Lading; use that one")
            is_old = "digest" not in {column[1] for column in self._db.execute("PRAGMA table_info(facts)")}
            if is_old:
                self._add_digests()
                return
            for table, columns in _COLUMNS.items():
                question = f"SELECT 1 FROM {table} WHERE digest IS NOT row_digest('{table}', {columns})"
                if self._db.execute(question).fetchone() is not None:
                    raise damage_error(self._path, f"a row of {table} is not as it was written")
        except (sqlite3.Error, ValueError) as error:
            raise damage_error(self._path, error) from None

    def _add_digests(self) -> None:
        with self._db:
            self._db.execute("BEGIN")
            for table, columns in _COLUMNS.items():
                self._db.execute(f"ALTER TABLE {table} ADD COLUMN digest BLOB")
                self._db.execute(f"UPDATE {table} SET digest = row_digest('{table}', {columns})")
            self._put("facts", "version", str(VERSION))

    def _put(self, table: str, *values: object) -> None:
        """Write a row in place of the one with its key."""
        marks = ", ".join("?" * len(values))
        digest = _digest_row(table, *values)
        self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks}, ?)", (*values, digest))

    def fact(self, name: str, value: str) -> str:
        """Return a fact about this mirror, which is ``value`` from the first time on."""
        question = "SELECT value FROM facts WHERE name = ?"
        row = self._db.execute(question, (name,)).fetchone()
        if row is not None:
            return str(row[0])
        with self._db:
            self._put("facts", name, value)
        return value

    def list_facts(self) -> dict[str, str]:
        """Return all facts that are known, such as ``source`` and ``target``, without adding one."""
        return dict(self._db.execute("SELECT name, value FROM facts"))

    def require_pair(self, source: str, target: str) -> None:
        """Raise LocalError if the state is that of other systems, unless nothing was sent by it yet."""
        if not self.is_used:
            with self._db:
                self._db.execute("DELETE FROM facts WHERE name IN ('source', 'target') OR name LIKE 'topic %'")
        for name, value in (("source", source), ("target", target)):
            known = self.fact(name, value)
            if known != value:
                raise LocalError(
                    f"{self._path} is the state of a mirror whose {name} is {known}, not {value}; give each mirror "
                    "a directory of its own with --state"
                )

    @property
    def is_used(self) -> bool:
        """Whether a work was ever begun: before that the state holds no position to continue from."""
        row = self._db.execute("SELECT 1 FROM facts WHERE name = 'works' UNION SELECT 1 FROM positions LIMIT 1")
        return row.fetchone() is not None

    def positions(self, topic: str) -> dict[int, Position]:
        """Return the position at which each partition continues."""
        rows = self._db.execute("SELECT partition, offset, epoch FROM positions WHERE topic = ?", (topic,))
        return {partition: Position(offset, epoch) for partition, offset, epoch in rows}

    def topics(self) -> list[str]:
        """Return the topics that were mirrored."""
        return [row[0] for row in self._db.execute("SELECT DISTINCT topic FROM positions ORDER BY topic")]

    def find_begun(self, topic: str) -> Work | None:
        """Return the work that was begun, and of which it is unknown whether it was sent."""
        row = self._db.execute("SELECT number, ranges FROM works WHERE topic = ?", (topic,)).fetchone()
        if row is None:
            return None
        facts = self.list_facts()
        refused = json.loads(facts.get(_name_refused_fact(row[0]), "[]"))
        ranges = tuple(Range(*one) for one in json.loads(row[1]))
        return Work(row[0], ranges, facts.get(_token_fact(row[0]), ""), tuple((part, at) for part, at in refused))

    def note_refused(self, work: Work, places: Sequence[tuple[int, int]]) -> None:
        """Write down the messages of a work that the target refused: a repeat after a crash leaves out the same."""
        with self._db:
            self._put("facts", _name_refused_fact(work.number), json.dumps([*work.refused, *places]))

    def begin(self, topic: str, ranges: Sequence[Range]) -> Work:
        """Write down what is about to be sent."""
        with self._db:
            row = self._db.execute("SELECT value FROM facts WHERE name = 'works'").fetchone()
            number = 1 if row is None else int(row[0]) + 1
            token = secrets.token_hex(4)
            self._put("facts", _token_fact(number), token)
            self._put("facts", "works", str(number))
            self._put("works", topic, number, json.dumps(ranges))
        return Work(number, tuple(ranges), token)

    def finish(self, topic: str, work: Work, mapped: Mapping[int, Sequence[MappedRange]]) -> None:
        """Move the positions past a work that was sent, and store the target's offsets, by partition."""
        with self._db:
            self._db.execute("DELETE FROM works WHERE topic = ?", (topic,))
            for name in (_token_fact(work.number), _name_refused_fact(work.number)):
                self._db.execute("DELETE FROM facts WHERE name = ?", (name,))
            for one in work.ranges:
                self._put("positions", topic, one.partition, one.end, one.epoch)
                self._map(topic, one.partition, mapped.get(one.partition, ()))

    def _map(self, topic: str, partition: int, ranges: Sequence[MappedRange]) -> None:
        for one in ranges:
            last = self._db.execute(
                "SELECT first, end, target, exact FROM offsets WHERE topic = ? AND partition = ? "
                "ORDER BY first DESC LIMIT 1",
                (topic, partition),
            ).fetchone()
            joined = one
            if last is not None and one.exact and last[3] and last[1] == one.first:
                # most of a topic is one row: nothing but its end moves
                before = MappedRange(last[0], last[1], last[2], True)
                if before.target + before.end - before.first == one.target:
                    joined = before._replace(end=one.end)
            self._put("offsets", topic, partition, *joined)

    def list_mapped(self, topic: str, partition: int) -> list[MappedRange]:
        """Return the target's offsets of a partition's source offsets, in order."""
        rows = self._db.execute(
            "SELECT first, end, target, exact FROM offsets WHERE topic = ? AND partition = ? ORDER BY first",
            (topic, partition),
        )
        return [MappedRange(first, end, target, bool(exact)) for first, end, target, exact in rows]

    def translate(self, topic: str, partition: int, offset: int) -> int:
        """Return the position at the target of a reader that continues at ``offset`` of the source.

        Everything after ``offset`` at the source comes after the result at the target. If another sender wrote in
        between, some messages already read may come again. Raises LocalError if nothing of the partition was mapped.
        """
        ranges = self.list_mapped(topic, partition)
        if not ranges:
            known = ", ".join(map(repr, self.topics())) or "none"
            raise LocalError(
                f"topic {topic!r}, partition {partition}: no offsets were mapped; mirrored topics are {known}"
            )
        for one in ranges:
            if offset <= one.first:
                return one.target
            if offset < one.end:
                return one.target + (offset - one.first if one.exact else 0)
        last = ranges[-1]
        return last.target + (last.end - last.first if last.exact else 0)

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def _digest_row(*values: object) -> bytes:
    """Return the digest of a row: of its table and its columns, ``True`` being 1 as SQLite stores it."""
    text = json.dumps([int(value) if isinstance(value, bool) else value for value in values])
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def damage_error(path: Path, problem: object) -> LocalError:
    """Return the error for a damaged state: continuing from it would lose or double messages."""
    return LocalError(
        f"{path}: damaged ({problem}); put a copy of it back, or move its directory away: the mirror then begins anew, "
        "and sends again what it had sent"
    )


def require_intact_log(directory: Path) -> None:
    """Raise LocalError if SQLite's log of a state that was not closed is damaged: it would go back, in silence.

    The caller has the lock of the directory, and has not opened the state yet.
    """
    path = directory / DATABASE
    try:
        wal = path.with_name(f"{DATABASE}-wal").read_bytes()
    except OSError:
        return
    with closing(sqlite3.connect(path)) as db:
        try:
            pages_count = find_log_damage(db, wal)
        except sqlite3.DatabaseError:
            # a file of something else, which ``MirrorState`` refuses
            return
    if pages_count is not None:
        raise damage_error(path, f"its log, after {pages_count} pages")


def _token_fact(number: int) -> str:
    """Return the name of the fact that holds the token of a work that was begun."""
    return f"work {number}"


def _name_refused_fact(number: int) -> str:
    """Return the name of the row for the messages of a begun work that the target has refused."""
    return f"refused {number}"


def lock_state(directory: Path) -> AbstractContextManager[None]:
    """Lock the state directory of a mirror as long as the block runs. Raises LocalError if another process has it."""
    busy = f"another process runs the mirror of {directory}; stop it, or name another --state"
    return own_directory(directory, LOCK_FILE, what="the state directory", busy=LocalError(busy))


def remove_if_unused(directory: Path, *, with_directory: bool) -> None:
    """Remove the files of a state from which nothing was ever sent; the caller holds its lock and has closed it.

    ``with_directory`` removes the directory too, if nothing else is in it.
    """
    database = directory / DATABASE
    if database.exists():
        try:
            state = MirrorState(directory)
        except LocalError:
            # the file of somebody else, or of a later version
            return
        is_used = state.is_used
        state.close()
        if is_used:
            return
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", LOCK_FILE):
        (directory / name).unlink(missing_ok=True)
    if with_directory:
        with suppress(OSError):
            directory.rmdir()


def is_running(directory: Path) -> bool:
    """Return whether a process runs the mirror of this state directory."""
    if not (directory / LOCK_FILE).exists():
        return False
    try:
        with lock_directory(directory, LOCK_FILE):
            return False
    except BlockingIOError:
        return True
