"""Header values: a declared kind with its bytes, made from Python values."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from .errors import CorruptError, LocalError
from .getters import TypedGetters
from .kinds import FLOATS, INTEGERS, KIND_BY_WORD, Kind, decode_value

Scalar = str | bytes | bool | int | float | None | UUID | datetime
"""A header value without a kind, as callers may pass it."""

PLAIN_INTEGER_ORDER = (Kind.INT64, Kind.UINT64, Kind.INT128, Kind.UINT128)

_WORDS = {int(kind): kind.word for kind in Kind}


class _HeaderValue(NamedTuple):
    kind: int
    data: bytes | None


def format_value(kind: int, data: bytes | None) -> str:
    """Return a header value for people: kind and value, ``uint16: 12``; bytes that are not text as hex digits."""
    word = _WORDS.get(kind, f"kind {kind}")
    if data is None:
        return f"{word}: null"
    try:
        value = decode_value(kind, data) if kind in _WORDS else data
        text = value.decode() if isinstance(value, bytes) else str(value)
    except (CorruptError, UnicodeDecodeError):
        return f"{word}: 0x{data.hex()}"
    if isinstance(value, bool):
        text = text.lower()
    # what could steer a terminal is escaped
    return f"{word}: {''.join(part if part.isprintable() else repr(part)[1:-1] for part in text)}"


class HeaderValue(_HeaderValue, TypedGetters):
    """A header value with its declared kind; ``data`` None is a null value, which is not an empty one."""

    __slots__ = ()

    def _parts(self) -> tuple[str, int, bytes | None]:
        return "the header value", self.kind, self.data

    @property
    def typed(self) -> str | bytes | bool | int | float | None:
        """The Python value that its kind declares. Raises CorruptError if the bytes cannot be of that kind."""
        return decode_value(self.kind, self.data)

    def __str__(self) -> str:
        return format_value(self.kind, self.data)

    def __repr__(self) -> str:
        """Return what makes an equal value: ``'AA'``, ``u16(12)``, ``None``; kind and bytes if nothing shorter does."""
        if self.data is None and self.kind == Kind.RAW:
            return "None"
        try:
            value = None if self.data is None else self.typed
        except CorruptError:
            value = None
        make = _MAKERS.get(self.kind)
        # a NaN has more than one form, and a bool may have been stored as 2
        if value is None or make is None or make(value) != self:
            return f"HeaderValue(kind={int(self.kind)}, data={self.data!r})"
        if isinstance(value, str | bytes | bool):
            return repr(value)
        number = repr(value) if math.isfinite(value) else f"float('{value}')"
        return f"{_PREFIXES[Kind(self.kind)]}({number})"


def _integer_maker(kind: Kind) -> Callable[[int], HeaderValue]:
    form = INTEGERS[kind]

    def make(value: int) -> HeaderValue:
        if isinstance(value, bool) or not isinstance(value, int):
            raise LocalError(f"a header of kind {kind.word} takes an int, not {type(value).__name__} {value!r}")
        if not form.low <= value <= form.high:
            raise LocalError(
                f"{value} does not fit a header of kind {kind.word} ({form.low} to {form.high}); choose a wider kind"
            )
        return HeaderValue(kind, value.to_bytes(form.size_bytes, "little", signed=form.signed))

    make.__name__ = make.__qualname__ = kind.word
    make.__doc__ = f"A {kind.word} header value, {form.low} to {form.high}; LocalError outside."
    return make


i8, i16, i32, i64, i128 = map(_integer_maker, (Kind.INT8, Kind.INT16, Kind.INT32, Kind.INT64, Kind.INT128))
u8, u16, u32, u64, u128 = map(_integer_maker, (Kind.UINT8, Kind.UINT16, Kind.UINT32, Kind.UINT64, Kind.UINT128))


def _make_float(value: float, kind: Kind) -> HeaderValue:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise LocalError(f"a header of kind {kind.word} takes a float, not {type(value).__name__} {value!r}")
    try:
        return HeaderValue(kind, FLOATS[kind].pack(float(value)))
    except OverflowError:
        raise LocalError(f"{value} is outside the range of a header of kind {kind.word}; choose a wider kind") from None


def f32(value: float) -> HeaderValue:
    """Return a float32; NaN and infinities are kept. Raises LocalError for finite values beyond its range."""
    return _make_float(value, Kind.FLOAT32)


def f64(value: float) -> HeaderValue:
    """Return a float64; NaN and infinities are kept."""
    return _make_float(value, Kind.FLOAT64)


def raw(value: bytes) -> HeaderValue:
    """Return bytes without a declared type."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise LocalError(f"a header of kind raw takes bytes, not {type(value).__name__} {value!r}")
    return HeaderValue(Kind.RAW, bytes(value))


def string(value: str) -> HeaderValue:
    """Return UTF-8 text. Raises LocalError for a str that UTF-8 cannot encode (lone surrogates)."""
    if not isinstance(value, str):
        raise LocalError(f"a header of kind string takes a str, not {type(value).__name__} {value!r}")
    try:
        return HeaderValue(Kind.STRING, value.encode())
    except UnicodeEncodeError as error:
        raise LocalError(
            f"header value {value!r} cannot be UTF-8 text: {error.reason}; "
            "take unpaired surrogates out of it, or send bytes"
        ) from None


def boolean(value: bool) -> HeaderValue:
    """Return a bool, one byte 0 or 1."""
    if not isinstance(value, bool):
        raise LocalError(f"a header of kind bool takes True or False, not {value!r}")
    return HeaderValue(Kind.BOOL, b"\x01" if value else b"\x00")


_PREFIXES = {
    Kind.INT8: "i8", Kind.INT16: "i16", Kind.INT32: "i32", Kind.INT64: "i64", Kind.INT128: "i128",
    Kind.UINT8: "u8", Kind.UINT16: "u16", Kind.UINT32: "u32", Kind.UINT64: "u64", Kind.UINT128: "u128",
    Kind.FLOAT32: "f32", Kind.FLOAT64: "f64",
}  # fmt: skip
"""The function of this module by kind; Python's own str, bytes and bool stand for text, bytes and booleans."""
_MAKERS: dict[int, Callable[[Any], HeaderValue]] = {
    **{int(kind): globals()[name] for kind, name in _PREFIXES.items()},
    int(Kind.STRING): string,
    int(Kind.RAW): raw,
    int(Kind.BOOL): boolean,
}


def encode_value(value: Scalar | HeaderValue) -> HeaderValue:
    """Return the header value of a plain Python value.

    str, UUID and datetime become strings (ISO 8601), bytes raw, bool bool, float float64, None a null raw
    value; int takes the first of int64, uint64, int128, uint128 that holds it. A NumPy scalar keeps its own kind.
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
                    return _integer_maker(kind)(value)
            raise LocalError(f"{value} needs more than 128 bits; no header kind holds it")
        case float():
            return f64(value)
        case UUID():
            return string(str(value))
        case datetime():
            return string(value.isoformat())
    if type(value).__module__ == "numpy" and (made := _from_numpy(value)) is not None:
        return made
    raise LocalError(
        f"a header value cannot be a {type(value).__name__}; use str, bytes, bool, int, float, UUID, datetime, "
        "None or a typed value such as lading.u16(3)"
    )


def _from_numpy(value: Any) -> HeaderValue | None:
    """Return a NumPy scalar as its own kind, since NumPy's names are those of kinds; None for other values."""
    kind = KIND_BY_WORD.get(type(value).__name__.rstrip("_"))
    if kind in INTEGERS:
        return _integer_maker(kind)(int(value))
    if kind in FLOATS:
        return _make_float(float(value), kind)
    return boolean(bool(value)) if kind is Kind.BOOL else None
