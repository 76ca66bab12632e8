"""Detection of a lost or outdated catalog, which SQLite does not report.

SQLite accepts a catalog that was emptied, truncated, replaced by an older copy or separated from its write-ahead log.
Each opening therefore gets a number, stored in the catalog (its ``application_id``) and in a file next to it; a
catalog with a lower number than the file is not the last one. Damage in the write-ahead log ends SQLite's reading of
it without an error; commits after that position reveal it.
"""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import Final

from ..runtime.sqlite_log import find_log_damage
from .disk import Disk, RealDisk, read_all, replace, sync_directory

SUFFIX: Final = ".opening"
DAMAGED: Final = ".damaged-"
"""In the name of a catalog that was set aside, before a number."""
_OPEN, _CLOSED, _RESTORED = "open", "closed", "restored"
_NUMBER_MAX: Final = (1 << 31) - 1


def wal_path(catalog: Path) -> Path:
    """Return the path of a catalog's write-ahead log."""
    return catalog.with_name(f"{catalog.name}-wal")


class CatalogOpening:
    """The number of this opening; ``notes`` are messages about faults of the catalog that was found."""

    def __init__(self, path: Path, disk: Disk) -> None:
        """Examine the files before SQLite changes them."""
        self.notes: list[str] = []
        self._catalog = path
        self._disk = disk
        self._path = path.with_name(path.name + SUFFIX)
        self._known, state = _read(self._path)
        self._was_open, self._was_restored = state == _OPEN, state == _RESTORED
        self._number: int | None = None
        self._had_catalog, self._wal = path.exists(), read_all(RealDisk(), wal_path(path))
        self._damage: str | None = None

    def set_aside(self, problem: str) -> None:
        """Give a damaged catalog and its log another name, so that an empty one can begin. Raises OSError."""
        number = 1
        while (aside := self._catalog.with_name(f"{self._catalog.name}{DAMAGED}{number}")).exists():
            number += 1
        for suffix in ("-wal", "-shm", ""):
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(Path(f"{self._catalog}{suffix}"), Path(f"{aside}{suffix}"))
        sync_directory(self._disk, self._catalog.parent)
        self._damage = f"was damaged ({problem}) and is now {aside.name}"
        self._had_catalog, self._wal = False, None

    def begin(self, db: sqlite3.Connection) -> None:
        """Compare the numbers and assign the next one to this opening; on a full disk it keeps the last one."""
        found = db.execute("PRAGMA application_id").fetchone()[0]
        wal, self._wal = self._wal, None
        if wal:
            self._check_wal(db, wal)
        if self._damage is not None:
            self.notes.append(
                f"the catalog {self._catalog} {self._damage}; a new one began: streams and topics with all messages "
                "and states are added from their directories; groups, channels, positions, transactions and commit "
                "keys are lost, and consumers begin as new ones do"
            )
        elif self._was_restored:
            self.notes.append(
                f"the catalog {self._catalog} was restored from a backup: groups, positions, transactions and commit "
                "keys are as they were then"
            )
        elif self._known is not None and found < self._known:
            state = "is an older one or was emptied" if self._had_catalog else "was missing"
            self.notes.append(
                f"the catalog {self._catalog} {state}: it is not the one that was used last; groups, positions, "
                "transactions and commit keys since then are lost"
            )
        elif self._was_open and wal is None:
            self.notes.append(
                f"{wal_path(self._catalog)} is missing, but the catalog was not closed cleanly: what was written to "
                "it last (groups, positions, transactions, commit keys) is lost"
            )
        number = max(found, self._known or 0) + 1
        if number > _NUMBER_MAX:
            return
        # a catalog on a full disk opens for readers; it keeps its number then
        with contextlib.suppress(sqlite3.OperationalError, OSError):
            db.execute(f"PRAGMA application_id = {number}")
            self._number = number
            self._write(_OPEN)

    def end(self) -> None:
        """Record that the catalog is about to be closed cleanly."""
        if self._number is not None:
            with contextlib.suppress(OSError):
                self._write(_CLOSED)

    def _write(self, state: str) -> None:
        assert self._number is not None
        replace(self._disk, self._path, _pack(self._number, state))

    def _check_wal(self, db: sqlite3.Connection, wal: bytes) -> None:
        frames = find_log_damage(db, wal)
        if frames is not None:
            self.notes.append(
                f"{wal_path(self._catalog)} is damaged after its first {frames} pages: what was written to the "
                "catalog after them (groups, positions, transactions, commit keys) is lost"
            )


def pack_restored(number: int) -> bytes:
    """Return the file for a restored catalog of opening ``number``: its missing rows are searched in the logs."""
    return _pack(min(number + 1, _NUMBER_MAX), _RESTORED)


def _pack(number: int, state: str) -> bytes:
    return f"{number} {state}\n".encode()


def _read(path: Path) -> tuple[int | None, str]:
    """Return the number of the last opening, or None if unknown, and how it ended."""
    try:
        number, state = (read_all(RealDisk(), path) or b"").decode().split()
        return int(number), state
    except (OSError, ValueError):
        return None, ""
