"""The contents of a data directory at one moment, found without its broker's help and without changing it.

A copy of the catalog is taken first, then the end of every log is found by the same recovery that a start after a crash
would run: what was acknowledged before is below those ends. Positions are therefore never ahead of messages. If a
transaction or a dead letter was decided meanwhile, the capture begins again, since their parts are in several logs.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..log import watermark
from ..log.access_file import MARK_NAME as ACCESS_MARK
from ..log.access_file import AccessFile
from ..log.access_record import read_recorded_serial
from ..log.catalog import FILE_NAME as CATALOG_FILE
from ..log.catalog_copy import CatalogCopy, copy_catalog, read_decisions
from ..log.directory import DESCRIPTION, TOPICS
from ..log.disk import Disk, File, RealDisk, read_all
from ..log.formats import GATE
from ..log.found_files import LogFiles
from ..log.interface import Damage
from ..log.overlay import FILE_NAME as STATES_FILE
from ..log.recovery import is_new, recover
from ..log.segment import segment_name
from ..log.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ..model.errors import CorruptLog, LocalError
from ..runtime.owned_directory import DATA_LOCK_FILE as LOCK_FILE

POSTPONED: Final = "postponed"
DECIDED_WAIT_S: Final = 5.0
"""The time within which to find a moment at which no transaction or dead letter is being decided."""


@dataclass(frozen=True, slots=True)
class CapturedSegment:
    """A segment file: its chunks end at ``end_offset`` and ``size_bytes``."""

    path: Path
    base_offset: int
    end_offset: int
    size_bytes: int
    inode: int
    """The file's inode number: compaction replaces the file by another one."""


@dataclass(frozen=True, slots=True)
class CapturedLog:
    """A partition, or the messages delayed in it: ``place`` is its directory within the data directory."""

    place: str
    first_offset: int
    next_offset: int
    segments: list[CapturedSegment]
    files: dict[str, bytes]
    """The other files of the partition by name."""
    damage: list[Damage]


@dataclass(frozen=True, slots=True)
class CapturedData:
    """A whole data directory at one moment, ``at_us`` by the machine's clock."""

    at_us: int
    files: dict[str, bytes]
    """Files that belong to no partition, by their place in the data directory."""
    opening: int
    logs: list[CapturedLog]
    notes: list[str]


def capture(data: Path) -> CapturedData:
    """Find what ``data`` holds now.

    Raises LocalError if it is not a data directory, CorruptLog if a part of it cannot be read, NewerFormat if a newer
    version of Lading wrote it, FileNotFoundError if a topic was deleted meanwhile: the caller may then try again.
    """
    if not (data / TOPICS).is_dir():
        raise LocalError(f"data directory {data}: holds no topics; name the directory that `lading serve --data` has")
    GATE.check_directory(data)
    patience_s = time.monotonic() + DECIDED_WAIT_S
    notes: list[str] = []
    while True:
        at_us = time.time_ns() // 1000
        catalog = copy_catalog(data / CATALOG_FILE)
        # after the catalog, so that users and rights are not older than it
        own = {path.name: _read(RealDisk(), path) for path in sorted(data.iterdir()) if _is_kept(path)}
        logs = [log for place in _list_places(data, catalog) for log in _capture_log(data, place, at_us)]
        if read_decisions(data / CATALOG_FILE) == catalog.decisions:
            break
        if time.monotonic() > patience_s:
            notes.append(
                "transactions were committed all the time: of one that was being committed when the backup began, a "
                "part may be missing"
            )
            break
    notes += _describe_lost_access(data)
    files = {CATALOG_FILE: catalog.data, **own}
    for uuid, _ in catalog.topics:
        place = f"{TOPICS}/{uuid.hex()}/{DESCRIPTION}"
        files[place] = _read(RealDisk(), data / place)
    return CapturedData(at_us, files, catalog.opening, logs, notes)


def _describe_lost_access(data: Path) -> list[str]:
    """Return the damage of users and rights that would keep a restored broker from starting."""
    try:
        AccessFile(data).load(read_recorded_serial(data / CATALOG_FILE))
    except CorruptLog as error:
        return [f"{error}; keep the backups that were made before it"]
    return []


def _is_kept(path: Path) -> bool:
    """Return whether a file beside the topics is kept as it is: users and rights, a certificate that Lading made."""
    return path.is_file() and not path.name.startswith(CATALOG_FILE) and path.name not in (LOCK_FILE, ACCESS_MARK)


def _list_places(data: Path, catalog: CatalogCopy) -> Iterator[str]:
    for uuid, partitions in catalog.topics:
        for number in range(partitions):
            place = f"{TOPICS}/{uuid.hex()}/{number}"
            yield place
            if (data / place / POSTPONED).is_dir():
                yield f"{place}/{POSTPONED}"


def _capture_log(data: Path, place: str, now_us: int) -> Iterator[CapturedLog]:
    """Yield the log at a place, or nothing if none was ever made there."""
    directory = data / place
    snapshots = {
        name: _read(RealDisk(), directory / name)
        for name in RealDisk().names(directory)
        if name.endswith(SNAPSHOT_SUFFIX)
    }
    # read it before the names: a newer watermark could refer to a segment that is not among them
    disk = _UnchangedDisk(directory / watermark.FILE_NAME)
    log_files = LogFiles(disk.names(directory))
    if is_new(log_files.names):
        return
    mark = watermark.unpack(disk.pinned or b"")
    if mark is None:
        raise CorruptLog(
            f"{directory / watermark.FILE_NAME}: missing or damaged; start the broker, which repairs it, then back up"
        )
    found = recover(disk, directory, log_files, mark.topic_id, now_us=now_us, first_epoch=1)
    # after the end was found: the next opening ignores states of messages beyond it
    states = read_all(disk, directory / STATES_FILE)
    segments = [
        CapturedSegment(one.path, one.base_offset, one.end.offset, min(one.end.position, status.st_size), status.st_ino)
        for one in found.closed
        if one.end is not None
        for status in [one.path.stat()]
    ]
    if found.tail is not None:
        path = directory / segment_name(found.tail.base_offset)
        segments.append(CapturedSegment(path, found.tail.base_offset, *found.tail.end, path.stat().st_ino))
    head = watermark.pack(
        mark.topic_id, found.first_offset, found.next_offset, found.stable_before, found.clock_us, mark.epochs
    )
    files = {**snapshots, watermark.FILE_NAME: head}
    if states is not None:
        files[STATES_FILE] = states
    yield CapturedLog(place, found.first_offset, found.next_offset, segments, files, list(found.report.damage))


def _read(disk: Disk, path: Path) -> bytes:
    data = read_all(disk, path)
    if data is None:
        raise FileNotFoundError(errno.ENOENT, "deleted while it was copied", str(path))
    return data


class _PinnedFile:
    """A file as it was when it was read."""

    def __init__(self, path: Path, data: bytes) -> None:
        self.path = path
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def read(self, at: int, size: int) -> bytes:
        return self._data[at : at + size]

    def close(self) -> None:
        """Nothing is open."""


class _UnchangedDisk(RealDisk):
    """The disk of this machine, of which no byte changes; one file is ``pinned`` as it was at the start."""

    def __init__(self, pinned: Path) -> None:
        self._path = pinned
        self.pinned = read_all(RealDisk(), pinned)

    def open(self, path: Path | str, *, write: bool = False) -> File:
        if write:
            raise OSError(errno.EROFS, "a backup changes nothing", str(path))
        if Path(path) == self._path and self.pinned is not None:
            return _PinnedFile(self._path, self.pinned)  # type: ignore[return-value]
        return super().open(path)

    def make_directory(self, directory: Path) -> None:
        """Leave it: it belongs to a broker."""

    def rename(self, source: Path, target: Path) -> None:
        """Leave it: it belongs to a broker."""

    def remove(self, path: Path) -> None:
        """Leave it: it belongs to a broker."""
