"""nsqd's half of a connection without one: heartbeats, silence and rests by a clock that the test turns."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.inbox import Inbox
from lading.endpoints.base.services import Services
from lading.endpoints.base.session import Peer, ReceiveResult
from lading.endpoints.nsq import node as nodes
from lading.endpoints.nsq.handlers import NsqdHandlers
from lading.endpoints.nsq.publish import Publisher
from lading.endpoints.nsq.publish_coalescing import PublishCoalescer
from lading.endpoints.nsq.session import MUCH_IN_FLIGHT, NAME, STEPS_MAX, NsqdSession
from lading.metrics import Metrics
from lading.model.errors import Refusal
from lading.settings import Address, Settings
from tests.endpoints.nsq_client import pub, sized
from tests.house.scripted import ScriptedLoop

SECOND_US = 1_000_000
HEARTBEAT = b"\0\0\0\x0f\0\0\0\0_heartbeat_"
OK = b"\0\0\0\6\0\0\0\0OK"


class Wire:
    """The other half of a connection: it notes what the session asks of it."""

    def __init__(self, services: Services, receive: Callable[[], None]) -> None:
        self._receive = receive
        self.inbox = Inbox(services.receive)
        self.sent = bytearray()
        self.due_us: int | None = None
        self.unsent = 0
        self.dropped: list[str] = []
        self.was_settled = self.was_closed = self.was_cut = self.is_waiting_for_disk = False

    def write(self, data: Any) -> None:
        self.sent += data

    def writelines(self, list_of_data: Sequence[Any]) -> None:
        self.sent += b"".join(list_of_data)

    def take(self) -> bytes:
        sent = bytes(self.sent)
        self.sent.clear()
        return sent

    def proceed(self) -> None:
        self._receive()

    is_encrypted = False

    def start_tls(self) -> None:
        raise AssertionError("these clients stay plain")

    def settle(self) -> None:
        self.was_settled = True

    def wait_for_disk(self) -> None:
        self.is_waiting_for_disk = True

    def throttle(self, delay_us: int) -> None:
        raise AssertionError("nobody has a quota")

    def run(self, work: Awaitable[Any], on_done: Callable[[Any], None]) -> None:
        asyncio.ensure_future(work).add_done_callback(on_done)

    def run_to_end(self, work: Awaitable[Any], on_done: Callable[[Any], None]) -> None:
        raise AssertionError("nsqd awaits nothing")

    def run_in_worker(self, work: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
        raise AssertionError("nsqd has no long commands")

    def call_soon(self, callback: Callable[[], None]) -> None:
        raise AssertionError("nsqd puts nothing off")

    def call_later(self, delay_us: int, callback: Callable[[], None]) -> Callable[[], None]:
        raise AssertionError("nsqd waits for nothing but its tick")

    def tick_at(self, due_us: int | None) -> None:
        self.due_us = due_us

    def unsent_bytes(self) -> int:
        return self.unsent

    def close(self) -> None:
        self.was_closed = True

    def abort(self) -> None:
        self.was_cut = True

    def origin(self) -> dict[str, str]:
        return {}

    def count_dropped(self, reason: str, count: int = 1) -> None:
        self.dropped += [reason] * count


class Client:
    """A client and its session; the time is what the test says."""

    def __init__(self, broker: Broker, workers: ThreadPoolExecutor, loop: ScriptedLoop) -> None:
        self.broker, self.loop = broker, loop
        self.now_us, self.result = SECOND_US, ReceiveResult.DONE
        services = Services(broker, Settings(), Metrics(), workers)
        node = nodes.of(services)
        publisher = Publisher(node, NAME)
        requests = services.metrics.requests.values
        gathering = PublishCoalescer(publisher, NAME, requests, broker.appender.call_before_flush, lambda: None)
        self.wire = Wire(services, self.receive)
        self.session = NsqdSession(NsqdHandlers(services, node, publisher, gathering), self.wire)
        sent_bytes = services.metrics.sent_bytes.values
        self.session.responses.open(self.wire, sent_bytes, (NAME,), lambda callback: None, lambda: None)
        self.session.begin(Peer("127.0.0.1", 7, Address("127.0.0.1", 8)), SECOND_US)

    def receive(self) -> None:
        self.result = self.session.receive(self.now_us)

    def say(self, data: bytes, now_us: int = SECOND_US) -> ReceiveResult:
        """Have the session take ``data``, and what that begins go on to its end."""
        self.begin(data, now_us)
        self.loop.turn()
        assert self.session.inbox.make_room(self.result is ReceiveResult.WAIT)
        return self.result

    def begin(self, data: bytes, now_us: int = SECOND_US) -> None:
        inbox = self.session.inbox
        while len(inbox.view) - inbox.have < len(data):
            assert inbox._resize(2 * len(inbox.view))
        inbox.view[inbox.have : inbox.have + len(data)] = data
        inbox.have += len(data)
        self.now_us = now_us
        self.receive()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=SECOND_US)
    with ScriptedLoop() as loop, ThreadPoolExecutor(1) as workers:
        yield Client(broker, workers, loop)
    broker.stop()


def identify(**told: int) -> bytes:
    words = ",".join(f'"{name}":{value}' for name, value in told.items())
    return sized(b"IDENTIFY\n", b"{%s}" % words.encode())


def test_heartbeats_come_in_the_interval_that_the_client_asks_for(client: Client) -> None:
    client.say(b"  V2", 5 * SECOND_US)
    assert client.wire.was_settled
    assert client.wire.due_us == 35 * SECOND_US
    client.say(identify(heartbeat_interval=2000), 6 * SECOND_US)
    assert client.wire.due_us == 8 * SECOND_US
    client.wire.take()
    assert client.session.tick(8 * SECOND_US) == 10 * SECOND_US
    assert client.wire.take() == HEARTBEAT


def test_a_client_that_wants_no_heartbeats_gets_none(client: Client) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=-1))
    assert client.wire.due_us is None


def test_a_client_that_is_silent_for_three_intervals_is_cut(client: Client) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=1000), SECOND_US)
    due_us, beats = 2 * SECOND_US, 0
    while (next_us := client.session.tick(due_us)) is not None:
        due_us, beats = next_us, beats + 1
    assert (beats, due_us, client.wire.was_cut, client.wire.dropped) == (2, 4 * SECOND_US, True, ["silent"])


def test_a_client_that_says_anything_is_not_silent(client: Client) -> None:
    client.say(b"  V2" + identify(heartbeat_interval=1000), SECOND_US)
    for second in range(2, 20):
        assert client.session.tick(second * SECOND_US) == (second + 1) * SECOND_US
        client.say(b"NOP\n", second * SECOND_US)
    # half a command is not enough
    client.say(b"NO", 21 * SECOND_US)
    assert client.session.tick(22 * SECOND_US) is None


def test_many_commands_leave_others_their_turn(client: Client) -> None:
    assert client.say(b"  V2" + b"NOP\n" * (STEPS_MAX + 10)) is ReceiveResult.TURN
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE


def test_who_has_much_in_hand_and_says_little_is_read_again_later(client: Client) -> None:
    client.say(b"  V2SUB topic channel\n" + b"RDY 10\n")
    consumer = client.session.consumer
    assert consumer is not None
    tracker = consumer.subscriber
    assert client.say(b"RDY 20\n") is ReceiveResult.DONE
    tracker.in_flight = MUCH_IN_FLIGHT
    assert client.say(b"RDY 20\n") is ReceiveResult.REST
    # nothing has come: it is looked at for another reason
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE


def test_a_client_that_does_not_read_gets_no_further(client: Client) -> None:
    client.say(b"  V2" + pub("topic", b"w"))
    client.broker.appender.flush()
    assert client.wire.take() == OK
    client.session.block(True)
    assert client.say(pub("topic", b"x")) is ReceiveResult.WAIT
    assert client.wire.take() == b""
    client.session.block(False)
    assert client.session.receive(SECOND_US) is ReceiveResult.DONE
    assert client.wire.take() == OK


def test_what_follows_a_fatal_error_is_thrown_away(client: Client) -> None:
    client.say(b"  V2" + pub("topic", b"x") + b"WHAT\n" + pub("topic", b"y"))
    client.broker.appender.flush()
    sent = client.wire.take()
    assert sent.startswith(OK) and b"E_INVALID" in sent
    assert (client.session.is_ended, client.session.inbox.have) == (True, 0)
    assert struct.unpack_from(">i", sent, len(OK))[0] == len(sent) - len(OK) - 4


def test_stages_follow_what_the_client_waits_for(client: Client) -> None:
    assert client.session.stage() is Stage.FIRST
    client.say(b"  V2" + identify(heartbeat_interval=-1))
    assert client.session.stage() is Stage.IDLE
    client.say(b"NO")
    assert client.session.stage() is Stage.PARTIAL
    client.say(b"P\n" + identify(heartbeat_interval=1000))
    assert client.session.stage() is Stage.BUSY


def test_a_command_waits_for_its_topic_while_others_are_served(client: Client) -> None:
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


def test_a_client_that_ends_behind_its_last_command_is_answered(client: Client) -> None:
    client.begin(b"  V2" + pub("new", b"x") + pub("newer", b"y"))
    client.session.end()
    assert (client.session.is_ended, client.session.is_busy) == (False, True)
    client.loop.turn()
    client.broker.appender.flush()
    assert client.wire.take() == OK * 2
    assert (client.session.is_ended, client.session.is_busy) == (True, False)
