"""Where nobody waits for the disk a client that is alone is answered within the read: same answers, same order."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator

import confluent_kafka
import pytest

import lading
from lading import Producer, testing
from tests.endpoints.kafka_frames import KafkaFrames, message, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, mpub, pub

CORRUPT = 2


@pytest.fixture(scope="module")
def hasty() -> Iterator[testing.BrokerProcess]:
    """A broker that syncs nothing."""
    with testing.broker(durability="os") as running:
        yield running


def kept(broker: testing.BrokerProcess, topic: str) -> list[bytes]:
    return [payload or b"" for payload in lading.read_arrow(broker.url, topic)["payload"].to_pylist()]


def test_answers_and_messages_keep_their_order(hasty: testing.BrokerProcess) -> None:
    address = hasty.endpoints["nsqd_tcp"]
    reader, writer = NsqClient(address), NsqClient(address)
    assert reader.ask(b"SUB once ch\n") == b"OK"
    reader.send(b"RDY 100\n")
    sent: list[bytes] = []
    for number in range(5):
        sent.append(b"alone %d" % number)
        assert writer.ask(pub("once", sent[-1])) == b"OK"
        [message] = reader.messages(1)
        assert message.body == sent[-1]
        reader.fin(message)
    # several commands in one read, one of them wrong: each is answered, in its place
    group = [b"a", b"b", b"c", b"d"]
    writer.send(pub("once", b"a") + pub("other", b"x") + mpub("once", b"b", b"c") + b"NOP\nRDY 1\n" + pub("once", b"d"))
    answers = [writer.frame() for _ in range(4)]
    assert [data for _, data in answers[:3]] == [b"OK", b"OK", b"OK"]
    assert answers[3][1].startswith(b"E_INVALID")
    assert [each.body for each in reader.messages(3)] == group[:3]
    assert writer.closed()
    assert kept(hasty, "once") == [*sent, *group[:3]]
    assert kept(hasty, "other") == [b"x"]
    reader.close()


def test_clients_that_write_together_lose_nothing(hasty: testing.BrokerProcess) -> None:
    address, each, many = hasty.endpoints["nsqd_tcp"], 50, 8

    def write(name: int) -> None:
        client = NsqClient(address)
        for number in range(each):
            assert client.ask(pub("crowd", b"%d-%d" % (name, number))) == b"OK"
        client.close()

    writers = [threading.Thread(target=write, args=(name,)) for name in range(many)]
    for one in writers:
        one.start()
    for one in writers:
        one.join(30)
    found = kept(hasty, "crowd")
    assert len(found) == each * many
    for name in range(many):
        assert [one for one in found if one.startswith(b"%d-" % name)] == [b"%d-%d" % (name, n) for n in range(each)]


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_kafka_producer_that_waits_for_each_answer(hasty: testing.BrokerProcess, idempotent: bool) -> None:
    topic = f"kafka-{idempotent}"
    options = {"bootstrap.servers": hasty.endpoints["kafka"], "linger.ms": 0, "enable.idempotence": idempotent}
    producer = confluent_kafka.Producer(options)
    offsets: list[int | None] = []
    for number in range(10):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, told: offsets.append(told.offset()))
        assert producer.flush(10) == 0
    assert offsets == list(range(10))
    assert kept(hasty, topic) == [b"%d" % number for number in range(10)]


def test_an_iggy_producer_that_waits_for_each_answer(hasty: testing.BrokerProcess) -> None:
    with Producer(f"iggy://{hasty.endpoints['iggy_tcp']}") as producer:
        for number in range(10):
            producer.send("iggy.each", b"%d" % number)
            producer.flush()
    assert kept(hasty, "iggy.each") == [b"%d" % number for number in range(10)]


@pytest.fixture(scope="module")
def careful() -> Iterator[testing.BrokerProcess]:
    """A broker that answers when the disk has it."""
    with testing.broker() as running:
        yield running


def values(name: int) -> list[bytes]:
    """Of a batch that is large enough to be written from where it was received, and of a small one."""
    return [b"%d-%d " % (name, number) + bytes(range(256)) * 40 for number in range(1 if name % 3 == 2 else 20)]


@pytest.mark.turns(3)
@pytest.mark.parametrize("version", [3, 9])
@pytest.mark.parametrize("broker", ["hasty", "careful"])
@pytest.mark.parametrize("stamped", ["CreateTime", "LogAppendTime"])
def test_large_batches_one_behind_the_other(
    request: pytest.FixtureRequest, broker: str, version: int, stamped: str
) -> None:
    """Many requests in one piece: what one leaves in the buffer, the next one overwrites."""
    running: testing.BrokerProcess = request.getfixturevalue(broker)
    topic = f"t{version}{stamped[:1]}"
    client = KafkaFrames(running.endpoints["kafka"])
    configs = [{"name": "message.timestamp.type", "value": stamped}]
    asked = {"name": topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": configs}
    [made] = client.ask("CreateTopics", 4, topics=[asked], timeout_ms=1000, validate_only=False).topics
    assert made.error_code == 0
    frames: list[bytes] = []
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(24):
        partition = number // 4 % 2
        data = one_batch(*values(number))
        if number == 10:
            data = data[:-1] + b"?"
        else:
            sent[partition] += values(number)
        frames.append(client.request("Produce", version, **produce(topic, data, partition=partition)))
    client.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    ends = {0: 0, 1: 0}
    for number, frame in enumerate(frames):
        answer = client.answer()
        assert answer[:4] == frame[4:8]
        [told] = message("ProduceResponse").decode(answer, version=version, header=True).responses
        [row] = told.partition_responses
        if number == 10:
            assert row.error_code == CORRUPT
            continue
        assert (row.error_code, row.base_offset) == (0, ends[number // 4 % 2])
        ends[row.index] += len(values(number))
    client.close()
    options = {"bootstrap.servers": running.endpoints["kafka"], "group.id": "who", "check.crcs": True}
    consumer = confluent_kafka.Consumer(options)
    for partition, expected in sent.items():
        consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
        found = consumer.consume(len(expected), 20)
        assert [(one.error(), one.offset()) for one in found] == [(None, at) for at in range(len(expected))]
        assert [one.value() for one in found] == expected
    consumer.close()
