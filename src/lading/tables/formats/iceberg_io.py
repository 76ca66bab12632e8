"""Files of an Iceberg table's metadata, on disk before a catalog names them: pyiceberg leaves that to the system."""

from __future__ import annotations

import io
import os
from pathlib import Path

from pyiceberg.io import OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ..files import sync_directory

LOCAL = ("", "file")


class SyncedStream(io.BufferedWriter):
    """A file that is on disk, with its name, when it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        super().__init__(io.FileIO(path, "w" if overwrite else "x"))

    def close(self) -> None:
        """Write the rest, and wait for the disk; again is no error."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_directory(self._path.parent)


class SyncedFile(PyArrowFile):
    """A file of a local directory."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Begin the file; FileExistsError if there is one, unless ``overwrite``."""
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedStream(path, overwrite=overwrite)


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's own way to files, but that local ones are synced; catalogs find it by its name."""

    def new_output(self, location: str) -> PyArrowFile:
        """Return what writes a file at ``location``."""
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme in LOCAL:
            return SyncedFile(location=location, path=path, fs=self.fs_by_scheme(scheme, netloc))
        return super().new_output(location)
