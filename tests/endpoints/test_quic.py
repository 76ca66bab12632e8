"""Iggy over QUIC: the frames of TCP, each request on a stream of its own."""

from __future__ import annotations

import random
import signal
import ssl
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lading import testing
from lading.model.errors import LocalError
from tests.endpoints.authority import Authority
from tests.endpoints.frames import Frames, payloads, poll
from tests.endpoints.quic_frames import ME, OK, PING, TOPIC, QuicFrames, frame, sending

Connect = Callable[[], QuicFrames]


@pytest.fixture(scope="module")
def broker() -> Iterator[testing.BrokerProcess]:
    """With one topic."""
    with testing.broker() as running:
        client = QuicFrames(running.endpoints["iggy_quic"])
        client.create_topic(100)
        client.close()
        yield running


@pytest.fixture
def connect(broker: testing.BrokerProcess) -> Iterator[Connect]:
    """Opens connections, closed at the end."""
    opened: list[QuicFrames] = []

    def open_() -> QuicFrames:
        opened.append(QuicFrames(broker.endpoints["iggy_quic"]))
        return opened[-1]

    yield open_
    for client in opened:
        client.close()


def test_what_is_sent_over_quic_is_read_over_tcp(broker: testing.BrokerProcess, connect: Connect) -> None:
    client = connect()
    for number in range(3):
        client.send_message(b"%d" % number)
    tcp = Frames(broker.endpoints["iggy_tcp"])
    assert client.poll() == payloads(tcp.ask(100, poll(TOPIC))[1]) == [b"0", b"1", b"2"]
    assert client.ask(9999)[0] == tcp.ask(9999)[0]
    tcp.close()


def test_all_streams_of_a_connection_are_one_client(connect: Connect) -> None:
    client = connect()
    _, first = client.ask(ME)
    assert client.ask(ME) == (0, first)
    address = "{}:{}".format(*client.socket.getsockname())
    client_id, transport = struct.unpack_from("<IB", first)
    assert (client_id, transport) == (zlib.crc32(address.encode()), 2)
    other = connect()
    assert other.ask(ME) != (0, first)


def test_requests_run_in_the_order_in_which_they_become_whole(connect: Connect) -> None:
    client = connect()
    early = sending(b"begun first", 2)
    first = client.send(early[:-1], end=False)
    client.flush()
    assert client.answer(client.send(sending(b"whole first", 2))) == OK
    client.quic.send_stream_data(first, early[-1:], end_stream=True)
    assert client.answer(first) == OK
    assert client.poll(2) == [b"whole first", b"begun first"]


def test_many_requests_at_once(connect: Connect) -> None:
    client = connect()
    streams = [client.send(sending(b"%d" % number, 3)) for number in range(500)]
    assert [client.answer(stream) for stream in streams] == [OK] * 500
    # streams have no order among each other
    assert sorted(client.poll(3), key=int) == [b"%d" % number for number in range(500)]


@pytest.mark.turns(3, part=1)
def test_long_messages_both_ways(connect: Connect) -> None:
    client = connect()
    large = random.Random(1).randbytes(9 << 20)
    client.send_message(large, 4)
    assert client.poll(4) == [large]


def test_lost_and_doubled_datagrams_change_nothing(connect: Connect) -> None:
    client = connect()
    chance = random.Random(2)
    plain = client.socket
    sendto = plain.sendto

    class Lossy:
        def __getattr__(self, name: str) -> object:
            return getattr(plain, name)

        def sendto(self, data: bytes, address: tuple[str, int]) -> None:
            for _ in range(chance.choice((0, 1, 1, 1, 1, 1, 1, 2))):
                sendto(data, address)

        def recvfrom(self, size: int) -> tuple[bytes, object]:
            found = plain.recvfrom(size)
            return found if chance.random() > 0.1 else (b"\x40", found[1])

    client.socket = Lossy()  # type: ignore[assignment]
    streams = [client.send(sending(b"%d" % number, 5)) for number in range(100)]
    client.run_until(lambda: all(map(client.is_over, streams)), 60)
    assert sorted(client.poll(5), key=int) == [b"%d" % number for number in range(100)]


def test_the_brokers_certificate_can_be_trusted(broker: testing.BrokerProcess) -> None:
    trusted = str(broker.data_dir / "certificate.pem")
    client = QuicFrames(broker.endpoints["iggy_quic"], verify_mode=ssl.CERT_REQUIRED, cafile=trusted)
    assert client.ask(PING) == (0, b"")
    client.close()
    with pytest.raises(ConnectionError):
        QuicFrames(
            broker.endpoints["iggy_quic"], verify_mode=ssl.CERT_REQUIRED, cafile=trusted, server_name="example.org"
        )


@pytest.mark.turns(3, part=2)
def test_a_stop_answers_what_was_asked_and_says_goodbye(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        client = QuicFrames(broker.endpoints["iggy_quic"])
        client.create_topic(1)
        streams = [client.send(sending(b"%d" % number)) for number in range(50)]
        idle = QuicFrames(broker.endpoints["iggy_quic"])
        client.run_until(lambda: client.is_over(streams[-1]))
        broker.process.send_signal(signal.SIGTERM)
        for each in (client, idle):
            with pytest.raises(ConnectionError, match="closed: 0x0"):
                each.run_until(lambda: False)
        assert broker.process.wait(30) == 0
    with testing.broker(tmp_path) as broker:
        client = QuicFrames(broker.endpoints["iggy_quic"])
        assert len(client.poll()) == 50
        client.close()


@pytest.mark.turns(3, part=0)
def test_a_broker_that_met_no_client_has_made_no_certificate_and_stops(tmp_path: Path) -> None:
    with testing.broker(tmp_path) as broker:
        assert broker.stop() == 0
    assert not (tmp_path / "certificate.pem").exists()


@pytest.mark.turns(3, part=0)
def test_listeners_have_certificates_of_their_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "endpoints.iggy_quic.listeners.other.address": testing.FREE_PORT,
        "endpoints.iggy_quic.listeners.other.tls.certificate": authority.sign("server"),
    }
    with testing.broker(settings=settings) as broker:
        client = QuicFrames(
            broker.endpoints["iggy_quic.other"], verify_mode=ssl.CERT_REQUIRED, cafile=str(authority.file)
        )
        assert client.answer(client.send(frame(PING))) == OK
        client.close()
    with (
        pytest.raises(
            LocalError, match=r"(?s)endpoints\.iggy_quic\.listeners\.other\.tls\.certificate.*cannot be used"
        ),
        testing.broker(settings=settings | {"endpoints.iggy_quic.listeners.other.tls.certificate": tmp_path / "none"}),
    ):
        pass


@pytest.mark.turns(3, part=1)
def test_two_brokers_do_not_share_a_port(broker: testing.BrokerProcess) -> None:
    with (
        pytest.raises(LocalError, match=r"endpoints\.iggy_quic\.address"),
        testing.broker(settings={"endpoints.iggy_quic.address": broker.endpoints["iggy_quic"]}),
    ):
        pass
