"""Topics in Polars: a LazyFrame that reads only the columns and rows that a query needs."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from ..client.scan import TopicScan
from ..client.scan_conditions import (
    MIRRORED,
    AllConditions,
    AnyCondition,
    ColumnComparison,
    ColumnCondition,
    ColumnNull,
    ColumnPrefix,
    ColumnValues,
)
from ..model.errors import LocalError
from ..model.extras import describe_install
from ..model.message import EPOCH

if TYPE_CHECKING:
    import polars as pl

_OPERATORS: Final = {"Eq": "=", "NotEq": "<>", "Lt": "<", "LtEq": "<=", "Gt": ">", "GtEq": ">="}
_JOINED: Final[dict[str, Any]] = {
    "And": AllConditions,
    "LogicalAnd": AllConditions,
    "Or": AnyCondition,
    "LogicalOr": AnyCondition,
}
_MICROS: Final = {"Milliseconds": 1000, "Microseconds": 1}


def to_lazy_frame(scan: TopicScan) -> pl.LazyFrame:
    """Return a LazyFrame of a scan, ``to_lazy_frame(scan).filter(pl.col("delay") > 60).select(pl.len())``.

    Only columns that a query needs are decoded. Conditions on headers, payload columns, partition, offset and timestamp
    select messages as they are read, by the server if it can; Polars applies the whole condition to what remains. The
    topic is read anew by each query, a few megabytes at a time. Raises LocalError if Polars is not installed.
    """
    try:
        import polars as pl
        from polars.io.plugins import register_io_source
    except ImportError:
        raise LocalError(f"polars: the package is not installed; {describe_install('polars')}") from None

    def read(
        names: list[str] | None, predicate: pl.Expr | None, rows: int | None, batch_rows: int | None
    ) -> Iterator[pl.DataFrame]:
        part = scan if rows is None else scan.limit(rows)
        if predicate is not None:
            part = part.push_down(to_condition(predicate))
        if names is not None:
            needed = [] if predicate is None else predicate.meta.root_names()
            part = part.select([*names, *needed])
        for batch in part.to_reader():
            frame = _to_frame(pl, batch)
            if predicate is not None:
                frame = frame.filter(predicate)
            yield frame if names is None else frame.select(names)

    schema = _to_frame(pl, scan.schema.empty_table()).schema
    return register_io_source(read, schema=schema)


def _to_frame(pl: Any, data: pa.RecordBatch | pa.Table) -> Any:
    frame = pl.from_arrow(data)
    return frame if isinstance(frame, pl.DataFrame) else frame.to_frame()


def to_condition(predicate: pl.Expr) -> ColumnCondition | None:
    """Return the part of an expression that Lading can evaluate; None for others, such as a function in Python."""
    try:
        return _read(json.loads(predicate.meta.serialize(format="json")))
    except Exception:
        # the form of expressions is Polars' own, and what is not read here is applied by Polars
        return None


def _read(node: Any) -> ColumnCondition | None:
    match node:
        case {"BinaryExpr": {"left": left, "op": operator, "right": right}} if operator in _JOINED:
            joined: ColumnCondition = _JOINED[operator]((_read(left), _read(right)))
            return joined
        case {"BinaryExpr": {"left": {"Column": str(name)}, "op": operator, "right": {"Literal": literal}}}:
            return _compare(name, _OPERATORS.get(operator), literal)
        case {"BinaryExpr": {"left": {"Literal": literal}, "op": operator, "right": {"Column": str(name)}}}:
            symbol = _OPERATORS.get(operator)
            return _compare(name, symbol and MIRRORED.get(symbol, symbol), literal)
        case {"Function": {"input": [{"Column": str(name)}, *inputs], "function": function}}:
            return _read_function(name, inputs, function)
        case {"Column": str(name)}:
            return ColumnComparison(name, "=", True)
    return None


def _read_function(name: str, inputs: list[Any], function: Any) -> ColumnCondition | None:
    match function, inputs:
        case {"Boolean": "IsNull"}, []:
            return ColumnNull(name)
        case {"Boolean": "IsNotNull"}, []:
            return ColumnNull(name, is_null=False)
        case {"StringExpr": "StartsWith"}, [{"Literal": literal}]:
            prefix = _read_literal(literal)
            return ColumnPrefix(name, prefix) if isinstance(prefix, str) else None
        case {"Boolean": {"IsIn": {"nulls_equal": False}}}, [{"Literal": {"Scalar": {"List": octets}}}]:
            values = _read_list(bytes(octets))
            return ColumnValues(name, values) if values else None
        case {"Boolean": {"IsBetween": {"closed": closed}}}, [{"Literal": low}, {"Literal": high}]:
            above = ">=" if closed in ("Both", "Left") else ">"
            below = "<=" if closed in ("Both", "Right") else "<"
            return AllConditions((_compare(name, above, low), _compare(name, below, high)))
    return None


def _compare(name: str, symbol: str | None, literal: Any) -> ColumnCondition | None:
    value = _read_literal(literal)
    return None if symbol is None or value is None else ColumnComparison(name, symbol, value)


def _read_literal(literal: Any) -> Any:
    """Return a constant: ``{"Dyn": {"Int": 5}}``, ``{"Scalar": {"String": "UA"}}``; None for one that is not known."""
    match literal:
        case {"Dyn": held} | {"Scalar": held} if isinstance(held, dict) and len(held) == 1:
            [(kind, value)] = held.items()
            if kind == "Datetime" and isinstance(value, list) and len(value) == 3 and value[2] is not None:
                return EPOCH + timedelta(microseconds=value[0] * _MICROS[value[1]])
            is_plain = kind in ("String", "Boolean") or kind.startswith(("Int", "UInt", "Float"))
            return value if is_plain and isinstance(value, str | bool | int | float) else None
    return None


def _read_list(octets: bytes) -> tuple[Any, ...]:
    """Return the values of a list, which Polars writes as a series in an Arrow stream."""
    import polars as pl

    values = pl.read_ipc_stream(io.BytesIO(octets)).to_series().to_list()
    if len(values) == 1 and isinstance(values[0], list):
        values = values[0]
    return tuple(value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value for value in values)
