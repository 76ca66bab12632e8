"""The 15 declared types of header values, their byte forms and range checks (iggy.md A2, codes 1-15)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from .errors import CorruptError


class Kind(IntEnum):
    """Declared type of a header value. Numbers are little-endian at their natural width."""

    RAW = 1
    STRING = 2
    BOOL = 3
    INT8 = 4
    INT16 = 5
    INT32 = 6
    INT64 = 7
    INT128 = 8
    UINT8 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    UINT128 = 13
    FLOAT32 = 14
    FLOAT64 = 15

    @property
    def word(self) -> str:
        """The word that JSON, the CLI and the header table use, e.g. ``uint64``."""
        return self.name.lower()


KIND_BY_WORD: dict[str, Kind] = {kind.word: kind for kind in Kind}


@dataclass(frozen=True, slots=True)
class Integer:
    """Width and signedness of an integer kind."""

    size_bytes: int
    signed: bool

    @property
    def low(self) -> int:
        return -(1 << 8 * self.size_bytes - 1) if self.signed else 0

    @property
    def high(self) -> int:
        return (1 << 8 * self.size_bytes - self.signed) - 1


INTEGERS: dict[int, Integer] = {
    Kind.INT8: Integer(1, True),
    Kind.INT16: Integer(2, True),
    Kind.INT32: Integer(4, True),
    Kind.INT64: Integer(8, True),
    Kind.INT128: Integer(16, True),
    Kind.UINT8: Integer(1, False),
    Kind.UINT16: Integer(2, False),
    Kind.UINT32: Integer(4, False),
    Kind.UINT64: Integer(8, False),
    Kind.UINT128: Integer(16, False),
}
FLOATS: dict[int, struct.Struct] = {Kind.FLOAT32: struct.Struct("<f"), Kind.FLOAT64: struct.Struct("<d")}
FIXED_SIZE_BYTES: dict[int, int] = {
    Kind.BOOL: 1,
    **{kind: integer.size_bytes for kind, integer in INTEGERS.items()},
    **{kind: layout.size for kind, layout in FLOATS.items()},
}


def decode_value(kind: int, data: bytes | None) -> str | bytes | bool | int | float | None:
    """Return the Python value of ``data`` as its kind declares; for an unknown kind, the bytes.

    Raises CorruptError if length or content cannot be of that kind (servers do not check them).
    """
    if data is None:
        return None
    if kind in FIXED_SIZE_BYTES and len(data) != FIXED_SIZE_BYTES[kind]:
        raise CorruptError(f"a {Kind(kind).word} header value has {len(data)} bytes, not {FIXED_SIZE_BYTES[kind]}")
    if kind == Kind.STRING:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise CorruptError(f"a string header value is not UTF-8: {error.reason} at byte {error.start}") from None
    if kind == Kind.BOOL:
        if data not in (b"\x00", b"\x01"):
            raise CorruptError(f"a bool header value is 0x{data.hex()}, not 0x00 or 0x01")
        return data == b"\x01"
    if kind in INTEGERS:
        return int.from_bytes(data, "little", signed=INTEGERS[kind].signed)
    if kind in FLOATS:
        value: float = FLOATS[kind].unpack(data)[0]
        return value
    return data
