"""From a region of whole chunks to Runs: consecutive chunks of one dialect, ready to be decoded."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.errors import MalformedMessage
from lading.model.run import Run

from . import fallback, layout
from .envelope import KERNEL_MODULE

_ROWS = 512


def runs(region: NDArray[np.uint8], start: int = 0, end: int | None = None, *, verify: bool = True) -> list[Run]:
    """Return the chunks in ``region[start:end]`` as Runs in log order.

    Each Run holds consecutive chunks of one dialect.

    Bodies are not looked into and nothing is copied. Raises MalformedMessage with ``at`` = the position of the
    first chunk that is not whole or not right; ``verify`` = False leaves out the CRC-32C.
    """
    end = region.size if end is None else end
    if not 0 <= start <= end <= region.size:
        raise MalformedMessage(f"bytes {start} to {end} are outside a region of {region.size} bytes")
    kernels = engine.select(KERNEL_MODULE, fallback, end - start if verify else 0)
    tables: list[NDArray[np.int64]] = []
    codes: list[NDArray[np.uint8]] = []
    at = start
    while at < end:
        most = min(_ROWS, (end - at) // layout.ENVELOPE_BYTES + 1)
        rows = np.empty((most, 8), np.int64)
        dialects = np.empty(most, np.uint8)
        filled, at, reason = kernels.walk(region, at, end, verify, rows, dialects)
        if reason:
            raise MalformedMessage(f"the chunk {layout.REASONS[reason]}", at=at)
        tables.append(rows[:filled])
        codes.append(dialects[:filled])
    if not tables:
        return []
    chunks = tables[0] if len(tables) == 1 else np.concatenate(tables)
    dialects = codes[0] if len(codes) == 1 else np.concatenate(codes)
    of_each = dialects.tobytes()
    if of_each.count(of_each[0]) == len(of_each):
        # nearly every region has chunks of one dialect only
        return [Run(of_each[0], region, chunks)]
    borders = [0, *(np.flatnonzero(np.diff(dialects)) + 1).tolist(), len(dialects)]
    return [Run(int(dialects[first]), region, chunks[first:last]) for first, last in pairwise(borders)]
