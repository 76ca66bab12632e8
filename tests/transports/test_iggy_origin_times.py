"""Origin times on their way over ``iggy://``: exact to releases that have a field for them, whatever their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lading
from lading import testing
from lading.mirror.run import run_mirror
from lading.mirror.settings import MirrorSettings
from lading.model.errors import LocalError
from lading.transports.iggy.transport import IggyTransport
from lading.transports.open import open_transport

SENT_US = 1_700_000_000_000_000
HOURS_LATER_US = SENT_US + 3 * 3_600_000_000
"""Further from the first than the field of a message can tell in the current generation."""
ORIGINS_US = [SENT_US + 5, SENT_US + 3, HOURS_LATER_US, SENT_US + 7, SENT_US + 9]
TIME = pa.timestamp("us", tz="UTC")


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    with testing.broker() as running:
        yield running


def url_of(broker: testing.BrokerProcess, release: str) -> str:
    return f"iggy://{broker.endpoints['iggy_tcp']}?release={release}"


def messages(origins_us: list[int | None], **columns: Any) -> pa.RecordBatch:
    payloads = pa.array([b"%d" % number for number in range(len(origins_us))], pa.binary())
    origins = pa.array(origins_us, pa.int64()).cast(TIME)
    return pa.RecordBatch.from_pydict({"payload": payloads, "origin_timestamp": origins, **columns})


def send(url: str, topic: str, batch: pa.RecordBatch, **options: Any) -> None:
    with lading.Producer(url, **options) as producer:
        producer.send_batch(topic, batch, partition=0)


def read_us(url: str, topic: str) -> list[int | None]:
    found: Any = lading.read_arrow(url, topic, "offset, origin_timestamp").column("origin_timestamp")
    times: list[int | None] = found.cast(pa.int64()).to_pylist()
    return times


@pytest.mark.turns(3)
@pytest.mark.parametrize("release", ["0.7", "0.10", "0.11"])
def test_origin_times_arrive_in_any_order(broker: testing.BrokerProcess, release: str) -> None:
    topic = f"origins.to{release.replace('.', '-')}"
    send(url_of(broker, release), topic, messages(list(ORIGINS_US)))
    for reader in (url_of(broker, "0.9"), url_of(broker, "0.11"), broker.url):
        assert read_us(reader, topic) == ORIGINS_US


def test_who_has_none_does_not_take_it_from_others(broker: testing.BrokerProcess) -> None:
    topic = "origins.some"
    send(url_of(broker, "0.11"), topic, messages([None, SENT_US, None, SENT_US + 1]))
    found = read_us(broker.url, topic)
    assert [found[1], found[3]] == [SENT_US, SENT_US + 1]
    # the time of sending, which is what the field means
    assert all(time is not None and time > HOURS_LATER_US for time in (found[0], found[2]))


@pytest.mark.parametrize("scheme", ["kafka", "nsq", "iggy"])
def test_where_no_field_is_the_carrier_brings_it_if_it_is_there(broker: testing.BrokerProcess, scheme: str) -> None:
    endpoints = {"kafka": "kafka", "nsq": "nsqd_tcp", "iggy": "iggy_tcp"}
    # a null payload needs a carrier in NSQ and Iggy, an id in Kafka
    ids = pa.array([bytes(range(16))], pa.binary(16))
    batch = messages([SENT_US], id=ids).set_column(0, "payload", pa.array([None], pa.binary()))
    topic = f"carried-{scheme}"
    send(f"{scheme}://{broker.endpoints[endpoints[scheme]]}", topic, batch)
    assert read_us(broker.url, topic) == [SENT_US]


def test_strict_refuses_where_it_would_be_lost(broker: testing.BrokerProcess) -> None:
    with pytest.raises(LocalError, match="cannot hold every fact"):
        send(url_of(broker, "0.0.40"), "origins.strict", messages([SENT_US]), strict=True)
    send(url_of(broker, "0.0.40"), "origins.strict", messages([None]), strict=True)
    send(url_of(broker, "0.9"), "origins.strict", messages([SENT_US]), strict=True)


def test_a_server_of_the_current_generation_takes_typed_names_as_they_are(broker: testing.BrokerProcess) -> None:
    transport = open_transport(url_of(broker, "0.11"))
    assert isinstance(transport, IggyTransport)
    assert transport.capabilities.typed_names
    assert transport.capabilities.origin_time
    unordered = open_transport(url_of(broker, "0.11") + "&keeps_order=false")
    assert isinstance(unordered, IggyTransport)
    assert not unordered.capabilities.order


@pytest.mark.parametrize(("source", "target"), [("0.11", "0.9"), ("0.9", "0.11")])
def test_a_mirror_brings_them_along(broker: testing.BrokerProcess, tmp_path: Path, source: str, target: str) -> None:
    topic = f"origins.from{source.replace('.', '-')}"
    send(url_of(broker, source), topic, messages(list(ORIGINS_US)))
    settings = MirrorSettings(
        url_of(broker, source), url_of(broker, target), [topic], renames={topic: f"{topic}-copy"}, state=tmp_path / "s",
        fidelity=True,
    )  # fmt: skip
    assert run_mirror(settings, is_stopped=lambda: False).messages == len(ORIGINS_US)
    assert read_us(broker.url, f"{topic}-copy") == ORIGINS_US
