"""Clients that an honest one must not wait for: floods of small requests, costly filters, wrong passwords."""

from __future__ import annotations

import base64
import json
import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple

import httpx

from lading import testing
from tests.endpoints import current_frames as current
from tests.endpoints.identity import PASSWORDS, broker_with_users
from tests.endpoints.kafka_frames import request_frame
from tests.endpoints.nsq_client import sized
from tests.endpoints.websocket_frames import BINARY, CONT, HANDSHAKE, PING, encode_frame

STRANGERS: Final = 200
FLOOD_S: Final = 3.0
PIECE_BYTES: Final = 64 << 10
KEY: Final = b"\x01\x02\x03\x04"
WILDCARDS: Final = 2_000


class Flood(NamedTuple):
    """A connection says ``first`` once and ``again`` as often as it is taken."""

    endpoint: str
    first: bytes
    again: bytes


def _kafka(name: str, version: int, **fields: Any) -> bytes:
    request = request_frame(name, version, 7, **fields)
    return struct.pack(">i", len(request)) + request


_IDENTITY: Final = json.dumps(
    {"version": "1", "tcp_port": 1, "http_port": 2, "broadcast_address": "127.0.0.1"}
).encode()
_WEBSOCKET: Final = HANDSHAKE.encode() + b"\r\n"
_CHUNKED: Final = b"POST /pub?topic=flood HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
_HEADERS: Final = json.dumps({f"key-{number}": "value" for number in range(3_000)}).encode()
FLOODS: Final[Mapping[str, Flood]] = {
    "empty parts of WebSocket messages": Flood(
        "iggy_websocket",
        _WEBSOCKET + encode_frame(BINARY, b"", KEY, fin=False),
        encode_frame(CONT, b"", KEY, fin=False),
    ),
    "WebSocket pings": Flood("iggy_websocket", _WEBSOCKET, encode_frame(PING, b"", KEY)),
    "NSQ NOPs": Flood("nsqd_tcp", b"  V2", b"NOP\n"),
    "NSQ TOUCH of unknown ids": Flood("nsqd_tcp", b"  V2SUB flood c\n", b"TOUCH 0123456789abcdef\n"),
    "NSQ empty MPUBs": Flood("nsqd_tcp", b"  V2", sized(b"MPUB flood\n", bytes(4))),
    "NSQ messages of many headers": Flood(
        "nsqd_tcp",
        b"  V2",
        sized(b"PUB_EXT flood\n", struct.pack(">H", len(_HEADERS)) + _HEADERS + b"x"),
    ),
    "REGISTERs of nodes": Flood("nsqlookupd_tcp", b"  V1" + sized(b"IDENTIFY\n", _IDENTITY), b"REGISTER t c\n"),
    "nsqlookupd PINGs": Flood("nsqlookupd_tcp", b"  V1", b"PING\n"),
    "pipelined HTTP requests": Flood("nsqd_http", b"", b"GET /ping HTTP/1.1\r\nhost: a\r\n\r\n"),
    "HTTP bodies in chunks of a byte": Flood("nsqd_http", _CHUNKED, b"1\r\nx\r\n"),
    "Kafka ApiVersions": Flood("kafka", b"", _kafka("ApiVersions", 0)),
    "current Iggy pings": Flood("iggy_tcp", b"", current.request(current.READ, code=current.PING)),
    "Iggy pings": Flood("iggy_tcp", b"", struct.pack("<II", 4, 1)),
}


QUIC_CLIENTS: Final = 20
"""Each is a client in Python, which is busy with one or two: more would only wait for the bench."""
STREAMS_AT_ONCE: Final = 20
INITIALS: Final = 500
ENCRYPTED: Final = "iggy_tcp.encrypted"
"""A listener of Iggy with TLS; the honest clients have others."""
ENCRYPTED_LISTENER: Final = {
    "endpoints.iggy_tcp.listeners.encrypted.address": testing.FREE_PORT,
    "endpoints.iggy_tcp.listeners.encrypted.tls.enabled": True,
}
"""Settings of a broker that has it."""
_IGGY_PING: Final = struct.pack("<II", 4, 1)


class _TlsStranger:
    """A client of ``ENCRYPTED`` that has shaken hands, and its socket; what it sends is encrypted a piece at a time."""

    def __init__(self, address: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _trusting_context().wrap_bio(self._incoming, self._outgoing)
        self.socket = _connect(address, b"")
        self.socket.setblocking(True)
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(PIECE_BYTES))
        self.socket.sendall(self._outgoing.read())
        self.socket.setblocking(False)

    def encrypt(self, plain: bytes, record_bytes: int) -> bytes:
        """Return the records of ``plain``, each with so many bytes of it."""
        for at in range(0, len(plain), record_bytes):
            self._tls.write(plain[at : at + record_bytes])
        return self._outgoing.read()


def _trusting_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _flood_with_records(plain: bytes, record_bytes: int, broker: testing.BrokerProcess) -> None:
    """Send ``plain`` again and again over TLS from all strangers, in records of this size."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(STRANGERS):
            stranger = _TlsStranger(broker.endpoints[ENCRYPTED])
            stack.enter_context(stranger.socket)
            selector.register(stranger.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, (stranger, [b""]))
        until_s = time.monotonic() + FLOOD_S
        while time.monotonic() < until_s and selector.get_map():
            for key, events in selector.select(0.05):
                stranger, left = key.data
                try:
                    if events & selectors.EVENT_READ and not stranger.socket.recv(PIECE_BYTES):
                        raise ConnectionError
                    if events & selectors.EVENT_WRITE:
                        left[0] = left[0] or stranger.encrypt(plain, record_bytes)
                        left[0] = left[0][stranger.socket.send(left[0]) :]
                except BlockingIOError:
                    continue
                except OSError:
                    selector.unregister(stranger.socket)


def _flood_with_handshakes(broker: testing.BrokerProcess) -> None:
    """Begin handshakes of TLS: as soon as one was answered its stranger comes again."""
    outgoing = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        _trusting_context().wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
    hello, address = outgoing.read(), broker.endpoints[ENCRYPTED]
    until_s = time.monotonic() + FLOOD_S
    with selectors.DefaultSelector() as selector:
        for _ in range(STRANGERS):
            selector.register(_connect(address, hello), selectors.EVENT_READ)
        while time.monotonic() < until_s:
            for key, _ in selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                selector.unregister(key.fileobj)
                key.fileobj.close()
                selector.register(_connect(address, hello), selectors.EVENT_READ)
        for key in list(selector.get_map().values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()


def _flood_with_initials(broker: testing.BrokerProcess) -> None:
    """Send first datagrams of connections, each with a hello of TLS, and go on with none of them."""
    from tests.endpoints.quic_client import QuicClient

    datagrams = []
    for _ in range(INITIALS):
        client = QuicClient(broker.endpoints["iggy_quic"], connect=False)
        client.quic.connect(client.address, now=time.monotonic())
        datagrams += [data for data, _ in client.quic.datagrams_to_send(now=time.monotonic())]
        client.socket.close()
        address = client.address
    until_s = time.monotonic() + FLOOD_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        while time.monotonic() < until_s:
            for datagram in datagrams:
                stranger.sendto(datagram, address)


def _flood_with_datagrams(broker: testing.BrokerProcess) -> None:
    """Send datagrams that belong to no connection."""
    host, _, port = broker.endpoints["iggy_quic"].rpartition(":")
    short, long = b"\x40" + bytes(range(40)), b"\xc0\x00\x00\x00\x01\x08" + bytes(1_200)
    until_s = time.monotonic() + FLOOD_S
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        while time.monotonic() < until_s:
            for _ in range(100):
                stranger.sendto(short, (host, int(port)))
                stranger.sendto(long, (host, int(port)))


def _flood_with_streams(broker: testing.BrokerProcess) -> None:
    """Send a ping in each of many streams."""
    from tests.endpoints.quic_client import QuicClient

    clients = [QuicClient(broker.endpoints["iggy_quic"]) for _ in range(QUIC_CLIENTS)]
    until_s = time.monotonic() + FLOOD_S
    while time.monotonic() < until_s:
        for client in clients:
            for _ in range(STREAMS_AT_ONCE):
                client.send(_IGGY_PING)
            client.step(0)
    for client in clients:
        client.close()


ENCRYPTED_FLOODS: Final[Mapping[str, Callable[[testing.BrokerProcess], None]]] = {
    f"{STRANGERS} x handshakes of TLS": _flood_with_handshakes,
    f"{STRANGERS} x records of a byte over TLS": partial(_flood_with_records, bytes(2_000), 1),
    f"{STRANGERS} x Iggy pings over TLS": partial(_flood_with_records, _IGGY_PING * 4_000, 16 << 10),
    "QUIC datagrams of no connection": _flood_with_datagrams,
    "QUIC first datagrams": _flood_with_initials,
    f"{QUIC_CLIENTS} x pings in streams of QUIC": _flood_with_streams,
}


def flood_cases() -> Iterator[tuple[str, Callable[[testing.BrokerProcess], Any]]]:
    """Each flood by ``STRANGERS`` connections, and filters of one user; each wants a broker of its own.

    What the strangers had sent is in buffers when they are gone, and is worked through beside whatever comes next.
    """
    for name, flood in FLOODS.items():
        yield f"{STRANGERS} x {name}", partial(_flood_broker, flood)
    yield from ENCRYPTED_FLOODS.items()
    yield "six filters LIKE '%a%a...'", _filter


def _flood_broker(flood: Flood, broker: testing.BrokerProcess) -> None:
    _flood(broker.endpoints[flood.endpoint], flood)


def _flood(address: str, flood: Flood) -> None:
    piece = flood.again * (PIECE_BYTES // len(flood.again))
    until_s = time.monotonic() + FLOOD_S
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(STRANGERS):
            stranger = stack.enter_context(_connect(address, flood.first))
            selector.register(stranger, selectors.EVENT_READ | selectors.EVENT_WRITE, [piece])
        while time.monotonic() < until_s and selector.get_map():
            for key, events in selector.select(0.05):
                assert isinstance(key.fileobj, socket.socket)
                stranger, left = key.fileobj, key.data
                try:
                    if events & selectors.EVENT_READ and not stranger.recv(PIECE_BYTES):
                        raise ConnectionError
                    if events & selectors.EVENT_WRITE:
                        left[0] = left[0][stranger.send(left[0]) :] or piece
                except BlockingIOError:
                    continue
                except OSError:
                    # refused: another one comes
                    selector.unregister(stranger)
                    stranger.close()
                    stranger = stack.enter_context(_connect(address, flood.first))
                    selector.register(stranger, selectors.EVENT_READ | selectors.EVENT_WRITE, [piece])


def _connect(address: str, first: bytes) -> socket.socket:
    host, _, port = address.rpartition(":")
    stranger = socket.create_connection((host, int(port)), 60)
    stranger.sendall(first)
    stranger.setblocking(False)
    return stranger


def _filter(broker: testing.BrokerProcess) -> None:
    # enough of one message, whose key nearly matches
    with httpx.Client(base_url=f"http://{broker.endpoints['nsqd_http']}", timeout=60) as nsqd:
        for _ in range(20):
            nsqd.post("/pub", params={"topic": "filtered"}, content=b"a" * 100_000).raise_for_status()
    where = f"payload LIKE '%{'a%' * (WILDCARDS - 1)}b'"
    url = f"http://{broker.endpoints['admin']}/topics/default/filtered/0/batches"

    def ask(_: int) -> None:
        httpx.get(url, params={"offset": 0, "where": where}, timeout=300).raise_for_status()

    with ThreadPoolExecutor(6) as askers:
        list(askers.map(ask, range(6)))


def login_rows(directory: Path) -> Iterator[dict[str, Any]]:
    """The longest login by password while strangers show wrong ones, and beside a key server that drips."""
    with _DrippingServer() as url:
        settings = {"oauth.issuer": "https://login.example", "oauth.audience": "lading", "oauth.jwks_url": url}
        with broker_with_users(directory / "users", (), settings) as (broker, _):
            honest = httpx.Client(
                base_url=f"http://{broker.endpoints['admin']}", auth=("root", PASSWORDS["root"]), timeout=60
            )
            honest.get("/topics").raise_for_status()
            token = ".".join(
                base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
                for part in ({"alg": "ES256", "kid": "unknown"}, {"iss": "https://login.example"}, {})
            )
            wrong = b"Basic " + base64.b64encode(b"root:wrong")
            floods = {"wrong passwords": wrong, "tokens, and a key server that drips": b"Bearer " + token.encode()}
            for name, authorization in floods.items():
                request = b"GET /topics HTTP/1.1\r\nhost: a\r\nauthorization: " + authorization + b"\r\n\r\n"
                flood = Flood("admin", b"", request)
                strangers = Thread(target=_flood, args=(broker.endpoints["admin"], flood))
                strangers.start()
                waits = []
                while strangers.is_alive():
                    begun_s = time.perf_counter()
                    honest.get("/topics").raise_for_status()
                    waits.append(time.perf_counter() - begun_s)
                    time.sleep(0.01)
                yield {
                    "beside": f"{STRANGERS} x {name}",
                    "login ms": round(max(waits) * 1_000, 1),
                    "logins": len(waits),
                }


class _DrippingServer(ExitStack):
    """A key server that sends a byte now and then; its address."""

    def __enter__(self) -> str:  # type: ignore[override]
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with suppress(OSError):
                    while True:
                        self.wfile.write(b"x")
                        time.sleep(0.1)

            def log_message(self, *arguments: object) -> None:
                """Say nothing."""

        server = self.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        self.callback(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}/keys"
