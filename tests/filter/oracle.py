"""A second evaluator: one message at a time, in plain Python, straight from docs/reference/filter.

It shares the parsed tree with the first one, and nothing else: values are read by ``int``, ``float`` and ``struct``.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pyarrow as pa

from lading.columns.contract import Encoding
from lading.filter.tree import (
    And,
    AnyHeader,
    Between,
    Cast,
    Compare,
    Condition,
    Domain,
    Field,
    HeaderRef,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Operator,
    Or,
    Present,
    Truth,
)  # fmt: skip
from lading.model.headers import Header as Held

Truth3 = bool | None
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INTEGER_FORMATS = {4: "b", 5: "h", 6: "i", 7: "q", 9: "B", 10: "H", 11: "I", 12: "Q"}
_RANGES: dict[pa.DataType, tuple[int, int]] = {
    pa.int8(): (-128, 127), pa.int16(): (-32768, 32767), pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1), pa.decimal128(38, 0): (-(10**38) + 1, 10**38 - 1), pa.bool_(): (0, 1),
}  # fmt: skip
_TYPES: dict[Domain, Any] = {
    Domain.TEXT: pa.string(), Domain.BYTES: pa.binary(), Domain.BOOLEAN: pa.bool_(), Domain.DOUBLE: pa.float64(),
}  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One message: its fields by name, its headers in order."""

    fields: Mapping[str, Any]
    headers: list[Held]


def holds(row: Row, node: Condition) -> Truth3:
    """Whether the message satisfies the condition; None is unknown."""
    match node:
        case And(terms):
            return reduce(_and, (holds(row, term) for term in terms))
        case Or(terms):
            return _not(reduce(_and, (_not(holds(row, term)) for term in terms)))
        case Not(term):
            return _not(holds(row, term))
    key = _any_key(node)
    if key is None:
        return _predicate(row, node, None)
    results = [_predicate(row, node, held) for held in row.headers if held.key == key]
    return True if True in results else None if None in results else False


def _predicate(row: Row, node: Any, one: Held | None) -> Truth3:
    match node:
        case Compare(operator, left, right, domain):
            return _compare(operator, _value(row, left, domain, one), _value(row, right, domain, one))
        case Between(operand, low, high, domain):
            value = _value(row, operand, domain, one)
            return _and(
                _compare(Operator.GE, value, _value(row, low, domain, one)),
                _compare(Operator.LE, value, _value(row, high, domain, one)),
            )
        case In(operand, items, domain):
            value = _value(row, operand, domain, one)
            found = [_compare(Operator.EQ, value, _value(row, item, domain, one)) for item in items]
            return True if True in found else None if None in found else False
        case Like(operand, pattern):
            text = _value(row, operand, Domain.TEXT, one)
            return None if text is None else re.fullmatch(_regex(pattern), text, re.DOTALL) is not None
        case IsNull(operand):
            return _is_null(row, operand, one)
        case Present(operand):
            return any(held.key == operand.key for held in row.headers)
        case Truth(operand):
            truth: Truth3 = _value(row, operand, Domain.BOOLEAN, one)
            return truth
    raise AssertionError(node)


def _compare(operator: Operator, left: Any, right: Any) -> Truth3:
    if left is None or right is None:
        return None
    if isinstance(left, int) != isinstance(right, int) and isinstance(left, int | float):
        left, right = float(left), float(right)
    if isinstance(left, float):
        left, right = (math.isnan(left), 0.0 if math.isnan(left) else left), (
            math.isnan(right), 0.0 if math.isnan(right) else right,
        )  # fmt: skip
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    answers: dict[Operator, bool] = {
        Operator.EQ: left == right, Operator.NE: left != right, Operator.LT: left < right,
        Operator.LE: left <= right, Operator.GT: left > right, Operator.GE: left >= right,
    }  # fmt: skip
    return answers[operator]


def _value(row: Row, operand: Operand, domain: Domain, one: Held | None) -> Any:
    match operand:
        case Literal(value):
            return float(value) if domain is Domain.DOUBLE and isinstance(value, int) else value
        case HeaderRef(_, None) | AnyHeader(_, None) | Field("key" | "payload"):
            held = _held(row, operand, one)
            if domain is Domain.NUMBER:
                whole = _read(held, pa.decimal128(38, 0), Encoding.AUTO)
                return whole if whole is not None else _read(held, pa.float64(), Encoding.AUTO)
            return _read(held, _TYPES.get(domain, pa.timestamp("us", "UTC")), Encoding.AUTO)
    value = _own(row, operand, one)
    return float(value) if domain is Domain.DOUBLE and isinstance(value, int) else value


def _own(row: Row, operand: Operand, one: Held | None) -> Any:
    match operand:
        case Literal(value):
            return value
        case HeaderRef(_, type_, encoding) | AnyHeader(_, type_, encoding):
            return _read(_held(row, operand, one), type_, encoding)
        case Field("state"):
            return {1: "available", 10: "unavailable", 20: "poisoned", 30: "marked_for_deletion"}[row.fields["state"]]
        case Field("timestamp"):
            return (row.fields["timestamp"] - _EPOCH) // _EPOCH.resolution
        case Field(name):
            return row.fields[name]
        case Cast(Literal(value)):
            return value
        case Cast(inner, type_):
            if _open(inner):
                return _read(_held(row, inner, one), type_, Encoding.AUTO)
            return _cast(_own(row, inner, one), type_)
    raise AssertionError(operand)


def _cast(value: Any, type_: pa.DataType) -> Any:
    """A value that has a type already, as another one."""
    if value is None:
        return None
    forms: dict[type, Callable[[], tuple[int, bytes]]] = {
        bool: lambda: (3, b"\x01" if value else b"\x00"),
        int: lambda: (8, value.to_bytes(16, "little", signed=True)),
        float: lambda: (15, struct.pack("<d", value)),
        str: lambda: (2, value.encode()),
        bytes: lambda: (1, value),
    }
    kind, data = forms[type(value)]()
    return _read(Held("", kind, data), type_, Encoding.AUTO)


def _held(row: Row, operand: Operand, one: Held | None) -> Held | None:
    match operand:
        case AnyHeader():
            return one
        case Field(name):
            return Held(name, 1, row.fields[name])
        case HeaderRef(key):
            return next((held for held in reversed(row.headers) if held.key == key), None)
    raise AssertionError(operand)


def _open(operand: Operand) -> bool:
    """Whether an operand takes the type of the other side."""
    untyped = isinstance(operand, HeaderRef | AnyHeader) and operand.type is None
    return untyped or operand in (Field("key"), Field("payload"))


def _is_null(row: Row, operand: Operand, one: Held | None) -> bool:
    if (isinstance(operand, HeaderRef | AnyHeader) and operand.type is None) or operand in (
        Field("key"),
        Field("payload"),
    ):
        held = _held(row, operand, one)
        return held is None or held.value is None
    return _own(row, operand, one) is None


def _read(held: Held | None, type_: Any, encoding: Encoding) -> Any:
    """A header value as a column type: docs/reference/contract, one value at a time."""
    if held is None or held.value is None:
        return None
    if type_ == pa.binary():
        return held.value
    if 3 <= held.kind <= 15:
        value = _number(held.kind, held.value)
        return None if value is None else _convert(value, type_)
    if encoding in (Encoding.BE, Encoding.LE) and held.kind != 2:
        width = {pa.int8(): 1, pa.int16(): 2, pa.int32(): 4, pa.int64(): 8, pa.bool_(): 1}[type_]
        order: Any = "big" if encoding is Encoding.BE else "little"
        return _convert(int.from_bytes(held.value, order, signed=True), type_) if len(held.value) == width else None
    try:
        text = held.value.decode()
    except UnicodeDecodeError:
        return None
    return _parse(text, type_)


def _number(kind: int, data: bytes) -> bool | int | float | None:
    if kind == 3:
        return {b"\x00": False, b"\x01": True}.get(data)
    try:
        if kind in (8, 13):
            return int.from_bytes(data, "little", signed=kind == 8) if len(data) == 16 else None
        code = _INTEGER_FORMATS.get(kind) or {14: "f", 15: "d"}[kind]
        value: int | float = struct.unpack("<" + code, data)[0]
        return value
    except struct.error:
        return None


def _parse(text: str, type_: pa.DataType) -> Any:
    if type_ == pa.string():
        return text
    if type_ == pa.bool_():
        return {"true": True, "1": True, "false": False, "0": False}.get(text.lower() if text.isascii() else text)
    whole = re.fullmatch(r"[+-]?[0-9]+", text)
    if type_ in _RANGES:
        return _convert(int(text), type_) if whole else None
    if type_ == pa.float64() or type_ == pa.float32():
        if not re.fullmatch(r"[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))", text):
            return None
        value = float(text)
        return None if math.isinf(value) and not re.search("(?i)inf", text) else _convert(value, type_)
    if whole:
        return _convert(int(text), type_)
    try:
        when = datetime.fromisoformat(text) if re.match(r"\d{4}-\d\d-\d\d", text) else None
    except ValueError:
        return None
    if when is None:
        return None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - _EPOCH) // _EPOCH.resolution


def _convert(value: bool | int | float, type_: pa.DataType) -> Any:
    """A number as a column type."""
    if type_ == pa.string():
        if isinstance(value, float):
            return pa.scalar(value).cast(pa.string()).as_py()
        return str(value).lower()
    if type_ == pa.float64():
        return float(value)
    if type_ == pa.float32():
        try:
            return struct.unpack("<f", struct.pack("<f", float(value)))[0]
        except OverflowError:
            return None
    if isinstance(value, float):
        if not value.is_integer():
            return None
        value = int(value)
    if type_ in _RANGES:
        low, high = _RANGES[type_]
        if not low <= value <= high:
            return None
        return bool(value) if type_ == pa.bool_() else int(value)
    return int(value) if -62_135_596_800_000_000 <= value <= 253_402_300_799_999_999 else None


def _regex(pattern: str) -> str:
    parts = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(part) or re.escape(part[-1]) for part in parts)


def _any_key(node: Any) -> str | None:
    todo = [getattr(node, name) for name in node.__slots__]
    while todo:
        part = todo.pop()
        if isinstance(part, AnyHeader):
            return part.key
        if isinstance(part, Cast):
            todo.append(part.operand)
    return None


def _and(left: Truth3, right: Truth3) -> Truth3:
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def _not(value: Truth3) -> Truth3:
    return None if value is None else not value


def readable(row: Row, key: str, type_: pa.DataType, encoding: Encoding) -> bool:
    """Whether the last value of a header, where there is one, can be read as a type."""
    held = _held(row, HeaderRef(key, type_, encoding), None)
    return held is None or held.value is None or _read(held, type_, encoding) is not None
