"""The client of a registry against ours, and against servers that are slow, wrong or away."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import RemoteError, SettingError, Unreachable
from lading.registry.client import (
    MISSING_REQUESTS_MAX,
    MISSING_S,
    RegistryAddress,
    RegistryClient,
    SchemaMissing,
)
from lading.registry.payload_form import parse_payload_form
from lading.schemas.parsed import InvalidSchema, Reference

from ..endpoints.authority import Authority

ADDRESS = '{"type":"record","name":"Address","namespace":"shop","fields":[{"name":"city","type":"string"}]}'
ORDER = '{"type":"record","name":"Order","namespace":"shop","fields":[{"name":"to","type":"Address"}]}'


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


class Clock:
    """A clock that moves when it is told to, or paused."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def pause(self, pause_s: float) -> None:
        self.now_s += pause_s


def open_client(url: str, cache: Path | None = None, clock: Clock | None = None) -> RegistryClient:
    clock = clock or Clock()
    return RegistryClient(RegistryAddress(url), cache, clock=clock, pause=clock.pause)


def test_schemas_are_fetched_with_their_references_and_kept_on_disk(tmp_path: Path) -> None:
    with testing.broker() as running:
        url = f"http://{running.endpoints['schema_registry']}"
        client = open_client(url, tmp_path)
        client.register("address-value", "AVRO", ADDRESS)
        reference = Reference("shop.Address", "address-value", 1)
        ident = client.register("order-value", "AVRO", ORDER, [reference])
        assert client.latest_id("order-value") == ident
        assert client.versions("order-value") == [1]
        schema = client.schema_by_id(ident)
        assert (schema.text, schema.references) == (ORDER, (reference,))
        assert schema.parse().text == ORDER
        client.close()
    # the registry is away: the directory is enough, for this URL only
    assert open_client(url, tmp_path).schema_by_id(ident) == schema
    with pytest.raises(Unreachable):
        open_client("http://127.0.0.1:9", tmp_path).schema_by_id(ident)
    (file,) = tmp_path.glob("*/schemas-ids-*.json")
    file.write_text("{")
    with pytest.raises(Unreachable, match="cannot be reached"):
        open_client(url, tmp_path).schema_by_id(ident)


def test_a_schema_that_does_not_exist_is_asked_for_again_later(broker: testing.BrokerProcess) -> None:
    url, clock = f"http://{broker.endpoints['schema_registry']}", Clock()
    client = open_client(url, clock=clock)
    known = client.register("before-value", "AVRO", '"long"')
    with pytest.raises(SchemaMissing):
        client.schema_by_id(known + 1)
    assert client.register("after-value", "AVRO", '{"type":"long","x":1}') == known + 1
    with pytest.raises(SchemaMissing):
        client.schema_by_id(known + 1)
    clock.now_s += MISSING_S + 0.1
    assert client.schema_by_id(known + 1).kind == "AVRO"
    with pytest.raises(SchemaMissing):
        client.schema_by_guid("00000000-0000-0000-0000-000000000000")


@pytest.fixture
def responses() -> Iterator[tuple[str, list[tuple[int, bytes]], list[str | None]]]:
    """A server that sends what a list says, and the Authorization of each request."""
    waiting: list[tuple[int, bytes]] = []
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            seen.append(self.headers.get("authorization"))
            status, body = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", waiting, seen
    server.shutdown()
    server.server_close()
    thread.join(10)


def test_an_error_that_passes_is_tried_again(responses: tuple[str, list[tuple[int, bytes]], list[str | None]]) -> None:
    url, waiting, seen = responses
    schema = json.dumps({"schema": '"int"'}).encode()
    waiting += [(503, b""), (500, b"<html>"), (200, schema)]
    assert open_client(url).schema_by_id(1).text == '"int"'
    assert len(seen) == 3


REFERRING = json.dumps({"schema": "x", "references": [{"name": "a", "subject": "s", "version": 1}]}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (404, b'{"error_code":40402,"message":"Version not found"}', InvalidSchema), (200, b"{}", InvalidSchema),
        (403, b'{"error_code":40301,"message":"denied"}', RemoteError), (401, b'{"message":"who"}', RemoteError),
        (503, b"", Unreachable),
    ],
)  # fmt: skip
def test_references_that_cannot_be_fetched_are_the_fault_of_the_schema(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]], status: int, body: bytes, kind: type[Exception]
) -> None:
    url, waiting, _ = responses
    waiting += [(200, REFERRING), (status, body)]
    with pytest.raises(kind, match="registry"):
        open_client(url).schema_by_id(1)


def test_a_schema_with_lost_references_is_not_fetched_with_each_batch(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]],
) -> None:
    url, waiting, seen = responses
    waiting += [(200, REFERRING), (404, b'{"error_code":40402,"message":"Version not found"}')] * 2
    clock = Clock()
    client = open_client(url, clock=clock)
    for _ in range(3):
        with pytest.raises(InvalidSchema, match="Version not found"):
            client.schema_by_id(1)
    assert len(seen) == 2
    clock.now_s += MISSING_S + 0.1
    with pytest.raises(InvalidSchema, match="Version not found"):
        client.schema_by_id(1)
    assert len(seen) == 4


def test_missing_schemas_are_forgotten_when_there_are_many(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, waiting, seen = responses
    waiting.append((404, b'{"error_code":40403,"message":"Schema not found"}'))
    monkeypatch.setattr("lading.registry.client.MISSING_MAX", 3)
    client = open_client(url, clock=Clock())
    for schema_id in (1, 2, 3, 4, 4, 3, 2, 1):
        with pytest.raises(SchemaMissing):
            client.schema_by_id(schema_id)
    # the oldest one alone is asked for again
    assert len(seen) == 5


@pytest.mark.turns(2, part=0)
def test_many_unknown_ids_are_few_requests(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]],
) -> None:
    url, waiting, seen = responses
    waiting.append((404, b'{"error_code":40403,"message":"Schema not found"}'))
    clock = Clock()
    client = open_client(url, clock=clock)
    for schema_id in range(1, 100_001):
        with pytest.raises(SchemaMissing):
            client.schema_by_id(schema_id)
    assert len(seen) == MISSING_REQUESTS_MAX
    clock.now_s += MISSING_S + 0.1
    waiting[:] = [(200, b'{"schema":"x"}')]
    assert client.schema_by_id(100_000).text == "x"


class TlsServer:
    """A registry over TLS that asks for a client's certificate; it keeps each request's Authorization."""

    def __init__(self, authority: Authority) -> None:
        seen = self.seen = list[tuple[str, str | None]]()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                names = dict(part[0] for part in self.connection.getpeercert()["subject"])
                seen.append((names["commonName"], self.headers.get("authorization")))
                body = b'{"schema":"\\"int\\""}'
                self.send_response(200)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *arguments: object) -> None:
                pass

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.sign("server"))
        context.load_verify_locations(authority.file)
        context.verify_mode = ssl.CERT_REQUIRED
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"https://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


def test_a_registry_over_tls_with_certificates_and_secrets_by_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    registry = TlsServer(authority)
    whole = authority.sign("whole")
    certificate, key = (tmp_path / name for name in ("cert.pem", "key.pem"))
    parts = authority.sign("parts").read_text().partition("-----BEGIN PRIVATE KEY-----")
    certificate.write_text(parts[0])
    key.write_text("".join(parts[1:]))
    monkeypatch.setenv("REGISTRY_PASSWORD", "s3cret")
    (tmp_path / "token").write_text("t0ken\n")
    settings = {"format": "schema", "registry": registry.url, "registry_ca_file": str(authority.file)}
    basic = {"registry_user": "ann", "registry_password_env": "REGISTRY_PASSWORD"}
    try:
        for at, more in enumerate((
            {"registry_certificate_file": "whole.pem", **basic},
            {
                "registry_certificate_file": "cert.pem", "registry_key_file": "key.pem",
                "registry_token_file": "token",
            },
        )):  # fmt: skip
            form = parse_payload_form(settings | more | {"registry_cache": f"cache{at}"}, tmp_path)
            assert form.source is not None and form.source.find_by_id(1) is not None
        secret = b64encode(b"ann:s3cret").decode()
        assert registry.seen == [("whole", f"Basic {secret}"), ("parts", "Bearer t0ken")]
        none = RegistryClient(RegistryAddress(registry.url, ca_file=authority.file), pause=lambda pause_s: None)
        with pytest.raises(Unreachable, match=r"cannot be reached: .*(certificate|alert|closed|reset|pipe|EOF)"):
            none.schema_by_id(1)
        stranger = RegistryAddress(registry.url, certificate_file=whole)
        with pytest.raises(Unreachable, match="certificate"):
            RegistryClient(stranger, pause=lambda pause_s: None).schema_by_id(1)
        (tmp_path / "text.pem").write_text("nothing")
        wrong = RegistryAddress(registry.url, ca_file=authority.file, certificate_file=tmp_path / "text.pem")
        with pytest.raises(
            SettingError, match=r"registry: the certificate .*text.pem cannot be used: .*; name a PEM file"
        ):
            RegistryClient(wrong).schema_by_id(1)
    finally:
        registry.server.shutdown()
        registry.server.server_close()


def test_our_own_registry_over_tls(tmp_path: Path) -> None:
    with testing.broker(tmp_path / "data", settings={"endpoints.schema_registry.tls.enabled": True}) as running:
        authority = running.data_dir / "certificate.pem"
        address = RegistryAddress(f"https://{running.endpoints['schema_registry']}", ca_file=authority)
        client = RegistryClient(address)
        assert client.schema_by_id(client.register("s-value", "AVRO", '"int"')).text == '"int"'


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, b"<html>", RemoteError), (200, b"[]", RemoteError), (200, b"{}", RemoteError), (503, b"", Unreachable),
        (404, b'{"error_code":40403,"message":"Schema not found"}', SchemaMissing), (404, b"", RemoteError),
        (403, b'{"error_code":40301,"message":"denied"}', RemoteError), (200, b"[" * 100_000, RemoteError),
        (200, b'{"schema":"x","references":[1]}', InvalidSchema), (302, b"", RemoteError),
    ],
)  # fmt: skip
def test_wrong_responses_are_errors(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]], status: int, body: bytes, kind: type[Exception]
) -> None:
    url, waiting, _ = responses
    waiting.append((status, body))
    with pytest.raises(kind, match="registry"):
        open_client(url).schema_by_id(1)


@pytest.mark.parametrize(
    "body", [b'{"message":"no Route matched"}', b'{"error_code":404,"message":"HTTP 404 Not Found"}']
)
def test_a_gateways_404_is_not_that_of_a_schema(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]], body: bytes
) -> None:
    # what Kong responds for an unknown path, and Confluent's registry below a wrong one: else good messages would go to
    # quarantine as schema_unknown
    url, waiting, _ = responses
    waiting.append((404, body))
    client = open_client(url)
    for _ in range(2):
        with pytest.raises(RemoteError, match="is this the URL of a registry") as raised:
            client.schema_by_id(1)
        assert not isinstance(raised.value, SchemaMissing)
        with pytest.raises(RemoteError, match="is this the URL of a registry"):
            client.identify(1)
    # a registry that has the other paths says so of a schema
    waiting[:] = [(404, body), (200, b'["AVRO"]')]
    with pytest.raises(SchemaMissing):
        client.schema_by_id(1)
    waiting[:] = [(404, body), (503, b"")]
    with pytest.raises(Unreachable):
        client.schema_by_id(2)


def test_secrets_are_read_by_reference(
    responses: tuple[str, list[tuple[int, bytes]], list[str | None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, waiting, seen = responses
    waiting.append((200, b'{"schema":"x"}'))
    file = tmp_path / "secret"
    file.write_text("s3cret\n")
    monkeypatch.setenv("REGISTRY_TOKEN", "t0ken")
    for address in (
        RegistryAddress(url, user="ann", password_file=file),
        RegistryAddress(url, token_variable="REGISTRY_TOKEN"),
    ):
        RegistryClient(address).schema_by_id(1)
    assert seen == ["Basic YW5uOnMzY3JldA==", "Bearer t0ken"]
    with pytest.raises(SettingError, match="a user without a password"):
        RegistryClient(RegistryAddress(url, user="ann")).schema_by_id(1)
    with pytest.raises(SettingError, match="invalid URL"):
        RegistryClient(RegistryAddress("registry:8081"))
