"""The 15 declared types of header values, their byte forms and range checks (iggy.md A2, codes 1-15)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from typing import NamedTuple
from uuid import UUID

from .errors import CorruptError, LocalError

Scalar = str | bytes | bool | int | float | None | UUID | datetime
"""What users may hand in as a header value without saying its kind."""


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


class HeaderValue(NamedTuple):
    """A header value with its declared kind; ``data`` None is a null value, which is not an empty one."""

    kind: int
    data: bytes | None

    @property
    def typed(self) -> str | bytes | bool | int | float | None:
        """The Python value its kind declares; raises CorruptError where the bytes cannot be that kind."""
        return decode_value(self.kind, self.data)


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
PLAIN_INTEGER_ORDER = (Kind.INT64, Kind.UINT64, Kind.INT128, Kind.UINT128)


def _integer(kind: Kind) -> Callable[[int], HeaderValue]:
    form = INTEGERS[kind]

    def make(value: int) -> HeaderValue:
        if isinstance(value, bool) or not isinstance(value, int):
            raise LocalError(f"a header of kind {kind.word} takes an int, not {type(value).__name__} {value!r}")
        if not form.low <= value <= form.high:
            raise LocalError(f"{value} does not fit a header of kind {kind.word} ({form.low} to {form.high})")
        return HeaderValue(kind, value.to_bytes(form.size_bytes, "little", signed=form.signed))

    make.__name__ = make.__qualname__ = kind.word
    make.__doc__ = f"A {kind.word} header value, {form.low} to {form.high}; LocalError outside."
    return make


i8, i16, i32, i64, i128 = map(_integer, (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.INT128))
u8, u16, u32, u64, u128 = map(_integer, (Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64, Kind.UINT128))


def _float(value: float, kind: Kind) -> HeaderValue:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LocalError(f"a header of kind {kind.word} takes a float, not {type(value).__name__} {value!r}")
    try:
        return HeaderValue(kind, FLOATS[kind].pack(value))
    except OverflowError:
        raise LocalError(f"{value} is outside the range of a header of kind {kind.word}") from None


def f32(value: float) -> HeaderValue:
    """A float32 header value; NaN and infinities are kept, finite values beyond its range are a LocalError."""
    return _float(value, Kind.FLOAT32)


def f64(value: float) -> HeaderValue:
    """A float64 header value; NaN and infinities are kept."""
    return _float(value, Kind.FLOAT64)


def raw(value: bytes) -> HeaderValue:
    """Bytes without a declared meaning."""
    return HeaderValue(Kind.RAW, bytes(value))


def string(value: str) -> HeaderValue:
    """UTF-8 text; a str that UTF-8 cannot hold (lone surrogates) is a LocalError."""
    try:
        return HeaderValue(Kind.STRING, value.encode())
    except UnicodeEncodeError as error:
        raise LocalError(f"header value {value!r} cannot be UTF-8 text: {error.reason}") from None


def boolean(value: bool) -> HeaderValue:
    """A bool header value, one byte 0 or 1."""
    if not isinstance(value, bool):
        raise LocalError(f"a header of kind bool takes True or False, not {value!r}")
    return HeaderValue(Kind.BOOL, b"\x01" if value else b"\x00")


def encode_value(value: Scalar | HeaderValue) -> HeaderValue:
    """The header value of a plain Python value.

    str, UUID and datetime become strings (ISO 8601), bytes raw, bool bool, float float64, None a null raw
    value; int takes the first of int64, uint64, int128, uint128 that holds it.
    """
    match value:
        case HeaderValue():
            return value
        case None:
            return HeaderValue(Kind.RAW, None)
        case str():
            return string(value)
        case bytes() | bytearray() | memoryview():
            return raw(bytes(value))
        case bool():
            return boolean(value)
        case int():
            for kind in PLAIN_INTEGER_ORDER:
                if INTEGERS[kind].low <= value <= INTEGERS[kind].high:
                    return _integer(kind)(value)
            raise LocalError(f"{value} needs more than 128 bits; no header kind holds it")
        case float():
            return f64(value)
        case UUID():
            return string(str(value))
        case datetime():
            return string(value.isoformat())
    raise LocalError(
        f"a header value cannot be a {type(value).__name__}; use str, bytes, bool, int, float, UUID, datetime, "
        "None or a typed value such as lading.u16(3)"
    )


def decode_value(kind: int, data: bytes | None) -> str | bytes | bool | int | float | None:
    """The Python value of ``data`` as its kind declares; unknown kinds give the bytes.

    Raises CorruptError where length or content cannot be that kind (servers do not check them).
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
