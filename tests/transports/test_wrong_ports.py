"""An address of another protocol is named as what it is, and an empty topic name as empty."""

from __future__ import annotations

import pytest

from lading import Consumer, Producer, read_arrow, testing
from lading.model.errors import LadingError, LocalError
from lading.transports.network import recognise_protocol

_KAFKA = "; name the address of a Kafka broker$"
_IGGY = r"; name the address of an Iggy server \(Lading prints it as iggy_tcp when it starts\)$"
_NSQ = r"; name the address of an nsqd or nsqlookupd \(Lading prints nsqd_tcp and nsqlookupd_http when it starts\)$"
_NO_ADMIN = (
    "is not Lading's admin endpoint, but another one that speaks HTTP; Lading prints the address as admin when it"
)
_NO_HTTP = r"does not speak HTTP; name the address of its admin endpoint \(Lading prints it as admin when it starts\)$"
_NO_NODE = "speaks HTTP, and is neither an nsqlookupd nor an nsqd" + _NSQ
_CLOSED = (
    "it closed the connection when it was greeted, as a server of another protocol does, such as a Kafka broker, or "
)


@pytest.mark.parametrize(
    ("scheme", "endpoint", "says"),
    [
        ("kafka", "nsqd_http", "speaks HTTP, not Kafka" + _KAFKA),
        ("kafka", "nsqlookupd_http", "speaks HTTP, not Kafka" + _KAFKA),
        ("kafka", "iggy_http", "speaks HTTP, not Kafka" + _KAFKA),
        ("kafka", "admin", "speaks HTTP, not Kafka" + _KAFKA),
        ("kafka", "nsqd_tcp", "speaks NSQ, not Kafka" + _KAFKA),
        ("kafka", "nsqlookupd_tcp", "speaks the TCP protocol of nsqlookupd, not Kafka" + _KAFKA),
        ("kafka", "iggy_tcp", "speaks Iggy's TCP, not Kafka" + _KAFKA),
        ("iggy", "nsqd_http", "speaks HTTP, not Iggy's TCP" + _IGGY),
        ("iggy", "nsqlookupd_http", "speaks HTTP, not Iggy's TCP" + _IGGY),
        ("iggy", "admin", "speaks HTTP, not Iggy's TCP" + _IGGY),
        ("iggy", "nsqd_tcp", "speaks NSQ, not Iggy's TCP" + _IGGY),
        ("iggy", "nsqlookupd_tcp", "speaks the TCP protocol of nsqlookupd, not Iggy's TCP" + _IGGY),
        ("iggy", "kafka", "the server closed the connection.; see that one listens there for TCP"),
        ("nsq", "iggy_tcp", "speaks Iggy's TCP, not NSQ" + _NSQ),
        ("nsq", "nsqlookupd_tcp", "speaks the TCP protocol of nsqlookupd, not NSQ" + _NSQ),
        ("nsq", "kafka", _CLOSED + "one for TLS only" + _NSQ),
        ("nsq", "iggy_http", _NO_NODE),
        ("nsq", "iggy_websocket", _NO_NODE),
        ("nsq", "admin", _NO_NODE),
        ("lading", "nsqd_tcp", _NO_HTTP),
        ("lading", "nsqlookupd_tcp", _NO_HTTP),
        ("lading", "iggy_tcp", _NO_HTTP),
        ("lading", "kafka", "no broker is reachable .*; start one with .*, or name the address of its admin endpoint"),
        ("lading", "nsqd_http", _NO_ADMIN),
        ("lading", "nsqlookupd_http", _NO_ADMIN),
        ("lading", "iggy_http", _NO_ADMIN),
        ("lading", "iggy_websocket", _NO_ADMIN),
    ],
)
def test_the_wrong_port_is_named(broker: testing.BrokerProcess, scheme: str, endpoint: str, says: str) -> None:
    """At the first try, as nothing at that address changes: the time-out is longer than the test may take."""
    url = f"{scheme}://{broker.endpoints[endpoint]}"
    with pytest.raises(LadingError, match=says), Producer(url, timeout_s=60) as producer:
        producer.send("flights", b"x")
    with pytest.raises(LadingError, match=says):
        if scheme == "nsq":
            Consumer(url, "flights", channel="c", timeout_s=1)
        else:
            read_arrow(url, "flights")


def test_what_an_nsqd_writes_is_recognised_by_each_client() -> None:
    """Upstream's texts for bytes that are no greeting, as its own source has them."""
    error = b"E_BAD_PROTOCOL"
    frame = len(error + b"1234").to_bytes(4) + (1).to_bytes(4) + error
    assert recognise_protocol(frame[:8]) == recognise_protocol(frame[:10]) == "NSQ"
    assert recognise_protocol(len(error).to_bytes(4) + error[:4]) == "the TCP protocol of nsqlookupd"
    # responses of the protocols themselves: a Kafka broker's second one, an Iggy server's to a ping, nsqd's OK
    for own in (b"\0\0\0\x0a\0\0\0\1\0\0", bytes(8), b"\0\0\0\6\0\0\0\0OK", b"", b"\0\0\0\x16"):
        assert recognise_protocol(own) is None


@pytest.mark.parametrize(("scheme", "endpoint"), [("lading", "admin"), ("kafka", "kafka"), ("iggy", "iggy_tcp")])
def test_an_empty_topic_name_is_refused_in_a_sentence(
    broker: testing.BrokerProcess, scheme: str, endpoint: str
) -> None:
    url = f"{scheme}://{broker.endpoints[endpoint]}"
    with Producer(url) as producer, pytest.raises(LocalError, match="topic name '': empty; name a topic"):
        producer.send("", b"hi")
    with pytest.raises(LocalError, match=r"topic .*''"):
        Consumer(url, "", timeout_s=1)
