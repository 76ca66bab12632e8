"""Sizes as releases since 0.4 write them: a number and the largest unit that divides it, such as ``10 KiB``."""

from __future__ import annotations

from typing import Any, Final

from ..current.size_text import SIZE_MAX, UNITS, parse_size
from .documents import Form
from .errors import wrong_document


def write_size(size_bytes: int) -> str:
    """Return a size as the crate ``byte-unit`` displays it exactly."""
    for unit, unit_bytes in UNITS:
        if size_bytes >= unit_bytes and size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes} {unit}"
    return f"{size_bytes} B"


def _size_of(value: Any, where: str) -> int:
    if type(value) is int and 0 <= value <= SIZE_MAX:
        return value
    try:
        return parse_size(value)
    except (TypeError, ValueError) as error:
        raise wrong_document(f"{where}: {error}") from None


SIZE: Final = Form(_size_of, parse_size)
"""A number of bytes, optionally followed by a unit."""
