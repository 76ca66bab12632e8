"""A contract in the Open Data Contract Standard, held against the standard's published schema where it is installed."""

from __future__ import annotations

import importlib.resources
import json
from pathlib import Path
from typing import Any

import pytest

from lading.model.errors import SettingError
from lading.pipeline.odcs import to_odcs
from lading.pipeline.settings import PipelineSettings

FILE = """
[source]
from = "kafka://127.0.0.1:9092"
topic = "flights"

[headers]
carrier = { type = "string", required = true, values = ["UA", "AA"] }
delay = { type = "int", encoding = "be", from = "dep-delay", min = -120, max = 2880 }
price = { type = "decimal(10,2)", min = "0.01" }
day = { type = "date", min = 2024-01-01 }
at = "timestamp"
tail = { type = "string", pattern = "N[0-9]+" }
via = { type = "array<string>", pattern = "[A-Z]{3}" }
raw = "binary"
big = "decimal(38,0)"
late = "boolean"
ratio = { type = "double", max = 1.5 }

[[expect]]
name = "plausible"
condition = "delay < 100"
else = "fail"

[good]
to = "parquet:./good"
"""


def _document(tmp_path: Path) -> dict[str, Any]:
    file = tmp_path / "flights.toml"
    file.write_text(FILE)
    return to_odcs(PipelineSettings.load(file), "2.1.0")


def test_headers_are_properties(tmp_path: Path) -> None:
    document = _document(tmp_path)
    assert {name: document[name] for name in ("apiVersion", "kind", "id", "version", "status")} == {
        "apiVersion": "v3.1.0", "kind": "DataContract", "id": "flights", "version": "2.1.0", "status": "active",
    }  # fmt: skip
    (topic,) = document["schema"]
    assert (topic["name"], topic["logicalType"], topic["physicalType"]) == ("flights", "object", "topic")
    properties = {one.pop("name"): one for one in topic["properties"]}
    assert properties["delay"] == {
        "physicalName": "dep-delay", "logicalType": "integer", "physicalType": "int", "required": False,
        "logicalTypeOptions": {"minimum": -120, "maximum": 2880},
        "customProperties": [{"property": "encoding", "value": "be"}],
    }  # fmt: skip
    assert properties["carrier"]["required"] is True
    assert properties["carrier"]["quality"] == [
        {"type": "library", "metric": "invalidValues", "mustBe": 0, "arguments": {"validValues": ["UA", "AA"]}}
    ]
    assert properties["price"]["logicalTypeOptions"] == {"minimum": 0.01}
    assert properties["day"]["logicalTypeOptions"] == {"minimum": "2024-01-01"}
    assert properties["tail"]["logicalTypeOptions"] == {"pattern": "^(?:N[0-9]+)$"}
    assert properties["via"]["items"] == {"logicalType": "string", "logicalTypeOptions": {"pattern": "^(?:[A-Z]{3})$"}}
    assert {name: one["logicalType"] for name, one in properties.items()} == {
        "carrier": "string", "delay": "integer", "price": "number", "day": "date", "at": "timestamp", "tail": "string",
        "via": "array", "raw": "string", "big": "integer", "late": "boolean", "ratio": "number",
    }  # fmt: skip
    (check,) = topic["quality"]
    assert (check["name"], check["implementation"], check["severity"]) == ("plausible", "delay < 100", "critical")


def test_the_published_schema_takes_it(tmp_path: Path) -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    pytest.importorskip("open_data_contract_standard", reason="open-data-contract-standard is not installed")
    schema = json.loads(importlib.resources.files("open_data_contract_standard").joinpath("schema.json").read_text())
    jsonschema.validate(_document(tmp_path), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(_document(tmp_path) | {"kind": "Contract"}, schema)


def test_nothing_to_export(tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text('[source]\nfrom = "./data"\ntopic = "t"\n[good]\nto = "parquet:./good"\n')
    with pytest.raises(SettingError, match=r"declares no \[headers\]"):
        to_odcs(PipelineSettings.load(file), "1.0.0")
