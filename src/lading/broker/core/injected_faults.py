"""Faults that a test asks for: refused appends, a full disk. Only in a broker that is started for it."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...log.disk import Data, File, RealDisk
from ...model.errors import Reason, Refusal

if TYPE_CHECKING:
    from ...log.catalog import Catalog
    from ...log.catalog_schema import CatalogRecordKind
    from .append.append import Appender
    from .pending_append import Append


class InjectedFaults:
    """The operations of a broker that are to fail; used from its thread."""

    def __init__(self, disk: RealDisk) -> None:
        """``disk`` is the broker's disk."""
        self.appends_to_refuse = 0
        """How many of the next appends are refused: an append is a request, or its part for one partition."""
        self.disk_is_full = False
        """Whether neither the files of the log nor the catalog take a byte."""
        self.disk = FillableDisk(self, disk)

    def install(self, appender: Appender, catalog: Catalog) -> None:
        """Make both refuse the operations that are to fail; called before endpoints start."""
        append = appender.append

        def append_unless_refused(*arguments: Any) -> Append:
            if self.appends_to_refuse:
                self.appends_to_refuse -= 1
                # the reason after which clients of every protocol send again
                raise Refusal(Reason.DISK_FULL, f"a test has this refused; {self.appends_to_refuse} more will be")
            return append(*arguments)

        # callers look the method up at each append, and so get this one
        appender.append = append_unless_refused  # type: ignore[method-assign,assignment]
        write = catalog.write

        @contextmanager
        def write_unless_full(*kinds: CatalogRecordKind) -> Iterator[sqlite3.Connection]:
            with write(*kinds) as db:
                yield db
                if self.disk_is_full:
                    # as SQLite says it when it commits
                    error = sqlite3.OperationalError("database or disk is full")
                    error.sqlite_errorcode = sqlite3.SQLITE_FULL
                    raise error

        catalog.write = write_unless_full  # type: ignore[method-assign]


class FillableDisk(RealDisk):
    """A disk of this machine, full when its owner says so."""

    def __init__(self, faults: InjectedFaults, disk: RealDisk) -> None:
        self._faults = faults
        self._disk = disk
        self.is_durable = disk.is_durable

    def open(self, path: Path | str, *, write: bool = False) -> FillableFile:
        return FillableFile(self._disk.open(path, write=write), self._faults)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        self._disk.sync_paths(paths)


class FillableFile:
    """A file that takes no bytes while its disk is full."""

    __slots__ = ("_faults", "_file", "path")

    def __init__(self, file: File, faults: InjectedFaults) -> None:
        self.path = file.path
        self._file = file
        self._faults = faults

    def write(self, data: Data, at: int) -> None:
        if self._faults.disk_is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self._file.write(data, at)

    def size(self) -> int:
        return self._file.size()

    def data_end(self) -> int:
        return self._file.data_end()

    def read(self, at: int, size: int) -> bytes:
        return self._file.read(at, size)

    def map(self, size: int) -> NDArray[np.uint8]:
        return self._file.map(size)

    def resize(self, size: int) -> None:
        self._file.resize(size)

    def sync(self) -> None:
        self._file.sync()

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
