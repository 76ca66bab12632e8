"""A topic that is emptied: groups and channels of all protocols go on with what is sent from then on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Literal

import pytest

from lading import Consumer, Producer, testing
from lading.client.admin import Admin
from lading.model.errors import DataLoss, Refusal, SettingError
from lading.transports.lading.transport import LadingTransport
from lading.transports.topics import UnknownTopic

READ = 3


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: testing.BrokerProcess) -> Iterator[LadingTransport]:
    with closing(LadingTransport(broker.url)) as transport:
        yield transport


def urls_of(broker: testing.BrokerProcess) -> dict[str, str]:
    places = {"lading": "admin", "kafka": "kafka", "iggy": "iggy_tcp", "nsq": "nsqd_tcp"}
    return {scheme: f"{scheme}://{broker.endpoints[name]}" for scheme, name in places.items()}


def read(url: str, topic: str, count: int, on_loss: Literal["fail", "skip"] = "skip") -> list[bytes]:
    """Read ``count`` messages as the group ``g``, and store its positions after them."""
    found: list[bytes] = []
    with Consumer(url, topic, group="g", start="earliest", timeout_s=10, on_loss=on_loss) as consumer:
        while len(found) < count:
            found += [message.payload or b"" for message in consumer.poll(count - len(found), 10)]
            consumer.commit()
    return found


@pytest.mark.parametrize("scheme", ["lading", "kafka", "iggy", "nsq"])
def test_a_group_goes_on_after_the_topic_was_emptied(
    broker: testing.BrokerProcess, admin: LadingTransport, scheme: str
) -> None:
    topic, url = f"emptied_{scheme}", urls_of(broker)[scheme]
    admin.create_topic(topic, 1)
    with Producer(broker.url) as producer:
        for number in range(10):
            producer.send(topic, b"old %d" % number)
    assert read(url, topic, READ) == [b"old 0", b"old 1", b"old 2"]
    assert admin.empty_topic(topic) == 10
    (part,) = admin.topic(topic).partitions
    assert (part.first_offset, part.end_offset) == (10, 10)
    assert [row["lag"] for row in lags(admin, topic)] == [0]
    assert admin.empty_topic(topic) == 0
    with Producer(broker.url) as producer:
        for number in range(2):
            producer.send(topic, b"new %d" % number)
    assert [row["lag"] for row in lags(admin, topic)] == [2]
    if scheme != "nsq":
        # a consumer that promises every message says which it did not get
        with pytest.raises(DataLoss, match="offsets 3 to 9"):
            read(url, topic, 2, "fail")
    assert read(url, topic, 2) == [b"new 0", b"new 1"]
    assert [row["lag"] for row in lags(admin, topic)] == [0]


def lags(admin: LadingTransport, topic: str) -> list[dict[str, object]]:
    return [
        {"lag": sum(part["lag"] for part in group["partitions"] if part["topic"] == topic)}
        for group in admin.describe_groups(100)
        if any(part["topic"] == topic for part in group["partitions"])
    ]


def test_settings_states_and_other_topics_stay(broker: testing.BrokerProcess, admin: LadingTransport) -> None:
    admin.create_topic("kept", 2, {"retention_age_us": 7 * 86_400_000_000})
    admin.create_topic("beside", 1)
    with Producer(broker.url) as producer:
        for number in range(6):
            producer.send("kept", b"x", partition=number % 2)
            producer.send("beside", b"y")
    with Admin(broker.url) as client:
        assert client.empty_topic("kept") == 6
    meta = admin.topic("kept")
    assert [(part.first_offset, part.end_offset) for part in meta.partitions] == [(3, 3), (3, 3)]
    assert meta.settings["retention_age_us"] == 7 * 86_400_000_000
    assert admin.topic("beside").partitions[0].first_offset == 0
    with Consumer(broker.url, "kept", start="earliest", timeout_s=0) as consumer:
        assert list(consumer) == []


def test_what_cannot_be_emptied_is_refused(broker: testing.BrokerProcess, admin: LadingTransport) -> None:
    with pytest.raises(UnknownTopic):
        admin.empty_topic("no-such")
    with Admin(urls_of(broker)["kafka"]) as client, pytest.raises(SettingError, match="own tools"):
        client.empty_topic("kept")
    # users close the broker: last in this file
    admin.create_topic("guarded", 1)
    admin.add_user("root", "correct horse battery", administrator=True)
    admin.log_in("root", "correct horse battery")
    admin.add_user("ann", "correct horse battery")
    rule = {"user": "ann", "kind": "topic", "pattern": "literal", "name": "guarded"}
    admin.change_rules([{**rule, "operation": operation} for operation in ("read", "write", "create", "alter")])
    with closing(LadingTransport(broker.url)) as ann:
        ann.log_in("ann", "correct horse battery")
        with pytest.raises(Refusal, match="guarded"):
            ann.empty_topic("guarded")
        admin.change_rules([{**rule, "operation": "delete"}])
        assert ann.empty_topic("guarded") == 0
