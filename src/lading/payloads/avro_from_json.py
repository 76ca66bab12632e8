"""JSON texts as Avro datums by a writer's schema, one by one; errors give the path of the value that does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import Any, Final, NoReturn

from ..model.errors import LocalError
from ..schemas.avro import ABSENT, AvroSchema, AvroType
from .avro_datum import encode_value, find_scale, write_sized
from .avro_program import is_record

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICKS: Final[Mapping[str, int]] = {"timestamp-millis": 1_000, "timestamp-micros": 1}
"""Microseconds of one unit, by logical type."""
_BITS: Final = {"int": 32, "long": 64}
_ENDS: Final = {"float": (1 << 128) - (1 << 103), "double": (1 << 1024) - (1 << 970)}
"""The smallest numbers that round to infinity."""
_LATIN_MAX: Final = 255


class _Misfit(Exception):
    """A value does not fit its type: the path to it, and a sentence."""

    def __init__(self, path: str, sentence: str) -> None:
        # half a surrogate pair cannot be encoded in UTF-8
        super().__init__(f"{path or 'the payload'} {sentence}".encode(errors="backslashreplace").decode())


def encode_json(schema: AvroSchema, text: bytes) -> bytes:
    """Return a JSON text as an Avro datum. Raises LocalError with the path of a value that does not fit.

    Bytes are texts of Latin-1, as in Avro's JSON encoding. Decimals are numbers, dates and timestamps ISO texts, or as
    the encoding has them. A union takes the first branch that fits, or the one that an object names: ``{"string":
    "x"}``.
    """
    try:
        value = json.loads(text, parse_float=Decimal, parse_constant=_refuse_constant)
    except InvalidOperation:
        raise LocalError("payload: a number has an exponent that is too large; write it with fewer digits") from None
    except (ValueError, RecursionError) as error:
        raise LocalError(f"payload: not JSON: {error}; write it as JSON, as the schema is applied to that") from None
    try:
        return _Encoder().encode(schema.root, value, "")
    except _Misfit as misfit:
        raise LocalError(f"payload: {misfit}; correct the value, or name another schema") from None
    except RecursionError:
        raise LocalError("payload: nested too deep for its schema; send it with fewer levels") from None


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number of JSON")


class _Encoder:
    def __init__(self) -> None:
        self._known: dict[tuple[int, int], bytes | _Misfit] = {}
        """Results by union and object or array: nested records of a union are tried in many combinations."""

    def encode(self, type_: AvroType, value: Any, path: str) -> bytes:
        if is_record(type_):
            return self._encode_record(type_, value, path)
        if type_.kind == "union":
            encode_union = self._encode_once if _has_several(type_, value) else self._encode_union
            return encode_union(type_, value, path)
        if type_.kind in ("array", "map"):
            return self._encode_items(type_, value, path)
        if not _CHECKS[type_.kind](type_, value):
            converted = _convert_logical(type_, value)
            if converted is None:
                raise _Misfit(path, f"is {_show(value)}, which is not {_describe(type_)}")
            value = converted
        if type_.kind in _BITS:
            value = int(value)
        elif type_.kind in ("float", "double"):
            value = float(value)
        return value if isinstance(value, bytes) else encode_value(type_, value)

    def _encode_record(self, type_: AvroType, value: Any, path: str) -> bytes:
        if not isinstance(value, dict):
            raise _Misfit(path, f"is {_show(value)}, which is not an object ({type_.name})")
        names = {field.name for field in type_.fields}
        if unknown := next((name for name in value if name not in names), None):
            raise _Misfit(_join(path, unknown), f"is not a field of {type_.name}, which has {', '.join(sorted(names))}")
        parts = []
        for field in type_.fields:
            if field.name in value:
                parts.append(self.encode(field.type, value[field.name], _join(path, field.name)))
            elif field.default is not ABSENT:
                try:
                    parts.append(encode_value(field.type, field.default))
                except (ValueError, OverflowError) as error:
                    raise _Misfit(_join(path, field.name), f"is missing, and its default is invalid: {error}") from None
            else:
                raise _Misfit(_join(path, field.name), "is missing, and its field has no default")
        return b"".join(parts)

    def _encode_once(self, type_: AvroType, value: Any, path: str) -> bytes:
        key = (id(type_), id(value))
        if key not in self._known:
            try:
                self._known[key] = self._encode_union(type_, value, path)
            except _Misfit as misfit:
                self._known[key] = misfit
        found = self._known[key]
        if isinstance(found, _Misfit):
            raise found
        return found

    def _encode_union(self, type_: AvroType, value: Any, path: str) -> bytes:
        named = next(iter(value)) if isinstance(value, dict) and len(value) == 1 else None
        misfits = []
        for number, branch in enumerate(type_.branches):
            # an object that names the branch is Avro's own form
            for inner in [value[named]] if named == branch.label else [value]:
                try:
                    return _write_branch(number) + self.encode(branch, inner, path)
                except _Misfit as misfit:
                    misfits.append(misfit)
        if len(type_.branches) == 2 and value is not None:
            # for an optional value the other branch has the more useful error
            raise misfits[0 if type_.branches[1].kind == "null" else 1]
        kinds = ", ".join(branch.label for branch in type_.branches)
        raise _Misfit(path, f"is {_show(value)}, which is none of {kinds}")

    def _encode_items(self, type_: AvroType, value: Any, path: str) -> bytes:
        wanted = dict if type_.kind == "map" else list
        if not isinstance(value, wanted):
            raise _Misfit(path, f"is {_show(value)}, which is not {'an object' if wanted is dict else 'an array'}")
        below = type_.branches[0]
        if isinstance(value, dict):
            if wrong := next((name for name in value if not _is_text(name)), None):
                raise _Misfit(_join(path, wrong), "has a name that is not a text of Unicode")
            parts = [
                write_sized(name.encode()) + self.encode(below, item, _join(path, name)) for name, item in value.items()
            ]
        else:
            parts = [self.encode(below, item, f"{path}[{at}]") for at, item in enumerate(value)]
        return (encode_value(AvroType("long"), len(parts)) + b"".join(parts) if parts else b"") + b"\0"


def _has_several(type_: AvroType, value: Any) -> bool:
    """Return whether several branches may fit an object or array, so that each trial reads all its content."""
    kinds = ("record", "error", "map") if isinstance(value, dict) else ("array",) if isinstance(value, list) else ()
    return sum(branch.kind in kinds for branch in type_.branches) > 1


def _write_branch(number: int) -> bytes:
    return encode_value(AvroType("int"), number)


def _convert_logical(type_: AvroType, value: Any) -> Any:
    """Return the value of a logical type in its base type, a decimal as bytes; None if it does not fit."""
    logical = str(type_.attributes.get("logicalType"))
    scale = find_scale(type_)
    if scale is not None and _is_number(value):
        return _encode_decimal(type_, Decimal(value), scale)
    if not isinstance(value, str):
        return None
    try:
        if logical == "date" and type_.kind == "int":
            return (date.fromisoformat(value) - _EPOCH.date()).days
        if logical in _TICKS and type_.kind == "long":
            moment = datetime.fromisoformat(value)
            since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
            us = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
            return us // _TICKS[logical] if us % _TICKS[logical] == 0 else None
    except ValueError:
        return None
    return None


def _encode_decimal(type_: AvroType, value: Decimal, scale: int) -> bytes | None:
    if not value:
        value = Decimal(0)
    elif not 0 <= value.adjusted() + scale < type_.attributes["precision"]:
        return None
    digits = len(value.as_tuple().digits)
    number = value.scaleb(scale, Context(prec=digits, Emin=MIN_EMIN, Emax=MAX_EMAX))
    if number != number.to_integral_value():
        return None
    whole = int(number)
    size = type_.size_bytes if type_.kind == "fixed" else (whole + (whole < 0)).bit_length() // 8 + 1
    try:
        held = whole.to_bytes(size, "big", signed=True)
    except OverflowError:
        return None
    return held if type_.kind == "fixed" else write_sized(held)


def _is_whole(type_: AvroType, value: Any) -> bool:
    bits = _BITS[type_.kind]
    # the whole number of a large exponent is only computed if it is small
    return _is_number(value) and -(1 << bits - 1) <= value < 1 << bits - 1 and value == int(value)


def _is_float(type_: AvroType, value: Any) -> bool:
    end = _ENDS[type_.kind]
    # a number just below the limit may round to it
    return _is_number(value) and -end < value < end and -end < float(value) < end


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not any("\ud800" <= letter <= "\udfff" for letter in value)


def _is_bytes(type_: AvroType, value: Any) -> bool:
    if not isinstance(value, str) or any(ord(letter) > _LATIN_MAX for letter in value):
        return False
    return type_.kind != "fixed" or len(value) == type_.size_bytes


_CHECKS: Final[Mapping[str, Callable[[AvroType, Any], bool]]] = {
    "null": lambda type_, value: value is None,
    "boolean": lambda type_, value: isinstance(value, bool),
    "int": _is_whole,
    "long": _is_whole,
    "float": _is_float,
    "double": _is_float,
    "string": lambda type_, value: _is_text(value),
    "enum": lambda type_, value: value in type_.symbols,
    "bytes": _is_bytes,
    "fixed": _is_bytes,
}


def _describe(type_: AvroType) -> str:
    logical = type_.attributes.get("logicalType")
    if find_scale(type_) is not None:
        return f"a decimal({type_.attributes['precision']},{find_scale(type_)})"
    if type_.kind == "enum":
        return f"one of {', '.join(type_.symbols)}"
    return f"a {type_.label}" + (f" ({logical})" if logical else "")


def _show(value: Any) -> str:
    text = str(value) if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
