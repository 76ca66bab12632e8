"""Protobuf payloads: bytes of the encoding guide, verdicts, presence, evolution, and Google's library as the oracle."""

from __future__ import annotations

import json
import random
import struct
import subprocess
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lading.columns.assemble import Assembled, assemble
from lading.columns.contract import parse_columns
from lading.kernels import engine
from lading.model.errors import SettingError
from lading.model.run import Decoded
from lading.payloads import protobuf_fallback, protobuf_values
from lading.payloads.form import PayloadForm, find_message, read_indexes
from lading.payloads.identity import SchemaIdentity
from lading.payloads.layout import VERDICT_TAG
from lading.payloads.protobuf_from_json import encode_json
from lading.registry.payload_form import parse_payload_form
from lading.schemas.parsed import ParsedSchema, ResolvedReference
from lading.schemas.protobuf import parse_protobuf
from lading.schemas.protobuf_descriptor import write_descriptor
from tests.interop import wheels


def form_of(schema: str, **settings: str) -> PayloadForm:
    return parse_payload_form({"format": "protobuf", "schema": schema, "prefix": "none", **settings})


def read(columns: str, form: PayloadForm, payloads: Sequence[bytes | None]) -> Assembled:
    held: dict[str, pa.Array[Any]] = {"payload": pa.array(payloads, pa.binary())}
    made = assemble(Decoded(len(payloads), held, {}), parse_columns(columns, form))
    made.batch.validate(full=True)
    return made


def read_one(columns: str, form: PayloadForm, payload: bytes) -> dict[str, Any]:
    made = read(columns, form, [payload])
    assert made.walked is not None and made.walked.good[0], made.walked.describe(0) if made.walked else ""
    found: dict[str, Any] = made.batch.to_pylist()[0]
    return found


def wrong_rows(made: Assembled) -> dict[str, list[int]]:
    return {name: np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist() for name, flags in made.bad.items()}


def varint(number: int) -> bytes:
    rest, out = number & (1 << 64) - 1, b""
    while rest > 127:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def sized(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


GUIDE = 'syntax = "proto3"; message Test1 { int32 a = 1; string b = 2; Inner c = 3; repeated int32 f = 6; }\n'
GUIDE += "message Inner { int32 a = 1; }"


@pytest.mark.parametrize(
    ("payload", "column", "value"),
    [
        (b"\x08\x96\x01", "a int from payload", 150),
        (b"\x12\x07testing", "b string from payload", "testing"),
        (b"\x1a\x03\x08\x96\x01", "a int from payload.c.a", 150),
        (b"\x32\x06\x03\x8e\x02\x9e\xa7\x05", "f array<int> from payload", [3, 270, 86942]),
        (b"\x30\x03\x30\x8e\x02\x30\x9e\xa7\x05", "f array<int> from payload", [3, 270, 86942]),
    ],
)
def test_the_messages_of_the_encoding_guide_are_read(half: str, payload: bytes, column: str, value: Any) -> None:
    assert list(read_one(column, form_of(GUIDE, message="Test1"), payload).values()) == [value]


SCHEMA = """syntax = "proto3"; package shop;
message Order { string a = 1; int32 n = 2; repeated sint64 l = 3; bool b = 4; Inner o = 5; fixed32 x = 6; fixed64 y = 7;
  message Inner { string t = 1; Inner below = 2; } }
"""
GOOD = sized(1, b"k") + number(2, 7)
CASES: list[tuple[bytes | None, str, int]] = [
    (GOOD, "is good", 0),
    (None, "is null", 0),
    (b"", "is good", 0),
    # fields that the schema does not have, of each wire type, also a group in a group
    (GOOD + number(100, 1) + b"\xa1\x06" + bytes(8) + b"\xa2\x06\x01\xff" + b"\xa5\x06" + bytes(4), "is good", 0),
    (GOOD + b"\xa3\x06\x0b\x08\x01\x0c\xa4\x06", "is good", 0),
    # of another wire type it is a field that is not known
    (GOOD + sized(2, b"abc"), "is good", 0),
    (GOOD[:-1], "ends too early", 4),
    (GOOD + b"\x10", "ends too early", 6),
    (b"\x0a\x05k", "ends too early", 3),
    (GOOD + b"\x35\x00\x00", "ends too early", 8),
    (GOOD + b"\x39" + bytes(7), "ends too early", 13),
    (b"\x0a\x02k\xff", "is not UTF-8", 3),
    (sized(5, sized(1, b"\xed\xa0\x80")), "is not UTF-8", 4),
    (b"\x10" + b"\xff" * 10 + b"\x01", "has a number of more than 64 bits", 1),
    (b"\x07", "has an invalid field number or wire type", 0),
    (b"\x00\x01", "has an invalid field number or wire type", 0),
    (GOOD + b"\x0c", "has an invalid field number or wire type", 5),
    (GOOD + b"\x0b\x14", "has an invalid field number or wire type", 6),
    (GOOD + b"\x0b", "ends too early", 6),
    (b"\x80\x80\x80\x80\x80\x01", "has an invalid field number or wire type", 0),
    (sized(5, b"\x0a\x09x") + GOOD, "has an invalid length", 5),
    (b"\x0a\xff\xff\xff\xff\x0f", "has an invalid length", 1),
    (sized(3, b"\x02\x80") + GOOD, "has an invalid length", 4),
]


@pytest.mark.parametrize("columns", ["a string from payload, l array<bigint> from payload", "n int from payload"])
def test_every_payload_has_a_verdict_with_its_byte_and_leaves_its_neighbours_alone(half: str, columns: str) -> None:
    payloads = [payload for case, _, _ in CASES for payload in (GOOD, case)] + [GOOD]
    made = read(columns, form_of(SCHEMA), payloads)
    walked = made.walked
    assert walked is not None
    for row, (payload, words, position) in enumerate(CASES):
        at = 2 * row + 1
        assert walked.describe(at).startswith(words), payload
        assert walked.position[at] == position, payload
        assert bool(walked.malformed[at]) == (words not in ("is good", "is null"))
    first = made.batch.slice(0, 1).to_pylist()
    assert made.batch.take(list(range(0, len(payloads), 2))).to_pylist() == first * (len(CASES) + 1)


KINDS = """syntax = "proto3"; package k; import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto"; import "google/protobuf/wrappers.proto"; import "google/protobuf/struct.proto";
message All {
  int32 i = 1; sint32 si = 2; uint32 u = 3; int64 l = 4; sint64 sl = 5; uint64 ul = 6; fixed32 f32 = 7; fixed64 f64 = 8;
  sfixed32 s32 = 9; sfixed64 s64 = 10; float f = 11; double d = 12; bool b = 13; string s = 14; bytes r = 15;
  enum Kind { NONE = 0; CASH = 1; } Kind e = 16;
  google.protobuf.Timestamp at = 17; google.protobuf.Duration took = 18; google.protobuf.Int64Value w = 19;
  google.protobuf.StringValue ws = 20; google.protobuf.Struct any = 21; optional int32 o = 22; map<int32, All> m = 23;
}
"""
ALL = (
    number(1, -5) + number(2, 9) + number(3, (1 << 32) - 1) + number(4, -(1 << 63)) + number(5, 3)
    + number(6, (1 << 64) - 1) + b"\x3d\xff\xff\xff\xff" + b"\x41" + b"\xff" * 8 + b"\x4d\xfe\xff\xff\xff" + b"\x51"
    + b"\xfe" + b"\xff" * 7 + b"\x5d" + struct.pack("<f", 0.1) + b"\x61" + struct.pack("<d", -1.5) + number(13, 2)
    + sized(14, "é".encode()) + sized(15, b"\xff\x00") + number(16, 1) + sized(17, number(1, 1) + number(2, 500000999))
    + sized(18, number(1, -1) + number(2, -500_000_000)) + sized(19, b"") + sized(20, sized(1, b"x"))
    + sized(21, sized(1, sized(1, b"k") + sized(2, sized(6, sized(1, number(4, 1))))))
    + sized(23, number(1, 7) + sized(2, number(1, 3)))
)  # fmt: skip


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("i int", -5), ("i string", "-5"), ("si int", -5), ("u bigint", (1 << 32) - 1), ("u int", "!"),
        ("l bigint", -(1 << 63)), ("sl bigint", -2), ("ul bigint", "!"), ("ul decimal(38,0)", (1 << 64) - 1),
        ("ul string", str((1 << 64) - 1)), ("f32 bigint", (1 << 32) - 1), ("f64 decimal(38,0)", (1 << 64) - 1),
        ("s32 int", -2), ("s64 bigint", -2), ("f double", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("f float", struct.unpack("<f", struct.pack("<f", 0.1))[0]), ("d double", -1.5), ("d int", "!"),
        ("b boolean", True), ("b string", "true"), ("b int", 1), ("i boolean", True), ("s string", "é"),
        ("s binary", "é".encode()), ("r binary", b"\xff\x00"), ("r string", "!"), ("r json", '"/wA="'),
        ("e string", "CASH"), ("e int", 1), ("e json", '"CASH"'),
        ("at timestamp", datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)), ("at date", date(1970, 1, 1)),
        ("at json", '"1970-01-01T00:00:01.500000999Z"'), ("at bigint", "!"),
        ("took string", "-1.500s"), ("took double", -1.5), ("took decimal(10,1)", Decimal("-1.5")), ("took int", "!"),
        ("w bigint", 0), ("w json", "0"), ("ws string", "x"), ("any json", '{"k":[true]}'),
        ("any string", '{"k":[true]}'), ("o int", None), ("nowhere string", None),
        ("m map<string,struct<i:int,s:string>>", [("7", {"i": 3, "s": ""})]), ("l json", str(-(1 << 63))),
        ("ul json", str((1 << 64) - 1)), ("f json", "0.1"), ("b json", "true"), ("m int", "!"),
    ],
)  # fmt: skip
def test_kinds_become_what_the_column_asks(half: str, column: str, value: Any) -> None:
    name, type_ = column.split()
    made = read(f"{name}_ {type_} from payload.{name}", form_of(KINDS), [ALL])
    assert made.walked is not None
    assert made.walked.good.all(), made.walked.describe(0)
    assert made.batch.column(0)[0].as_py() == (None if value == "!" else value)
    assert bool(made.bad) == (value == "!")


def test_the_same_in_one_text_and_nothing_of_it_in_an_empty_payload(half: str) -> None:
    holder = KINDS + "message Holder { All all = 1; }"
    form = form_of(holder, message="k.Holder")
    made = read("j json from payload.all", form, [sized(1, ALL), b"", sized(1, b"")])
    texts: list[Any] = made.batch.column(0).to_pylist()
    found = json.loads(texts[0])
    assert found["m"]["7"]["i"] == 3 and found["at"] == "1970-01-01T00:00:01.500000999Z" and found["w"] == 0
    assert texts[1] is None
    absent = {"at", "took", "w", "ws", "any", "o"}
    assert json.loads(texts[2]).keys() == json.loads(texts[0]).keys() - absent | set()


PRESENCE = """syntax = "proto2"; message P { optional int32 a = 1; optional int32 b = 2 [default = -7];
  optional string c = 3 [default = "x\\ty"]; optional E e = 4 [default = TWO]; repeated E l = 5;
  optional double d = 6 [default = inf]; map<string, E> m = 7; optional E plain = 8;
  oneof o { E f = 9; int32 g = 10; } }
enum E { ONE = 1; TWO = 2; }
"""


def test_absent_fields_are_their_default_if_the_schema_gives_one_else_null_with_presence(half: str) -> None:
    columns = (
        "a int from payload, b int from payload, c string from payload, e string from payload, "
        "l array<string> from payload, d double from payload, m map<string,string> from payload, "
        "plain string from payload, f string from payload, g int from payload"
    )
    absent: dict[str, Any] = {
        "a": None,
        "b": -7,
        "c": "x\ty",
        "e": "TWO",
        "l": [],
        "d": float("inf"),
        "m": [],
        "plain": None,
    }
    absent |= {"f": None, "g": None}
    form = form_of(PRESENCE)
    assert read_one(columns, form, b"") == absent
    # a number that a closed enum does not have is not a value, also in lists, maps and oneofs
    unknown = number(4, 9) + number(5, 1) + number(5, 9) + sized(5, b"\x02\x09\x01") + number(8, 9)
    unknown += sized(7, sized(1, b"k") + number(2, 1)) + sized(7, sized(1, b"z") + number(2, 9)) + number(10, 3)
    found = read_one(columns, form, unknown + number(9, 9))
    assert found == absent | {"l": ["ONE", "TWO", "ONE"], "m": [("k", "ONE")], "g": 3}
    made = read("m json from payload, l string from payload", form, [unknown])
    assert made.batch.to_pylist() == [{"m": '{"k":"ONE"}', "l": '["ONE","TWO","ONE"]'}]


def test_defaults_are_the_numbers_that_protoc_reads() -> None:
    columns = "o int from payload, h double from payload, big double from payload, n double from payload"
    form = form_of(
        """syntax = "proto2"; message P { optional int32 o = 1 [default = -010]; optional double h = 2 [default = 0x10];
        optional float big = 3 [default = -1e60]; optional double n = 4 [default = 07.5]; }"""
    )
    assert read_one(columns, form, b"") == {"o": -8, "h": 16.0, "big": float("-inf"), "n": 7.5}


def test_well_known_messages_are_what_they_are_called() -> None:
    # a file that declares one of its own with other fields: JSON text and times read the known ones
    text = """syntax = "proto3"; package google.protobuf; message P { Timestamp at = 1; Int64Value w = 2; }
    message Timestamp { int64 s = 1; } message Int64Value { Int64Value value = 1; }"""
    form = form_of(text, message="P")
    payload = sized(1, number(1, 60)) + sized(2, number(1, 5))
    found = read_one("at timestamp from payload, w bigint from payload, t json from payload.at", form, payload)
    assert found == {"at": datetime(1970, 1, 1, 0, 1, tzinfo=UTC), "w": 5, "t": '"1970-01-01T00:01:00Z"'}


MERGED = """syntax = "proto3"; message M { In one = 1; oneof o { In two = 2; int32 n = 3; } repeated In many = 4; }
message In { int32 x = 1; repeated int32 l = 2; In in = 3; string t = 4; }
"""


def test_messages_in_several_pieces_are_merged_and_those_of_a_oneof_replaced(half: str) -> None:
    columns = (
        "x int from payload.one.x, l array<int> from payload.one.l, s struct<x:int,l:array<int>> from payload.one.in, "
        "deep array<int> from payload.one.in.l, two int from payload.two.x, tl array<int> from payload.two.l, "
        "n int from payload, many array<struct<x:int,in:struct<x:int,t:string>>> from payload, j json from payload.one"
    )
    one = sized(1, number(1, 1) + number(2, 5) + sized(3, number(2, 1)))
    more = sized(1, number(2, 6) + sized(3, number(1, 4) + number(2, 2)))
    many = sized(4, sized(3, number(1, 1)) + number(1, 2) + sized(3, sized(4, b"t")))
    form = form_of(MERGED, message="M")
    two = sized(2, number(1, 1) + number(2, 1)) + number(3, 9)
    payloads = [one + many + more, one, two + sized(2, number(2, 2)), two]
    rows = read(columns, form, payloads).batch.to_pylist()
    assert rows[0] == {
        "x": 1, "l": [5, 6], "s": {"x": 4, "l": [1, 2]}, "deep": [1, 2], "two": None, "tl": None, "n": None,
        "many": [{"x": 2, "in": {"x": 1, "t": "t"}}],
        "j": '{"x":1,"l":[5,6],"in":{"x":4,"l":[1,2],"t":""},"t":""}',
    }  # fmt: skip
    assert (rows[1]["l"], rows[1]["deep"]) == ([5], [1])
    assert (rows[2]["two"], rows[2]["tl"], rows[2]["n"]) == (0, [2], None)
    assert (rows[3]["two"], rows[3]["tl"], rows[3]["n"]) == (None, None, 9)


def test_depth_is_bounded_for_messages_and_groups(half: str) -> None:
    payloads = []
    for levels in (999, 1001, 3000):
        nested = b""
        for _ in range(levels):
            nested = sized(2, nested)
        payloads += [sized(5, nested), b"\xa3\x06" * (levels + 1) + b"\xa4\x06" * (levels + 1)]
    made = read("a string from payload", form_of(SCHEMA), payloads)
    assert made.walked is not None
    found = [made.walked.describe(row).partition(" (")[0] for row in range(len(payloads))]
    deep = "has more than 1,000 objects and arrays inside one another"
    assert found == ["is good", "is good", deep, deep, deep, deep]


def test_paths_through_what_is_not_a_message_do_not_fit_the_schema(half: str) -> None:
    for path in ("a.x", "l.x", "o.t.x"):
        made = read(f"c string from payload.{path}", form_of(SCHEMA), [GOOD, None])
        assert made.walked is not None
        assert made.walked.describe(0) == f"has a schema in which payload.{path} does not lead to a value"
        assert not made.walked.malformed[1]


def test_an_id_before_the_payload_has_the_indexes_of_its_message(half: str) -> None:
    indexes = read_indexes(
        np.frombuffer(b"\x00\x02\x02\x04\x02\x80\x01\x01\x04\x02", np.uint8),
        np.array([0, 1, 3, 7, 8, 9]), np.array([10, 9, 7, 3, 2, 0]),
    )  # fmt: skip
    assert indexes.size_bytes.tolist() == [1, 2, 4, 0, 0, 0]
    assert [indexes.distinct[which] if which >= 0 else None for which in indexes.which.tolist()] == [
        (0,), (1,), (1, 64), None, None, None,
    ]  # fmt: skip
    form = form_of(SCHEMA, prefix="auto")
    made = read(
        "n int from payload", form, [GOOD, b"\x00\x00\x00\x00\x07\x00" + GOOD, b"\x00\x00\x00\x00\x07\x02\x00" + GOOD]
    )
    assert made.batch.column("n").to_pylist() == [7, 7, 7]


class TwoSchemas:
    """A source of schemas by their ids."""

    def __init__(self, *texts: str) -> None:
        self.texts = texts

    def find_by_id(self, schema_id: int) -> ParsedSchema | None:
        return parse_protobuf(self.texts[schema_id]) if schema_id < len(self.texts) else None

    def find_by_guid(self, guid: str) -> ParsedSchema | None:
        return None

    def identify(self, name: int | str) -> SchemaIdentity | None:
        return None


def frame(schema_id: int, payload: bytes, indexes: bytes = b"\x00") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + indexes + payload


def test_each_payload_is_read_by_the_message_that_its_id_and_indexes_name(half: str) -> None:
    first = 'syntax = "proto3"; message A { int32 id = 1; bytes t = 2; } message B { message C { string t = 5; } }'
    second = 'syntax = "proto3"; message A { int64 id = 1; string t = 2; bool more = 3; }'
    form = PayloadForm("protobuf", None, TwoSchemas(first, second))
    payloads = [
        frame(0, number(1, 1) + sized(2, b"a")), frame(1, number(1, 1 << 40) + sized(2, b"b") + number(3, 1)),
        frame(0, sized(5, b"c"), b"\x04\x02\x00"), frame(0, b"", b"\x02\x08"), frame(7, b""), frame(1, b"\x08"), None,
    ]  # fmt: skip
    made = read("i bigint from payload.id, t string from payload, more boolean from payload", form, payloads)
    assert made.batch.to_pylist()[:3] == [
        {"i": 1, "t": "a", "more": None}, {"i": 1 << 40, "t": "b", "more": True}, {"i": None, "t": "c", "more": None},
    ]  # fmt: skip
    assert made.walked is not None
    assert [made.walked.describe(row) for row in range(3, 6)] == [
        "has a schema, id 0, that does not have the message [4]",
        "has a schema, id 7, that does not exist in the registry", "ends too early (byte 7)",
    ]  # fmt: skip
    assert not made.walked.malformed[6]
    # a reader's file finds fields by their numbers, whatever they were called, and gives its defaults
    reader = 'syntax = "proto3"; message A { int64 number = 1; string text = 2; int32 later = 9; }'
    form = PayloadForm("protobuf", form_of(reader).schema, TwoSchemas(first, second))
    made = read("number bigint from payload, text string from payload, later int from payload", form, payloads)
    assert made.batch.to_pylist()[:3] == [
        {"number": 1, "text": "a", "later": 0}, {"number": 1 << 40, "text": "b", "later": 0},
        {"number": None, "text": None, "later": None},
    ]  # fmt: skip
    assert made.walked is not None
    assert made.walked.describe(2) == ("has a schema, id 0, that is of the message B.C, and payloads are declared as A")


def test_files_are_read_with_those_that_they_import(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "order.proto").write_text(
        'syntax = "proto3"; package shop; import "shop/city.proto"; import "google/protobuf/timestamp.proto";\n'
        "message Order { City city = 1; google.protobuf.Timestamp at = 2; }"
    )
    (tmp_path / "shop" / "city.proto").write_text('syntax = "proto3"; package shop; message City { string name = 1; }')
    settings = {"format": "protobuf", "schema": str(tmp_path / "shop" / "order.proto"), "prefix": "none"}
    form = parse_payload_form(settings)
    assert read_one("c string from payload.city.name", form, sized(1, sized(1, b"Rome"))) == {"c": "Rome"}
    (tmp_path / "shop" / "city.proto").unlink()
    with pytest.raises(SettingError, match=r"order.proto: imports shop/city.proto, which is not beside it; put"):
        parse_payload_form(settings)


def test_the_ending_of_a_schemas_file_says_the_format(tmp_path: Path) -> None:
    order = 'syntax = "proto3"; package shop; import "shop/city.proto"; message Order { City city = 1; }'
    city = 'syntax = "proto3"; package shop; message City { string name = 1; } message Land { int32 n = 1; }'
    files = {"shop/city.proto": city, "shop/order.proto": order}
    references = [ResolvedReference("shop/city.proto", city)]
    # a FileDescriptorSet has its files as field 1, each with its name as field 1 (descriptor.proto)
    compiled = [
        write_descriptor(schema.file, schema.types, name)
        for name, text in files.items()
        for schema in [parse_protobuf(text, references)]
    ]
    for ending in ("desc", "binpb"):
        file = tmp_path / f"orders.{ending}"
        file.write_bytes(b"".join(sized(1, one) for one in compiled))
        form = parse_payload_form({"schema": str(file)})
        assert form.format == "protobuf"
        assert read_one("c string from payload.city.name", form, sized(1, sized(1, b"Rome"))) == {"c": "Rome"}
        for name in ("Land", "shop.Land"):
            form = parse_payload_form({"schema": str(file), "message": name})
            assert read_one("n int from payload", form, number(1, 5)) == {"n": 5}
    (tmp_path / "x.avsc").write_text('{"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}')
    (tmp_path / "x.json").write_text('{"type": "object"}')
    (tmp_path / "x.schema").write_text('{"type": "object"}')
    assert parse_payload_form({"schema": str(tmp_path / "x.avsc")}).format == "avro"
    assert parse_payload_form({"schema": str(tmp_path / "x.json")}).format == "json"
    with pytest.raises(SettingError, match=r"payload.schema 'x.schema': its ending does not say the format"):
        parse_payload_form({"schema": str(tmp_path / "x.schema")})
    with pytest.raises(SettingError, match=r"payload.schema: its text does not say the format of payloads; add format"):
        parse_payload_form({"schema": '{"type": "object"}'})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"payload.format 'protobuf': payloads do not say their fields; add schema, .* or registry"),
        ({"schema": GUIDE}, r"payload.schema: the file has 2 messages; add message, the name of one: Test1, Inner"),
        ({"schema": GUIDE, "message": "Tset"}, r"payload.message 'Tset': the schema has no such message; it has Test1"),
        ({"schema": "message {"}, r"payload.schema: not a schema of PROTOBUF: Syntax error in :1: expected a name"),
        ({"message": "x", "registry": "http://h:1"}, r"payload.message 'x': only a file of Protobuf has messages"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        parse_payload_form({"format": "protobuf", **settings})


def test_groups_and_delimited_messages_are_read(half: str) -> None:
    group = """syntax = "proto2"; message M { optional group Part = 1 { optional int32 x = 1; optional group In = 3 {
      optional string t = 1; } } repeated group Item = 2 { optional int32 n = 1; } optional int32 after = 30; }"""
    edition = """edition = "2023"; option features.message_encoding = DELIMITED;
      message M { Part part = 1; repeated Item item = 2; int32 after = 30; }
      message Part { int32 x = 1; In in = 3; message In { string t = 1; } } message Item { int32 n = 1; }"""
    # a group is its fields between a tag of type 3 and one of type 4 (protobuf.dev, encoding)
    part = b"\x0b" + number(1, 7) + b"\x1b" + sized(1, b"deep") + b"\x1c\x0c"
    items = b"\x13" + number(1, 5) + b"\x14" + number(30, 9) + b"\x13\x14"
    columns = "x int from payload.part.x, t string from payload.part.in.t, item array<struct<n:int>> from payload, "
    columns += "p json from payload.part, s struct<in:struct<t:string>> from payload.part, after int from payload"
    for schema in (group, edition):
        form = form_of(schema, message="M")
        for payload in (part + items, items[:4] + part + items[4:]):
            found = read_one(columns, form, payload)
            assert found == {
                "x": 7, "t": "deep", "item": [{"n": 5}, {"n": None}], "p": '{"x":7,"in":{"t":"deep"}}',
                "s": {"in": {"t": "deep"}}, "after": 9,
            }  # fmt: skip
        # pieces of one group are merged, one that has a length is another field
        found = read_one(columns, form, b"\x0b\x1b\x1c\x0c" + sized(1, b"\xff") + part)
        assert (found["x"], found["t"]) == (7, "deep")
        payloads = [part[:-1], part[:-2], b"\x0b" + b"\x14", b"\x0c", b"\x0b\x1b\x0a\x01\xff\x1c\x0c", part]
        made = read("t string from payload.part.in.t", form, payloads)
        assert made.walked is not None
        assert [made.walked.describe(row) for row in range(6)] == [
            "ends too early (byte 11)", "ends too early (byte 10)",
            "has an invalid field number or wire type (byte 1)", "has an invalid field number or wire type (byte 0)",
            "is not UTF-8 (byte 4)", "is good (byte 0)",
        ]  # fmt: skip
        schema_ = find_message(form.schema.parse() if form.schema else parse_protobuf(schema), "M")
        assert schema_ is not None
        text = b'{"part": {"x": 7, "in": {"t": "deep"}}, "item": [{"n": 5}], "after": 9}'
        assert encode_json(schema_, text) == part + items[:4] + number(30, 9)


GROUPED = """syntax = "proto2"; message G { optional int32 a = 1; optional group N = 2 { optional int32 x = 1;
  repeated sint64 w = 2; optional group D = 3 { optional bytes y = 1; } } repeated group L = 4 { optional int32 x = 1; }
  oneof o { int32 oi = 5; group On = 6 { optional int32 x = 1; } } optional int32 z = 40 [default = 3]; }
"""
GROUP_COLUMNS = (
    "a int from payload, n struct<x:int,w:array<bigint>,d:struct<y:binary>> from payload, "
    "l array<struct<x:int>> from payload, oi int from payload, on struct<x:int> from payload, z int from payload"
)
GROUP_SEEDS = [
    number(1, 3)
    + b"\x13"
    + number(1, 7)
    + sized(2, b"\x02\x04")
    + b"\x1b"
    + sized(1, b"y")
    + b"\x1c\x14"
    + number(40, 1),
    b"\x23" + number(1, 1) + b"\x24\x23\x24" + number(5, 8) + b"\x33" + number(1, 2) + b"\x34",
    b"\x13\x1b\x1c" + number(2, 5) + b"\x14" + b"\x3b\x08\x01\x3c",
]


def test_any_bytes_with_groups_are_read_as_googles_library_reads_them(full: bool) -> None:
    rng, count = random.Random(43), 200_000 if full else 3_000
    kernels = engine.load(protobuf_values.KERNEL_MODULE)
    form = form_of(GROUPED, message="G")
    try:
        python = wheels.install("confluent-kafka", "2.16.1", "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable:
        python = None
    compared = 0
    for first in range(0, count, 10_000):
        payloads = [damage(rng, GROUP_SEEDS) for _ in range(min(10_000, count - first))]
        made, plain = (_read_with(half, form, payloads, GROUP_COLUMNS) for half in (kernels, protobuf_fallback))
        assert made.walked is not None and plain.walked is not None
        assert np.array_equal(made.walked.verdict, plain.walked.verdict)
        assert np.array_equal(made.walked.position, plain.walked.position)
        assert made.batch.equals(plain.batch)
        if python is None:
            continue
        theirs = _read_with_google(python, payloads, GROUPED, "G")
        for row, (found, mine) in enumerate(zip(theirs, made.batch.to_pylist(), strict=True)):
            is_good = bool(made.walked.good[row])
            # upb skips fields of number 0 inside of groups that it does not know, and has 100 levels
            is_other = made.walked.verdict[row] == VERDICT_TAG
            assert is_good == (found is not None) or is_other, (payloads[row], made.walked.describe(row))
            if found is not None and is_good:
                assert repr(dict(sorted(mine.items()))) == found[0], payloads[row]
                compared += 1
    assert python is None or compared > count // 4


FUZZED = """syntax = "proto3";
message F { int64 a = 1; string t = 2; sint32 z = 3; uint32 u = 4; fixed64 x = 5; sfixed32 y = 6; double d = 7;
  float f = 8; bool b = 9; bytes r = 10; E e = 11; N m = 12; repeated int32 p = 13; repeated string s = 14;
  map<string, int64> map = 15; oneof o { string os = 16; N on = 17; int32 oi = 18; } optional int32 q = 19;
  repeated N l = 20; repeated E k = 21; uint64 v = 40; map<int32, N> nm = 41; repeated fixed32 h = 42; }
message N { int32 x = 1; string y = 2; N n = 3; repeated sint64 w = 4; }
enum E { E0 = 0; E1 = 1; E2 = -2; }
"""
INNER = "struct<x:int,y:string,w:array<bigint>>"
COLUMNS = (
    "a bigint from payload, t string from payload, z int from payload, u bigint from payload, "
    "x decimal(38,0) from payload, y int from payload, d double from payload, f float from payload, "
    "b boolean from payload, r binary from payload, e string from payload, "
    f"m {INNER} from payload, p array<int> from payload, s array<string> from payload, "
    f"map map<string,bigint> from payload, os string from payload, on {INNER} from payload, oi int from payload, "
    f"q int from payload, l array<{INNER}> from payload, k array<string> from payload, v decimal(38,0) from payload, "
    f"nm map<string,{INNER}> from payload, h array<bigint> from payload, mx int from payload.m.x, "
    "mw array<bigint> from payload.m.w, onx int from payload.on.x, mj json from payload.m"
)
NESTED = number(1, 3) + sized(2, b"yy") + sized(4, b"\x02\x03") + sized(3, number(1, 5))
SEEDS = [
    number(1, -3) + sized(2, b"abc") + number(3, 5) + number(4, 7) + b"\x29" + b"\x01" * 8 + b"\x35\xff\xff\xff\xff",
    b"\x39" + struct.pack("<d", 1.5) + b"\x45" + struct.pack("<f", 0.5) + number(9, 1) + sized(10, b"\xff"),
    number(11, 1) + sized(12, NESTED) + sized(13, b"\x01\x02") + number(13, 3) + sized(14, b"s") + sized(14, b""),
    sized(15, sized(1, b"k") + number(2, 4)) + sized(16, b"os") + sized(17, NESTED) + number(18, 9) + number(19, 0),
    sized(20, NESTED) + sized(20, b"") + sized(21, b"\x01\x07") + number(40, -1) + sized(41, number(1, 1)),
    sized(42, bytes(8)) + sized(12, number(4, 1)) + b"\xeb\x06\x08\x01\xec\x06" + sized(41, sized(2, NESTED)),
]  # fmt: skip


def damage(rng: random.Random, seeds: Sequence[bytes]) -> bytes:
    text = bytearray(b"".join(rng.choices(seeds, k=rng.randrange(1, 4))))
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text[at : at + 1] = bytes([rng.choice((0, 1, 2, 3, 4, 8, 10, 127, 128, 195, 255, rng.randrange(256)))])
            case 1:
                text.insert(at, rng.randrange(256))
            case 2:
                del text[at : at + rng.randrange(1, 5)]
            case 3:
                text[at:at] = b"\x80" * rng.randrange(11)
            case _:
                other = rng.choice(seeds)
                text[at:at] = other[rng.randrange(len(other)) :][: rng.randrange(12)]
    return bytes(text)


def test_any_bytes_give_values_or_a_verdict_as_googles_library_reads_them(full: bool) -> None:
    """Two differences: inside of groups that it does not know upb skips fields of number 0, which no writer makes; and
    it leaves members of maps out that have fields it does not know, which other libraries do not."""
    rng, count = random.Random(42), 1_000_000 if full else 6_000
    kernels = engine.load(protobuf_values.KERNEL_MODULE)
    form = form_of(FUZZED, message="F")
    try:
        python = wheels.install("confluent-kafka", "2.16.1", "3.11", extras="avro,json,protobuf,schemaregistry")
    except wheels.Unavailable:
        python = None
    compared = 0
    for first in range(0, count, 10_000):
        payloads = [damage(rng, SEEDS) for _ in range(min(10_000, count - first))]
        made, plain = (_read_with(half, form, payloads, COLUMNS) for half in (kernels, protobuf_fallback))
        assert made.walked is not None and plain.walked is not None
        assert np.array_equal(made.walked.verdict, plain.walked.verdict)
        assert np.array_equal(made.walked.position, plain.walked.position)
        assert made.batch.equals(plain.batch) or str(made.batch.to_pylist()) == str(plain.batch.to_pylist())
        assert {name: flags.to_pylist() for name, flags in made.bad.items()} == {
            name: flags.to_pylist() for name, flags in plain.bad.items()
        }
        if python is None:
            continue
        for row, (found, mine) in enumerate(
            zip(_read_with_google(python, payloads, FUZZED, "F"), made.batch.to_pylist(), strict=True)
        ):
            is_zero = made.walked.verdict[row] == VERDICT_TAG and b"\xeb\x06" in payloads[row]
            is_good = bool(made.walked.good[row])
            assert is_good == (found is not None) or is_zero, (payloads[row], made.walked.describe(row))
            if found is not None and is_good:
                text = mine.pop("mj")
                inner = {name: mine.pop(name) for name in ("mx", "mw", "onx")}
                normal = _normalize(mine)
                if (theirs := eval(found[0], {"nan": float("nan"), "inf": float("inf")})) != normal:
                    for name in ("map", "nm"):
                        normal[name] = {key: one for key, one in normal[name].items() if key in theirs[name]}
                assert repr(normal) == found[0], payloads[row]
                assert inner["mx"] == (mine["m"] or {}).get("x") and inner["mw"] == (mine["m"] or {}).get("w")
                assert inner["onx"] == (mine["on"] or {}).get("x")
                document = (json.loads(found[1]) or {}).get("m")
                assert (None if text is None else _write_whole(json.loads(text))) == document, payloads[row]
                compared += 1
    assert python is None or compared > count // 4


def _write_whole(value: Any) -> Any:
    """Return a text as Google's library has it, whose numbers of 64 bits are strings."""
    if isinstance(value, dict):
        return {name: [str(one) for one in item] if name == "w" else _write_whole(item) for name, item in value.items()}
    return value


def _normalize(row: dict[str, Any]) -> dict[str, Any]:
    found = dict(row)
    found["map"] = dict(sorted(dict(row["map"]).items()))
    found["nm"] = dict(sorted((int(name), value) for name, value in dict(row["nm"]).items()))
    return {name: int(value) if isinstance(value, Decimal) else value for name, value in sorted(found.items())}


def _read_with(half: Any, form: PayloadForm, payloads: list[bytes], columns: str) -> Assembled:
    with pytest.MonkeyPatch.context() as patch:
        select = engine.select
        patch.setattr(
            engine,
            "select",
            lambda home, twin, size: half if home == protobuf_values.KERNEL_MODULE else select(home, twin, size),
        )
        return read(columns, form, list(payloads))


def _read_with_google(python: Path, payloads: list[bytes], schema: str, message: str) -> list[list[str] | None]:
    script = Path(__file__).with_name("read_with_protobuf.py")
    descriptor = parse_protobuf(schema).format_text("serialized")
    done = subprocess.run(
        [str(python), str(script), descriptor, message], input="\n".join(payload.hex() for payload in payloads) + "\n",
        capture_output=True, text=True, timeout=240, check=True,
    )  # fmt: skip
    found: list[list[str] | None] = json.loads(done.stdout)
    return found
