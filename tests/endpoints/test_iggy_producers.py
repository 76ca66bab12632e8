"""Idempotent producers of the current generation (protocol 0.12) as bytes: what is sent again is kept once."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from lading import testing
from tests.dialects.iggy_current import PolledMessage, batch, frame, parse_batches
from tests.endpoints.current_frames import CREATE_STREAM, CREATE_TOPIC, LOGIN, POLL, READ, REGISTER, SEND, poll, sent
from tests.endpoints.test_iggy_current import Talk

OUT_OF_ORDER, FENCED, UNKNOWN, PARTITION_REQUIRED = 92, 93, 94, 95
"""``IggyError`` of the crate 0.11.1-edge.9."""
STREAM = b"\x02\x06stream"
TOPIC = STREAM + b"\x02\x05topic"
ID = 77 << 20


def connected(broker: testing.BrokerProcess) -> Talk:
    talk = Talk(broker.endpoints["iggy_tcp"])
    assert talk.ask(REGISTER, LOGIN)[0] == 0
    return talk


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def talk(data: Path) -> Iterator[Talk]:
    with testing.broker(data) as broker:
        talk = connected(broker)
        create(talk)
        yield talk
        talk.socket.close()


def create(talk: Talk) -> None:
    assert talk.ask(CREATE_STREAM, b"\x06stream")[0] == 0
    assert talk.ask(CREATE_TOPIC, STREAM + struct.pack("<I", 2) + b"\x05topic")[0] == 0


def numbered(*payloads: bytes, producer: int = ID, epoch: int = 0, sequence: int = 0) -> bytes:
    frames = [frame(payload, delta=number) for number, payload in enumerate(payloads)]
    return batch(frames, producer=(producer, epoch, sequence))


def send(talk: Talk, data: bytes, count: int, partition: int = 0) -> tuple[int, int | None]:
    """The status, and where the messages lie."""
    status, body = talk.ask(SEND, sent(TOPIC, data, count, partition))
    return status, None if status else struct.unpack("<4IQ", body)[4]


def session_of(login: bytes) -> int:
    """The number of the session in the reply to a login, behind its result and the user."""
    session: int = struct.unpack_from("<IIQ", login)[2]
    return session


def polled(talk: Talk) -> list[PolledMessage]:
    status, body = talk.ask(READ, poll(TOPIC), code=POLL)
    assert status == 0
    return parse_batches(body[16:])


@pytest.mark.turns(3, part=2)
def test_a_batch_that_is_sent_again_is_kept_once(talk: Talk) -> None:
    assert send(talk, numbered(b"a", b"b"), 2) == (0, 0)
    assert send(talk, numbered(b"c", sequence=2), 1) == (0, 2)
    assert send(talk, numbered(b"a", b"b"), 2) == (0, 0)
    assert send(talk, numbered(b"c", sequence=2), 1) == (0, 2)
    assert send(talk, batch([frame(b"plain")]), 1) == (0, 3)
    assert send(talk, numbered(b"d", sequence=3), 1) == (0, 4)
    assert [(one.offset, one.payload) for one in polled(talk)] == list(enumerate((b"a", b"b", b"c", b"plain", b"d")))


@pytest.mark.turns(3, part=2)
def test_partitions_and_producers_count_on_their_own(talk: Talk) -> None:
    for partition in (0, 1):
        for producer in (ID, ID + 1):
            assert send(talk, numbered(b"a", producer=producer), 1, partition) == (0, producer - ID)


@pytest.mark.turns(3, part=2)
def test_what_does_not_follow_is_refused_and_not_written(talk: Talk) -> None:
    assert send(talk, numbered(b"x", sequence=5), 1) == (UNKNOWN, None)
    assert send(talk, numbered(b"a", b"b"), 2) == (0, 0)
    assert send(talk, numbered(b"x", sequence=3), 1) == (OUT_OF_ORDER, None)
    assert send(talk, numbered(b"a", b"b", b"c"), 3) == (OUT_OF_ORDER, None)
    assert send(talk, numbered(b"x", epoch=1, sequence=2), 1) == (OUT_OF_ORDER, None)
    assert send(talk, numbered(b"c", epoch=1), 1) == (0, 2)
    assert send(talk, numbered(b"x", sequence=2), 1) == (FENCED, None)
    assert [one.payload for one in polled(talk)] == [b"a", b"b", b"c"]


@pytest.mark.turns(2)
@pytest.mark.parametrize("partitioning", [b"\x01\x00", b"\x03\x01k"])
def test_a_numbered_batch_names_its_partition(talk: Talk, partitioning: bytes) -> None:
    where = TOPIC + partitioning + struct.pack("<I", 1)
    request = struct.pack("<I", len(where)) + where
    assert talk.ask(SEND, request + numbered(b"a"))[0] == PARTITION_REQUIRED
    assert talk.ask(SEND, request + batch([frame(b"a")]))[0] == 0


@pytest.mark.parametrize("how", ["stopped", "killed"])
@pytest.mark.turns(2)
def test_a_start_knows_the_producers(data: Path, how: str) -> None:
    with testing.broker(data) as broker:
        talk = connected(broker)
        create(talk)
        assert send(talk, numbered(b"a", b"b"), 2) == (0, 0)
        assert send(talk, numbered(b"c", sequence=2), 1) == (0, 2)
        if how == "killed":
            broker.kill()
    with testing.broker(data) as broker:
        talk = connected(broker)
        assert send(talk, numbered(b"c", sequence=2), 1) == (0, 2)
        assert send(talk, numbered(b"a", b"b"), 2) == (0, 0)
        assert send(talk, numbered(b"d", sequence=3), 1) == (0, 3)
        assert [one.payload for one in polled(talk)] == [b"a", b"b", b"c", b"d"]


@pytest.mark.turns(3, part=0)
def test_no_session_is_given_twice(data: Path) -> None:
    """Producers make their ids of it: the batches of a second owner would pass for repetitions."""
    given = []
    for _ in range(3):
        with testing.broker(data) as broker:
            talks = [Talk(broker.endpoints["iggy_tcp"]) for _ in range(3)]
            for talk in talks:
                status, body = talk.ask(REGISTER, LOGIN)
                assert status == 0
                given.append(session_of(body))
    assert given == sorted(set(given))
    assert given[0] > 0 and given[-1] < 1 << 43


@pytest.mark.turns(3, part=1)
def test_no_session_is_given_of_which_a_producer_is_known(data: Path) -> None:
    """However far behind the clock is: the producer's session was given by a broker whose clock was ahead."""
    ahead = (1 << 42) + random.randrange(1 << 20)
    with testing.broker(data) as broker:
        talk = connected(broker)
        create(talk)
        assert send(talk, numbered(b"a", producer=ahead << 20), 1) == (0, 0)
    with testing.broker(data) as broker:
        _, body = Talk(broker.endpoints["iggy_tcp"]).ask(REGISTER, LOGIN)
        assert session_of(body) == ahead + 1
