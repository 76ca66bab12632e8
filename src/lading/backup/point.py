"""One backup: the state of a data directory at one moment, described by a document that is written last.

A store holds ``segments/``, whose files never change and are shared by all backups, and for each backup
``points/TIME.tar`` with everything else and ``points/TIME.json``, which lists all files with sizes and checksums. A
backup without its document is unfinished.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from ..log.formats import BACKUP, GATE
from ..model.errors import CorruptLog, LocalError
from .store import BackupStore

POINTS: Final = "points"
SEGMENTS: Final = "segments"
POINT_NAME: Final = "%Y%m%dT%H%M%S%fZ"
"""The form of a backup's name: the time at which it was taken, in UTC."""
DOCUMENT_SUFFIX: Final = ".json"
ARCHIVE_SUFFIX: Final = ".tar"


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a data directory: ``path`` there, size, CRC-32C; ``segment`` names it if it is not in the archive.

    ``source`` is the size and time of change (ns) of the file that it was copied from.
    """

    path: str
    size_bytes: int
    crc32c: int
    segment: str | None = None
    source: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BackupPoint:
    """A finished backup, taken at ``at_us``; ``opening`` is the number of the broker's start before it was taken."""

    name: str
    at_us: int
    lading: str
    opening: int
    topics: int
    partitions: int
    messages: int
    files: list[StoredFile]
    damage: list[str]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.size_bytes for file in self.files)


def list_points(store: BackupStore) -> list[str]:
    """Return the names of the finished backups, oldest first."""
    found = store.names(POINTS)
    return [name.removesuffix(DOCUMENT_SUFFIX) for name in found if name.endswith(DOCUMENT_SUFFIX)]


def write_point(store: BackupStore, point: BackupPoint) -> None:
    """Write the document of a backup, which finishes it."""
    content = {key: value for key, value in asdict(point).items() if key != "name"}
    document = {"version": BACKUP.written, "crc32c": _compute_crc(content), "point": content}
    with store.create(f"{POINTS}/{point.name}{DOCUMENT_SUFFIX}") as file:
        file.write(json.dumps(document).encode())


def read_point(store: BackupStore, name: str | None = None) -> BackupPoint:
    """Return a backup, by default the newest.

    Raises LocalError if the backup does not exist, CorruptLog if its document is damaged, NewerFormat if a newer
    version of Lading wrote it.
    """
    names = list_points(store)
    if not names:
        raise LocalError(f"backup {store.url}: holds no finished backup; name the place that `lading backup` wrote to")
    if name is None:
        name = names[-1]
    if name not in names:
        raise LocalError(f"backup {store.url}: has no {name!r}; there are {', '.join(names[-5:])}")
    place = f"{POINTS}/{name}{DOCUMENT_SUFFIX}"
    with store.open(place) as file:
        data = file.read()
    path = f"{store.url}/{place}"
    try:
        document = GATE.parse_known_document(BACKUP, data, Path(path))
        content: dict[str, Any] = document["point"]
        if document["version"] not in BACKUP.reads or document["crc32c"] != _compute_crc(content):
            raise CorruptLog(f"backup {path}: damaged: its checksum does not match; use another one with --point")
        files = [StoredFile(**file) for file in content.pop("files")]
        return BackupPoint(name=name, files=files, **content)
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLog(f"backup {path}: damaged: {error!r}; use another one with --point") from None


def _compute_crc(content: dict[str, Any]) -> int:
    crc: int = google_crc32c.value(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    return crc
