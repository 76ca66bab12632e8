"""JSON as Avro: bytes of the specification and by hand, what fastavro reads back, paths of what does not fit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lading import Consumer, testing
from lading.cli.main import main
from lading.model.errors import LocalError
from lading.payloads.avro_from_json import encode_json
from lading.registry.client import RegistryAddress, RegistryClient
from lading.schemas.avro import parse_avro

from ..interop import wheels

SPECIFICATION = (
    '{"type": "record", "name": "test", "fields": [{"name": "a", "type": "long"}, {"name": "b", "type": "string"}]}'
)
DECIMAL = '{"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}'
FIXED = '{"type": "fixed", "name": "f", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2}'
MILLIS = '{"type": "long", "logicalType": "timestamp-millis"}'
OPTIONAL = '["null", "string"]'
WIDE = '{"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}'
NUMBER = "123456789012345678901234567890123456.78"


@pytest.mark.parametrize(
    ("schema", "text", "data"),
    [
        # the examples of the specification: a record, an array, a union, numbers
        (SPECIFICATION, '{"b": "foo", "a": 27}', "3606666f6f"),
        ('{"type": "array", "items": "long"}', "[3, 27]", "04063600"),
        ('{"type": "array", "items": "long"}', "[]", "00"),
        (OPTIONAL, "null", "00"), (OPTIONAL, '"a"', "020261"), (OPTIONAL, '{"string": "a"}', "020261"),
        ('"int"', "-64", "7f"), ('"int"', "64", "8001"), ('"long"', "1.0", "02"), ('"boolean"', "true", "01"),
        ('"float"', "1.5", "0000c03f"), ('"double"', "1", "000000000000f03f"), ('"bytes"', '"\\u00ff"', "02ff"),
        ('{"type": "map", "values": "int"}', '{"k": 1}', "02026b0200"),
        ('{"type": "enum", "name": "e", "symbols": ["A", "B"]}', '"B"', "02"),
        # two's complement, big-endian, the fewest bytes
        (DECIMAL, "12.50", "0404e2"), (DECIMAL, "-1.28", "0280"), (DECIMAL, "1.28", "040080"), (DECIMAL, "0", "0200"),
        (WIDE, NUMBER, "20" + int(NUMBER.replace(".", "")).to_bytes(16, "big").hex()), (WIDE, "0e9999999", "0200"),
        # the largest float as Java writes it, a bit above its exact value
        ('"float"', "3.4028235E38", "ffff7f7f"), ('"double"', "1.7976931348623157e308", "ffffffffffffef7f"),
        (FIXED, "-0.01", "ffffffff"), (DECIMAL, '"\\u0004\\u00e2"', "0404e2"),
        ('{"type": "int", "logicalType": "date"}', '"1970-01-03"', "04"),
        (MILLIS, '"1970-01-01T00:00:00.002Z"', "04"), (MILLIS, "2", "04"),
        (MILLIS, '"1970-01-01T01:00:00.002+01:00"', "04"),
    ],
)  # fmt: skip
def test_bytes_of_values(schema: str, text: str, data: str) -> None:
    assert encode_json(parse_avro(schema), text.encode()).hex() == data


@pytest.mark.parametrize(
    ("schema", "text", "sentence"),
    [
        (SPECIFICATION, '{"a": 1', "payload: not JSON: .*; write it as JSON"),
        (SPECIFICATION, '{"a": NaN, "b": ""}', "not JSON: NaN is not a number of JSON"),
        (SPECIFICATION, '{"a": 1}', "payload: b is missing, and its field has no default; correct"),
        (SPECIFICATION, '{"a": 1, "b": "", "c": 2}', "payload: c is not a field of test, which has a, b"),
        (SPECIFICATION, '{"a": 1.5, "b": ""}', "payload: a is 1.5, which is not a long"),
        (SPECIFICATION, '{"a": 9223372036854775808, "b": ""}', "a is 9223372036854775808, which is not a long"),
        (SPECIFICATION, '{"a": true, "b": ""}', "a is true, which is not a long"),
        (SPECIFICATION, '{"a": 1, "b": "\\ud800"}', "b is .*, which is not a string"),
        (SPECIFICATION, "[1]", "payload: the payload is .*, which is not an object"),
        ('{"type": "array", "items": "int"}', '[1, "x"]', r"payload: \[1\] is \"x\", which is not a int"),
        (DECIMAL, "1.005", r"is 1.005, which is not a decimal\(6,2\)"), (DECIMAL, "10000", r"not a decimal\(6,2\)"),
        (WIDE, "1e9999999", "not a decimal"), (WIDE, "1e-9999999", "not a decimal"),
        (WIDE, NUMBER + "1", "not a decimal"), (SPECIFICATION, '{"a": 1e300000, "b": ""}', "which is not a long"),
        ('"double"', "1e999", "not a double"), ('"float"', "1e300", "not a float"), ('"int"', "1e300000", "not a int"),
        ('"float"', "340282356779733661637539395458142568447.9", "not a float"), ('"float"', "-1e39", "not a float"),
        ('"long"', "1e9999999999999999999", "an exponent that is too large"),
        ('{"type": "map", "values": "int"}', '{"\\ud800": 1}', r"\\ud800 has a name that is not a text of Unicode"),
        (OPTIONAL, "1", "is 1, which is not a string"),
        ('["int", "null", "string"]', "[]", "is none of int, null, string"),
        (MILLIS, '"1970-01-01T00:00:00.0001Z"', r"which is not a long \(timestamp-millis\)"),
        ('{"type": "enum", "name": "e", "symbols": ["A", "B"]}', '"C"', 'is "C", which is not one of A, B'),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named_by_its_path(schema: str, text: str, sentence: str) -> None:
    with pytest.raises(LocalError, match=sentence):
        encode_json(parse_avro(schema), text.encode())


ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "string"}, {"name": "amount", "type": json.loads(DECIMAL)},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "record", "name": "Line", "fields": [
            {"name": "sku", "type": "string"}, {"name": "n", "type": "int", "default": 1}]}}},
        {"name": "at", "type": json.loads(MILLIS)}, {"name": "next", "type": ["null", "Order"], "default": None},
    ],
}  # fmt: skip
TEXT = (
    '{"id": "A-1", "amount": 12.50, "lines": [{"sku": "é"}, {"sku": "b", "n": 2}], "at": "2026-01-31T12:00:00Z", '
    '"next": {"id": "A-2", "amount": -0.01, "lines": [], "at": 0, "note": "x"}}'
)
READ = (
    "import sys, json, io, fastavro; s = fastavro.parse_schema(json.loads(sys.argv[1])); "
    "f = io.BytesIO(bytes.fromhex(sys.argv[2])); print(json.dumps(fastavro.schemaless_reader(f, s, None), "
    "default=str)); assert not f.read()"
)


def test_fastavro_reads_what_a_registry_and_a_file_encode(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    latin = tmp_path / "latin.avsc"
    latin.write_bytes(b"\xff")
    with testing.broker() as broker:
        url = f"http://{broker.endpoints['schema_registry']}"
        for words in (["--schema", str(file), "--registry", url], ["--schema", "orders-value", "--registry", url],
                      ["--schema", str(file)]):  # fmt: skip
            with pytest.raises(SystemExit) as left:
                main(["message", "send", "orders", TEXT, *words, "--server", broker.url])
            assert not left.value.code
        schema_id = RegistryClient(RegistryAddress(url)).latest_id("orders-value")
        payloads = [message.payload or b"" for message in Consumer(broker.url, "orders", timeout_s=0)]
        for words, sentence in (
            (["--schema", "nowhere"], "no such file; name one, or a subject together with --registry"),
            (["--schema", str(latin)], "cannot be read: .*; name a file in UTF-8"),
            (["--registry", url], "--registry needs a schema"), (["--schema", "x-value", "--registry", url], "x-value"),
        ):  # fmt: skip
            with pytest.raises(SystemExit) as left:
                main(["message", "send", "orders", TEXT, *words, "--server", broker.url])
            assert left.value.code, sentence
    assert payloads[0] == payloads[1] == b"\0" + schema_id.to_bytes(4, "big") + payloads[2]
    try:
        python = wheels.install("fastavro", "1.12.2", "3.11")
    except wheels.Unavailable as error:
        pytest.skip(str(error))
    command = [str(python), "-c", READ, json.dumps(ORDER), payloads[2].hex()]
    read: Any = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    assert read == {
        "id": "A-1", "amount": "12.50", "note": None, "lines": [{"sku": "é", "n": 1}, {"sku": "b", "n": 2}],
        "at": "2026-01-31 12:00:00+00:00",
        "next": {"id": "A-2", "amount": "-0.01", "note": "x", "lines": [], "at": "1970-01-01 00:00:00+00:00",
                 "next": None},
    }  # fmt: skip


def test_records_within_unions_are_tried_once_at_each_level() -> None:
    # 60 levels of two records with the same fields: 2^60 ways to find that the innermost fits neither
    fields = '[{"name": "n", "type": ["null", "int"]}, {"name": "next", "type": ["null", %s, %s]}]'
    inner = '{"type": "record", "name": "B", "fields": %s}' % (fields % ('"A"', '"B"'))
    outer = '{"type": "record", "name": "A", "fields": %s}' % (fields % ('"A"', inner))
    schema = parse_avro(outer)
    for innermost, misfit in (("1", None), ('"x"', "none of null, A, B")):
        text = '{"n": %s, "next": null}' % innermost  # noqa: UP031
        for _ in range(60):
            text = '{"n": 0, "next": %s}' % text  # noqa: UP031
        if misfit is None:
            assert encode_json(schema, text.encode()).startswith(b"\2\0\2" * 60)
        else:
            with pytest.raises(LocalError, match=misfit):
                encode_json(schema, text.encode())
