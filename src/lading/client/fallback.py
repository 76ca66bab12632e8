"""The client's kernels in plain Python, with the same names and signatures."""

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
    """Copy the values of one column into a target in which the values of ``width`` columns are stored row by row.

    Value ``row`` starts at ``data[ends[row]]``; in ``target`` it is number ``row * width + place`` among the values
    whose bounds are in ``places``. A null takes no bytes there.
    """
    for row in range(len(ends) - 1):
        to, end = places[row * width + place : row * width + place + 2].tolist()
        target[to:end] = data[ends[row] : ends[row] + end - to]
