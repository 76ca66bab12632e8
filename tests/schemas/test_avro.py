"""Avro schemas: the canonical text of Java's library, what is invalid, and which reader reads which writer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lading.schemas.avro import fits, parse_avro
from lading.schemas.avro_compatibility import DIFFERENCES_MAX, list_avro_incompatibilities
from lading.schemas.formats import LEVELS, list_incompatibilities, parse_schema
from lading.schemas.parsed import InvalidSchema, ResolvedReference


def record(*fields: Any, name: str = "R", **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": list(fields), **more})


def field(name: str, type_: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


# from Avro 1.12's Schema.toString: order of members, short names in one namespace, attributes kept
CANONICAL = [
    ('{"type": "string"}', '"string"'),
    ("string", '"string"'),
    ('{"type": "string", "avro.java.string": "String"}', '{"type":"string","avro.java.string":"String"}'),
    (
        '{"fields": [{"type": "int", "name": "a", "default": 1, "doc": "d", "x": [1]}], "name": "n.R", '
        '"type": "record", "y": 2, "doc": "of R", "aliases": ["S", "m.T"]}',
        '{"type":"record","name":"R","namespace":"n","doc":"of R","fields":[{"name":"a","type":"int","doc":"d",'
        '"default":1,"x":[1]}],"y":2,"aliases":["S","m.T"]}',
    ),
    (
        '{"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "e", "type": {"type": "enum", '
        '"name": "E", "symbols": ["A", "B"], "default": "A"}}, {"name": "f", "type": ["null", "n.E"]}, '
        '{"name": "g", "type": {"type": "array", "items": {"type": "fixed", "name": "o.F", "size": 2}}, '
        '"order": "IGNORE"}]}',
        '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"enum","name":"E",'
        '"symbols":["A","B"],"default":"A"}},{"name":"f","type":["null","E"]},{"name":"g","type":{"type":"array",'
        '"items":{"type":"fixed","name":"F","namespace":"o","size":2}},"order":"ignore"}]}',
    ),
    (
        '{"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"], "default": null}]}',
        '{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"],"default":null}]}',
    ),
]


@pytest.mark.parametrize(("text", "canonical"), CANONICAL)
def test_text_is_written_as_java_writes_it(text: str, canonical: str) -> None:
    schema = parse_avro(text)
    assert schema.text == canonical
    assert parse_avro(canonical).text == canonical
    assert parse_avro(schema.normalize()).normalize() == schema.normalize()


def test_normal_form_is_the_same_whatever_the_order_of_attributes() -> None:
    one = '{"type":"record","name":"R","namespace":"n","b":1,"a":2,"fields":[{"name":"f","type":"int","z":1,"y":2}]}'
    other = '{"type":"record","name":"n.R","a":2,"b":1,"fields":[{"name":"f","type":"int","y":2,"z":1}]}'
    assert parse_avro(one).text != parse_avro(other).text
    assert parse_avro(one).normalize() == parse_avro(other).normalize()


INVALID = [
    "",
    "{",
    "nonsense",
    '{"type": "nonsense"}',
    '{"type": "record", "name": "R"}',
    '{"type": "record", "fields": []}',
    record(field("a", "int"), field("a", "int")),
    record(field("a-b", "int")),
    record(field("", "int")),
    record({"name": "a"}),
    record(field("a", "Missing")),
    record(field("a", ["int", "int"])),
    record(field("a", ["int", ["string"]])),
    record(field("a", "int", order="upwards")),
    record(field("a", {"type": "enum", "name": "R", "symbols": []})),
    '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
    '{"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}',
    '{"type": "fixed", "name": "F"}',
    '{"type": "fixed", "name": "F", "size": -1}',
    '{"type": "array"}',
    '{"type": "record", "name": "int", "fields": []}',
    "[" * 10_000,
    record(field("a", "int", default=float("inf"))),
    '{"type": "record", "name": "R", "doc": "\\ud800", "fields": []}',
]


@pytest.mark.parametrize("text", INVALID)
def test_invalid_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_schema("AVRO", text, is_new=False)


def test_defaults_of_unions_inside_one_another_are_checked_once() -> None:
    """Two branches at each of 60 levels lead to the same value, which fits neither."""
    fork = (
        '{"type":"record","name":"A","fields":[{"name":"x","type":["null","A",'
        '{"type":"record","name":"B","fields":[{"name":"x","type":["null","A","B"]}]}]}]}'
    )
    value: Any = 7
    for _ in range(60):
        value = {"x": value}
    assert not fits(parse_avro(fork).root, value)


@pytest.mark.parametrize(
    ("type_", "default", "fits"),
    [
        ("int", 1, True), ("int", 2**31, False), ("int", "1", False), ("int", True, False), ("long", 2**31, True),
        ("double", 1, True), ("string", 1, False), ("bytes", "a", True), (["null", "int"], None, True),
        (["null", "int"], 1, True), (["null", "int"], "x", False), ({"type": "array", "items": "int"}, [1], True),
        ({"type": "array", "items": "int"}, ["1"], False), ({"type": "map", "values": "int"}, {"a": 1}, True),
        ({"type": "map", "values": "int"}, [], False), ("null", None, True), ("boolean", 0, False),
        ({"type": "record", "name": "S", "fields": [field("b", "int")]}, {}, False),
        ({"type": "record", "name": "S", "fields": [field("b", "int", default=1)]}, {}, True),
    ],
)  # fmt: skip
def test_defaults_of_new_schemas_fit_their_types(type_: Any, default: Any, fits: bool) -> None:
    text = record(field("a", type_, default=default))
    parse_schema("AVRO", text, is_new=False)
    if fits:
        parse_schema("AVRO", text, is_new=True)
    else:
        with pytest.raises(InvalidSchema, match="Invalid default for field"):
            parse_schema("AVRO", text, is_new=True)


def test_a_reference_defines_names() -> None:
    address = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"city","type":"string"}]}'
    text = record(field("to", "shop.Address"), field("bill", ["null", "shop.Address"]), name="shop.Order")
    with pytest.raises(InvalidSchema, match=r"Undefined name: 'shop\.Address'"):
        parse_avro(text)
    schema = parse_avro(text, [ResolvedReference("shop.Address", address)])
    assert '"type":"Address"' in schema.text
    assert "city" not in schema.text


# reader, writer, kinds of difference: Avro's specification, "Schema Resolution", and the cases of Java's library
READS: list[tuple[Any, Any, list[str]]] = [
    ("int", "int", []),
    ("long", "int", []),
    ("int", "long", ["TYPE_MISMATCH"]),
    ("float", "long", []),
    ("double", "float", []),
    ("float", "double", ["TYPE_MISMATCH"]),
    ("string", "bytes", []),
    ("bytes", "string", []),
    ("string", "int", ["TYPE_MISMATCH"]),
    (["null", "int"], "int", []),
    (["null", "int"], "string", ["MISSING_UNION_BRANCH"]),
    ("int", ["null", "int"], ["TYPE_MISMATCH"]),
    ("long", ["int", "long"], []),
    (["int"], ["int", "string"], ["MISSING_UNION_BRANCH"]),
    (["int", "string"], ["int"], []),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "array", "items": "int"}, {"type": "map", "values": "int"}, ["TYPE_MISMATCH"]),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "long"}, ["TYPE_MISMATCH"]),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, ["FIXED_SIZE_MISMATCH"]),
    ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "G", "size": 2}, ["NAME_MISMATCH"]),
    ({"type": "fixed", "name": "F", "size": 2, "aliases": ["G"]}, {"type": "fixed", "name": "G", "size": 2}, []),
    (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ["MISSING_ENUM_SYMBOLS"],
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        [],
    ),
    (
        {"type": "record", "name": "R", "fields": [field("a", "int"), field("b", "int")]},
        {"type": "record", "name": "R", "fields": [field("a", "int")]},
        ["READER_FIELD_MISSING_DEFAULT_VALUE"],
    ),
    (
        {"type": "record", "name": "R", "fields": [field("a", "int"), field("b", "int", default=0)]},
        {"type": "record", "name": "R", "fields": [field("a", "int"), field("c", "int")]},
        [],
    ),
    (
        {"type": "record", "name": "R", "fields": [field("new", "int", aliases=["old"])]},
        {"type": "record", "name": "R", "fields": [field("old", "int")]},
        [],
    ),
    (
        {"type": "record", "name": "R", "fields": [field("next", ["null", "R"]), field("v", "int")]},
        {"type": "record", "name": "R", "fields": [field("next", ["null", "R"]), field("v", "long")]},
        ["TYPE_MISMATCH"],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "kinds"), READS)
def test_differences_are_those_of_avros_library(reader: Any, writer: Any, kinds: list[str]) -> None:
    schemas = [parse_avro(json.dumps(one)) for one in (reader, writer)]
    found = list_avro_incompatibilities(schemas[0], schemas[1], ("new", "old"))
    assert [text.partition("'")[2].partition("'")[0] for text in found] == kinds


def test_messages_name_the_place_and_the_older_version() -> None:
    old = parse_avro(record(field("f1", "string"), name="myrecord"))
    new = parse_avro(record(field("f1", "string"), field("f2", "string"), name="myrecord"))
    assert list_incompatibilities(LEVELS["FORWARD"], new, [(1, old)]) == []
    # as Confluent's registry shows it (RestApiCompatibilityTest)
    assert list_incompatibilities(LEVELS["BACKWARD"], new, [(1, old)]) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'f2' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'f2'}",
        "{oldSchemaVersion: 1}",
        f"{{oldSchema: '{old.text}'}}",
    ]


def test_transitive_levels_look_at_every_version() -> None:
    first = parse_avro(record(field("a", "int")))
    second = parse_avro(record(field("a", "int"), field("b", "int", default=0)))
    third = parse_avro(record(field("a", "int"), field("b", "int")))
    older = [(1, first), (2, second)]
    assert list_incompatibilities(LEVELS["BACKWARD"], third, older) == []
    assert list_incompatibilities(LEVELS["BACKWARD_TRANSITIVE"], third, older)
    assert list_incompatibilities(LEVELS["NONE"], parse_avro("int"), older) == []
    assert list_incompatibilities(LEVELS["FULL"], first, [(2, second)]) == []


def test_types_that_fields_share_do_not_double_the_differences() -> None:
    # 40 levels of two fields each: 2^40 ways to the one difference
    def nest(leaf: str) -> str:
        document: Any = {"type": "record", "name": "T0", "fields": [{"name": "x", "type": leaf}]}
        for level in range(1, 41):
            fields = [{"name": "a", "type": document}, {"name": "b", "type": f"T{level - 1}"}]
            document = {"type": "record", "name": f"T{level}", "fields": fields}
        return json.dumps(document)

    found = list_avro_incompatibilities(parse_avro(nest("int")), parse_avro(nest("string")), ("new", "old"))
    assert 1 <= len(found) <= DIFFERENCES_MAX and all("TYPE_MISMATCH" in text for text in found)
    assert list_avro_incompatibilities(parse_avro(nest("long")), parse_avro(nest("int")), ("new", "old")) == []


def _branches(prefix: str) -> str:
    return json.dumps([{"type": "record", "name": f"{prefix}{number}", "fields": []} for number in range(1_500)])


def test_schemas_that_take_too_long_to_compare_are_refused() -> None:
    # 80 KB of branches took 6.7 s of a worker
    new, old = parse_avro(_branches("a")), parse_avro(_branches("b"))
    with pytest.raises(InvalidSchema, match="too complex"):
        list_incompatibilities(LEVELS["FULL"], new, [(1, old)])


def test_symbols_of_two_long_enums_are_compared_in_proportion() -> None:
    # each symbol once made a set of all others: 20,000 took ten seconds, these would take hours
    symbols = [f"s{number}" for number in range(200_000)]
    old = parse_avro(json.dumps({"type": "enum", "name": "E", "symbols": symbols}))
    new = parse_avro(json.dumps({"type": "enum", "name": "E", "symbols": [*symbols[1:], "t"]}))
    (missing, *_) = list_incompatibilities(LEVELS["BACKWARD"], new, [(1, old)])
    assert "[s0]" in missing
