"""A cluster of three real brokers: leaders move and brokers die while we write and read; nothing is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading import Consumer, Producer
from lading.model.errors import DataLoss
from lading.transports.kafka.transport import KafkaTransport
from tests.interop import kafka_broker, kafka_nodes
from tests.interop.kafka_clients import admin_of, confluent

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.timeout(400)]

PARTITIONS = 6
TOPIC = "moving"
BATCH_ROWS = 200


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, full: bool) -> Iterator[kafka_nodes.Nodes]:
    """Three brokers."""
    if not full:
        pytest.skip("three brokers take 30 s and a gigabyte; LADING_TEST_FULL=1 starts them")
    try:
        with kafka_nodes.running(tmp_path_factory.mktemp("nodes")) as nodes:
            yield nodes
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


class Writer(threading.Thread):
    """Sends numbered messages to every partition until it is told to stop."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url = url
        self.sent = 0
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            transport = KafkaTransport(self.url)
            while not self.ended.is_set():
                for partition in range(PARTITIONS):
                    low = self.sent * BATCH_ROWS
                    rows = [b"%d" % number for number in range(low, low + BATCH_ROWS)]
                    transport.send(TOPIC, partition, pa.RecordBatch.from_pydict({"payload": rows}))
                self.sent += 1
            transport.close()
        except BaseException as error:
            self.error = error


class Reader(threading.Thread):
    """A member of a group that reads all of it."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(daemon=True)
        self.url, self.group = url, name
        self.seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            with Consumer(self.url, TOPIC, group=self.group) as consumer:
                while not self.ended.is_set():
                    for message in consumer.poll(500, 0.2):
                        self.seen[message.partition].append(int(message.payload or b"-1"))
        except BaseException as error:
            self.error = error


def leaders(admin: Any) -> dict[int, int]:
    return {number: part.leader for number, part in admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.items()}


def test_brokers_die_and_leaders_move(cluster: kafka_nodes.Nodes) -> None:
    admin = admin_of.AdminClient({"bootstrap.servers": cluster.address, "log_level": 2})
    admin.create_topics([admin_of.NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(30)
    writer, reader = Writer(cluster.url), Reader(cluster.url, "all")
    writer.start()
    reader.start()
    moved = 0
    for victim in (2, 3, 2):
        time.sleep(2)
        assert writer.error is None and reader.error is None
        before = leaders(admin)
        assert victim in before.values()
        sent = writer.sent
        cluster.nodes[victim].kill()
        _until(lambda at=victim: at not in leaders(admin).values(), 60)
        _until(lambda at=sent: writer.sent > at + 3 or writer.error is not None, 60)
        assert writer.error is None
        cluster.nodes[victim].start()
        # leaders go back where they belong while everybody is at work
        _until(lambda: _all_in_sync(admin), 90)
        chosen = [confluent.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        admin.elect_leaders(confluent.ElectionType.PREFERRED, chosen).result(30)
        moved += sum(before[number] == victim for number in before)
    writer.ended.set()
    writer.join(60)
    assert writer.error is None
    want = list(range(writer.sent * BATCH_ROWS))
    _until(lambda: all(seen[-1:] == want[-1:] for seen in reader.seen.values()) or reader.error is not None, 60)
    reader.ended.set()
    reader.join(60)
    assert reader.error is None
    for number in range(PARTITIONS):
        table = lading.read_arrow(cluster.url, TOPIC, columns="payload", start={number: "earliest"})
        assert [int(payload or b"-1") for payload in table["payload"].to_pylist()] == want
        # a position that a dying coordinator did not take is read again; in order and without a gap
        assert list(dict.fromkeys(reader.seen[number])) == want
    twice = sum(len(seen) for seen in reader.seen.values()) - PARTITIONS * len(want)
    total = PARTITIONS * len(want)
    print(
        f"cluster: 3 brokers killed, {moved} leaders moved: {total:,} of {total:,} written once, {twice:,} read twice"
    )


def test_a_leader_without_the_last_messages_is_a_loss(cluster: kafka_nodes.Nodes) -> None:
    admin = admin_of.AdminClient({"bootstrap.servers": cluster.address, "log_level": 2})
    loose = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = admin_of.NewTopic("unclean", 1, replica_assignment=[[2, 3]], config=loose)
    admin.create_topics([topic])["unclean"].result(30)
    _send(cluster.url, range(100))
    member = Consumer(cluster.url, "unclean", group="unclean", start="earliest", timeout_s=30)
    skipping = Consumer(cluster.url, "unclean", start="earliest", on_loss="skip", timeout_s=30)
    cluster.nodes[3].kill()
    _until(lambda: len(_part(admin, "unclean").isrs) == 1, 60)
    _send(cluster.url, range(100, 150))
    for consumer in (member, skipping):
        assert [int(next(consumer).payload or b"-1") for _ in range(150)] == list(range(150))
    member.commit()
    cluster.nodes[2].kill()
    cluster.nodes[3].start()
    _until(lambda: _part(admin, "unclean").leader == 3, 60)
    # more than were lost: the offset that both would go on from is there again
    _send(cluster.url, range(1000, 1080))
    with pytest.raises(DataLoss, match="offsets 100 to 149 were lost"):
        next(member)
    member.close(failed=True)
    with (
        Consumer(cluster.url, "unclean", group="unclean", timeout_s=30) as stored,
        pytest.raises(DataLoss, match="offsets 100 to 149 were lost"),
    ):
        next(stored)
    assert [int(next(skipping).payload or b"-1") for _ in range(80)] == list(range(1000, 1080))
    skipping.close()
    cluster.nodes[2].start()


def test_leaders_are_followed_over_tls_with_a_password(cluster: kafka_nodes.Nodes) -> None:
    admin = admin_of.AdminClient({"bootstrap.servers": cluster.address, "log_level": 2})
    spread = [[number % 3 + 1, (number + 1) % 3 + 1] for number in range(PARTITIONS)]
    topic = admin_of.NewTopic("secret", PARTITIONS, replica_assignment=spread, config={"min.insync.replicas": "1"})
    admin.create_topics([topic])["secret"].result(30)
    url = f"kafka://{cluster.secure}"
    access: Any = {
        "ca_file": str(cluster.ca_file), "username": kafka_broker.USER, "password": kafka_broker.PASSWORD,
    }  # fmt: skip
    want = {number: list(range(100)) for number in range(PARTITIONS)}
    with Producer(url, **access) as sender:
        for at in range(50):
            for number in range(PARTITIONS):
                sender.send("secret", b"%d" % at, partition=number)
        sender.flush()
        # every third partition has another leader from here on
        cluster.nodes[3].kill()
        for at in range(50, 100):
            for number in range(PARTITIONS):
                sender.send("secret", b"%d" % at, partition=number)
    seen: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with Consumer(url, "secret", group="secret", start="earliest", timeout_s=30, **access) as consumer:
        while sum(map(len, seen.values())) < 100 * PARTITIONS:
            message = next(consumer)
            seen[message.partition].append(int(message.payload or b"-1"))
    assert seen == want
    cluster.nodes[3].start()
    table = lading.read_arrow(url, "secret", columns="partition, payload", **access)
    assert table.num_rows == 100 * PARTITIONS


def _send(url: str, numbers: range) -> None:
    transport = KafkaTransport(url)
    transport.send("unclean", 0, pa.RecordBatch.from_pydict({"payload": [b"%d" % number for number in numbers]}))
    transport.close()


def _part(admin: Any, topic: str) -> Any:
    return admin.list_topics(topic, 10).topics[topic].partitions[0]


def _all_in_sync(admin: Any) -> bool:
    parts = admin.list_topics(TOPIC, 10).topics[TOPIC].partitions.values()
    return all(len(part.isrs) == 3 for part in parts)


def _until(enough: Any, longest_s: float) -> None:
    until = time.monotonic() + longest_s
    while not enough():
        assert time.monotonic() < until
        time.sleep(0.1)
