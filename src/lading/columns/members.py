"""Values found in payloads to typed columns: scalars by the rules of headers, arrays, structs and maps of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..model.run import Located
from ..payloads.found import FoundValues, ValuePart
from .contract import Encoding, PayloadColumn
from .locate import to_located
from .typed import WHOLE_TARGETS, buffer, convert_column

Convert = Callable[[Located, pa.DataType, Encoding], tuple[Any, Any]]
Built = tuple[Any, NDArray[np.bool_]]
"""A column, and which of its values could not be read and are null in it."""


def build_column(values: FoundValues, column: PayloadColumn, convert: Convert = convert_column) -> Built:
    """Return the values in the type of the column; ``convert`` converts scalars."""
    if column.json:
        located = values.locate_text()
        array, _ = convert(located, pa.string(), Encoding.AUTO)
        return array, (located.length < 0) & ~values.missing
    return build_values(values, column.type, convert)


def build_values(values: FoundValues, type_: pa.DataType, convert: Convert = convert_column) -> Built:
    """Return the values as ``type_``. An array, struct or map with one unreadable value is unreadable as a whole."""
    if pa.types.is_map(type_):
        return _build_map(values, type_)
    if pa.types.is_list(type_):
        return _build_list(values, type_)
    if pa.types.is_struct(type_):
        return _build_struct(values, type_)
    parts, broken = values.read_as(type_, whole_numbers=type_ in WHOLE_TARGETS)
    if len(parts) == 1 and parts[0].rows is None:
        array, bad = _type_part(parts[0], type_, convert)
        return array, broken if bad is None else broken | bad.to_numpy(zero_copy_only=False)
    broken = broken.copy()
    places = np.full(len(broken), -1, np.int64)
    arrays: list[Any] = []
    for part in parts:
        assert part.rows is not None
        array, bad = _type_part(part, type_, convert_column)
        if bad is not None:
            broken[part.rows[bad.to_numpy(zero_copy_only=False)]] = True
        places[part.rows] = sum(map(len, arrays)) + np.arange(len(part.rows))
        arrays.append(array)
    joined: Any = pa.concat_arrays(arrays)
    return joined.take(pa.array(places, mask=places < 0)), broken


def _type_part(part: ValuePart, type_: pa.DataType, convert: Convert) -> tuple[Any, Any]:
    if isinstance(part.values, Located):
        return convert(part.values, type_, Encoding.AUTO)
    return (part.values, None) if part.values.type == type_ else convert(to_located(part.values), type_, Encoding.AUTO)


def _build_list(values: FoundValues, type_: Any) -> Built:
    ends, items, are_arrays = values.list_items()
    array, bad_items = build_values(items, type_.value_type)
    wrong = ~are_arrays & ~values.missing
    parents = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    wrong[parents[bad_items]] = True
    offsets, kept = _keep_items(ends, parents, wrong)
    ends_of_rows: Any = pa.array(offsets)
    nothing = pa.array(~are_arrays | wrong)
    return pa.ListArray.from_arrays(ends_of_rows, array.filter(kept), type=type_, mask=nothing), wrong


def _build_map(values: FoundValues, type_: Any) -> Built:
    ends, names, members, are_objects = values.list_members()
    keys, bad_keys = build_values(names, pa.string())
    items, bad_items = build_values(members, type_.item_type)
    wrong = ~are_objects & ~values.missing
    parents = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    wrong[parents[bad_keys | bad_items]] = True
    kept = ~wrong[parents] & is_last_of_name(parents, keys)
    offsets = np.zeros(len(ends), np.int32)
    np.cumsum(np.bincount(parents[kept], minlength=len(ends) - 1), out=offsets[1:])
    chosen = pa.array(kept)
    parts = [keys.filter(chosen), items.filter(chosen)]
    entries = pa.StructArray.from_arrays(parts, fields=[type_.key_field, type_.item_field])
    valid = are_objects & ~wrong
    buffers: list[Any] = [buffer(np.packbits(valid, bitorder="little")), buffer(offsets)]
    return pa.MapArray.from_buffers(type_, len(valid), buffers, children=[entries]), wrong


def is_last_of_name(parents: NDArray[np.int64], keys: pa.Array[Any]) -> NDArray[np.bool_]:
    """Return which members are the last of their name in their object, as only the last one counts."""
    encoded: Any = keys.dictionary_encode()
    codes = encoded.indices.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    names = parents * (len(encoded.dictionary) + 1) + codes
    last = np.zeros(len(names), np.bool_)
    last[len(names) - 1 - np.unique(names[::-1], return_index=True)[1]] = True
    return last


def _build_struct(values: FoundValues, type_: pa.DataType) -> Built:
    fields = [type_.field(at) for at in range(type_.num_fields)]
    inside, are_objects = values.walk(tuple((field.name,) for field in fields))
    wrong = ~are_objects & ~values.missing
    arrays = []
    for field in fields:
        array, bad = build_values(inside[field.name,], field.type)
        wrong |= bad
        arrays.append(array)
    valid = pa.array(~are_objects | wrong)
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=valid), wrong


def _keep_items(
    ends: NDArray[np.int32], parents: NDArray[np.int64], wrong: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], pa.BooleanArray]:
    """Return the end of each row's items, and which items are kept: a null list may contain values."""
    counts = np.where(wrong, 0, np.diff(ends))
    offsets = np.zeros(len(ends), np.int32)
    np.cumsum(counts, out=offsets[1:])
    return offsets, pa.array(~wrong[parents])
