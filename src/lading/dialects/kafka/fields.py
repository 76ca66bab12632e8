"""The few field types of Produce and Fetch, in their classic form and in that of flexible versions (kafka.md 3.1)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import Final, ParamSpec, TypeVar

from lading.model.errors import MalformedMessage

from .requests import read_uvarint, skip_tags

P = ParamSpec("P")
R = TypeVar("R")

INT16, INT32, INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")
NO_TAGS: Final = b"\0"


ROWS_UNBOUNDED: Final = 1 << 32


class RowsExceeded(MalformedMessage):
    """A request has more rows than its reader accepts; this is noticed before they are read."""


class Reader:
    """Takes fields from the front of a frame. A field that is cut short raises struct.error: see ``malformed``."""

    __slots__ = ("at", "flexible", "frame", "rows_left")

    def __init__(self, frame: memoryview, at: int, flexible: bool, rows_max: int = ROWS_UNBOUNDED) -> None:
        self.frame, self.at, self.flexible = frame, at, flexible
        self.rows_left = rows_max
        """How many entries of lists may still follow."""

    def number(self, layout: struct.Struct) -> int:
        """Read one number."""
        value: int = layout.unpack_from(self.frame, self.at)[0]
        self.at += layout.size
        return value

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        """Read the numbers of ``layout``."""
        values = layout.unpack_from(self.frame, self.at)
        self.at += layout.size
        return values

    def count(self, entry_bytes: int) -> int:
        """Read the number of entries of a list, 0 for null; each has at least ``entry_bytes``."""
        count = self._read_length(INT32)
        if count > (len(self.frame) - self.at) // entry_bytes:
            raise MalformedMessage(f"the request claims a list of {count} entries", at=self.at)
        if count <= 0:
            return 0
        self.rows_left -= count
        if self.rows_left < 0:
            raise RowsExceeded("the request has too many rows; ask for fewer at a time", at=self.at)
        return count

    def text(self) -> bytes | None:
        """Return a string as bytes."""
        size = self._read_length(INT16)
        return None if size < 0 else bytes(self.take(size))

    def data(self) -> tuple[int, int]:
        """Return the start of a byte string and its size (-1: null), and move the reader past it."""
        size = self._read_length(INT32)
        start = self.at
        self.take(max(size, 0))
        return start, size

    def take(self, size_bytes: int) -> memoryview:
        """Return the next bytes."""
        if size_bytes > len(self.frame) - self.at:
            raise MalformedMessage(f"the request claims {size_bytes} bytes", at=self.at)
        self.at += size_bytes
        return self.frame[self.at - size_bytes : self.at]

    def tags(self) -> None:
        """Skip tagged fields, if the version has them."""
        if self.flexible:
            self.at = skip_tags(self.frame, self.at)

    def _read_length(self, layout: struct.Struct) -> int:
        if self.flexible:
            value, self.at = read_uvarint(self.frame, self.at)
            return value - 1
        return self.number(layout)


def raise_malformed(read: Callable[P, R]) -> Callable[P, R]:
    """Make ``read`` raise MalformedMessage if the bytes end too early."""

    @wraps(read)
    def wrapped(*args: P.args, **named: P.kwargs) -> R:
        try:
            return read(*args, **named)
        except struct.error:
            raise MalformedMessage("the request is truncated") from None
        except MalformedMessage as error:
            # clear the traceback: its frames keep all data that was read, which the loop would have to free at once
            raise error.with_traceback(None) from None

    return wrapped


def uvarint(value: int) -> bytes:
    """Return an unsigned varint."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def count(entries: int, flexible: bool) -> bytes:
    """Return the length of a list."""
    return uvarint(entries + 1) if flexible else INT32.pack(entries)


def text(value: bytes | None, flexible: bool) -> bytes:
    """Return a string."""
    if value is None:
        return uvarint(0) if flexible else INT16.pack(-1)
    return (uvarint(len(value) + 1) if flexible else INT16.pack(len(value))) + value
