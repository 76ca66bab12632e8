"""Gateways: `lading serve --store kafka://` over a real Apache Kafka, with clients nobody here wrote on both sides."""

from __future__ import annotations

import os
import signal
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import lading
from lading import testing
from lading.kafka_log.positions import CURRENT_S
from lading.model.errors import LadingError, LocalError, RemoteError
from lading.testing import BrokerProcess
from lading.transports.fitting import fill_missing_columns
from lading.transports.interface import Transport
from lading.transports.open import open_transport
from tests.interop.iggy_current import CurrentClient, Header
from tests.interop.kafka_broker import PASSWORD, USER, RunningKafka
from tests.interop.shared_kafka import PROCESS
from tests.interop.store_gateways import open_clients, wait_until

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True, scope="module"),
]

EVERY_KIND: list[Header] = [
    (2, b"a raw", 1, b"\x00\xff"),
    (2, b"b string", 2, "grüße".encode()),
    (2, b"c bool", 3, b"\x01"),
    (2, b"d int8", 4, b"\x80"),
    (2, b"e int128", 8, (-5).to_bytes(16, "little", signed=True)),
    (2, b"f uint64", 12, (1 << 63).to_bytes(8, "little")),
    (2, b"g float32", 14, struct.pack("<f", 0.5)),
    (2, b"h float64", 15, struct.pack("<d", -0.1)),
    (12, (7).to_bytes(8, "little"), 2, b"a key that is a number"),
]
FIRST: tuple[str, int] = ("partition_id", 0)
_names = (f"{PROCESS}store{number}" for number in count(1))


@pytest.fixture(scope="module")
def clients(gateways: list[BrokerProcess]) -> Iterator[list[CurrentClient]]:
    """The published package apache-iggy 0.9.0, one at each gateway."""
    with open_clients(gateways) as opened:
        yield opened


@pytest.fixture
def stream(clients: list[CurrentClient]) -> str:
    """A stream with a topic of two partitions, made through the first gateway and known to both."""
    name = next(_names)
    clients[0].call("create_stream", name)
    clients[0].call("create_topic", name, "topic", 2)
    wait_until(lambda: clients[1].call("get_topic", name, "topic") is not None)
    return name


def poll_all(client: CurrentClient, stream: str, expected: int) -> list[dict[str, Any]]:
    """Poll until so many messages are there: the other gateway sees them a moment later."""
    found: list[dict[str, Any]] = []

    def have_all() -> bool:
        found[:] = client.poll(stream, "topic")
        return len(found) >= expected

    wait_until(have_all)
    return found


def consume(kafka: RunningKafka, topic: str, wanted: int) -> list[Any]:
    """What a plain Kafka consumer gets from the cluster itself."""
    consumer = Consumer(
        {"bootstrap.servers": kafka.address, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        found: list[Any] = []
        deadline = time.monotonic() + 30
        while len(found) < wanted and time.monotonic() < deadline:
            if (message := consumer.poll(0.2)) is not None:
                found.append(message)
        return found
    finally:
        consumer.close()


def test_messages_of_iggy_come_back_exact_through_both_gateways(
    clients: list[CurrentClient], stream: str, kafka: RunningKafka
) -> None:
    messages = [(b"one", EVERY_KIND, 1), (b"two", [], (1 << 128) - 1), (b"three", EVERY_KIND[:1], None)]
    assert clients[0].send(stream, "topic", FIRST, messages)[0][2:] == [0, 0]
    # acknowledged is readable, at once here
    polled = clients[0].poll(stream, "topic")
    assert [(one["offset"], one["payload"]) for one in polled] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert [one["id"] for one in polled[:2]] == [1, (1 << 128) - 1]
    assert sorted(polled[0]["headers"]) == sorted(EVERY_KIND)
    assert polled[2]["headers"] == EVERY_KIND[:1]
    assert polled[0]["timestamp"] - polled[0]["origin_timestamp"] < 60_000_000
    assert poll_all(clients[1], stream, 3) == polled
    # the cluster has one record a message, with its text as text
    records = consume(kafka, f"{stream}.topic", 3)
    assert [(one.offset(), one.value()) for one in records] == [(0, b"one"), (1, b"two"), (2, b"three")]
    assert dict(records[0].headers())["b string"] == "grüße".encode()


def test_records_of_a_plain_producer_are_polled_by_iggy(
    clients: list[CurrentClient], stream: str, kafka: RunningKafka
) -> None:
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(3):
        producer.produce(f"{stream}.topic", b"%d" % number, partition=0, headers=[("carrier", b"UA"), ("n", b"\x00")])
    assert producer.flush(30) == 0
    for client in clients:
        polled = poll_all(client, stream, 3)
        assert [(one["offset"], one["payload"]) for one in polled] == [(0, b"0"), (1, b"1"), (2, b"2")]
        assert polled[0]["headers"] == [(2, b"carrier", 1, b"UA"), (2, b"n", 1, b"\x00")]


def test_a_topic_that_kafka_created_is_everybodys(
    clients: list[CurrentClient], gateways: list[BrokerProcess], kafka: RunningKafka
) -> None:
    name = next(_names)
    with lading.Admin(kafka.url) as cluster:
        cluster.create_topic(name, partitions=3)
    for client, gateway in zip(clients, gateways, strict=True):
        wait_until(lambda client=client: client.call("get_topic", "default", name) is not None)
        with lading.Admin(gateway.url) as native:
            assert [len(one.partitions) for one in native.list_topics() if one.name == name] == [3]
    ids = {client.call("get_topic", "default", name)["id"] for client in clients}
    assert len(ids) == 1


def test_native_messages_are_exact_and_sent_once(gateways: list[BrokerProcess]) -> None:
    name = next(_names)
    headers: list[Any] = [("carrier", "UA"), ("delay", lading.u16(12)), ("carrier", "LH"), ("via", None)]
    with lading.Admin(gateways[0].url) as admin:
        admin.create_topic(name)
    with lading.Producer(gateways[0].url) as producer:
        producer.send(name, b"payload", headers=headers)
    for gateway in gateways:

        def read(gateway: BrokerProcess = gateway) -> list[dict[str, Any]]:
            try:
                return lading.read_arrow(gateway.url, name).to_pylist()
            except lading.model.errors.LocalError:
                return []

        wait_until(lambda read=read: len(read()) == 1)
        (row,) = read()
        assert (row["offset"], row["payload"]) == (0, b"payload")
        assert [(one["key"], one["kind"]) for one in row["headers"]] == [
            ("carrier", 2), ("delay", 10), ("carrier", 2), ("via", 1),
        ]  # fmt: skip


def test_positions_are_offsets_of_the_cluster_for_every_gateway(
    clients: list[CurrentClient], gateways: list[BrokerProcess], stream: str, kafka: RunningKafka
) -> None:
    https = [httpx.Client(base_url=f"http://{one.endpoints['iggy_http']}", timeout=60) for one in gateways]
    path = f"/streams/{stream}/topics/topic/consumer-offsets"
    clients[0].send(stream, "topic", FIRST, [(b"%d" % number, [], None) for number in range(10)])
    consumer, group = ("Single", 7), f"iggy.{stream}.topic.consumer/7"

    def poll(client: CurrentClient, count: int) -> list[int]:
        found = client.poll(stream, "topic", start=("Next",), count=count, consumer=consumer, commit=True)
        return [one["offset"] for one in found]

    wait_until(lambda: len(clients[1].poll(stream, "topic")) == 10)
    assert poll(clients[0], 3) == [0, 1, 2]
    # the gateway itself goes on at once, without a look at the cluster
    assert poll(clients[0], 1) == [3]
    wait_until(lambda: read_offsets(kafka, group, f"{stream}.topic") == {0: 4})
    assert poll(clients[1], 2) == [4, 5]
    wait_until(lambda: read_offsets(kafka, group, f"{stream}.topic") == {0: 6})
    # a position that is stored by itself is there before the client is told
    stored = https[1].put(path, json={"consumer_id": 7, "partition_id": 1, "offset": 8})
    assert stored.status_code == 204, stored.text
    assert read_offsets(kafka, group, f"{stream}.topic") == {0: 9}
    time.sleep(CURRENT_S)
    assert https[0].get(f"{path}?consumer_id=7&partition_id=1").json()["offset"] == 8
    assert poll(clients[0], 5) == [9]
    wait_until(lambda: read_offsets(kafka, group, f"{stream}.topic") == {0: 10})
    # Kafka's own tools move it
    reset = TopicPartition(f"{stream}.topic", 0, 5)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    wanted = ConsumerGroupTopicPartitions(group, [reset])
    admin.alter_consumer_group_offsets([wanted])[group].result(30)
    time.sleep(CURRENT_S)
    assert poll(clients[0], 1) == [5]
    # only clients of later releases, which log in, may delete it
    for http in https:
        tokens = http.post("/users/login", json={"username": "iggy", "password": "iggy"}).json()["tokens"]
        http.headers["authorization"] = f"Bearer {tokens['access_token']['token']}"
    deleted = https[0].delete(f"{path}/7?partition_id=1")
    assert deleted.status_code == 204, deleted.text
    assert read_offsets(kafka, group, f"{stream}.topic") == {}
    time.sleep(CURRENT_S)
    again = https[1].delete(f"{path}/7?partition_id=1")
    assert again.status_code >= 400 and "nothing is stored" in again.text
    assert poll(clients[1], 1) == [0]
    for http in https:
        http.close()


def test_native_positions_are_offsets_of_the_cluster(gateways: list[BrokerProcess], kafka: RunningKafka) -> None:
    name = next(_names)
    create_topic(gateways[0], name)
    with closing_transport(gateways[0]) as native:
        native.send(name, 0, fill_missing_columns(make_batch([b"%d" % number for number in range(5)])))
    admins = [httpx.Client(base_url=f"http://{one.endpoints['admin']}", timeout=60) for one in gateways]
    path = f"/groups/{name}-readers/positions/default/{name}/0"
    assert admins[0].get(path).json()["offset"] is None
    assert admins[0].put(path, json={"offset": 3}).status_code == 204
    assert read_offsets(kafka, f"lading.{name}-readers", name) == {0: 3}
    wait_until(lambda: admins[1].get(path).status_code == 200)
    assert admins[1].get(path).json()["offset"] == 3
    for admin in admins:
        admin.close()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda client, stream: client.call("purge_topic", stream, "topic"), "unavailable"),
    ],
)
def test_what_the_store_does_not_give_is_refused(
    clients: list[CurrentClient], stream: str, make: Any, sentence: str
) -> None:
    clients[0].send(stream, "topic", FIRST, [(b"one", [], None)])
    with pytest.raises(Exception, match=sentence):
        make(clients[0], stream)


def test_states_that_one_gateway_sets_count_at_the_other(
    clients: list[CurrentClient], gateways: list[BrokerProcess], stream: str
) -> None:
    messages: list[tuple[bytes, list[Header], int | None]] = [(b"%d" % number, [], None) for number in range(5)]
    clients[0].send(stream, "topic", FIRST, messages)
    poll_all(clients[1], stream, 5)
    changed = lading.set_state(gateways[0].url, f"{stream}.topic", "poisoned", offsets=[1, 3], partition=0)
    assert changed.changed == 2

    def list_polled(client: CurrentClient) -> list[int]:
        return [one["offset"] for one in client.poll(stream, "topic")]

    # at the gateway that was asked at once, at the other one a moment later
    assert list_polled(clients[0]) == [0, 2, 4]
    wait_until(lambda: list_polled(clients[1]) == [0, 2, 4])
    lading.set_state(gateways[1].url, f"{stream}.topic", "available", where="state = 'poisoned'")
    wait_until(lambda: list_polled(clients[0]) == [0, 1, 2, 3, 4])


def test_a_message_that_the_topic_does_not_take_fails_alone(gateways: list[BrokerProcess], kafka: RunningKafka) -> None:
    name = next(_names)
    create_topic(gateways[0], name)
    large = fill_missing_columns(make_batch([os.urandom(3 << 20)]))
    small = [fill_missing_columns(make_batch([b"%d" % number])) for number in range(20)]
    with (
        ThreadPoolExecutor(2) as threads,
        closing_transport(gateways[0]) as one,
        closing_transport(gateways[0]) as other,
    ):
        sending = threads.submit(lambda: [one.send(name, 0, batch) for batch in small])
        with pytest.raises(LadingError, match="does not accept as many"):
            other.send(name, 0, large)
        assert [result.count for result in sending.result(60)] == [1] * 20
    assert sorted(read_payloads(gateways[0], name)) == sorted(b"%d" % number for number in range(20))


def test_a_topic_grows_for_every_gateway(
    clients: list[CurrentClient], gateways: list[BrokerProcess], stream: str, kafka: RunningKafka
) -> None:
    clients[0].call("create_partitions", stream, "topic", 2)
    assert clients[0].call("get_topic", stream, "topic")["partitions_count"] == 4
    wait_until(lambda: clients[1].call("get_topic", stream, "topic")["partitions_count"] == 4)
    with lading.Admin(kafka.url) as cluster:
        assert [len(one.partitions) for one in cluster.list_topics() if one.name == f"{stream}.topic"] == [4]


def test_a_topic_deleted_in_kafka_goes_from_gateways(gateways: list[BrokerProcess], kafka: RunningKafka) -> None:
    name = next(_names)
    create_topic(gateways[0], name)
    with lading.Admin(kafka.url) as cluster, lading.Admin(gateways[1].url) as native:
        wait_until(lambda: name in {one.name for one in native.list_topics()})
        cluster.delete_topic(name)
        wait_until(lambda: name not in {one.name for one in native.list_topics()})


def test_a_gateway_logs_in_to_its_cluster_over_tls(
    gateways: list[BrokerProcess], kafka: RunningKafka, tmp_path: Path
) -> None:
    if not kafka.secure:
        pytest.skip("Lading's own listener has no login here")
    (tmp_path / "secret").write_text(PASSWORD)
    options = f"ca_file={kafka.ca_file}&username={USER}&password_file={tmp_path / 'secret'}"
    name = next(_names)
    create_topic(gateways[0], name)
    with testing.broker(settings={"store": f"kafka://{kafka.secure}?{options}"}) as secure:
        with closing_transport(secure) as native:
            native.send(name, 0, fill_missing_columns(make_batch([b"one"])))
        assert read_payloads(secure, name) == [b"one"]
    with (
        pytest.raises(LocalError, match="password_file"),
        testing.broker(settings={"store": f"kafka://{kafka.secure}?password=x"}),
    ):
        pass


@pytest.mark.turns(4)
@pytest.mark.parametrize("scheme", ["iggy", "lading"])
def test_a_gateway_that_is_killed_loses_nothing_that_it_acknowledged(
    gateways: list[BrokerProcess], kafka: RunningKafka, scheme: str, full: bool
) -> None:
    """A sender of numbers goes on at the next gateway, with the number after the one that failed."""
    name = next(_names)
    create_topic(gateways[0], name)
    acknowledged: list[int] = []
    numbers = count(1)
    for _ in range(20 if full else 2):
        with testing.broker(settings={"store": kafka.url}) as killed:
            url = f"iggy://{killed.endpoints['iggy_tcp']}" if scheme == "iggy" else killed.url
            target = open_transport(url, retries=0)
            enough = len(acknowledged) + 50
            killing = threading.Timer(0.0, lambda: None)
            try:
                for number in numbers:
                    if len(acknowledged) == enough:
                        # while the next ones are on their way
                        killing = threading.Timer(0.005, os.kill, (killed.pid, signal.SIGKILL))
                        killing.start()
                    target.send(name, 0, fill_missing_columns(make_batch([b"%d" % number])))
                    acknowledged.append(number)
            except RemoteError:
                pass
            finally:
                killing.join()
                target.close()
    wait_until(lambda: set(acknowledged) <= set(map(int, read_payloads(gateways[0], name))))
    stored = list(map(int, read_payloads(gateways[0], name)))
    assert stored == sorted(stored) and len(stored) == len(set(stored))


def read_offsets(kafka: RunningKafka, group: str, topic: str) -> dict[int, int]:
    """The offsets of a group as librdkafka's admin client sees them."""
    admin = AdminClient({"bootstrap.servers": kafka.address})
    places = [TopicPartition(topic, number) for number in range(2)]
    wanted = ConsumerGroupTopicPartitions(group, places)
    found = admin.list_consumer_group_offsets([wanted])[group].result(30)
    return {one.partition: one.offset for one in found.topic_partitions if one.offset >= 0}


def create_topic(gateway: BrokerProcess, name: str) -> None:
    with lading.Admin(gateway.url) as admin:
        admin.create_topic(name)


def make_batch(payloads: list[bytes]) -> pa.RecordBatch:
    times = pa.array([None] * len(payloads), pa.timestamp("us", "UTC"))
    return pa.RecordBatch.from_pydict({"payload": pa.array(payloads, pa.binary()), "timestamp": times})


def closing_transport(gateway: BrokerProcess) -> closing[Transport]:
    return closing(open_transport(gateway.url))


def read_payloads(gateway: BrokerProcess, name: str) -> list[bytes]:
    return [
        payload or b"" for payload in lading.read_arrow(gateway.url, name, columns="payload")["payload"].to_pylist()
    ]
