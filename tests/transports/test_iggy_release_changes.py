"""``iggy://`` when a server comes back on its port as one of another release: each new connection asks anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lading
from lading.testing.held_ports import PortHolder
from lading.transports.iggy.transport import IggyTransport
from tests.tables.restarting import RestartingBroker

RELEASES = ("0.9", "0.6", "0.0.40")
"""Bytes of messages, names of groups and the number of the first partition differ from one to the next."""


@pytest.fixture
def broker(tmp_path: Path, ports: PortHolder) -> Iterator[RestartingBroker]:
    restarting = RestartingBroker(tmp_path / "data", ports)
    yield restarting
    restarting.stop()


def test_a_producer_and_a_member_go_on_in_the_words_of_the_server(broker: RestartingBroker) -> None:
    url = broker.url("iggy")
    transport = IggyTransport(url, timeout_s=20)
    transport.create_topic("s.t", 2)
    producer, consumer = lading.Producer(url), lading.Consumer(url, "s.t", group="g", timeout_s=10)
    for sent, release in enumerate((None, *RELEASES)):
        if release is not None:
            broker.stop()
            broker.start({"endpoints.iggy_tcp.release": release})
        for partition in (0, 1):
            producer.send("s.t", b"%d" % sent, headers=[("n", sent), ("n", "twice")], partition=partition)
        producer.flush()
        found = [next(consumer) for _ in range(2)]
        assert [(message.offset, message.payload) for message in found] == [(sent, b"%d" % sent)] * 2
        assert [message.headers.get_all("n") for message in found] == [[sent, "twice"]] * 2
        consumer.commit()
        assert [part.end_offset for part in transport.topic("s.t").partitions] == [sent + 1] * 2
        assert transport._socket.release.name == (release or "0.0.40")
    for each in (producer, consumer, transport):
        each.close()
