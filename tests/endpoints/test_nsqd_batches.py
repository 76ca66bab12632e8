"""MPUB in all its forms is read by its items, as by nsqd: the declared length is only held against the limit."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from lading import testing
from tests.endpoints.nsq_client import NsqClient, mpub, mpub_ext, pub, sized

Connect = Callable[[], NsqClient]
_numbers = count(1)
BODIES = (b"one", b"two", b"PUB t\n\0\0\0\1x")
BODY_BYTES_MAX = 5 << 20
TOO_BIG = b"E_BAD_BODY body too big 5242881 > 5242880"


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Connect]:
    opened: list[NsqClient] = []

    def open_() -> NsqClient:
        opened.append(NsqClient(broker.endpoints["nsqd_tcp"], extend_support=True))
        return opened[-1]

    yield open_
    for client in opened:
        client.close()


@pytest.fixture
def topic() -> str:
    return f"batch-{next(_numbers)}"


def declared(command: bytes, size_bytes: int) -> bytes:
    """The command with another length in place of its own."""
    at = command.index(b"\n") + 1
    return command[:at] + struct.pack(">i", size_bytes) + command[at + 4 :]


def off_by(command: bytes, delta: int) -> bytes:
    return declared(command, struct.unpack_from(">i", command, command.index(b"\n") + 1)[0] + delta)


def in_all_forms(topic: str) -> dict[str, bytes]:
    traced = struct.pack(">i", 3) + b"".join(struct.pack(">iQ", 8 + len(body), 7) + body for body in BODIES)
    return {
        "MPUB": mpub(topic, *BODIES),
        "MPUB_EXT": mpub_ext(topic, *((b'{"a":1}', body) for body in BODIES)),
        "MPUB_TRACE": sized(f"MPUB_TRACE {topic}\n".encode(), traced),
    }


def bodies(connect: Connect, topic: str, number: int) -> list[bytes]:
    client = connect()
    assert client.ask(f"SUB {topic} ch\n".encode()) == b"OK"
    client.send(b"RDY 2500\n")
    return [each.body for each in client.messages(number)]


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize("delta", [-20, -4, -1, 0, 1, 4, 100_000])
def test_a_declared_length_that_is_wrong_does_not_matter(connect: Connect, topic: str, delta: int, step: int) -> None:
    """Whether all comes at once, with a command behind it, or in pieces that end anywhere."""
    client = connect()
    assert client.ask(pub(topic, b"first", b"{}")) == b"OK"
    for command in in_all_forms(topic).values():
        data = off_by(command, delta) + pub(topic, b"behind")
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        assert client.frame()[1].startswith(b"OK")
        assert client.frame() == (0, b"OK")
    assert bodies(connect, topic, 13) == [b"first", *3 * (*BODIES, b"behind")]


def test_the_length_that_squeaky_declares(connect: Connect, topic: str) -> None:
    """Only that of the bodies; the first command of a connection and the next of the same line."""
    client = connect()
    for _ in range(2):
        assert client.ask(declared(mpub(topic, b"one", b"three"), 8)) == b"OK"
    assert client.ask(mpub(topic, b"fits")) == b"OK"
    assert bodies(connect, topic, 5) == [b"one", b"three", b"one", b"three", b"fits"]


@pytest.mark.parametrize("size_bytes", [1, 3, BODY_BYTES_MAX])
def test_any_declared_length_within_the_limit(connect: Connect, topic: str, size_bytes: int) -> None:
    """Items that come to more than a buffer holds at first, read on from where they were."""
    sent = [b"%d" % number * (number % 50 + 1) for number in range(2_000)]
    client = connect()
    assert client.ask(declared(mpub(topic, *sent), size_bytes)) == b"OK"
    assert client.ask(pub(topic, b"behind")) == b"OK"
    assert bodies(connect, topic, 2_001) == [*sent, b"behind"]


@pytest.mark.parametrize("delta", [-9, 0, 90])
@pytest.mark.parametrize(
    ("items", "answer"),
    [
        (struct.pack(">i", 0), b"E_BAD_BODY MPUB invalid message count 0"),
        (struct.pack(">i", -1), b"E_BAD_BODY MPUB invalid message count -1"),
        (struct.pack(">i", 1_048_576), b"E_BAD_BODY MPUB invalid message count 1048576"),
        (struct.pack(">ii1si", 3, 1, b"x", 0), b"E_BAD_MESSAGE MPUB invalid message(1) body size 0"),
        (struct.pack(">ii1si", 3, 1, b"x", -1), b"E_BAD_MESSAGE MPUB invalid message(1) body size -1"),
        (struct.pack(">ii1si", 3, 1, b"x", 1_048_577), b"E_BAD_MESSAGE MPUB message too big 1048577 > 1048576"),
    ],
    ids=lambda value: None,
)
def test_bad_counts_and_sizes_are_told_once_they_are_there(
    connect: Connect, topic: str, items: bytes, answer: bytes, delta: int
) -> None:
    client = connect()
    client.send(declared(sized(f"MPUB {topic}\n".encode(), items), max(len(items) + delta, 1)))
    assert client.frame() == (1, answer)
    assert client.closed()


def test_a_traced_item_of_a_trace_id_alone_is_refused(connect: Connect, topic: str) -> None:
    client = connect()
    client.send(sized(f"MPUB_TRACE {topic}\n".encode(), struct.pack(">iiQ", 1, 8, 7)))
    assert client.frame() == (1, b"E_BAD_MESSAGE MPUB invalid message(0) body size 8 for tracing")
    assert client.closed()


def test_a_count_above_the_items_reads_on_behind_them(connect: Connect, topic: str) -> None:
    client = connect()
    client.send(sized(f"MPUB {topic}\n".encode(), struct.pack(">ii1s", 2, 1, b"a")))
    assert client.quiet()
    client.send(struct.pack(">i1s", 1, b"b"))
    assert client.frame() == (0, b"OK")
    assert bodies(connect, topic, 2) == [b"a", b"b"]


def test_items_together_are_no_longer_than_the_largest_body(connect: Connect, topic: str) -> None:
    """That one size passes the limit is told before the bytes that it speaks of are sent."""
    most = 1 << 20
    full = [bytes(most)] * 4 + [bytes(most - 24)]
    client = connect()
    assert client.ask(declared(mpub(topic, *full), 5)) == b"OK"
    client.send(declared(mpub(topic, *full[:4], bytes(most - 23))[: -(most - 23)], 5))
    assert client.frame() == (1, TOO_BIG)
    assert client.closed()


@pytest.mark.parametrize("step", [5, 1 << 20])
@pytest.mark.parametrize("delta", [-9, -2, 0, 3])
def test_a_refusal_that_closes_nothing_goes_on_behind_the_items(
    connect: Connect, topic: str, delta: int, step: int
) -> None:
    client = connect()
    assert client.ask(pub(topic, b"first", b"{}")) == b"OK"
    refused = mpub_ext(topic, (b"{x", b"a"), (b'{"a":1}', b"b"))
    for data in (off_by(refused, delta) + pub(topic, b"behind"), off_by(refused, delta) + b"NOP\n" + mpub(topic, b"c")):
        for at in range(0, len(data), step):
            client.send(data[at : at + step])
        assert client.frame()[1].startswith(b"E_INVALID_JSON_HEADER")
        assert client.frame() == (0, b"OK")
    assert bodies(connect, topic, 3) == [b"first", b"behind", b"c"]
