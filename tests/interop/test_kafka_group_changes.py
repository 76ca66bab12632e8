"""Groups of Kafka clusters, looked at, moved and deleted from outside: Apache's broker and ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lading.client.group_reset import plan_group_reset
from lading.model.errors import Reason, Refusal
from lading.transports.kafka.transport import KafkaTransport
from tests.interop import kafka_broker
from tests.interop.kafka_clients import fresh_name, made, producer

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

pytestmark = [
    # kafka.protocol reads its schemas in a way that importlib.resources wants no more
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.parametrize("kafka", ["apache", "lading"], indirect=True),
]


@pytest.fixture
def transport(kafka: kafka_broker.RunningKafka) -> Iterator[KafkaTransport]:
    opened = KafkaTransport(kafka.url)
    yield opened
    opened.close()


@pytest.mark.turns(2)
def test_a_group_is_moved_and_deleted_once_nobody_is_in_it(
    kafka: kafka_broker.RunningKafka, transport: KafkaTransport
) -> None:
    topic, name = made(kafka, 2), fresh_name()
    sender = producer(kafka)
    for number in range(10):
        sender.produce(topic, b"%d" % number, partition=number % 2)
    sender.flush(20)
    member = confluent.Consumer({"bootstrap.servers": kafka.address, "group.id": name, "auto.offset.reset": "earliest"})
    member.subscribe([topic])
    assert len(member.consume(10, 30)) == 10
    member.commit(asynchronous=False)
    group = transport.group("kafka", name)
    assert (group["state"], len(group["members"]), group["lag"]) == ("Stable", 1, 0)
    changes: list[Callable[[], None]] = [
        lambda: transport.reset_group("kafka", name, [(topic, 0, 0)]),
        lambda: transport.delete_group("kafka", name),
    ]
    for change in changes:
        with pytest.raises(Refusal, match=f"'{name}' has members") as refused:
            change()
        assert refused.value.reason is Reason.GROUP_NOT_EMPTY
    member.close()
    planned = plan_group_reset(transport, transport.group("kafka", name), None, shift=-2)
    transport.reset_group("kafka", name, [(one.topic, one.partition, one.new_position) for one in planned])
    group = transport.group("kafka", name)
    assert [(row["partition"], row["position"], row["lag"]) for row in group["partitions"]] == [(0, 3, 2), (1, 3, 2)]
    (row,) = [one for one in transport.groups() if one["group"] == name]
    assert (row["state"], row["members"], row["lag"]) == ("Empty", 0, 4)
    again = confluent.Consumer({"bootstrap.servers": kafka.address, "group.id": name})
    again.subscribe([topic])
    assert sorted(int(message.value()) for message in again.consume(4, 30)) == [6, 7, 8, 9]
    again.close()
    transport.delete_group("kafka", name)
    asks: list[Callable[[str, str], object]] = [transport.group, transport.delete_group]
    for ask in asks:
        with pytest.raises(Refusal, match=f"'{name}' does not exist") as refused:
            ask("kafka", name)
        assert refused.value.reason is Reason.GROUP_NOT_FOUND
