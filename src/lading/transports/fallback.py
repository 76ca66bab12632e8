"""The transports' kernels as plain Python, same names and signatures."""

from __future__ import annotations

import zlib

import numpy as np
from numpy.typing import NDArray


def find_mismatches(
    data: NDArray[np.uint8],
    ends: NDArray[np.int32],
    judged: NDArray[np.uint8],
    checksums: NDArray[np.uint32],
    rows: NDArray[np.int64],
) -> int:
    """Write the rows that are ``judged`` and whose bytes have another CRC-32 into ``rows``; return their number.

    The bytes of a row are ``data[ends[row] : ends[row + 1]]``.
    """
    found = 0
    for row in range(len(checksums)):
        if judged[row] and zlib.crc32(data[ends[row] : ends[row + 1]].data) != checksums[row]:
            rows[found] = row
            found += 1
    return found
