"""The section [headers] of a pipeline file: its declarations as header columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..columns.constraints import ValueConstraint
from ..columns.contract import (
    FIELD_TYPES,
    TEXT_FIELDS,
    HeaderColumn,
    Projection,
    did_you_mean,
    is_text_field,
    parse_encoding,
    parse_header_column,
    parse_type,
)
from ..model.errors import SettingError


def parse_headers(section: Mapping[str, Any], name: str) -> Projection:
    """Return the contract that ``section`` of the file ``name`` declares. SettingError names the header concerned."""
    columns, texts = [], []
    for column, value in section.items():
        try:
            if isinstance(value, str) and is_text_field(column, value):
                texts.append(column)
            else:
                columns.append(_header_column(column, value))
        except SettingError as error:
            raise SettingError(f"{name}: headers.{column}: {error}") from None
    return Projection(headers=tuple(columns), texts=tuple(texts))


_HEADER_KEYS = ("type", "encoding", "required", "from", "values", "min", "max", "pattern")


def _header_column(name: str, value: object) -> HeaderColumn:
    if name in FIELD_TYPES:
        text = f'for text write {name} = "string", or ' if name in TEXT_FIELDS else ""
        raise SettingError(
            f"{name!r} is a field of every message; {text}name the column of a header {name!r} differently: "
            f'header_{name} = {{ type = "…", from = "{name}" }}'
        )
    if isinstance(value, str):
        return parse_header_column(name, value)
    if not isinstance(value, dict):
        raise SettingError(
            f'{value!r} is not a declaration; write "int required", or a table of {", ".join(_HEADER_KEYS)}'
        )
    for key in value:
        if key not in _HEADER_KEYS:
            raise SettingError(
                f"unknown key {key!r}{did_you_mean(key, _HEADER_KEYS)}; there are {', '.join(_HEADER_KEYS)}"
            )
    if not isinstance(value.get("type"), str):
        raise SettingError('the type is missing; for example type = "int"')
    required, header = value.get("required", False), value.get("from", name)
    if not isinstance(required, bool):
        raise SettingError(f"required is {required!r}; it takes true or false")
    if not isinstance(header, str):
        raise SettingError(f"from is {header!r}; it takes the name of a header")
    encoding = value.get("encoding", "auto")
    type_ = parse_type(value["type"])
    return HeaderColumn(name, header, type_, parse_encoding(str(encoding)), required, _constraint(value, type_))


def _constraint(value: Mapping[str, Any], type_: pa.DataType) -> ValueConstraint | None:
    values, pattern = value.get("values"), value.get("pattern")
    if values is not None and not isinstance(values, list):
        raise SettingError(f'values is {values!r}; it takes a list, for example values = ["UA", "AA"]')
    if pattern is not None and not isinstance(pattern, str):
        raise SettingError(f"pattern is {pattern!r}; it takes a regular expression in quotes")
    if not value.keys() & {"values", "min", "max", "pattern"}:
        return None
    return ValueConstraint.of(type_, values, value.get("min"), value.get("max"), pattern)
