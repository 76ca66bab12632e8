"""Frames of the current generation over QUIC and WebSocket: what is wrong ends there, and others are served."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pytest

from lading import testing
from tests.endpoints.current_frames import CREATE_STREAM, LOGIN, PING, READ, REGISTER, request
from tests.endpoints.quic_client import QuicClient
from tests.endpoints.websocket_frames import BINARY, CLOSE, TEXT, RawWebSocket

REPLY, EVICTION = 8, 13
NO_SESSION, INVALID_OPERATION = 1, 4
PINGED = request(READ, code=PING)
NOT_ONE_REQUEST = {
    "no byte": b"",
    "half a header": PINGED[:100],
    "all but the last byte": request(CREATE_STREAM, b"\x01s")[:-1],
    "a byte too many": PINGED + b"\0",
    "two requests": PINGED * 2,
    "a length below a header": request(READ, code=PING, size=255),
    "a length above all": request(READ, code=PING, size=0xFFFF_FFFF),
    "zeros": bytes(300),
}
"""What comes in the place of one whole frame."""
SENDS_AWAY = {INVALID_OPERATION: request(64), NO_SESSION: request(CREATE_STREAM, b"\x01s")}
"""What a client is sent away for that has not logged in, by the reason it is told."""


def status_of(reply: bytes) -> int:
    """The status of one whole reply."""
    assert (reply[60], struct.unpack_from("<I", reply, 48)) == (REPLY, (len(reply),))
    status: int = struct.unpack_from("<I", reply, 216)[0]
    return status


class CurrentQuic(QuicClient):
    """A connection that has logged in."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        assert self.ask(request(REGISTER, LOGIN)) == 0

    def ask(self, data: bytes) -> int:
        """Return the status of a request on a stream of its own."""
        return status_of(self.answer(self.send(data)))


@pytest.fixture
def bystander(broker: testing.BrokerProcess) -> Iterator[CurrentQuic]:
    """A client that is served before and after."""
    client = CurrentQuic(broker.endpoints["iggy_quic"])
    yield client
    assert client.ask(PINGED) == 0
    client.close()


@pytest.mark.parametrize("wrong", NOT_ONE_REQUEST)
def test_a_stream_that_is_not_one_frame_is_reset_alone(
    broker: testing.BrokerProcess, bystander: CurrentQuic, wrong: str
) -> None:
    client = CurrentQuic(broker.endpoints["iggy_quic"])
    with pytest.raises(ConnectionResetError):
        client.answer(client.send(NOT_ONE_REQUEST[wrong]))
    assert client.ask(PINGED) == 0
    client.close()


def test_streams_that_are_reset_and_moves(broker: testing.BrokerProcess, bystander: CurrentQuic) -> None:
    client = CurrentQuic(broker.endpoints["iggy_quic"])
    for turn in range(200):
        stream = client.send(PINGED[:200], end=False)
        client.step(0)
        client.quic.reset_stream(stream, 7)
        if turn % 50 == 0:
            # and is granted more streams
            assert client.ask(PINGED) == 0
    half = client.send(PINGED[:200], end=False)
    client.step(0)
    client.migrate()
    client.quic.send_stream_data(half, PINGED[200:], end_stream=True)
    assert status_of(client.answer(half)) == 0
    client.close()


@pytest.mark.parametrize("reason", SENDS_AWAY)
def test_over_quic_who_is_sent_away_is_told_why(
    broker: testing.BrokerProcess, bystander: CurrentQuic, reason: int
) -> None:
    client = QuicClient(broker.endpoints["iggy_quic"])
    reply = client.answer(client.send(SENDS_AWAY[reason]))
    assert (len(reply), reply[60], reply[255]) == (256, EVICTION, reason)
    with pytest.raises(ConnectionError):
        client.run_until(lambda: False)
    client.close()


@pytest.mark.parametrize("wrong", NOT_ONE_REQUEST)
def test_a_message_that_is_not_one_frame_closes(
    broker: testing.BrokerProcess, bystander: CurrentQuic, wrong: str
) -> None:
    client = RawWebSocket(broker.endpoints["iggy_websocket"])
    client.frame(BINARY, PINGED)
    client.frame(BINARY, NOT_ONE_REQUEST[wrong])
    opcode, reply = client.receive_frame()
    assert (opcode, status_of(reply)) == (BINARY, 0), "what came before is answered first"
    assert client.close_code() == 1007
    client.close()


def test_fragments_are_one_frame_and_text_is_none(broker: testing.BrokerProcess, bystander: CurrentQuic) -> None:
    client = RawWebSocket(broker.endpoints["iggy_websocket"])
    for at in range(0, len(PINGED), 100):
        client.frame(0 if at else BINARY, PINGED[at : at + 100], fin=at + 100 >= len(PINGED))
    assert status_of(client.receive_frame()[1]) == 0
    client.frame(TEXT, PINGED)
    assert client.close_code() == 1003
    client.close()


@pytest.mark.parametrize("reason", SENDS_AWAY)
def test_over_websocket_who_is_sent_away_is_told_why(
    broker: testing.BrokerProcess, bystander: CurrentQuic, reason: int
) -> None:
    client = RawWebSocket(broker.endpoints["iggy_websocket"])
    client.frame(BINARY, SENDS_AWAY[reason])
    reply = client.receive_frame()[1]
    assert (len(reply), reply[60], reply[255]) == (256, EVICTION, reason)
    assert client.receive_frame()[0] == CLOSE
    client.close()
