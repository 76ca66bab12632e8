"""Snapshots, named blobs next to the segments: what the broker would otherwise derive from all bodies at start.

File ``NAME.snapshot``: ``magic "LDSN" · crc32c u32`` (of what follows) ``· version u32 · reserved u32 · epoch u64 ·
end_offset u64`` and the blob, little-endian. It is valid for all messages before ``end_offset``, as a reader in
``epoch`` saw them; a log that was truncated since ignores it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import google_crc32c

from ..model.errors import LocalError
from .disk import Disk, read_all, replace, sync_directory
from .formats import GATE, SNAPSHOT
from .interface import Damage, Snapshot
from .watermark import is_still_valid

SUFFIX: Final = ".snapshot"
_HEAD: Final = struct.Struct("<4sIIIQQ")
_MAGIC: Final = b"LDSN"
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,63}")


def save(disk: Disk, directory: Path, name: str, epoch: int, end_offset: int, data: bytes) -> None:
    """Store a blob, replacing the last one of its name; on disk on return."""
    replace(disk, find_path(directory, name), pack(epoch, end_offset, data))


def pack(epoch: int, end_offset: int, data: bytes) -> bytes:
    """Return the content of a file."""
    body = _HEAD.pack(_MAGIC, 0, SNAPSHOT.written, 0, epoch, end_offset)[8:] + data
    return _MAGIC + struct.pack("<I", google_crc32c.value(body)) + body


def load(
    disk: Disk, directory: Path, name: str, epochs: Sequence[tuple[int, int]], next_offset: int
) -> Snapshot | None:
    """Return the last blob of that name, or None if it is missing, damaged, or covers messages that do not exist.

    Raises NewerFormat if a later Lading wrote it.
    """
    data = read_all(disk, find_path(directory, name))
    if data is None or len(data) < _HEAD.size:
        return None
    GATE.require_known_snapshot(data, find_path(directory, name))
    magic, crc, version, _, epoch, end_offset = _HEAD.unpack_from(data)
    if magic != _MAGIC or version not in SNAPSHOT.reads or crc != google_crc32c.value(data[8:]):
        return None
    if end_offset > next_offset or not is_still_valid(epochs, epoch, end_offset):
        return None
    return Snapshot(end_offset, data[_HEAD.size :])


def list_wrong(
    disk: Disk, directory: Path, names: Collection[str], damage: Iterable[Damage], settled_end: int
) -> list[Path]:
    """Return the files of blobs that cover messages which were lost in a power cut before they were acknowledged.

    Damage that reaches past ``settled_end`` is such a loss; damaged messages before it had been acknowledged.
    """
    lost = min((one.first for one in damage if one.end > settled_end), default=None)
    if lost is None:
        return []
    paths = [directory / name for name in sorted(names) if name.endswith(SUFFIX)]
    return [path for path in paths if _end_offset(read_all(disk, path) or b"") > lost]


def _end_offset(data: bytes) -> int:
    return _HEAD.unpack_from(data)[5] if len(data) >= _HEAD.size else 0


def remove(disk: Disk, directory: Path, name: str) -> None:
    """Delete the blob of that name, if it exists; deleted from disk on return."""
    disk.remove(find_path(directory, name))
    sync_directory(disk, directory)


def find_path(directory: Path, name: str) -> Path:
    """Return the file of the blob of that name. Raises LocalError if it cannot be one."""
    if not _NAME.fullmatch(name):
        raise LocalError(f"a snapshot's name is lower case letters, digits, - and _, not {name!r}")
    return directory / (name + SUFFIX)
