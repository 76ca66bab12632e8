"""The contract of a pipeline in the Open Data Contract Standard (https://bitol-io.github.io/open-data-contract-standard).

The document is JSON, which is YAML as well: every tool that reads ``*.odcs.yaml`` reads it.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from ..columns.constraints import ValueConstraint
from ..columns.contract import ARRAY, TIMESTAMP, Encoding, HeaderColumn, PayloadColumn, type_word
from ..model.errors import SettingError
from .settings import PipelineSettings

API_VERSION: Final = "v3.1.0"
_LOGICAL: Final[dict[pa.DataType, str]] = {
    pa.string(): "string", pa.binary(): "string", pa.bool_(): "boolean", pa.int8(): "integer", pa.int16(): "integer",
    pa.int32(): "integer", pa.int64(): "integer", pa.float32(): "number", pa.float64(): "number",
    pa.date32(): "date", TIMESTAMP: "timestamp", ARRAY: "array",
}  # fmt: skip
"""Column type to ODCS's; decimals are integers without decimals, numbers with."""


def to_odcs(settings: PipelineSettings, version: str) -> dict[str, Any]:
    """Return the contract as an ODCS document of the given version: an object for each source's topic.

    Headers are properties with their types and constraints; a rule that the standard has no word for is a quality check
    of the engine ``lading``. Raises SettingError if the file declares no headers.
    """
    if not settings.contract.typed and not settings.contract.texts:
        raise SettingError(f"{settings.name} declares no [headers]; declare them to have a contract to export")
    return {
        "apiVersion": API_VERSION,
        "kind": "DataContract",
        "id": settings.id,
        "name": settings.id,
        "version": version,
        "status": "active",
        "schema": [
            _describe_object(settings, topic)
            for source in settings.document.source
            for topic in source.selection.names or [source.topic_pattern or ""]
        ],
    }


def _describe_object(settings: PipelineSettings, topic: str) -> dict[str, Any]:
    made: dict[str, Any] = {
        "name": topic,
        "physicalName": topic,
        "logicalType": "object",
        "physicalType": "topic",
        "description": "Message headers, and texts of messages, each a property",
        "properties": [
            *(_describe_property(column) for column in settings.contract.typed),
            *(_describe_property(HeaderColumn(name, name, pa.string())) for name in settings.contract.texts),
        ],
    }
    checks = [
        {
            "name": one.name, "type": "custom", "engine": "lading", "implementation": one.condition,
            "severity": {"warn": "warning", "quarantine": "error", "fail": "critical"}[one.otherwise],
        }
        for one in settings.document.expect
    ]  # fmt: skip
    return made | ({"quality": checks} if checks else {})


def _describe_property(column: HeaderColumn | PayloadColumn) -> dict[str, Any]:
    type_ = column.type
    if pa.types.is_nested(type_) and type_ != ARRAY:
        logical = "array" if pa.types.is_list(type_) and not pa.types.is_map(type_) else "object"
    else:
        logical = _find_logical_type(type_)
    if isinstance(column, HeaderColumn):
        source, word = column.header, type_word(type_)
    else:
        source, word = column.text, column.word
    made: dict[str, Any] = {
        "name": column.name,
        "physicalName": source,
        "logicalType": logical,
        "physicalType": word,
        "required": column.required,
    }
    options: dict[str, Any] = {"format": "binary"} if type_ == pa.binary() else {}
    quality: list[dict[str, Any]] = []
    constraint = column.constraint
    if isinstance(constraint, ValueConstraint):
        bounds = {"minimum": constraint.minimum, "maximum": constraint.maximum}
        options |= {word: _to_json_value(bound.as_py()) for word, bound in bounds.items() if bound is not None}
        if constraint.pattern is not None and type_ != ARRAY:
            options["pattern"] = rf"^(?:{constraint.pattern})$"
        if constraint.values is not None:
            quality.append({
                "type": "library", "metric": "invalidValues", "mustBe": 0,
                "arguments": {"validValues": [_to_json_value(value) for value in constraint.values.to_pylist()]},
            })  # fmt: skip
    if type_ == ARRAY:
        of_one: dict[str, Any] = {"logicalType": "string"}
        if isinstance(constraint, ValueConstraint) and constraint.pattern is not None:
            of_one["logicalTypeOptions"] = {"pattern": rf"^(?:{constraint.pattern})$"}
        made["items"] = of_one
    if options:
        made["logicalTypeOptions"] = options
    if quality:
        made["quality"] = quality
    if isinstance(column, HeaderColumn) and column.encoding is not Encoding.AUTO:
        made["customProperties"] = [{"property": "encoding", "value": column.encoding.value}]
    return made


def _find_logical_type(type_: pa.DataType) -> str:
    if (known := _LOGICAL.get(type_)) is not None:
        return known
    return "number" if isinstance(type_, pa.Decimal128Type) and type_.scale else "integer"


def _to_json_value(value: Any) -> Any:
    """Return a constant as JSON can hold it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    return value.hex() if isinstance(value, bytes) else value
