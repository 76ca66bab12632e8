"""When the client sent a message, by its own clock: across Iggy's generations, by Kafka clients, and as a column."""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest
from kafka import KafkaProducer

import lading
from lading.dialects.iggy.zero_copy.layout import NO_CHECKSUM
from lading.testing import BrokerProcess
from tests.dialects.iggy_current import batch, frame
from tests.dialects.iggy_zero_copy import Header, indexed, message
from tests.endpoints import kafka_python
from tests.endpoints.current_frames import LOGIN, POLL, READ, REGISTER, SEND, poll, sent
from tests.endpoints.test_iggy_current import Talk
from tests.endpoints.test_iggy_releases import CREATE_TOPIC, NEVER, named, short
from tests.endpoints.test_iggy_releases import SEND as SEND_CLASSIC
from tests.endpoints.test_iggy_zero_copy import FORMS, Client

SENT_US = 1_700_000_000_123_456
SENT = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=SENT_US)
HEADERS: list[Header] = [(b"carrier", 2, b"UA"), (b"delay", 7, bytes(8))]
_HEAD_BYTES = 16
_numbers = count(1)


@pytest.fixture
def stream(broker: BrokerProcess) -> str:
    name = f"origin{next(_numbers)}"
    Client(broker.endpoints["iggy_tcp"], "0.9.0").create(name)
    return name


def send_zero_copy(broker: BrokerProcess, stream: str, version: str, origin_us: int) -> None:
    client = Client(broker.endpoints["iggy_tcp"], version)
    bare = client.form._replace(checksum=NO_CHECKSUM)
    messages, _ = indexed([message(0, b"x", HEADERS, form=bare, origin_us=origin_us)])
    assert client.frames.ask(SEND_CLASSIC, client.body(stream, messages, 1)) == (0, b"")


def poll_zero_copy(broker: BrokerProcess, stream: str, version: str) -> list[int]:
    """The origin times of all messages, read from where the releases have them."""
    client = Client(broker.endpoints["iggy_tcp"], version)
    body, at, found = client.poll(stream), _HEAD_BYTES, []
    while at < len(body):
        origin_us, headers_size, payload_size = struct.unpack_from("<QII", body, at + 40)
        found.append(origin_us)
        at += client.form.head_bytes + headers_size + payload_size
    return found


def place(stream: str) -> bytes:
    return b"".join(b"\x02" + bytes([len(name)]) + name.encode() for name in (stream, "topic"))


def open_current(broker: BrokerProcess) -> Talk:
    talk = Talk(broker.endpoints["iggy_tcp"])
    assert talk.ask(REGISTER, LOGIN)[0] == 0
    return talk


def poll_current(broker: BrokerProcess, stream: str) -> list[int]:
    status, body = open_current(broker).ask(READ, poll(place(stream)), code=POLL)
    assert status == 0
    at, found = _HEAD_BYTES, []
    while at < len(body):
        origin_us, length = struct.unpack_from("<QQ", body, at + 24)
        here, end = at + 256, at + length
        while here < end:
            late, headers_size, payload_size = struct.unpack_from("<III", body, here + 28)
            found.append(origin_us + late)
            here += 48 + headers_size + payload_size
        at = end
    return found


def test_every_generation_with_the_field_gets_what_another_one_sent(broker: BrokerProcess, stream: str) -> None:
    talk = open_current(broker)
    assert talk.ask(SEND, sent(place(stream), batch([frame(b"x")], origin_us=SENT_US)))[0] == 0
    for number, version in enumerate(FORMS, 1):
        send_zero_copy(broker, stream, version, SENT_US + number)
    expected = [SENT_US + number for number in range(1 + len(FORMS))]
    assert poll_current(broker, stream) == expected
    for version in FORMS:
        assert poll_zero_copy(broker, stream, version) == expected


def test_a_kafka_client_that_passes_headers_on_keeps_it(broker: BrokerProcess, stream: str) -> None:
    send_zero_copy(broker, stream, "0.9.0", SENT_US)
    target = f"{stream}.copy"
    made = Client(broker.endpoints["iggy_tcp"], "0.9.0").frames
    assert made.ask(CREATE_TOPIC, named(stream) + struct.pack("<IBQQB", 1, 1, NEVER, 0, 0) + short("copy"))[0] == 0
    producer = KafkaProducer(bootstrap_servers=broker.endpoints["kafka"])
    try:
        with kafka_python.subscribed(broker, f"{stream}.topic") as consumer:
            record = kafka_python.next_record(broker, consumer)
        producer.send(target, record.value, headers=list(record.headers)).get(60)
    finally:
        producer.close()
    for url in (broker.url, f"kafka://{broker.endpoints['kafka']}"):
        for columns in ("origin_timestamp, payload", "origin_timestamp, headers"):
            assert lading.read_arrow(url, target, columns=columns)["origin_timestamp"].to_pylist() == [SENT]


def test_a_column_where_it_is_asked_for(broker: BrokerProcess, stream: str) -> None:
    send_zero_copy(broker, stream, "0.8.0", SENT_US)
    with lading.Producer(broker.url) as producer:
        producer.send(f"{stream}.topic", b"of another protocol")
    # as of 0.0.40, which is how Lading is read otherwise, a message that loses nothing else comes without
    iggy = f"iggy://{broker.endpoints['iggy_tcp']}?release=0.9"
    for url in (broker.url, iggy, f"kafka://{broker.endpoints['kafka']}"):
        table = lading.read_arrow(url, f"{stream}.topic", columns="offset, timestamp, origin_timestamp, carrier string")
        # where each message has the field, one without shows the time of receipt
        expected = [SENT, table["timestamp"][1].as_py() if url is iggy else None]
        assert table["origin_timestamp"].to_pylist() == expected, url
        assert "origin_timestamp" not in lading.read_arrow(url, f"{stream}.topic").schema.names
