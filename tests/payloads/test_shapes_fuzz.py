"""Damaged payloads of generated schemas, columns and documents, against two other libraries for each format.

Whatever the bytes: a row has the values that both libraries read, or a verdict with its byte, and its neighbours are as
if it were not there. ``make test-full`` reads 10^6 payloads of each format and prints what was found.
"""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pydantic_core import from_json

from lading.columns.assemble import Assembled, assemble
from lading.columns.contract import parse_columns
from lading.kernels import engine
from lading.model.run import Decoded
from lading.payloads import avro_values, protobuf_values, walk
from lading.payloads.form import JSON_FORM, PayloadForm
from lading.payloads.found import VERDICTS, WalkedPayloads
from lading.payloads.layout import (
    MALFORMED_FIRST,
    VERDICT_BOOLEAN,
    VERDICT_CHOICE,
    VERDICT_CUT,
    VERDICT_DEPTH,
    VERDICT_LENGTH,
    VERDICT_NUMBER,
    VERDICT_TAG,
    VERDICT_UTF8,
    VERDICT_VARINT,
)
from lading.registry.payload_form import parse_payload_form
from lading.schemas.protobuf import parse_protobuf
from tests.interop import wheels

CONFLUENT = ("confluent-kafka", "2.16.1", "3.11", "avro,json,protobuf,schemaregistry")
AVRO = ("avro", "1.12.1", "3.11")
PER_SHAPE = 200
"""Payloads of one schema."""


def count_inputs(full: bool) -> int:
    return int(os.environ.get("LADING_TEST_FUZZ") or (1_000_000 if full else 10 * PER_SHAPE))


def read(form: PayloadForm, columns: str, payloads: list[bytes | None]) -> tuple[list[dict[str, Any]], WalkedPayloads]:
    made: Assembled = assemble(
        Decoded(len(payloads), {"payload": pa.array(payloads, pa.binary())}, {}), parse_columns(columns, form)
    )
    made.batch.validate(full=True)
    assert made.walked is not None
    names = made.batch.schema.names
    arrays = [[to_plain(value, column.type) for value in column.to_pylist()] for column in made.batch.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*arrays, strict=True)], made.walked


def to_plain(value: Any, type_: pa.DataType) -> Any:
    """Return a value of Arrow as the oracles write it."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return dict(sorted((name, to_plain(one, type_.item_type)) for name, one in dict(value).items()))
    if pa.types.is_list(type_):
        return [to_plain(one, type_.value_type) for one in value]
    if pa.types.is_struct(type_):
        return {field.name: to_plain(value[field.name], field.type) for field in type_}
    return int(value.scaleb(type_.scale)) if isinstance(type_, pa.Decimal128Type) else value


@dataclass
class Oracle:
    """A library in a process of its own."""

    process: subprocess.Popen[str]

    def read(self, schema: Any, payloads: list[bytes]) -> list[str | None]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps({"schema": schema, "payloads": [one.hex() for one in payloads]}) + "\n")
        self.process.stdin.flush()
        found: list[str | None] = json.loads(self.process.stdout.readline())
        return found


@contextmanager
def run_oracle(package: tuple[str, ...], library: str, **variables: str) -> Iterator[Oracle]:
    try:
        python = wheels.install(*package)
    except wheels.Unavailable as problem:
        pytest.skip(str(problem))
    script = Path(__file__).with_name("read_shapes.py")
    with subprocess.Popen(
        [str(python), str(script), library], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | variables,
    ) as process:  # fmt: skip
        try:
            yield Oracle(process)
        finally:
            process.kill()


def damage(rng: random.Random, payload: bytes, others: list[bytes], letters: bytes = bytes(range(256))) -> bytes:
    text = bytearray(payload)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(5):
            case 0:
                text[at : at + 1] = bytes([rng.choice(letters)])
            case 1:
                text.insert(at, rng.choice(letters))
            case 2:
                del text[at : at + rng.randrange(1, 6)]
            case 3 if at < len(text):
                text[at] ^= 1 << rng.randrange(8)
            case _:
                other = rng.choice(others)
                text[at:at] = other[rng.randrange(len(other) + 1) :][: rng.randrange(12)]
    return bytes(text)


def assert_positions(walked: WalkedPayloads, payloads: list[bytes]) -> None:
    """A malformed payload has a position in it, or at its end."""
    for row, payload in enumerate(payloads):
        if walked.verdict[row] >= MALFORMED_FIRST:
            assert 0 <= walked.position[row] <= len(payload), payload


def show(format_: str, seen: Counter[str], shapes: int) -> None:
    total, good = seen.total(), seen[VERDICTS[0]]
    others = ", ".join(f"{words} {count:,}" for words, count in seen.most_common() if words != VERDICTS[0])
    print(f"{format_}: {total:,} payloads of {shapes:,} schemas, {good:,} equal in both libraries; verdicts: {others}")


# -- Avro


SCALARS = {
    "int": "int", "long": "bigint", "float": "float", "double": "double", "boolean": "boolean", "string": "string",
    "bytes": "binary",
}  # fmt: skip


class AvroShape:
    """A schema of Avro, columns for its fields, and the bytes of values of it."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.names = rng, 0
        fields = [{"name": f"f{at}", "type": self._make(0)} for at in range(rng.randrange(1, 9))]
        if rng.random() < 0.3:
            fields.insert(rng.randrange(len(fields) + 1), {"name": "next", "type": ["null", "Root"]})
        self.schema: Any = {"type": "record", "name": "Root", "fields": fields}
        kept = [one for one in fields if one["name"] != "next"]
        self.columns = ", ".join(f"{one['name']} {self._column(one['type'])} from payload" for one in kept)

    def _name(self) -> str:
        self.names += 1
        return f"N{self.names}"

    def _make(self, depth: int, in_map: bool = False) -> Any:
        """Return a type. Maps have no decimals: one with an unreadable value under a name that comes again is
        unreadable, and the libraries do not have it any more."""
        choice = self.rng.choice((*SCALARS, "enum", "fixed", "decimal", "time", "null?", "union"))
        if depth < 3 and self.rng.random() < 0.4:
            choice = self.rng.choice(("array", "map", "record"))
        match choice:
            case "enum":
                symbols = [f"s{at}" for at in range(self.rng.randrange(1, 5))]
                return {"type": "enum", "name": self._name(), "symbols": symbols}
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": self.rng.randrange(1, 9)}
            case "decimal" if in_map:
                return "bytes"
            case "decimal":
                return {"type": "bytes", "logicalType": "decimal", "precision": self.rng.randrange(4, 30), "scale": 2}
            case "time":
                return {"type": "long", "logicalType": self.rng.choice(("timestamp-millis", "timestamp-micros"))}
            case "null?":
                branches = ["null", self._make(depth + 1, in_map)]
                if isinstance(branches[1], list):
                    return branches[1]
                self.rng.shuffle(branches)
                return branches
            case "union":
                return self.rng.sample(["null", "string", "long", "boolean"], 3)
            case "array":
                return {"type": "array", "items": self._make(depth + 1, in_map)}
            case "map":
                return {"type": "map", "values": self._make(depth + 1, in_map=True)}
            case "record":
                fields = [
                    {"name": f"m{at}", "type": self._make(depth + 1, in_map)} for at in range(self.rng.randrange(4))
                ]
                fields.append({"name": "last", "type": self.rng.choice(("null", "int"))})
                return {"type": "record", "name": self._name(), "fields": fields}
        return choice

    def _column(self, schema: Any) -> str:
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            return self._column(others[0]) if len(others) == 1 else "string"
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind == "array":
            return f"array<{self._column(schema['items'])}>"
        if kind == "map":
            return f"map<string,{self._column(schema['values'])}>"
        if kind == "record":
            return f"struct<{','.join(one['name'] + ':' + self._column(one['type']) for one in schema['fields'])}>"
        if isinstance(schema, dict) and schema.get("logicalType") == "decimal":
            return "decimal(38,2)"
        return {**SCALARS, "enum": "string", "fixed": "binary", "null": "string"}[kind]

    def write(self, schema: Any, depth: int = 0) -> bytes:
        rng = self.rng
        if isinstance(schema, list):
            at = rng.randrange(len(schema))
            if schema[at] == "Root" and depth > 3:
                at = schema.index("null")
            return zigzag(at) + self.write(schema[at], depth + 1)
        if schema == "Root":
            schema = self.schema
        kind = schema["type"] if isinstance(schema, dict) else schema
        match kind:
            case "null":
                return b""
            case "boolean":
                return bytes([rng.randrange(2)])
            case "int" | "long":
                return zigzag(rng.choice((0, 1, -1, rng.getrandbits(31), -(1 << (31 if kind == "int" else 63)))))
            case "float":
                return struct.pack("<f", rng.choice((0.0, -1.5, 1e30, math.inf, rng.random())))
            case "double":
                return struct.pack("<d", rng.choice((0.0, -1.5, 1e300, math.inf, rng.random())))
            case "string":
                text = rng.choice(("", "a", "é😀", "x" * 70, "\0")).encode()
                return zigzag(len(text)) + text
            case "bytes":
                data = rng.randbytes(rng.randrange(14))
                return zigzag(len(data)) + data
            case "fixed":
                return rng.randbytes(schema["size"])
            case "enum":
                return zigzag(rng.randrange(len(schema["symbols"])))
            case "record":
                return b"".join(self.write(one["type"], depth + 1) for one in schema["fields"])
        blocks = b""
        for _ in range(rng.randrange(3)):
            count = rng.randrange(1, 4)
            names = kind == "map"
            items = b"".join(
                (self.write("string") if names else b"") + self.write(schema["values" if names else "items"], depth + 1)
                for _ in range(count)
            )
            blocks += zigzag(-count) + zigzag(len(items)) + items if rng.random() < 0.3 else zigzag(count) + items
        return blocks + b"\0"


def zigzag(number: int) -> bytes:
    return varint(number << 1 ^ number >> 63)


def varint(number: int) -> bytes:
    rest, out = number & (1 << 64) - 1, b""
    while rest > 127:
        out, rest = out + bytes([rest & 127 | 128]), rest >> 7
    return out + bytes([rest])


LENIENT_AVRO = {VERDICT_CHOICE, VERDICT_LENGTH, VERDICT_NUMBER, VERDICT_VARINT, VERDICT_BOOLEAN, VERDICT_DEPTH}
"""Verdicts on payloads that one of the libraries reads: negative numbers of branches and symbols, sizes of blocks that
are not theirs, numbers of more bits than the type has, booleans of other bytes."""


def test_avro_of_any_schema_is_read_as_two_libraries_read_it(full: bool) -> None:
    engine.load(avro_values.KERNEL_MODULE)
    rng, seen, shapes = random.Random(410), Counter[str](), 0
    with run_oracle(CONFLUENT, "fastavro") as first, run_oracle(AVRO, "avro") as second:
        while seen.total() < count_inputs(full):
            shape, shapes = AvroShape(rng), shapes + 1
            if not shape.columns:
                continue
            form = parse_payload_form({"format": "avro", "schema": json.dumps(shape.schema), "prefix": "none"})
            seeds = [shape.write(shape.schema) for _ in range(20)]
            payloads = [damage(rng, rng.choice(seeds), seeds) for _ in range(PER_SHAPE)]
            rows, walked = read(form, shape.columns, [*payloads])
            assert_positions(walked, payloads)
            theirs = (oracle.read(shape.schema, payloads) for oracle in (first, second))
            for row, (one, other) in enumerate(zip(*theirs, strict=True)):
                where = json.dumps(shape.schema), payloads[row].hex(), walked.describe(row)
                if walked.good[row]:
                    mine = repr(rows[row])
                    assert mine == one, (*where, one)
                    assert mine == other, (*where, other)
                elif payloads[row] == b"":
                    # a record without bytes is read by others
                    assert walked.describe(row) == "is empty (byte 0)"
                elif walked.verdict[row] == VERDICT_CUT and (one or other):
                    # a block is said to have more bytes than are left, which both skip over
                    assert '"array"' in where[0] or '"map"' in where[0], (*where, one, other)
                elif walked.verdict[row] not in LENIENT_AVRO:
                    assert one is None and other is None, (*where, one, other)
                seen[VERDICTS[walked.verdict[row]]] += 1
    show("Avro", seen, shapes)
    assert seen[VERDICTS[0]] > seen.total() // 5


# -- Protobuf


class ProtobufShape:
    """A message of Protobuf, columns for its fields, and the bytes of values of it."""

    KINDS: Final = {
        "int32": "int", "sint32": "int", "uint32": "bigint", "int64": "bigint", "sint64": "bigint",
        "uint64": "decimal(38,0)", "fixed32": "bigint", "fixed64": "decimal(38,0)", "sfixed32": "int",
        "sfixed64": "bigint", "float": "float", "double": "double", "bool": "boolean", "string": "string",
        "bytes": "binary", "E": "string",
    }  # fmt: skip

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.is_proto3 = rng.random() < 0.7
        self.messages: dict[str, list[tuple[str, int, str, str]]] = {}
        """Fields of messages: name, number, label, kind."""
        for name in ("C", "B", "A"):
            self.messages[name] = self._make_fields(name)
        first = "E0 = 0; " if self.is_proto3 else ""
        texts = [f"enum E {{ {first}E1 = 1; E2 = -2; E3 = 70000; }}"]
        texts += [self._write_message(name) for name in self.messages]
        self.text = f'syntax = "{"proto3" if self.is_proto3 else "proto2"}";\n' + "\n".join(texts)
        self.columns = ", ".join(
            f"{name} {self._column(label, kind)} from payload" for name, _, label, kind in self.top
        )

    @property
    def top(self) -> list[tuple[str, int, str, str]]:
        return self.messages["A"]

    def _make_fields(self, message: str) -> list[tuple[str, int, str, str]]:
        rng = self.rng
        others = [one for one in self.messages if one != message]
        numbers = sorted(rng.sample([*range(1, 40), 200, 3000, 536_870_911], rng.randrange(1, 9)))
        fields = []
        for at, number in enumerate(numbers):
            kind = rng.choice(others) if others and rng.random() < 0.3 else rng.choice(tuple(self.KINDS))
            labels = ["", "optional", "repeated", "oneof"] if self.is_proto3 else ["optional", "repeated", "oneof"]
            label = rng.choice(labels)
            if rng.random() < 0.15:
                label, kind = "map", rng.choice(("int32", "string", "int64", *others))
            fields.append((f"f{at}", number, label, kind))
        # in the order in which they are declared, which is that of the libraries
        return sorted(fields, key=lambda one: one[2] == "oneof")

    def _write_message(self, name: str) -> str:
        plain, inside = [], []
        for field, number, label, kind in self.messages[name]:
            if label == "oneof":
                inside.append(f"{kind} {field} = {number};")
            else:
                of = f"map<string, {kind}>" if label == "map" else f"{label} {kind}".strip()
                plain.append(f"{of} {field} = {number};")
        choice = f"oneof o {{ {' '.join(inside)} }}" if inside else ""
        return f"message {name} {{ {' '.join(plain)} {choice} }}"

    def _column(self, label: str, kind: str) -> str:
        inner = self.KINDS.get(kind) or (
            "struct<" + ",".join(f"{name}:{self._column(of, a)}" for name, _, of, a in self.messages[kind]) + ">"
        )
        return f"array<{inner}>" if label == "repeated" else f"map<string,{inner}>" if label == "map" else inner

    def write(self, message: str = "A", depth: int = 0) -> bytes:
        rng, out = self.rng, b""
        for _, number, label, kind in self.messages[message]:
            for _ in range(rng.choice((0, 1, 1, 2))):
                if label == "map":
                    one = sized(1, rng.choice((b"k", b"", "é".encode()))) + self._field(2, kind, depth)
                    out += sized(number, one)
                elif label == "repeated" and kind not in ("string", "bytes", *self.messages) and rng.random() < 0.5:
                    out += sized(number, b"".join(self._value(kind) for _ in range(rng.randrange(4))))
                else:
                    out += self._field(number, kind, depth)
        if rng.random() < 0.2:
            out += varint(50 << 3) + varint(rng.getrandbits(20)) + sized(51, b"not known")
        return out

    def _field(self, number: int, kind: str, depth: int) -> bytes:
        if kind in self.messages:
            return sized(number, self.write(kind, depth + 1))
        if kind in ("string", "bytes"):
            return sized(number, self.rng.choice((b"", b"abc", "é😀".encode(), b"x" * 130)))
        wire = 5 if kind in ("fixed32", "sfixed32", "float") else 1 if kind in ("fixed64", "sfixed64", "double") else 0
        return varint(number << 3 | wire) + self._value(kind)

    def _value(self, kind: str) -> bytes:
        rng = self.rng
        match kind:
            case "fixed32" | "sfixed32":
                return rng.randbytes(4)
            case "fixed64" | "sfixed64":
                return rng.randbytes(8)
            case "float":
                return struct.pack("<f", rng.choice((0.0, 1.5, math.inf, -2e10)))
            case "double":
                return struct.pack("<d", rng.choice((0.0, 1.5, math.inf, -2e100)))
            case "bool":
                return bytes([rng.randrange(2)])
            case "E":
                return varint(rng.choice((0, 1, -2, 70000, 9)))
        return varint(rng.choice((0, 1, rng.getrandbits(31), -1, 1 << 63, rng.getrandbits(64))))


def sized(field: int, value: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(value)) + value


def test_protobuf_of_any_schema_is_read_as_two_libraries_read_it(full: bool) -> None:
    """Google's library in C and the one that it has in Python alone, which are written apart.

    Each accepts a field of number 0 inside of groups that it does not know, which no writer makes, or fewer levels.
    """
    engine.load(protobuf_values.KERNEL_MODULE)
    rng, seen, shapes, differing, unchecked = random.Random(411), Counter[str](), 0, 0, 0
    pure = run_oracle(CONFLUENT, "protobuf", PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")
    with run_oracle(CONFLUENT, "protobuf") as first, pure as second:
        while seen.total() < count_inputs(full):
            shape, shapes = ProtobufShape(rng), shapes + 1
            form = parse_payload_form({"format": "protobuf", "schema": shape.text, "message": "A", "prefix": "none"})
            schema = {"descriptor": parse_protobuf(shape.text).format_text("serialized"), "message": "A"}
            seeds = [shape.write() for _ in range(20)]
            payloads = [damage(rng, rng.choice(seeds), seeds) for _ in range(PER_SHAPE)]
            rows, walked = read(form, shape.columns, [*payloads])
            assert_positions(walked, payloads)
            theirs = (oracle.read(schema, payloads) for oracle in (first, second))
            for row, (one, other) in enumerate(zip(*theirs, strict=True)):
                where = shape.text, payloads[row].hex(), walked.describe(row), one, other
                if walked.good[row]:
                    mine = repr(dict(sorted(rows[row].items())))
                    if mine not in (one, other):
                        raise AssertionError((*where, mine))
                    differing += mine != one or mine != other
                elif walked.verdict[row] == VERDICT_UTF8 and not shape.is_proto3:
                    # the libraries look at a text of proto2 only when it is read, and at one that was replaced never
                    unchecked += one is not None or other is not None
                elif walked.verdict[row] not in (VERDICT_TAG, VERDICT_DEPTH):
                    assert one is None and other is None, where
                seen[VERDICTS[walked.verdict[row]]] += 1
    show("Protobuf", seen, shapes)
    print(f"Protobuf: the two libraries differ in {differing:,}, texts of proto2 that they do not check: {unchecked:,}")
    assert seen[VERDICTS[0]] > seen.total() // 5


# -- JSON


class Literal(str):
    """A number as it is written."""


class JsonShape:
    """Documents with the same members, of which some have other types, and columns for them."""

    NAMES = ("a", "b", "id", "name", "é", "a b", "long name of a member", "x\\y", 'q"', "")

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.tree = self._make_object(0)
        self.paths: dict[str, tuple[tuple[str, ...], str]] = {}
        """Columns: path and type."""
        self._add_paths((), self.tree)
        parts = []
        for column, (path, type_) in self.paths.items():
            names = ".".join('"' + name.replace('"', '""') + '"' for name in path)
            parts.append(f"{column} {type_} from payload.{names}")
        self.columns = ", ".join(parts)

    def _make_object(self, depth: int) -> dict[str, Any]:
        names = self.rng.sample(self.NAMES, self.rng.randrange(1, 6))
        kinds = ("text", "whole", "real", "truth", "texts", "numbers", "any")
        return {
            name: self._make_object(depth + 1) if depth < 3 and self.rng.random() < 0.3 else self.rng.choice(kinds)
            for name in names
        }

    def _add_paths(self, path: tuple[str, ...], tree: dict[str, Any]) -> None:
        types = {
            "text": "string", "whole": "bigint", "real": "double", "truth": "boolean", "texts": "array<string>",
            "numbers": "map<string,bigint>", "any": "json",
        }  # fmt: skip
        for name, kind in tree.items():
            if isinstance(kind, dict):
                self._add_paths((*path, name), kind)
                kind = self.rng.choice(("any", "text"))
            self.paths[f"c{len(self.paths)}"] = (*path, name), types[kind]

    def write(self, kind: Any = None) -> str:
        rng = self.rng
        if kind is None:
            kind = self.tree
        if rng.random() < 0.08:
            kind = rng.choice(("text", "whole", "real", "truth", "texts", "numbers", "null", "any"))
        gap = rng.choice(("", "", "", " ", "\n\t"))
        if isinstance(kind, dict):
            members = [(name, kind[name]) for name in kind if rng.random() < 0.9]
            rng.shuffle(members)
            if members and rng.random() < 0.05:
                members.append(rng.choice(members))
            return (
                "{"
                + ",".join(f"{gap}{self._text(name)}{gap}:{gap}{self.write(of)}" for name, of in members)
                + gap
                + "}"
            )
        match kind:
            case "text":
                return self._text(rng.choice(("", "a", "12", "é😀", "x" * 80, 'a\n"\\', "\0", "true")))
            case "whole":
                return rng.choice(
                    ("0", "-1", "7", "9223372036854775807", "-9223372036854775808", "1.0", "1e3", "12345")
                )
            case "real":
                return rng.choice(
                    ("0.5", "-1.25e-3", "1E+300", "0.1", "123456789.123456789", "-0.0", "5e-324", "1e400")
                )
            case "truth":
                return rng.choice(("true", "false"))
            case "texts":
                return "[" + f",{gap}".join(self._text(rng.choice("abé")) for _ in range(rng.randrange(4))) + "]"
            case "numbers":
                return "{" + f",{gap}".join(f'"k{at}":{rng.getrandbits(20)}' for at in range(rng.randrange(4))) + "}"
            case "any":
                return rng.choice(("[]", "{}", "[[1,{}],null]", '{"z":[true,"\\u00e9"]}', '"text"', "-0"))
        return "null"

    def _text(self, text: str) -> str:
        return json.dumps(text, ensure_ascii=self.rng.random() < 0.5)


def read_json(payload: bytes) -> Any:
    """Return the document that the standard library and jiter read alike, numbers as they are written, or ... for
    neither."""
    try:
        first: Any = json.loads(payload.decode(), parse_constant=refuse_constant)
    except ValueError:
        first = ...
    try:
        second: Any = from_json(payload, allow_inf_nan=False)
    except ValueError:
        second = ...
    if first is ... or second is ...:
        # jiter refuses halves of surrogate pairs, which are JSON and no text, and numbers beyond those of doubles
        assert (first is ...) == (second is ...) or b"\\u" in payload or b"e" in payload.lower(), payload
        if first is ...:
            assert second is ..., payload
            return ...
    else:
        assert repr(first) == repr(second), payload
    return json.loads(payload.decode(), parse_int=Literal, parse_float=Literal, object_pairs_hook=Members)


class Members(dict[str, Any]):
    """An object, which knows whether a name comes twice: its values are those that came last."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        self.is_repeated = len(self) < len(pairs)


def refuse_constant(word: str) -> Any:
    raise ValueError(word)


UNREADABLE: Any = object()
"""A value that the column cannot have: null there."""
UNKNOWN: Any = object()
"""A value whose typing is another test's: a text in a column of another type."""


def expect(document: Any, path: tuple[str, ...], type_: str) -> Any:
    """Return what a column has, by the rules of the page "Payload columns"."""
    value = document
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict) or isinstance(value, str):
            return UNREADABLE
        if name not in value:
            return None
        value = value[name]
    if value is None:
        return None
    return expect_value(value, type_)


def expect_value(value: Any, type_: str) -> Any:
    is_text = isinstance(value, str) and not isinstance(value, Literal)
    if (type_ not in ("json", "string") or (is_text and type_ == "string")) and has_half_pair(value):
        return UNREADABLE
    match type_:
        case "string":
            if is_text:
                return value
            return str(value) if isinstance(value, Literal) else json.dumps(value) if isinstance(value, bool) else value
        case "json":
            return value
        case "array<string>":
            if not isinstance(value, list):
                return UNREADABLE
            items = [None if one is None else expect_value(one, "string") for one in value]
            return UNKNOWN if any(isinstance(one, (list, dict)) for one in items) else items
        case "map<string,bigint>":
            if not isinstance(value, dict):
                return UNREADABLE
            if isinstance(value, Members) and value.is_repeated:
                # unreadable too if the value that is replaced is
                return UNKNOWN
            found = {name: None if one is None else expect_value(one, "bigint") for name, one in value.items()}
            if UNREADABLE in found.values():
                return UNREADABLE
            return UNKNOWN if UNKNOWN in found.values() else dict(sorted(found.items()))
    if is_text:
        return UNKNOWN
    if type_ == "boolean":
        return value if isinstance(value, bool) else UNKNOWN
    if not isinstance(value, Literal):
        return UNREADABLE
    if type_ == "double":
        number = float(value)
        return number if math.isfinite(number) else UNREADABLE
    whole = Decimal(value)
    if whole.adjusted() > 64:
        return UNREADABLE
    if whole != whole.to_integral_value() or not -(1 << 63) <= whole < 1 << 63:
        return UNREADABLE
    return int(whole)


def write_plain(value: Any) -> str:
    """Return the ``repr`` of a document as one without ``Members``."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {write_plain(one)}" for name, one in value.items()) + "}"
    return "[" + ", ".join(map(write_plain, value)) + "]" if isinstance(value, list) else repr(value)


def has_half_pair(value: Any) -> bool:
    if isinstance(value, str):
        return any("\ud800" <= letter < "\ue000" for letter in value)
    if isinstance(value, dict):
        return any(has_half_pair(name) or has_half_pair(one) for name, one in value.items())
    return isinstance(value, list) and any(map(has_half_pair, value))


def test_json_of_any_shape_is_read_as_two_libraries_read_it(full: bool) -> None:
    engine.load(walk.KERNEL_MODULE)
    rng, seen, shapes = random.Random(412), Counter[str](), 0
    letters = b'{}[]",:\\u0123456789abcdeftrulsnE.-+ \n\xc3\xa9\xff\x00\x1f'
    while seen.total() < count_inputs(full):
        shape, shapes = JsonShape(rng), shapes + 1
        seeds = [shape.write().encode() for _ in range(20)]
        payloads = [damage(rng, rng.choice(seeds), seeds, letters) for _ in range(PER_SHAPE)]
        rows, walked = read(JSON_FORM, shape.columns, [*payloads])
        assert_positions(walked, payloads)
        for row, payload in enumerate(payloads):
            document = read_json(payload)
            assert bool(walked.good[row]) == isinstance(document, dict), (payload, walked.describe(row))
            if walked.good[row]:
                for column, (path, type_) in shape.paths.items():
                    expected, mine = expect(document, path, type_), rows[row][column]
                    if expected is UNKNOWN:
                        continue
                    if type_ in ("json", "string") and isinstance(expected, (dict, list)):
                        mine = ... if mine is None else json.loads(mine, parse_int=Literal, parse_float=Literal)
                    elif type_ == "json" and expected is not None and expected is not UNREADABLE and mine is not None:
                        mine = json.loads(mine, parse_int=Literal, parse_float=Literal)
                    if expected is UNREADABLE:
                        assert mine is None, (payload, path, type_)
                    else:
                        assert repr(mine) == write_plain(expected), (payload, path, type_)
            seen[VERDICTS[walked.verdict[row]]] += 1
    show("JSON", seen, shapes)
    assert seen[VERDICTS[0]] > seen.total() // 5
