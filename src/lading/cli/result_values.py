"""Values of a query's result as JSON and a terminal can show them: each column is converted as a whole."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Final

from ..model.message import format_time

if TYPE_CHECKING:
    import pyarrow as pa

INFINITE_INSTANT: Final = 2**63 - 1
INFINITE_DATE: Final = 2**31 - 1
"""DuckDB's value for ``infinity`` in its timestamps and dates, and with a minus for ``-infinity``."""
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_UNITS_PER_US: Final = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
"""Factor and divisor that make microseconds of a timestamp of each unit."""


def distinguish_names(names: Sequence[str]) -> list[str]:
    """Return names of which no two are the same: ``delay``, ``delay_1``, as DuckDB names the columns of a table."""
    taken, distinct = set(names), []
    seen: set[str] = set()
    for name in names:
        candidate, number = name, 0
        while candidate in seen or (number and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        distinct.append(candidate)
    return distinct


def read_rows(batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
    """Return the rows of a batch, each with a value for each column, also for columns of the same name."""
    return list(zip(*(read_values(column) for column in batch.columns), strict=True))


def read_values(array: pa.Array[Any]) -> list[Any]:
    """Return the values of a column: bytes as text, or hex if they are not UTF-8, and times as text.

    Python has no times outside the years 1 to 9999 and none in nanoseconds, so their text is made from the numbers.
    """
    import pyarrow as pa

    given: Any = array
    types: Any = pa.types
    type_: Any = array.type
    if types.is_dictionary(type_):
        return read_values(given.dictionary_decode())
    if types.is_timestamp(type_):
        zone = "" if type_.tz is None else "+00:00"
        return [_format_instant(number, type_.unit, zone) for number in given.cast(pa.int64()).to_pylist()]
    if types.is_date(type_):
        return [_format_date(days) for days in given.cast(pa.date32()).cast(pa.int32()).to_pylist()]
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_fixed_size_binary(type_):
        return [None if value is None else _decode_text(value) for value in given.to_pylist()]
    if types.is_map(type_):
        return [None if value is None else [tuple(pair.values()) for pair in value] for value in _read_lists(given)]
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _read_lists(given)
    if types.is_struct(type_):
        names = [field.name for field in type_]
        rows = zip(*(read_values(child) for child in given.flatten()), strict=True)
        valid = given.is_valid().to_pylist()
        return [dict(zip(names, row, strict=True)) if whole else None for whole, row in zip(valid, rows, strict=True)]
    try:
        return list(given.to_pylist())
    except (ValueError, OverflowError):
        return list(given.cast(pa.string()).to_pylist())


def _read_lists(array: Any) -> list[Any]:
    return [read_values(scalar.values) if scalar.is_valid else None for scalar in array]


def _format_instant(number: int | None, unit: str, zone: str) -> str | None:
    if number is None:
        return None
    if abs(number) == INFINITE_INSTANT:
        return "infinity" if number > 0 else "-infinity"
    factor, divisor = _UNITS_PER_US[unit]
    time_us, rest = divmod(number * factor, divisor)
    text = format_time(time_us, "microseconds" if rest else "auto")
    if text.endswith("since 1970"):
        return text
    return f"{text}{rest:03}{zone}" if rest else text + zone


def _format_date(days: int | None) -> str | None:
    if days is None:
        return None
    if abs(days) == INFINITE_DATE:
        return "infinity" if days > 0 else "-infinity"
    try:
        return date.fromordinal(_EPOCH_ORDINAL + days).isoformat()
    except (ValueError, OverflowError):
        return f"{days} days since 1970"


def _decode_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.hex()
