"""Schemas that change while a pipeline runs, from a registry that is away, slow or wrong meanwhile."""

from __future__ import annotations

import http.client
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
