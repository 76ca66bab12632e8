"""A pipeline that sends to a real Apache Kafka: what its own client sees after a crash in the middle of a batch."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaClient

from lading import Headers, Producer, i16, testing
from lading.client import delivery
from lading.pipeline import side_effects
from tests.interop.kafka_broker import RunningKafka
from tests.pipeline.direct import Crash, Driver

pytestmark = pytest.mark.interop
MESSAGES = 200
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
to = "{cluster}/{topic}_late"
[good]
to = "{cluster}/{topic}_good"
"""


@pytest.mark.parametrize("phase", ["half", "sent"])
def test_apache_kafka_has_each_message_once(
    kafka: RunningKafka, tmp_path: Path, phase: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_partition, send = side_effects._by_partition, delivery.send_once
    topic = f"sorted_{tmp_path.name}"
    file = tmp_path / "sorted.toml"
    with testing.broker() as broker:
        with Producer(broker.url) as producer:
            for number in range(MESSAGES):
                headers = Headers([("delay", i16(number)), ("a", "x"), ("a", "again")])
                producer.send("flights", b"%d" % number, headers=headers, key=b"k%d" % number)
        file.write_text(TOML.format(source=broker.url, cluster=f"kafka://{kafka.address}", topic=topic))

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
    client = KafkaClient(
        {
            "bootstrap.servers": kafka.address, "group.id": topic, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    for name, numbers in (("late", range(100, MESSAGES)), ("good", range(100))):
        client.subscribe([f"{topic}_{name}"])
        seen: Counter[bytes | None] = Counter()
        while (message := client.poll(20)) is not None and not message.error():
            seen[message.value()] += 1
            assert [header[0] for header in message.headers() or []][:3] == ["delay", "a", "a"]
        sent: Counter[bytes | None] = Counter(b"%d" % number for number in numbers)
        lost, doubled = sum((sent - seen).values()), sum((seen - sent).values())
        print(f"{name}, crashed in {phase}: sent {len(numbers)}, lost {lost}, doubled {doubled}")
        assert (lost, doubled) == (0, 0)
    client.close()
