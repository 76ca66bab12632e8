"""Kernels of the transports; the twins in ``fallback.py`` say what they do."""

from __future__ import annotations

from typing import Any

from numba import njit, types

from ..kernels import crc32 as checksum

_crc32 = checksum.crc32


def _read(item: Any) -> Any:
    return types.Array(item, 1, "C", readonly=True)


@njit(
    types.int64(_read(types.uint8), _read(types.int32), _read(types.uint8), _read(types.uint32), types.int64[::1]),
    nogil=True,
    cache=True,
)
def find_mismatches(data: Any, ends: Any, judged: Any, checksums: Any, rows: Any) -> Any:
    found = 0
    for row in range(checksums.size):
        start = ends[row]
        if judged[row] and _crc32(data, start, ends[row + 1] - start) != checksums[row]:
            rows[found] = row
            found += 1
    return found
