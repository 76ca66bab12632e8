"""Kernels of the transports; the fallbacks in ``fallback.py`` say what they do."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Checksums, Ints, Longs
from lading.kernels.signature import BYTES, INTS, LONG, OUT_LONGS, UINT32S, kernel

from ..kernels import crc32 as checksum

_crc32 = checksum.crc32


@kernel(LONG(BYTES, INTS, BYTES, UINT32S, OUT_LONGS))
def find_mismatches(data: Bytes, ends: Ints, judged: Bytes, checksums: Checksums, rows: Longs) -> int:
    # in bounds: Arrow's ends lie inside their data
    found = 0
    for row in range(checksums.size):
        start = ends[row]
        if judged[row] and _crc32(data, start, ends[row + 1] - start) != checksums[row]:
            rows[found] = row
            found += 1
    return found
