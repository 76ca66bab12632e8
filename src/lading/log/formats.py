"""A table of all formats on disk, and the gate that refuses files that a later Lading has written.

A file of a later version is not damage: nothing of it is truncated, repaired or rewritten, and the error names the
file. A flipped bit is not taken for a later version: a number that differs from a known version in a single bit counts
as one only if a checksum covers it.
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np

from ..chunk import layout
from ..chunk import overlay as overlay_record
from ..model.checked_document import FIELD as CHECKSUM
from ..model.checked_document import is_checksum, is_intact
from ..model.errors import NewerFormat
from . import index
from .disk import Disk, File, RealDisk
from .found_files import FoundFiles, LogFiles


class Format(NamedTuple):
    """A format: its name, the version written, the versions read, its file, and the position of the version."""

    name: str
    written: int
    reads: tuple[int, ...]
    file: str
    place: str


CATALOG: Final = Format("catalog", 1, (1,), "catalog.sqlite", "`user_version` of SQLite")
OPENING: Final = Format("catalog opening", 1, (1,), "catalog.sqlite.opening", "none: a later one has another name")
ACCESS: Final = Format("users and rights", 4, (1, 2, 3, 4), "access.json", "`version`")
ACCESS_MARK: Final = Format("number of the last users and rights", 1, (1,), "rights.serial", "`version`")
DESCRIPTION: Final = Format("topic description", 1, (1,), "topics/ID/topic.json", "`version`")
CHUNK: Final = Format("chunk", layout.VERSION, (1,), "topics/ID/N/*.log", "byte 10 of each chunk")
INDEX: Final = Format("index", 1, (1,), "topics/ID/N/*.index", "none: what is not understood is rebuilt")
STATES: Final = Format("states", overlay_record.VERSION, (1,), "topics/ID/N/states.log", "byte 8 of each record")
WATERMARK: Final = Format("watermark", 1, (1,), "topics/ID/N/watermark", "u16 at byte 4")
SNAPSHOT: Final = Format("snapshot", 1, (1,), "topics/ID/N/*.snapshot", "u32 at byte 8")
WRITERS: Final = Format("writers", 2, (1, 2), "topics/ID/N/writers.snapshot", "`version` in what the snapshot holds")
COMPACTION: Final = Format(
    "compaction", 1, (1,), "topics/ID/N/compaction.snapshot", "`version` in what the snapshot holds"
)
DOCUMENT: Final = Format("table document", 1, (1,), "manifests, states and checkpoints of tables (*.json)", "`version`")

BACKUP: Final = Format("backup", 1, (1,), "points/TIME.json of a backup", "`version`")

FORMATS: Final = (
    CATALOG, OPENING, ACCESS, ACCESS_MARK, DESCRIPTION, CHUNK, INDEX, STATES, WATERMARK, SNAPSHOT, WRITERS, COMPACTION,
    DOCUMENT, BACKUP,
)  # fmt: skip
"""All formats; docs/reference/formats.md shows this table."""

_HEAD_BYTES: Final = 16
_LOOK_BYTES: Final = 64
"""The versions of all files are in their first bytes."""


class FormatGate:
    """Detects files of a later version. Versions are compared nowhere else."""

    def newer_version_error(
        self, format_: Format, version: int, path: Path | str, *, covered: bool = True
    ) -> NewerFormat | None:
        """Return the error for a file whose version is above all that are read, or None if it is not.

        ``covered`` says that a matching checksum covers the version, so that it is not due to a flipped bit.
        """
        known = max(format_.reads)
        if version <= known or not (covered or (version ^ known).bit_count() > 1):
            return None
        return NewerFormat(
            f"{path} was written by a later Lading ({format_.name} version {version}, this one knows {known}); start "
            "that version, or give another data directory"
        )

    def require_known(self, format_: Format, version: int, path: Path | str, *, covered: bool = True) -> None:
        """Raise ``newer_version_error``, if there is one."""
        error = self.newer_version_error(format_, version, path, covered=covered)
        if error is not None:
            raise error

    def require_known_description(self, data: bytes, path: Path | str) -> object:
        """Check a ``topic.json`` and return what it holds; refusing invalid JSON (None) is left to the reader."""
        return self.require_known_document(DESCRIPTION, data, path)

    def require_known_document(self, format_: Format, data: bytes, path: Path | str) -> object:
        """Check a JSON document as ``parse_known_document``; refusing invalid JSON (None) is left to the reader."""
        try:
            return self.parse_known_document(format_, data, path)
        except ValueError:
            return None

    def parse_known_document(self, format_: Format, data: bytes, path: Path | str) -> Any:
        """Return a JSON document that has its version beside the rest.

        Raises ValueError if it is not JSON, or if it has a checksum that does not match.
        """
        document = json.loads(data)
        version = document.get("version") if isinstance(document, dict) else None
        if type(version) is int and version not in format_.reads:
            # without a checksum: if one bit of a digit flips, the result may still be a digit
            covered = all((ord(str(version)[-1]) ^ ord(str(one))).bit_count() > 1 for one in format_.reads)
            self.require_known(format_, version, path, covered=covered or version > 9 or is_intact(data))
        if isinstance(document, dict) and is_checksum(document.get(CHECKSUM)) and not is_intact(data):
            raise ValueError("its checksum does not match")
        return document

    def require_known_watermark(self, data: bytes, path: Path | str) -> None:
        """Check a watermark file; later versions may cover their version by the CRC of the head."""
        if len(data) < _HEAD_BYTES or data[:4] != b"LDWM" or _read_u16(data, 4) in WATERMARK.reads:
            return
        covered = google_crc32c.value(data[:12] + data[_HEAD_BYTES : _read_u32(data, 8)]) == _read_u32(data, 12)
        self.require_known(WATERMARK, _read_u16(data, 4), path, covered=covered)

    def require_known_snapshot(self, data: bytes, path: Path | str) -> None:
        """Check a snapshot whose CRC matches."""
        if len(data) >= 12 and data[:4] == b"LDSN" and google_crc32c.value(data[8:]) == _read_u32(data, 4):
            self.require_known(SNAPSHOT, _read_u32(data, 8), path)

    def require_known_states(self, data: bytes | memoryview, path: Path | str) -> None:
        """Check the first record of ``states.log``, of any length, if its CRC matches."""
        if len(data) >= 9:
            end = 8 + _read_u32(data, 0)
            if end <= len(data) and google_crc32c.value(bytes(data[8:end])) == _read_u32(data, 4):
                self.require_known(STATES, data[8], path)

    def require_known_chunk(self, data: bytes | memoryview, path: Path | str) -> None:
        """Check the chunk at the start of ``data``, if its CRC matches."""
        if len(data) <= layout.VERSION_AT or _read_u16(data, layout.MAGIC_AT) != layout.MAGIC:
            return
        version = data[layout.VERSION_AT]
        if version in CHUNK.reads:
            return
        end = layout.LENGTH_COUNTS_FROM + _read_u32(data, layout.LENGTH)
        if end <= len(data) and google_crc32c.value(bytes(data[8:end])) == _read_u32(data, layout.CRC):
            self.require_known(CHUNK, version, path)

    def check_directory(self, data: Path, disk: Disk | None = None) -> FoundFiles:
        """Raise NewerFormat for a directory of a later Lading, before anything in it is opened, repaired or truncated.

        Examines the head of each file, all states and the chunks that recovery would examine. Readers of other parts
        refuse a later version there. Returns what it has found, so that a start need not look at thousands of
        directories again.
        """
        disk = disk or RealDisk()
        for format_ in (ACCESS, ACCESS_MARK):
            path = data / format_.file
            # a file that cannot be read is reported by its reader
            with suppress(OSError):
                self.require_known_document(format_, _begin(disk, path, None), path)
        # text from here on: joining tens of thousands of paths takes longer than reading the files
        root = f"{data}/topics"
        found = FoundFiles()
        for topic in _list_names(disk, root):
            home = f"{root}/{topic}"
            names = found.names[topic] = _list_names(disk, home)
            if "topic.json" in names:
                description = f"{home}/topic.json"
                content = _begin(disk, description, None)
                found.descriptions[topic] = self.require_known_description(content, description)
            for name in names:
                if name.isdecimal():
                    self._find_partition(f"{home}/{name}", f"{topic}/{name}", disk, found)
        return found

    def _find_partition(self, path: str, key: str, disk: Disk, found: FoundFiles) -> None:
        """Check a partition and, in the same way, the delayed messages in it."""
        files = found.partitions[key] = self.check_partition(path, disk)
        if "postponed" in files.names:
            self._find_partition(f"{path}/postponed", f"{key}/postponed", disk, found)

    def check_partition(self, path: Path | str, disk: Disk) -> LogFiles:
        """Check one partition in the same way, without its delayed messages; return its files."""
        names = _list_names(disk, path)
        segments = [name for name in names if name.endswith(".log") and name[:1].isdecimal()]
        content = None
        if "watermark" in names:
            mark = f"{path}/watermark"
            content = _begin(disk, mark, None)
            self.require_known_watermark(content, mark)
        if "states.log" in names:
            states = f"{path}/states.log"
            self.check_states(_begin(disk, states, None), states)
        for name in names:
            if name.endswith(".snapshot"):
                snapshot = f"{path}/{name}"
                head = _begin(disk, snapshot, _LOOK_BYTES)
                if len(head) >= 12 and _read_u32(head, 8) not in SNAPSHOT.reads:
                    self.require_known_snapshot(_begin(disk, snapshot, None), snapshot)
        last = max(segments, default="")
        sizes = {name: self._check_segment(f"{path}/{name}", disk, is_last=name == last) for name in segments}
        return LogFiles(names, content, sizes)

    def check_states(self, data: bytes, path: Path | str) -> None:
        """Check all records, in detail those of another length or version."""
        if not data:
            return
        record = overlay_record.RECORD_BYTES
        rows = np.frombuffer(data, np.uint8, len(data) // record * record).reshape(-1, record)
        other = np.flatnonzero((rows[:, 0] != record - 8) | ~np.isin(rows[:, 8], STATES.reads))
        for number in other.tolist():
            self.require_known_states(memoryview(data)[number * record :], path)
        self.require_known_states(memoryview(data)[len(rows) * record :], path)

    def _check_segment(self, path: str, disk: Disk, *, is_last: bool) -> int:
        """Check a segment's first chunk, and in the last segment those that recovery would examine; return its size."""
        try:
            file = disk.open(path)
        except FileNotFoundError:
            return 0
        try:
            size_bytes = file.size()
            if not size_bytes:
                return 0
            head = file.read(0, _LOOK_BYTES)
            if len(head) > layout.VERSION_AT and head[layout.VERSION_AT] not in CHUNK.reads:
                self.require_known_chunk(file.read(0, layout.LENGTH_COUNTS_FROM + _read_u32(head, 0)), path)
            if is_last:
                self._check_tail(file, size_bytes, path, disk)
            return size_bytes
        finally:
            file.close()

    def _check_tail(self, file: File, size_bytes: int, path: str, disk: Disk) -> None:
        """Check the chunks after the last index entry of a segment, by their envelopes."""
        found, fault = index.unpack(_end(disk, f"{path.removesuffix('.log')}.index", index.ENTRY_BYTES), -1)
        entry = found.end or (found.entry(-1) if len(found) and not fault else None)
        at = entry.position if entry is not None else 0
        if at >= size_bytes:
            return
        region = file.map(file.data_end()).data
        while at + layout.ENVELOPE_BYTES <= len(region) and _read_u16(region, at + layout.MAGIC_AT) == layout.MAGIC:
            if region[at + layout.VERSION_AT] not in CHUNK.reads:
                self.require_known_chunk(region[at:], path)
                return
            at += layout.LENGTH_COUNTS_FROM + _read_u32(region, at)


GATE: Final = FormatGate()


def _read_u16(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 2], "little")


def _read_u32(data: bytes | memoryview, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def _list_names(disk: Disk, directory: Path | str) -> list[str]:
    try:
        return disk.names(directory)
    except (FileNotFoundError, NotADirectoryError):
        return []


def _begin(disk: Disk, path: Path | str, size_bytes: int | None) -> bytes:
    """Return the first bytes of a file, all of them for None; no bytes if it does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.read(0, file.size() if size_bytes is None else min(size_bytes, file.size()))
    finally:
        file.close()


def _end(disk: Disk, path: str, size_bytes: int) -> bytes:
    """Return the last bytes of a file; no bytes if it does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return b""
    try:
        return file.read(max(file.size() - size_bytes, 0), size_bytes)
    finally:
        file.close()
