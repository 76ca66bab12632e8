"""Types of columns: which of them hold every value of another one, so that rows are written in the table's."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

_DECIMAL: Final = re.compile(r"decimal128\((\d+), (-?\d+)\)")
_DIGITS: Final = {8: 3, 16: 5, 32: 10, 64: 19}
"""Decimal digits of an integer by its bits."""
_EXACT_IN_DOUBLE_BITS: Final = 32
_ALIASES: Final = (
    (pa.types.is_large_string, pa.string()), (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()), (pa.types.is_binary_view, pa.binary()),
)  # fmt: skip


def can_hold(there: pa.DataType, type_: pa.DataType) -> bool:
    """Return whether a column of the type ``there`` takes every value of ``type_``."""
    there, type_ = _to_plain(there), _to_plain(type_)
    return _is_same(there, type_) or is_wider(there, type_)


def is_wider(there: pa.DataType, type_: pa.DataType) -> bool:
    """Return whether ``there`` is another type that has every value of ``type_``."""
    wide: Any = there
    narrow: Any = type_
    if pa.types.is_signed_integer(narrow):
        if pa.types.is_signed_integer(wide):
            return bool(wide.bit_width > narrow.bit_width)
        if pa.types.is_float64(wide):
            return bool(narrow.bit_width <= _EXACT_IN_DOUBLE_BITS)
        return pa.types.is_decimal128(wide) and bool(wide.precision - wide.scale >= _DIGITS[narrow.bit_width])
    if pa.types.is_float32(narrow):
        return pa.types.is_float64(wide)
    if pa.types.is_decimal128(narrow) and pa.types.is_decimal128(wide) and narrow != wide:
        whole = wide.precision - wide.scale >= narrow.precision - narrow.scale
        return bool(whole and wide.scale >= narrow.scale)
    return False


def parse_type_word(word: str) -> pa.DataType:
    """Return the type that ``str`` of a number's type gives."""
    if (found := _DECIMAL.fullmatch(word)) is not None:
        return pa.decimal128(int(found[1]), int(found[2]))
    arrow: Any = pa
    return arrow.type_for_alias(word)  # type: ignore[no-any-return]


def _to_plain(type_: pa.DataType) -> pa.DataType:
    return next((plain for is_of, plain in _ALIASES if is_of(type_)), type_)


def _is_same(there: Any, type_: Any) -> bool:
    """Return whether types are the same but for nulls that ``there`` allows, and names that lists give their items."""
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        is_list = pa.types.is_list(there) or pa.types.is_large_list(there)
        return is_list and _can_hold(there.value_field, type_.value_field)
    if pa.types.is_map(type_):
        return (
            pa.types.is_map(there)
            and _can_hold(there.key_field, type_.key_field)
            and _can_hold(there.item_field, type_.item_field)
        )
    if pa.types.is_struct(type_):
        if not pa.types.is_struct(there) or there.num_fields != type_.num_fields:
            return False
        pairs = [(there.field(at), type_.field(at)) for at in range(type_.num_fields)]
        return all(one.name == other.name and _can_hold(one, other) for one, other in pairs)
    return _to_plain(there) == _to_plain(type_)


def _can_hold(there: pa.Field[Any], field: pa.Field[Any]) -> bool:
    return (there.nullable or not field.nullable) and _is_same(there.type, field.type)
