"""Places of backups: a directory, or an object store that pyarrow knows (``s3://``, ``gs://``, ``abfs://``)."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol
from urllib.parse import unquote, urlsplit

from ..log.disk import RealDisk, sync_directory
from ..model.errors import LocalError, directory_error
from ..runtime.private_files import make_private_directory, open_private

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PART_SUFFIX: Final = ".part"
_ONE_REQUEST: Final = "allow_delayed_open"
"""Arrow's option to send a small file, such as the document that finishes a backup, in one request instead of three."""


class BackupStore(Protocol):
    """Named files; names have slashes. OSError as the system or the object store says it."""

    url: str

    def lock(self) -> AbstractContextManager[None]:
        """Keep other writers out during the block. Raises LocalError if there is another writer."""

    def create(self, name: str) -> AbstractContextManager[BinaryIO]:
        """Open a file for writing; it gets its name, durably, only if the block ends without an error."""

    def open(self, name: str) -> BinaryIO:
        """Open a file to read. Raises FileNotFoundError."""

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a file, or None if it does not exist."""

    def mtime_us(self, name: str) -> int:
        """Return the time at which a file was written, in microseconds since 1970. Raises FileNotFoundError."""

    def names(self, directory: str) -> list[str]:
        """Return the names of the files in a directory, sorted; empty if it does not exist."""

    def remove(self, name: str) -> None:
        """Delete a file, durably, if it exists."""


class DirectoryStore:
    """A directory of this machine, or of a share that is mounted."""

    def __init__(self, root: Path) -> None:
        self.url = str(root)
        self._root = root

    @contextmanager
    def lock(self) -> Iterator[None]:
        """See BackupStore; what an interrupted writer left is deleted."""
        try:
            make_private_directory(self._root)
            handle = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise directory_error("backup", self._root, error) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for part in self._root.rglob(f"*{PART_SUFFIX}"):
                part.unlink()
            yield
        except BlockingIOError:
            raise LocalError(f"backup {self.url}: another backup is being written to it; wait for its end") from None
        finally:
            os.close(handle)

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See BackupStore."""
        path = self._root / name
        try:
            make_private_directory(path.parent)
        except OSError as error:
            raise directory_error("backup", path.parent, error) from None
        part = path.with_name(path.name + PART_SUFFIX)
        try:
            with open(open_private(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC), "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        sync_directory(RealDisk(), path.parent)

    def open(self, name: str) -> BinaryIO:
        """See BackupStore."""
        return (self._root / name).open("rb")

    def size_bytes(self, name: str) -> int | None:
        """See BackupStore."""
        try:
            return (self._root / name).stat().st_size
        except FileNotFoundError:
            return None

    def mtime_us(self, name: str) -> int:
        """See BackupStore."""
        return (self._root / name).stat().st_mtime_ns // 1_000

    def names(self, directory: str) -> list[str]:
        """See BackupStore."""
        try:
            return sorted(one for one in RealDisk().names(self._root / directory) if not one.endswith(PART_SUFFIX))
        except FileNotFoundError:
            return []

    def remove(self, name: str) -> None:
        """See BackupStore."""
        path = self._root / name
        with suppress(FileNotFoundError):
            path.unlink()
            sync_directory(RealDisk(), path.parent)


class ObjectStore:
    """A bucket, or a part of it. A write that did not end may leave a truncated object, which readers notice."""

    def __init__(self, url: str, system: FileSystem, root: str) -> None:
        self.url = url
        self._system, self._root = system, root

    def lock(self) -> AbstractContextManager[None]:
        """See BackupStore: object stores know no locks, and files of two writers have different names."""
        return nullcontext()

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        """See BackupStore."""
        path = self._path_of(name)
        self._system.create_dir(path.rpartition("/")[0], recursive=True)
        try:
            with self._system.open_output_stream(path) as file:
                yield file  # type: ignore[misc]
        except BaseException:
            with suppress(OSError):
                self._system.delete_file(path)
            raise

    def open(self, name: str) -> BinaryIO:
        """See BackupStore."""
        return self._system.open_input_stream(self._path_of(name))  # type: ignore[return-value]

    def size_bytes(self, name: str) -> int | None:
        """See BackupStore."""
        size: int | None = self._system.get_file_info(self._path_of(name)).size
        return size

    def mtime_us(self, name: str) -> int:
        """See BackupStore."""
        written_ns: int | None = self._system.get_file_info(self._path_of(name)).mtime_ns
        if written_ns is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{self.url}/{name}")
        return written_ns // 1_000

    def names(self, directory: str) -> list[str]:
        """See BackupStore."""
        from pyarrow.fs import FileSelector

        found = self._system.get_file_info(FileSelector(self._path_of(directory), allow_not_found=True))
        return sorted(one.base_name for one in found)

    def remove(self, name: str) -> None:
        """See BackupStore."""
        with suppress(FileNotFoundError):
            self._system.delete_file(self._path_of(name))

    def _path_of(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def open_store(place: str) -> BackupStore:
    """Return the store at a path or URL. Raises LocalError if pyarrow knows no such object store."""
    if place.startswith("file://"):
        return DirectoryStore(Path(unquote(urlsplit(place).path)))
    if "://" not in place:
        return DirectoryStore(Path(place))
    from pyarrow.fs import FileSystem

    uri = place
    if urlsplit(place).scheme == "s3" and _ONE_REQUEST not in place:
        uri += f"{'&' if '?' in place else '?'}{_ONE_REQUEST}=true"
    try:
        system, root = FileSystem.from_uri(uri)
    except (ValueError, NotImplementedError, OSError) as error:
        raise LocalError(
            f"backup {place!r}: cannot be opened: {error}; name a directory or a bucket such as s3://backups/lading"
        ) from None
    return ObjectStore(place, system, root.rstrip("/"))
