"""A directory that one process owns: locked by what cannot be deleted, and closed to other users."""

from __future__ import annotations

import fcntl
import logging
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from ..model.errors import LocalError, directory_error
from .private_files import make_private_directory, open_private

LOG: Final = logging.getLogger("lading")
DATA_LOCK_FILE: Final = "lock"
"""The file of a data directory with the process id of its broker."""
WATCHED_NAMES: Final = ("topics", "catalog.sqlite")
"""Entries of a data directory that are created once and never replaced."""
OWN_NAMES: Final = frozenset({DATA_LOCK_FILE, "access.json", *WATCHED_NAMES})
"""Entries by which a present or former data directory is recognised."""
NAMES_SHOWN_MAX: Final = 3


@contextmanager
def lock_directory(directory: Path, lock_file: str) -> Iterator[int]:
    """Lock ``directory`` and a file in it while the block runs; yields the file's descriptor.

    Raises BlockingIOError if another process has one of the locks. The directory's own lock survives if the file is
    deleted; the file's lock keeps out older versions, which know only that one, and works on file systems that cannot
    lock directories. Both are the kernel's and end with the process.
    """
    around = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        handle = open_private(directory / lock_file, os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _lock_around(around)
            yield handle
        finally:
            os.close(handle)
    finally:
        os.close(around)


def _lock_around(handle: int) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        # network file systems lock files only
        LOG.debug("the directory itself cannot be locked: %s", error)


@contextmanager
def own_directory(directory: Path, lock_file: str, *, what: str, busy: LocalError) -> Iterator[None]:
    """Lock ``directory`` as long as the block runs, creating it if it is missing; ``what`` names it in errors.

    Raises ``busy`` if another process has the lock, LocalError if the directory cannot be created or written to.
    """
    with ExitStack() as held:
        try:
            make_private_directory(directory)
            held.enter_context(lock_directory(directory, lock_file))
        except BlockingIOError:
            raise busy from None
        except OSError as error:
            raise directory_error(what, directory, error) from None
        yield


def check_sharing(directory: Path) -> None:
    """Warn if other users may read ``directory``: an older version created it, or it is meant for them.

    Raises LocalError if they may write to it: a user who can replace files of a log can change every message. The
    process's own group does not count as another user: many systems give each user a group of their own, and make
    directories writable for it.
    """
    found = directory.stat()
    mode = stat.S_IMODE(found.st_mode)
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and found.st_gid != os.getegid()):
        raise LocalError(
            f"data directory {directory}: other users may write it (mode {mode:04o}); close it with "
            f"chmod go-rwx {directory}"
        )
    if mode & 0o077:
        LOG.warning(
            "data directory %s: other users may read it (mode %04o), though not its new files; close it with "
            "chmod go-rwx %s",
            directory, mode, directory,
        )  # fmt: skip


def check_contents(directory: Path) -> None:
    """Raise LocalError if ``directory`` holds files and none of them is Lading's: it belongs to something else.

    ``lading serve --data .`` in a home directory would write a log among its files. Hidden files and what a file
    system itself puts there do not count.
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except FileNotFoundError:
        return
    others = [name for name in names if not name.startswith(".") and name != "lost+found"]
    if others and not OWN_NAMES & {*names}:
        shown = ", ".join(map(repr, others[:NAMES_SHOWN_MAX])) + (", …" if len(others) > NAMES_SHOWN_MAX else "")
        raise LocalError(
            f"data directory {directory}: it holds other files ({shown}) and nothing of Lading; "
            "name an empty or a new directory"
        )


class DataDirectoryWatch:
    """Whether a data directory is still the one that the broker opened.

    After ``rm -rf`` the broker's open files take writes and syncs without an error, and nobody could ever read what was
    acknowledged since.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._identities: dict[Path, tuple[int, int]] = {}
        self.problem: str | None = None
        """The problem with the directory, as a sentence; None while it exists."""
        self.look()

    def look(self) -> str | None:
        """Check again; return the problem, which lasts until the process ends."""
        if self.problem is None:
            for path in (self._data, *(self._data / name for name in WATCHED_NAMES)):
                try:
                    found = path.stat()
                except FileNotFoundError:
                    identity = None
                except OSError:
                    # an error of the file system does not mean that the directory was deleted
                    continue
                else:
                    identity = found.st_dev, found.st_ino
                known = self._identities.get(path)
                if known is None and identity is not None:
                    self._identities[path] = identity
                elif known != identity:
                    self.problem = (
                        f"the data directory {self._data} was deleted or replaced while the broker ran: nothing more "
                        "is accepted, and what it held is lost; stop the broker, and start it on a restored backup"
                    )
                    break
        return self.problem


@contextmanager
def lock_data_directory(data: Path) -> Iterator[None]:
    """Own the data directory, created if missing. Raises LocalError with the pid if another process owns it.

    The lock is the kernel's and ends with the process, so that no stale lock remains; the pid is for people. Also
    raises LocalError for a directory that holds other files, or that other users may write to.
    """
    with ExitStack() as held:
        try:
            check_contents(data)
            make_private_directory(data)
            handle = held.enter_context(lock_directory(data, DATA_LOCK_FILE))
            check_sharing(data)
        except BlockingIOError:
            owner = (data / DATA_LOCK_FILE).read_text(errors="replace").strip() or "unknown"
            raise LocalError(
                f"the data directory {data} is in use by the broker with process id {owner}; "
                "stop that one, or give another directory with --data"
            ) from None
        except OSError as error:
            raise directory_error("data directory", data, error) from None
        os.ftruncate(handle, 0)
        with suppress(OSError):
            # a full disk stops no start: then only the pid is missing
            os.write(handle, f"{os.getpid()}\n".encode())
        yield
        os.ftruncate(handle, 0)
