"""Single values of Avro in plain Python: written as JSON texts, and defaults of a schema as bytes."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

from ..schemas.avro import ABSENT as NO_DEFAULT
from ..schemas.avro import AvroType, fits
from .avro_program import is_empty, is_record
from .layout import EMPTY_ITEMS_MAX

PRECISION_MAX: Final = 1000
"""Digits of a decimal type; a type with more is read as bytes."""
DEFAULT_DEPTH_MAX: Final = 100
DEFAULT_VALUES_MAX: Final = 100_000
"""Limit of the values in a default and in the defaults of its fields: they may be exponential in the size
of the schema.
"""


class _UnreadableError(Exception):
    """A value that is valid for the walker, but does not fit its logical type."""


def write_value(type_: AvroType, data: bytes) -> str | None:
    """Return a valid value as JSON: numbers, texts and symbols as such, bytes as Latin-1, a decimal as its number.

    Returns None if it has a decimal beyond the precision of its type, or more levels than Python can follow.
    """
    try:
        return _write_json(_read(type_, data, 0)[0])
    except (_UnreadableError, RecursionError):
        return None


def _write_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write_json(name)}:{_write_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write_json, value)) + "]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _read(type_: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    kind = type_.kind
    if is_record(type_):
        if is_empty(type_) and _count_values(type_) > EMPTY_ITEMS_MAX:
            raise _UnreadableError
        record: dict[str, Any] = {}
        for field in type_.fields:
            record[field.name], at = _read(field.type, data, at)
        return record, at
    if kind == "union":
        branch, at = _read_number(data, at)
        return _read(type_.branches[branch], data, at)
    if kind in ("array", "map"):
        return _read_blocks(type_, data, at)
    if kind == "null":
        return None, at
    if kind == "boolean":
        return data[at] == 1, at + 1
    if kind in ("int", "long", "enum"):
        number, at = _read_number(data, at)
        return type_.symbols[number] if kind == "enum" else number, at
    if kind in ("float", "double"):
        size = 4 if kind == "float" else 8
        value: float = struct.unpack("<f" if size == 4 else "<d", data[at : at + size])[0]
        return value if math.isfinite(value) else None, at + size
    size, at = (type_.size_bytes, at) if kind == "fixed" else _read_number(data, at)
    held = data[at : at + size]
    if kind == "string":
        return held.decode(), at + size
    if find_scale(type_) is not None:
        decimal = read_decimal(type_, held)
        if decimal is None:
            raise _UnreadableError
        return decimal, at + size
    return held.decode("latin-1"), at + size


@lru_cache(maxsize=1024)
def _count_values(type_: AvroType) -> int:
    """Return how many values a value without bytes consists of, which may be exponential in the size of its schema."""
    return 1 + sum(_count_values(field.type) for field in type_.fields)


def _read_blocks(type_: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    items: list[Any] = []
    names: list[str] = []
    count, at = _read_number(data, at)
    while count:
        if count < 0:
            count, at = -count, _read_number(data, at)[1]
        for _ in range(count):
            if type_.kind == "map":
                size, at = _read_number(data, at)
                names.append(data[at : at + size].decode())
                at += size
            item, at = _read(type_.branches[0], data, at)
            items.append(item)
        count, at = _read_number(data, at)
    return dict(zip(names, items, strict=True)) if type_.kind == "map" else items, at


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def find_scale(type_: AvroType) -> int | None:
    """Return how many decimals the values of a valid decimal type have; None for another type."""
    if type_.attributes.get("logicalType") != "decimal" or type_.kind not in ("bytes", "fixed"):
        return None
    precision, scale = type_.attributes.get("precision"), type_.attributes.get("scale", 0)
    if type(precision) is not int or type(scale) is not int:
        return None
    return scale if 0 <= scale <= precision <= PRECISION_MAX and precision > 0 else None


def read_decimal(type_: AvroType, held: bytes) -> Decimal | None:
    """Return the number in the bytes of a decimal; None if it has more digits than its type allows."""
    number = int.from_bytes(held, "big", signed=True)
    if abs(number) >= 10 ** type_.attributes["precision"]:
        return None
    scale = find_scale(type_) or 0
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def encode_value(type_: AvroType, value: Any) -> bytes:
    """Return a valid JSON default of a type as the bytes that a writer would have written.

    Raises ValueError or OverflowError for a default that does not fit its type, or has too many values.
    """
    parts: list[bytes] = []
    _add_encoded(type_, value, parts, 0)
    return b"".join(parts)


def _add_encoded(type_: AvroType, value: Any, parts: list[bytes], depth: int) -> None:
    if depth > DEFAULT_DEPTH_MAX or len(parts) >= DEFAULT_VALUES_MAX:
        raise ValueError(f"a default of more than {DEFAULT_DEPTH_MAX} levels or {DEFAULT_VALUES_MAX:,} values")
    kind = type_.kind
    if is_record(type_):
        # count the record itself as a value, as it may have no fields
        parts.append(b"")
        for field in type_.fields:
            inner = value.get(field.name, field.default)
            if inner is NO_DEFAULT:
                raise ValueError(f"a default without the field {field.name}")
            _add_encoded(field.type, inner, parts, depth + 1)
    elif kind == "union":
        branch = choose_branch(type_, value)
        if branch is None:
            raise ValueError("a default that fits no branch of its union")
        parts.append(_write_number(branch))
        _add_encoded(type_.branches[branch], value, parts, depth + 1)
    elif kind in ("array", "map"):
        if value:
            parts.append(_write_number(len(value)))
        for item in value:
            if kind == "map":
                parts.append(write_sized(item.encode()))
            _add_encoded(type_.branches[0], value[item] if kind == "map" else item, parts, depth + 1)
        parts.append(b"\0")
    else:
        parts.append(_encode_scalar(type_, value))


def _encode_scalar(type_: AvroType, value: Any) -> bytes:
    kind = type_.kind
    if kind == "null":
        return b""
    if kind == "boolean":
        return b"\1" if value else b"\0"
    if kind in ("int", "long", "enum"):
        return _write_number(type_.symbols.index(value) if kind == "enum" else value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    held: bytes = value.encode() if kind == "string" else value.encode("latin-1")
    if kind != "fixed":
        return write_sized(held)
    if len(held) != type_.size_bytes:
        raise ValueError(f"a default of {len(held)} bytes for {type_.size_bytes}")
    return held


def choose_branch(type_: AvroType, value: Any) -> int | None:
    """Return the first branch of a union that a JSON default fits."""
    return next((at for at, one in enumerate(type_.branches) if fits(one, value)), None)


def write_sized(held: bytes) -> bytes:
    """Return bytes with their size before them."""
    return _write_number(len(held)) + held


def _write_number(number: int) -> bytes:
    rest = ((number << 1) ^ (number >> 63)) & (1 << 64) - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
