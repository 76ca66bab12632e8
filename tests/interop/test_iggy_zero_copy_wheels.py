"""Clients nobody here wrote: the published package apache-iggy 0.5 to 0.8 over TCP, and what they share with others.

The package sends no headers and shows none before 0.9.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import lading
from lading import testing
from lading.testing import BrokerProcess
from tests.interop import wheels

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "iggy_zero_copy_python.py"
FIRST, NEXT = ["First"], ["Next"]


@dataclass(frozen=True)
class Wheel:
    """A published release, and the number of its first partition."""

    version: str
    first_partition: int


WHEELS = [Wheel("0.5.0", 1), Wheel("0.6.0", 0), Wheel("0.7.0", 0), Wheel("0.8.0", 0)]
_names = (f"zero{number}" for number in count(1))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with testing.broker() as running:
        yield running


@pytest.fixture(params=WHEELS, ids=[wheel.version for wheel in WHEELS])
def wheel(request: pytest.FixtureRequest) -> Wheel:
    """Each release in turn."""
    found: Wheel = request.param
    return found


Calls = Callable[[Wheel, list[Any]], list[Any]]


@pytest.fixture
def ask(broker: BrokerProcess) -> Calls:
    """Have a client connect, log in and make calls; gives what each gave, which no call may have refused."""

    def ask_(wheel: Wheel, calls: list[Any]) -> list[Any]:
        try:
            python = wheels.install("apache-iggy", wheel.version, "3.11")
        except wheels.Unavailable as error:
            pytest.skip(str(error))
        told = wheels.run(python, PROGRAM, broker.endpoints["iggy_tcp"], json.dumps(calls))
        assert len(told) == len(calls) and all("ok" in one for one in told), told
        return [one["ok"] for one in told]

    return ask_


def create(name: str) -> list[Any]:
    return [["create_stream", name], ["create_topic", name, "topic", 3]]


def payloads(polled: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(message["payload"]) for message in polled]


@pytest.mark.turns(3)
def test_what_a_client_sends_it_gets_back(wheel: Wheel, ask: Calls) -> None:
    name, partition = next(_names), wheel.first_partition + 1
    missing, *_ = ask(
        wheel, [["get_stream", name], *create(name), ["send", name, "topic", partition, ["hello", "wörld"]]]
    )
    assert missing is None
    polled, again, stream, topic = ask(
        wheel,
        [
            ["poll", name, "topic", partition, NEXT, 10, True],
            ["poll", name, "topic", partition, NEXT, 10, True],
            ["get_stream", name],
            ["get_topic", name, "topic"],
        ],
    )
    assert payloads(polled) == [b"hello", "wörld".encode()]
    assert [message["offset"] for message in polled] == [0, 1]
    assert [message["length"] for message in polled] == [5, 6]
    assert all(message["id"] > 0 and message["timestamp"] > 1_600_000_000_000_000 for message in polled)
    assert (polled[0]["checksum"] < 1 << 32) == (wheel.version == "0.5.0")
    assert again == []
    assert (stream, topic) == ([name, 2], ["topic", 2])


def test_every_release_reads_what_every_other_wrote_and_all_read_kafka(ask: Calls, broker: BrokerProcess) -> None:
    name = next(_names)
    ask(WHEELS[0], create(name))
    expected: list[bytes] = []
    for wheel in WHEELS:
        ask(wheel, [["send", name, "topic", wheel.first_partition, [f"from {wheel.version}"]]])
        expected.append(f"from {wheel.version}".encode())
    producer = Producer({"bootstrap.servers": broker.endpoints["kafka"]})
    producer.produce(f"{name}.topic", b"from kafka", key=b"key", headers=[("a", b"1"), ("a", None)], partition=0)
    assert producer.flush(20) == 0
    expected.append(b"from kafka")
    seen = []
    for wheel in WHEELS:
        (polled,) = ask(wheel, [["poll", name, "topic", wheel.first_partition, FIRST, 10, False]])
        assert payloads(polled) == expected, wheel
        seen.append([(message["offset"], message["id"], message["timestamp"]) for message in polled])
    assert all(each == seen[0] for each in seen)
    consumer = lading.Consumer(broker.url, f"{name}.topic", end="latest")
    assert [message.payload for message in consumer] == expected
    iggy = lading.Consumer(f"iggy://{broker.endpoints['iggy_tcp']}", f"{name}.topic", end="latest")
    assert [message.payload for message in iggy] == expected
