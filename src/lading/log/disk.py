"""All file access of the log, so that tests can cut the power at every write (design.md Log, promise 5)."""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from ..model.errors import CorruptLog, Reason, Refusal
from ..runtime.private_files import create_directory, open_private
from .file_system_sync import sync_file_systems

Data = bytes | bytearray | memoryview
_POPULATE_READ = 22
_sync_data = getattr(os, "fdatasync", os.fsync)
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_SHORT: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of temporary shortage: open files, memory."""
_REMEDIES: Final = (
    (frozenset({errno.ENOENT, errno.ENOTDIR, errno.ESTALE}), "put the deleted part of the data directory back"),
    (frozenset({errno.EACCES, errno.EPERM}), "check the rights on the data directory"),
    (frozenset({errno.EROFS}), "mount the disk writable"),
    (_FULL, "free some space on the disk"),
    (frozenset({errno.EMFILE, errno.ENFILE}), "raise the limit of open files"),
    (frozenset({errno.ENOMEM}), "free some memory"),
)


_SYNCS_AT_A_TIME: Final = 8
PLACE_PARTS: Final = 3
"""Number of parts of a path that errors show: enough to find a partition's directory."""


class File(Protocol):
    """An open file. Methods raise OSError with the errno of the system."""

    path: Path | str

    def size(self) -> int:
        """Return the size in bytes, holes included."""

    def data_end(self) -> int:
        """Return the end of the written bytes; after it there is only a hole, whose map must not be touched (on a full
        disk).
        """

    def write(self, data: Data, at: int) -> None:
        """Write all of ``data`` at byte ``at``. Raises OSError, and then an unknown part may have been written."""

    def read(self, at: int, size: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the file."""

    def map(self, size: int) -> NDArray[np.uint8]:
        """Map the first ``size`` bytes read-only; later writes show. Raises CorruptLog if the file is shorter."""

    def resize(self, size: int) -> None:
        """Truncate the file, or extend it with a hole that reads as zeros and takes no space."""

    def sync(self) -> None:
        """Make everything written durable. After an error it is unknown how much is."""

    def fileno(self) -> int:
        """Return the descriptor, for a thread that syncs."""

    def close(self) -> None:
        """Close the file, if it is open. Maps stay valid."""


class Disk(Protocol):
    """The operations on files and directories that a log needs.

    Operations that a start calls for thousands of directories also accept str: joining paths would cost more than
    reading the directories.
    """

    is_durable: bool
    """Whether synced bytes survive a power cut, so that owners of files next to a log sync these too."""

    def open(self, path: Path | str, *, write: bool = False) -> File:
        """Open an existing file, or with ``write`` also a new one. A directory may be opened to sync its entries."""

    def names(self, directory: Path | str) -> list[str]:
        """Return the entries of a directory, in no order. Raises FileNotFoundError if it does not exist."""

    def mtime_us(self, path: Path) -> int:
        """Return when a file was modified last, in microseconds since 1970."""

    def sync_paths(self, paths: Sequence[Path]) -> None:
        """Make files, or the names in directories, durable, many together. Raises OSError if one of them fails."""

    def make_directory(self, directory: Path) -> None:
        """Create a directory with its parents, unless it exists; on disk on return."""

    def rename(self, source: Path, target: Path) -> None:
        """Replace ``target`` atomically; durable once the directory is synced."""

    def remove(self, path: Path) -> None:
        """Delete a file, if it exists."""


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: Path | str, flags: int) -> None:
        self.path = path
        self._fd = open_private(path, flags | os.O_CLOEXEC)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def data_end(self) -> int:
        end = 0
        try:
            while True:
                end = os.lseek(self._fd, os.lseek(self._fd, end, os.SEEK_DATA), os.SEEK_HOLE)
        except OSError as error:
            # no data after this hole: the system's way to report the last one
            if error.errno != errno.ENXIO:
                raise
        return end

    def write(self, data: Data, at: int) -> None:
        if os.pwrite(self._fd, data, at) != len(data):
            self._write_again(memoryview(data), at)

    def _write_again(self, data: memoryview, at: int) -> None:
        # a short write (nearly full disk) is repeated whole, so it does not matter whether its first part arrived
        for _ in range(2):
            if os.pwrite(self._fd, data, at) == len(data):
                return
        while data:
            written = os.pwrite(self._fd, data, at)
            data = data[written:]
            at += written

    def read(self, at: int, size: int) -> bytes:
        return os.pread(self._fd, size, at)

    def map(self, size: int) -> NDArray[np.uint8]:
        if size == 0:
            return np.empty(0, np.uint8)
        try:
            mapped = mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
        except ValueError:
            # it checks the size itself: an earlier check may be outdated, for a segment that its broker closes
            place = place_of(Path(self.path))
            raise CorruptLog(f"{place} has fewer bytes than were written to it; it was truncated") from None
        return np.frombuffer(mapped, np.uint8)

    def resize(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def sync(self) -> None:
        _sync_data(self._fd)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        # a log only drops a file that a sync thread still uses; it is closed when that is done
        if getattr(self, "_fd", -1) >= 0:
            self.close()


class RealDisk:
    """The disk of this machine."""

    is_durable = True

    def open(self, path: Path | str, *, write: bool = False) -> File:
        return RealFile(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)

    def names(self, directory: Path | str) -> list[str]:
        # a start lists thousands of directories: Path.iterdir creates an object for each name
        return os.listdir(directory)  # noqa: PTH208

    def mtime_us(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1000

    def sync_paths(self, paths: Sequence[Path]) -> None:
        if len(paths) <= _SYNCS_AT_A_TIME or not sync_file_systems(paths):
            sync_each(self, paths)

    def make_directory(self, directory: Path) -> None:
        missing = [path for path in (directory, *directory.parents) if not path.exists()]
        for path in reversed(missing):
            create_directory(path, exist_ok=True)
            sync_directory(self, path.parent)

    def rename(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class UnsyncedFile(RealFile):
    """A file that the operating system brings to the disk at any time."""

    __slots__ = ()

    def sync(self) -> None:
        pass


class UnsyncedDisk(RealDisk):
    """``durability = "none"``: nothing waits for the disk, which takes half the time of creating a topic."""

    is_durable = False

    def open(self, path: Path | str, *, write: bool = False) -> File:
        return UnsyncedFile(path, os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        pass


DISKS: Final[dict[str, type[RealDisk]]] = {"fsync": RealDisk, "os": RealDisk, "none": UnsyncedDisk}
"""Disks by the setting ``durability``."""


def find_identity(file: File) -> tuple[int, ...]:
    """Return the inode, the size and the time of change of a file, which identify it; () without a descriptor."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mtime_ns


def bring_in(region: NDArray[np.uint8], start: int, end: int) -> None:
    """Load bytes of a map into memory. Raises OSError if they cannot be read.

    Touching them instead would end the process with a signal if a sector is bad or the file was truncated.
    """
    mapped = getattr(region.base, "obj", None)
    if isinstance(mapped, mmap.mmap) and start < end:
        first = start - start % mmap.PAGESIZE
        try:
            mapped.madvise(_POPULATE_READ, first, end - first)
        except OSError as error:
            # missing in kernels before 5.14 and in other systems, for which the signal remains possible
            if error.errno != errno.EINVAL:
                raise


def sync_each(disk: Disk, paths: Sequence[Path]) -> None:
    """Make files, or the names in directories, durable one by one: the fallback of ``Disk.sync_paths``.

    Many are synced at a time, because a journaling file system then writes their common journal only once.
    """
    if len(paths) <= _SYNCS_AT_A_TIME:
        for path in paths:
            sync_directory(disk, path)
        return
    with ThreadPoolExecutor(_SYNCS_AT_A_TIME, "lading-create") as threads:
        for _ in threads.map(partial(sync_directory, disk), paths):
            pass


def sync_directory(disk: Disk, directory: Path) -> None:
    """Make creations, renames and removals in a directory durable."""
    handle = disk.open(directory)
    try:
        handle.sync()
    finally:
        handle.close()


def replace(disk: Disk, path: Path, data: bytes) -> None:
    """Replace the content of ``path`` atomically: after a crash it has the old or the new bytes. On disk on return."""
    temporary = write_temporary(disk, path, data, is_synced=True)
    disk.rename(temporary, path)
    sync_directory(disk, path.parent)


def write_temporary(disk: Disk, path: Path, data: bytes, *, is_synced: bool = False) -> Path:
    """Write the new content of ``path`` to a file next to it, which a start deletes, and return that file's path."""
    temporary = path.with_name(path.name + ".tmp")
    file = disk.open(temporary, write=True)
    try:
        file.resize(0)
        file.write(data, 0)
        if is_synced:
            file.sync()
    finally:
        file.close()
    return temporary


def read_all(disk: Disk, path: Path) -> bytes | None:
    """Return the content of a file, or None if it does not exist."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def touch(path: Path) -> None:
    """Create an empty file, readable by its owner alone, unless it exists."""
    os.close(open_private(path, os.O_WRONLY | os.O_CREAT))


def file_size(disk: Disk, path: Path) -> int:
    """Return the size of a file in bytes, holes included."""
    file = disk.open(path)
    try:
        return file.size()
    finally:
        file.close()


def place_of(path: Path) -> str:
    """Return the end of a path, for errors: they reach clients, which must not learn the directory's path."""
    return "/".join(path.parts[-PLACE_PARTS:]) if path.is_absolute() else str(path)


def find_remedy(error: OSError) -> str:
    """Return the remedy for an error of the disk in words: no rights help if files were deleted under a broker."""
    return next((remedy for numbers, remedy in _REMEDIES if error.errno in numbers), "check the disk")


def refusal(path: Path, error: OSError, what: str) -> Refusal:
    """Return the Refusal of a log at ``path`` that ``what`` ("could not be written").

    DISK_FULL is temporary, also for a shortage of open files or memory; READ_ONLY is not.
    """
    place = place_of(path)
    if error.errno in _FULL:
        message = f"the disk is full: {place} accepts messages again when there is space ({error.strerror})"
        return Refusal(Reason.DISK_FULL, message)
    if error.errno in _SHORT:
        message = f"{place} {what} ({error.strerror}); it accepts messages again as soon as that ends"
        return Refusal(Reason.DISK_FULL, message)
    return Refusal(
        Reason.READ_ONLY,
        f"{place} is read-only until the next start: it {what} ({error.strerror or error}); {find_remedy(error)}, then "
        "start again",
    )
