"""Small files of a table written as larger ones, in the order of some columns, while others write the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ...columns.contract import did_you_mean
from ...model.errors import LocalError
from ..formats.data_files import FILE_BYTES
from ..formats.interface import Listing, LiveFile, Overtaken, Replacement, Table
from .rewrite import StagedRewrite
from .shape import plan_groups

ORDER: Final = ("stream", "topic", "partition", "offset")
"""Columns by which rows are ordered unless others are named; those that a table does not have are left out."""
COMMIT_BYTES: Final = 1 << 30
COMMIT_GROUPS: Final = 64
"""A commit replaces about this many bytes or groups of files: what is done stays done if the rest fails."""
ROUNDS: Final = 5
"""Plans are made anew at most this many times when other writers replace the same files."""
UPKEEP: Final = "lading.upkeep"
"""The fact in a log that says what a commit of upkeep did."""


@dataclass
class OptimizeReport:
    """Files that an optimize replaced and wrote."""

    removed_files: int = 0
    added_files: int = 0
    rows: int = 0
    size_bytes: int = 0
    commits: int = 0


def optimize_table(
    table: Table,
    *,
    target_bytes: int = FILE_BYTES,
    sort_by: Sequence[str] = ORDER,
    partition: str | None = None,
    on_progress: Callable[[OptimizeReport], None] = lambda report: None,
    check: Callable[[], None] = lambda: None,
) -> OptimizeReport:
    """Write small files of each partition as larger ones, in the order of ``sort_by``; rows stay the same.

    Memory is bounded, whatever the size of the table. Others may append to it, replace its files, and optimize it
    meanwhile: a commit that they overtake is planned anew. ``check`` may raise between two groups of files: commits
    that were made stay.
    """
    report = OptimizeReport()
    if sort_by is not ORDER:
        _require_columns(table, sort_by)
    for left in reversed(range(ROUNDS)):
        listing = table.list_files()
        plain = listing.files if table.reads_deleted_rows else [file for file in listing.files if not file.has_deletes]
        groups = list(plan_groups(Listing(plain, listing.snapshot), target_bytes, partition))
        try:
            for bunch in _bunch_groups(groups):
                with StagedRewrite(table, target_bytes) as rewrite:
                    rows = 0
                    for group in bunch:
                        check()
                        rows += rewrite.write(listing, group, sort_by=sort_by)
                    removed = [file for group in bunch for file in group]
                    change = Replacement(removed, rewrite.files, {UPKEEP: "optimize"}, changes_rows=False)
                    rewrite.replace(listing, change)
                report.removed_files += len(removed)
                report.added_files += len(rewrite.files)
                report.rows += rows
                report.size_bytes += sum(file.size_bytes for file in rewrite.files)
                report.commits += 1
                on_progress(report)
        except Overtaken:
            if not left:
                raise
        else:
            return report
    raise AssertionError("the last round returns or raises")


def _require_columns(table: Table, names: Sequence[str]) -> None:
    """Raise LocalError if no file of the table has a column of this name; a table without files accepts any name."""
    listing = table.list_files()
    known = dict[str, None]()
    for file in listing.files:
        known |= dict.fromkeys(table.read_partition(file))
        for batch in table.read_file(listing, file):
            known |= dict.fromkeys(batch.schema.names)
            break
        if known.keys() >= set(names):
            return
    missing = next((name for name in names if name not in known), None)
    if missing is not None and known:
        raise LocalError(
            f"--sort-by {missing}: the table {table.directory} has no such column{did_you_mean(missing, known)}; "
            f"name some of {', '.join(known)}"
        )


def _bunch_groups(groups: Sequence[Sequence[LiveFile]]) -> Iterator[Sequence[Sequence[LiveFile]]]:
    bunch: list[Sequence[LiveFile]] = []
    size_bytes = 0
    for group in groups:
        bunch.append(group)
        size_bytes += sum(file.size_bytes for file in group)
        if size_bytes >= COMMIT_BYTES or len(bunch) >= COMMIT_GROUPS:
            yield bunch
            bunch, size_bytes = [], 0
    if bunch:
        yield bunch
