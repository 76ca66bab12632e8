"""Tables on object stores: the part of ``pathlib.Path`` that tables need, over S3, Google Cloud Storage and Azure.

A store has no directories, no rename and no lock. It has objects that appear whole, copies within the store, and a put
that fails if the object exists, which takes the place of all three. Addresses and credentials come from the environment
under the names that the library ``obstore`` and every other client knows, such as ``AWS_ACCESS_KEY_ID``.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...model.errors import LadingError, LocalError, Unreachable
from ...model.extras import describe_install
from . import object_errors
from .storage import StoreAccess, find_access

if TYPE_CHECKING:
    from obstore import WritableFile

SCHEMES: Final = ("s3", "gs", "abfss")
RETRIES: Final[Any] = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=30),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}
"""How long a request is retried; after that the run ends, or waits if it follows its source."""
PART_BYTES: Final = 8 << 20
"""Larger files are sent in parts of this size, several at a time."""
TAIL_BYTES: Final = 64 << 10
"""A file is read in pieces of at least this size, which most footers of Parquet fit into."""
PAGE: Final = 1_000
CREATE_ATTEMPTS: Final = 5
"""S3 may refuse a put because of another one that then fails (409 ConditionalRequestConflict); that passes at once."""


class ObjectStat(NamedTuple):
    """Size and time of an object, under the names of ``os.stat_result``."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True, slots=True)
class ObjectPath:
    """The name of an object, or of all objects whose names begin with it and a slash.

    Methods are those of ``pathlib.Path``. They raise FileNotFoundError and FileExistsError as it does, LocalError if
    the bucket does not exist or the environment has no credentials, RemoteError if the store refuses these, and
    Unreachable if it cannot be reached.
    """

    root: str
    """Scheme and bucket, such as ``s3://lake``."""
    key: str

    @classmethod
    def parse(cls, url: str) -> ObjectPath:
        """Return the path of a URL such as ``s3://bucket/tables/flights``."""
        scheme, _, rest = url.partition("://")
        bucket, _, key = rest.partition("/")
        return cls(f"{scheme}://{bucket}", "/".join(part for part in key.split("/") if part))

    def __str__(self) -> str:
        return f"{self.root}/{self.key}" if self.key else self.root

    def __truediv__(self, name: str) -> ObjectPath:
        return ObjectPath(self.root, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The last part of the name."""
        return self.key.rpartition("/")[2]

    @property
    def parent(self) -> ObjectPath:
        """The name without its last part."""
        return ObjectPath(self.root, self.key.rpartition("/")[0])

    @property
    def parents(self) -> list[ObjectPath]:
        """All parents, the nearest one first."""
        parts = self.key.split("/")[:-1]
        return [ObjectPath(self.root, "/".join(parts[:count])) for count in range(len(parts), -1, -1)]

    def exists(self) -> bool:
        """Return whether there is such an object, or one below it."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Return whether there is such an object."""
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_dir(self) -> bool:
        """Return whether there are objects below this name."""
        return next(self.walk(), None) is not None

    def stat(self) -> ObjectStat:
        """Return size and time of the object."""
        obstore = import_obstore(self)
        with self._translate_errors():
            held = obstore.head(self._store, self.key)
        return ObjectStat(held["size"], int(held["last_modified"].timestamp() * 1_000_000_000))

    def iterdir(self) -> Iterator[ObjectPath]:
        """Yield the names directly below this one."""
        obstore = import_obstore(self)
        with self._translate_errors():
            held = obstore.list_with_delimiter(self._store, self.key or None)
        for key in (*held["common_prefixes"], *(one["path"] for one in held["objects"])):
            yield ObjectPath(self.root, str(key))

    def glob(self, pattern: str) -> Iterator[ObjectPath]:
        """Yield the objects directly below this name that match a pattern without slashes."""
        return (path for path in self.iterdir() if fnmatchcase(path.name, pattern))

    def walk(self, after: str = "") -> Iterator[tuple[str, int]]:
        """Yield relative name and size of every object below this name, in order; only those after ``after``."""
        obstore = import_obstore(self)
        lead = f"{self.key}/" if self.key else ""
        with self._translate_errors():
            for page in obstore.list(
                self._store, self.key or None, offset=f"{lead}{after}" if after else None, chunk_size=PAGE
            ):
                for one in page:
                    name = one["path"].removeprefix(lead)
                    # Azurite and fake-gcs-server list all names, and ignore the name after which to begin
                    if name > after:
                        yield name, one["size"]

    def read_bytes(self) -> bytes:
        """Return the object."""
        obstore = import_obstore(self)
        with self._translate_errors():
            return bytes(obstore.get(self._store, self.key).bytes())

    def write_bytes(self, data: bytes) -> None:
        """Put the object, replacing an existing one; it is durable on return."""
        obstore = import_obstore(self)
        with self._translate_errors():
            obstore.put(self._store, self.key, data, use_multipart=False)

    def create_bytes(self, data: bytes) -> None:
        """Put the object unless there is one. Raises FileExistsError if there is one with other bytes.

        An object with the same bytes counts as ours: the response to an earlier attempt to put it may have been lost.
        """
        obstore = import_obstore(self)
        for left in reversed(range(CREATE_ATTEMPTS)):
            try:
                with self._translate_errors():
                    obstore.put(self._store, self.key, data, mode="create", use_multipart=False)
                return
            except (FileExistsError, Unreachable) as error:
                try:
                    if self.read_bytes() == data:
                        return
                except FileNotFoundError:
                    if left and isinstance(error, FileExistsError):
                        # another put was under way (S3's 409 ConditionalRequestConflict), and nothing came of it
                        continue
                except Unreachable:
                    pass
                raise

    def replace(self, target: ObjectPath) -> None:
        """Copy the object within its store, then delete it: ``target`` appears whole."""
        obstore = import_obstore(self)
        with self._translate_errors():
            obstore.copy(self._store, self.key, target.key)
        # a request that is repeated as its response was lost finds nothing, which Google and Azure say
        self.unlink(missing_ok=True)

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete the object."""
        obstore = import_obstore(self)
        try:
            with self._translate_errors():
                obstore.delete(self._store, self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise

    def create_file(self) -> ObjectWriter:
        """Begin the object, which appears when it is complete."""
        obstore = import_obstore(self)
        with self._translate_errors():
            return ObjectWriter(self, obstore.open_writer(self._store, self.key, buffer_size=PART_BYTES))

    def open_reader(self, size_bytes: int | None = None) -> io.BufferedReader:
        """Return the object as a file to read; a size that is known, as from ``walk``, saves asking for it."""
        return io.BufferedReader(
            _ObjectReader(self, self.stat().st_size if size_bytes is None else size_bytes), TAIL_BYTES
        )

    def read_range(self, start: int, end: int) -> bytes:
        """Return a part of the object."""
        obstore = import_obstore(self)
        with self._translate_errors():
            return bytes(obstore.get_range(self._store, self.key, start=start, end=end))

    @property
    def _store(self) -> Any:
        from obstore.exceptions import BaseError

        access = find_access(str(self))
        try:
            # connections do not outlive a fork
            return _open_store(self.root, os.getpid(), access)
        except (BaseError, ValueError) as error:
            # nothing was asked of the store yet
            raise object_errors.unreadable_error(str(self), error) from None

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        exceptions = import_obstore(self).exceptions

        try:
            yield
        except FileNotFoundError as error:
            if object_errors.is_missing_bucket(error):
                raise object_errors.missing_bucket_error(str(self)) from None
            raise FileNotFoundError(2, "there is no such object", str(self)) from None
        except exceptions.AlreadyExistsError:
            raise FileExistsError(17, "the object exists already", str(self)) from None
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise object_errors.refused_error(str(self), error) from None
        except exceptions.BaseError as error:
            raise self.store_error(error) from None

    def store_error(self, error: Exception) -> LadingError:
        """Return the sentence for an error that a library raised when it reached for this object."""
        return object_errors.store_error(str(self), error)


TablePath = Path | ObjectPath
"""The location of a table: a directory, or names on an object store."""


class ObjectWriter(io.RawIOBase):
    """An object that is being written: it appears when ``complete`` is called, and never if that is not."""

    def __init__(self, path: ObjectPath, file: WritableFile) -> None:
        super().__init__()
        self._path = path
        self._file: WritableFile | None = file

    def writable(self) -> bool:
        """Return True (io.RawIOBase)."""
        return True

    def write(self, data: Any) -> int:
        """Take all of ``data``; parts are sent as they fill."""
        view = memoryview(data)
        with self._path._translate_errors():
            assert self._file is not None
            self._file.write(view)
        return len(view)

    def complete(self) -> None:
        """Send the rest: the object is durable when this returns."""
        file, self._file = self._file, None
        if file is not None:
            with self._path._translate_errors():
                file.close()


class _ObjectReader(io.RawIOBase):
    def __init__(self, path: ObjectPath, size_bytes: int) -> None:
        super().__init__()
        self._path = path
        self._size_bytes = size_bytes
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size_bytes}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size_bytes - self._at)
        if count <= 0:
            return 0
        buffer[:count] = self._path.read_range(self._at, self._at + count)
        self._at += count
        return count


@lru_cache(maxsize=64)
def _open_store(root: str, process: int, access: StoreAccess) -> Any:
    from obstore.store import S3Store, from_url

    scheme, _, bucket = root.partition("://")
    options: dict[str, Any] = {"config": dict(access.options), "retry_config": RETRIES}
    if access.allows_http:
        options["client_options"] = {"allow_http": True}
    # from_url does not know the address of S3 alone, which counts more than that of all services (obstore 0.12)
    return S3Store(bucket, **options) if scheme == "s3" else from_url(root, **options)


def storage_options(path: ObjectPath) -> dict[str, str]:
    """Return options for a store besides the environment: those of ``[storage]``, read now, and whether TLS is off."""
    access = find_access(str(path))
    return {**access.options, **({"allow_http": "true"} if access.allows_http else {})}


def import_obstore(path: ObjectPath) -> Any:
    """Return the library of object stores. Raises LocalError if it is not installed."""
    try:
        import obstore
    except ImportError:
        raise LocalError(f"{path}: object stores need the package obstore; {describe_install('objects')}") from None
    return obstore
