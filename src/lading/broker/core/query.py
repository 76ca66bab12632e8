"""Filtered batches: a reader's condition and columns, applied next to the stored messages (design.md Filter).

``read`` takes the needed chunks from the log; ``select_in_turns`` does the work and may run in any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...columns.assemble import assemble
from ...columns.contract import Projection, parse_columns
from ...dialects import registry
from ...dialects.native import protocol as native_row
from ...filter.filter import Filter, select_fields, select_keys
from ...filter.parse import parse
from ...model.batch import FIELDS, SCHEMA
from ...model.lazy_dataclass import lazy_dataclass
from ...model.protocol import VisibilityRule
from ...model.ranges import write_marks
from ...model.run import Decoded, Located
from ...model.scan_request import MAX_OFFSET, ScanRequest
from ...model.state import State
from ...payloads.form import JSON_FORM, PayloadForm
from ...runtime.turns import Turns, finish
from .read import ReadResult
from .topology import Partition

States = Literal["available", "all"]
SLICE_ROWS: Final = 8192
"""Rows that a filter looks at before it yields."""


@lazy_dataclass(frozen=True, slots=True)
class Query:
    """A request for messages; ``projection`` None is the whole Batch, ``headers_only`` leaves the payload null."""

    filter: Filter | None = None
    projection: Projection | None = None
    states: States = "available"
    headers_only: bool = False

    @property
    def reader(self) -> VisibilityRule:
        """The reader kind whose visibility rules apply."""
        return native_row.ALL_STATES if self.states == "all" else native_row.AVAILABLE

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the batches."""
        return SCHEMA if self.projection is None else self.projection.schema

    @property
    def fields(self) -> frozenset[str]:
        """The message fields to decode."""
        asked = select_fields(self.projection, self.filter, "offset", "state")
        members = self.projection.payload if self.projection is not None else ()
        return asked - {"payload"} if self.headers_only and not members else asked

    @property
    def keys(self) -> tuple[str, ...]:
        """The header keys to locate."""
        return select_keys(self.projection, self.filter)


class Selected(NamedTuple):
    """The requested batches, and the position to continue from, after all messages that were checked."""

    batches: list[pa.RecordBatch]
    end_offset: int


def parse_query(
    where: str | None = None, columns: str | None = None, states: States = "available", headers_only: bool = False,
    form: PayloadForm = JSON_FORM,
) -> Query:  # fmt: skip
    """Return a query parsed from its texts; ``form`` says how payloads are read.

    Raises FilterError or SettingError, which say what is wrong with the texts.
    """
    projection = None if columns is None else parse_columns(columns, form)
    condition = None if where is None else parse(where, projection, closed=False, form=form)
    return Query(condition, projection, states, headers_only)


def select(
    reading: ReadResult, query: Query, partition: Partition, *, end: int = MAX_OFFSET, max_rows: int | None = None
) -> Selected:
    """Return the result of ``select_in_turns``, computed in one turn."""
    return finish(select_in_turns(reading, query, partition, end=end, max_rows=max_rows))


def select_in_turns(
    reading: ReadResult, query: Query, partition: Partition, *, end: int = MAX_OFFSET, max_rows: int | None = None
) -> Turns[Selected]:
    """Return the messages of ``reading`` below ``end`` that match, at most ``max_rows`` (from 1).

    Raises MalformedMessage if bytes are not what their dialect says.
    """
    place: dict[str, str | int] = {
        "stream": partition.topic.stream.name,
        "topic": partition.topic.name,
        "partition": partition.number,
    }
    left = MAX_OFFSET if max_rows is None else max(max_rows, 1)
    batches: list[pa.RecordBatch] = []
    for part in _decode_reading(reading, query, end):
        mask = yield from _mask_in_turns(part, query)
        rows = np.flatnonzero(mask)
        if not len(rows):
            continue
        if len(rows) > left:
            mask[rows[left] :] = False
        batches.append(_select_columns(part, query, place).filter(pa.array(mask)))
        if len(rows) >= left:
            last: Any = part.columns["offset"][int(rows[left - 1])]
            return Selected(batches, last.as_py() + 1)
        left -= len(rows)
    return Selected(batches, max(min(reading.end_offset, end), reading.first_offset))


def _decode_reading(reading: ReadResult, query: Query, end: int) -> Iterator[Decoded]:
    for run, first, stop in reading.pieces:
        if first < end:
            for part in registry.decode(run, ScanRequest(first, min(stop, end), query.fields, query.keys)):
                yield _with_states(part, reading.hidden)


def _with_states(part: Decoded, hidden: Sequence[tuple[int, int, int]]) -> Decoded:
    """Return the batch with the states that were set later in its state column."""
    if not hidden:
        return part
    states = write_marks(part.columns["state"].to_numpy(), part.columns["offset"].to_numpy(), hidden)
    return Decoded(part.count, {**part.columns, "state": pa.array(states, pa.int8())}, part.located)


def _mask_in_turns(part: Decoded, query: Query) -> Turns[NDArray[np.bool_]]:
    mask = np.ones(part.count, np.bool_)
    if query.states == "available":
        mask &= part.columns["state"].to_numpy() == State.AVAILABLE
    if query.filter is not None:
        for first in range(0, part.count, SLICE_ROWS):
            rows = slice(first, first + SLICE_ROWS)
            mask[rows] &= query.filter.selects(_slice(part, rows)).to_numpy(zero_copy_only=False)
            yield
    yield
    return mask


def _slice(part: Decoded, rows: slice) -> Decoded:
    if part.count <= SLICE_ROWS:
        return part
    columns = {name: column.slice(rows.start, SLICE_ROWS) for name, column in part.columns.items()}
    located = {
        key: Located(values.data, values.start[rows], values.length[rows], values.kind[rows])
        for key, values in part.located.items()
    }
    return Decoded(min(SLICE_ROWS, part.count - rows.start), columns, located)


def _select_columns(part: Decoded, query: Query, place: dict[str, str | int]) -> pa.RecordBatch:
    columns = dict(part.columns)
    if "payload" not in columns:
        columns["payload"] = pa.nulls(part.count, SCHEMA.field("payload").type)
    if query.projection is not None:
        return assemble(Decoded(part.count, columns, part.located), query.projection, place).batch
    return pa.RecordBatch.from_arrays([columns[name] for name in FIELDS], schema=SCHEMA)
