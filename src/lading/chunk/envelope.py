"""The envelope: what the log knows of a chunk without looking into its body."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.kernels import engine
from lading.model.errors import LimitExceeded, MalformedMessage

from ..model.lazy_dataclass import lazy_dataclass
from . import fallback, layout
from .layout import ENVELOPE, ENVELOPE_BYTES, LENGTH_COUNTS_FROM, MAGIC, VERSION

__all__ = ["ENVELOPE_BYTES", "MAGIC", "VERSION", "Envelope", "read", "seal"]

KERNEL_MODULE = "lading.chunk.kernels"


@lazy_dataclass(frozen=True, slots=True)
class Envelope:
    """The fields of one envelope; ``total_bytes`` counts the envelope and its body."""

    total_bytes: int
    dialect: int
    flags: int
    base_offset: int
    count: int
    last_offset_delta: int
    min_timestamp_us: int
    max_timestamp_us: int

    @property
    def end_offset(self) -> int:
        """The offset after the last one, at which the next chunk begins."""
        return self.base_offset + self.last_offset_delta + 1


def seal(
    array: NDArray[np.uint8],
    at: int,
    end: int,
    *,
    dialect: int,
    flags: int,
    base_offset: int,
    count: int,
    last_offset_delta: int,
    min_timestamp_us: int,
    max_timestamp_us: int,
) -> None:
    """Write envelope and CRC in front of a body that already lies at ``array[at + 48 : end]``.

    Offsets and times go up to 2^63 - 1, ``count`` up to ``last_offset_delta + 1``, the chunk up to 4 GiB;
    LimitExceeded otherwise, and nothing is written.
    """
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or fallback
    try:
        fits = kernels.seal(
            array, at, end, dialect, flags, base_offset, count, last_offset_delta, min_timestamp_us, max_timestamp_us
        )
    except OverflowError:
        fits = False
    if not fits:
        raise LimitExceeded(
            f"no chunk can hold bytes {at} to {end}, dialect {dialect}, flags {flags}, {count} messages at offsets "
            f"{base_offset} to {base_offset + last_offset_delta}, times {min_timestamp_us} to {max_timestamp_us} us"
        )


def read(
    data: bytes | bytearray | memoryview | NDArray[np.uint8],
    at: int = 0,
    limit: int | None = None,
    *,
    verify: bool = True,
) -> Envelope:
    """Return the envelope of the chunk at byte ``at`` of ``data``, which must be whole before ``limit``.

    Without ``limit`` that is the end of ``data``. Raises MalformedMessage if it is not whole; ``verify`` = False leaves
    out the CRC-32C over the body.
    """
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    end = array.size if limit is None else min(limit, array.size)
    kernels: Any = engine.get_loaded(KERNEL_MODULE) or fallback
    reason = kernels.check(array, at, end, verify) if at >= 0 else layout.CUT
    if reason:
        raise MalformedMessage(f"the chunk {layout.REASONS[reason]}", at=at)
    length, _, _, _, dialect, flags, _, base, count, delta, low, high = ENVELOPE.unpack_from(array.data, at)
    return Envelope(LENGTH_COUNTS_FROM + length, dialect, flags, base, count, delta, low, high)
