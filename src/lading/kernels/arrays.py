"""The arrays that kernels and their fallbacks take, named by what they hold; importing this imports no Numba."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Kinds = NDArray[np.int8]
Ints = NDArray[np.int32]
"""Arrow's ends of values: those of row ``n`` are ``ends[n]`` and ``ends[n + 1]``."""
Shorts = NDArray[np.uint16]
Checksums = NDArray[np.uint32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Floats = NDArray[np.float64]
Table = NDArray[np.int64]
"""Two dimensions, one row for each thing; a layout names the columns."""
IntTable = NDArray[np.int32]
KindTable = NDArray[np.int8]
