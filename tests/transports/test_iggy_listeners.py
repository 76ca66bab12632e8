"""``iggy://`` towards Lading's own listeners: found to be of the release that each is set to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

import pyarrow as pa
import pytest

import lading
from lading import testing
from lading.model.errors import RemoteError
from lading.model.kinds import Kind
from lading.settings.endpoints import IggyRelease
from lading.testing.broker_fixture import LadingBroker
from lading.transports.iggy.transport import IggyTransport
from lading.transports.open import open_transport

RELEASES = [None, *get_args(IggyRelease)]
USER, PASSWORD = "ann", "a long enough password"
SENT_US = 1_700_000_000_000_000


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker(settings=listeners()) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[LadingBroker]:
    with LadingBroker(settings=listeners(), users={USER: PASSWORD}) as running:
        yield running


def listeners() -> dict[str, Any]:
    """Return settings of a listener for each release."""
    told = [release for release in RELEASES if release is not None]
    name = "endpoints.iggy_tcp.listeners.{}.{}"
    addresses = {name.format(listener_of(one), "address"): testing.FREE_PORT for one in told}
    return addresses | {name.format(listener_of(one), "release"): one for one in told}


def listener_of(release: str) -> str:
    return "r" + release.replace(".", "-")


def url_of(broker: testing.BrokerProcess, release: str | None) -> str:
    endpoint = "iggy_tcp" if release is None else f"iggy_tcp.{listener_of(release)}"
    return f"iggy://{broker.endpoints[endpoint]}"


@pytest.mark.turns(3)
@pytest.mark.parametrize("release", RELEASES)
def test_every_listener_is_spoken_to_in_its_release(broker: testing.BrokerProcess, release: str | None) -> None:
    url, topic = url_of(broker, release), f"every.to{listener_of(release or 'any')}"
    sent = pa.RecordBatch.from_pydict(
        {
            "payload": pa.array([b"a", b"b"], pa.binary()),
            "origin_timestamp": pa.array([SENT_US, SENT_US + 1]).cast(pa.timestamp("us", tz="UTC")),
        }
    )
    transport = open_transport(url)
    assert isinstance(transport, IggyTransport)
    transport.topics()
    assert transport._socket.release.name == (release or "0.0.40")
    transport.close()
    with lading.Producer(url) as producer:
        producer.send(topic, b"first", headers=[("n", 7), ("n", "seven")])
        producer.send_batch(topic, sent, partition=0)
    for reader in (url, broker.url):
        rows = lading.read_arrow(reader, topic, "payload, headers, origin_timestamp").to_pylist()
        assert [row["payload"] for row in rows] == [b"first", b"a", b"b"]
        assert [(one["key"], one["kind"]) for one in rows[0]["headers"]] == [("n", Kind.INT64), ("n", Kind.STRING)]
        # in a field of its own since 0.7, by carrier before: nothing else is lost of these messages
        times = [int(row["origin_timestamp"].timestamp() * 1_000_000) for row in rows[1:]]
        assert times == [SENT_US, SENT_US + 1]


@pytest.mark.turns(3)
@pytest.mark.parametrize("release", RELEASES)
def test_every_listener_that_asks_for_a_login_is_too(guarded: LadingBroker, release: str | None) -> None:
    place = guarded.process.endpoints["iggy_tcp" if release is None else f"iggy_tcp.{listener_of(release)}"]
    topic = f"guarded.to{listener_of(release or 'any')}"
    transport = open_transport(f"iggy://{place}", username=USER, password=PASSWORD)
    assert isinstance(transport, IggyTransport)
    transport.create_topic(topic)
    assert transport._socket.release.name == (release or "0.10")
    assert [meta.name for meta in transport.topics() if meta.name == topic] == [topic]
    transport.close()
    with pytest.raises(RemoteError, match="refused the login of 'ann'"):
        open_transport(f"iggy://{place}", username=USER, password="another").topics()
