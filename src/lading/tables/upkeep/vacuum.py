"""Files that readers of a table need no more: snapshots that are forgotten, and files that are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from ...model.errors import LocalError, SettingError
from ..formats.directory import REPLACING, REPLACING_RANGE, list_file_names
from ..formats.interface import Table
from ..storage.files import OWN, STAGED
from ..storage.object_path import TablePath

DAY_S: Final = 86_400.0
KEPT_S: Final = 7 * DAY_S
"""The default age at which files that the table no longer lists are deleted."""
SAFE_S: Final = DAY_S
"""A smaller age is not safe: a reader may still be reading the table as it was this long ago."""


@dataclass(frozen=True, slots=True)
class UnusedFile:
    """A file that no snapshot of a table has, its size and its age."""

    path: TablePath
    size_bytes: int
    age_s: float


def require_safe_age(age_s: float, *, is_forced: bool) -> None:
    """Raise SettingError for an age at which a running reader may lose its files, unless ``is_forced``."""
    if age_s < SAFE_S and not is_forced:
        raise SettingError(
            f"--older-than {age_s / 3600:.3g}h: a reader that began before may still need these files; keep at least "
            f"{SAFE_S / 3600:.0f}h, or add --unsafe if no reader is at work"
        )


def find_unused_files(table: Table, age_s: float, now_s: float | None = None) -> Iterator[UnusedFile]:
    """Yield the files of at least this age that no snapshot of the table has, and staged files that were given up."""
    now_s = time.time() if now_s is None else now_s
    used = table.list_used_names()
    for path, name in _list_paths(table):
        if name in used:
            continue
        with suppress(FileNotFoundError):
            stat = path.stat()
            gone_s = now_s - (table.read_removal_time_s(name) or stat.st_mtime_ns / 1e9)
            if gone_s >= age_s:
                yield UnusedFile(path, stat.st_size, gone_s)


def vacuum_table(table: Table, age_s: float, *, is_forced: bool, dry_run: bool) -> list[UnusedFile]:
    """Delete the files that no reader needs any more; returns them. With ``dry_run`` nothing is deleted.

    Raises SettingError for an age that is not safe, unless ``is_forced``; LocalError if a run was interrupted between
    its manifest and the commit of its files, which nothing but that run knows.
    """
    require_safe_age(age_s, is_forced=is_forced)
    if (name := table.find_uncommitted()) is not None:
        raise LocalError(
            f"the table {table.directory}: {name} is not committed yet, as the run that wrote it was interrupted; let "
            "that ingest or pipeline run first, which commits it, then vacuum"
        )
    found = list(find_unused_files(table, age_s))
    for file in () if dry_run else found:
        file.path.unlink(missing_ok=True)
    names = table.vacuum_log(age_s, dry_run=dry_run)
    return [*found, *(UnusedFile(table.directory / name, 0, age_s) for name in names or ())]


def _list_paths(table: Table) -> Iterator[tuple[TablePath, str]]:
    """Yield the files of a table with their names, and of Lading's own directory those that upkeep made."""
    staged = f"{OWN}/{STAGED}/{REPLACING}"
    directory = table.directory
    for name in list(list_file_names(directory)):
        # files of a replaced range are for its own next run
        is_given_up = name.startswith(staged) and not name.startswith(f"{OWN}/{STAGED}/{REPLACING_RANGE}")
        if table.may_vacuum(name) or is_given_up:
            yield directory / name, name
