"""Durable files: written whole, synced and renamed into place, or put on an object store; and the places of tables."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlsplit

from ...model.checked_document import FIELD as CHECKSUM
from ...model.checked_document import is_checksum, is_intact, pack_document
from ...model.errors import CorruptLog, NewerFormat, SettingError, directory_error
from ...runtime.private_files import create_directory, open_private, sync_names
from .object_path import SCHEMES, ObjectPath, ObjectWriter, TablePath

OWN: Final = "_lading"
"""The directory of Lading's own files in a table: readers skip names that begin with an underscore."""
STAGED: Final = "staged"


_DRIVES: Final = os.name == "nt"
_SCHEME: Final = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]{'+' if _DRIVES else '*'}):(.*)", re.DOTALL)
"""The scheme of a URL. A single letter is a drive on Windows; elsewhere it counts as a scheme, which does not exist."""
_STORE_SPELLINGS: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""Schemes of Hadoop and others, and what the same store is called here."""


def has_scheme(text: str) -> bool:
    """Return whether a place begins with a scheme such as ``s3:`` or ``file:``, and is not a plain directory."""
    return _SCHEME.fullmatch(text) is not None


def local_directory(name: str, target: str | Path) -> Path:
    """Return the directory of a state, or of a table on a file system. Raises SettingError for anything else."""
    if isinstance(target, Path) or not has_scheme(target):
        return Path(target).absolute()
    parts = urlsplit(target)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/"):
        return Path(unquote(parts.path))
    raise SettingError(
        f"{name} {target!r}: the state (checkpoint, manifests, lock) is kept in a directory of a file system, also if "
        "its table is on an object store; name a directory"
    )


def table_location(name: str, target: str | TablePath) -> TablePath:
    """Return the place of a table: a directory, or names on an object store. Raises SettingError for anything else."""
    if isinstance(target, ObjectPath | Path):
        return target if isinstance(target, ObjectPath) else target.absolute()
    text = str(target)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in SCHEMES:
        path = ObjectPath.parse(text)
        if not path.key or path.root.endswith("//"):
            raise SettingError(
                f"{name} {text!r}: name a bucket and a prefix below it, such as {scheme}://BUCKET/flights"
            )
        return path
    spelling = _STORE_SPELLINGS.get(scheme.lower(), scheme.lower())
    if separator and spelling in SCHEMES:
        raise SettingError(f"{name} {text!r}: {scheme}:// is not supported; write {spelling}://{rest}")
    found = _SCHEME.fullmatch(text)
    if found is None or text.startswith("file:/"):
        return local_directory(name, text)
    raise _scheme_error(name, text, found[1].lower(), found[2])


def spell_location(text: str) -> str:
    """Return the location of a table as Lading writes it: a URL with the usual scheme of its store, or a path."""
    scheme, separator, rest = text.partition("://")
    if separator and scheme.lower() in _STORE_SPELLINGS:
        return f"{_STORE_SPELLINGS[scheme.lower()]}://{rest}"
    if text.lower().startswith("dbfs:"):
        return f"/dbfs/{text[5:].strip('/')}"
    return text


def _scheme_error(name: str, text: str, scheme: str, rest: str) -> SettingError:
    """Return the error for a scheme that is neither a store's nor a file system's."""
    if scheme == "file":
        return SettingError(f"{name} {text!r}: a file URL has an absolute path; write {rest or 'a directory'}")
    if scheme == "dbfs":
        place = spell_location(text)
        return SettingError(f"{name} {text!r}: write {place}, the directory where Databricks mounts it")
    remedy = (
        f"Let Spark's own sink write there: "
        f'spark.readStream.format("lading")….writeStream.format("parquet").start("{text}")'
        if rest.startswith("/") and len(scheme) > 1
        else f"For a directory of this name write ./{text}"
    )
    return SettingError(
        f"{name} {text!r}: tables are written to a directory, or to an object store ({', '.join(SCHEMES)}://…); "
        f"{scheme}:{'//' if rest.startswith('//') else ''} is neither. {remedy}"
    )


def name_from(state: Path, table: TablePath) -> str:
    """Return a table as manifests name it: a URL, or relative to the state directory, so that both can be moved."""
    return str(table) if isinstance(table, ObjectPath) else os.path.relpath(table, state)


def resolve_name(state: Path, name: str) -> TablePath:
    """Return the location of a table from its name as ``name_from`` returns it."""
    return ObjectPath.parse(name) if "://" in name else Path(os.path.normpath(state / name))


def move_file(source: TablePath, target: TablePath) -> None:
    """Give a staged file its published name: a rename, or on an object store a copy that appears whole."""
    if isinstance(source, ObjectPath):
        assert isinstance(target, ObjectPath)
        source.replace(target)
    else:
        assert isinstance(target, Path)
        source.replace(target)


def create_file(path: TablePath) -> io.RawIOBase:
    """Begin a file that does not exist yet; ``sync_file`` makes it durable."""
    return path.create_file() if isinstance(path, ObjectPath) else path.open("xb", buffering=0)


def sync_file(file: IO[bytes] | io.RawIOBase) -> None:
    """Sync the written bytes of a file to disk, or complete an object."""
    if isinstance(file, ObjectWriter):
        file.complete()
    else:
        os.fsync(file.fileno())


def make_local_directory(directory: Path) -> None:
    """Create a directory with its parents, unless it exists.

    Lading's own are for their owner alone, whatever the umask is. A table is for those whom the umask lets read it, as
    tables of other writers are.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        if OWN in path.parts:
            create_directory(path, exist_ok=True)
        else:
            path.mkdir(exist_ok=True)


def make_directory(what: str, directory: TablePath) -> None:
    """Create ``directory`` if it does not exist. Raises LocalError if it cannot be created or written to."""
    if isinstance(directory, ObjectPath):
        return check_directory(what, directory)
    try:
        make_local_directory(directory)
        tempfile.TemporaryFile(dir=directory).close()
    except OSError as error:
        raise directory_error(what, directory, error) from None


def check_directory(what: str, directory: TablePath) -> None:
    """Raise as ``make_directory``, without creating anything; a store is checked by listing it."""
    if isinstance(directory, ObjectPath):
        directory.is_dir()
        return
    place = next(parent for parent in (directory, *directory.parents) if os.path.lexists(parent))
    try:
        tempfile.TemporaryFile(dir=place).close()
    except OSError as error:
        raise directory_error(what, directory, error) from None


def delete_staged_files(table: TablePath, beginning: str, kept: Collection[str] = ()) -> None:
    """Delete the staged files of a table whose names begin with ``beginning``, except those in ``kept``."""
    paths: list[TablePath] = list((table / OWN / STAGED).glob(f"{beginning}*"))
    for path in paths:
        if path.name not in kept:
            path.unlink(missing_ok=True)


def remove_empty(*directories: TablePath) -> None:
    """Remove directories of a file system, in this order, as far as they exist and are empty."""
    for directory in directories:
        if isinstance(directory, Path):
            with suppress(OSError):
                directory.rmdir()


def delete_tree(directory: TablePath) -> None:
    """Delete a directory with all that is in it, or every object below a name."""
    if isinstance(directory, Path):
        shutil.rmtree(directory, ignore_errors=True)
        return
    for name, _ in list(directory.walk()):
        (directory / name).unlink(missing_ok=True)


def document_text(document: Any) -> str:
    """Return a JSON document as it is written: with a checksum of the file, unless it has a field of that name."""
    if CHECKSUM in document:
        return f"{json.dumps(document, indent=1)}\n"
    return pack_document(document).decode()


def write_document(path: TablePath, document: Any) -> None:
    """Write a JSON document to ``path``, replacing an existing one atomically; it is on disk on return.

    Raises OSError that names ``path``.
    """
    if isinstance(path, ObjectPath):
        path.write_bytes(document_text(document).encode())
        return
    draft = path.with_name(f".{path.name}.draft")
    try:
        with open(draft, "w", encoding="utf-8", opener=open_private) as file:
            file.write(document_text(document))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        # the errors of write and fsync do not name the file
        raise OSError(error.errno, error.strerror, str(path)) from None
    draft.replace(path)
    sync_directory(path.parent)


def create_document(path: TablePath, document: Any) -> bool:
    """Write a JSON document to ``path`` unless one exists; return whether it was written. It is on disk on return."""
    data = document_text(document).encode()
    if isinstance(path, ObjectPath):
        try:
            path.create_bytes(data)
        except FileExistsError:
            return False
        return True
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", suffix=".draft") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            return False
    sync_directory(path.parent)
    return True


DOCUMENT_VERSION: Final = 1
"""The version of every document; a later one is refused and left unchanged."""


def read_document(path: TablePath) -> Any:
    """Return the JSON document at ``path``, or None if the file does not exist.

    Raises CorruptLog if it cannot be read, or is not what was written; NewerFormat if a later Lading wrote it.
    """
    try:
        data = path.read_bytes()
        document = json.loads(data)
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
    if isinstance(document, dict) and is_checksum(document.get(CHECKSUM)):
        # older versions wrote none
        if not is_intact(data):
            raise CorruptLog(f"{path}: its checksum does not match, it was changed or damaged; restore it")
        del document[CHECKSUM]
    return document


def sync_directory(directory: TablePath) -> None:
    """Sync a directory, so that the names in it are durable; object stores need no sync."""
    if not isinstance(directory, ObjectPath):
        sync_names(directory)
