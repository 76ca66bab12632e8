"""The section [headers] of a pipeline file: its declarations as columns of headers and of the payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ..columns.constraints import ValueConstraint
from ..columns.contract import (
    ARRAY,
    FIELD_TYPES,
    TEXT_FIELDS,
    HeaderColumn,
    PayloadColumn,
    Projection,
    did_you_mean,
    is_text_field,
    parse_encoding,
    parse_header_column,
    parse_header_source,
    parse_payload_column,
    parse_payload_source,
    parse_payload_type,
    parse_type,
)
from ..model.errors import SettingError
from ..model.toml import toml_text
from ..payloads.form import JSON_FORM, PayloadForm
from ..payloads.paths import Path, write_path


def parse_headers(section: Mapping[str, Any], name: str, form: PayloadForm = JSON_FORM) -> Projection:
    """Return the contract that ``section`` of the file ``name`` declares; ``form`` says how payloads are read.

    SettingError names the column concerned.
    """
    columns: list[HeaderColumn] = []
    members: list[PayloadColumn] = []
    texts: list[str] = []
    for column, value in section.items():
        try:
            if isinstance(value, str) and is_text_field(column, value):
                texts.append(column)
            elif (member := _find_payload_column(column, value)) is not None:
                members.append(member)
            else:
                columns.append(_header_column(column, value))
        except SettingError as error:
            raise SettingError(f"{name}: headers.{column}: {error}") from None
    return Projection(headers=tuple(columns), texts=tuple(texts), payload=tuple(members), form=form)


_CONSTRAINT_KEYS = ("values", "min", "max", "pattern")
_HEADER_KEYS = ("type", "encoding", "required", "from", *_CONSTRAINT_KEYS)


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
    header = parse_header_source(header)
    encoding = value.get("encoding", "auto")
    type_ = parse_type(value["type"])
    return HeaderColumn(name, header, type_, parse_encoding(str(encoding)), required, _parse_constraint(value, type_))


def _find_payload_column(name: str, value: object) -> PayloadColumn | None:
    """Return the column of the payload that is declared, or None for one of a header."""
    if isinstance(value, str):
        return parse_payload_column(name, value)
    source = value.get("from") if isinstance(value, dict) else None
    path = parse_payload_source(name, source) if isinstance(source, str) else None
    return None if path is None or not isinstance(value, dict) else _payload_column(name, path, value)


def _payload_column(name: str, path: Path, value: Mapping[str, Any]) -> PayloadColumn:
    text = write_path(path)
    if name in FIELD_TYPES:
        raise SettingError(
            f"{name!r} is a field of every message; name the column of {text} differently: "
            f'payload_{name} = {{ type = "…", from = {toml_text(text)} }}'
        )
    known = tuple(key for key in _HEADER_KEYS if key != "encoding")
    for key in value:
        if key not in known:
            raise SettingError(
                f"{key!r} is not a key of a column of the payload{did_you_mean(key, known)}; there are "
                f"{', '.join(known)}"
            )
    if not isinstance(value.get("type"), str):
        raise SettingError('the type is missing; for example type = "int"')
    required = value.get("required", False)
    if not isinstance(required, bool):
        raise SettingError(f"required is {required!r}; it takes true or false")
    type_, is_json = parse_payload_type(value["type"])
    column = PayloadColumn(name, path, type_, required, None, is_json)
    if not value.keys() & set(_CONSTRAINT_KEYS):
        return column
    if pa.types.is_nested(type_) and type_ != ARRAY:
        raise SettingError(
            f"{', '.join(_CONSTRAINT_KEYS)} are for single values and array<string>, and this is a {column.word}; "
            "declare the value inside of it as a column of its own"
        )
    return PayloadColumn(name, path, type_, required, _parse_constraint(value, type_), is_json)


def _parse_constraint(value: Mapping[str, Any], type_: pa.DataType) -> ValueConstraint | None:
    values, pattern = value.get("values"), value.get("pattern")
    if values is not None and not isinstance(values, list):
        raise SettingError(f'values is {values!r}; it takes a list, for example values = ["UA", "AA"]')
    if pattern is not None and not isinstance(pattern, str):
        raise SettingError(f"pattern is {pattern!r}; it takes a regular expression in quotes")
    if not value.keys() & set(_CONSTRAINT_KEYS):
        return None
    return ValueConstraint.of(type_, values, value.get("min"), value.get("max"), pattern)
