"""The connection to an Iggy server: answers, error codes, what is repeated and what is not, what to tell a person."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic.command_table import error_frame, ok_frame
from lading.dialects.iggy.classic.primitives import balanced
from lading.dialects.iggy.classic.releases import UNTOLD
from lading.model.errors import Reason, Refusal, RemoteError, SettingError, Unreachable
from lading.transports.iggy.socket import ANSWER_BYTES_MAX, AnswerTooLarge, IggySocket

from .recorded_server import Answer, Server, recorded, server

EXCHANGES = recorded()
SEND = c.SendMessages(1, 1, balanced(), bytes(24))
WHAT_ARE_YOU = UNTOLD.commands.encode_request(c.Stats())
"""What every new connection asks first."""


@pytest.fixture
def real() -> Iterator[Server]:
    """Answers as the real server did."""
    with server(EXCHANGES.get) as running:
        yield running


def in_turn(*answers: bytes | None) -> Answer:
    """Give these answers to the requests that are behind the first of a connection."""
    left = iter(answers)
    return lambda frame: ok_frame() if frame == WHAT_ARE_YOU else next(left)


def count_requests(running: Server) -> int:
    return sum(frame != WHAT_ARE_YOU for frame in running.requests)


def connect(running: Server, retries: int = 2) -> IggySocket:
    return IggySocket("127.0.0.1", running.port, timeout_s=5, retries=retries)


def test_recorded_answers_are_understood(real: Server) -> None:
    connection = connect(real)
    connection.ask(c.Ping())
    stream = connection.ask(c.GetStream(1))
    assert (stream.stream.name, [topic.name for topic in stream.topics]) == ("str1", ["top1", "bare"])
    assert [part.messages_count for part in connection.ask(c.GetTopic(1, 1)).partitions] == [20, 1, 0, 0]
    assert connection.connections == 1


def test_a_status_is_an_error_with_its_code_and_name(real: Server) -> None:
    connection = connect(real)
    with pytest.raises(RemoteError, match=r"stream\.get: stream_name_not_found \(1010\)") as caught:
        connection.ask(c.GetStream("nope"))
    assert caught.value.code == 1010
    assert isinstance(caught.value, Refusal)
    assert caught.value.reason is Reason.STREAM_NAME_NOT_FOUND
    connection.ask(c.Ping())
    assert connection.connections == 1


def test_a_status_of_another_generation_is_an_error_with_its_number() -> None:
    with (
        server(lambda _frame: error_frame(40)) as running,
        pytest.raises(RemoteError, match="unauthenticated") as caught,
    ):
        connect(running).ask(c.Ping())
    assert (caught.value.code, isinstance(caught.value, Refusal)) == (40, False)


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=rf"at 127\.0\.0\.1:{port} \(connection refused\); see "):
        IggySocket("127.0.0.1", port).ask(c.Ping())


def test_a_connection_that_was_closed_meanwhile_is_made_again_even_for_a_send() -> None:
    with server(lambda _frame: ok_frame()) as running:
        connection = connect(running)
        connection.ask(c.Ping())
        running.drop()
        wait_until_closed(connection)
        connection.ask(SEND, again=False)
        assert connection.connections == 2
        assert count_requests(running) == 2
        # it may be another server by now
        assert len(running.requests) == 4


def wait_until_closed(connection: IggySocket) -> None:
    link = connection._socket
    assert link is not None
    link.settimeout(5)
    assert link.recv(1, socket.MSG_PEEK) == b""


def test_a_read_is_repeated_and_a_send_is_not() -> None:
    with server(in_turn(ok_frame(), None, ok_frame(), None)) as running:
        connection = connect(running)
        connection.ask(c.Ping())
        connection.ask(c.Ping())
        assert count_requests(running) == 3
        with pytest.raises(Unreachable, match="broke before the answer"):
            connection.ask(SEND, again=False)
        assert count_requests(running) == 4


def test_retries_run_out() -> None:
    with server(in_turn(ok_frame(), None, None, None)) as running:
        connection = connect(running, retries=2)
        connection.ask(c.Ping())
        with pytest.raises(Unreachable, match="2 retries did not bring it back"):
            connection.ask(c.Ping())
        assert count_requests(running) == 4


def test_an_answer_that_does_not_come_in_time() -> None:
    with server(in_turn(ok_frame(), b"")) as running:
        connection = IggySocket("127.0.0.1", running.port, timeout_s=0.2, retries=0)
        connection.ask(c.Ping())
        with pytest.raises(Unreachable, match=r"did not answer within 0\.2 s"):
            connection.ask(c.Ping())


def test_no_memory_for_an_absurd_answer() -> None:
    huge = (0).to_bytes(4, "little") + (ANSWER_BYTES_MAX + 1).to_bytes(4, "little")
    with server(lambda _frame: huge) as running, pytest.raises(AnswerTooLarge):
        connect(running).ask(c.Ping())


def test_settings_are_checked() -> None:
    with pytest.raises(SettingError, match="timeout_s"):
        IggySocket("127.0.0.1", 1, timeout_s=0)
    with pytest.raises(SettingError, match="retries"):
        IggySocket("127.0.0.1", 1, retries=-1)
