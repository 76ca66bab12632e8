"""The client's kernels as plain Python, same names and signatures."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def spread(
    ends: NDArray[np.int32],
    data: NDArray[np.uint8],
    place: int,
    width: int,
    places: NDArray[np.int32],
    target: NDArray[np.uint8],
) -> None:
    """Put the values of a column where they belong among those of ``width`` columns that lie row by row.

    Value ``row`` begins at ``data[ends[row]]``, and in ``target`` it is number ``row * width + place`` of those that
    ``places`` bounds; that has no bytes for it where it is null.
    """
    for row in range(len(ends) - 1):
        to, end = places[row * width + place : row * width + place + 2].tolist()
        target[to:end] = data[ends[row] : ends[row] + end - to]
