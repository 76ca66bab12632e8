"""Which files hold the rows of a partition: a function of offsets alone, so that every process cuts alike.

Files are cut at multiples of a few sizes. Rows that were read before are in few large files; the rest, up to the newest
offset, is in smaller ones, each of which is rendered once. No file is ever merged with another: the next snapshot names
the larger file in place of the smaller ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

STEPS: Final = (1, 16, 128)
"""Sizes of files, as parts of the largest one."""
SEAL_ROWS_MAX: Final = 1 << 20
SEAL_ROWS_MIN: Final = 1 << 10
SEAL_BYTES: Final = 128 << 20
"""The largest file holds about this size of messages."""


class RowRange(NamedTuple):
    """The rows of one file: offsets from ``first`` up to, not including, ``end`` of a partition."""

    partition: int
    first: int
    end: int


def choose_seal_rows(messages: int, size_bytes: int) -> int:
    """Return how many rows the largest files of a topic have, a power of two, by the present mean size of a message."""
    mean_bytes = max(1, size_bytes // messages) if messages else 128
    rows = SEAL_ROWS_MAX
    while rows > SEAL_ROWS_MIN and rows * mean_bytes > SEAL_BYTES:
        rows //= 2
    return rows


def cut_rows(partition: int, first: int, end: int, seal_rows: int) -> list[RowRange]:
    """Return the files of the rows [first, end): from each place the largest one whose border is reached."""
    cuts: list[RowRange] = []
    sizes = [seal_rows // step for step in STEPS]
    at = first
    while at < end:
        borders = ((at // size + 1) * size for size in sizes)
        stop = next((border for border in borders if border <= end), end)
        cuts.append(RowRange(partition, at, stop))
        at = stop
    return cuts
