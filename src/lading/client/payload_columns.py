"""Typed Arrow columns as JSON payloads: one object per row, from which payload columns read the same values."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..model.errors import LocalError, SettingError
from ..payloads.paths import PAYLOAD, Path, parse_path, unquote_name, write_path
from .header_columns import Nulls

FORMATS: Final = ("json", "avro", "protobuf")
"""The formats that columns can be written in."""
_ESCAPED: Final = r'["\\\x00-\x1f]'
_SOURCE: Final = re.compile(r'(?P<path>.+?)(?:\s+from\s+(?P<column>"(?:[^"]|"")+"|`(?:[^`]|``)+`|.+))?')
_NULL: Final = "null"


def parse_payload_columns(columns: Sequence[str] | Mapping[str, str]) -> dict[Path, str]:
    """Return the column of each path.

    ``columns`` maps paths to columns, or lists ``NAME`` and ``PATH from COLUMN``; a path may begin with ``payload.``,
    and a name alone is the member with that name. Raises SettingError.
    """
    pairs = list(columns.items()) if isinstance(columns, Mapping) else [_split_source(text) for text in columns]
    paths: dict[Path, str] = {}
    for text, column in pairs:
        path = parse_path(text) or parse_path(f"{PAYLOAD}.{text}") or (text,)
        if path in paths:
            raise SettingError(f"payload: {write_path(path)} is named twice; leave one out")
        paths[path] = column
    for path in paths:
        if inner := next((other for other in paths if len(other) > len(path) and other[: len(path)] == path), None):
            raise SettingError(
                f"payload: {write_path(path)} is a column, and {write_path(inner)} is inside of it; rename one of them"
            )
    return paths


def _split_source(text: str) -> tuple[str, str]:
    found = _SOURCE.fullmatch(text.strip())
    if found is None:
        raise SettingError("payload: a column without a name; write NAME, or PATH from COLUMN")
    path = found["path"]
    return path, unquote_name(found["column"] or path)


def check_payload_columns(schema: pa.Schema, columns: Mapping[Path, str]) -> None:
    """Raise LocalError, which names the column, if it does not exist or JSON has no form for its type."""
    for column in columns.values():
        if column not in schema.names:
            raise LocalError(f"column {column!r} does not exist; the table has {', '.join(schema.names)}")
        _write_json(column, pa.array([], schema.field(column).type))


def encode_json_payloads(batch: pa.RecordBatch, columns: Mapping[Path, str], nulls: Nulls = "null") -> pa.Array[Any]:
    """Return the payload of each row: a JSON object with the values of ``columns`` at their paths, in this order.

    Numbers are exact: decimals and integers of any size have all their digits, doubles the fewest that give the same
    value. A null is written, or left out with ``absent``. Raises LocalError for a value that JSON cannot express.
    """
    tree: dict[str, Any] = {}
    for path, column in columns.items():
        node = tree
        for name in path[:-1]:
            node = node.setdefault(name, {})
        node[path[-1]] = column
    payloads: pa.Array[Any] = _write_object(batch, tree, nulls).cast(pa.binary())
    return payloads


def encode_payloads(
    batch: pa.RecordBatch,
    columns: Mapping[Path, str],
    nulls: Nulls,
    format_: str,
    encode: Callable[[bytes], bytes] | None,
) -> pa.Array[Any]:
    """Return the payload of each row in a format; ``encode`` makes it from a JSON text, by a schema.

    Raises LocalError, which names the row whose values do not fit the schema.
    """
    if encode is None:
        return encode_json_payloads(batch, columns, nulls)
    for column in columns.values():
        place = batch.schema.get_field_index(column)
        held = batch.column(place)
        if (type_ := _find_text_type(held.type)) != held.type:
            texts = [_replace_bytes(value, _BYTES[format_]) for value in held.to_pylist()]
            batch = batch.set_column(place, column, pa.array(texts, type_))
    payloads: list[Any] = encode_json_payloads(batch, columns, nulls).to_pylist()
    encoded = []
    for row, payload in enumerate(payloads):
        try:
            encoded.append(encode(payload))
        except LocalError as error:
            raise LocalError(f"row {row} of {batch.num_rows}: {error}") from None
    return pa.array(encoded, pa.binary())


def _find_text_type(type_: pa.DataType) -> pa.DataType:
    """Return a type with texts in place of bytes, also inside lists, maps and structs."""
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_fixed_size_binary(type_):
        return pa.string()
    if isinstance(type_, pa.DictionaryType):
        inner = _find_text_type(type_.value_type)
        return type_ if inner == type_.value_type else inner
    if isinstance(type_, pa.MapType):
        return pa.map_(type_.key_type, _find_text_type(type_.item_type))
    if isinstance(type_, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        inner = _find_text_type(type_.value_type)
        return type_ if inner == type_.value_type else pa.list_(inner)
    if isinstance(type_, pa.StructType):
        return pa.struct([field.with_type(_find_text_type(field.type)) for field in type_])
    return type_


def _replace_bytes(value: Any, write: Callable[[bytes], str]) -> Any:
    """Return a Python value with texts in place of bytes; keys of maps stay unchanged."""
    if isinstance(value, bytes):
        return write(value)
    if isinstance(value, list):
        return [_replace_bytes(item, write) for item in value]
    if isinstance(value, tuple):
        return value[0], _replace_bytes(value[1], write)
    if isinstance(value, dict):
        return {name: _replace_bytes(member, write) for name, member in value.items()}
    return value


def _write_latin(held: bytes) -> str:
    return held.decode("latin-1")


def _write_base64(held: bytes) -> str:
    return base64.b64encode(held).decode()


_BYTES: Final[Mapping[str, Callable[[bytes], str]]] = {"avro": _write_latin, "protobuf": _write_base64}
"""How bytes are written in the JSON that a schema then encodes, by format."""


def _write_object(batch: pa.RecordBatch, tree: Mapping[str, Any], nulls: Nulls) -> Any:
    members = []
    for name, node in tree.items():
        prefix = f",{json.dumps(name, ensure_ascii=False)}:"
        if isinstance(node, dict):
            members.append(_join(prefix, _write_object(batch, node, nulls)))
            continue
        texts = _write_json(node, batch.column(node))
        if texts.null_count and nulls == "null":
            texts = pc.fill_null(texts, _NULL)
        members.append(pc.fill_null(_join(prefix, texts), ""))
    return _enclose_members("{", _join(*members), "}")


def _enclose_members(opener: str, members: Any, closer: str) -> Any:
    """Return each text in brackets, without its first character, which is the comma before the first member."""
    return _join(opener, pc.utf8_slice_codeunits(members, 1), closer)


def _join(*parts: Any) -> Any:
    return pc.binary_join_element_wise(*(_text_scalar(part) if isinstance(part, str) else part for part in parts), "")


def _text_scalar(text: str) -> Any:
    return pa.scalar(text, pa.string())


def _write_json(name: str, column: Any) -> Any:
    """Return the JSON text of each value; null for a null. Errors use ``name`` for the column."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        return _write_json(name, column.cast(type_.value_type))
    for fits, write in _WRITERS:
        if fits(type_):
            return write(name, column)
    raise LocalError(f"column {name!r} is {type_}; JSON has no form for that. Cast it, to string for example")


def _write_number(name: str, column: Any) -> Any:
    return column.cast(pa.string())


def _write_float(name: str, column: Any) -> Any:
    finite = pc.fill_null(pc.is_finite(column), True)
    if not pc.all(finite, min_count=0).as_py():
        row = pc.index(finite, False).as_py()
        raise LocalError(
            f"column {name!r} has the value {column[row].as_py()}; JSON has no such number. Write null instead, or "
            "cast the column to string"
        )
    return column.cast(pa.string())


def _write_text(name: str, column: Any) -> Any:
    try:
        texts: Any = column.cast(pa.string())
    except pa.ArrowInvalid:
        raise LocalError(
            f"column {name!r} has bytes that are not UTF-8; JSON has no form for them. Encode them as Base64"
        ) from None
    special = pc.fill_null(pc.match_substring_regex(texts, _ESCAPED), False)
    quoted = _join('"', texts, '"')
    if pc.any(special, min_count=0).as_py():
        escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
        quoted = pc.replace_with_mask(quoted, special, pa.array(escaped, pa.string()))
    return quoted


def _write_date(name: str, column: Any) -> Any:
    return _join('"', column.cast(pa.date32()).cast(pa.string()), '"')


def _write_instant(name: str, column: Any) -> Any:
    zone = "Z" if column.type.tz else ""
    try:
        # parts of a microsecond are dropped
        exact = column.cast(pa.timestamp("us", "UTC" if zone else None), safe=column.type.unit != "ns")
    except pa.ArrowInvalid:
        raise LocalError(f"column {name!r} has a time that microseconds cannot hold; write null instead") from None
    return _join('"', pc.strftime(exact, format="%Y-%m-%dT%H:%M:%S" + zone), '"')


def _write_list(name: str, column: Any) -> Any:
    items = pc.fill_null(_write_json(name, pc.list_flatten(column)), _NULL)
    return _join_items("[", items, pc.list_value_length(column), "]")


def _write_map(name: str, column: Any) -> Any:
    # a copy begins at its first entry, and null maps have no entries
    whole = column.take(pa.array(np.arange(len(column))))
    first, end = whole.offsets[0].as_py(), whole.offsets[-1].as_py()
    keys = _write_text(name, whole.keys[first:end])
    values = pc.fill_null(_write_json(name, whole.items[first:end]), _NULL)
    counts: Any = pc.subtract(whole.offsets[1:], whole.offsets[:-1])
    counts = pc.if_else(whole.is_valid(), counts, pa.scalar(None, pa.int32()))
    return _join_items("{", _join(keys, ":", values), counts, "}")


def _join_items(opener: str, items: Any, counts: Any, closer: str) -> Any:
    """Return the items of each row in brackets; null for a row whose count is null."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(pc.fill_null(counts, 0).to_numpy(zero_copy_only=False), out=ends[1:])
    offsets: Any = pa.array(ends)
    rows = pa.ListArray.from_arrays(offsets, items)
    texts = _join(opener, pc.binary_join(rows, _text_scalar(",")), closer)
    return pc.if_else(counts.is_valid(), texts, _scalar_null())


def _scalar_null() -> Any:
    return pa.scalar(None, pa.string())


def _write_struct(name: str, column: Any) -> Any:
    members = [
        _join(f",{json.dumps(field.name, ensure_ascii=False)}:", pc.fill_null(_write_json(name, values), _NULL))
        for field, values in zip(column.type, column.flatten(), strict=True)
    ]
    texts = _enclose_members("{", _join(*members), "}") if members else pa.array(["{}"] * len(column))
    return pc.if_else(column.is_valid(), texts, _scalar_null())


_WRITERS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, Any], Any]], ...]] = (
    (pa.types.is_boolean, _write_number),
    (pa.types.is_integer, _write_number),
    (pa.types.is_floating, _write_float),
    (pa.types.is_decimal, _write_number),
    (lambda type_: pa.types.is_string(type_) or pa.types.is_large_string(type_), _write_text),
    (lambda type_: pa.types.is_binary(type_) or pa.types.is_large_binary(type_), _write_text),
    (lambda type_: pa.types.is_string_view(type_) or pa.types.is_fixed_size_binary(type_), _write_text),
    (pa.types.is_date, _write_date),
    (pa.types.is_timestamp, _write_instant),
    (pa.types.is_map, _write_map),
    (
        lambda type_: pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_),
        _write_list,
    ),
    (pa.types.is_struct, _write_struct),
    (pa.types.is_null, lambda name, column: pa.nulls(len(column), pa.string())),
)
"""Functions that write values of each family of types; the first that fits is used."""
