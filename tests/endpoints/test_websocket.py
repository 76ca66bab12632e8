"""Iggy over WebSocket: a message is a request or a response, and what is neither has its close code (RFC 6455)."""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosedOK, InvalidStatus

from lading import testing
from tests.endpoints.frames import HEAD, Frames, message, payloads, poll, to_partition
from tests.endpoints.websocket_frames import (
    ACCEPT,
    BINARY,
    CLOSE,
    CONT,
    HANDSHAKE,
    PING,
    PONG,
    TEXT,
    RawWebSocket,
    WebSocketFrames,
)

IGGY_PING, ME, POLL, SEND = 1, 20, 100, 101
TOPIC = struct.pack("<BBI", 1, 4, 1) * 2
PINGED = HEAD.pack(4, IGGY_PING)
OK = bytes(8)
REQUEST_BYTES_MAX = 2 << 20

Connect = Callable[[], RawWebSocket]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """With small bounds, a topic, and a listener with TLS."""
    settings = {
        "endpoints.iggy_websocket.request_bytes_max": REQUEST_BYTES_MAX,
        "endpoints.iggy_websocket.listeners.secure.address": testing.FREE_PORT,
        "endpoints.iggy_websocket.listeners.secure.tls.enabled": True,
        "http.origins": "https://console.example",
        "connections.first_request_timeout_ms": 2_000,
    }
    with testing.broker(settings=settings) as running:
        frames = Frames(running.endpoints["iggy_tcp"])
        assert frames.ask(202, struct.pack("<I", 1) + b"stream") == (0, b"")
        assert frames.ask(302, TOPIC[:6] + struct.pack("<II", 1, 100) + b"topic") == (0, b"")
        frames.close()
        yield running


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Connect]:
    """Opens connections, closed at the end, when a bystander has been served too."""
    bystander = WebSocketFrames(broker.endpoints["iggy_websocket"])
    opened: list[RawWebSocket] = []

    def open_() -> RawWebSocket:
        opened.append(RawWebSocket(broker.endpoints["iggy_websocket"]))
        return opened[-1]

    yield open_
    assert bystander.ask(IGGY_PING) == (0, b"")
    bystander.close()
    for each in opened:
        each.close()


def test_messages_are_the_frames_of_tcp(broker: testing.BrokerProcess) -> None:
    client, tcp = WebSocketFrames(broker.endpoints["iggy_websocket"]), Frames(broker.endpoints["iggy_tcp"])
    assert client.ask(SEND, TOPIC + to_partition(1) + message(b"over ws")) == (0, b"")
    assert payloads(tcp.ask(POLL, poll(TOPIC))[1]) == payloads(client.ask(POLL, poll(TOPIC))[1]) == [b"over ws"]
    assert client.ask(9999) == tcp.ask(9999)
    _, me = client.ask(ME)
    assert struct.unpack_from("<IB", me)[1] == 4
    client.close()
    tcp.close()


def test_many_requests_have_a_message_each(broker: testing.BrokerProcess) -> None:
    client = WebSocketFrames(broker.endpoints["iggy_websocket"])
    for number in range(300):
        client.send(SEND, TOPIC + to_partition(2) + message(b"%d" % number))
    assert [client.answer() for _ in range(300)] == [(0, b"")] * 300
    assert payloads(client.ask(POLL, poll(TOPIC, partition=2))[1]) == [b"%d" % number for number in range(300)]
    client.close()


def test_long_messages_both_ways(broker: testing.BrokerProcess) -> None:
    client = WebSocketFrames(broker.endpoints["iggy_websocket"])
    head = TOPIC + to_partition(3)
    fits = b"x" * (REQUEST_BYTES_MAX - HEAD.size - len(head) - len(message(b"")))
    for _ in range(5):
        assert client.ask(SEND, head + message(fits)) == (0, b"")
    assert payloads(client.ask(POLL, poll(TOPIC, partition=3))[1]) == [fits] * 5
    client.close()


def test_encrypted(broker: testing.BrokerProcess) -> None:
    context = ssl.create_default_context(cafile=broker.data_dir / "certificate.pem")
    address = broker.endpoints["iggy_websocket.secure"]
    client = WebSocketFrames(address, "wss", ssl=context, server_hostname="localhost")
    large = b"y" * 1_000_000
    assert client.ask(SEND, TOPIC + to_partition(4) + message(large)) == (0, b"")
    assert payloads(client.ask(POLL, poll(TOPIC, partition=4))[1]) == [large]
    client.close()


def test_a_fragmented_request_with_pings_between(connect: Connect) -> None:
    raw = connect()
    assert ACCEPT in raw.head
    for at, byte in enumerate(PINGED):
        raw.frame(CONT if at else BINARY, bytes([byte]), fin=at == len(PINGED) - 1)
        raw.frame(PING, b"%d" % at)
    answers = [raw.receive_frame() for _ in range(len(PINGED) + 1)]
    assert (BINARY, OK) in answers
    assert [data for opcode, data in answers if opcode == PONG] == [b"%d" % at for at in range(len(PINGED))]


class Recorder:
    """A socket that keeps what is sent."""

    def __init__(self) -> None:
        self.written = bytearray()

    def sendall(self, data: bytes) -> None:
        self.written += data


def test_bytes_one_at_a_time(connect: Connect) -> None:
    raw = connect()
    recorder, plain = Recorder(), raw.socket
    raw.socket = recorder  # type: ignore[assignment]
    raw.frame(BINARY, PINGED)
    raw.socket = plain
    for byte in recorder.written:
        raw.socket.send(bytes([byte]))
    assert raw.receive_frame() == (BINARY, OK)


@pytest.mark.parametrize(
    ("send", "code"),
    [
        (lambda raw: raw.frame(BINARY, PINGED, masked=False), 1002),
        (lambda raw: raw.frame(TEXT, PINGED), 1003),
        (lambda raw: raw.frame(TEXT, b"\xff\xfe"), 1003),
        (lambda raw: raw.frame(TEXT, b"{", fin=False), 1003),
        (lambda raw: raw.frame(CONT, PINGED), 1002),
        (lambda raw: [raw.frame(BINARY, b"x", fin=False), raw.frame(BINARY, b"y")], 1002),
        (lambda raw: raw.frame(PING, b"x" * 126), 1002),
        (lambda raw: raw.frame(PING, b"x", fin=False), 1002),
        (lambda raw: raw.frame(0x3, b"x"), 1002),
        (lambda raw: raw.frame(BINARY | 0x40, PINGED), 1002),
        (lambda raw: raw.frame(BINARY, b""), 1007),
        (lambda raw: raw.frame(BINARY, PINGED + b"x"), 1007),
        (lambda raw: raw.frame(BINARY, PINGED * 2), 1007),
        (lambda raw: raw.frame(BINARY, b"\xff" * 100), 1007),
        (lambda raw: raw.frame(BINARY, b"x", claimed=REQUEST_BYTES_MAX + 1), 1009),
        (lambda raw: raw.frame(BINARY, b"x", claimed=(1 << 63) - 1), 1009),
        (
            lambda raw: [
                raw.frame(CONT if at else BINARY, b"x" * (1 << 16), fin=False)
                for at in range((REQUEST_BYTES_MAX >> 16) + 1)
            ],
            1009,
        ),
    ],
)
def test_what_is_no_request_has_its_close_code(
    connect: Connect, send: Callable[[RawWebSocket], object], code: int
) -> None:
    raw = connect()
    raw.frame(BINARY, PINGED)
    send(raw)
    assert raw.receive_frame() == (BINARY, OK), "what came before is answered first"
    assert raw.close_code() == code


def test_a_client_that_says_goodbye_is_answered_first(connect: Connect) -> None:
    raw = connect()
    for number in range(3):
        request = TOPIC + to_partition(5) + message(b"%03d" % number)
        raw.frame(BINARY, HEAD.pack(4 + len(request), SEND) + request)
    raw.frame(CLOSE, struct.pack("!H", 1000))
    raw.frame(BINARY, PINGED)
    assert [raw.receive_frame() for _ in range(3)] == [(BINARY, OK)] * 3
    assert raw.close_code() == 1000


def test_what_is_no_handshake_is_refused(broker: testing.BrokerProcess) -> None:
    address = broker.endpoints["iggy_websocket"]
    for lines, status in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n", b" 426 "),
        (HANDSHAKE.replace("Version: 13", "Version: 12"), b" 400 "),
        (HANDSHAKE.replace("GET", "POST"), b" 405 "),
        (HANDSHAKE + "Origin: https://evil.example\r\n", b" 403 "),
        (HANDSHAKE + "Origin: null\r\n", b" 403 "),
        (HANDSHAKE + "X: " + "x" * 100_000 + "\r\n", b" 431 "),
    ]:
        raw = RawWebSocket(address, lines)
        assert status in raw.head.split(b"\r\n")[0], raw.head
        raw.close()
    hello = b"\x16\x03\x01\x00\x05\x01" + b"x" * 100 + b"\n"
    for garbage in (HEAD.pack(4, IGGY_PING) + b"\r\n", hello, b"\0" * 50_000):
        raw = RawWebSocket(address, None)
        raw.socket.sendall(garbage)
        # an endless line has an answer too
        assert (head := raw.socket.recv(1000)) == b"" or b" 414 " in head
        raw.close()
    deadline = time.monotonic() + 10
    # lines are written by a thread of their own
    while "a TLS hello came to a plain port" not in (text := broker.log_file.read_text()):
        assert time.monotonic() < deadline, text
        time.sleep(0.02)


def test_pages_of_named_origins_may_connect(broker: testing.BrokerProcess) -> None:
    address = broker.endpoints["iggy_websocket"]
    client = WebSocketFrames(address, origin="https://console.example")
    assert client.ask(IGGY_PING) == (0, b"")
    client.close()
    with pytest.raises(InvalidStatus, match="403"):
        WebSocketFrames(address, origin="https://evil.example")


@pytest.mark.parametrize("rest", [b"a body that no frame begins with", b"\xff\xff\xff"])
def test_a_refusal_is_told_whatever_follows_the_head(broker: testing.BrokerProcess, rest: bytes) -> None:
    """In one read: the library takes the rest for frames as soon as it has it."""
    post = RawWebSocket(broker.endpoints["iggy_websocket"], None)
    post.socket.sendall(f"{HANDSHAKE.replace('GET', 'POST')}\r\n".encode() + rest)
    assert b" 405 " in post.receive_head()
    post.close()


def count_dropped(broker: testing.BrokerProcess, reason: str) -> float:
    """What the broker counts for this endpoint and reason."""
    page = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
    name = f'lading_dropped_total{{endpoint="iggy_websocket",reason="{reason}"}} '
    return sum(float(line.removeprefix(name)) for line in page.splitlines() if line.startswith(name))


def test_what_is_no_frame_right_behind_a_handshake_has_its_close_code(broker: testing.BrokerProcess) -> None:
    """In one read: the library would take it for frames before the handshake is answered, and stay deaf and open."""
    raw = RawWebSocket(broker.endpoints["iggy_websocket"], None)
    before = count_dropped(broker, "malformed")
    raw.socket.sendall(f"{HANDSHAKE}\r\n".encode() + b"\xff no frame")
    assert b" 101 " in raw.receive_head().split(b"\r\n")[0]
    assert raw.close_code() == 1002
    assert count_dropped(broker, "malformed") == before + 1
    raw.close()


def test_half_handshakes_and_half_frames_are_timed(broker: testing.BrokerProcess, connect: Connect) -> None:
    half = [RawWebSocket(broker.endpoints["iggy_websocket"], None) for _ in range(50)]
    for each in half:
        each.socket.sendall(HANDSHAKE[:60].encode())
    raw = connect()
    raw.frame(BINARY, b"x", claimed=1000)
    assert raw.closed()
    for each in half:
        assert each.closed()
        each.close()


def test_who_reads_no_responses_is_asked_no_more(broker: testing.BrokerProcess, connect: Connect) -> None:
    client = WebSocketFrames(broker.endpoints["iggy_websocket"])
    for _ in range(4):
        assert client.ask(SEND, TOPIC + to_partition(6) + message(b"x" * (1 << 20))) == (0, b"")
    client.close()
    raw = connect()
    request = poll(TOPIC, partition=6)
    for _ in range(30):
        raw.frame(BINARY, HEAD.pack(4 + len(request), POLL) + request)
        raw.frame(PING, b"x" * 125)
    for _ in range(60):
        opcode, data = raw.receive_frame()
        assert opcode == PONG or len(payloads(data[HEAD.size :])) == 4


def test_a_stop_says_going_away(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        client = WebSocketFrames(broker.endpoints["iggy_websocket"])
        assert client.ask(IGGY_PING) == (0, b"")
        assert broker.stop() == 0
        with pytest.raises(ConnectionClosedOK, match="1001"):
            client.answer()
