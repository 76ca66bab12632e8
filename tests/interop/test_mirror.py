"""Mirrors to and from real servers: Apache Kafka, upstream's nsqd; and between generations of Iggy at our broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer as KafkaClient

from lading import Consumer, Headers, Producer, i16, read_arrow, testing
from lading.mirror.run import MirrorReport, run_mirror
from lading.mirror.settings import MirrorSettings
from lading.mirror.state import MirrorState
from lading.model.errors import LimitExceeded, LocalError
from tests.interop import go_programs
from tests.interop.kafka_broker import RunningKafka

pytestmark = pytest.mark.interop
MESSAGES = 30
FACTS = ["key", "headers", "payload"]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        with Producer(running.url) as producer:
            for number in range(MESSAGES):
                headers = Headers([("a", i16(number)), ("a", "again"), ("n", None), ("e", "")])
                producer.send("flights", b"%d" % number, headers=headers, key=b"k%d" % number)
        yield running


def mirror(source: str, target: str, old: str, new: str, state: Path, **settings: Any) -> MirrorReport:
    return run_mirror(MirrorSettings(source, target, [old], renames={old: new}, state=state, **settings))


def rows(url: str, topic: str) -> list[Any]:
    return read_arrow(url, topic).select(FACTS).to_pylist()


def test_apache_kafka_and_back(broker: testing.BrokerProcess, kafka: RunningKafka, tmp_path: Path) -> None:
    cluster = f"kafka://{kafka.address}"
    there = f"mirrored_{tmp_path.name}"
    done = mirror(broker.url, cluster, "flights", there, tmp_path / "to", fidelity=True)
    assert (done.messages, done.topics[0].delivery) == (MESSAGES, "exactly once")
    assert done.fidelity.is_lossless
    assert rows(cluster, there) == rows(broker.url, "flights")
    # Kafka's own client sees committed messages, once
    client = KafkaClient({"bootstrap.servers": kafka.address, "group.id": there, "auto.offset.reset": "earliest"})
    client.subscribe([there])
    seen = [message for message in client.consume(MESSAGES, 20) if message.error() is None]
    client.close()
    assert [message.value() for message in seen] == [b"%d" % number for number in range(MESSAGES)]
    state = MirrorState(tmp_path / "to")
    assert [state.translate("flights", 0, at) for at in range(MESSAGES)] == [message.offset() for message in seen]
    state.close()
    assert mirror(cluster, broker.url, there, "back", tmp_path / "from").messages == MESSAGES
    assert rows(broker.url, "back") == rows(broker.url, "flights")


def test_upstream_nsqd(broker: testing.BrokerProcess, tmp_path: Path) -> None:
    try:
        with go_programs.running(tmp_path / "nsq") as nsq:
            url = f"nsq://{nsq.nsqd_tcp}"
            with pytest.raises(LocalError, match="accepts no headers"):
                mirror(broker.url, url, "flights", "plain", tmp_path / "refused")
            done = mirror(broker.url, url, "flights", "plain", tmp_path / "plain", carrier="off")
            assert done.messages == MESSAGES
            lost = {row["fact"]: row["lost"] for row in done.fidelity.rows()}
            assert (lost["bytes"], lost["key"], lost["size"]) == (MESSAGES, MESSAGES, 0)
            assert mirror(url, broker.url, "plain", "from_nsqd", tmp_path / "back", quiet_ms=500).messages == MESSAGES
            payloads: list[Any] = read_arrow(broker.url, "from_nsqd", "payload").column(0).to_pylist()
            assert sorted(payloads) == sorted(b"%d" % number for number in range(MESSAGES))
            with Consumer(url, "plain", channel="mirror", timeout_s=0.3) as left:
                assert list(left) == []
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))


def test_an_nsqd_that_takes_less(tmp_path: Path) -> None:
    """Its limit is known before anything is sent; what is above it is named, or left out and counted."""
    payloads = [b"1", bytes(2_001), bytes(2_000), b"4"]
    try:
        with testing.broker() as broker, go_programs.running(tmp_path / "nsq", "-max-msg-size=2000") as nsq:
            url = f"nsq://{nsq.nsqd_tcp}"
            with Producer(broker.url) as producer:
                for payload in payloads:
                    producer.send("wide", payload, headers={"a": "x" * 500})
            told = r"offset 1 of the source: it takes 2001 bytes there, and the topic at most 2000 \(max-msg-size\)"
            with pytest.raises(LimitExceeded, match=told):
                mirror(broker.url, url, "wide", "narrow", tmp_path / "state", carrier="off")
            # asking for the limit, and a refused mirror, leave no topic behind
            assert httpx.get(f"http://{nsq.nsqd_http}/stats?format=json").json()["topics"] == []
            done = mirror(broker.url, url, "wide", "narrow", tmp_path / "state", carrier="off", on_refused="skip")
            assert (done.messages, done.topics[0].refused) == (3, 1)
            with Consumer(url, "narrow", channel="reader", timeout_s=1) as reader:
                assert Counter(message.payload for message in reader) == Counter(payloads[:1] + payloads[2:])
    except go_programs.Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(("old", "new"), [("0.0.40", "0.9"), ("0.10", "0.0.40")])
def test_one_generation_of_iggy_to_another(old: str, new: str, broker: testing.BrokerProcess, tmp_path: Path) -> None:
    iggy = f"iggy://{broker.endpoints['iggy_tcp']}"
    name = f"generation_{new}".replace(".", "_")
    done = mirror(f"{iggy}?release={old}", f"{iggy}?release={new}", "flights", name, tmp_path, fidelity=True)
    assert done.messages == MESSAGES
    assert done.fidelity.is_lossless
    assert rows(broker.url, name) == rows(broker.url, "flights")
