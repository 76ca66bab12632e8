"""Files and directories for their owner alone, with mode 0600 and 0700 whatever the umask is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600


def make_private_directory(directory: Path) -> None:
    """Create ``directory`` for its owner alone; one that exists stays as it is.

    Missing parents are made in the same way: ``Path.mkdir`` would give them what the umask leaves.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        create_directory(path, exist_ok=True)


def create_directory(path: Path, *, exist_ok: bool = False) -> None:
    """Create one directory for its owner alone. Raises FileExistsError for one that exists, unless ``exist_ok``."""
    try:
        path.mkdir(mode=DIRECTORY_MODE)
    except FileExistsError:
        if not exist_ok or not path.is_dir():
            raise
        return
    if stat.S_IMODE(path.stat().st_mode) & DIRECTORY_MODE != DIRECTORY_MODE:
        # the umask took rights of the owner
        path.chmod(DIRECTORY_MODE)


def open_private(path: str | Path, flags: int) -> int:
    """Open a file, or create it for its owner alone: an ``opener`` of ``open``. An existing file keeps its mode."""
    handle = os.open(path, flags, FILE_MODE)
    if flags & os.O_CREAT:
        found = os.fstat(handle)
        if found.st_mode & FILE_MODE != FILE_MODE and not found.st_size and found.st_uid == os.geteuid():
            # a new file, if the umask took away rights of the owner
            os.fchmod(handle, FILE_MODE)
    return handle


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file that exists whole or not at all, for its owner alone; on disk on return. Raises OSError.

    It is written next to ``path`` first, as a new file: a link of that name, which another user may have put into a
    shared directory, is deleted and not followed.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with open(open_private(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_names(path.parent)


def sync_names(directory: Path) -> None:
    """Sync a directory, so that the names in it are durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
