"""Schemas that change while a pipeline runs, from a registry that is away, slow or wrong meanwhile."""

from __future__ import annotations

import http.client
import struct
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from lading import Producer, testing
from lading.model.errors import LadingError, RemoteError, Unreachable
from lading.payloads.avro_datum import encode_value
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from lading.registry import client
from lading.registry.client import RegistryAddress, RegistryClient
from lading.schemas.avro import parse_avro

from .direct import Driver
from .flights import table

FIELDS = '{"type":"record","name":"Order","fields":[%s]}'
READER = FIELDS % (
    '{"name":"id","type":"long"},{"name":"amount","type":"double","aliases":["total"]},'
    '{"name":"note","type":["null","string"],"default":null},{"name":"city","type":"string","default":"none"}'
)
ID, AMOUNT = '{"name":"id","type":"long"}', '{"name":"amount","type":"double"}'
NOTE = '{"name":"note","type":["null","string"],"default":null}'
VERSIONS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (f"{ID},{AMOUNT}", {"id": 1, "amount": 1.5}, {}),
    # a field more, in another order, and one that the reader does not know
    (f'{NOTE},{AMOUNT},{ID},{{"name":"more","type":"string"}}', {"note": "n", "amount": 2.0, "id": 2, "more": "m"}, {}),
    # narrower types, which become those of the reader
    ('{"name":"id","type":"int"},{"name":"amount","type":"float"}', {"id": 3, "amount": 0.5}, {}),
    # another name, which the reader has as an alias
    (f'{ID},{{"name":"total","type":"double"}}', {"id": 4, "total": 4.0}, {"amount": 4.0}),
    # a union around it, and back to the first
    ('{"name":"id","type":"long"},{"name":"amount","type":["null","double"]}', {"id": 5, "amount": None}, {}),
    (f"{ID},{AMOUNT}", {"id": 6, "amount": 6.0}, {}),
    # a field less, for which the reader has a default
    (f'{ID},{AMOUNT},{{"name":"city","type":"string"}}', {"id": 7, "amount": 7.0, "city": "Rome"}, {}),
    # the required field is not there any more
    (AMOUNT, {"amount": 8.0}, {"reason": "payload_value"}),
    # not a record any more
    ("", {}, {"reason": "schema_mismatch"}),
]  # fmt: skip
"""Fields of the writer's schema, a value, and what a row has that is not in the value."""

CONTRACT = """
[source]
from = "{url}"
topic = "evolving"

[payload]
format = "avro"
schema = "reader.avsc"
registry = "{registry}"
registry_cache = "cache"

[headers]
number = "bigint required from payload.id"
amount = "double from payload"
note = "string from payload"
city = "string from payload"

[quality]
max_failure_ratio = 1

[good]
to = "parquet:./good"
"""
RESPONSES: dict[str, tuple[int, bytes]] = {
    "overloaded": (503, b"{}"), "a page": (200, b"<html>Sign in</html>"), "a page for nothing": (404, b"<html>"),
    "no route": (404, b'{"message":"no Route matched with those values"}'), "a login": (302, b""),
    "denied": (401, b'{"error_code":401,"message":"Unauthorized"}'), "another document": (200, b'{"status":"ok"}'),
}  # fmt: skip
WRONG = ("away", "slow", "cut", *RESPONSES)
"""What the registry may be: closes each connection, does not respond, ends a response too early, and responses."""


class Proxy:
    """A registry that is the broker's own, or wrong in one way."""

    def __init__(self, target: str) -> None:
        self.mode = ""
        self.over = threading.Event()
        proxy, host = self, urlsplit(target).netloc

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body, more = *RESPONSES.get(proxy.mode, (200, b'{"schema":')), 0
                if proxy.mode == "away":
                    self.close_connection = True
                    return
                if proxy.mode == "slow":
                    proxy.over.wait(60)
                    return
                if proxy.mode == "cut":
                    more = 100
                if not proxy.mode:
                    asked = http.client.HTTPConnection(host, timeout=60)
                    asked.request("GET", self.path)
                    response = asked.getresponse()
                    status, body = response.status, response.read()
                    asked.close()
                self.send_response(status)
                self.send_header("content-length", str(len(body) + more))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def close(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


@pytest.fixture
def proxy(served: testing.BrokerProcess) -> Iterator[Proxy]:
    made = Proxy(f"http://{served.endpoints['schema_registry']}")
    yield made
    made.close()


def test_each_version_is_read_while_the_registry_is_wrong_between_them(
    served: testing.BrokerProcess, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong registry publishes nothing and sends nothing to quarantine; after it each message is there once."""
    monkeypatch.setattr(client, "TIMEOUT_S", 0.3)
    monkeypatch.setattr(client, "PAUSE_S", 0.01)
    registry = RegistryClient(RegistryAddress(f"http://{served.endpoints['schema_registry']}"))
    (tmp_path / "reader.avsc").write_text(READER)
    file = tmp_path / "orders.toml"
    file.write_text(CONTRACT.format(url=served.url, registry=proxy.url))
    good, bad = [], []
    with Producer(served.url) as producer:
        for number, (fields, value, more) in enumerate(VERSIONS):
            text = FIELDS % fields if fields else '"long"'
            # a name of its own, so that the version that comes back has an id that no cache knows
            if number == 5:
                text = text.replace("[", '[{"name":"again","type":"null"},', 1)
            schema_id = registry.register(f"evolving-{number}", "AVRO", text)
            payload = encode_value(parse_avro(text).root, value | {"again": None} if fields else 9)
            producer.send("evolving", b"\0" + schema_id.to_bytes(4, "big") + payload, partition=0)
            producer.flush()
            for proxy.mode in WRONG if number in (0, 3) else WRONG[number % len(WRONG) :][:1]:
                began_s = time.monotonic()
                kind = Unreachable if proxy.mode in ("away", "slow", "cut", "overloaded") else RemoteError
                with pytest.raises(kind, match="registry http") as raised:
                    Driver(file).run()
                assert isinstance(raised.value, LadingError)
                assert time.monotonic() - began_s < 60
            proxy.mode = ""
            counts = Driver(file).run()
            assert (counts["read"], counts["good"] + counts["quarantined"]) == (1, 1), (number, proxy.mode)
            if "reason" in more:
                bad.append((f"evolving/0/{number}", more["reason"]))
            else:
                row = {"note": None, "city": "none"} | value | more
                good.append({"number": row["id"]} | {name: row[name] for name in ("amount", "note", "city")})
    rows: Any = table(tmp_path / "good").sort_by("offset").select(["number", "amount", "note", "city"])
    assert rows.to_pylist() == good
    assert [(row["message"], row["reason"]) for row in Quarantine(PipelineSettings.load(file)).rows()] == bad


PROTOBUF = 'syntax = "proto3"; message Order { %s }'
ONE_AND_A_HALF = b"\x11" + struct.pack("<d", 1.5)
CHANGES: list[tuple[str, str, bytes, dict[str, Any] | str]] = [
    ("PROTOBUF", PROTOBUF % "int64 id = 1; double amount = 2;", b"\0\x08\x01" + ONE_AND_A_HALF,
     {"number": 1, "amount": 1.5, "note": None}),
    # a field more, which this message has, and the next one has not: proto3 has no absent texts
    ("PROTOBUF", PROTOBUF % "int64 id = 1; double amount = 2; string note = 3;",
     b"\0\x08\x02" + ONE_AND_A_HALF + b"\x1a\x01n", {"number": 2, "amount": 1.5, "note": "n"}),
    ("PROTOBUF", PROTOBUF % "string note = 3; double amount = 2; int64 id = 1;", b"\0\x08\x03" + ONE_AND_A_HALF,
     {"number": 3, "amount": 1.5, "note": ""}),
    # narrower types, of another wire type, and one that says whether it is there
    ("PROTOBUF", PROTOBUF % "int32 id = 1; float amount = 2; optional string note = 3;",
     b"\0\x08\x04\x15" + struct.pack("<f", 0.5), {"number": 4, "amount": 0.5, "note": None}),
    # a number that became a text, within a oneof, whose other field is there
    ("PROTOBUF", PROTOBUF % "int64 id = 1; oneof more { string amount = 2; string note = 3; }",
     b"\0\x08\x05\x12\x012\x1a\x01m", {"number": 5, "amount": None, "note": "m"}),
    ("PROTOBUF", PROTOBUF % "int64 id = 1; string amount = 2;", b"\0\x08\x06\x12\x046.25",
     {"number": 6, "amount": 6.25, "note": None}),
    ("PROTOBUF", PROTOBUF % "int64 id = 1; string amount = 2;", b"\0\x08\x07\x12\x03six", "payload_value"),
    # a field that is required has another name now; then the number of another message
    ("PROTOBUF", PROTOBUF % "int64 order_id = 1; double amount = 2;", b"\0\x08\x08" + ONE_AND_A_HALF, "payload_value"),
    ("PROTOBUF", PROTOBUF % "int64 id = 1; double amount = 2;", b"\x02\x08\x08\x09", "schema_mismatch"),
    # other formats, and back
    ("AVRO", FIELDS % f"{AMOUNT},{ID}", struct.pack("<d", 10.5) + b"\x14",
     {"number": 10, "amount": 10.5, "note": None}),
    ("JSON", '{"type":"object","properties":{"id":{"type":"integer"}}}', b'{"note": "j", "id": 11}',
     {"number": 11, "amount": None, "note": "j"}),
    ("JSON", '{"type":"object","properties":{"id":{"type":"string"}}}', b'{"id": "12", "amount": "1e1"}',
     {"number": 12, "amount": 10.0, "note": None}),
    ("JSON", '{"type":"object","title":"Order"}', b'{"id": 13', "payload_malformed"),
    ("PROTOBUF", PROTOBUF % "int64 id = 1; double amount = 2; string note = 3; bool more = 4;",
     b"\0\x08\x0e\x20\x01", {"number": 14, "amount": 0.0, "note": ""}),
]  # fmt: skip
"""Format and schema of a writer, what it writes after the schema's id, and the row or the reason why there is none.

Rows are those of the formats' specifications: proto3's defaults, fields by numbers, a oneof's last field.
"""


def test_formats_and_fields_that_change_between_runs(served: testing.BrokerProcess, tmp_path: Path) -> None:
    """The same contract reads each message by the schema that it names, whatever came before it."""
    url = f"http://{served.endpoints['schema_registry']}"
    registry, file = RegistryClient(RegistryAddress(url)), tmp_path / "orders.toml"
    text = CONTRACT.replace('"evolving"', '"changing"').replace(
        'format = "avro"\nschema = "reader.avsc"', 'format = "schema"'
    )
    text = text.replace('city = "string from payload"\n', "")
    file.write_text(text.format(url=served.url, registry=url))
    good, bad = [], []
    with Producer(served.url) as producer:
        for number, (kind, schema, payload, outcome) in enumerate(CHANGES):
            schema_id = registry.register(f"changing-{number}", kind, schema)
            producer.send("changing", b"\0" + schema_id.to_bytes(4, "big") + payload, partition=0)
            producer.flush()
            counts = Driver(file).run()
            assert (counts["read"], counts["good"]) == (1, isinstance(outcome, dict)), (number, counts)
            if isinstance(outcome, dict):
                good.append(outcome)
            else:
                bad.append((f"changing/0/{number}", outcome))
    # and all of them in one batch
    again = tmp_path / "again.toml"
    again.write_text(file.read_text().replace("./good", "./good-again").replace('"cache"', '"cache-again"'))
    assert Driver(again).run()["read"] == len(CHANGES)
    for directory, settings in (("good", file), ("good-again", again)):
        rows: Any = table(tmp_path / directory).sort_by("offset").select(["number", "amount", "note"])
        assert rows.to_pylist() == good
        assert [(row["message"], row["reason"]) for row in Quarantine(PipelineSettings.load(settings)).rows()] == bad
