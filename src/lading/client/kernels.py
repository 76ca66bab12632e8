"""Kernels of the client; the twins in ``fallback.py`` say what they do."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from ..kernels.memory import base, memcpy

_int: Any = np.int64

_octets = types.Array(types.uint8, 1, "C", readonly=True)
_ends = types.Array(types.int32, 1, "C", readonly=True)


@njit(types.void(_ends, _octets, types.int64, types.int64, _ends, types.uint8[::1]), nogil=True, cache=True)
def spread(ends: Any, data: Any, place: Any, width: Any, places: Any, target: Any) -> Any:
    source, out = base(data), base(target)
    for row in range(ends.size - 1):
        to = _int(places[row * width + place])
        size = _int(places[row * width + place + 1]) - to
        memcpy(out, to, source, _int(ends[row]), size)
