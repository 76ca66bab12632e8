"""Restoring a backup as a new data directory, with every byte checked."""

from __future__ import annotations

import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Final

import google_crc32c

from ..log import watermark
from ..log.catalog import FILE_NAME as CATALOG_FILE
from ..log.catalog_state import SUFFIX as OPENING_SUFFIX
from ..log.catalog_state import pack_restored
from ..log.disk import RealDisk, replace, sync_directory, touch
from ..model.errors import CorruptLog, LocalError, directory_error
from ..runtime.private_files import create_directory, make_private_directory, open_private
from .back_up import COPY_BYTES, OnProgress
from .point import ARCHIVE_SUFFIX, POINTS, BackupPoint, StoredFile, read_point
from .store import BackupStore

STAGING_SUFFIX: Final = ".restoring"
MARK: Final = ".lading-restore"
"""A mark in the directory that a restore fills and may delete; it is deleted last."""
FILLED: Final = "data"
"""The directory, next to the mark, that a restore fills, and renames when it is complete."""
DISPENSABLE: Final = (".log", ".index", ".snapshot")
"""Files without which a broker starts: it reports the lost messages, or finds their contents again."""
SHOWN: Final = 5


@dataclass(slots=True)
class RestoreReport:
    """The messages that were read, and the damage that was found, as sentences."""

    point: BackupPoint
    read_bytes: int = 0
    damage: list[str] = field(default_factory=list)


def check_backup(
    store: BackupStore, name: str | None = None, on_progress: OnProgress = lambda done, total: None
) -> RestoreReport:
    """Read a whole backup, by default the newest, and report what is damaged; writes nothing."""
    report = RestoreReport(read_point(store, name))
    _Reader(store, report, on_progress).copy(None)
    return report


def restore(
    store: BackupStore,
    data: Path,
    name: str | None = None,
    *,
    keep_damaged: bool = False,
    on_progress: OnProgress = lambda done, total: None,
) -> RestoreReport:
    """Restore a backup, by default the newest, to ``data``, which then exists completely or not at all.

    ``keep_damaged`` restores segments of which a checksum does not match too: the broker finds what can be read. Logs
    begin a new epoch: a position that a reader stored after messages that the backup lacks is recognised, and not
    applied to the messages that get the same offsets later.

    Raises LocalError if ``data`` exists and is not empty, CorruptLog if something is damaged. OSError if a disk fails.
    """
    point = read_point(store, name)
    if data.exists() and (not data.is_dir() or any(data.iterdir())):
        raise LocalError(
            f"data directory {data}: already exists and is not empty, and a restore overwrites nothing; name a new "
            "one, or move it away"
        )
    staging = data.with_name(data.name + STAGING_SUFFIX)
    filled = staging / FILLED
    try:
        _prepare_staging(staging)
        make_private_directory(filled)
    except OSError as error:
        raise directory_error("data directory", staging, error) from None
    report = RestoreReport(point)
    _Reader(store, report, on_progress).copy(filled)
    lasting = [one for one in report.damage if not keep_damaged or not one.split(":")[0].endswith(DISPENSABLE)]
    if lasting:
        _remove_staging(staging)
        more = f", and {len(lasting) - SHOWN} more" if len(lasting) > SHOWN else ""
        raise CorruptLog(
            f"backup {store.url} of {point.name}: {'; '.join(lasting[:SHOWN])}{more}; restore another one with --point"
            + ("" if keep_damaged else ", or what is intact with --keep-damaged")
        )
    replace(RealDisk(), filled / f"{CATALOG_FILE}{OPENING_SUFFIX}", pack_restored(point.opening))
    _begin_epochs(filled, point)
    _make_durable(filled)
    filled.rename(data)
    sync_directory(RealDisk(), data.absolute().parent)
    _remove_staging(staging)
    return report


def _prepare_staging(staging: Path) -> None:
    """Create the directory with its mark, and delete the files of an interrupted restore. Raises LocalError for another
    directory with files."""
    if staging.exists():
        # a restore that was killed before it had its mark left an empty directory
        if not (staging / MARK).is_file() and any(staging.iterdir()):
            raise LocalError(f"{staging}: already exists, but is of no restore that was interrupted; move it away")
        _empty_staging(staging)
    make_private_directory(staging)
    touch(staging / MARK)


def _empty_staging(staging: Path) -> None:
    """Delete everything but the mark, so that a kill leaves a directory that the next restore may delete."""
    for path in staging.iterdir():
        if path.name == MARK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _remove_staging(staging: Path) -> None:
    _empty_staging(staging)
    (staging / MARK).unlink()
    staging.rmdir()


class _Reader:
    """Reads all files of a backup and compares them with its document."""

    def __init__(self, store: BackupStore, report: RestoreReport, on_progress: OnProgress) -> None:
        self._store, self._report, self._on_progress = store, report, on_progress
        self._total_bytes = report.point.size_bytes

    def copy(self, to: Path | None) -> None:
        """Copy all files into ``to``, or only check them."""
        point = self._report.point
        archived = {file.path: file for file in point.files if file.segment is None}
        for file in point.files:
            if file.segment is not None:
                try:
                    with self._store.open(file.segment) as source:
                        self._copy_file(source, file, to)
                except FileNotFoundError:
                    self._report.damage.append(f"{file.path}: missing ({file.segment})")
        try:
            with (
                self._store.open(f"{POINTS}/{point.name}{ARCHIVE_SUFFIX}") as source,
                tarfile.open(fileobj=source, mode="r|") as tar,
            ):
                for member in tar:
                    known = archived.pop(member.name, None)
                    content = tar.extractfile(member) if known is not None else None
                    if known is not None and content is not None:
                        self._copy_file(content, known, to)
        except FileNotFoundError:
            pass
        except (tarfile.TarError, EOFError):
            pass
        self._report.damage += [f"{path}: missing (the archive is damaged or cut)" for path in archived]

    def _copy_file(self, source: IO[bytes], file: StoredFile, to: Path | None) -> None:
        crc, size_bytes = google_crc32c.value(b""), 0
        target = None
        if to is not None:
            path = to / _require_within(file.path)
            _make_directories(to, path.parent)
            target = open_private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC)
        try:
            while part := source.read(COPY_BYTES):
                crc = google_crc32c.extend(crc, part)
                size_bytes += len(part)
                self._report.read_bytes += len(part)
                if target is not None:
                    _write_all(target, part)
                self._on_progress(self._report.read_bytes, self._total_bytes)
        finally:
            if target is not None:
                os.close(target)
        if size_bytes != file.size_bytes:
            self._report.damage.append(f"{file.path}: has {size_bytes:,} bytes, not {file.size_bytes:,}")
        elif crc != file.crc32c:
            self._report.damage.append(f"{file.path}: its checksum does not match")
        else:
            return
        if to is not None and not file.path.endswith(".log"):
            # a broker builds indexes and snapshots again; any other damaged file ends the restore
            with suppress(FileNotFoundError):
                (to / file.path).unlink()


def _require_within(path: str) -> str:
    """Raise CorruptLog for a path that would lead out of the data directory."""
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts:
        raise CorruptLog(f"backup: its document names {path!r}, which is not within a data directory; use another one")
    return path


def _make_directories(root: Path, directory: Path) -> None:
    if not directory.is_dir():
        for part in reversed([directory, *directory.parents]):
            if part.is_relative_to(root):
                create_directory(part, exist_ok=True)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _begin_epochs(data: Path, point: BackupPoint) -> None:
    """Give each log an epoch that the broker that was backed up has not given out since: seconds since 1970."""
    for file in point.files:
        path = data / file.path
        if path.name != watermark.FILE_NAME:
            continue
        mark = watermark.unpack(path.read_bytes())
        if mark is None:
            raise CorruptLog(f"backup: {file.path} is not a watermark; use another one with --point")
        epoch = max(int(time.time()), *(number + 1 for number, _ in mark.epochs))
        path.write_bytes(
            watermark.pack(
                mark.topic_id, mark.first_offset, mark.high_watermark, mark.last_stable_offset, mark.clock_us,
                watermark.next_epochs(mark.epochs, epoch, mark.high_watermark),
            )
        )  # fmt: skip


def _make_durable(root: Path) -> None:
    RealDisk().sync_paths(list(_walk_bottom_up(root)))


def _walk_bottom_up(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir():
            yield from _walk_bottom_up(path)
        else:
            yield path
    yield directory
