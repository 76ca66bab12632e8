"""Taking a backup: segments that a backup before has are not copied again, everything else goes into one archive."""

from __future__ import annotations

import errno
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import google_crc32c

from ..log.disk import RealDisk
from ..log.index import IndexEntry
from ..log.segment import Segment
from ..model.errors import CorruptLog, LadingError, LocalError
from ..model.version import __version__
from .capture import CapturedData, CapturedLog, CapturedSegment, capture
from .point import (
    ARCHIVE_SUFFIX,
    POINT_NAME,
    POINTS,
    SEGMENTS,
    BackupPoint,
    StoredFile,
    list_points,
    read_point,
    write_point,
)
from .store import BackupStore, DirectoryStore

COPY_BYTES: Final = 1 << 20
ATTEMPTS: Final = 5
"""A backup begins again if a topic is deleted while it is copied; after this many attempts it fails."""

OnProgress = Callable[[int, int], None]
"""Called with the bytes copied so far and the bytes of the whole backup."""


@dataclass(slots=True)
class BackupReport:
    """A finished backup: its name, and how much of it this run wrote."""

    point: BackupPoint
    copied_bytes: int
    """Bytes that this run wrote."""
    kept_bytes: int
    """Bytes of segments that an earlier run had written."""
    notes: list[str] = field(default_factory=list)


def back_up(data: Path, store: BackupStore, on_progress: OnProgress = lambda done, total: None) -> BackupReport:
    """Back up a data directory, whether its broker runs or not.

    Every message, state and setting that was acknowledged before the call is in it, and so are positions, except those
    that a killed broker may lose too. An interrupted call leaves segments that the next one keeps.

    Raises LocalError if ``data`` or the store cannot be what was named, CorruptLog if the catalog is damaged; damaged
    messages are copied as they are and reported. OSError if the disk or the object store fails.
    """
    _require_own(data, store)
    with store.lock():
        return _back_up(data, store, on_progress)


def _back_up(data: Path, store: BackupStore, on_progress: OnProgress) -> BackupReport:
    known = _KnownSegments.of(store)
    copied: dict[str, StoredFile] = {}
    for attempt in range(ATTEMPTS):
        try:
            return _Backup(store, capture(data), known, copied, on_progress).run()
        except FileNotFoundError as error:
            if attempt + 1 == ATTEMPTS:
                raise LocalError(
                    f"backup of {data}: topics or segments are deleted faster than they are copied ({error.filename}); "
                    "try again later"
                ) from None
        except CorruptLog:
            # segments that were merged between two looks seem to overlap; damage is the same each time
            if attempt + 1 == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _require_own(data: Path, store: BackupStore) -> None:
    """Raise LocalError for a place with other files than backups, or inside the data directory."""
    if isinstance(store, DirectoryStore):
        place = Path(store.url).absolute().resolve()
        if place.is_relative_to(data.absolute().resolve()):
            raise LocalError(f"backup {store.url}: is inside the data directory {data}; name another directory")
        if place.exists() and not place.is_dir():
            raise LocalError(f"backup {store.url}: a file is in its place; name a directory")
    others = [name for name in store.names("") if name not in (POINTS, SEGMENTS)]
    if others:
        raise LocalError(
            f"backup {store.url}: holds {others[0]!r}, which is not part of a backup, and nothing is overwritten; "
            "name an empty or new directory"
        )


@dataclass(slots=True)
class _KnownSegments:
    """The segments that the last backups have, by their paths, and what was found damaged in them."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, store: BackupStore) -> _KnownSegments:
        known = cls()
        for name in list_points(store)[-2:]:
            # if the document is damaged, its segments are read again; nothing else is lost
            with suppress(CorruptLog):
                point = read_point(store, name)
                known.files |= {file.path: file for file in point.files if file.segment is not None}
                known.damage += point.damage
        return known


class _Backup:
    """One attempt at a backup."""

    def __init__(
        self,
        store: BackupStore,
        captured: CapturedData,
        known: _KnownSegments,
        copied: dict[str, StoredFile],
        on_progress: OnProgress,
    ) -> None:
        self._store, self._captured, self._known, self._copied = store, captured, known, copied
        self._files: list[StoredFile] = []
        self._damage: list[str] = []
        self._copied_bytes = self._kept_bytes = self._done_bytes = 0
        self._total_bytes = sum(one.size_bytes for log in captured.logs for one in log.segments)
        self._on_progress = on_progress
        self._sources: dict[Path, tuple[int, int]] = {}
        """Size and time of change of each closed segment when it was copied."""
        self._name = datetime.fromtimestamp(captured.at_us / 1e6, UTC).strftime(POINT_NAME)

    def run(self) -> BackupReport:
        self._remove_unfinished()
        archive = f"{POINTS}/{self._name}{ARCHIVE_SUFFIX}"
        # first the large, shared files: the files that are written last are small, and from one moment
        for log in self._captured.logs:
            for segment in log.segments[:-1]:
                self._keep_segment(log, segment)
        try:
            with self._store.create(archive) as file, tarfile.open(fileobj=file, mode="w|") as tar:
                for path, data in self._captured.files.items():
                    self._add_to_archive(tar, path, data)
                for log in self._captured.logs:
                    for name, data in log.files.items():
                        self._add_to_archive(tar, f"{log.place}/{name}", data)
                    for segment in log.segments[-1:]:
                        self._archive_segment(tar, log, segment)
                for path, data in self._build_indexes():
                    self._add_to_archive(tar, path, data)
            self._require_unreplaced()
            point = self._describe_point()
            write_point(self._store, point)
        except BaseException:
            with suppress(OSError):
                self._store.remove(archive)
            raise
        return BackupReport(point, self._copied_bytes, self._kept_bytes, self._captured.notes)

    def _require_unreplaced(self) -> None:
        """Raise FileNotFoundError if compaction has replaced a segment since its end was found."""
        for log in self._captured.logs:
            for segment in log.segments:
                found = segment.path.stat()
                _require_inode(segment, found)
                # the last segment is still written to
                if segment.path in self._sources and self._sources[segment.path] != (found.st_size, found.st_mtime_ns):
                    raise _make_replaced_error(segment)

    def _describe_point(self) -> BackupPoint:
        logs = self._captured.logs
        own = [log for log in logs if log.place.count("/") == 2]
        return BackupPoint(
            name=self._name,
            at_us=self._captured.at_us,
            lading=__version__,
            opening=self._captured.opening,
            topics=len({log.place.split("/")[1] for log in own}),
            partitions=len(own),
            messages=sum(log.next_offset - log.first_offset for log in logs),
            files=self._files,
            damage=self._damage,
        )

    def _remove_unfinished(self) -> None:
        """Delete archives without a document: their backups were interrupted."""
        finished = set(list_points(self._store))
        for name in self._store.names(POINTS):
            stem = name.removesuffix(ARCHIVE_SUFFIX)
            if name.endswith(ARCHIVE_SUFFIX) and stem not in finished:
                self._store.remove(f"{POINTS}/{name}")

    def _keep_segment(self, log: CapturedLog, segment: CapturedSegment) -> None:
        """Copy a closed segment to the store unless the store has it."""
        path = f"{log.place}/{segment.path.name}"
        found = segment.path.stat()
        source = self._sources[segment.path] = (found.st_size, found.st_mtime_ns)
        _require_inode(segment, found)
        if found.st_size < segment.size_bytes:
            raise _make_replaced_error(segment)
        known = self._copied.get(path) or self._known.files.get(path)
        if known is not None and known.segment is not None and tuple(known.source or ()) == source:
            there = self._store.size_bytes(known.segment) == known.size_bytes
            if there and known.size_bytes == segment.size_bytes:
                self._files.append(known)
                self._kept_bytes += known.size_bytes
                self._advance(known.size_bytes)
                return
        crc = google_crc32c.value(b"")
        for part in _read_parts(segment):
            crc = google_crc32c.extend(crc, part)
        place = log.place.replace("/", "-").removeprefix("topics-")
        name = f"{SEGMENTS}/{place}/{segment.base_offset:020}-{segment.size_bytes}-{crc:08x}.log"
        if self._store.size_bytes(name) == segment.size_bytes:
            self._kept_bytes += segment.size_bytes
        else:
            with self._store.create(name) as file:
                for part in _read_parts(segment):
                    file.write(part)
            self._copied_bytes += segment.size_bytes
        self._advance(segment.size_bytes)
        stored = StoredFile(path, segment.size_bytes, crc, name, source)
        self._files.append(stored)
        self._copied[path] = stored

    def _add_to_archive(self, tar: tarfile.TarFile, path: str, data: bytes) -> None:
        tar.addfile(_make_member(path, len(data)), io.BytesIO(data))
        self._files.append(StoredFile(path, len(data), google_crc32c.value(data)))
        self._copied_bytes += len(data)

    def _archive_segment(self, tar: tarfile.TarFile, log: CapturedLog, segment: CapturedSegment) -> None:
        path = f"{log.place}/{segment.path.name}"
        with segment.path.open("rb") as file:
            # a segment that was closed since may have been compacted too
            _require_inode(segment, os.fstat(file.fileno()))
            reader = _CheckedReader(file)
            tar.addfile(_make_member(path, segment.size_bytes), reader)  # type: ignore[arg-type]
        self._files.append(StoredFile(path, segment.size_bytes, reader.crc))
        self._copied_bytes += segment.size_bytes
        self._advance(segment.size_bytes)

    def _build_indexes(self) -> Iterator[tuple[str, bytes]]:
        """Yield the index of each segment, built from its bytes, which this checks.

        A segment of an earlier backup was checked then; the index file next to it is used.
        """
        for log in self._captured.logs:
            self._damage += [f"{log.place}: offsets {one.first} to {one.end - 1}: lost" for one in log.damage]
            for segment in log.segments:
                closed = segment is not log.segments[-1]
                path = f"{log.place}/{segment.path.stem}.index"
                if closed and f"{log.place}/{segment.path.name}" not in self._copied:
                    index_path = segment.path.with_suffix(".index")
                    self._damage += [line for line in dict.fromkeys(self._known.damage) if line.startswith(f"{path}:")]
                    if index_path.is_file():
                        yield path, index_path.read_bytes()
                    continue
                try:
                    read = Segment(RealDisk(), segment.path.parent, segment.base_offset)
                    read.close_at(
                        read.scan_from(IndexEntry(segment.base_offset, 0, 0), segment.size_bytes), segment.end_offset
                    )
                except LadingError as error:
                    self._damage.append(str(error))
                    continue
                self._damage += [f"{path}: offsets {one.first} to {one.end - 1}: damaged" for one in read.damage]
                index = read.index
                if closed and read.end is not None:
                    index.end = IndexEntry(*read.end, read.max_timestamp_us)
                yield path, index.pack()

    def _advance(self, size_bytes: int) -> None:
        self._done_bytes += size_bytes
        self._on_progress(self._done_bytes, self._total_bytes)


def _require_inode(segment: CapturedSegment, status: os.stat_result) -> None:
    """Raise FileNotFoundError if a segment has another file than when its end was found."""
    if status.st_ino != segment.inode:
        raise _make_replaced_error(segment)


def _make_replaced_error(segment: CapturedSegment) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "replaced while it was copied", str(segment.path))


class _CheckedReader:
    """A file as tarfile reads it, with the checksum of what was read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.crc: int = google_crc32c.value(b"")

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        self.crc = google_crc32c.extend(self.crc, data)
        return data


def _make_member(path: str, size_bytes: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path)
    member.size, member.mode = size_bytes, 0o600
    return member


def _read_parts(segment: CapturedSegment) -> Iterator[bytes]:
    left = segment.size_bytes
    with segment.path.open("rb") as file:
        while left:
            part = file.read(min(COPY_BYTES, left))
            if not part:
                raise CorruptLog(f"segment {segment.path}: ends before its messages do; it was truncated")
            left -= len(part)
            yield part
