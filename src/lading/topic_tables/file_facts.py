"""Facts of one Parquet file that manifests name: rows, bytes, and the bounds by which engines skip it."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from decimal import Context
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from .table_schema import TableColumn, TableSchema

BOUND_LENGTH_MAX: Final = 16
"""Bytes or characters of a bound: Iceberg's own default."""
_SURROGATES: Final = range(0xD800, 0xE000)
Ranges = list[tuple[int, int]]
_UNBOUNDED: Final = frozenset({"payload"})
"""Columns whose bounds would skip nothing."""


@dataclass(slots=True)
class FileFacts:
    """The facts of a file in a manifest. Counts and bounds are by field id; bounds are in Iceberg's binary form."""

    rows: int
    size_bytes: int = 0
    splits: list[int] = field(default_factory=list)
    """The place in the file at which each row group begins."""
    values: dict[int, int] = field(default_factory=dict)
    nulls: dict[int, int] = field(default_factory=dict)
    nans: dict[int, int] = field(default_factory=dict)
    lower: dict[int, bytes] = field(default_factory=dict)
    upper: dict[int, bytes] = field(default_factory=dict)
    damaged: Ranges = field(default_factory=list)
    """Offsets that are missing, since they were damaged when the file was made."""
    bad: dict[int, int] = field(default_factory=dict)
    """Values that are null since they are not of the type of their column."""

    def to_document(self) -> dict[str, Any]:
        """Return the facts as JSON."""
        return {
            name: {str(number): held.hex() if isinstance(held, bytes) else held for number, held in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> FileFacts:
        """Return the facts of a JSON document."""
        facts: dict[str, Any] = {
            name: {
                int(number): bytes.fromhex(held) if isinstance(held, str) else held for number, held in value.items()
            }
            if isinstance(value, dict)
            else value
            for name, value in document.items()
        }
        facts["damaged"] = [(first, end) for first, end in facts.get("damaged", ())]
        return cls(**facts)


class FactCollector:
    """Collects the facts of a file from the batches that are written to it."""

    def __init__(self, schema: TableSchema) -> None:
        self._columns = [column for column in schema.columns if not pa.types.is_nested(column.type)]
        self._rows = 0
        self._nulls = dict.fromkeys((column.field_id for column in self._columns), 0)
        self._nans = {column.field_id: 0 for column in self._columns if pa.types.is_floating(column.type)}
        self._bounds: dict[int, tuple[Any, Any]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Count the rows of a batch and widen the bounds."""
        self._rows += batch.num_rows
        for column in self._columns:
            held: Any = batch.column(column.name)
            self._nulls[column.field_id] += held.null_count
            if column.field_id in self._nans:
                self._nans[column.field_id] += pc.sum(pc.is_nan(held)).as_py() or 0
            if column.name not in _UNBOUNDED:
                self._widen(column, held)

    def _widen(self, column: TableColumn, held: Any) -> None:
        least, most = _find_extremes(held)
        if least is None or (isinstance(least, float) and math.isnan(least)):
            return
        known = self._bounds.get(column.field_id)
        if known is not None:
            least, most = min(least, known[0]), max(most, known[1])
        self._bounds[column.field_id] = least, most

    def finish(self) -> FileFacts:
        """Return the facts of all batches."""
        facts = FileFacts(self._rows, nulls=self._nulls, nans=self._nans)
        facts.values = dict.fromkeys(self._nulls, self._rows)
        for column in self._columns:
            if column.field_id not in self._bounds:
                continue
            least, most = self._bounds[column.field_id]
            facts.lower[column.field_id] = encode_bound(column.type, cut_lower(least))
            if (upper := cut_upper(most)) is not None:
                facts.upper[column.field_id] = encode_bound(column.type, upper)
        return facts


def _find_extremes(held: Any) -> tuple[Any, Any]:
    if pa.types.is_fixed_size_binary(held.type):
        held = held.cast(pa.binary())
    if pa.types.is_timestamp(held.type):
        held = held.view(pa.int64())
    elif pa.types.is_date(held.type):
        held = held.view(pa.int32())
    found = pc.min_max(held)
    return found["min"].as_py(), found["max"].as_py()


def cut_lower(value: Any) -> Any:
    """Return a lower bound no longer than Iceberg keeps."""
    return value[:BOUND_LENGTH_MAX] if isinstance(value, str | bytes) else value


def cut_upper(value: Any) -> Any:
    """Return an upper bound no longer than Iceberg keeps: the last part that can grow is one more; None without one."""
    if not isinstance(value, str | bytes) or len(value) <= BOUND_LENGTH_MAX:
        return value
    if isinstance(value, bytes):
        kept = value[:BOUND_LENGTH_MAX].rstrip(b"\xff")
        return kept[:-1] + bytes([kept[-1] + 1]) if kept else None
    text = value[:BOUND_LENGTH_MAX].rstrip(chr(0x10FFFF))
    if not text:
        return None
    following = ord(text[-1]) + 1
    # half of a surrogate pair cannot stand alone
    return text[:-1] + chr(_SURROGATES.stop if following in _SURROGATES else following)


_EXACT: Final = Context(prec=76)
"""Keeps all digits of a decimal; the usual context rounds to 28, and a rounded bound hides rows."""
_FORMS: Final[Mapping[pa.DataType, str]] = {
    pa.int32(): "<i",
    pa.date32(): "<i",
    pa.int64(): "<q",
    pa.timestamp("us", "UTC"): "<q",
    pa.float32(): "<f",
    pa.float64(): "<d",
    pa.bool_(): "<?",
}


def encode_bound(type_: pa.DataType, value: Any) -> bytes:
    """Return a value in the single-value form (Iceberg specification, appendix D)."""
    if type_ in _FORMS:
        return struct.pack(_FORMS[type_], value)
    if isinstance(type_, pa.Decimal128Type):
        unscaled = int(_EXACT.scaleb(value, type_.scale))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return value.encode() if isinstance(value, str) else bytes(value)


def find_splits(metadata: Any) -> list[int]:
    """Return the places at which the row groups of a Parquet file begin."""
    return [_find_begin(metadata.row_group(group).column(0)) for group in range(metadata.num_row_groups)]


def _find_begin(column: Any) -> int:
    begins: Iterable[int | None] = (column.dictionary_page_offset, column.data_page_offset)
    return min(place for place in begins if place is not None)
