"""``iggy://`` towards servers of later releases.

No real server of these can be had where tests run: Lading's own endpoint of each release stands in, behind a relay that
asks for a login first and says the version of its server, as the real ones do.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lading
from lading import testing
from lading.dialects.iggy.classic.releases import BY_NAME
from lading.model.batch import SCHEMA
from lading.model.errors import (
    ChecksumMismatch,
    LocalError,
    MalformedMessage,
    Reason,
    Refusal,
    RemoteError,
    SettingError,
)
from lading.tables.ingest import IngestSettings, ingest
from lading.tables.local import LocalExecutor
from lading.testing import BrokerProcess
from lading.transports.fitting import fill_missing_columns
from lading.transports.iggy.polled import parse_poll_response
from lading.transports.iggy.server_release import release_of_stats
from lading.transports.iggy.transport import IggyTransport
from lading.transports.interface import Position
from lading.transports.open import open_transport
from tests.dialects.iggy_classic import VECTORS

LOGIN, PING, STATS, POLL = 38, 1, 10, 100
HEAD = struct.Struct("<II")
SERVERS = {"0.8.0": "0.10", "0.7.0": "0.9", "0.6.0": "0.8", "0.5.0": "0.7", "0.4.219": "0.6"}
"""Which crate was published with a server."""
_names = (f"later{number}" for number in count(1))


def stats(version: str) -> bytes:
    """The figures as servers of 0.4 to 0.8 tell them: 108 bytes of numbers, five texts, and more."""
    numbers = struct.pack("<Iff8Q4IQ2I", 1, 0.5, 0.5, *range(8), *range(4), 9, 1, 0)
    texts = [b"host", b"Linux", b"6", b"6.1", version.encode()]
    more = struct.pack("<II", 12, 1) + struct.pack("<IIIQQf", 1, 1, 1, 2, 3, 0.5)
    return numbers + b"".join(struct.pack("<I", len(text)) + text for text in texts) + more


def take(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


class Relay:
    """Relays frames to Lading, whose clients say ``crate`` in their login, as a real server with users would."""

    def __init__(self, address: str, version: str, crate: str) -> None:
        host, _, port = address.rpartition(":")
        self._upstream = (host, int(port))
        self._version, self._crate = version, crate
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.flips = 0
        """Answers to polls that are given with a wrong last byte."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._relay, args=(connection,), daemon=True).start()

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream, 20) as server:
            is_known = False
            try:
                while True:
                    length, code = HEAD.unpack(take(client, HEAD.size))
                    payload = take(client, length - 4)
                    if code == LOGIN:
                        is_known = True
                        payload = (
                            b"\4iggy\4iggy" + struct.pack("<I", len(self._crate)) + self._crate.encode() + bytes(4)
                        )
                    elif not is_known and code != PING:
                        client.sendall(HEAD.pack(40, 0))
                        continue
                    elif code == STATS:
                        client.sendall(HEAD.pack(0, len(stats(self._version))) + stats(self._version))
                        continue
                    server.sendall(HEAD.pack(4 + len(payload), code) + payload)
                    status, size = HEAD.unpack(take(server, HEAD.size))
                    body = bytearray(take(server, size))
                    if code == POLL and self.flips and len(body) > 16:
                        self.flips -= 1
                        body[-1] ^= 1
                    client.sendall(HEAD.pack(status, size) + body)
            except ConnectionError:
                return

    def close(self) -> None:
        self._listener.close()


LISTENERS = {"0.0.30": "old", "0.1": "first"}
"""Releases whose clients cannot be told by what they send: their listeners have the setting."""


@pytest.fixture(scope="module")
def lading_() -> Iterator[BrokerProcess]:
    settings: dict[str, str] = {}
    for release, name in LISTENERS.items():
        settings |= {
            f"endpoints.iggy_tcp.listeners.{name}.address": testing.FREE_PORT,
            f"endpoints.iggy_tcp.listeners.{name}.release": release,
        }
    with testing.broker(settings=settings) as running:
        yield running


def url_of(running: BrokerProcess, release: str) -> str:
    listener = f".{LISTENERS[release]}" if release in LISTENERS else ""
    return f"iggy://{running.endpoints['iggy_tcp' + listener]}?release={release}"


@pytest.fixture
def relay(lading_: BrokerProcess, request: pytest.FixtureRequest) -> Iterator[Relay]:
    version = request.param
    made = Relay(lading_.endpoints["iggy_tcp"], version, f"{SERVERS[version]}.0" if version != "0.4.219" else "0.6.202")
    yield made
    made.close()


HEADERS = [{"key": "carrier", "kind": 2, "value": b"UA"}, {"key": "delay", "kind": 7, "value": bytes(8)}]


def batch(*payloads: bytes) -> pa.RecordBatch:
    rows = [{"headers": HEADERS, "payload": payload, "id": bytes([n + 1]) * 16} for n, payload in enumerate(payloads)]
    schema = pa.schema([SCHEMA.field(name) for name in ("headers", "payload", "id")])
    return fill_missing_columns(pa.RecordBatch.from_pylist(rows, schema=schema))


def read(transport: IggyTransport, name: str, partition: int = 0, offset: int = 0) -> list[tuple[object, ...]]:
    return [
        row
        for part in transport.fetch(name, partition, offset).decode()
        for row in zip(
            *(part.columns[field].to_pylist() for field in ("offset", "id", "headers", "payload")), strict=True
        )
    ]


@pytest.mark.turns(3)
@pytest.mark.parametrize("relay", SERVERS, indirect=True)
def test_the_release_is_found_and_messages_go_there_and_back(relay: Relay) -> None:
    transport = IggyTransport(f"iggy://127.0.0.1:{relay.port}", timeout_s=20)
    name = f"{next(_names)}.topic"
    assert len(transport.create_topic(name, 2).partitions) == 2
    assert transport.send(name, 1, batch(b"one", b"two")).count == 2
    want = [(n, bytes([n + 1]) * 16, HEADERS, payload) for n, payload in enumerate((b"one", b"two"))]
    assert read(transport, name, 1) == want
    meta = transport.topic(name)
    assert [(each.number, each.first_offset, each.end_offset) for each in meta.partitions] == [(0, 0, 0), (1, 0, 2)]
    assert transport.send(name, None, batch(b"any")).count == 1
    assert name in [each.name for each in transport.topics()]
    with pytest.raises(LocalError, match="does not exist"):
        transport.topic(f"{name}s")
    check_group(transport, name)
    transport.close()
    # a new connection logs in by itself
    assert read(transport, name, 1) == want
    transport.close()


RELEASED = [*BY_NAME, "0.11"]


@pytest.mark.parametrize("release", RELEASED)
def test_a_release_that_is_named_is_spoken_at_once(lading_: BrokerProcess, release: str) -> None:
    transport = open_transport(url_of(lading_, release), timeout_s=20)
    assert isinstance(transport, IggyTransport)
    name = f"{next(_names)}.topic"
    transport.create_topic(name, 2)
    transport.send(name, 1, batch(b"one", b"two"))
    assert read(transport, name, 1)[0] == (0, b"\1" * 16, HEADERS, b"one")
    check_group(transport, name)
    transport.close()


@pytest.mark.parametrize("release", RELEASED)
def test_who_is_not_told_states_gets_available_messages(lading_: BrokerProcess, release: str) -> None:
    transport = open_transport(url_of(lading_, release), timeout_s=20)
    assert isinstance(transport, IggyTransport)
    name = f"{next(_names)}.topic"
    transport.create_topic(name)
    transport.send(name, 0, batch(b"one", b"two", b"three"))
    lading.set_state(lading_.url, name, "poisoned", where="offset = 1")
    parts = list(transport.fetch(name, 0, 0).decode(states="all"))
    offsets, states = (
        [value for part in parts for value in part.columns[field].to_pylist()] for field in ("offset", "state")
    )
    tells_states = release in ("0.0.40", "0.1", "0.2", "0.4", "0.5", "0.6", "0.6.60")
    assert offsets == ([0, 1, 2] if tells_states else [0, 2])
    assert states == ([1, 20, 1] if tells_states else [1, 1])
    transport.close()


def check_group(transport: IggyTransport, name: str) -> None:
    """Two members share the topic; a position of partition 1, which has messages, is the group's."""
    one = transport.join("ops", [name])
    assert one.partitions == [(name, 0), (name, 1)]
    assert one.position(name, 1) is None
    one.store(name, 1, Position(1))
    assert one.position(name, 1) == Position(1)
    one.store(name, 1, Position(2))
    two = transport.join("ops", [name])
    assert two.position(name, 1) == Position(2)
    assert two.position(name, 0) is None
    assert one.heartbeat()
    assert sorted(one.partitions + two.partitions) == [(name, 0), (name, 1)]
    (lost,) = two.partitions
    with pytest.raises(Refusal) as raised:
        one.store(*lost, Position(1))
    assert raised.value.reason is Reason.STALE_GENERATION
    one.leave()
    assert two.heartbeat()
    assert two.partitions == [(name, 0), (name, 1)]
    two.leave()


@pytest.mark.parametrize("release", ["0.0.30", "0.6.60", "0.10", "0.11"])
def test_a_topic_becomes_a_table(lading_: BrokerProcess, release: str, tmp_path: Path) -> None:
    url, name = url_of(lading_, release), f"{next(_names)}.topic"
    producer = lading.Producer(url)
    producer.transport.create_topic(name)
    for number in range(20):
        producer.send(name, b"%d" % number, headers={"carrier": "UA", "delay": number})
    producer.close()
    group = lading.Consumer(url, name, group="tables", timeout_s=0)
    assert [message.payload for message in group] == [b"%d" % number for number in range(20)]
    group.close()
    executor = LocalExecutor(1)
    try:
        report = ingest(
            executor, url, name, tmp_path / "table", IngestSettings(columns="offset, carrier string, delay long")
        )
    finally:
        executor.close()
    assert report.rows == 20
    table = pq.read_table(tmp_path / "table").sort_by("offset")
    assert table.column("delay").to_pylist() == list(range(20))
    assert set(table.column("carrier").to_pylist()) == {"UA"}


def test_messages_of_0_0_30_as_they_were_recorded() -> None:
    vectors = {row["name"]: row for row in json.loads((VECTORS / "iggy_classic_vectors.json").read_text())}
    old, later = (bytes.fromhex(vectors[f"A.message.polled.{name}"]["hex"]) for name in ("0.0.30", "0.0.40"))
    body = bytearray(struct.pack("<I", 1) + old)
    run = parse_poll_response(body, BY_NAME["0.0.30"]).run
    assert run.region.tobytes()[4:] == later
    for end in range(5, len(body)):
        with pytest.raises(MalformedMessage):
            parse_poll_response(body[:end], BY_NAME["0.0.30"])


@pytest.mark.parametrize("relay", ["0.5.0", "0.6.0", "0.8.0"], indirect=True)
def test_a_wrong_checksum_is_asked_for_again_once(relay: Relay) -> None:
    transport = IggyTransport(f"iggy://127.0.0.1:{relay.port}", timeout_s=20)
    name = f"{next(_names)}.topic"
    transport.create_topic(name)
    transport.send(name, 0, batch(b"one", b"two"))
    relay.flips = 1
    assert [row[3] for row in read(transport, name)] == [b"one", b"two"]
    relay.flips = 2
    with pytest.raises(ChecksumMismatch, match="offset 1:"):
        read(transport, name)
    transport.close()


def test_servers_say_which_release_they_are() -> None:
    for version, crate in SERVERS.items():
        found = release_of_stats(stats(version))
        assert found is not None and found.name == crate
    assert release_of_stats(stats("0.99.0")) is None
    # before 0.5 of the crate no version was told
    older = release_of_stats(stats("0.5.0")[:108] + b"".join(struct.pack("<I", 1) + b"x" for _ in range(4)))
    assert older is not None and older.name == "0.4"


def test_a_release_that_cannot_be_read_is_refused_by_name() -> None:
    for release in ("0.12", "latest", ""):
        with pytest.raises(SettingError, match=r"there are 0\.0\.30, 0\.0\.40"):
            IggyTransport("iggy://127.0.0.1:1", release=release)


class PatientRelay(Relay):
    """Waits for 256 bytes before it does anything, as a server of the current generation does."""

    def _relay(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._upstream, 20) as server:
            try:
                while True:
                    head = take(client, 256)
                    server.sendall(head + take(client, struct.unpack_from("<I", head, 48)[0] - 256))
                    is_poll = struct.unpack_from("<I", head, 196)[0] == POLL
                    head = take(server, 256)
                    body = bytearray(take(server, struct.unpack_from("<I", head, 48)[0] - 256))
                    if is_poll and self.flips and len(body) > 16:
                        self.flips -= 1
                        body[-1] ^= 1
                    client.sendall(head + body)
            except ConnectionError:
                return


def test_the_current_generation_is_found_by_its_silence(
    lading_: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lading.transports.iggy.socket.PROBE_S", 0.2)
    relay = PatientRelay(lading_.endpoints["iggy_tcp"], "", "")
    transport = IggyTransport(f"iggy://127.0.0.1:{relay.port}", timeout_s=20)
    name = f"{next(_names)}.topic"
    assert len(transport.create_topic(name, 2).partitions) == 2
    transport.send(name, 1, batch(b"one", b"two"))
    transport.send(name, 1, batch(b"three"))
    assert [row[::3] for row in read(transport, name, 1)] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert [row[2] for row in read(transport, name, 1)] == [HEADERS] * 3
    assert [(each.number, each.first_offset, each.end_offset) for each in transport.topic(name).partitions] == [
        (0, 0, 0),
        (1, 0, 3),
    ]
    # from the middle of a batch, which keeps its base offset (iggy-current.md N4)
    assert [row[::3] for row in read(transport, name, 1, 1)] == [(1, b"two"), (2, b"three")]
    assert name in [each.name for each in transport.topics()]
    with pytest.raises(LocalError, match="does not exist"):
        transport.topic(f"{name}s")
    transport.close()
    assert len(read(transport, name, 1)) == 3
    member = transport.join("ops", [name])
    assert member.partitions == [(name, 0), (name, 1)]
    member.leave()
    relay.flips = 1
    assert len(read(transport, name, 1)) == 3
    relay.flips = 2
    with pytest.raises(ChecksumMismatch, match="offset 2:"):
        read(transport, name, 1)
    transport.close()
    relay.close()


def test_a_server_that_says_no_release_must_be_named(lading_: BrokerProcess) -> None:
    relay = Relay(lading_.endpoints["iggy_tcp"], "1.0.0", "0.10.0")
    transport = IggyTransport(f"iggy://127.0.0.1:{relay.port}", timeout_s=20)
    with pytest.raises(RemoteError, match="name it by the option release"):
        transport.topics()
    transport.close()
    relay.close()
