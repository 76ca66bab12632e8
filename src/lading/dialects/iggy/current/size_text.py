"""Sizes in bytes as Iggy's clients write them: a number, optionally followed by a unit, such as ``128 MiB``."""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = (
    ("EiB", 1 << 60), ("EB", 10**18), ("PiB", 1 << 50), ("PB", 10**15), ("TiB", 1 << 40), ("TB", 10**12),
    ("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("KB", 10**3),
)  # fmt: skip
"""The largest first."""
SIZE_MAX: Final = (1 << 64) - 1
_BYTES_BY_UNIT: Final = {"": 1, "b": 1, **{unit.lower(): size for unit, size in UNITS}}
_SIZE: Final = re.compile(r"\s*(\d{1,20})\s*([A-Za-z]{0,3})\s*")


def parse_size(text: str) -> int:
    """Return the bytes that a text says. Raises ValueError for any other text, and for more than 64 bits."""
    found = _SIZE.fullmatch(text)
    unit_bytes = found and _BYTES_BY_UNIT.get(found[2].lower())
    if found is None or unit_bytes is None or int(found[1]) * unit_bytes > SIZE_MAX:
        raise ValueError(f"{text[:40]!r} is no size in bytes, such as 10 MiB")
    return int(found[1]) * unit_bytes
