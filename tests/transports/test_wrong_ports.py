"""An address of another protocol is named as what it is, and an empty topic name as empty."""

from __future__ import annotations

import pytest

from lading import Consumer, Producer, read_arrow, testing
from lading.model.errors import LadingError, LocalError


@pytest.mark.parametrize(
    ("scheme", "endpoint", "says"),
    [
        ("kafka", "nsqd_http", "speaks HTTP, not Kafka; name the address of a"),
        ("kafka", "admin", "speaks HTTP, not Kafka; name the address of a"),
        ("iggy", "nsqd_http", "speaks HTTP, not Iggy's TCP; name the address of an Iggy server"),
        ("iggy", "admin", "speaks HTTP, not Iggy's TCP; name the address of an Iggy server"),
        ("lading", "nsqd_tcp", "does not speak HTTP; name the address of its admin endpoint"),
        ("lading", "iggy_tcp", "does not speak HTTP; name the address of its admin endpoint"),
        ("lading", "nsqd_http", "is not Lading's admin endpoint, but another one that speaks HTTP"),
        ("lading", "iggy_http", "is not Lading's admin endpoint, but another one that speaks HTTP"),
    ],
)
def test_the_wrong_port_is_named(broker: testing.BrokerProcess, scheme: str, endpoint: str, says: str) -> None:
    with pytest.raises(LadingError, match=says):
        read_arrow(f"{scheme}://{broker.endpoints[endpoint]}", "flights")


@pytest.mark.parametrize(("scheme", "endpoint"), [("lading", "admin"), ("kafka", "kafka"), ("iggy", "iggy_tcp")])
def test_an_empty_topic_name_is_refused_in_a_sentence(
    broker: testing.BrokerProcess, scheme: str, endpoint: str
) -> None:
    url = f"{scheme}://{broker.endpoints[endpoint]}"
    with Producer(url) as producer, pytest.raises(LocalError, match="topic name '': empty; name a topic"):
        producer.send("", b"hi")
    with pytest.raises(LocalError, match=r"topic .*''"):
        Consumer(url, "", timeout_s=1)
