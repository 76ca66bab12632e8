"""Commits of ours that another writer took back: a RESTORE of a Delta table, an Iceberg table set to an older snapshot.

The facts that a log keeps for a pipeline, the number of its last manifest, survive both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from ...model.errors import LocalError

PIPELINE, MANIFEST, FILES = "lading.pipeline", "lading.manifest", "lading.files"
"""Facts that the log keeps with a commit: its pipeline, its number, the hash of the names and hashes of its files."""
PUT_BACK: Final = "lading.put_back"
"""The property of a commit that shows batches again: their numbers."""
LOOKED_AT: Final = 2
"""This many of our newest commits are searched for: a change that overtook the last one is between them."""


class LoggedCommit(NamedTuple):
    """A commit as its log notes it."""

    notes: Mapping[str, Any]
    in_table: bool | None
    """Whether the table is made of it; None if the log does not say any more."""
    by: str = ""
    """Description of the commit that took it back."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Manifests of which the table has lost the commits, and what did that, in words."""

    numbers: tuple[int, ...]
    committed: int
    """The last manifest that the log has had."""
    by: str


class RolledBack(LocalError):
    """A batch cannot be committed to a table that another writer took back to before the last one."""

    def __init__(self, rollback: Rollback) -> None:
        super().__init__(f"{rollback.by} took back manifests {', '.join(map(str, rollback.numbers))}")
        self.rollback = rollback


def find_rollback(commits: Iterable[LoggedCommit], pipeline: str, committed: int) -> Rollback | None:
    """Return what of a pipeline's commits was taken back, given the commits of a log from the newest on.

    ``committed`` is the number of the last manifest that the log has had. Commits that a log no longer lists are not
    reported.
    """
    there, gone, by, found = set[int](), set[int](), "by a commit that its log has no more", 0
    for notes, in_table, taken_back_by in commits:
        numbers = _numbers_in(notes, pipeline)
        if not numbers:
            continue
        if in_table:
            there |= numbers
            found += 1
        elif in_table is not None and numbers - there:
            gone |= numbers
            by = taken_back_by
        if found == LOOKED_AT:
            break
    # commits that were taken back may be forgotten sooner than those that are older
    gone |= set(range(max(there) + 1, committed + 1)) if there else set()
    return Rollback(tuple(sorted(gone - there)), committed, by) if gone - there else None


def _numbers_in(notes: Mapping[str, Any], pipeline: str) -> set[int]:
    if notes.get(PIPELINE) != pipeline:
        return set()
    return {int(notes[MANIFEST]), *map(int, str(notes.get(PUT_BACK, "")).split())}
