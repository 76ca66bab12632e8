"""Clients nobody here wrote: the published package iggy-py of four releases, over TCP, and what they share with others.

The package sends no headers and shows none; it shows ids, states and checksums from 0.2.7 on.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import lading
from lading import testing
from lading.model.errors import LocalError
from lading.testing import BrokerProcess
from tests.interop import wheels

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).parent / "iggy_python.py"
FIXED = "127.0.0.1:8090"
"""Where releases before 0.2.7 connect, whatever they are told."""
NEXT, FIRST = ["Next"], ["First"]


@dataclass(frozen=True)
class Wheel:
    """A published release: the CPython it is for, and whether it goes where it is told and shows what a message has."""

    version: str
    python: str
    has_names: bool


WHEELS = [
    Wheel("0.1.0", "3.10", False),
    Wheel("0.2.0", "3.11", False),
    Wheel("0.2.7", "3.11", True),
    Wheel("0.4.0", "3.11", True),
]


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    """A broker that also listens where old releases connect."""
    try:
        with testing.broker(settings={"endpoints.iggy_tcp.listeners.fixed.address": FIXED}) as running:
            yield running
    except LocalError as error:
        pytest.skip(f"iggy-py before 0.2.7 connects to {FIXED} only, and it is taken: {error}")


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
            python = wheels.install("iggy-py", wheel.version, wheel.python)
        except wheels.Unavailable as error:
            pytest.skip(str(error))
        told = wheels.run(python, PROGRAM, broker.endpoints["iggy_tcp"], json.dumps(calls))
        assert all("ok" in one for one in told), told
        return [one["ok"] for one in told]

    return ask_


_numbers = iter(range(1, 1000))


class Place:
    """A stream with a topic of three partitions, named by number for releases that know no names."""

    def __init__(self, wheel: Wheel) -> None:
        self.number = next(_numbers)
        self.stream_name = f"stream{self.number}"
        self.is_named = wheel.has_names
        self.create = [
            ["create_stream", self.stream_name, self.number],
            ["create_topic", *self.identify(wheel)[:1], "topic", 1, 3],
        ]

    def identify(self, wheel: Wheel) -> list[Any]:
        """Stream and topic as a release names them."""
        return [self.stream_name, "topic"] if wheel.has_names else [self.number, 1]


def payloads(polled: list[dict[str, Any]]) -> list[bytes]:
    return [base64.b64decode(message["payload"]) for message in polled]


def written(wheel: Wheel, *texts: str) -> list[bytes]:
    """What lies in the log: 0.2.0 puts the id of its message in front of the text."""
    return [(f"0|{text}" if wheel.version == "0.2.0" else text).encode() for text in texts]


@pytest.mark.turns(3)
def test_what_a_client_sends_it_gets_back(wheel: Wheel, ask: Calls, broker: BrokerProcess) -> None:
    place = Place(wheel)
    where = place.identify(wheel)
    ask(wheel, place.create)
    ask(wheel, [["send", *where, 2, ["hello", "wörld"]]])
    polled, again = ask(wheel, [["poll", *where, 2, NEXT, 10, True], ["poll", *where, 2, NEXT, 10, True]])
    assert payloads(polled) == written(wheel, "hello", "wörld")
    assert [message["offset"] for message in polled] == [0, 1]
    assert again == []
    if wheel.has_names:
        for message, text in zip(polled, written(wheel, "hello", "wörld"), strict=True):
            assert (message["state"], message["checksum"]) == ("Available", zlib.crc32(text))
            assert message["length"] == len(text)
            assert message["id"] > 0
            assert message["timestamp"] > 1_600_000_000_000_000
        assert ask(wheel, [["poll", *where, 2, ["Offset", 1], 10, False], ["poll", *where, 2, ["Last"], 1, False]]) == [
            polled[1:],
            polled[1:],
        ]


def test_a_client_gets_before_it_creates(wheel: Wheel, ask: Calls) -> None:
    if not wheel.has_names:
        pytest.skip("this release has no way to ask for a stream")
    place = Place(wheel)
    missing, _, stream, no_topic, _, topic = ask(
        wheel,
        [
            ["get_stream", place.stream_name],
            place.create[0],
            ["get_stream", place.stream_name],
            ["get_topic", place.stream_name, "topic"],
            place.create[1],
            ["get_topic", place.stream_name, "topic"],
        ],
    )
    assert missing is None
    assert stream[1:] == [place.stream_name, 0, 0]
    assert no_topic is None
    assert topic == [1, "topic", 0, 3]


def test_a_stream_is_created_once(wheel: Wheel, ask: Calls, broker: BrokerProcess) -> None:
    """And the connection goes on: what follows an error is answered."""
    place = Place(wheel)
    ask(wheel, place.create[:1])
    python = wheels.install("iggy-py", wheel.version, wheel.python)
    # which release it is shows when it creates a topic, where the login does not say it
    calls = [place.create[1], place.create[0], ["poll", *place.identify(wheel), 1, NEXT, 1, False]]
    told = wheels.run(python, PROGRAM, broker.endpoints["iggy_tcp"], json.dumps(calls))
    assert [next(iter(one)) for one in told] == ["ok", "error", "ok"]


def test_every_release_reads_what_every_other_wrote(ask: Calls) -> None:
    """One topic: each release writes, then each reads all."""
    place = Place(WHEELS[0])
    ask(WHEELS[0], place.create)
    expected: list[bytes] = []
    for wheel in WHEELS:
        ask(wheel, [["send", *place.identify(wheel), 1, [f"from {wheel.version}"]]])
        expected += written(wheel, f"from {wheel.version}")
    for wheel in WHEELS:
        (polled,) = ask(wheel, [["poll", *place.identify(wheel), 1, FIRST, 10, False]])
        assert payloads(polled) == expected, wheel


@pytest.mark.turns(3)
def test_messages_go_to_kafka_and_come_from_it(wheel: Wheel, ask: Calls, broker: BrokerProcess) -> None:
    place = Place(wheel)
    where = place.identify(wheel)
    ask(wheel, place.create)
    ask(wheel, [["send", *where, 1, ["from iggy"]]])
    topic = f"{place.stream_name}.topic"
    producer = Producer({"bootstrap.servers": broker.endpoints["kafka"]})
    producer.produce(topic, b"from kafka", key=b"key", headers=[("a", b"1"), ("a", None)], partition=0)
    assert producer.flush(20) == 0
    (polled,) = ask(wheel, [["poll", *where, 1, FIRST, 10, False]])
    assert payloads(polled) == [*written(wheel, "from iggy"), b"from kafka"]
    consumer = lading.Consumer(broker.url, topic, end="latest")
    assert [message.payload for message in consumer] == payloads(polled)
    if wheel.has_names:
        ids = [message["id"] for message in polled]
        # a message without an id of its own has one all the same, and the same at each poll
        assert ids[0] != ids[1] > 0
        assert ask(wheel, [["poll", *where, 1, FIRST, 10, False]]) == [polled]


@pytest.mark.turns(2)
def test_states_are_told(wheel: Wheel, ask: Calls, broker: BrokerProcess) -> None:
    if not wheel.has_names:
        pytest.skip("this release shows no states")
    place = Place(wheel)
    where = place.identify(wheel)
    ask(wheel, place.create)
    ask(wheel, [["send", *where, 1, ["a", "b", "c", "d"]]])
    states = {1: "unavailable", 2: "poisoned", 3: "marked_for_deletion"}
    for offset, state in states.items():
        lading.set_state(broker.url, f"{place.stream_name}.topic", state, offsets=[offset], partition=0)
    (polled,) = ask(wheel, [["poll", *where, 1, FIRST, 10, False]])
    assert [message["state"] for message in polled] == ["Available", "Unavailable", "Poisoned", "MarkedForDeletion"]
