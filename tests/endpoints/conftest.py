"""One broker for the endpoint tests, and a client that speaks frames and nothing more."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from lading import testing
from tests.endpoints.frames import Frames

# beyond the lowest free ids, which a broker gives to streams that tests create by name
_ids = count(1_000)


@pytest.fixture(scope="session")
def broker() -> Iterator[testing.BrokerProcess]:
    """A broker with default settings."""
    with testing.broker() as running:
        yield running


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Callable[[], Frames]]:
    """Opens connections to the Iggy TCP endpoint, closed at the end."""
    opened: list[Frames] = []

    def open_() -> Frames:
        opened.append(Frames(broker.endpoints["iggy_tcp"]))
        return opened[-1]

    yield open_
    for frames in opened:
        frames.close()


@pytest.fixture
def frames(connect: Callable[[], Frames]) -> Frames:
    """One connection."""
    return connect()


@pytest.fixture
def topic(frames: Frames) -> bytes:
    """Stream and topic identifiers, as they lie in requests, of a new topic with two partitions."""
    number = next(_ids)
    assert frames.ask(202, struct.pack("<I", number) + b"stream%d" % number) == (0, b"")
    stream = struct.pack("<BBI", 1, 4, number)
    assert frames.ask(302, stream + struct.pack("<II", 1, 2) + b"topic") == (0, b"")
    return stream + struct.pack("<BBI", 1, 4, 1)
