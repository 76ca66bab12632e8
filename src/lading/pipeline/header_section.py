"""The section [headers] of a pipeline file: its declarations as header columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..columns.contract import (
    FIELD_TYPES,
    HeaderColumn,
    Projection,
    did_you_mean,
    parse_encoding,
    parse_header_column,
    parse_type,
    refuse_near_miss,
)
from ..model.errors import SettingError


def parse_headers(section: Mapping[str, Any], name: str) -> Projection:
    """Return the contract that ``section`` of the file ``name`` declares. SettingError names the header concerned."""
    columns = []
    for column, value in section.items():
        try:
            columns.append(_header_column(column, value))
        except SettingError as error:
            raise SettingError(f"{name}: headers.{column}: {error}") from None
    return Projection(headers=tuple(columns))


_HEADER_KEYS = ("type", "encoding", "required", "from")


def _header_column(name: str, value: object) -> HeaderColumn:
    if name in FIELD_TYPES:
        raise SettingError(
            f"{name!r} is a field of every message; name the column of a header {name!r} differently: "
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
    if "from" not in value:
        refuse_near_miss(name, f'For a header of that name add from = "{name}"')
    encoding = value.get("encoding", "auto")
    return HeaderColumn(name, header, parse_type(value["type"]), parse_encoding(str(encoding)), required)
