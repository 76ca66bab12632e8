"""Pushdown: Spark's simple filters applied to Arrow batches before rows reach the JVM, and to ranges before reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from ..tables.plan.ranges import OffsetRange

Mask = Callable[[pa.RecordBatch], Any]
"""Returns the three-valued mask of a batch."""

_COMPARE: dict[type[Filter], Callable[[Any, Any], Any]] = {
    EqualTo: pc.equal,
    LessThan: pc.less,
    LessThanOrEqual: pc.less_equal,
    GreaterThan: pc.greater,
    GreaterThanOrEqual: pc.greater_equal,
}
_TEXT: dict[type[Filter], Callable[[Any, str], Any]] = {
    StringStartsWith: lambda column, value: pc.starts_with(column, pattern=value),
    StringEndsWith: lambda column, value: pc.ends_with(column, pattern=value),
    StringContains: lambda column, value: pc.match_substring(column, pattern=value),
}


@dataclass(frozen=True)
class Pushed:
    """The filters that were pushed down: all must hold. ``pruning`` names the message fields by which ranges shrink."""

    filters: tuple[Filter, ...]
    masks: tuple[Mask, ...]
    pruning: frozenset[str]

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which all conditions are true."""
        if not self.masks:
            return batch
        return batch.filter(reduce(pc.and_kleene, (mask(batch) for mask in self.masks)))

    def prune(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """Return the ranges reduced by the conditions on ``partition`` and ``offset``."""
        kept = list(ranges)
        condition: Any
        for condition in self.filters:
            attribute: tuple[str, ...] = getattr(condition, "attribute", ())
            cut = _CUTS.get((attribute, type(condition)))
            if cut is not None and attribute[0] in self.pruning and condition.value is not None:
                kept = [cut(piece, condition) for piece in kept]
        return [piece for piece in kept if piece.start < piece.end]


def push(filters: Iterable[Filter], schema: pa.Schema, fields: Iterable[str]) -> tuple[Pushed, list[Filter]]:
    """Return the filters that give exactly Spark's result here, and those that Spark has to apply itself.

    ``fields`` are the columns of ``schema`` that are message fields, not headers.
    """
    taken: list[Filter] = []
    masks: list[Mask] = []
    rest: list[Filter] = []
    for condition in filters:
        mask = _mask(condition, schema)
        if mask is None:
            rest.append(condition)
        else:
            taken.append(condition)
            masks.append(mask)
    return Pushed(tuple(taken), tuple(masks), frozenset(fields) & {"partition", "offset"}), rest


def _mask(condition: Filter, schema: pa.Schema) -> Mask | None:
    if isinstance(condition, Not):
        inner = _mask(condition.child, schema)
        return None if inner is None else _Negation(inner)
    attribute: tuple[str, ...] = getattr(condition, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in schema.names:
        return None
    name = attribute[0]
    type_ = schema.field(name).type
    if isinstance(condition, IsNull | IsNotNull):
        return _Null(name, isinstance(condition, IsNull))
    # Spark's NaN equals itself and is above all numbers, Arrow's is not; nested values it does not push
    if pa.types.is_floating(type_) or pa.types.is_nested(type_):
        return None
    values = condition.value if isinstance(condition, In) else (getattr(condition, "value", None),)
    try:
        scalars = tuple(pa.scalar(value, type_) for value in values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError, TypeError, ValueError):
        return None
    return _Comparison(name, type(condition), scalars) if type(condition) in _KNOWN and scalars else None


_KNOWN = frozenset({*_COMPARE, *_TEXT, EqualNullSafe, In})


@dataclass(frozen=True)
class _Negation:
    inner: Mask

    def __call__(self, batch: pa.RecordBatch) -> Any:
        return pc.invert(self.inner(batch))


@dataclass(frozen=True)
class _Null:
    name: str
    wanted: bool

    def __call__(self, batch: pa.RecordBatch) -> Any:
        column: Any = batch.column(self.name)
        return column.is_null() if self.wanted else column.is_valid()


@dataclass(frozen=True)
class _Comparison:
    name: str
    kind: type[Filter]
    values: tuple[pa.Scalar[Any], ...]

    def __call__(self, batch: pa.RecordBatch) -> Any:
        column: Any = batch.column(self.name)
        if self.kind in _COMPARE:
            return _COMPARE[self.kind](column, self.values[0])
        if self.kind in _TEXT:
            return _TEXT[self.kind](column, self.values[0].as_py())
        if self.kind is EqualNullSafe:
            return (
                pc.fill_null(pc.equal(column, self.values[0]), False) if self.values[0].is_valid else column.is_null()
            )
        return reduce(pc.or_kleene, (pc.equal(column, value) for value in self.values))


def _start_at(piece: OffsetRange, first: int) -> OffsetRange:
    return replace(piece, start=max(piece.start, first))


def _end_at(piece: OffsetRange, end: int) -> OffsetRange:
    return replace(piece, end=min(piece.end, end))


def _keep_partition(piece: OffsetRange, number: int) -> OffsetRange:
    return piece if piece.partition == number else replace(piece, end=piece.start)


_CUTS: dict[tuple[tuple[str, ...], type[Filter]], Callable[[OffsetRange, Any], OffsetRange]] = {
    (("partition",), EqualTo): lambda piece, condition: _keep_partition(piece, condition.value),
    (("offset",), EqualTo): lambda piece, condition: _end_at(_start_at(piece, condition.value), condition.value + 1),
    (("offset",), GreaterThan): lambda piece, condition: _start_at(piece, condition.value + 1),
    (("offset",), GreaterThanOrEqual): lambda piece, condition: _start_at(piece, condition.value),
    (("offset",), LessThan): lambda piece, condition: _end_at(piece, condition.value),
    (("offset",), LessThanOrEqual): lambda piece, condition: _end_at(piece, condition.value + 1),
}
