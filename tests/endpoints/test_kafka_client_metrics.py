"""Metrics that clients push (KIP-714): what they are asked for, what is taken, and what ``/metrics`` shows of it."""

from __future__ import annotations

import gzip
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest

from lading import testing
from lading.dialects.kafka.client_metrics import FIELDS_MAX, POINTS_MAX, ClientMetric, parse_client_metrics
from lading.endpoints.kafka.client_metrics import CLIENTS_MAX, PUSHES, TEXT_SIZE_MAX, VALUES_MAX, ClientMetrics
from lading.model.errors import MalformedMessage
from tests.endpoints.kafka_frames import KafkaFrames, request_frame

INVALID_REQUEST, UNSUPPORTED_COMPRESSION, INVALID_RECORD = 42, 76, 87
THROTTLED, UNKNOWN_SUBSCRIPTION, TOO_LARGE = 89, 117, 118
GZIP = 1


def sized(number: int, data: bytes) -> bytes:
    """A field of protobuf with its length in front."""
    size, out = len(data), bytearray([number << 3 | 2])
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes(out) + bytes([size]) + data


def number_point(value: float, **attributes: str) -> bytes:
    """A NumberDataPoint with a double."""
    held = b"".join(
        sized(7, sized(1, key.encode()) + sized(2, sized(1, text.encode()))) for key, text in attributes.items()
    )
    return sized(1, held + b"\x19" + bytes(8) + bytes([4 << 3 | 1]) + struct.pack("<d", value))


def metrics_data(*metrics: bytes) -> bytes:
    """MetricsData with one resource and one scope."""
    return sized(1, sized(2, b"".join(sized(2, one) for one in metrics)))


def gauge(name: str, value: float, **attributes: str) -> bytes:
    return sized(1, name.encode()) + sized(5, number_point(value, **attributes))


def delta(name: str, value: float) -> bytes:
    return sized(1, name.encode()) + sized(7, number_point(value) + b"\x10\x01\x18\x01")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerProcess]:
    settings = {
        "endpoints.kafka.client_metrics": "org.apache.kafka.",
        "endpoints.kafka.client_metrics_interval_ms": 100,
    }
    with testing.broker(data_dir=tmp_path_factory.mktemp("pushed") / "data", settings=settings) as running:
        yield running


@pytest.fixture
def frames(broker: testing.BrokerProcess) -> Iterator[KafkaFrames]:
    opened = KafkaFrames(broker.endpoints["kafka"])
    yield opened
    opened.close()


def push(frames: KafkaFrames, subscribed: Any, data: bytes, **more: Any) -> int:
    fields = {"client_instance_id": subscribed.client_instance_id, "subscription_id": subscribed.subscription_id}
    answer = frames.ask(
        "PushTelemetry", 0, **{**fields, "terminating": False, "compression_type": 0, "metrics": data, **more}
    )
    return int(answer.error_code)


def test_pushed_values_are_shown_by_client(broker: testing.BrokerProcess, frames: KafkaFrames) -> None:
    subscribed = frames.ask("GetTelemetrySubscriptions", 0, client_instance_id=UUID(int=0))
    assert subscribed.error_code == 0
    assert subscribed.client_instance_id not in (None, UUID(int=0))
    assert list(subscribed.requested_metrics) == ["org.apache.kafka."]
    assert (subscribed.push_interval_ms, list(subscribed.accepted_compression_types)) == (100, [4, 3, 1, 2])
    again = frames.ask("GetTelemetrySubscriptions", 0, client_instance_id=subscribed.client_instance_id)
    assert again.client_instance_id == subscribed.client_instance_id
    data = metrics_data(gauge("org.apache.kafka.lag", 7.5, topic="t", client="c"), delta("org.apache.kafka.sent", 2))
    assert push(frames, subscribed, gzip.compress(data), compression_type=GZIP) == 0
    assert push(frames, subscribed, data) == THROTTLED
    name = f'endpoint="kafka",instance="{subscribed.client_instance_id}"'
    text = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
    rows = [line for line in text.splitlines() if line.startswith("lading_kafka_client_metric{")]
    assert len(rows) == 2 and all(
        str(subscribed.client_instance_id) in row and 'client_id="frames"' in row for row in rows
    ), name
    assert any('attributes="client=c,topic=t"' in row and row.endswith(" 7.5") for row in rows)
    # the last push of a client that ends: it is not shown any more
    assert push(frames, subscribed, data, terminating=True) == 0
    text = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
    assert str(subscribed.client_instance_id) not in text


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"subscription_id": 1}, UNKNOWN_SUBSCRIPTION),
        ({"client_instance_id": UUID(int=0)}, INVALID_REQUEST),
        ({"compression_type": 9}, UNSUPPORTED_COMPRESSION),
        ({"compression_type": GZIP}, INVALID_RECORD),
        ({"metrics": b"\x0f"}, INVALID_RECORD),
        ({"metrics": bytes(2 << 20)}, TOO_LARGE),
        # a small push that would become 32 MiB
        ({"metrics": gzip.compress(bytes(32 << 20)), "compression_type": GZIP}, INVALID_RECORD),
    ],
)
def test_bad_pushes_are_refused(frames: KafkaFrames, more: dict[str, Any], code: int) -> None:
    subscribed = frames.ask("GetTelemetrySubscriptions", 0, client_instance_id=UUID(int=0))
    assert push(frames, subscribed, b"not gzip", **more) == code
    # the connection serves on
    assert frames.ask("GetTelemetrySubscriptions", 0, client_instance_id=UUID(int=0)).error_code == 0


def test_a_push_of_100_mb_closes_or_is_refused(frames: KafkaFrames) -> None:
    subscribed = frames.ask("GetTelemetrySubscriptions", 0, client_instance_id=UUID(int=0))
    try:
        assert push(frames, subscribed, bytes(99 << 20)) == TOO_LARGE
    except ConnectionError:
        pytest.fail("a request within request_bytes_max is answered")


def test_java_gauges_and_sums_are_read() -> None:
    data = metrics_data(gauge("g", -1.25), delta("d", 3), sized(1, b"other") + sized(9, b""))
    assert parse_client_metrics(memoryview(data)) == [
        ClientMetric("g", "", -1.25, False),
        ClientMetric("d", "", 3.0, True),
    ]
    for end in range(1, len(data)):
        with pytest.raises(MalformedMessage):
            parse_client_metrics(memoryview(data[:end]))
    many = metrics_data(*(gauge("g", number) for number in range(POINTS_MAX + 10)))
    assert len(parse_client_metrics(memoryview(many))) == POINTS_MAX


def test_memory_of_clients_is_bounded() -> None:
    clients = ClientMetrics("kafka")
    for number in range(CLIENTS_MAX + 5):
        instance = UUID(int=number + 1)
        clients.find(instance, "c")
        count = VALUES_MAX + 5 if number > CLIENTS_MAX else 2
        clients.add(instance, [ClientMetric(f"m{index}", "", 1.0, True) for index in range(count)])
        clients.add(instance, [ClientMetric("m0", "", 1.0, True)])
    rows = [row for row in clients.read() if row is not None]
    assert len({labels[2] for labels, _ in rows}) == CLIENTS_MAX
    assert len(rows) <= CLIENTS_MAX * VALUES_MAX
    assert rows[0] == (("kafka", "c", str(UUID(int=6)), "m0", ""), 2.0)


def test_rows_of_clients_are_bounded_in_bytes() -> None:
    """60 pushes of a client with an id of 30,000 bytes became 872 MiB of ``/metrics``, and as much of the broker."""
    clients = ClientMetrics("kafka")
    metrics = [ClientMetric(f"m{index}", "a" * 200, 1.0, False) for index in range(VALUES_MAX)]
    for number in range(200):
        instance = UUID(int=number + 1)
        clients.find(instance, "c" * 30_000)
        # the second push adds no rows
        clients.add(instance, metrics)
        clients.add(instance, metrics)
    rows = [labels for labels, _ in filter(None, clients.read())]
    size_bytes = sum(sum(map(len, labels)) for labels in rows)
    assert TEXT_SIZE_MAX / 2 < size_bytes < TEXT_SIZE_MAX
    # those that pushed last, each whole; one that is forgotten takes its share with it
    assert {labels[2] for labels in rows} == {str(UUID(int=200 - at)) for at in range(len(rows) // VALUES_MAX)}
    for number in range(200):
        clients.forget(UUID(int=number + 1))
    # a client that was forgotten while its push was decoded stays so
    clients.add(UUID(int=1), metrics)
    assert list(clients.read()) == []
    for number in range(100):
        clients.find(UUID(int=number + 1), "c")
        clients.add(UUID(int=number + 1), metrics[:1])
    assert len([row for row in clients.read() if row is not None]) == 100


def test_a_push_of_many_fields_without_a_value_is_refused() -> None:
    """A push of 1 MiB in empty sums took 2 s of a worker, and any client may send the next one under another id."""
    data = metrics_data(b"\x3a\x00" * FIELDS_MAX)
    with pytest.raises(MalformedMessage, match="at most 100000 fields"):
        parse_client_metrics(memoryview(data))
    attributes = {f"key-{number}": "value" for number in range(5)}
    honest = metrics_data(*(gauge("g", 1.0, **attributes) for _ in range(POINTS_MAX)))
    assert len(parse_client_metrics(memoryview(honest))) == POINTS_MAX


def test_a_number_without_end_is_refused_at_once() -> None:
    """A push of 1 MiB that is one number took 0.1 s for each time that its bytes were gone through."""
    long_number = b"\x10" + b"\x80" * (1 << 20) + b"\x01"
    for data in (long_number, metrics_data(sized(1, b"m") + sized(7, long_number))):
        with pytest.raises(MalformedMessage, match="more than 64 bits"):
            parse_client_metrics(memoryview(data))
    largest = metrics_data(sized(1, b"m") + b"\x10" + b"\xff" * 9 + b"\x01")
    assert parse_client_metrics(memoryview(largest)) == []


def test_pushes_under_many_ids_wait_apart_from_other_requests(broker: testing.BrokerProcess) -> None:
    """30 connections that push without end, each time under another id, had what needs a worker wait for 7 s."""
    data = metrics_data(*(gauge("g", 1.0, key="value") for _ in range(POINTS_MAX)))
    data = gzip.compress(data + sized(9, b"") * (FIELDS_MAX // 2))
    clients = [KafkaFrames(broker.endpoints["kafka"]) for _ in range(PUSHES.client_waiting_max + 40)]
    subscribed = clients[0].ask("GetTelemetrySubscriptions", 0, client_instance_id=UUID(int=0))
    frames = [
        request_frame(
            "PushTelemetry", 0, 7, client_instance_id=UUID(int=number + 1), terminating=True,
            subscription_id=subscribed.subscription_id, compression_type=GZIP, metrics=data,
        )
        for number in range(len(clients))
    ]  # fmt: skip
    for client, frame in zip(clients, frames, strict=True):
        client.send(frame)
    codes = {struct.unpack_from(">h", client.answer(), 9)[0] for client in clients}
    assert codes == {0, THROTTLED}
    for client in clients:
        client.close()


def test_confluent_pushes(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    """librdkafka 2.5 and newer has a consumer or producer push by itself, if a broker offers it."""
    confluent = pytest.importorskip("confluent_kafka")
    sender = confluent.Producer({"bootstrap.servers": broker.endpoints["kafka"], "client.id": "pushing"})
    sender.produce("pushed", b"x")
    assert sender.flush(20) == 0
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        sender.poll(0.1)
        text = httpx.get(f"http://{broker.endpoints['admin']}/metrics").text
        if 'client_id="pushing"' in text:
            break
    assert 'client_id="pushing"' in text
