"""Groups of Iggy over a real Apache Kafka: clients at several gateways share partitions, and Kafka coordinates them."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient

from lading import testing
from lading.kafka_log.group_members import SESSION_S
from lading.kafka_log.positions import CURRENT_S
from lading.testing import BrokerProcess
from tests.interop.iggy_current import CallError, CurrentClient, Header
from tests.interop.kafka_broker import RunningKafka
from tests.interop.shared_kafka import PROCESS
from tests.interop.store_gateways import open_clients, wait_until
from tests.interop.test_kafka_store import read_offsets

pytestmark = [
    pytest.mark.interop,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True, scope="module"),
]

PARTITIONS = 4
_names = (f"{PROCESS}group{number}" for number in count(1))


@pytest.fixture(scope="module")
def clients(gateways: list[BrokerProcess]) -> Iterator[list[CurrentClient]]:
    """The published package apache-iggy 0.9.0: one at the first gateway, two at the other."""
    with open_clients((*gateways, gateways[1])) as opened:
        yield opened


@pytest.fixture
def stream(clients: list[CurrentClient]) -> str:
    """A stream with a topic of four partitions, of ten messages each, and a group that both gateways know."""
    name = next(_names)
    clients[0].call("create_stream", name)
    clients[0].call("create_topic", name, "topic", PARTITIONS)
    send(clients[0], name, 0)
    clients[0].call("create_consumer_group", name, "topic", "g")
    wait_until(lambda: has_group(clients[1], name))
    wait_until(lambda: all(len(clients[1].poll(name, "topic", partition=one)) == 10 for one in range(PARTITIONS)))
    return name


def has_group(client: CurrentClient, stream: str) -> bool:
    # the stream is there first, then its topic, then the group
    try:
        return client.call("get_consumer_group", stream, "topic", "g") is not None
    except CallError:
        return False


def send(client: CurrentClient, stream: str, first: int) -> None:
    for partition in range(PARTITIONS):
        messages: list[tuple[bytes, list[Header], int | None]] = [
            (b"%d" % number, [], None) for number in range(first, first + 10)
        ]
        client.send(stream, "topic", ("partition_id", partition), messages)


def poll(client: CurrentClient, stream: str, count: int = 100) -> list[tuple[int, int]]:
    """What one poll of a member gives: partitions and offsets, which it commits."""
    consumer = ("Group", "g")
    found = client.poll(stream, "topic", partition=None, start=("Next",), count=count, consumer=consumer, commit=True)
    return [(one["partition"], one["offset"]) for one in found]


def see_partitions(client: CurrentClient, stream: str) -> set[int]:
    """The partitions that a member has: as many polls from the first message as there are partitions."""
    found = set()
    for _ in range(PARTITIONS):
        polled = client.poll(stream, "topic", partition=None, count=1, consumer=("Group", "g"))
        found |= {one["partition"] for one in polled}
    return found


def drain(clients: list[CurrentClient], stream: str, wanted: int) -> dict[CurrentClient, list[tuple[int, int]]]:
    """Poll with each of these members until there are so many messages."""
    found: dict[CurrentClient, list[tuple[int, int]]] = {client: [] for client in clients}

    def have_all() -> bool:
        for client in clients:
            found[client] += poll(client, stream)
        return sum(map(len, found.values())) >= wanted

    wait_until(have_all)
    return found


def test_members_at_two_gateways_share_the_partitions(
    clients: list[CurrentClient], stream: str, kafka: RunningKafka
) -> None:
    one, other, third = clients
    one.call("join_consumer_group", stream, "topic", "g")
    everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(10)}
    assert set(drain([one], stream, 40)[one]) == everything
    # Kafka's own view of it
    group = f"iggy.{stream}.topic.g"
    admin = AdminClient({"bootstrap.servers": kafka.address})
    wait_until(lambda: read_offsets(kafka, group, f"{stream}.topic") == {0: 10, 1: 10})
    (described,) = (future.result(30) for future in admin.describe_consumer_groups([group]).values())
    assert [len(member.assignment.topic_partitions) for member in described.members] == [PARTITIONS]
    other.call("join_consumer_group", stream, "topic", "g")
    third.call("join_consumer_group", stream, "topic", "g")
    wait_until(lambda: one.call("get_consumer_group", stream, "topic", "g")["members_count"] == 3)
    expected = Counter[tuple[int, int]]()
    for turn in range(1, 6):
        # polls of members whose partitions stay are never refused, nor of those whose go
        send(third, stream, 10 * turn)
        found = drain(clients, stream, 40)
        expected.update(place for places in found.values() for place in places)
    assert set(expected) == {(partition, offset) for partition in range(PARTITIONS) for offset in range(10, 60)}
    # once each: a partition goes to another member after its position
    assert set(expected.values()) == {1}

    def holders() -> list[int]:
        (told,) = (future.result(30) for future in admin.describe_consumer_groups([group]).values())
        return sorted(len(member.assignment.topic_partitions) for member in told.members)

    wait_until(lambda: holders() == [1, 1, 2])
    send(one, stream, 60)
    found = drain(clients, stream, 40)
    assert [len({partition for partition, _ in found[client]}) for client in clients].count(0) == 0
    # one that leaves gives its partitions to the others
    one.call("leave_consumer_group", stream, "topic", "g")
    with pytest.raises(CallError):
        poll(one, stream)
    send(one, stream, 70)
    left = drain([other, third], stream, 40)
    assert {place for places in left.values() for place in places} == {
        (partition, offset) for partition in range(PARTITIONS) for offset in range(70, 80)
    }
    for client in (other, third):
        client.call("leave_consumer_group", stream, "topic", "g")


def test_a_group_is_created_and_deleted_for_all_gateways(
    clients: list[CurrentClient], stream: str, kafka: RunningKafka
) -> None:
    one, other, _ = clients
    with pytest.raises(CallError, match="already exists"):
        other.call("create_consumer_group", stream, "topic", "g")
    other.call("create_consumer_group", stream, "topic", "h")
    names = {"g": 0, "h": 1}
    for client in (one, other):
        wait_until(
            lambda client=client: {
                group["name"]: group["id"] for group in client.call("get_consumer_groups", stream, "topic")
            } == names
        )  # fmt: skip
    one.call("join_consumer_group", stream, "topic", "g")
    assert len(drain([one], stream, 40)[one]) == 40
    other.call("delete_consumer_group", stream, "topic", "g")
    wait_until(lambda: not has_group(one, stream))
    with pytest.raises(CallError):
        poll(one, stream)
    group = f"iggy.{stream}.topic.g"
    wait_until(lambda: read_offsets(kafka, group, f"{stream}.topic") == {})
    # one of the same name that comes later begins at the first message
    wait_until(lambda: created(one, stream))
    one.call("join_consumer_group", stream, "topic", "g")
    time.sleep(CURRENT_S)
    assert len(drain([one], stream, 40)[one]) == 40
    # a topic takes its groups along
    one.call("delete_topic", stream, "topic")
    one.call("create_topic", stream, "topic", PARTITIONS)
    assert one.call("get_consumer_groups", stream, "topic") == []


def created(client: CurrentClient, stream: str) -> bool:
    try:
        client.call("create_consumer_group", stream, "topic", "g")
    except CallError:
        return False
    return True


def test_the_published_consumer_reads_as_a_group(clients: list[CurrentClient], stream: str) -> None:
    """Its iterator joins, polls, and stores offsets by itself."""
    found = clients[0].call("consume", stream, "topic", "g", 40)
    places = [(one["partition"], one["offset"]) for one in found]
    assert Counter(places) == {(partition, offset): 1 for partition in range(PARTITIONS) for offset in range(10)}


@pytest.mark.turns(4)
def test_partitions_of_a_gateway_that_is_killed_go_to_others(
    clients: list[CurrentClient], stream: str, kafka: RunningKafka
) -> None:
    one = clients[0]
    one.call("join_consumer_group", stream, "topic", "g")
    with testing.broker(settings={"store": kafka.url}) as killed:
        lost = CurrentClient(killed.endpoints["iggy_tcp"])
        try:
            wait_until(lambda: has_group(lost, stream))
            lost.call("join_consumer_group", stream, "topic", "g")
            wait_until(lambda: [len(see_partitions(client, stream)) for client in (one, lost)] == [2, 2])
            os.kill(killed.pid, signal.SIGKILL)
        finally:
            lost.close()
    began_s = time.monotonic()
    while see_partitions(one, stream) != set(range(PARTITIONS)):
        assert time.monotonic() - began_s < SESSION_S + 30
        time.sleep(0.2)
    one.call("leave_consumer_group", stream, "topic", "g")
