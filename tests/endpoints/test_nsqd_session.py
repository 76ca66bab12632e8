"""nsqd's half of a connection without one: heartbeats, silence and rests by a clock that the test turns."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.session import ReceiveResult
from lading.endpoints.nsq.nsqd.session import MUCH_IN_FLIGHT, STEPS_MAX
from lading.model.errors import Refusal
from tests.endpoints.nsq_client import pub, sized
from tests.endpoints.nsq_wire import SECOND_US, WiredClient, handlers_of
from tests.house.scripted import ScriptedLoop

HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"
OK = b"\0\0\0\6\0\0\0\0OK"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[WiredClient]:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=SECOND_US)
    with ScriptedLoop() as loop, ThreadPoolExecutor(1) as workers:
        yield WiredClient(handlers_of(broker, workers), loop)
    broker.stop()


def identify(**told: int) -> bytes:
    words = ",".join(f'"{name}":{value}' for name, value in told.items())
    return sized(b"IDENTIFY\n", b"{%s}" % words.encode())


def test_heartbeats_come_in_the_interval_that_the_client_asks_for(client: WiredClient) -> None:
    client.say(b"  V2", 5 * SECOND_US)
    assert client.wire.was_settled
    assert client.wire.due_us == 35 * SECOND_US
    client.say(identify(heartbeat_interval=2000), 6 * SECOND_US)
    assert client.wire.due_us == 8 * SECOND_US
    client.wire.take()
    assert client.session.tick(8 * SECOND_US) == 10 * SECOND_US
    assert client.wire.take() == HEARTBEAT


def test_a_client_that_wants_no_heartbeats_gets_none(client: WiredClient) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=-1))
    assert client.wire.due_us is None


def test_a_client_that_is_silent_for_three_intervals_is_cut(client: WiredClient) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=1000), SECOND_US)
    due_us, beats = 2 * SECOND_US, 0
    while (next_us := client.session.tick(due_us)) is not None:
        due_us, beats = next_us, beats + 1
    assert (beats, due_us, client.wire.was_cut, client.wire.dropped) == (2, 4 * SECOND_US, True, ["silent"])


def test_a_client_whose_command_waits_for_work_is_not_silent(client: WiredClient) -> None:
    """An MPUB that waited for kernels longer than two heartbeats was cut off, and lost: nothing is read meanwhile."""
    client.say(b"  V2" + identify(heartbeat_interval=1000), SECOND_US)
    client.session._is_creating = True
    for second in range(2, 60):
        assert client.session.tick(second * SECOND_US) == (second + 1) * SECOND_US
    client.session._is_creating = False
    assert client.session.tick(61 * SECOND_US) is not None
    assert client.session.tick(63 * SECOND_US) is None


def test_a_client_that_says_anything_is_not_silent(client: WiredClient) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=1000), SECOND_US)
    for second in range(2, 20):
        assert client.session.tick(second * SECOND_US) == (second + 1) * SECOND_US
        client.say(b"NOP\n", second * SECOND_US)
    # half a command is not enough
    client.say(b"NO", 21 * SECOND_US)
    assert client.session.tick(22 * SECOND_US) is None


def test_many_commands_leave_others_their_turn(client: WiredClient) -> None:
    assert client.say(b"  V2" + b"NOP\n" * (STEPS_MAX + 10)) is ReceiveResult.TURN
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE


def test_who_has_much_in_hand_and_says_little_is_read_again_later(client: WiredClient) -> None:
    client.say(b"  V2SUB topic channel\n" + b"RDY 10\n")
    consumer = client.session.consumer
    assert consumer is not None
    tracker = consumer.subscriber
    assert client.say(b"RDY 20\n") is ReceiveResult.DONE
    tracker.in_flight = MUCH_IN_FLIGHT
    assert client.say(b"RDY 20\n") is ReceiveResult.REST
    # nothing has come: it is looked at for another reason
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE


def test_a_client_that_does_not_read_gets_no_further(client: WiredClient) -> None:
    client.say(b"  V2" + pub("topic", b"w"))
    client.broker.appender.flush()
    assert client.wire.take() == OK
    client.session.block(True)
    assert client.say(pub("topic", b"x")) is ReceiveResult.WAIT
    assert client.wire.take() == b""
    client.session.block(False)
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE
    assert client.wire.take() == OK


def test_what_follows_a_fatal_error_is_thrown_away(client: WiredClient) -> None:
    client.say(b"  V2" + pub("topic", b"x") + b"WHAT\n" + pub("topic", b"y"))
    client.broker.appender.flush()
    sent = client.wire.take()
    assert sent.startswith(OK) and b"E_INVALID" in sent
    assert (client.session.is_ended, client.session.inbox.have) == (True, 0)
    assert struct.unpack_from(">i", sent, len(OK))[0] == len(sent) - len(OK) - 4


def test_stages_follow_what_the_client_waits_for(client: WiredClient) -> None:
    assert client.session.stage() is Stage.FIRST
    client.say(b"  V2" + identify(heartbeat_interval=-1))
    assert client.session.stage() is Stage.IDLE
    client.say(b"NO")
    assert client.session.stage() is Stage.PARTIAL
    client.say(b"P\n" + identify(heartbeat_interval=1000))
    assert client.session.stage() is Stage.BUSY


def test_a_command_waits_for_its_topic_while_others_are_served(client: WiredClient) -> None:
    client.begin(b"  V2" + pub("new", b"x") + b"INTERNAL_CREATE_TOPIC wide 2\n" + pub("new", b"y"))
    assert client.result is ReceiveResult.WAIT
    with pytest.raises(Refusal):
        client.broker.topology.resolve("new")
    assert client.session.stage() is Stage.BUSY
    client.loop.turn()
    client.broker.appender.flush()
    assert (client.result, client.wire.take()) == (ReceiveResult.DONE, OK * 3)
    assert client.broker.topology.resolve("new").messages_count == 2
    assert len(client.broker.topology.resolve("wide").partitions) == 3
    assert client.say(b"INTERNAL_CREATE_TOPIC wide 4\n") is ReceiveResult.DONE
    assert (client.wire.take(), len(client.broker.topology.resolve("wide").partitions)) == (OK, 5)


def test_a_client_that_ends_behind_its_last_command_is_answered(client: WiredClient) -> None:
    client.begin(b"  V2" + pub("new", b"x") + pub("newer", b"y"))
    client.session.end()
    assert (client.session.is_ended, client.session.is_busy) == (False, True)
    client.loop.turn()
    client.broker.appender.flush()
    assert client.wire.take() == OK * 2
    assert (client.session.is_ended, client.session.is_busy) == (True, False)
