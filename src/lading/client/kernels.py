"""Kernels of the client; the fallbacks in ``fallback.py`` say what they do."""

from __future__ import annotations

from lading.kernels.arrays import Bytes, Ints
from lading.kernels.signature import BYTES, INTS, LONG, NOTHING, OUT_BYTES, int64, kernel

from ..kernels.memory import base, memcpy


@kernel(NOTHING(INTS, BYTES, LONG, LONG, INTS, OUT_BYTES))
def spread(ends: Ints, data: Bytes, place: int, width: int, places: Ints, target: Bytes) -> None:
    # in bounds: Arrow's ends lie inside their data, and ``places`` inside ``target``, which the caller made for them
    source, out = base(data), base(target)
    for row in range(ends.size - 1):
        to = int64(places[row * width + place])
        size = int64(places[row * width + place + 1]) - to
        memcpy(out, to, source, int64(ends[row]), size)
