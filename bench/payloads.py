"""What typed columns out of payloads cost: Lading's walkers, and libraries that make the same columns."""

from __future__ import annotations

import io
import json
import struct
import time
from collections.abc import Callable
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import duckdb
import pyarrow as pa
from pydantic_core import from_json

from bench.measure import median
from lading.broker.core.query import SLICE_ROWS
from lading.columns.assemble import assemble
from lading.columns.contract import parse_columns
from lading.columns.typed import KERNEL_MODULE as COLUMNS_MODULE
from lading.filter.parse import parse
from lading.kernels import engine
from lading.model.run import Decoded
from lading.payloads.avro_datum import encode_value
from lading.payloads.avro_values import KERNEL_MODULE as AVRO_MODULE
from lading.payloads.protobuf_json import write_varint
from lading.payloads.protobuf_values import KERNEL_MODULE as PROTOBUF_MODULE
from lading.payloads.walk import KERNEL_MODULE
from lading.registry.payload_form import parse_payload_form
from lading.schemas.avro import parse_avro

fastavro: Any = import_module("fastavro") if find_spec("fastavro") else None
"""A library to compare with, if it is installed."""

QUESTION = (
    "Payload columns: 12 typed columns of JSON payloads of 240 bytes, Avro of 100 and Protobuf of 110, CPU of one "
    "core, 1 % of the payloads broken"
)
ROWS = 200_000
BATCH = 10_000
MEMBERS = {
    "order_id": ("string", "order_id"), "tenant": ("string", "tenant"), "kind": ("string", "kind"),
    "city": ("string", "customer.city"), "customer": ("bigint", "customer.id"), "items": ("int", "items"),
    "weight": ("double", "weight"), "amount": ("decimal(10,2)", "amount"), "paid": ("boolean", "paid"),
    "at": ("timestamp", "at"), "note": ("string", "note"), "score": ("double", "score"),
}  # fmt: skip
"""Columns: type and path."""
COLUMNS = ", ".join(f"{name} {type_} from payload.{path}" for name, (type_, path) in MEMBERS.items())
PROJECTION = parse_columns(COLUMNS)
CONDITION = parse("payload.amount > 500", closed=False)
AVRO = json.dumps(
    {
        "type": "record", "name": "Order", "fields": [
            *({"name": name, "type": "string"} for name in ("order_id", "tenant", "kind")),
            {"name": "items", "type": ["null", "int"]},
            {"name": "customer", "type": {
                "type": "record", "name": "Customer",
                "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
            }},
            {"name": "weight", "type": "double"},
            {"name": "amount", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "paid", "type": "boolean"},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
            {"name": "note", "type": ["null", "string"]}, {"name": "score", "type": "double"},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
)  # fmt: skip
AVRO_PROJECTION = parse_columns(COLUMNS, parse_payload_form({"format": "avro", "schema": AVRO, "prefix": "none"}))
PROTOBUF = """syntax = "proto3"; import "google/protobuf/timestamp.proto";
message Order { string order_id = 1; string tenant = 2; string kind = 3; optional int32 items = 4;
  Customer customer = 5; double weight = 6; string amount = 7; bool paid = 8;
  google.protobuf.Timestamp at = 9; optional string note = 10;
  double score = 11; repeated string tags = 12; message Customer { int64 id = 1; string city = 2; } }
"""
PROTOBUF_PROJECTION = parse_columns(
    COLUMNS, parse_payload_form({"format": "protobuf", "schema": PROTOBUF, "prefix": "none"})
)
_TYPES = {name: parse_columns(f"{name} {type_} from payload").payload[0].type for name, (type_, _) in MEMBERS.items()}


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: how columns are made, CPU ns a row (median of 3), rows a second of a core, ratio, and what bad rows do."""
    rows = ROWS // 10 if quick else ROWS
    good, mixed = _make_payloads(rows, broken_each=0), _make_payloads(rows, broken_each=100)
    avro_good, avro_mixed = _make_avro(rows, broken_each=0), _make_avro(rows, broken_each=100)
    protobuf_mixed = _make_protobuf(rows, broken_each=100)
    for module in (KERNEL_MODULE, COLUMNS_MODULE, AVRO_MODULE, PROTOBUF_MODULE):
        engine.load(module)
    ways: list[tuple[str, Callable[[pa.Array[Any]], Any], pa.Array[Any], str]] = [
        ("Lading", _read_with_lading, mixed, "verdict and byte, the rest goes on"),
        ("pydantic_core.from_json, then pa.array", _read_with_jiter, mixed, "an exception each"),
        ("json.loads, then pa.array", _read_with_json, mixed, "an exception each"),
        ("DuckDB from_json", _read_with_duckdb, good, "stop the query, so it got none"),
        ("Lading, Avro", _read_avro, avro_mixed, "verdict and byte, the rest goes on"),
        ("Lading, Protobuf", _read_protobuf, protobuf_mixed, "verdict and byte, the rest goes on"),
        ("Lading, a condition on one path instead", _filter_json, mixed, "do not match"),
    ]
    if fastavro is not None:
        ways.append(("fastavro, then pa.array", _read_with_fastavro, avro_good, "an exception each, so it got none"))
    found = []
    for name, read, payloads, bad in ways:
        read(payloads.slice(0, BATCH))
        found.append((name, median(_measure_cpu_s(read, payloads) for _ in range(3)) / rows, bad))
    own = {"JSON": found[0][1], "Avro": found[4][1], "Protobuf": found[5][1]}
    return [
        {
            "columns by": name,
            "CPU ns a row": round(cost_s * 1e9),
            "rows/s a core": round(1 / cost_s),
            "times the CPU": round(cost_s / own[_find_format(name)], 1),
            "broken payloads": bad,
        }
        for name, cost_s, bad in found
    ]


def _find_format(name: str) -> str:
    return next((known for known in ("Avro", "Protobuf") if known.lower() in name.lower()), "JSON")


def _measure_cpu_s(read: Callable[[pa.Array[Any]], Any], payloads: pa.Array[Any]) -> float:
    begun = time.process_time()
    for first in range(0, len(payloads), BATCH):
        read(payloads.slice(first, BATCH))
    return time.process_time() - begun


def _make_payloads(rows: int, broken_each: int) -> pa.Array[Any]:
    payloads: list[bytes] = []
    for row in range(rows):
        text = json.dumps(
            {
                "order_id": f"A-{row:08}", "tenant": f"t{row % 50}", "kind": "order", "items": row % 9,
                "customer": {"id": 10**9 + row, "city": ("Delhi", "Lagos", "Quito")[row % 3]},
                "weight": row / 8, "amount": row % 1000 + 0.25, "paid": row % 2 == 0,
                "at": f"2026-03-01T12:{row % 60:02}:00Z", "note": "left at the door", "score": 0.5, "tags": ["a", "b"],
            }, separators=(",", ":"),
        ).encode()  # fmt: skip
        payloads.append(text[:-20] if broken_each and row % broken_each == 0 else text)
    return pa.array(payloads, pa.binary())


def _make_avro(rows: int, broken_each: int) -> pa.Array[Any]:
    root = parse_avro(AVRO).root
    # a default of bytes is written as Latin-1, and a null of a union by its branch
    payloads = [
        encode_value(
            root,
            {
                "order_id": f"A-{row:08}", "tenant": f"t{row % 50}", "kind": "order", "items": row % 9,
                "customer": {"id": 10**9 + row, "city": ("Delhi", "Lagos", "Quito")[row % 3]},
                "weight": row / 8, "amount": (row % 1000 * 100 + 25).to_bytes(4, "big").decode("latin-1"),
                "paid": row % 2 == 0, "at": 1_772_366_400_000_000 + row % 60 * 1_000_000, "note": "left at the door",
                "score": 0.5, "tags": ["a", "b"],
            },
        )
        for row in range(rows)
    ]  # fmt: skip
    return pa.array(
        [one[:-20] if broken_each and row % broken_each == 0 else one for row, one in enumerate(payloads)], pa.binary()
    )


def _make_protobuf(rows: int, broken_each: int) -> pa.Array[Any]:
    payloads = []
    for row in range(rows):
        customer = _write_number(1, 10**9 + row) + _write_sized(2, ("Delhi", "Lagos", "Quito")[row % 3].encode())
        payload = (
            _write_sized(1, f"A-{row:08}".encode()) + _write_sized(2, f"t{row % 50}".encode())
            + _write_sized(3, b"order") + _write_number(4, row % 9) + _write_sized(5, customer) + b"\x31"
            + struct.pack("<d", row / 8) + _write_sized(7, f"{row % 1000}.25".encode()) + _write_number(8, row % 2)
            + _write_sized(9, _write_number(1, 1_772_366_400 + row % 60)) + _write_sized(10, b"left at the door")
            + b"\x59" + struct.pack("<d", 0.5) + _write_sized(12, b"a") + _write_sized(12, b"b")
        )  # fmt: skip
        payloads.append(payload[:-20] if broken_each and row % broken_each == 0 else payload)
    return pa.array(payloads, pa.binary())


def _write_number(field: int, value: int) -> bytes:
    return write_varint(field << 3) + write_varint(value)


def _write_sized(field: int, value: bytes) -> bytes:
    return write_varint(field << 3 | 2) + write_varint(len(value)) + value


def _read_protobuf(payloads: pa.Array[Any]) -> pa.RecordBatch:
    return assemble(Decoded(len(payloads), {"payload": payloads}, {}), PROTOBUF_PROJECTION).batch


def _filter_json(payloads: pa.Array[Any]) -> Any:
    """As a broker evaluates it, by slices."""
    parts = [payloads.slice(first, SLICE_ROWS) for first in range(0, len(payloads), SLICE_ROWS)]
    return pa.chunked_array([CONDITION.selects(Decoded(len(part), {"payload": part}, {})) for part in parts])


def _read_avro(payloads: pa.Array[Any]) -> pa.RecordBatch:
    return assemble(Decoded(len(payloads), {"payload": payloads}, {}), AVRO_PROJECTION).batch


def _read_with_fastavro(payloads: pa.Array[Any]) -> pa.RecordBatch:
    schema = fastavro.parse_schema(json.loads(AVRO))
    held: list[Any] = payloads.to_pylist()
    rows = [fastavro.schemaless_reader(io.BytesIO(payload), schema, None) for payload in held]
    arrays = []
    for name, (_, path) in MEMBERS.items():
        first, _, second = path.partition(".")
        values = [row[first][second] if second else row[first] for row in rows]
        arrays.append(pa.array(values, _TYPES[name]))
    return pa.RecordBatch.from_arrays(arrays, names=list(MEMBERS))


def _read_with_lading(payloads: pa.Array[Any]) -> pa.RecordBatch:
    return assemble(Decoded(len(payloads), {"payload": payloads}, {}), PROJECTION).batch


def _read_with_jiter(payloads: pa.Array[Any]) -> pa.RecordBatch:
    return _read_one_by_one(payloads, from_json)


def _read_with_json(payloads: pa.Array[Any]) -> pa.RecordBatch:
    return _read_one_by_one(payloads, json.loads)


def _read_one_by_one(payloads: pa.Array[Any], parse: Callable[[bytes], Any]) -> pa.RecordBatch:
    columns: dict[str, list[Any]] = {name: [] for name in MEMBERS}
    texts: list[Any] = payloads.to_pylist()
    for payload in texts:
        try:
            document = parse(payload)
        except ValueError:
            document = {}
        for name, (_, path) in MEMBERS.items():
            value = document
            for part in path.split("."):
                value = value.get(part) if isinstance(value, dict) else None
            columns[name].append(Decimal(str(value)) if name == "amount" and value is not None else value)
    arrays = [
        pa.array(values).cast(_TYPES[name]) if name == "at" else pa.array(values, _TYPES[name])
        for name, values in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _read_with_duckdb(payloads: pa.Array[Any]) -> pa.Table:
    structure = json.dumps({
        "order_id": "VARCHAR", "tenant": "VARCHAR", "kind": "VARCHAR", "items": "INTEGER",
        "customer": {"id": "BIGINT", "city": "VARCHAR"}, "weight": "DOUBLE", "amount": "DECIMAL(10,2)",
        "paid": "BOOLEAN", "at": "TIMESTAMP", "note": "VARCHAR", "score": "DOUBLE",
    })  # fmt: skip
    table = pa.table({"payload": payloads.cast(pa.string())})
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("messages", table)
        query = f"select unnest(from_json(payload, '{structure}')) from messages"
        found: pa.Table = connection.sql(query).to_arrow_table()
        return found
