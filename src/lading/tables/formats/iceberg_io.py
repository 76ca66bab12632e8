"""Files of an Iceberg table's metadata, durable before a catalog names them: pyiceberg leaves that to the system.

Those on object stores go the way of the table's own files, with their retries and their errors.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from pyiceberg.io import InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from ..storage.files import sync_directory
from ..storage.object_path import SCHEMES, ObjectPath

LOCAL = ("", "file")


class SyncedStream(io.BufferedWriter):
    """A file that is on disk, with its name, when it is closed."""

    def __init__(self, path: Path, *, overwrite: bool) -> None:
        self._path = path
        super().__init__(io.FileIO(path, "w" if overwrite else "x"))

    def close(self) -> None:
        """Write the rest, and wait for the disk; a second call does nothing."""
        if not self.closed:
            self.flush()
            os.fsync(self.fileno())
            super().close()
            sync_directory(self._path.parent)


class SyncedFile(PyArrowFile):
    """A file of a local directory."""

    def create(self, overwrite: bool = False) -> OutputStream:
        """Begin the file. Raises FileExistsError if there is one already, unless ``overwrite``."""
        path = Path(self._path)
        path.parent.mkdir(parents=True, exist_ok=True)
        return SyncedStream(path, overwrite=overwrite)


class ObjectStream(io.BytesIO):
    """An object that is put whole when it is closed."""

    def __init__(self, path: ObjectPath, *, overwrite: bool) -> None:
        super().__init__()
        self._path = path
        self._overwrite = overwrite

    def close(self) -> None:
        """Put the object; a second call does nothing. Raises FileExistsError if there is another one."""
        if not self.closed:
            data = self.getvalue()
            super().close()
            if self._overwrite:
                self._path.write_bytes(data)
            else:
                self._path.create_bytes(data)


class ObjectFile(InputFile, OutputFile):
    """An object of a table, as pyiceberg reads and writes files."""

    def __init__(self, location: str) -> None:
        super().__init__(location)
        self._object = ObjectPath.parse(location)

    def __len__(self) -> int:
        """Return its size in bytes."""
        return self._object.stat().st_size

    def exists(self) -> bool:
        """Return whether there is such an object."""
        return self._object.is_file()

    def open(self, seekable: bool = True) -> InputStream:
        """Open it for reading."""
        return self._object.open_reader()

    def to_input_file(self) -> InputFile:
        """Return itself."""
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        """Begin the object. Raises FileExistsError at its end if there is one already, unless ``overwrite``."""
        return ObjectStream(self._object, overwrite=overwrite)


class SyncedFileIO(PyArrowFileIO):
    """pyiceberg's own way to files, but that they are durable when they are closed; catalogs find it by its name."""

    def new_input(self, location: str) -> Any:
        """Return what reads the file at ``location``."""
        return ObjectFile(location) if _is_object(location) else super().new_input(location)

    def delete(self, location: Any) -> None:
        """Delete a file."""
        name = location if isinstance(location, str) else location.location
        if _is_object(name):
            ObjectPath.parse(name).unlink(missing_ok=True)
        else:
            super().delete(location)

    def new_output(self, location: str) -> Any:
        """Return what writes a file at ``location``."""
        if _is_object(location):
            return ObjectFile(location)
        scheme, netloc, path = self.parse_location(location, self.properties)
        if scheme in LOCAL:
            return SyncedFile(location=location, path=path, fs=self.fs_by_scheme(scheme, netloc))
        return super().new_output(location)


def _is_object(location: str) -> bool:
    return location.partition("://")[0] in SCHEMES
