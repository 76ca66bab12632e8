"""Header keys located in the ``headers`` column of a Batch, for dialects whose messages arrive as Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from lading.model.run import Located


def locate(headers: pa.Array[Any], keys: Sequence[str]) -> dict[str, Located]:
    """Locate the last value of each key in every message; ``headers`` may be a slice."""
    column: Any = headers
    ends: NDArray[np.int64] = column.offsets.to_numpy().astype(np.int64)
    entries = column.values.slice(ends[0], ends[-1] - ends[0])
    texts, kinds, values = (entries.field(part) for part in range(3))
    row_of_entry = np.repeat(np.arange(len(column)), np.diff(ends))
    value_ends, data = _binary(values)
    kind_codes: NDArray[np.int8] = kinds.to_numpy(zero_copy_only=False)
    is_null = values.is_null().to_numpy(zero_copy_only=False)
    found: dict[str, Located] = {}
    for key in dict.fromkeys(keys):
        same: Any = pc.equal(texts, pa.scalar(key, pa.string()))
        matches = np.flatnonzero(same.to_numpy(zero_copy_only=False))
        # assignment in entry order: the last occurrence stays
        last = np.full(len(column), -1, np.int64)
        last[row_of_entry[matches]] = matches
        present = last >= 0
        chosen = last[present]
        start, length = np.zeros(len(column), np.int64), np.full(len(column), -1, np.int64)
        kind = np.zeros(len(column), np.int8)
        start[present] = value_ends[chosen]
        length[present] = np.where(is_null[chosen], -2, value_ends[chosen + 1] - value_ends[chosen])
        kind[present] = kind_codes[chosen]
        found[key] = Located(data, start, length, kind)
    return found


def _binary(array: Any) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return ends (one more than values) and bytes of a binary array, which may be a slice."""
    _, ends, data = array.buffers()
    if ends is None or not len(array):
        return np.zeros(len(array) + 1, np.int64), np.empty(0, np.uint8)
    positions = np.frombuffer(ends, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return positions, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
