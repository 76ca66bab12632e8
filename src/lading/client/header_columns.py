"""Typed Arrow columns to headers: one header per column, of the kind of its type (docs/reference/python-api)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..kernels import engine
from ..model.batch import HEADER_TYPE, HEADERS_TYPE
from ..model.errors import LocalError, SettingError
from ..model.kinds import KIND_BY_WORD, Kind
from . import fallback

KERNEL_MODULE = "lading.client.kernels"
VALUES_BYTES_MAX = (1 << 31) - 1
"""The bytes that one Arrow column of binary values can hold."""

NO_KINDS: Final[Mapping[str, Kind]] = MappingProxyType({})
"""No kinds are given: the types of the columns choose them."""
Nulls = Literal["null", "absent"]
"""Meaning of a null in a column: a header whose value is null, or no header."""


class ColumnEncoder(NamedTuple):
    """Conversion of a column type to header values: the kind, and the conversion to a binary column."""

    kind: Kind
    binary: Callable[[Any], Any]


def _validity_of(column: Any) -> pa.Buffer | None:
    if column.null_count == 0:
        return None
    packed: pa.Buffer | None = pc.is_valid(column).buffers()[1]
    return packed


def _convert_fixed_width(width_bytes: int) -> Callable[[Any], Any]:
    """Return the conversion of values of fixed width: Arrow's buffer unchanged, little-endian like header values."""

    def binary(column: Any) -> Any:
        rows = len(column)
        values = column.buffers()[1].slice(column.offset * width_bytes, rows * width_bytes)
        ends = pa.py_buffer((np.arange(rows + 1, dtype=np.int32) * np.int32(width_bytes)).data)
        return pa.Array.from_buffers(pa.binary(), rows, [_validity_of(column), ends, values])

    return binary


def _convert_boolean(column: Any) -> Any:
    return _convert_fixed_width(1)(column.cast(pa.uint8()))


def _convert_text(column: Any) -> Any:
    return column.cast(pa.string()).cast(pa.binary())


def _convert_instant(column: Any) -> Any:
    """Return ISO 8601 with microseconds; with ``Z`` if the column has a time zone (the instant is in UTC then)."""
    zone = "Z" if column.type.tz else ""
    exact = column.cast(pa.timestamp("us", "UTC" if zone else None), safe=False)
    return pc.strftime(exact, format="%Y-%m-%dT%H:%M:%S" + zone).cast(pa.binary())


FORMS: dict[pa.DataType, ColumnEncoder] = {
    pa.bool_(): ColumnEncoder(Kind.BOOL, _convert_boolean),
    pa.int8(): ColumnEncoder(Kind.INT8, _convert_fixed_width(1)),
    pa.int16(): ColumnEncoder(Kind.INT16, _convert_fixed_width(2)),
    pa.int32(): ColumnEncoder(Kind.INT32, _convert_fixed_width(4)),
    pa.int64(): ColumnEncoder(Kind.INT64, _convert_fixed_width(8)),
    pa.uint8(): ColumnEncoder(Kind.UINT8, _convert_fixed_width(1)),
    pa.uint16(): ColumnEncoder(Kind.UINT16, _convert_fixed_width(2)),
    pa.uint32(): ColumnEncoder(Kind.UINT32, _convert_fixed_width(4)),
    pa.uint64(): ColumnEncoder(Kind.UINT64, _convert_fixed_width(8)),
    pa.float16(): ColumnEncoder(Kind.FLOAT32, lambda column: _convert_fixed_width(4)(column.cast(pa.float32()))),
    pa.float32(): ColumnEncoder(Kind.FLOAT32, _convert_fixed_width(4)),
    pa.float64(): ColumnEncoder(Kind.FLOAT64, _convert_fixed_width(8)),
    pa.date32(): ColumnEncoder(Kind.STRING, _convert_text),
    pa.date64(): ColumnEncoder(Kind.STRING, lambda column: _convert_text(column.cast(pa.date32()))),
    pa.null(): ColumnEncoder(Kind.RAW, lambda column: column.cast(pa.binary())),
}
"""Encoders by exact type."""

FAMILIES: tuple[tuple[Callable[[pa.DataType], bool], ColumnEncoder], ...] = (
    (pa.types.is_string, ColumnEncoder(Kind.STRING, _convert_text)),
    (pa.types.is_large_string, ColumnEncoder(Kind.STRING, _convert_text)),
    (pa.types.is_string_view, ColumnEncoder(Kind.STRING, _convert_text)),
    (pa.types.is_binary, ColumnEncoder(Kind.RAW, lambda column: column)),
    (pa.types.is_large_binary, ColumnEncoder(Kind.RAW, lambda column: column.cast(pa.binary()))),
    (pa.types.is_fixed_size_binary, ColumnEncoder(Kind.RAW, lambda column: column.cast(pa.binary()))),
    (
        lambda type_: pa.types.is_decimal128(type_) and type_.scale == 0,
        ColumnEncoder(Kind.INT128, _convert_fixed_width(16)),
    ),
    (pa.types.is_decimal, ColumnEncoder(Kind.STRING, _convert_text)),
    (pa.types.is_timestamp, ColumnEncoder(Kind.STRING, _convert_instant)),
)
"""Encoders by family of types; the first that fits is used."""


def form_of(name: str, type_: pa.DataType) -> ColumnEncoder:
    """Return the encoder of a column. Raises LocalError, which names the column, if no header kind has its type."""
    found = FORMS.get(type_) or next((form for fits, form in FAMILIES if fits(type_)), None)
    if found is None:
        raise LocalError(f"column {name!r} is {type_}; no header holds that. Cast it, to string for example")
    return found


def is_header_map(type_: pa.DataType) -> bool:
    """Return whether values of a type are headers as a map: of texts, or of bytes, by text."""
    of = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
    return pa.types.is_map(type_) and of[0](type_.key_type) and any(is_one(type_.item_type) for is_one in of)


def headers_of_map(column: Any) -> Any:
    """Return maps as the headers of messages, sorted by key, since maps have no order; a null map has no headers."""
    held: Any = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    bounds = np.asarray(held.offsets)
    lengths = np.where(np.asarray(held.is_valid()), np.diff(bounds), 0)
    ends = np.concatenate([[0], np.cumsum(lengths)])
    # the place of each entry: nulls, and rows that were sliced off, have no entries
    places = pa.array(np.arange(ends[-1]) + np.repeat(bounds[:-1] - ends[:-1], lengths))
    keys, items = held.keys.take(places).cast(pa.string()), held.items.take(places)
    by_key = {"row": pa.array(np.repeat(np.arange(len(held)), lengths)), "key": keys}
    order = pc.sort_indices(pa.table(by_key), sort_keys=[("row", "ascending"), ("key", "ascending")])
    encoder = form_of("headers", items.type)
    kinds = pa.array(np.full(len(keys), int(encoder.kind), np.int8))
    values = encoder.binary(items.take(order))
    headers = pa.StructArray.from_arrays([keys.take(order), kinds, values], fields=list(HEADER_TYPE))
    bounds_of_rows: Any = pa.array(ends.astype(np.int32))
    return pa.ListArray.from_arrays(bounds_of_rows, headers, type=HEADERS_TYPE)


KIND_TYPES: dict[Kind, pa.DataType] = {
    Kind.RAW: pa.binary(),
    Kind.STRING: pa.string(),
    Kind.BOOL: pa.bool_(),
    Kind.INT8: pa.int8(),
    Kind.INT16: pa.int16(),
    Kind.INT32: pa.int32(),
    Kind.INT64: pa.int64(),
    Kind.INT128: pa.decimal128(38, 0),
    Kind.UINT8: pa.uint8(),
    Kind.UINT16: pa.uint16(),
    Kind.UINT32: pa.uint32(),
    Kind.UINT64: pa.uint64(),
    Kind.UINT128: pa.decimal128(38, 0),
    Kind.FLOAT32: pa.float32(),
    Kind.FLOAT64: pa.float64(),
}
"""The Arrow type whose encoder writes a kind; a column of another type is cast to it."""


class ColumnHeader(NamedTuple):
    """One header that is written from a column; ``kind`` is None if the type of the column chooses it."""

    key: str
    column: str
    kind: Kind | None = None


_QUOTED: Final = r'"(?:[^"]|"")+"|`[^`]+`'
_COLUMN_HEADER: Final = re.compile(rf"(?P<key>{_QUOTED}|.+?)(?::(?P<kind>\w+))?(?:\s+from\s+(?P<column>{_QUOTED}|.+))?")


def split_column_headers(text: str) -> tuple[str, ...]:
    """Split a list of headers, ``carrier, delay:uint16, "a, b" from x``, at the commas outside of quotes."""
    parts = re.findall(rf"(?:{_QUOTED}|[^,])+", text)
    return tuple(part.strip() for part in parts if part.strip())


def parse_column_header(text: str) -> ColumnHeader:
    """Parse ``NAME[:KIND] [from COLUMN]``. Raises SettingError for a word that is nearly a kind.

    A name with a comma, a colon or the word ``from`` is written in double quotes or backticks. A colon before a word
    that is not like any kind belongs to the name.
    """
    found = _COLUMN_HEADER.fullmatch(text.strip())
    if found is None:
        raise SettingError(f"header {text!r}: write a column, name:kind, or name:kind from column")
    key, word, column = found["key"], found["kind"], found["column"]
    kind = None if word is None else KIND_BY_WORD.get(word.lower())
    if word is not None and kind is None:
        near = get_close_matches(word.lower(), KIND_BY_WORD, 1)
        if near or key[0] in '"`':
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise SettingError(
                f"header {text!r}: {word!r} is not a header kind{hint}; kinds are {', '.join(KIND_BY_WORD)}"
            )
        key = f"{key}:{word}"
    name = _unquote(key)
    return ColumnHeader(name, name if column is None else _unquote(column.strip()), kind)


def _unquote(name: str) -> str:
    if name[0] == name[-1] == '"' and len(name) > 2:
        return name[1:-1].replace('""', '"')
    return name[1:-1].replace("``", "`") if name[0] == name[-1] == "`" and len(name) > 2 else name


def check_kind(name: str, type_: pa.DataType, kind: Kind) -> None:
    """Raise LocalError, which names the column, if values of its type cannot be written as ``kind``."""
    column: Any = pa.array([], type_)
    try:
        if kind is Kind.BOOL and not (pa.types.is_boolean(type_) or pa.types.is_string(type_)):
            raise pa.ArrowNotImplementedError
        _cast_to_kind(name, column, kind)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        raise LocalError(f"column {name!r} is {type_} and cannot be written as {kind.word}; cast it") from None


def _cast_to_kind(name: str, column: Any, kind: Kind) -> Any:
    """Return the column cast to the Arrow type of a kind; nothing is wrapped, truncated or rounded."""
    if kind is Kind.STRING and form_of(name, column.type).kind is Kind.STRING:
        return column
    cast = column.cast(KIND_TYPES[kind])
    if kind is Kind.UINT128 and pc.any(pc.less(cast, pa.scalar(0)), min_count=0).as_py():
        raise pa.ArrowInvalid("a value is negative")
    return cast


def _encode_as(name: str, column: Any, kind: Kind) -> Any:
    """Return the values of a column in this kind of header. Raises LocalError for a value out of range."""
    try:
        cast = _cast_to_kind(name, column, kind)
    except pa.ArrowInvalid as error:
        raise LocalError(f"column {name!r} cannot be written as {kind.word}: {error}; choose a wider kind") from None
    return form_of(name, cast.type).binary(cast)


def headers_of(
    batch: pa.RecordBatch, columns: Mapping[str, str], nulls: Nulls, kinds_by_key: Mapping[str, Kind] = NO_KINDS
) -> Any:
    """Return the headers column of a batch: in each row one header per column, in order.

    ``columns`` maps header keys to column names; the kind of a header is that in ``kinds_by_key``, else the one of its
    column's type.
    """
    rows, width = batch.num_rows, len(columns)
    if not width:
        raise LocalError("name at least one column to become a header")
    kinds: list[int] = []
    parts: list[Any] = []
    for key, name in columns.items():
        column = batch.column(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        kind = kinds_by_key.get(key)
        if kind is not None:
            kinds.append(kind)
            parts.append(_encode_as(name, column, kind))
            continue
        form = form_of(name, column.type)
        kinds.append(form.kind)
        parts.append(form.binary(column))
    values = _row_by_row(parts, rows)
    if nulls == "absent" and values.null_count:
        kept = np.asarray(values.is_valid())
        which = np.tile(np.arange(width, dtype=np.int32), rows)[kept]
        ends = np.append(0, np.cumsum(kept))[::width].astype(np.int32)
        keys = pa.array(list(columns), pa.string())
        entries = [keys.take(which), pa.array(np.array(kinds, np.int8)[which]), values.drop_null()]
    else:
        ends = np.arange(rows + 1, dtype=np.int32) * np.int32(width)
        entries = [*_repeat_keys(tuple(columns), tuple(kinds), rows), values]
    structs = pa.StructArray.from_arrays(entries, fields=list(HEADER_TYPE))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs, type=HEADERS_TYPE)


def _row_by_row(parts: Sequence[Any], rows: int) -> Any:
    """Return the values of binary columns of ``rows`` rows as one array, row by row."""
    width = len(parts)
    sizes = np.empty((rows, width), np.int64)
    valid = None if not any(part.null_count for part in parts) else np.ones((rows, width), np.bool_)
    sources = []
    for place, part in enumerate(parts):
        _, ends, data = part.buffers()
        held = np.frombuffer(ends, np.int32, rows + 1, 4 * part.offset) if rows else np.zeros(1, np.int32)
        sources.append((held, np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)))
        np.subtract(held[1:], held[:-1], out=sizes[:, place], dtype=np.int64)
        if valid is not None and part.null_count:
            valid[:, place] = part.is_valid()
            sizes[:, place] *= valid[:, place]
    total = int(sizes.sum())
    if total > VALUES_BYTES_MAX:
        raise LocalError(f"the headers of {rows} rows have {total} bytes; send fewer rows at a time")
    places = np.zeros(rows * width + 1, np.int32)
    np.cumsum(sizes.ravel(), out=places[1:])
    target = np.empty(total, np.uint8)
    kernels = engine.select(KERNEL_MODULE, fallback, total)
    for place, (held, octets) in enumerate(sources):
        kernels.spread(held, octets, place, width, places, target)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little").data)
    buffers = [bits, pa.py_buffer(places.data), pa.py_buffer(target.data)]
    return pa.Array.from_buffers(pa.binary(), rows * width, buffers)


@lru_cache(2)
def _repeat_keys(texts: tuple[str, ...], kinds: tuple[int, ...], times: int) -> tuple[Any, Any]:
    """Return keys and kinds, ``times`` times. The last result is cached, as all batches of a table but one
    are alike.
    """
    keys = [text.encode() for text in texts]
    ends = np.zeros(len(keys) * times + 1, np.int32)
    np.cumsum(np.tile([len(key) for key in keys], times), out=ends[1:])
    data = pa.py_buffer(b"".join(keys) * times)
    made = pa.Array.from_buffers(pa.string(), len(ends) - 1, [None, pa.py_buffer(ends.data), data])
    return made, pa.array(np.tile(np.array(kinds, np.int8), times))


def with_header(headers: Any, key: str, values: Any) -> Any:
    """Return a headers column with one more raw header at the end of each row; ``values`` are binary, one per row."""
    rows = len(headers)
    counts = pc.list_value_length(headers).to_numpy(zero_copy_only=False)
    ends = np.zeros(rows + 1, np.int32)
    np.cumsum(counts + 1, out=ends[1:])
    old = headers.flatten()
    order = np.empty(int(ends[-1]), np.int64)
    fresh = np.zeros(len(order), np.bool_)
    fresh[ends[1:] - 1] = True
    order[fresh], order[~fresh] = np.arange(len(old), len(order)), np.arange(len(old))
    keys: Any = pa.repeat(pa.scalar(key), rows)
    kinds = pa.array(np.full(rows, int(Kind.RAW), np.int8))
    more = pa.StructArray.from_arrays([keys, kinds, values], fields=list(HEADER_TYPE))
    entries = pa.concat_arrays([old, more]).take(pa.array(order))
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), entries, type=HEADERS_TYPE)


def header_names(headers: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return a mapping of header key to column, from such a mapping or from column names that are also the keys."""
    return dict(headers) if isinstance(headers, Mapping) else {name: name for name in headers}
