"""Repair of a chunk in which one bit flipped: CRC-32C shows which bit it was.

Up to 2^31 bits no two single flips change the checksum in the same way (its distance there is 4), so the change
identifies the bit. A chunk with more damage is left as it is: only the messages that pass its dialect's own checks can
be saved.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.errors import MalformedMessage

from . import fallback
from .envelope import KERNEL_MODULE, read
from .layout import CRC, ENVELOPE_BYTES, LENGTH_COUNTS_FROM

MENDED_BYTES_MAX: Final = 4 << 20
"""Larger chunks are not searched: the search takes about 2 ns a bit."""


def repair_chunk(region: NDArray[np.uint8], start: int, end: int) -> NDArray[np.uint8] | None:
    """Return a whole copy of the damaged chunk at ``region[start:end]``, or None if more than one bit is wrong."""
    size_bytes = end - start
    if not ENVELOPE_BYTES <= size_bytes <= MENDED_BYTES_MAX:
        return None
    chunk = region[start:end].copy()
    # the checksum does not cover the length, but the neighbouring chunks show it
    length = size_bytes - LENGTH_COUNTS_FROM
    chunk[:CRC] = np.frombuffer(length.to_bytes(CRC, "little"), np.uint8)
    kernels: Any = engine.select(KERNEL_MODULE, fallback, size_bytes)
    stored = int.from_bytes(chunk[CRC:LENGTH_COUNTS_FROM].tobytes(), "little")
    changed = stored ^ int(kernels.crc32c(chunk, LENGTH_COUNTS_FROM, size_bytes))
    if changed.bit_count() == 1:
        bit = 8 * CRC + changed.bit_length() - 1
    elif changed:
        found = int(kernels.find_flipped_bit(changed, length))
        if found < 0:
            return None
        bit = 8 * LENGTH_COUNTS_FROM + found
    else:
        bit = -1
    if bit >= 0:
        chunk[bit // 8] ^= np.uint8(1 << bit % 8)
    try:
        read(chunk)
    except MalformedMessage:
        return None
    return chunk
