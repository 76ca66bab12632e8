"""The typed columns of a topic: a part of its settings, from which its live table is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ..model.errors import SettingError
from .contract import FIELD_TYPES, TYPES, parse_columns

LENGTH_MAX: Final = 65_536
"""Characters of a topic's columns, which are in the catalog and in memory."""


def parse_topic_columns(words: str) -> Sequence[pa.Field[Any]]:
    """Return the fields of a topic's typed columns, ``carrier string, delay int``; none if ``words`` is empty.

    Raises SettingError for invalid columns, for a message field, which every table has anyway, and for a type that
    tables of topics do not have.
    """
    if len(words) > LENGTH_MAX:
        raise SettingError(f"columns have {len(words):,} characters; a topic keeps at most {LENGTH_MAX:,}")
    if not words.strip():
        return []
    projection = parse_columns(words)
    if projection.fields:
        raise SettingError(
            f"column {projection.fields[0]!r}: the table has it already; name typed columns, as in 'carrier string'"
        )
    if any(column.required for column in projection.typed):
        name = next(column.name for column in projection.typed if column.required)
        raise SettingError(f"column {name!r}: a table shows every message; leave out 'required'")
    fields = [projection.schema.field(name) for name in projection.schema.names]
    for field in fields:
        if field.name in FIELD_TYPES:
            raise SettingError(
                f"column {field.name!r}: the table has a message field of this name; write another one, as in "
                f"'header_{field.name} string from {field.name}'"
            )
        if not _is_simple(field.type):
            raise SettingError(f"column {field.name!r}: a topic's table has no {field.type}; declare it as json")
    return fields


def _is_simple(type_: pa.DataType) -> bool:
    if isinstance(type_, pa.ListType):
        return bool(type_.value_type == pa.string())
    return any(type_ == known for known in TYPES.values()) or pa.types.is_decimal128(type_)
