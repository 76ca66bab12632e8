"""Decoded messages and their contract to a record batch of message fields and typed header columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..model.batch import SCHEMA_WITH_ORIGIN
from ..model.errors import LocalError
from ..model.run import Decoded, Located
from ..payloads.form import find_fields
from ..payloads.found import WalkedPayloads
from .contract import ARRAY, PLACE_FIELDS, Encoding, Projection
from .instants import TIME_FIELDS, drop_unreadable_times
from .locate import locate
from .members import build_column
from .repeated import convert_repeated
from .typed import convert_column, convert_to_text


class ColumnBuilders(NamedTuple):
    """How columns are built: the conversion of header values, and of one text into an array of a given length."""

    typed: Callable[[Located, pa.DataType, Encoding], tuple[pa.Array[Any], pa.BooleanArray | None]]
    constant: Callable[[str, int], pa.Array[Any]]


class Assembled(NamedTuple):
    """A batch in the projection's schema, and for each column with unreadable values the rows that have them.

    A message's own time outside the years 1 to 9999 is unreadable too.
    """

    batch: pa.RecordBatch
    bad: dict[str, pa.BooleanArray]
    walked: WalkedPayloads | None = None
    """The walked payloads, if a column comes from them. A malformed payload has no readable columns."""

    @property
    def bad_count(self) -> int:
        """Return how many values of headers, keys and payloads were unreadable, over all columns."""
        return sum(flags.true_count for name, flags in self.bad.items() if name not in TIME_FIELDS)

    @property
    def unreadable_times(self) -> int:
        """Return how many messages have a time outside the years 1 to 9999, in a requested column."""
        flags: list[Any] = [self.bad[name] for name in TIME_FIELDS & self.bad.keys()]
        return int(reduce(pc.or_, flags).true_count) if flags else 0


def _same_text(text: str, rows: int) -> pa.Array[Any]:
    value: Any = pa.scalar(text)
    texts: pa.Array[Any] = pa.repeat(value, rows)
    return texts


PLAIN: Final = ColumnBuilders(convert_column, _same_text)
"""Every column in its own type."""


def assemble(
    decoded: Decoded, projection: Projection, place: Mapping[str, str | int] | None = None, form: ColumnBuilders = PLAIN
) -> Assembled:
    """Build the record batch of ``projection``.

    ``place`` has stream, topic and partition if these are columns. With another ``form`` than PLAIN, columns may be
    dictionaries of their type. Raises LocalError, which names a field or header that was not decoded.
    """
    made: dict[str, pa.Array[Any]] = {}
    bad: dict[str, pa.BooleanArray] = {}
    for field in projection.fields:
        if field in PLACE_FIELDS:
            if place is None or field not in place:
                raise LocalError(
                    f"column {field!r} was requested, but the source of the messages is unknown; give its place"
                )
            made[field] = _repeat_constant(place[field], PLACE_FIELDS[field], decoded.count, form)
        else:
            made[field] = _require_decoded(decoded.columns, field, "message field")
            unreadable: pa.BooleanArray | None = None
            if field in TIME_FIELDS:
                made[field], unreadable = drop_unreadable_times(made[field])
            elif field in projection.texts:
                made[field], unreadable = convert_to_text(made[field])
            if unreadable is not None:
                bad[field] = unreadable
    for column in projection.headers:
        if column.type == ARRAY:
            headers = _require_decoded(decoded.columns, "headers", "message field")
            made[column.name], flags = convert_repeated(headers, column.header, column.encoding)
        else:
            located: Located = _require_decoded(decoded.located, column.header, "header")
            made[column.name], flags = form.typed(located, column.type, column.encoding)
        if flags is not None:
            bad[column.name] = flags
    walked: WalkedPayloads | None = None
    if projection.payload:
        paths = [column.path for column in projection.payload]
        read = {name: _require_decoded(decoded.columns, name, "message field") for name in find_fields(paths)}
        topic = str(place.get("topic", "")) if place is not None else ""
        walked = projection.form.walk(read, decoded.located, paths, topic)
        is_any_malformed = bool(walked.malformed.any()) or walked.keys is not None
        for member in projection.payload:
            made[member.name], wrong = build_column(walked.values[member.path], member, form.typed)
            if is_any_malformed:
                wrong = wrong | walked.find_malformed(member.path)
            if wrong.any():
                bad[member.name] = pa.array(wrong)
    fields = [field.with_type(made[field.name].type) for field in projection.schema]
    batch = pa.RecordBatch.from_arrays([made[field.name] for field in fields], schema=pa.schema(fields))
    return Assembled(batch, bad, walked)


def to_decoded(batch: pa.RecordBatch, keys: Sequence[str] = ()) -> Decoded:
    """Return a Batch as Decoded, with ``keys`` located in its headers, for ``assemble`` and filters."""
    columns = {name: batch.column(name) for name in batch.schema.names if name in SCHEMA_WITH_ORIGIN.names}
    located = locate(_require_decoded(columns, "headers", "message field"), keys) if keys else {}
    return Decoded(batch.num_rows, columns, located)


def _repeat_constant(value: str | int, type_: pa.DataType, rows: int, form: ColumnBuilders) -> pa.Array[Any]:
    if isinstance(value, str):
        return form.constant(value, rows)
    # Arrow would append a number value by value
    numbers: pa.Array[Any] = pa.array(np.full(rows, value, type_.to_pandas_dtype()))
    return numbers


def _require_decoded(held: Mapping[str, Any], name: str, what: str) -> Any:
    try:
        return held[name]
    except KeyError:
        raise LocalError(f"the {what} {name!r} was requested but not decoded; decoded are {', '.join(held)}") from None
