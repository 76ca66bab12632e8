"""The ``-H`` option: ``key=value``, ``key:kind=value`` and ``key`` alone for a null value."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from ..model.errors import LocalError
from ..model.headers import Headers
from ..model.kinds import KIND_BY_WORD, Kind
from ..model.values import (
    HeaderValue,
    boolean,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    i128,
    raw,
    string,
    u8,
    u16,
    u32,
    u64,
    u128,
)  # fmt: skip

BOOLS = {"true": True, "1": True, "false": False, "0": False}


def _raw(text: str) -> HeaderValue:
    return raw(bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode())


def _boolean(text: str) -> HeaderValue:
    return boolean(BOOLS[text.lower()])


def _number(make: Callable[[int], HeaderValue]) -> Callable[[str], HeaderValue]:
    return lambda text: make(int(text, 0))


PARSERS: dict[Kind, Callable[[str], HeaderValue]] = {
    Kind.RAW: _raw,
    Kind.STRING: string,
    Kind.BOOL: _boolean,
    Kind.INT8: _number(i8),
    Kind.INT16: _number(i16),
    Kind.INT32: _number(i32),
    Kind.INT64: _number(i64),
    Kind.INT128: _number(i128),
    Kind.UINT8: _number(u8),
    Kind.UINT16: _number(u16),
    Kind.UINT32: _number(u32),
    Kind.UINT64: _number(u64),
    Kind.UINT128: _number(u128),
    Kind.FLOAT32: lambda text: f32(float(text)),
    Kind.FLOAT64: lambda text: f64(float(text)),
}
TYPES_ELSEWHERE = {
    "str": "string", "text": "string", "bytes": "raw", "binary": "raw", "boolean": "bool", "int": "int64",
    "integer": "int64", "long": "int64", "short": "int16", "byte": "int8", "float": "float64", "double": "float64",
    "number": "float64", "decimal": "string", "timestamp": "int64", "uuid": "uint128",
}  # fmt: skip
"""What other languages and formats call the kinds. A word after a colon that is none of these may be part of a key."""
FORMS = "write -H key=value (string), -H key:uint16=3 (typed), -H key:raw=0x00ff (bytes) or -H key (null)"


def parse_headers(options: list[str]) -> Headers:
    """Parse repeated ``-H`` options, in order, keeping duplicates. Raises LocalError, which says what to write."""
    headers = Headers()
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            headers.add(name, None)
            continue
        key, colon, word = name.rpartition(":")
        if not colon:
            headers.add(name, string(text))
            continue
        kind = KIND_BY_WORD.get(word)
        if kind is None:
            near = TYPES_ELSEWHERE.get(word.lower()) or next(
                iter(difflib.get_close_matches(word, KIND_BY_WORD, n=1)), ""
            )
            if near:
                raise LocalError(f"-H {option}: {word!r} is not a header kind; did you mean {near!r}? ({FORMS})")
            headers.add(name, string(text))
            continue
        try:
            headers.add(key, PARSERS[kind](text))
        except (ValueError, KeyError):
            raise LocalError(f"-H {option}: {text!r} is no {word}; {FORMS}") from None
    if "" in headers:
        raise LocalError(f"a header needs a key; {FORMS}")
    return headers
