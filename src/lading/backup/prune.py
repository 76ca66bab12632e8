"""Deleting old backups, and the segments that no backup needs any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..model.errors import CorruptLog, LocalError, NewerFormat
from .point import ARCHIVE_SUFFIX, DOCUMENT_SUFFIX, POINT_NAME, POINTS, SEGMENTS, BackupPoint, list_points, read_point
from .store import BackupStore

UNLISTED_US: Final = 86_400_000_000
"""How long a segment that no backup lists is kept: a running backup, or the next one, may be about to list it."""


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """Backups to keep and to delete, oldest first, and the files to delete, in the order of their deletion."""

    kept: list[str]
    removed: list[str]
    files: list[str]
    segments: int
    """How many of the files are segments."""
    freed_bytes: int


def plan_prune(store: BackupStore, *, keep: int | None, newer_than_us: int | None, now_us: int) -> PrunePlan:
    """Plan which backups to delete: the ``keep`` newest are kept, and those not older than ``newer_than_us``.

    The newest backup is always kept, and so are all segments that a kept backup lists. Writes nothing.

    Raises LocalError if the store has no backup, CorruptLog if the document of a kept backup is damaged, because its
    segments are then unknown, and NewerFormat if a newer version of Lading wrote one, because it may need other files
    too.
    """
    names = list_points(store)
    newest = read_point(store).name
    lately = now_us - newer_than_us if newer_than_us is not None else now_us + 1
    last = names[len(names) - keep :] if keep is not None else []
    kept = [name for name in names if name == newest or name in last or _parse_time_us(store, name) >= lately]
    removed = [name for name in names if name not in kept]
    needed = {segment for name in kept for segment in _segments_of(read_point(store, name))}
    listed: set[str] = set()
    for name in removed:
        try:
            listed |= set(_segments_of(read_point(store, name)))
        except NewerFormat:
            raise
        except CorruptLog:
            # its segments are those that no backup lists
            continue
    unlisted_us = now_us - UNLISTED_US
    segments = [
        name
        for name in _segments_in(store)
        if name not in needed and (name in listed or store.mtime_us(name) < unlisted_us)
    ]
    # delete documents first: a backup exists by its document, so an interruption never leaves an incomplete backup
    files = [f"{POINTS}/{name}{suffix}" for suffix in (DOCUMENT_SUFFIX, ARCHIVE_SUFFIX) for name in removed]
    files += segments
    return PrunePlan(kept, removed, files, len(segments), sum(store.size_bytes(name) or 0 for name in files))


def prune(
    store: BackupStore,
    *,
    keep: int | None,
    newer_than_us: int | None,
    now_us: int,
    agree: Callable[[PrunePlan], None] = lambda plan: None,
) -> PrunePlan:
    """Delete what ``plan_prune`` finds. ``agree`` is called before and raises if the plan is not wanted.

    An interrupted call leaves whole backups only; later ones, and backups, delete the rest. Raises LocalError also if a
    backup is being written to the store. OSError if the disk or the object store fails.
    """
    # before the lock, which would create a missing directory
    read_point(store)
    with store.lock():
        plan = plan_prune(store, keep=keep, newer_than_us=newer_than_us, now_us=now_us)
        agree(plan)
        for name in plan.files:
            store.remove(name)
    return plan


def _parse_time_us(store: BackupStore, name: str) -> int:
    try:
        return round(datetime.strptime(name, POINT_NAME).replace(tzinfo=UTC).timestamp() * 1e6)
    except ValueError:
        raise LocalError(
            f"backup {store.url}: {POINTS}/{name}{DOCUMENT_SUFFIX} is not the name of a backup; move it away"
        ) from None


def _segments_of(point: BackupPoint) -> Iterator[str]:
    return (file.segment for file in point.files if file.segment is not None)


def _segments_in(store: BackupStore) -> Iterator[str]:
    for place in store.names(SEGMENTS):
        yield from (f"{SEGMENTS}/{place}/{name}" for name in store.names(f"{SEGMENTS}/{place}"))
