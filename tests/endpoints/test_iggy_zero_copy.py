"""Iggy over TCP by the clients of crates 0.7 to 0.10: captured requests, headers across releases, bad requests."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import count

import pytest

import lading
from lading import testing
from lading.dialects.iggy.zero_copy import messages
from lading.dialects.iggy.zero_copy.layout import FORM_0_7, FORM_0_8, FORM_0_9, NO_CHECKSUM
from lading.dialects.registry import dialect, to_batch
from lading.testing import BrokerProcess
from tests.dialects.iggy_zero_copy import Header, captured_sends, indexed, message
from tests.dialects.test_iggy_releases import captured
from tests.endpoints.frames import Frames
from tests.endpoints.test_iggy_releases import (
    CREATE_STREAM,
    CREATE_TOPIC,
    LOGIN,
    NEVER,
    POLL,
    SEND,
    login,
    named,
    short,
)

FORMS = {"0.7.0": FORM_0_7, "0.8.0": FORM_0_8, "0.9.0": FORM_0_9, "0.10.0": FORM_0_9}
HEADERS: list[Header] = [(b"carrier", 2, b"UA"), (b"delay", 7, bytes(8)), (b"carrier2", 1, b"\xff\x00")]
_names = (f"zero{number}" for number in count(1))


class Client:
    """A connection of a client of one release."""

    def __init__(self, address: str, version: str) -> None:
        self.frames = Frames(address)
        self.form = FORMS[version]
        self.is_old = version == "0.7.0"
        assert self.frames.ask(LOGIN, login(version))[0] == 0

    def create(self, stream: str) -> None:
        number = struct.pack("<I", 0) if self.is_old else b""
        assert self.frames.ask(CREATE_STREAM, number + short(stream))[0] == 0
        topic = number + struct.pack("<IBQQB", 1, 1, NEVER, 0, 0) + short("topic")
        assert self.frames.ask(CREATE_TOPIC, named(stream) + topic)[0] == 0

    def body(self, stream: str, sent: bytes, messages_count: int) -> bytes:
        where = named(stream) + named("topic") + struct.pack("<BBI", 2, 4, 1 if self.is_old else 0)
        metadata = where + struct.pack("<I", messages_count)
        return struct.pack("<I", len(metadata)) + metadata + sent

    def send(self, stream: str, *payloads: bytes, headers: list[Header]) -> None:
        bare = self.form._replace(checksum=NO_CHECKSUM)
        sent, _ = indexed([message(0, payload, headers, form=bare, origin_us=77) for payload in payloads])
        assert self.frames.ask(SEND, self.body(stream, sent, len(payloads))) == (0, b"")

    def poll(self, stream: str) -> bytes:
        partition = struct.pack("<I", 1) if self.is_old else struct.pack("<BI", 1, 0)
        what = b"\1" + b"\1\4\1\0\0\0" + named(stream) + named("topic") + partition
        status, body = self.frames.ask(POLL, what + struct.pack("<BQIB", 1, 0, 100, 0))
        assert status == 0
        return body


@pytest.fixture
def open_client(broker: BrokerProcess) -> Callable[[str], Client]:
    return lambda version: Client(broker.endpoints["iggy_tcp"], version)


@pytest.mark.turns(3)
@pytest.mark.parametrize("version", ["0.5.0", "0.6.0", "0.7.0", "0.8.0"])
def test_the_captured_conversation_of_each_wheel(version: str) -> None:
    """As it was recorded: log in, ask for what is not there, create, send, poll; what it sent comes back."""
    requests = captured(f"apache-iggy_{version}")
    form = FORMS[{"0.5.0": "0.7.0", "0.6.0": "0.8.0"}.get(version, "0.9.0")]
    with testing.broker() as running:
        frames = Frames(running.endpoints["iggy_tcp"])
        order = ["ping", "login_user", "get_cluster_metadata", "get_stream", "create_stream", "create_topic"]
        for name in [*order, "get_topic", "send_messages"]:
            if name in requests:
                assert frames.ask(*requests[name])[0] == 0, name
        status, body = frames.ask(*requests["poll_messages"])
        frames.close()
    assert status == 0
    assert struct.unpack_from("<IQI", body) == (1, 1, 2)
    run, damaged = messages.read_polled(body, 16, form)
    assert damaged is None
    batch = to_batch(next(iter(dialect("iggy_zero_copy").decode(run))))
    assert batch.column("payload").to_pylist() == [b"hello", b"world"]
    # the time of sending stays: it is the only part of a captured message that nobody could guess
    sent = captured_sends()[version]
    at = len(sent) - 2 * (form.head_bytes + 5) + 40
    assert body[16 + 40 : 16 + 48] == sent[at : at + 8]


def test_each_release_gets_the_messages_of_the_others_in_its_own_form(open_client: Callable[[str], Client]) -> None:
    name = next(_names)
    open_client("0.9.0").create(name)
    clients = {version: open_client(version) for version in FORMS}
    for version, client in clients.items():
        client.send(name, version.encode(), headers=HEADERS)
    seen = []
    for client in clients.values():
        body = client.poll(name)
        run, damaged = messages.read_polled(body, 16, client.form)
        assert damaged is None
        batch = to_batch(next(iter(dialect("iggy_zero_copy").decode(run))))
        assert batch.column("payload").to_pylist() == [version.encode() for version in FORMS]
        for row in batch.to_pylist():
            assert [(h["key"].encode(), h["kind"], h["value"]) for h in row["headers"]] == HEADERS
        times = batch.column("timestamp").to_pylist()
        seen.append((batch.column("id").to_pylist(), times, run.region[slice(*run.chunks[0, :2])].tobytes()))
    assert all(each == seen[0] for each in seen)


def test_typed_keys_reach_releases_without_them_by_carrier(open_client: Callable[[str], Client]) -> None:
    name = next(_names)
    new, old = open_client("0.10.0"), open_client("0.8.0")
    new.create(name)
    headers: list[Header] = [(b"text", 2, b"v"), (struct.pack("<I", 7), 6, bytes(4), 11)]
    new.send(name, b"typed", headers=headers)
    run, damaged = messages.read_polled(old.poll(name), 16, old.form)
    assert damaged is None
    batch = to_batch(next(iter(dialect("iggy_zero_copy").decode(run))))
    assert [(h["key"], h["kind"], h["value"]) for h in batch.to_pylist()[0]["headers"]] == [
        ("text", 2, b"v"),
        ("\\k11:07000000", 6, bytes(4)),
    ]


def test_headers_go_to_native_readers_and_come_from_native_producers(
    open_client: Callable[[str], Client], broker: BrokerProcess
) -> None:
    name = next(_names)
    client = open_client("0.9.0")
    client.create(name)
    client.send(name, b"one", headers=HEADERS)
    with lading.Producer(broker.url) as producer:
        producer.send(f"{name}.topic", b"two", headers=[("carrier", "DL"), ("twice", 1), ("twice", 2)])
    found = list(lading.Consumer(broker.url, f"{name}.topic", end="latest"))
    assert [message_.payload for message_ in found] == [b"one", b"two"]
    assert [(h.key.encode(), h.kind, h.value) for h in found[0].headers] == HEADERS
    for version, form in FORMS.items():
        run, damaged = messages.read_polled(open_client(version).poll(name), 16, form)
        assert damaged is None
        batches = [to_batch(some) for some in dialect("iggy_zero_copy").decode(run)]
        assert [row["payload"] for batch in batches for row in batch.to_pylist()] == [b"one", b"two"]
        (last,) = [row["headers"] for batch in batches for row in batch.to_pylist()][1:]
        assert [h["key"] for h in last] == ["carrier", "twice", "twice"]


GOOD, _ = indexed([message(form=FORM_0_9._replace(checksum=NO_CHECKSUM))])


@pytest.mark.parametrize(
    ("cut", "status"),
    [
        (lambda body: body[:3], 3),
        (lambda body: b"\xff\xff\xff\xff" + body[4:], 3),
        (lambda body: b"\0\0\0\0" + body[4:], 3),
        (lambda body: body[:-1], 3),
        (lambda body: body + b"\0", 3),
    ],
)
def test_a_request_that_does_not_add_up_is_refused_and_the_connection_stays(
    open_client: Callable[[str], Client], cut: Callable[[bytes], bytes], status: int
) -> None:
    name = next(_names)
    client = open_client("0.9.0")
    client.create(name)
    body = client.body(name, GOOD, 1)
    assert client.frames.ask(SEND, cut(body)) == (status, b"")
    assert client.frames.ask(SEND, client.body(name, b"", 0)) == (4009, b"")
    assert client.frames.ask(SEND, client.body(name, GOOD, 1 << 31)) == (3, b"")
    assert client.frames.ask(SEND, body) == (0, b"")
