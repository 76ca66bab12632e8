"""Sizes as releases since 0.4 write them: a number and the largest unit that divides it, such as ``10 KiB``."""

from __future__ import annotations

import re
from typing import Any, Final

from .documents import Form
from .errors import wrong_document

_UNITS: Final = (
    ("EiB", 1 << 60), ("EB", 10**18), ("PiB", 1 << 50), ("PB", 10**15), ("TiB", 1 << 40), ("TB", 10**12),
    ("GiB", 1 << 30), ("GB", 10**9), ("MiB", 1 << 20), ("MB", 10**6), ("KiB", 1 << 10), ("KB", 10**3),
)  # fmt: skip
_BYTES_BY_UNIT: Final = {"": 1, "b": 1, **{unit.lower(): size for unit, size in _UNITS}}
_SIZE: Final = re.compile(r"\s*(\d{1,20})\s*([A-Za-z]{0,3})\s*")
_SIZE_MAX: Final = (1 << 64) - 1


def write_size(size_bytes: int) -> str:
    """Return a size as the crate ``byte-unit`` displays it exactly."""
    for unit, unit_bytes in _UNITS:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def _size_from_text(text: str) -> int:
    found = _SIZE.fullmatch(text)
    unit_bytes = found and _BYTES_BY_UNIT.get(found[2].lower())
    if found is None or unit_bytes is None or int(found[1]) * unit_bytes > _SIZE_MAX:
        raise ValueError(f"{text[:40]!r} is no size in bytes, such as 10 MiB")
    return int(found[1]) * unit_bytes


def _size_of(value: Any, where: str) -> int:
    if type(value) is int and 0 <= value <= _SIZE_MAX:
        return value
    try:
        return _size_from_text(value)
    except (TypeError, ValueError) as error:
        raise wrong_document(f"{where}: {error}") from None


SIZE: Final = Form(_size_of, _size_from_text)
"""A number of bytes, also with a unit behind it."""
