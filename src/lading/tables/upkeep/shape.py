"""The shape of a table: its files by partition, and those that would be better as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ..formats.data_files import FILE_BYTES
from ..formats.interface import Listing, LiveFile, Table

SMALL_BYTES: Final = 16 << 20
"""A file below this size is small: reading it costs more than its rows."""
SMALL_FILES_MAX: Final = 100
"""More small files in a partition are worth a hint."""
FULL: Final = 0.75
"""A file of at least this share of the target size is not rewritten."""


@dataclass(frozen=True, slots=True)
class TableShape:
    """Files of a table as readers see them now."""

    form: str
    files: int
    size_bytes: int
    partitions: int
    small_files: int
    most_small_files: int
    """Small files in the partition that has the most of them."""
    files_after: int
    """Files after an optimize."""
    rewritten_bytes: int
    """Bytes that an optimize would write again."""


def measure_shape(table: Table, target_bytes: int = FILE_BYTES) -> TableShape:
    """Return the shape of a table, and what an optimize would make of it."""
    files = table.list_files().files
    small = defaultdict[str, int](int)
    for file in files:
        small[file.partition] += file.size_bytes < SMALL_BYTES
    groups = list(plan_groups(Listing(files), target_bytes))
    return TableShape(
        table.form, len(files), sum(file.size_bytes for file in files), len(small), sum(small.values()),
        max(small.values(), default=0), len(files) - sum(len(group) - 1 for group in groups),
        sum(file.size_bytes for group in groups for file in group),
    )  # fmt: skip


def plan_groups(listing: Listing, target_bytes: int, partition: str | None = None) -> Iterator[Sequence[LiveFile]]:
    """Yield files of one partition, at least two, that make one of about the target size, in the order of their names.

    With ``partition`` only files whose partition begins with it.
    """
    by_partition = defaultdict[str, list[LiveFile]](list)
    for file in listing.files:
        if file.size_bytes < target_bytes * FULL and (partition is None or _is_in(file.partition, partition)):
            by_partition[file.partition].append(file)
    for files in by_partition.values():
        group: list[LiveFile] = []
        size_bytes = 0
        for file in files:
            if group and size_bytes + file.size_bytes > target_bytes:
                if len(group) > 1:
                    yield group
                group, size_bytes = [], 0
            group.append(file)
            size_bytes += file.size_bytes
        if len(group) > 1:
            yield group


def _is_in(name: str, wanted: str) -> bool:
    return name == wanted or name.startswith(f"{wanted.rstrip('/')}/")
