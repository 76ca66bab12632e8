"""A pipeline that sends to a real Apache Kafka: what its own client sees after a crash in the middle of a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaClient

from lading import Headers, Producer, i16, testing
from lading.client import delivery
from lading.pipeline import side_effects
from lading.pipeline.quarantine import Quarantine
from lading.pipeline.settings import PipelineSettings
from tests.interop.kafka_broker import RunningKafka
from tests.interop.kafka_clients import made
from tests.pipeline.direct import Crash, Driver
from tests.topic_limits import limit_messages

pytestmark = pytest.mark.interop
MESSAGES = 200
LARGE = 150
"""The message that is above the limit of the topic it goes to."""
TOML = """
[pipeline]
id = "sorted"
state = "./state"
[source]
from = "{source}"
topic = "flights"
[headers]
delay = "int"
[[route]]
where = "delay >= 100"
to = "{cluster}/{late}"
[good]
to = "{cluster}/{topic}_good"
"""


def committed_reader(kafka: RunningKafka, group: str) -> KafkaClient:
    """Kafka's own client, which tells the end of a partition."""
    return KafkaClient(
        {
            "bootstrap.servers": kafka.address, "group.id": group, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip


@pytest.mark.parametrize("phase", ["half", "sent"])
@pytest.mark.turns(2)
def test_apache_kafka_has_each_message_once(
    kafka: RunningKafka, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_partition, send = side_effects._by_partition, delivery.send_once
    topic = f"sorted_{tmp_path.name}"
    file = tmp_path / "sorted.toml"
    late = made(kafka, max_message_bytes="20000")
    payloads = [b"%d" % number for number in range(MESSAGES)]
    payloads[LARGE] = Random(LARGE).randbytes(100_000)
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for number in range(MESSAGES):
                headers = Headers([("delay", i16(number)), ("a", "x"), ("a", "again")])
                producer.send("flights", payloads[number], headers=headers, key=b"k%d" % number)
        file.write_text(TOML.format(source=broker.url, cluster=f"kafka://{kafka.address}", topic=topic, late=late))

        def strike_half(*arguments: Any) -> Any:
            yield from by_partition(*arguments)
            raise Crash(phase)

        def strike_sent(*arguments: Any) -> int:
            send(*arguments)
            raise Crash(phase)

        if phase == "half":
            monkeypatch.setattr(side_effects, "_by_partition", strike_half)
        else:
            monkeypatch.setattr(side_effects, "send_once", strike_sent)
        with pytest.raises(Crash):
            Driver(file).run()
        monkeypatch.undo()
        Driver(file).run()
        (row,) = Quarantine(PipelineSettings.load(file)).rows(reasons=["refused_by_target"])
        assert "takes at most 20000 bytes a message" in row["detail"] and row["message"] == f"flights/0/{LARGE}"
    client = committed_reader(kafka, topic)
    for name, numbers in ((late, range(100, MESSAGES)), (f"{topic}_good", range(100))):
        client.subscribe([name])
        seen: Counter[bytes | None] = Counter()
        while (message := client.poll(20)) is not None and not message.error():
            seen[message.value()] += 1
            assert [header[0] for header in message.headers() or []][:3] == ["delay", "a", "a"]
        sent: Counter[bytes | None] = Counter(payloads[number] for number in numbers if number != LARGE)
        lost, doubled = sum((sent - seen).values()), sum((seen - sent).values())
        print(f"{name}, crashed in {phase}: sent {sent.total()}, lost {lost}, doubled {doubled}")
        assert (lost, doubled) == (0, 0)
    client.close()


def test_apache_kafka_whose_limit_is_lowered_behind_the_manifest(kafka: RunningKafka, tmp_path: Path) -> None:
    """Its refusal aborts the transaction; the others are sent in a new one, and what is too large is quarantined."""
    late = made(kafka)
    payloads = [b"1", Random(LARGE).randbytes(100_000), b"3"]
    file = tmp_path / "sorted.toml"

    def strike(phase: str) -> None:
        if phase == "errands":
            limit_messages(kafka.address, late, 20_000)

    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for payload in payloads:
                producer.send("flights", payload, headers={"delay": i16(100)})
        topic = f"lowered_{tmp_path.name}"
        text = TOML.format(source=broker.url, cluster=f"kafka://{kafka.address}", topic=topic, late=late)
        file.write_text(text + "[quality]\nmin_messages = 9\n")
        Driver(file, strike).run()
        (row,) = Quarantine(PipelineSettings.load(file)).rows(reasons=["refused_by_target"])
        assert "takes at most 20000 bytes a message" in row["detail"] and row["message"] == "flights/0/1"
        assert Driver(file).run() == {}
    client = committed_reader(kafka, topic)
    client.subscribe([late])
    seen = []
    while (message := client.poll(20)) is not None and not message.error():
        seen.append(message.value())
    client.close()
    assert seen == [b"1", b"3"]
