"""Header values from text that people write: one parser for each kind. They raise ValueError or KeyError."""

from __future__ import annotations

from collections.abc import Callable

from .kinds import Kind
from .values import (
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


def _parse_raw(text: str) -> HeaderValue:
    return raw(bytes.fromhex(text[2:]) if text.startswith("0x") else text.encode())


def _parse_boolean(text: str) -> HeaderValue:
    return boolean(BOOLS[text.lower()])


def _number_parser(make: Callable[[int], HeaderValue]) -> Callable[[str], HeaderValue]:
    return lambda text: make(int(text, 0))


PARSERS: dict[Kind, Callable[[str], HeaderValue]] = {
    Kind.RAW: _parse_raw,
    Kind.STRING: string,
    Kind.BOOL: _parse_boolean,
    Kind.INT8: _number_parser(i8),
    Kind.INT16: _number_parser(i16),
    Kind.INT32: _number_parser(i32),
    Kind.INT64: _number_parser(i64),
    Kind.INT128: _number_parser(i128),
    Kind.UINT8: _number_parser(u8),
    Kind.UINT16: _number_parser(u16),
    Kind.UINT32: _number_parser(u32),
    Kind.UINT64: _number_parser(u64),
    Kind.UINT128: _number_parser(u128),
    Kind.FLOAT32: lambda text: f32(float(text)),
    Kind.FLOAT64: lambda text: f64(float(text)),
}
