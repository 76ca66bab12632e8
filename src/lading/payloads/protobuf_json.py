"""Single messages of Protobuf in plain Python: merging those in several pieces, and values as JSON texts."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np

from ..model.limits import INSTANT_MAX_US, INSTANT_MIN_US
from ..schemas.protobuf_types import FieldType, MessageType
from .layout import KIND_STRING, WIRE_GROUP, WIRE_GROUP_END, WIRE_SIZED
from .paths import Path
from .protobuf_fallback import find_field_end, read_number, read_size, read_tag, skip_field
from .protobuf_program import KINDS, find_tag

WELL_KNOWN: Final = "google.protobuf."
SECONDS_MAX: Final = 315_576_000_000
"""Seconds of a Duration are at most this, positive or negative."""
_NANOS: Final = 1_000_000_000
_EPOCH: Final = datetime(1970, 1, 1)


class _UnreadableError(Exception):
    """A well-known message with impossible values."""


def _collect(type_: MessageType, text: bytes) -> dict[int, list[tuple[bytes, bytes | int]]]:
    """Return the occurrences of each known field, as tag and value; of a oneof only the last one."""
    found: dict[int, list[tuple[bytes, bytes | int]]] = {}
    at = 0
    while at < len(text):
        first = at
        tag, at = read_tag(text, at, len(text))
        field = type_.by_number.get(tag >> 3)
        is_packed = (
            field is not None and field.is_repeated and KINDS[field.kind] < KIND_STRING and tag & 7 == WIRE_SIZED
        )
        if field is None or not (is_packed or tag == find_tag(field)):
            at = skip_field(text, first, at, len(text), tag, 0)
            continue
        values: list[bytes | int] = []
        if tag & 7 == WIRE_SIZED:
            size, at = read_size(text, at, len(text))
            end, here = at + size, at
            at = end
            if not is_packed:
                values.append(text[here:end])
            while is_packed and here < end:
                number, here = read_number(text, here, end, KINDS[field.kind])
                values.append(number)
        elif tag & 7 == WIRE_GROUP:
            here, (at, last) = at, find_field_end(text, first, at, len(text), tag, 0)
            values.append(text[here:last])
        else:
            number, at = read_number(text, at, len(text), KINDS[field.kind])
            values.append(number)
        if field.enum is not None and field.enum.is_closed:
            values = [value for value in values if value in field.enum.names]
            if not values:
                continue
        if field.oneof is not None:
            for other in type_.fields:
                if other.oneof == field.oneof and other is not field:
                    found.pop(other.number, None)
        # all pieces of a packed field are one field on the wire
        raw = text[first:at]
        found.setdefault(field.number, []).extend(
            (raw if place == 0 else b"", value) for place, value in enumerate(values)
        )
    return found


def merge_message(type_: MessageType, text: bytes, paths: tuple[Path, ...]) -> bytes:
    """Return a valid message with each nested message on ``paths`` in one piece on the wire.

    Fields that its type does not have are left out.
    """
    names = {path[0] for path in paths if path}
    parts: list[bytes] = []
    for number, pieces in _collect(type_, text).items():
        field = type_.by_number[number]
        if field.name in names and field.message is not None and not field.is_repeated:
            joined = b"".join(value for _, value in pieces if isinstance(value, bytes))
            inner = merge_message(field.message, joined, tuple(path[1:] for path in paths if path[:1] == (field.name,)))
            parts.append(write_message(field, inner))
        else:
            parts += [raw for raw, _ in pieces]
    return b"".join(parts)


def write_tag(field: FieldType) -> bytes:
    """Return the tag of a single value of a field."""
    return write_varint(find_tag(field))


def write_message(field: FieldType, held: bytes) -> bytes:
    """Return the message of a field with its tag and length, or between two tags."""
    if field.is_delimited:
        return write_tag(field) + held + write_varint(field.number << 3 | WIRE_GROUP_END)
    return write_tag(field) + write_varint(len(held)) + held


def write_varint(number: int) -> bytes:
    """Return a number of up to 64 bits in groups of seven."""
    rest = number & (1 << 64) - 1
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def write_message_text(type_: MessageType, text: bytes) -> str | None:
    """Return a valid message as JSON, as Protobuf maps it, with names as in the schema and all numbers as numbers.

    Returns None if a well-known message has impossible values, or there are more levels than Python can follow.
    """
    try:
        return json.dumps(_read_message(type_, text), ensure_ascii=False, separators=(",", ":"))
    except (_UnreadableError, RecursionError):
        return None


def write_field_text(field: FieldType, text: bytes) -> str | None:
    """Return the values of a repeated field or map in a part of a message as JSON; otherwise as
    ``write_message_text``.
    """
    holder = MessageType("")
    holder.set_fields((field,))
    try:
        value = _read_repeated(field, [one for _, one in _collect(holder, text).get(field.number, ())])
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (_UnreadableError, RecursionError):
        return None


def write_scalar_text(field: FieldType, value: bytes | int) -> str:
    """Return the JSON of a number as walkers keep it, or of a text or bytes."""
    return json.dumps(_read_scalar(field, value), ensure_ascii=False)


def _read_message(type_: MessageType, text: bytes) -> Any:
    convert = _CONVERTED.get(type_.name)
    if convert is not None:
        return convert(type_, text)
    found = _collect(type_, text)
    value: dict[str, Any] = {}
    for field in type_.fields:
        pieces = [one for _, one in found.get(field.number, ())]
        if field.is_repeated:
            value[field.name] = _read_repeated(field, pieces)
        elif pieces or not field.has_presence or field.default is not None:
            value[field.name] = _read_single(field, pieces)
    return value


def _read_single(field: FieldType, pieces: list[bytes | int]) -> Any:
    if field.message is not None:
        return _read_message(field.message, b"".join(one for one in pieces if isinstance(one, bytes)))
    if not pieces:
        return _write_default(field)
    return _read_scalar(field, pieces[-1])


def _write_default(field: FieldType) -> Any:
    if field.enum is not None:
        return _write_enum(field, field.default)
    if isinstance(field.default, bytes):
        return base64.b64encode(field.default).decode()
    return _write_float(float(field.default)) if field.kind in ("float", "double") else field.default


def _read_repeated(field: FieldType, pieces: list[bytes | int]) -> Any:
    item = field.item
    if not field.is_map:
        return [_read_single(item, [piece]) for piece in pieces]
    assert field.message is not None
    key, value = field.message.by_number[1], field.message.by_number[2]
    members: dict[str, Any] = {}
    for piece in pieces:
        assert isinstance(piece, bytes)
        found = _collect(field.message, piece)
        if value.enum is not None and value.enum.is_closed and 2 not in found and _has_number(piece, 2):
            continue
        name = _read_single(key, [one for _, one in found.get(1, ())])
        text = name if isinstance(name, str) else json.dumps(name)
        members[text] = _read_single(value, [one for _, one in found.get(2, ())])
    return members


def _has_number(text: bytes, wanted: int) -> bool:
    at = 0
    while at < len(text):
        first = at
        tag, at = read_tag(text, at, len(text))
        if tag >> 3 == wanted:
            return True
        at = skip_field(text, first, at, len(text), tag, 0)
    return False


def _read_scalar(field: FieldType, value: bytes | int) -> Any:
    if isinstance(value, bytes):
        return value.decode() if field.kind == "string" else base64.b64encode(value).decode()
    if field.enum is not None:
        return _write_enum(field, value)
    match field.kind:
        case "bool":
            return value != 0
        case "float":
            number = struct.unpack("<f", struct.pack("<I", value))[0]
            return _write_float(float(str(np.float32(number))))
        case "double":
            return _write_float(struct.unpack("<d", struct.pack("<q", value))[0])
        case "uint64" | "fixed64":
            return value & (1 << 64) - 1
    return value


def _write_enum(field: FieldType, number: int) -> Any:
    assert field.enum is not None
    if field.enum.name == f"{WELL_KNOWN}NullValue":
        return None
    return field.enum.names.get(number, number)


def _write_float(number: float) -> Any:
    if math.isfinite(number):
        return number
    return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"


def _read_values(type_: MessageType, text: bytes) -> dict[str, Any]:
    found = _collect(type_, text)
    return {
        field.name: _read_single(field, [one for _, one in found.get(field.number, ())])
        for field in type_.fields
        if not field.is_repeated and (field.number in found or not field.has_presence)
    }


def _write_timestamp(type_: MessageType, text: bytes) -> str:
    parts = _read_values(type_, text)
    seconds, nanos = parts["seconds"], parts["nanos"]
    if not (INSTANT_MIN_US <= seconds * 1_000_000 <= INSTANT_MAX_US and 0 <= nanos < _NANOS):
        raise _UnreadableError
    return (_EPOCH + timedelta(seconds=seconds)).isoformat() + _write_fraction(nanos) + "Z"


def _write_fraction(nanos: int) -> str:
    if not nanos:
        return ""
    digits = f"{nanos:09}"
    return "." + (digits[:3] if digits.endswith("000000") else digits[:6] if digits.endswith("000") else digits)


def write_duration(seconds: int, nanos: int) -> str | None:
    """Return a Duration as Protobuf's JSON has it, such as ``1.500s``; None if it is not one."""
    if abs(seconds) > SECONDS_MAX or abs(nanos) >= _NANOS or seconds * nanos < 0:
        return None
    sign = "-" if seconds < 0 or nanos < 0 else ""
    return f"{sign}{abs(seconds)}{_write_fraction(abs(nanos))}s"


def _write_duration(type_: MessageType, text: bytes) -> str:
    parts = _read_values(type_, text)
    written = write_duration(parts["seconds"], parts["nanos"])
    if written is None:
        raise _UnreadableError
    return written


def _write_wrapped(type_: MessageType, text: bytes) -> Any:
    return _read_values(type_, text)["value"]


def _write_struct(type_: MessageType, text: bytes) -> Any:
    field = type_.by_name["fields"]
    return _read_repeated(field, [one for _, one in _collect(type_, text).get(field.number, ())])


def _write_list(type_: MessageType, text: bytes) -> Any:
    field = type_.by_name["values"]
    return _read_repeated(field, [one for _, one in _collect(type_, text).get(field.number, ())])


def _write_value(type_: MessageType, text: bytes) -> Any:
    return next(iter(_read_values(type_, text).values()), None)


def _write_mask(type_: MessageType, text: bytes) -> str:
    pieces = _collect(type_, text).get(1, ())
    return ",".join(one.decode() for _, one in pieces if isinstance(one, bytes))


_CONVERTED: Final[Mapping[str, Callable[[MessageType, bytes], Any]]] = {
    f"{WELL_KNOWN}Timestamp": _write_timestamp,
    f"{WELL_KNOWN}Duration": _write_duration,
    f"{WELL_KNOWN}Struct": _write_struct,
    f"{WELL_KNOWN}ListValue": _write_list,
    f"{WELL_KNOWN}Value": _write_value,
    f"{WELL_KNOWN}FieldMask": _write_mask,
    **{
        f"{WELL_KNOWN}{name}Value": _write_wrapped
        for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}
"""Functions that write the JSON form of special messages, by name."""
