"""Checking payloads against the CRC-32 that came with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..kernels import engine
from . import fallback

if TYPE_CHECKING:
    import pyarrow as pa

KERNEL_MODULE = "lading.transports.kernels"


def mismatches(payload: pa.Array[Any], checksum: pa.Array[Any]) -> NDArray[np.int64]:
    """Return the rows whose payload has another CRC-32 than ``checksum``; null payloads and null checksums are not
    checked.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = np.empty(len(payload), np.int64)
    if checksum.null_count == len(checksum):
        return rows[:0]
    offsets: Any
    held: Any
    _, offsets, held = payload.buffers()
    ends = np.frombuffer(offsets, np.int32)[payload.offset : payload.offset + len(payload) + 1]
    data = np.frombuffer(held, np.uint8) if held is not None and held.size else np.zeros(1, np.uint8)
    judged = pc.and_(payload.is_valid(), checksum.is_valid()).cast(pa.uint8()).to_numpy(zero_copy_only=False)
    sums = checksum.fill_null(0).to_numpy(zero_copy_only=False)
    kernels = engine.select(KERNEL_MODULE, fallback, int(ends[-1] - ends[0]))
    return rows[: kernels.find_mismatches(data, ends, judged, sums, rows)]
