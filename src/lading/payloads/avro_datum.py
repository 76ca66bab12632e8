"""Single values of Avro in plain Python: as JSON texts, and from the defaults in a schema to bytes."""

from __future__ import annotations

import json
import math
import struct
from decimal import Decimal
from typing import Any

from ..schemas.avro import AvroType
from .avro_program import is_record


def write_value(type_: AvroType, data: bytes) -> str:
    """Return a valid value as JSON: numbers, texts and symbols as such, bytes as Latin-1, a decimal as its number."""
    return _write_json(_read(type_, data, 0)[0])


def _write_json(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ",".join(f"{_write_json(name)}:{_write_json(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_write_json, value)) + "]"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)


def _read(type_: AvroType, data: bytes, at: int) -> tuple[Any, int]:
    kind = type_.kind
    if is_record(type_):
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
        return read_decimal(type_, held), at + size
    return held.decode("latin-1"), at + size


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
    is_valid = type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0
    return int(scale) if is_valid else None


def read_decimal(type_: AvroType, held: bytes) -> Decimal:
    """Return the number in the bytes of a decimal."""
    number = int.from_bytes(held, "big", signed=True)
    scale = find_scale(type_) or 0
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def encode_value(type_: AvroType, value: Any) -> bytes:
    """Return a valid JSON default of a type as the bytes that a writer would have written."""
    kind = type_.kind
    if is_record(type_):
        return b"".join(encode_value(field.type, value.get(field.name, field.default)) for field in type_.fields)
    if kind == "union":
        at = next(at for at, one in enumerate(type_.branches) if (one.kind == "null") == (value is None))
        return _write_number(at) + encode_value(type_.branches[at], value)
    if kind in ("array", "map"):
        parts = [
            write_sized(item.encode()) + encode_value(type_.branches[0], value[item])
            if kind == "map"
            else encode_value(type_.branches[0], item)
            for item in value
        ]
        return (_write_number(len(parts)) + b"".join(parts) if parts else b"") + b"\0"
    if kind == "null":
        return b""
    if kind == "boolean":
        return b"\1" if value else b"\0"
    if kind in ("int", "long", "enum"):
        return _write_number(type_.symbols.index(value) if kind == "enum" else value)
    if kind in ("float", "double"):
        return struct.pack("<f" if kind == "float" else "<d", value)
    held = value.encode() if kind == "string" else value.encode("latin-1")
    return held if kind == "fixed" else write_sized(held)


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
