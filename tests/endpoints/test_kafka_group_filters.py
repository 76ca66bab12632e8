"""Filters of Kafka's groups as unmodified clients see them: what they get, where they are, and what it costs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]
from kafka import KafkaConsumer
from kafka.structs import TopicPartition

from lading import testing
from lading.model.errors import LadingError
from lading.transports.lading.transport import LadingTransport
from tests.endpoints.kafka_frames import KafkaFrames

COUNT = 5_000
SELECTED = list(range(0, COUNT, 100))
WHERE = "tenant = 'a'"


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: testing.BrokerProcess) -> Iterator[LadingTransport]:
    transport = LadingTransport(broker.url)
    yield transport
    transport.close()


@pytest.fixture(scope="module")
def topic(broker: testing.BrokerProcess) -> str:
    producer = Producer({"bootstrap.servers": broker.endpoints["kafka"], "linger.ms": 20})
    for number in range(COUNT):
        tenant = b"a" if number % 100 == 0 else b"b"
        producer.produce("orders", b"%d" % number + b"x" * 100, partition=0, headers=[("tenant", tenant)])
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(30) == 0
    return "orders"


def read(broker: testing.BrokerProcess, topic: str, group: str, client_id: str, count: int, **more: Any) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": broker.endpoints["kafka"], "group.id": group, "client.id": client_id,
            "auto.offset.reset": "earliest", **more,
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    got: list[int] = []
    end_s = time.monotonic() + 30
    while len(got) < count and time.monotonic() < end_s:
        polled: list[Any] = consumer.consume(1_000, 0.2)
        for message in polled:
            assert message.error() is None
            assert dict(message.headers())["tenant"] == (b"a" if message.offset() % 100 == 0 else b"b")
            assert message.value() == b"%d" % message.offset() + b"x" * 100
            got.append(message.offset())
    # nothing more may follow
    late: list[Any] = consumer.consume(1_000, 0.3)
    got += [message.offset() for message in late]
    consumer.close()
    return got


@pytest.mark.parametrize(("protocol", "client_id"), [("classic", "claimed"), ("consumer", "consumer-late-1")])
def test_a_filter_takes_no_client_of_a_group_that_runs(
    broker: testing.BrokerProcess, admin: LadingTransport, topic: str, protocol: str, client_id: str
) -> None:
    """It had joined before, and its positions moved past what the filter left out until it committed them."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.endpoints["kafka"], "group.id": "early", "client.id": client_id,
            "group.protocol": protocol, "auto.offset.reset": "earliest",
        }
    )  # fmt: skip
    consumer.subscribe([topic])
    assert consumer.consume(1, 30)
    with pytest.raises(LadingError, match=f"'{client_id}' is that of a member of group 'early'"):
        admin.set_group_filter("kafka", "late", WHERE, ["claimed"])
    consumer.close()
    admin.set_group_filter("kafka", "late", WHERE, ["claimed"])
    admin.remove_group_filter("kafka", "late")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_members_get_what_matches_and_no_other_group_is_touched(
    broker: testing.BrokerProcess, admin: LadingTransport, topic: str, protocol: str
) -> None:
    group, more = f"librdkafka-{protocol}", {"group.protocol": protocol}
    admin.set_group_filter("kafka", group, WHERE, [])
    assert read(broker, topic, group, group, len(SELECTED), **more) == SELECTED
    shown = admin.group("kafka", group)
    assert (shown["filter"]["where"], shown["filter"]["headers"], shown["partitions"][0]["lag"]) == (
        WHERE, ["tenant"], COUNT - SELECTED[-1] - 1,
    )  # fmt: skip
    assert read(broker, topic, f"{group}-all", "somebody", COUNT, **more) == list(range(COUNT))
    admin.remove_group_filter("kafka", group)
    assert "filter" not in admin.group("kafka", group)


def test_the_position_of_a_consumer_moves_past_what_does_not_match(
    broker: testing.BrokerProcess, admin: LadingTransport, topic: str
) -> None:
    admin.set_group_filter("kafka", "python", WHERE, [])
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.endpoints["kafka"], group_id="python", client_id="python",
        auto_offset_reset="earliest", enable_auto_commit=False,
    )  # fmt: skip
    got: list[int] = []
    end_s = time.monotonic() + 30
    place = TopicPartition(topic, 0)
    while time.monotonic() < end_s and (len(got) < len(SELECTED) or consumer.position(place) < COUNT):
        for records in consumer.poll(200).values():
            got += [record.offset for record in records]
    assert (got, consumer.position(place)) == (SELECTED, COUNT)
    consumer.commit()
    (progress,) = admin.group("kafka", "python")["partitions"]
    assert (progress["position"], progress["lag"]) == (COUNT, 0)
    assert admin.group("kafka", "python")["filter"]["unfiltered_members"] == []
    consumer.close()


def measure_fetch(broker: testing.BrokerProcess, topic: str) -> int:
    """Return the bytes of a Fetch of the whole topic by the client.id ``frames``."""
    place = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1,
        "log_start_offset": -1, "partition_max_bytes": 100 << 20,
    }  # fmt: skip
    client = KafkaFrames(broker.endpoints["kafka"])
    frame = client.request(
        "Fetch", 11, replica_id=-1, max_wait_ms=200, min_bytes=1 << 30, max_bytes=100 << 20, isolation_level=0,
        session_id=0, session_epoch=-1, topics=[{"topic": topic, "partitions": [place]}], forgotten_topics_data=[],
        rack_id="",
    )  # fmt: skip
    client.send(frame)
    size_bytes = len(client.answer())
    client.close()
    return size_bytes


def test_one_percent_costs_less_than_five_percent_of_the_bytes(
    broker: testing.BrokerProcess, admin: LadingTransport, topic: str
) -> None:
    whole = measure_fetch(broker, topic)
    admin.set_group_filter("kafka", "frames", WHERE, [])
    some = measure_fetch(broker, topic)
    admin.remove_group_filter("kafka", "frames")
    assert whole > COUNT * 100
    assert len(SELECTED) * 100 < some <= whole * 0.05


def test_a_share_group_of_one_percent(broker: testing.BrokerProcess, admin: LadingTransport, topic: str) -> None:
    admin.set_group_filter("kafka", "share", WHERE, [])
    client = AdminClient({"bootstrap.servers": broker.endpoints["kafka"]})
    resource = ConfigResource(ConfigResource.Type.GROUP, "share", {"share.auto.offset.reset": "earliest"})
    for done in client.alter_configs([resource]).values():
        done.result(10)
    consumer = ShareConsumer({"bootstrap.servers": broker.endpoints["kafka"], "group.id": "share"})
    consumer.subscribe([topic])
    got: list[int] = []
    end_s = time.monotonic() + 30
    while len(got) < len(SELECTED) and time.monotonic() < end_s:
        polled: Any = consumer.poll(0.5)
        got += [message.offset() for message in polled]
    consumer.close()
    assert sorted(got) == SELECTED
