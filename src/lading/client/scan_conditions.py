"""Conditions on the columns of a scan, as data frames and query engines hand them over, and what a read does for them.

An engine applies its whole condition to the rows that it is given. A pushed condition may therefore select more rows
than the whole one does, and never fewer.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ..columns.contract import INTEGER_DECIMAL, TIMESTAMP, Encoding, Projection, type_word
from ..payloads.paths import write_path
from .read_bounds import ReadBounds

WHERE_CHARACTERS_MAX: Final = 16_384
"""Longer conditions, such as lists of thousands of values, are left to the engine."""
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), INTEGER_DECIMAL)
_INTEGER_MAX: Final = 10**37
_WHOLE_FLOAT_MAX: Final = 1 << 53
_FIELD_TYPES: Final = {"offset": pa.int64(), "timestamp": TIMESTAMP}
_COMPARE: Final[dict[str, Callable[[int, int], bool]]] = {
    "=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The operator of a comparison whose sides change places, if it is another one."""


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """``column operator value``, with an operator of SQL: =, <>, <, <=, >, >=."""

    column: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The column has one of the values."""

    column: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ColumnPrefix:
    """The text of the column begins with ``prefix``."""

    column: str
    prefix: str


@dataclass(frozen=True, slots=True)
class ColumnNull:
    """The column is null, or is not if ``is_null`` is false."""

    column: str
    is_null: bool = True


@dataclass(frozen=True, slots=True)
class AllConditions:
    """All terms hold. A term that is None is one that cannot be pushed down, and may hold or not."""

    terms: tuple[ColumnCondition | None, ...]


@dataclass(frozen=True, slots=True)
class AnyCondition:
    """True if one of the terms is true."""

    terms: tuple[ColumnCondition | None, ...]


ColumnCondition = ColumnComparison | ColumnValues | ColumnPrefix | ColumnNull | AllConditions | AnyCondition


def to_where(condition: ColumnCondition | None, projection: Projection | None) -> str | None:
    """Return a filter that selects all messages for which the condition holds, and perhaps more; None if all may.

    ``projection`` has the columns that the condition names; None if they are the fields of the Batch schema.
    """
    text = _write(condition, projection)
    return text if text is not None and len(text) <= WHERE_CHARACTERS_MAX else None


def clip_spans(spans: Iterable[ReadBounds], condition: ColumnCondition | None) -> Iterator[ReadBounds]:
    """Yield the spans reduced to the partitions and offsets for which the condition may hold."""
    terms = list(_list_conjuncts(condition))
    for span in spans:
        if not all(_may_hold(term, span.partition) for term in terms):
            continue
        low, high = span.offset, span.end
        for term in terms:
            first, end = _find_offsets(term)
            low = low if first is None else max(low, first)
            high = high if end is None else end if high is None else min(high, end)
        if high is None or low < high:
            yield span._replace(offset=low, end=high)


def _write(condition: ColumnCondition | None, projection: Projection | None) -> str | None:
    match condition:
        case AllConditions(terms):
            known = [text for term in terms if (text := _write(term, projection)) is not None]
            return f"({' AND '.join(known)})" if known else None
        case AnyCondition(terms):
            texts = [_write(term, projection) for term in terms]
            return f"({' OR '.join(map(str, texts))})" if texts and None not in texts else None
        case None:
            return None
    operand = _find_operand(condition.column, projection)
    if operand is None:
        return None
    text, type_ = operand
    match condition:
        case ColumnNull("timestamp", _):
            # one outside the years 1 to 9999 is null as a column, and a value in a filter
            return None
        case ColumnNull(_, is_null):
            return f"{text} IS NULL" if is_null else f"{text} IS NOT NULL"
        case ColumnPrefix(_, prefix):
            if type_ != pa.string():
                return None
            escaped = "".join("\\" + letter if letter in "\\%_" else letter for letter in prefix)
            return f"{text} LIKE {_quote(escaped + '%')}"
        case ColumnComparison(_, symbol, value):
            literal = _write_literal(value, type_, is_equality=symbol in ("=", "<>"))
            return None if literal is None else f"{text} {symbol} {literal}"
        case ColumnValues(_, values):
            literals = [_write_literal(value, type_, is_equality=True) for value in values if value is not None]
            if not literals or None in literals:
                return None
            return f"{text} IN ({', '.join(map(str, literals))})"


def _find_operand(name: str, projection: Projection | None) -> tuple[str, pa.DataType] | None:
    """Return what a filter reads to have the value of a column, and its type; None if no filter reads it alike."""
    if projection is None or name in projection.fields:
        if name in _FIELD_TYPES:
            return name, _FIELD_TYPES[name]
        is_text = projection is not None and name in projection.texts
        return (f"CAST({name} AS string)", pa.string()) if is_text else None
    header = projection.column(name)
    if header is not None:
        if header.encoding is not Encoding.AUTO or pa.types.is_nested(header.type):
            return None
        return f"CAST(header({_quote(header.header)}) AS {type_word(header.type)})", header.type
    member = projection.payload_column(name)
    if member is None or member.json or pa.types.is_nested(member.type):
        return None
    return f"CAST({write_path(member.path)} AS {type_word(member.type)})", member.type


def _write_literal(value: Any, type_: pa.DataType, *, is_equality: bool) -> str | None:
    """Return a constant as a filter compares it with a column of this type; None if the result could differ."""
    if type_ in _INTEGERS:
        if isinstance(value, Decimal) and value == value.to_integral_value():
            value = int(value)
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return str(value) if is_whole and abs(value) < _INTEGER_MAX else None
    if type_ == pa.string():
        return _quote(value) if isinstance(value, str) and "\x00" not in value else None
    if type_ == pa.bool_():
        return str(value).lower() if isinstance(value, bool) and is_equality else None
    if type_ == TIMESTAMP:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return f"'{value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z'"
    if type_ == pa.float64():
        # engines differ in what equals a NaN, and none of them says that it is less than a number
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        is_number = is_number and (isinstance(value, float) or abs(value) < _WHOLE_FLOAT_MAX)
        return repr(float(value)) if is_number and not is_equality else None
    return None


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _list_conjuncts(condition: ColumnCondition | None) -> Iterator[ColumnCondition]:
    match condition:
        case None:
            return
        case AllConditions(terms):
            for term in terms:
                yield from _list_conjuncts(term)
        case _:
            yield condition


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _may_hold(condition: ColumnCondition | None, partition: int) -> bool:
    """Return whether a condition may hold for messages of a partition."""
    match condition:
        case ColumnComparison("partition", symbol, value) if _is_number(value):
            return _COMPARE[symbol](partition, value)
        case ColumnValues("partition", values) if all(map(_is_number, values)):
            return partition in values
        case AllConditions(terms):
            return all(_may_hold(term, partition) for term in terms)
        case AnyCondition(terms):
            return any(_may_hold(term, partition) for term in terms)
    return True


def _find_offsets(condition: ColumnCondition) -> tuple[int | None, int | None]:
    """Return the first offset for which a condition may hold, and the one after the last."""
    match condition:
        case ColumnComparison("offset", symbol, value) if _is_number(value):
            if symbol == "=":
                return value, value + 1
            if symbol in (">", ">="):
                return value + (symbol == ">"), None
            if symbol in ("<", "<="):
                return None, value + (symbol == "<=")
        case ColumnValues("offset", values) if values and all(map(_is_number, values)):
            return min(values), max(values) + 1
    return None, None


def limit_to_fields(condition: ColumnCondition | None, fields: Sequence[str]) -> ColumnCondition | None:
    """Return the condition without the terms on ``partition`` and ``offset`` that are not fields but headers."""
    match condition:
        case AllConditions(terms) | AnyCondition(terms):
            return replace(condition, terms=tuple(limit_to_fields(term, fields) for term in terms))
        case None:
            return None
    return condition if condition.column in fields else None
