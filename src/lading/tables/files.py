"""Durable files: written whole, synced and renamed into place; and the targets that support it."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ..model.errors import CorruptLog, NewerFormat, SettingError, directory_error

OWN: Final = "_lading"
"""The directory of Lading's own files in a table: readers skip names that begin with an underscore."""
STAGED: Final = "staged"


def local_directory(name: str, target: str | Path) -> Path:
    """Return the directory of a table or state. Raises SettingError for an object store or another file system.

    What is published is renamed into place, and only a file system does that in one step.
    """
    text = str(target)
    if "://" not in text:
        return Path(text).absolute()
    parts = urlsplit(text)
    if parts.scheme == "file" and parts.netloc in ("", "localhost"):
        return Path(unquote(parts.path))
    raise SettingError(
        f"{name} {text!r}: tables are written to a directory of a file system, where a file is renamed in one step; "
        f"{parts.scheme}:// has no such rename. Name a directory, or let Spark's own sink write there: "
        f'spark.readStream.format("lading")….writeStream.format("parquet").start("{parts.scheme}://…")'
    )


def make_directory(what: str, directory: Path) -> None:
    """Create ``directory`` if it does not exist. Raises LocalError if it cannot be created or written to."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise directory_error(what, directory, error) from None


def check_directory(what: str, directory: Path) -> None:
    """Raise what ``make_directory`` would raise, without creating anything."""
    place = next(parent for parent in (directory, *directory.parents) if os.path.lexists(parent))
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise directory_error(what, directory, error) from None


def write_document(path: Path, document: Any) -> None:
    """Write a JSON document to ``path`` in place of what was there, in one step; it is on disk when this returns.

    Raises OSError that names ``path``.
    """
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # what write and fsync raise does not say where
        raise OSError(error.errno, error.strerror, str(path)) from None
    draft.replace(path)
    sync_directory(path.parent)


DOCUMENT_VERSION: Final = 1
"""The version of every document; a later one is refused and left unchanged."""


def read_document(path: Path) -> Any:
    """Return the JSON document at ``path``, or None if there is no file.

    Raises CorruptLog if it cannot be read, NewerFormat if a later Lading wrote it.
    """
    try:
        document = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except ValueError as error:
        raise CorruptLog(f"{path} is not a JSON document: {error}") from None
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is int and version > DOCUMENT_VERSION:
        raise NewerFormat(
            f"{path} was written by a later Lading (version {version}, this one knows {DOCUMENT_VERSION}); run that "
            "version"
        )
    return document


def sync_directory(directory: Path) -> None:
    """Bring the names in a directory to disk."""
    fd = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
