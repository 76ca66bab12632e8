"""Message states over ``iggy://``: Lading's own server takes them, a real one is told apart in a sentence."""

from __future__ import annotations

import json

import pytest

from lading import Consumer, Producer, State, set_state
from lading.cli.main import main
from lading.client.states import Changed
from lading.dialects.iggy.classic import commands as c
from lading.dialects.iggy.classic.command_table import ok_frame
from lading.dialects.iggy.classic.commands import parse_request
from lading.dialects.iggy.classic.state_commands import OWN_CODES_FROM, RANGES_MAX, GetStates, SetStates, SetStatesWhere
from lading.model.errors import FilterError, LocalError, MalformedMessage, Reason, Refusal, RemoteError
from lading.testing import BrokerProcess
from lading.transports.iggy.transport import IggyTransport

from .recorded_server import recorded, server


@pytest.fixture
def url(broker: BrokerProcess) -> str:
    return f"iggy://{broker.endpoints['iggy_tcp']}"


def lading(*arguments: str) -> int:
    """The exit code of a command."""
    try:
        main(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def fill(url: str, topic: str, count: int, partitions: int = 1) -> None:
    transport = IggyTransport(url, timeout_s=10)
    transport.create_topic(topic, partitions)
    transport.close()
    with Producer(url) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, headers=[("delay", number)], partition=number % partitions)


def test_states_are_set_and_listed_over_iggy(url: str, topic: str) -> None:
    fill(url, topic, 10)
    assert set_state(url, topic, "poisoned", where="delay >= 7", reason="late") == Changed(10, 3, 3)
    assert set_state(url, topic, "poisoned", where="delay >= 7", partition=0, first=8) == Changed(2, 2, 0)
    assert set_state(url, topic, "unavailable", offsets=[0, 2, 3], dry_run=True) == Changed(3, 3, 3)
    assert set_state(url, topic, "unavailable", offsets=[3, 0, 2]) == Changed(3, 3, 3)
    assert set_state(url, topic, State.AVAILABLE, first=2, end=3) == Changed(1, 1, 1)
    transport = IggyTransport(url, timeout_s=10)
    listed = [(0, 1, State.UNAVAILABLE), (3, 4, State.UNAVAILABLE), (7, 10, State.POISONED)]
    assert transport.states(topic, 0) == listed
    assert transport.states(topic, 0, first=1, end=8) == [(3, 4, State.UNAVAILABLE), (7, 8, State.POISONED)]
    states = {"available": 5, "unavailable": 2, "poisoned": 3, "marked_for_deletion": 0}
    assert transport.state_counts(topic) == [{"partition": 0, "first_offset": 0, "next_offset": 10, "states": states}]
    transport.close()
    with Consumer(url, topic, start="earliest", timeout_s=0) as consumer:
        assert [message.offset for message in consumer] == [1, 2, 4, 5, 6]


def test_a_filter_goes_over_all_partitions(url: str, topic: str) -> None:
    fill(url, topic, 30, partitions=3)
    seen: list[Changed] = []
    assert set_state(url, topic, "poisoned", where="delay < 6", on_progress=seen.append) == Changed(30, 6, 6)
    assert seen[-1] == Changed(30, 6, 6)
    transport = IggyTransport(url, timeout_s=10)
    assert [transport.states(topic, number) for number in range(3)] == [[(0, 2, State.POISONED)]] * 3
    transport.close()


def test_what_cannot_be_is_told_and_the_connection_stays(url: str, topic: str) -> None:
    fill(url, topic, 2)
    with pytest.raises(FilterError):
        set_state(url, topic, "poisoned", where="delay >")
    transport = IggyTransport(url, timeout_s=10)
    with pytest.raises(Refusal) as caught:
        set_state(transport, topic, "poisoned", first=0, end=3)
    assert caught.value.reason is Reason.INVALID_OFFSET
    with pytest.raises(Refusal, match=r"at most 1,000 characters"):
        set_state(transport, topic, "poisoned", first=0, end=1, reason="x" * 1001)
    with pytest.raises(RemoteError, match="partition_not_found"):
        transport.states(topic, 7)
    assert transport.states(topic, 0) == []
    assert transport._socket.connections == 1
    transport.close()


def test_the_commands_in_bytes(url: str) -> None:
    head = "0104 01000000 0202 7431 01000000"
    times = {
        1: ("0500000000000000 0800000000000000", GetStates(1, "t1", 1, 5, 8)),
        2: (
            "14 00 02000000 6e6f 0500000000000000 0800000000000000",
            SetStates(1, "t1", 1, State.POISONED, False, "no", ((5, 8),)),
        ),
        3: (
            "0a 01 0000000000000000 0900000000000000 00000000 05000000 613d3d31 20",
            SetStatesWhere(1, "t1", 1, State.UNAVAILABLE, True, 0, 9, "", "a==1 "),
        ),
    }
    for number, (rest, command) in times.items():
        assert parse_request(OWN_CODES_FROM + number, bytes.fromhex(head + rest)) == command
    assert (OWN_CODES_FROM + 1).to_bytes(4, "big") == b"LAD\x01"
    wrong = {
        "14 00 00000000": Reason.INVALID_COUNT,
        "15 00 00000000" + "00" * 16: Reason.INVALID_STATE,
        "14 00 00000000" + "00" * 15: Reason.MALFORMED,
        "14 00 00000000" + "00" * 16 * (RANGES_MAX + 1): Reason.INVALID_COUNT,
    }
    for rest, reason in wrong.items():
        with pytest.raises(MalformedMessage) as caught:
            parse_request(OWN_CODES_FROM + 2, bytes.fromhex(head + rest))
        assert caught.value.reason is reason


def test_a_real_server_closes_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    # what the real server answered, by command; on an unknown one it closes the connection
    answers = {
        c.ROW_BY_REQUEST[c.Ping].code: ok_frame(),
        c.ROW_BY_REQUEST[c.Stats].code: recorded()[c.encode_request(c.Stats())],
        c.ROW_BY_REQUEST[c.GetTopic].code: recorded()[c.encode_request(c.GetTopic(1, 1))],
    }
    with server(lambda frame: answers.get(int.from_bytes(frame[4:8], "little"))) as running:
        url = f"iggy://127.0.0.1:{running.port}"
        with pytest.raises(LocalError, match=r"has no command.*lading://host:port or over HTTP"):
            set_state(url, "top1", "poisoned", first=0, end=1, partition=0)
        assert lading("state", "list", "top1", "--server", url) == 2
        said = capsys.readouterr().err
        assert "lading://" in said
        assert "Traceback" not in said


def test_the_command_line_over_iggy(url: str, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    fill(url, topic, 3)
    assert lading("state", "set", topic, "--state", "poisoned", "--where", "delay = 1", "--server", url) == 0
    capsys.readouterr()
    assert lading("state", "list", topic, "--ranges", "--server", url, "--output", "json") == 0
    row = {"partition": 0, "first": 1, "last": 1, "messages": 1, "state": "poisoned"}
    assert json.loads(capsys.readouterr().out) == row
    assert lading("message", "poll", topic, "--from", url, "--where", "state = 'poisoned'", "--states", "all") == 0
    assert "poisoned" in capsys.readouterr().out
