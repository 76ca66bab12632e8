"""Protobuf schemas: text and descriptor are one schema, and Confluent's rules for what may follow what."""

from __future__ import annotations

import base64
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from lading.schemas.formats import parse_schema
from lading.schemas.parsed import InvalidSchema, Reference, ResolvedReference
from lading.schemas.protobuf import ProtobufSchema, parse_protobuf
from lading.schemas.protobuf_compatibility import COMPATIBLE, list_differences

SOURCE = os.environ.get("LADING_TEST_SCHEMA_REGISTRY", "")
"""A checkout of Confluent's schema-registry, whose own cases are then run too."""

TEXT = """\
syntax = "proto3";
package shop;

import "google/protobuf/timestamp.proto";

option java_package = "com.shop";
option java_multiple_files = true;

message Order {
  reserved 5, 8 to 10;
  reserved "old";
  int64 id = 1;
  optional string note = 2;
  repeated Item items = 3 [deprecated = true];
  map<string, Item> by_name = 4;
  google.protobuf.Timestamp placed = 6;

  oneof payment {
    string card = 11;
    Kind kind = 12;
  }

  message Item {
    double price = 1 [json_name = "cost"];
  }

  enum Kind {
    CASH = 0;
    VOUCHER = -1;
  }
}

service Orders {
  rpc Place (Order) returns (stream Order);
}
"""


def test_text_is_laid_out_and_comments_left_out() -> None:
    odd = TEXT.replace("message Order {", "/* an\norder */ message Order { // here\n;").replace(
        '"com.shop"', "'com.' \"shop\""
    )
    assert parse_protobuf(odd).text == parse_protobuf(TEXT).text == TEXT


def test_text_and_descriptor_are_one_schema() -> None:
    descriptor = parse_protobuf(TEXT).format_text("serialized")
    again = parse_protobuf(descriptor)
    # in a descriptor types have their full names
    assert "repeated .shop.Order.Item items = 3" in again.text
    assert again.normalize() == parse_protobuf(TEXT).normalize()
    assert again.format_text("serialized") == descriptor
    assert list_differences(parse_protobuf(TEXT), again) == []


# of a file p/M with a text, an optional number, a text in a oneof and a map of messages: as protobuf's own library
# (7.36.2) serialises its descriptor
CAPTURED = (
    "CgdtLnByb3RvEgFwIpYBCgFNEgwKAWEYASABKAlSAWESEQoBYhgCIAEoBUgBUgFiiAEBEg4KAWMYA"
    "yABKAlIAFIBYxIZCgFkGAQgAygLMgsucC5NLkRFbnRyeVIBZBo6CgZERW50cnkSEAoDa2V5GAEgAS"
    "gJUgNrZXkSGgoFdmFsdWUYAiABKAsyBC5wLk1SBXZhbHVlOgI4AUIDCgFvQgQKAl9iYgZwcm90bzM="
)
MEANT = """\
syntax = "proto3";
package p;

message M {
  string a = 1;
  optional int32 b = 2;
  map<string, .p.M> d = 4;

  oneof o {
    string c = 3;
  }
}
"""


def test_a_descriptor_of_protobufs_own_library() -> None:
    assert parse_protobuf(CAPTURED).text == MEANT
    assert parse_protobuf(MEANT).normalize() == parse_protobuf(CAPTURED).normalize()


GROUPS = """\
syntax = "proto2";

message M {
  optional group Part = 1 {
    optional string a = 1 [default = "éA"];
    repeated group Deep = 2 {
      optional int32 x = 1;
    }
  }
  optional bytes b = 4 [default = "\\377\\'a"];

  oneof o {
    group Item = 3 {
      required int32 n = 1;
    }
  }
}
"""


def test_groups_and_escaped_defaults_are_the_same_in_text_and_descriptor() -> None:
    schema = parse_protobuf(GROUPS.replace("éA", "\\303\\251\\x41").replace("\\'", "'"))
    assert schema.text == GROUPS.replace("\\'", "'")
    # a group has the type 10, and the default of bytes has its escapes (descriptor.proto)
    descriptor = base64.b64decode(schema.format_text("serialized"))
    assert b"\x0a\x04part\x18\x01\x20\x01\x28\x0a\x32\x07.M.Part" in descriptor and b"\\377\\'a" in descriptor
    again = parse_protobuf(schema.format_text("serialized"))
    assert again.normalize() == schema.normalize() and "group Part = 1 {" in again.text
    assert again.format_text("serialized") == schema.format_text("serialized")


def test_features_are_the_same_in_text_and_descriptor() -> None:
    text = """edition = "2023"; option features.field_presence = IMPLICIT; message M { message N { int32 a = 1; }
      N n = 1 [features.message_encoding = DELIMITED];
      repeated int32 r = 2 [features.repeated_field_encoding = EXPANDED];
      E e = 3; } enum E { option features.enum_type = CLOSED; A = 0; }"""
    schema = parse_protobuf(text)
    descriptor = base64.b64decode(schema.format_text("serialized"))
    # FieldOptions.features is 21, FeatureSet.message_encoding 5, DELIMITED 2 (descriptor.proto)
    assert b"\x42\x05\xaa\x01\x02\x28\x02" in descriptor
    assert parse_protobuf(schema.format_text("serialized")).normalize() == schema.normalize()


INVALID = [
    "nonsense",
    "message M {",
    'syntax = "proto9";',
    "message M { string a = 0; }",
    "message M { string a = 19500; }",
    "message M { string a = 1; string b = 1; }",
    "message M { string a = 1; int32 a = 2; }",
    "message M { string a; }",
    "message M { optional group g = 1 { } }",
    "message M { extend M { optional group G = 1 { } } }",
    "message M { string a = 1; } message M { }",
    "enum E { }",
    'import "other.proto"; message M { }',
    "message M { Missing a = 1; }",
    "message A { " * 40 + "}" * 40,
    base64.b64encode(b"\x0a\x05abc").decode(),
    base64.b64encode(b"\xff" * 20).decode(),
    'message M { string a = 1 [default = "x }',
    "message M { map<string> a = 1; }",
]


@pytest.mark.parametrize("text", INVALID)
def test_invalid_schemas_are_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_schema("PROTOBUF", text, is_new=True)


@pytest.mark.parametrize(
    "text",
    [
        "message M { optional message_type message = 1; } message message_type { }",
        'syntax = "proto2"; message M { required string a = 1 [default = "x\\ty"]; extensions 100 to max; }'
        " extend M { optional int32 e = 100; }",
        'edition = "2023"; message M { string a = 1; }',
        'syntax = "proto3"; option (my.option).a.b = { x: 1, y: "z" }; message M { }',
        "message M { oneof o { option deprecated = true; string reserved = 1; } enum E { option allow_alias = true; "
        "A = 0x0; B = 00; } E e = 2; .M m = 3; }",
    ],
)
def test_rarer_grammar(text: str) -> None:
    schema = parse_protobuf(text)
    assert parse_protobuf(schema.text).text == schema.text
    assert parse_protobuf(schema.format_text("serialized")).text


def message(*fields: str, package: str = "p", name: str = "M") -> str:
    return f'syntax = "proto3"; package {package}; message {name} {{ {" ".join(fields)} }}'


# original, update, differences: Confluent's documentation and its own cases
CHANGES: list[tuple[str, str, list[str]]] = [
    (message("string a = 1;"), message("string a = 1;", "int32 b = 2;"), ["FIELD_ADDED #/M/2"]),
    (message("string a = 1;"), message("string b = 1;"), ["FIELD_NAME_CHANGED #/M/1"]),
    (message("string a = 1;"), message("bytes a = 1;"), []),
    (message("int32 a = 1;"), message("uint64 a = 1;"), []),
    (message("int32 a = 1;"), message("sint32 a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("int32 a = 1;"), message("string a = 1;"), ["FIELD_SCALAR_KIND_CHANGED #/M/1"]),
    (message("string a = 1;"), message("map<string, string> a = 1;"), ["FIELD_KIND_CHANGED #/M/1"]),
    (message("string a = 1;"), message("string a = 1;", package="q"), ["PACKAGE_CHANGED #/"]),
    (message(), message(name="N"), ["MESSAGE_ADDED #/N", "MESSAGE_REMOVED #/M"]),
    (
        message("string a = 1;", "string b = 2;"),
        message("oneof o { string a = 1; string b = 2; }"),
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF #/M/o", "ONEOF_ADDED #/M/o"],
    ),
    (message("string a = 1;"), message("oneof o { string a = 1; string c = 3; }"), [
        "ONEOF_ADDED #/M/o", "ONEOF_FIELD_ADDED #/M/o/3",
    ]),
    (
        message("oneof o { string a = 1; string b = 2; }"),
        message("oneof o { string a = 1; }"),
        ["ONEOF_FIELD_REMOVED #/M/o/2"],
    ),
    (message("M a = 1;", "int32 b = 2;"), message("M a = 1;", "float b = 2;"), ["FIELD_SCALAR_KIND_CHANGED #/M/2"]),
    (
        message("enum E { A = 0; } E e = 1;"),
        message("enum E { A = 0; B = 1; } int32 e = 1;"),
        ["ENUM_CONST_ADDED #/M/E/1"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("original", "update", "changes"), CHANGES)
def test_differences(original: str, update: str, changes: list[str]) -> None:
    found = list_differences(parse_protobuf(original), parse_protobuf(update))
    assert sorted(f"{kind} {path}" for kind, path in found) == changes


def test_a_message_of_another_file_is_compared_with_its_other_version() -> None:
    def order(item: str, version: int) -> ProtobufSchema:
        text = 'syntax = "proto3"; import "item.proto"; message Order { shop.Item item = 1; }'
        return parse_protobuf(text, [ResolvedReference("item.proto", item, Reference("item.proto", "item", version))])

    first, second = (message(f"{kind} price = 1;", package="shop", name="Item") for kind in ("double", "string"))
    assert list_differences(order(first, 1), order(first, 1)) == []
    assert ("FIELD_NAMED_TYPE_CHANGED", "#/Order/1") in list_differences(order(first, 1), order(second, 2))


def test_any_text_is_a_schema_or_invalid(full: bool) -> None:
    chance = random.Random(7)
    descriptor = base64.b64decode(parse_protobuf(TEXT).format_text("serialized"))
    for _ in range(20_000 if full else 500):
        if chance.random() < 0.5:
            data = bytearray(descriptor)
            for _ in range(chance.randrange(1, 5)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            text = base64.b64encode(data[: chance.randrange(1, len(data) + 1)]).decode()
        else:
            at = chance.randrange(len(TEXT))
            text = TEXT[:at] + chance.choice(["", "{", "}", '"', "= 1;", "//", "/*", "\\", "<"]) + TEXT[at + 3 :]
        try:
            schema = parse_protobuf(text)
            assert parse_protobuf(schema.text).text == schema.text, text
            schema.format_text("serialized")
        except InvalidSchema:
            pass


@pytest.mark.skipif(not SOURCE, reason="LADING_TEST_SCHEMA_REGISTRY names no checkout of Confluent's schema-registry")
def test_confluents_own_cases() -> None:
    cases: list[dict[str, Any]] = json.loads(
        (Path(SOURCE) / "protobuf-provider/src/test/resources/diff-schema-examples.json").read_text()
    )
    for case in cases:
        schemas = []
        for side in ("original", "update"):
            references = {one["name"]: Reference(**one) for one in case.get(f"{side}_references", [])}
            imported = [
                ResolvedReference(one["name"], one["dependency"], references.get(one["name"]))
                for one in case.get(f"{side}_dependencies", [])
            ]
            schemas.append(parse_protobuf(case[f"{side}_schema"], imported))
        found = list_differences(*schemas)
        assert sorted(f"{kind} {path}" for kind, path in found) == sorted(case["changes"]), case["description"]
        assert all(kind in COMPATIBLE for kind, _ in found) == case["compatible"], case["description"]


def test_messages_that_refer_to_each_other_are_compared_once() -> None:
    # each refers to all others, in a file of which there are two versions: 14! ways through them
    names = [f"T{number}" for number in range(14)]
    members = " ".join(f"{name} f{at} = {at + 2};" for at, name in enumerate(names))

    def write(type_: str) -> str:
        messages = " ".join(f"message {one} {{ {type_} x = 1; {members} }}" for one in names)
        return f'syntax = "proto3"; package p; {messages}'

    text = 'syntax = "proto3"; package q; import "p.proto"; message Root { p.T0 t = 1; }'
    schemas = [
        parse_protobuf(text, [ResolvedReference("p.proto", write(type_), Reference("p.proto", "p", version))])
        for version, type_ in ((1, "int32"), (2, "string"), (3, "int64"))
    ]
    assert ("FIELD_NAMED_TYPE_CHANGED", "#/Root/1") in list_differences(schemas[0], schemas[1])
    assert {kind for kind, _ in list_differences(schemas[0], schemas[2])} <= COMPATIBLE
