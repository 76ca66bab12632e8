"""Single rows taken out of a Batch and put back, for the few that need a closer look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...model.batch import SCHEMA
from ...model.headers import Header

_FIELDS = ("key", "headers", "payload", "id", "checksum")


@dataclass(frozen=True, slots=True)
class Row:
    """The facts of one message that a carrier may touch."""

    key: bytes | None
    headers: Sequence[Header]
    payload: bytes | None
    id: bytes | None
    checksum: int | None


def rows_at(batch: pa.RecordBatch, at: NDArray[np.int64]) -> list[Row]:
    """The rows at these positions."""
    taken = batch.select(list(_FIELDS)).take(at)
    return [
        Row(
            row["key"],
            [Header(item["key"], item["kind"], item["value"]) for item in row["headers"]],
            row["payload"],
            row["id"],
            row["checksum"],
        )
        for row in taken.to_pylist()
    ]


def replaced(batch: pa.RecordBatch, at: NDArray[np.int64], rows: Sequence[Row]) -> pa.RecordBatch:
    """The Batch with ``rows`` at these positions; the facts that Row does not hold stay."""
    columns = dict(zip(SCHEMA.names, batch.select(list(SCHEMA.names)).columns, strict=True))
    order = np.arange(batch.num_rows)
    order[at] = batch.num_rows + np.arange(len(rows))
    for name in _FIELDS:
        values = [getattr(row, name) for row in rows]
        if name == "headers":
            values = [[header._asdict() for header in headers] for headers in values]
        fresh = pa.array(values, SCHEMA.field(name).type)
        columns[name] = pa.concat_arrays([columns[name], fresh]).take(pa.array(order))
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)
