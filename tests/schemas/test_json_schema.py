"""JSON Schema: Confluent's list of differences, and which of them a reader can live with."""

from __future__ import annotations

import json
import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from lading.schemas.formats import LEVELS, list_incompatibilities, parse_schema
from lading.schemas.json_compatibility import COMPATIBLE, DIFFERENCES_MAX, list_differences
from lading.schemas.json_schema import JsonSchema, parse_json_schema
from lading.schemas.parsed import InvalidSchema, ResolvedReference

SOURCE = os.environ.get("LADING_TEST_SCHEMA_REGISTRY", "")
"""A checkout of Confluent's schema-registry, whose own cases are then run too."""


def schema(document: Any) -> JsonSchema:
    return parse_json_schema(json.dumps(document))


def test_text_keeps_the_order_and_its_normal_form_does_not() -> None:
    text = '{ "type": "object", "properties": {"b": {}, "a": true}, "maximum": 1.50 }'
    assert parse_json_schema(text).text == '{"type":"object","properties":{"b":{},"a":true},"maximum":1.5}'
    assert parse_json_schema(text).normalize() == '{"maximum":1.5,"properties":{"a":true,"b":{}},"type":"object"}'


@pytest.mark.parametrize(
    "document",
    [
        {"type": "nothing"}, {"type": 1}, {"properties": []}, {"properties": {"a": 1}}, {"required": [1]},
        {"enum": 1}, {"allOf": {}}, {"maxLength": "x"}, {"$ref": "#/missing"}, {"$ref": "other.json"}, [], "x", None, 1,
        {"$ref": "#"}, {"pattern": 1}, {"not": 1},
    ],
)  # fmt: skip
def test_invalid_schemas_are_refused(document: Any) -> None:
    with pytest.raises(InvalidSchema):
        parse_schema("JSON", json.dumps(document), is_new=True)


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


TEXT, NUMBER, WHOLE = {"type": "string"}, {"type": "number"}, {"type": "integer"}

# original, update, differences: the rules of Confluent's documentation, "JSON Schema compatibility rules"
CHANGES: list[tuple[Any, Any, list[str]]] = [
    ({"type": "object"}, {}, []),
    (TEXT, NUMBER, ["TYPE_CHANGED #/"]),
    (WHOLE, NUMBER, ["TYPE_EXTENDED #/"]),
    (NUMBER, WHOLE, ["TYPE_NARROWED #/"]),
    (TEXT, {"type": ["string", "null"]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"type": ["string", "null"]}, TEXT, ["TYPE_CHANGED #/"]),
    ({"maxLength": 2, **TEXT}, {"maxLength": 3, **TEXT}, ["MAX_LENGTH_INCREASED #/maxLength"]),
    ({"maximum": 2, **NUMBER}, {"maximum": 1, **NUMBER}, ["MAXIMUM_DECREASED #/maximum"]),
    ({"multipleOf": 1, **NUMBER}, {"multipleOf": 0.5, **NUMBER}, ["MULTIPLE_OF_REDUCED #/multipleOf"]),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_EXTENDED #/enum"]),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["ENUM_ARRAY_NARROWED #/enum"]),
    # an open schema may have had any value under the new name
    (
        {"type": "object", "properties": {"a": TEXT}},
        {"type": "object", "properties": {"a": TEXT, "b": TEXT}},
        ["OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL #/properties/b"],
    ),
    (closed(a=TEXT), closed(a=TEXT, b=TEXT), ["OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"]),
    (
        closed(a=TEXT),
        {**closed(a=TEXT, b=TEXT), "required": ["b"]},
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b"],
    ),
    (closed(a=TEXT, b=TEXT), closed(a=TEXT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL #/properties/b"]),
    (
        {"type": "object", "patternProperties": {"^b": TEXT}},
        {"type": "object", "patternProperties": {"^b": TEXT}, "properties": {"b1": TEXT}},
        [
            "OPTIONAL_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL #/properties/b1",
            "PROPERTY_ADDED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL #/properties/b1",
        ],
    ),
    ({"oneOf": [TEXT]}, {"oneOf": [NUMBER, TEXT]}, ["SUM_TYPE_EXTENDED #/"]),
    ({"oneOf": [TEXT, NUMBER]}, {"oneOf": [TEXT]}, ["SUM_TYPE_NARROWED #/"]),
    ({"allOf": [TEXT, NUMBER]}, {"oneOf": [TEXT, NUMBER]}, ["COMBINED_TYPE_CHANGED #/"]),
    ({"not": TEXT}, {"not": {"maxLength": 1, **TEXT}}, ["NOT_TYPE_NARROWED #/not"]),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": NUMBER}, ["TYPE_CHANGED #/items"]),
    (
        {"type": "array", "uniqueItems": True},
        {"type": "array", "minItems": 1},
        ["MIN_ITEMS_ADDED #/minItems", "UNIQUE_ITEMS_REMOVED #/uniqueItems"],
    ),
]


@pytest.mark.parametrize(("original", "update", "changes"), CHANGES)
def test_differences(original: Any, update: Any, changes: list[str]) -> None:
    found = list_differences(schema(original), schema(update))
    assert sorted(f"{kind} {path}" for kind, path in found) == changes


def test_references_within_and_between_documents() -> None:
    def order(item: Any) -> JsonSchema:
        text = {
            "properties": {"a": {"$ref": "item.json"}, "b": {"$ref": "#/definitions/b"}, "c": {"$ref": "item.json#/x"}},
            "definitions": {"b": {"$ref": "#"}},
        }
        return parse_json_schema(json.dumps(text), [ResolvedReference("item.json", json.dumps({**item, "x": TEXT}))])

    assert list_differences(order(TEXT), order(TEXT)) == []
    assert set(list_differences(order(TEXT), order(NUMBER))) == {
        ("TYPE_CHANGED", "#/properties/a"),
        ("TYPE_CHANGED", "#/properties/b/properties/a"),
    }


def test_recursive_combinations_end() -> None:
    def build(type_: str, count: int = 5) -> dict[str, Any]:
        names = [f"d{number}" for number in range(count)]
        choice = {"oneOf": [{"$ref": f"#/definitions/{name}"} for name in names]}
        definitions = {name: {"properties": {"next": choice, name: {"type": type_}}} for name in names}
        return {**choice, "definitions": definitions}

    assert list_differences(schema(build("string")), schema(build("string"))) == []
    found = list_differences(schema(build("string")), schema(build("number")))
    assert any(kind not in COMPATIBLE for kind, _ in found)
    # thirty within each other are deeper than Python calls go
    many = [(1, schema(build("string", 30)))]
    with pytest.raises(InvalidSchema, match="nested too deep to be compared"):
        list_incompatibilities(LEVELS["BACKWARD"], schema(build("number", 30)), many)


def test_patterns_cannot_hold_up_the_comparison() -> None:
    original = {"patternProperties": {"(a+)+$": {}, "(?=x)": {}}, "additionalProperties": TEXT}
    update = {**original, "properties": {"a" * 60 + "!": TEXT}}
    assert list_differences(schema(original), schema(update))


def test_any_document_is_a_schema_or_invalid(full: bool) -> None:
    chance = random.Random(3)
    documents = [one for case in CHANGES for one in case[:2]]
    for _ in range(20_000 if full else 500):
        texts = [json.dumps(chance.choice(documents)) for _ in range(2)]
        for number, text in enumerate(texts):
            word = chance.choice(re.findall(r'"\w+"|\d+|\{\}|true', text) or [text])
            odd = ["{}", "[]", "1", "true", "null", '"#"', '{"$ref": "#"}', word]
            texts[number] = text.replace(word, chance.choice(odd), 1)
        try:
            schemas = [parse_json_schema(text) for text in texts]
            list_differences(*schemas)
        except InvalidSchema:
            pass


@pytest.mark.skipif(not SOURCE, reason="LADING_TEST_SCHEMA_REGISTRY names no checkout of Confluent's schema-registry")
@pytest.mark.parametrize("name", ["schema", "combined-schema", "schema", "combined-schema"])
@pytest.mark.parametrize("draft", ["", "-2020-12"])
def test_confluents_own_cases(name: str, draft: str) -> None:
    path = Path(SOURCE) / f"json-schema-provider/src/test/resources/diff-{name}-examples{draft}.json"
    # their reader accepts commas after the last member
    cases: list[dict[str, Any]] = json.loads(re.sub(r",(\s*[}\]])", r"\1", path.read_text()))
    for case in cases:
        if "original_metadata" in case or "update_metadata" in case:
            continue
        found = list_differences(*(schema(case[f"{side}_schema"]) for side in ("original", "update")))
        assert all(kind in COMPATIBLE for kind, _ in found) == case["compatible"], case["description"]
        if not draft:
            # the library for the newer draft leaves some compatible differences out
            assert sorted(f"{kind} {path}" for kind, path in found) == sorted(case["changes"]), case["description"]


def test_parts_that_properties_share_do_not_double_the_differences() -> None:
    # 40 levels of two properties each: 2^40 ways to the one difference
    def nest(leaf: dict[str, Any]) -> JsonSchema:
        below = {f"T{level}": {"$ref": f"#/definitions/T{level - 1}"} for level in range(1, 41)}
        types: dict[str, Any] = {"T0": leaf}
        types |= {name: {"type": "object", "properties": {"a": one, "b": one}} for name, one in below.items()}
        return parse_json_schema(json.dumps({"definitions": types, "$ref": "#/definitions/T40"}))

    text, longer = {"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 9}
    assert {kind for kind, _ in list_differences(nest(text), nest(longer))} == {"MAX_LENGTH_INCREASED"}
    found = list_differences(nest(longer), nest(text))
    assert {kind for kind, _ in found} == {"MAX_LENGTH_DECREASED"} and len(found) <= DIFFERENCES_MAX


def test_of_too_many_differences_those_that_decide_are_kept() -> None:
    names = [f"p{number:05}" for number in range(DIFFERENCES_MAX + 500)]
    before = {name: {"type": "string", "maxLength": 5} for name in names} | {"z": {"type": "string"}}
    after = {name: {"type": "string", "maxLength": 9} for name in names} | {"z": {"type": "boolean"}}
    schemas = [parse_json_schema(json.dumps({"type": "object", "properties": one})) for one in (before, after)]
    assert ("TYPE_CHANGED", "#/properties/z") in list_differences(*schemas)
