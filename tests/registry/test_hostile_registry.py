"""A registry that drips, never ends, or sends very much: the client's time and memory are bounded."""

from __future__ import annotations

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

import pytest

from lading.model.errors import LadingError, RemoteError, Unreachable
from lading.registry import client as registry_client
from lading.registry.client import RegistryAddress, RegistryClient
from lading.registry.payload_encoder import find_writer_schema
from lading.schemas.parsed import InvalidSchema

TIMEOUT_S: Final = 0.3
DRIP_S: Final = 0.03
DRIPS: Final = 200
"""Until the server gives up: twenty times the time-out."""
ENDLESS_BYTES: Final = 64 << 20
"""How much a server that never ends sends before it gives up."""
PIECE: Final = 1 << 16
Handle = Callable[[BaseHTTPRequestHandler, str], None]


class HostileRegistry:
    """A server whose response to each request is what a function writes; it counts requests and bytes."""

    def __init__(self) -> None:
        self.handle: Handle = lambda request, path: None
        self.requests: list[str] = []
        self.sent_bytes = 0
        hostile = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hostile.requests.append(self.path)
                with suppress(OSError):
                    hostile.handle(self, self.path)

            do_POST = do_GET

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def send(self, request: BaseHTTPRequestHandler, data: bytes) -> None:
        request.connection.sendall(data)
        self.sent_bytes += len(data)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def respond(self, document: object) -> None:
        """Respond to each request with this document."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()

        def handle(request: BaseHTTPRequestHandler, path: str) -> None:
            self.send(request, b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

        self.handle = handle

    def drip(self, whole: bytes) -> None:
        """Send ``whole``, then a byte at a time."""

        def handle(request: BaseHTTPRequestHandler, path: str) -> None:
            self.send(request, whole)
            for _ in range(DRIPS):
                self.send(request, b"{")
                time.sleep(DRIP_S)

        self.handle = handle

    def repeat(self, whole: bytes, piece: bytes) -> None:
        """Send ``whole``, then ``piece`` without an end, as fast as it is taken."""
        pieces = piece * (PIECE // len(piece) + 1)

        def handle(request: BaseHTTPRequestHandler, path: str) -> None:
            self.send(request, whole)
            while self.sent_bytes < ENDLESS_BYTES:
                self.send(request, pieces)

        self.handle = handle


@pytest.fixture
def registry() -> Iterator[HostileRegistry]:
    hostile = HostileRegistry()
    yield hostile
    hostile.close()


def open_client(registry: HostileRegistry) -> RegistryClient:
    return RegistryClient(RegistryAddress(registry.url), pause=lambda pause_s: None)


@pytest.mark.parametrize(
    "whole",
    [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 ", b""],
    ids=["body", "head", "first byte"],
)
def test_a_registry_that_drips_is_given_up(
    monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry, whole: bytes
) -> None:
    """A byte a second held a decoding thread, and all that waited for the client, for the whole of a response."""
    monkeypatch.setattr(registry_client, "TIMEOUT_S", TIMEOUT_S)
    monkeypatch.setattr(registry_client, "ATTEMPTS", 1)
    registry.drip(whole)
    with pytest.raises(Unreachable, match="cannot be reached"):
        open_client(registry).schema_by_id(1)
    # by the server's count, not by the time that this took on a busy machine
    assert registry.sent_bytes - len(whole) < DRIPS


@pytest.mark.parametrize(
    ("whole", "piece"),
    [
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"a: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 5000 + b"\r\na\r\n"),
    ],
    ids=["1xx", "trailers", "chunk extensions"],
)
def test_lines_without_an_end_are_given_up(
    monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry, whole: bytes, piece: bytes
) -> None:
    """They come fast enough for any time-out, and are not in the content, whose size was bounded."""
    monkeypatch.setattr(registry_client, "ATTEMPTS", 1)
    registry.repeat(whole, piece)
    with pytest.raises(Unreachable, match="cannot be reached"):
        open_client(registry).schema_by_id(1)
    # sockets hold some megabytes
    assert registry.sent_bytes < ENDLESS_BYTES


def test_a_body_without_an_end_is_cut(monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry) -> None:
    monkeypatch.setattr(registry_client, "RESPONSE_BYTES_MAX", 1 << 20)
    monkeypatch.setattr(registry_client, "ATTEMPTS", 1)
    registry.repeat(b"HTTP/1.1 200 OK\r\n\r\n", b"a" * 1000)
    with pytest.raises(Unreachable, match="more than 1048576 bytes"):
        open_client(registry).schema_by_id(1)
    assert registry.sent_bytes < ENDLESS_BYTES


def test_known_schemas_do_not_wait_for_others(registry: HostileRegistry) -> None:
    """A thread that waited for one schema kept the client's lock: all messages of all schemas waited too."""
    client, asked, goes_on = open_client(registry), threading.Event(), threading.Event()
    registry.respond({"schema": '"int"'})
    known = client.schema_by_id(1)

    def wait(request: BaseHTTPRequestHandler, path: str) -> None:
        asked.set()
        goes_on.wait(20)
        registry.send(request, b'HTTP/1.0 200 OK\r\n\r\n{"schema":"x"}')

    registry.handle = wait
    waiting = threading.Thread(target=client.schema_by_id, args=(2,))
    waiting.start()
    assert asked.wait(20)
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(client.schema_by_id(1)))
    reader.start()
    reader.join(5)
    has_waited = reader.is_alive()
    goes_on.set()
    reader.join(20)
    waiting.join(20)
    assert found == [known] and not has_waited


def refer_to_many(count: int, size: int) -> dict[str, object]:
    references = [{"name": f"n{number}", "subject": "s", "version": number} for number in range(1, count + 1)]
    return {"schema": "x" * size, "references": references}


def test_a_schema_and_its_references_are_bounded_together(
    monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry
) -> None:
    """Each of 1,000 references could have 32 MiB of its own."""
    monkeypatch.setattr(registry_client, "SCHEMA_CHARACTERS_MAX", 100_000)
    registry.respond(refer_to_many(900, 10_000))
    with pytest.raises(InvalidSchema, match="more than 100000 characters"):
        open_client(registry).schema_by_id(1)
    # the first 10 of them
    assert len(registry.requests) <= 11


def test_a_schema_and_its_references_arrive_in_time(registry: HostileRegistry) -> None:
    """Each request has its time-out, and a schema 1,000 of them: a slow registry kept a batch for hours."""
    now_s = [0.0]
    client = RegistryClient(RegistryAddress(registry.url), clock=lambda: now_s[0], pause=lambda pause_s: None)
    registry.respond(refer_to_many(900, 10))
    respond = registry.handle

    def take_long(request: BaseHTTPRequestHandler, path: str) -> None:
        now_s[0] += 9.0
        respond(request, path)

    registry.handle = take_long
    with pytest.raises(Unreachable, match="not complete after"):
        client.schema_by_id(1)
    assert len(registry.requests) * 9 <= registry_client.SCHEMA_S + 9


def test_schemas_that_are_kept_have_bounded_memory(monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry) -> None:
    """The sender of messages chooses their ids, and each schema that the registry returned was kept for good."""
    monkeypatch.setattr(registry_client, "KEPT_CHARACTERS_MAX", 500_000)
    registry.respond({"schema": json.dumps({"type": "int", "doc": "d" * 100_000})})
    client = open_client(registry)
    client.schema_by_id(1)
    tracemalloc.start()
    try:
        for number in range(2, 42):
            client.schema_by_id(number).parse()
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept_bytes < 2_500_000
    # the newest are known
    before = len(registry.requests)
    client.schema_by_id(41)
    assert len(registry.requests) == before


def test_identities_that_are_kept_have_bounded_memory(
    monkeypatch: pytest.MonkeyPatch, registry: HostileRegistry
) -> None:
    monkeypatch.setattr(registry_client, "KEPT_VERSIONS_MAX", 2_000)
    versions = json.dumps([{"subject": f"subject-{number}", "version": 1} for number in range(1_000)]).encode()
    registry.respond({"guid": "g"})
    respond_facts = registry.handle
    registry.respond(versions)
    respond_versions = registry.handle
    registry.handle = lambda request, path: (respond_versions if "versions" in path else respond_facts)(request, path)
    client = open_client(registry)
    client.identify(1)
    tracemalloc.start()
    try:
        for number in range(2, 32):
            client.identify(number)
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept_bytes < 1_000_000
    before = len(registry.requests)
    assert len(client.identify(31).versions) == 1_000
    assert len(registry.requests) == before


def test_an_error_text_is_shortened(registry: HostileRegistry) -> None:
    """It is shown on a terminal, and is the reason of each message in quarantine."""
    body = json.dumps({"error_code": 40301, "message": "no\n" * 1_000_000}).encode()
    head = b"HTTP/1.0 403 Forbidden\r\nContent-Length: %d\r\n\r\n" % len(body)
    registry.handle = lambda request, path: registry.send(request, head + body)
    with pytest.raises(RemoteError) as raised:
        open_client(registry).schema_by_id(1)
    assert len(str(raised.value)) < 2_000


@pytest.mark.parametrize(
    "document", [[], {}, {"id": None}, {"id": "x"}, {"id": -1}, {"id": 1 << 32}, {"id": 1e400}, [{}], 1]
)
def test_ids_and_versions_that_are_none_are_errors_of_the_registry(registry: HostileRegistry, document: object) -> None:
    registry.respond(document)
    client = open_client(registry)
    for ask in (
        lambda: client.register("s", "AVRO", '"int"'),
        lambda: client.latest_id("s"),
        lambda: find_writer_schema("s", "t", registry=registry.url),
    ):
        with pytest.raises(RemoteError, match="is this the URL of a registry"):
            ask()
    if document != []:
        with pytest.raises(RemoteError, match="is this the URL of a registry"):
            client.versions("s")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_are_not_followed(registry: HostileRegistry, status: int) -> None:
    """The address of the settings is trusted, and gets the secret: no other one."""
    head = b"HTTP/1.0 %d Moved\r\nLocation: %s/elsewhere\r\nContent-Length: 0\r\n\r\n" % (status, registry.url.encode())
    registry.handle = lambda request, path: registry.send(request, head)
    with pytest.raises(LadingError, match=f"status {status}"):
        open_client(registry).schema_by_id(1)
    assert registry.requests == ["/schemas/ids/1"]


def test_a_compressed_response_that_was_not_asked_for_is_not_decompressed(registry: HostileRegistry) -> None:
    body = gzip.compress(b" " * (16 << 20), 1)
    head = b"HTTP/1.0 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
    registry.handle = lambda request, path: registry.send(request, head + body)
    tracemalloc.start()
    try:
        with pytest.raises(RemoteError, match="no JSON"):
            open_client(registry).schema_by_id(1)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
