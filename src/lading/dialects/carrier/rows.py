"""Splitting a Batch into rows and joining them again: whole columns if that is enough, else single rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ...model.batch import HEADER_TYPE, HEADERS_TYPE, ORIGIN_TIMESTAMP, SCHEMA_WITH_ORIGIN
from ...model.headers import Header
from ...model.kinds import Kind
from ...model.lazy_dataclass import lazy_dataclass


@lazy_dataclass(frozen=True, slots=True)
class Row:
    """The facts of one message that a carrier may touch."""

    key: bytes | None
    headers: Sequence[Header]
    payload: bytes | None
    id: bytes | None
    checksum: int | None
    timestamp_us: int | None
    origin_us: int | None = None


def rows_at(batch: pa.RecordBatch, at: NDArray[np.int64]) -> list[Row]:
    """Return the rows at these positions."""
    taken = batch.select(["key", "headers", "payload", "id", "checksum"]).take(at)
    times_us = batch.column("timestamp").take(at).cast(pa.int64()).to_pylist()
    origins_us: Sequence[int | None] = [None] * len(at)
    if ORIGIN_TIMESTAMP in batch.schema.names:
        origins_us = batch.column(ORIGIN_TIMESTAMP).take(at).cast(pa.int64()).to_pylist()
    return [
        Row(
            row["key"],
            [Header(item["key"], item["kind"], item["value"]) for item in row["headers"]],
            row["payload"],
            row["id"],
            row["checksum"],
            time_us,
            origin_us,
        )
        for row, time_us, origin_us in zip(taken.to_pylist(), times_us, origins_us, strict=True)
    ]


def replace_rows(batch: pa.RecordBatch, at: NDArray[np.int64], rows: Sequence[Row]) -> pa.RecordBatch:
    """Return the Batch with ``rows`` at these positions; facts that a Row does not have stay unchanged."""
    if not rows:
        return batch
    fresh: dict[str, Sequence[Any]] = {
        "key": [row.key for row in rows],
        "headers": [[header._asdict() for header in row.headers] for row in rows],
        "payload": [row.payload for row in rows],
        "id": [row.id for row in rows],
        "checksum": [row.checksum for row in rows],
        "timestamp": [row.timestamp_us for row in rows],
    }
    if ORIGIN_TIMESTAMP in batch.schema.names:
        fresh[ORIGIN_TIMESTAMP] = [row.origin_us for row in rows]
    return with_columns(batch, {name: patch_column(batch, name, at, values) for name, values in fresh.items()})


def with_columns(batch: pa.RecordBatch, columns: dict[str, Any]) -> pa.RecordBatch:
    """Return the Batch with some columns replaced."""
    schema = batch.schema
    return pa.RecordBatch.from_arrays([columns.get(name, batch.column(name)) for name in schema.names], schema=schema)


def without_origins(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the Batch without the column of origin times; the same object if it has none."""
    return batch.drop_columns(ORIGIN_TIMESTAMP) if ORIGIN_TIMESTAMP in batch.schema.names else batch


def patch_column(batch: pa.RecordBatch, name: str, at: Sequence[int] | NDArray[np.int64], values: Sequence[Any]) -> Any:
    """Return column ``name`` of the batch with ``values`` at the rows ``at``."""
    order = np.arange(batch.num_rows)
    order[np.asarray(at)] = batch.num_rows + np.arange(len(at))
    fresh = pa.array(values, SCHEMA_WITH_ORIGIN.field(name).type)
    return pa.concat_arrays([batch.column(name), fresh]).take(pa.array(order))


@lazy_dataclass(frozen=True, slots=True)
class Items:
    """All headers of a Batch as one array of HEADER_TYPE, with the row of each."""

    array: Any
    rows: NDArray[np.int64]
    rows_count: int

    def column(self) -> Any:
        """Return the items as a headers column."""
        offsets = np.zeros(self.rows_count + 1, np.int32)
        np.cumsum(np.bincount(self.rows, minlength=self.rows_count), out=offsets[1:])
        ends: Any = pa.array(offsets)
        return pa.ListArray.from_arrays(ends, self.array, type=HEADERS_TYPE)

    def append(self, rows: Sequence[int], headers: Sequence[Header]) -> Items:
        """Return the items with one more header at the end of each of these rows (a row may occur more than once)."""
        names, kinds, values = zip(*headers, strict=True)
        fresh = pa.StructArray.from_arrays(
            [pa.array(names, pa.string()), pa.array(kinds, pa.int8()), pa.array(values, pa.binary())],
            fields=list(HEADER_TYPE),
        )
        all_rows = np.concatenate([self.rows, np.array(rows, np.int64)])
        order = np.argsort(all_rows, kind="stable")
        items = pa.concat_arrays([self.array, fresh]).take(pa.array(order))
        return Items(items, all_rows[order], self.rows_count)

    def with_raw(self, rows: NDArray[np.int64], name: str, values: Any) -> Items:
        """Return the items with a raw header of this name at the end of each of these rows; ``values`` has
        one for each.
        """
        named: Any = pa.scalar(name, pa.string())
        kinds = pa.array(np.full(len(rows), int(Kind.RAW), np.int8))
        fresh = pa.StructArray.from_arrays([pa.repeat(named, len(rows)), kinds, values], fields=list(HEADER_TYPE))
        # both are in the order of rows: each header moves by the number of new ones before it
        count = len(self.rows) + len(rows)
        places = np.searchsorted(self.rows, rows, "right") + np.arange(len(rows))
        kept = np.ones(count, np.bool_)
        kept[places] = False
        order, all_rows = np.empty(count, np.int64), np.empty(count, np.int64)
        order[places], order[kept] = np.arange(len(self.rows), count), np.arange(len(self.rows))
        all_rows[places], all_rows[kept] = rows, self.rows
        return Items(pa.concat_arrays([self.array, fresh]).take(pa.array(order)), all_rows, self.rows_count)

    def select(self, keep: NDArray[np.bool_]) -> Items:
        """Return the items without the headers for which ``keep`` is False."""
        return Items(self.array.filter(pa.array(keep)), self.rows[keep], self.rows_count)


def items_of(batch: pa.RecordBatch) -> Items:
    """Return the headers of a Batch, also of a slice of one."""
    headers: Any = batch.column("headers")
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    return Items(headers.flatten(), np.repeat(np.arange(batch.num_rows), counts), batch.num_rows)
