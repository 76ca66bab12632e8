"""Groups and transactions of clients nobody here wrote, on our Kafka endpoint: members that come, go and die."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from lading.testing import BrokerProcess, broker

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_of = pytest.importorskip("confluent_kafka.admin")

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

PARTITIONS = 6
TIMEOUT_S = 30.0
SESSION_MS = 10_000
"""Members leave by themselves: none has to be missed, and on a slow machine none may be."""
QUIET = {"log_level": 2}
MOVED = ("ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "_NO_OFFSET")
"""What a commit is answered by the broker, or by the client itself, when its partitions have just been taken away."""

WORKER = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition
address, source, target, die_after = *sys.argv[1:4], int(sys.argv[4])
producer = Producer({"bootstrap.servers": address, "transactional.id": "worker", "log_level": 2})
producer.init_transactions(20)
consumer = Consumer({"bootstrap.servers": address, "group.id": "workers", "auto.offset.reset": "earliest",
                     "enable.auto.commit": False, "isolation.level": "read_committed", "session.timeout.ms": 1500,
                     "heartbeat.interval.ms": 300, "log_level": 2})
consumer.subscribe([source])
rounds = 0
while True:
    messages = [one for one in consumer.consume(10, 0.2) if not one.error()]
    if not messages:
        continue
    rounds += 1
    producer.begin_transaction()
    for one in messages:
        producer.produce(target, one.value(), key=one.key())
    producer.flush(20)
    if rounds == die_after:
        print("dies", flush=True)
        sys.stdin.read()
    producer.send_offsets_to_transaction(
        consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20)
    producer.commit_transaction(20)
    print(len(messages), flush=True)
"""
"""Reads, changes and writes exactly once; stands still in the middle of a transaction when told to die."""


@pytest.fixture(scope="module")
def lading() -> Iterator[BrokerProcess]:
    with broker(broker__member_session_min_ms=100, broker__rebalance_delay_ms=50) as running:
        yield running


@pytest.fixture(scope="module")
def address(lading: BrokerProcess) -> str:
    return lading.endpoints["kafka"]


@pytest.fixture(scope="module")
def admin(address: str) -> Any:
    return admin_of.AdminClient({"bootstrap.servers": address})


def made(admin: Any, name: str, partitions: int = PARTITIONS) -> str:
    admin.create_topics([admin_of.NewTopic(name, partitions, 1)])[name].result(20)
    return name


def send(address: str, topic: str, count: int) -> list[int]:
    producer = confluent.Producer({"bootstrap.servers": address, "enable.idempotence": True, **QUIET})
    for number in range(count):
        producer.produce(topic, b"%d" % number, key=b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(20) == 0
    return list(range(count))


def until(enough: Callable[[], bool], step: Callable[[], object]) -> None:
    end = time.monotonic() + TIMEOUT_S
    while not enough():
        assert time.monotonic() < end
        step()


class Member(threading.Thread):
    """A librdkafka consumer that stores each position before it reads on."""

    def __init__(self, address: str, group: str, topic: str, strategy: str, **options: Any) -> None:
        super().__init__(daemon=True)
        settings: dict[str, Any] = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        settings |= {"partition.assignment.strategy": strategy, "session.timeout.ms": SESSION_MS}
        settings |= {"heartbeat.interval.ms": 200, "enable.auto.commit": False, **QUIET, **options}
        self.consumer = confluent.Consumer(settings)
        self.consumer.subscribe([topic])
        self.seen: list[int] = []
        self.owned: set[int] = set()
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        is_due = False
        while not self.stopping.is_set():
            messages = [one for one in self.consumer.consume(20, 0.1) if not one.error()]
            self.owned = {one.partition for one in self.consumer.assignment()}
            self.seen += [int(one.value()) for one in messages]
            if messages or is_due:
                try:
                    self.consumer.commit(asynchronous=False)
                    is_due = False
                except confluent.KafkaException as error:
                    # what was read is read again by who has the partition now; of one that stays here it is not, and
                    # its position is stored when the group is at rest
                    assert error.args[0].name() in MOVED
                    is_due = error.args[0].name() != "_NO_OFFSET"
        self.consumer.close()

    def stop(self) -> None:
        self.stopping.set()
        self.join(TIMEOUT_S)


def shared(members: list[Member]) -> bool:
    owned = [one.owned for one in members]
    return sorted(number for one in owned for number in one) == list(range(PARTITIONS)) and all(owned)


@pytest.mark.parametrize("strategy", ["range,roundrobin", "cooperative-sticky"])
@pytest.mark.turns(2)
def test_three_members_share_and_take_over(address: str, admin: Any, strategy: str) -> None:
    topic = made(admin, f"rebalance-{strategy[:5]}")
    sent = send(address, topic, 600)
    members = [Member(address, topic, topic, strategy)]
    until(lambda: shared(members), lambda: time.sleep(0.05))
    for count in (2, 3):
        members.append(Member(address, topic, topic, strategy))
        until(lambda: shared(members), lambda: time.sleep(0.05))
        assert len(members) == count
    members.pop(0).stop()
    until(lambda: shared(members), lambda: time.sleep(0.05))
    sent += send(address, topic, 600)

    def find_stored() -> dict[int, int]:
        stored = admin.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions(topic)])[topic].result(10)
        return {one.partition: one.offset for one in stored.topic_partitions}

    wanted = dict.fromkeys(range(PARTITIONS), 200)
    until(lambda: find_stored() == wanted, lambda: time.sleep(0.05))
    described = admin.describe_consumer_groups([topic])[topic].result(10)
    assert (described.state.name, len(described.members)) == ("STABLE", 2)
    assert sorted(part.partition for one in described.members for part in one.assignment.topic_partitions) == [
        *range(PARTITIONS)
    ]
    for member in members:
        member.stop()
    assert find_stored() == wanted
    assert admin.describe_consumer_groups([topic])[topic].result(10).state.name == "EMPTY"
    assert topic in {one.group_id for one in admin.list_consumer_groups().result(10).valid}
    admin.delete_consumer_groups([topic])[topic].result(10)
    assert topic not in {one.group_id for one in admin.list_consumer_groups().result(10).valid}


def test_a_static_member_comes_back_to_its_partitions(address: str, admin: Any) -> None:
    topic = made(admin, "static")
    members = [
        Member(address, topic, topic, "range", **{"group.instance.id": f"i{n}", "session.timeout.ms": 6000})
        for n in (0, 1)
    ]
    until(lambda: shared(members), lambda: time.sleep(0.05))
    owned = [one.owned for one in members]
    described = admin.describe_consumer_groups([topic])[topic].result(10)
    members[1].stop()
    members[1] = Member(address, topic, topic, "range", **{"group.instance.id": "i1", "session.timeout.ms": 6000})
    until(lambda: shared(members), lambda: time.sleep(0.05))
    assert [one.owned for one in members] == owned
    again = admin.describe_consumer_groups([topic])[topic].result(10)
    first, second = ({one.group_instance_id: one.member_id for one in group.members} for group in (described, again))
    assert (first["i0"], first["i1"] != second["i1"]) == (second["i0"], True)
    for member in members:
        member.stop()


def test_kafka_python_members(address: str, admin: Any) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    topic = made(admin, "kafka-python")
    sent = send(address, topic, 300)
    consumers = [
        kafka.KafkaConsumer(
            topic,
            bootstrap_servers=address,
            group_id=topic,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
        )
        for _ in range(2)
    ]
    seen: list[int] = []
    stopping = threading.Event()

    def read(consumer: Any) -> None:
        while not stopping.is_set():
            seen.extend(int(one.value) for some in consumer.poll(100).values() for one in some)

    # a thread each: a member whose poll ends while it joins begins anew, so that two taking turns may never agree
    threads = [threading.Thread(target=read, args=(one,), daemon=True) for one in consumers]
    for thread in threads:
        thread.start()
    until(lambda: len(seen) >= len(sent) and all(one.assignment() for one in consumers), lambda: time.sleep(0.05))
    stopping.set()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(part.partition for one in consumers for part in one.assignment()) == list(range(PARTITIONS))
    for consumer in consumers:
        consumer.close()
    assert set(seen) == set(sent)
    stored = admin.list_consumer_group_offsets([confluent.ConsumerGroupTopicPartitions(topic)])[topic].result(10)
    assert {one.offset for one in stored.topic_partitions} == {50}


def test_aiokafka_members_and_transactions(address: str, admin: Any) -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")
    topic, target = made(admin, "aiokafka"), made(admin, "aiokafka-out")
    sent = send(address, topic, 300)

    async def work() -> list[int]:
        options = {"bootstrap_servers": address, "auto_offset_reset": "earliest"}
        group = {"group_id": topic, "session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 300}
        consumers = [aiokafka.AIOKafkaConsumer(topic, **options, **group) for _ in range(2)]
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=address, transactional_id="aio")
        for one in (*consumers, producer):
            await one.start()
        seen: list[int] = []
        end = time.monotonic() + TIMEOUT_S
        while len(seen) < len(sent) or not all(one.assignment() for one in consumers):
            assert time.monotonic() < end
            for consumer in consumers:
                got = await consumer.getmany(timeout_ms=100)
                seen += [int(one.value) for some in got.values() for one in some]
        for commit in (False, True):
            await producer.begin_transaction()
            for number in range(PARTITIONS):
                await producer.send_and_wait(target, b"%d" % commit, partition=number)
            await (producer.commit_transaction() if commit else producer.abort_transaction())
        reader = aiokafka.AIOKafkaConsumer(target, **options, isolation_level="read_committed")
        await reader.start()
        kept = [await asyncio.wait_for(reader.getone(), TIMEOUT_S) for _ in range(PARTITIONS)]
        assert {(one.partition, one.value) for one in kept} == {(number, b"1") for number in range(PARTITIONS)}
        for one in (reader, *consumers, producer):
            await one.stop()
        return seen

    assert set(asyncio.run(work())) == set(sent)


def test_read_change_and_write_exactly_once_though_workers_die(address: str, admin: Any) -> None:
    source, target = made(admin, "source"), made(admin, "target")
    sent = send(address, source, 300)
    reader = confluent.Consumer(
        {"bootstrap.servers": address, "group.id": "check", "isolation.level": "read_committed", **QUIET}
    )
    reader.assign([confluent.TopicPartition(target, number, 0) for number in range(PARTITIONS)])
    seen: Counter[int] = Counter()
    for die_after in (1, 2, -1):
        command = [sys.executable, "-c", WORKER, address, source, target, str(die_after)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
            try:
                if die_after > 0:
                    assert child.stdout is not None
                    assert "dies\n" in iter(child.stdout.readline, "")
                else:
                    until(
                        lambda: seen.total() >= len(sent),
                        lambda: seen.update(int(one.value()) for one in reader.consume(100, 0.2) if not one.error()),
                    )
            finally:
                child.kill()
    seen.update(int(one.value()) for one in reader.consume(100, 1.0) if not one.error())
    reader.close()
    assert seen == Counter(sent)
    print(f"read, change, write: {len(sent)} messages, 2 workers killed, lost 0, twice 0")
