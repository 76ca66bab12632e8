"""The half of a connection that is the same for all protocols, by a protocol of two commands on a scripted loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.endpoints.base.deadlines import Stage
from lading.endpoints.base.responses import ResponseQueue, Slot
from lading.endpoints.base.services import Services
from lading.endpoints.base.session import ConnectionHandle, Peer, ProtocolSession, ReceiveResult, SessionLimits
from lading.endpoints.io.gate import Gate
from lading.endpoints.io.tcp import TcpServer
from lading.log.group_commit import WriteOnly
from lading.runtime.metrics import Labels, Metrics
from lading.settings.settings import Settings
from tests.house.scripted import ScriptedConnection, ScriptedLoop, ScriptedTransport, unbound_listener

NAME = "nsqd_tcp"
BEAT_US = 1_000_000


class LineSession(ProtocolSession):
    """Echoes lines; ``later`` is answered when the test fills its slot; ``turn``, ``rest``, ``bad``, ``fault``."""

    limits = SessionLimits(
        unanswered_max=2, write_buffer_bytes=1000, joined_bytes=8, piece_bytes=100, linger_s=2.0, rest_s=0.5
    )
    last: LineSession

    def __init__(self, word: bytes | None, connection: ConnectionHandle) -> None:
        super().__init__(connection)
        LineSession.last = self
        self.word = word
        self.later: list[Slot] = []
        self.ticks: list[int] = []
        self.peer: Peer | None = None
        self.was_lost = 0

    def begin(self, peer: Peer, now_us: int) -> bool:
        self.peer = peer
        self.connection.tick_at(now_us + BEAT_US)
        return self.word is None

    def last_word(self) -> bytes:
        return self.word or b""

    def receive(self, now_us: int) -> ReceiveResult:
        inbox = self.inbox
        while (end := inbox.data.find(b"\n", inbox.at, inbox.have)) >= 0:
            if self.is_blocked or self.is_ended or len(self.responses.waiting) >= self.limits.unanswered_max:
                return ReceiveResult.WAIT
            line = bytes(inbox.view[inbox.at : end])
            inbox.at = end + 1
            self.requests_count += 1
            if line == b"later":
                self.later.append(self.responses.slot())
            elif line == b"bad":
                inbox.at = inbox.have = 0
                self.lingers = True
                self.responses.add((b"bye",))
                self.end()
            elif line == b"worse":
                # what follows is left where it is, as a worker may still look at what came before
                self.end()
            elif line == b"turn":
                return ReceiveResult.TURN
            elif line == b"rest":
                return ReceiveResult.REST
            elif line == b"fault":
                raise RuntimeError("a fault of ours")
            else:
                self.responses.add((line, b";"))
        return ReceiveResult.DONE

    def refuse_memory(self) -> None:
        self.end()

    def tick(self, now_us: int) -> int | None:
        self.ticks.append(now_us)
        self.responses.push(b"tick;")
        return now_us + BEAT_US if len(self.ticks) < 3 else None

    def lose(self) -> None:
        self.was_lost += 1

    def stage(self) -> Stage:
        return Stage.IDLE


class Room:
    """A server of lines, and what a client of it sees."""

    def __init__(self, loop: ScriptedLoop, services: Services, word: bytes | None = None) -> None:
        self.loop, self.services = loop, services
        gate = Gate(services, NAME)
        new_session = partial(LineSession, word)
        self.server = TcpServer(services, NAME, gate, new_session, clock=lambda: int(loop.time() * 1e6))
        with unbound_listener() as listener:
            loop.finish(self.server.start(listener))

    def connect(self) -> tuple[ScriptedConnection, ScriptedTransport, LineSession]:
        client = self.loop.connect()
        return client, client.transport, LineSession.last

    def stop(self) -> None:
        self.services.begin_stop()
        self.loop.create_task(self.server.stop())
        self.loop.turn()


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=1, commit=WriteOnly())
    with ThreadPoolExecutor(1) as workers:
        yield Services(broker, Settings(data=tmp_path, busy_poll_us=0), Metrics(), workers)
        broker.stop()


@pytest.fixture
def room(services: Services) -> Iterator[Room]:
    with ScriptedLoop() as loop:
        yield Room(loop, services)


def test_responses_keep_the_order_of_requests(room: Room) -> None:
    client, transport, session = room.connect()
    assert str(session.peer) == "127.0.0.1:50000"
    client.send(b"a\nlater\nb\n")
    assert transport.take() == b"a;"
    client.send(b"c\n")
    assert transport.take() == b""
    session.later[0].fill((b"1;",))
    assert transport.take() == b"1;b;c;"
    assert room.services.metrics.sent_bytes.values[NAME,] == 8
    assert room.services.metrics.received_bytes.values[NAME,] == 12


def test_requests_wait_for_responses_before_them(room: Room) -> None:
    client, transport, session = room.connect()
    client.send(b"later\nlater\na\nlater\n")
    assert len(session.later) == 2
    session.later[1].fill(())
    assert transport.take() == b""
    session.later[0].fill((b"1;",))
    assert (transport.take(), len(session.later)) == (b"1;a;", 3)


def test_a_fault_behind_an_answer_that_was_waited_for_ends_the_connection(room: Room) -> None:
    """Who called went on, and the client waited for an answer that nobody would give."""
    client, transport, session = room.connect()
    client.send(b"later\nlater\nfault\n")
    with pytest.raises(RuntimeError, match="a fault of ours"):
        # an append calls this when it is done, and logs what it raises
        session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events[-1]) == (b"1;", "abort")


def test_others_have_their_turn(room: Room) -> None:
    client, transport, _ = room.connect()
    protocol: Any = client.protocol
    view = protocol.get_buffer(-1)
    view[:7] = b"turn\na\n"
    protocol.buffer_updated(7)
    assert transport.take() == b""
    # what comes meanwhile waits too
    protocol.get_buffer(-1)[:2] = b"b\n"
    protocol.buffer_updated(2)
    assert transport.take() == b""
    room.loop.turn()
    assert (transport.take(), transport.events) == (b"a;b;", [])


def test_a_rest_pauses_reading(room: Room) -> None:
    client, transport, _ = room.connect()
    client.send(b"rest\n")
    assert transport.events == ["pause_reading"]
    room.loop.advance(0.5)
    assert transport.events == ["pause_reading", "resume_reading"]


def test_a_full_buffer_of_requests_pauses_reading(room: Room) -> None:
    client, transport, session = room.connect()
    protocol: Any = client.protocol
    client.send(b"later\nlater\n")
    while transport.events == []:
        room_left = protocol.get_buffer(-1)
        room_left[:] = b"\n" * len(room_left)
        protocol.buffer_updated(len(room_left))
    assert transport.events == ["pause_reading"]
    for slot in session.later:
        slot.fill(())
    # what was received used up what is taken at once: the rest has its turn in the next pass of the loop
    client.loop.turn()
    assert transport.events == ["pause_reading", "resume_reading"]


def test_a_full_buffer_behind_the_last_request_is_not_read_into(room: Room) -> None:
    """asyncio closes a connection with a traceback that gives it an empty buffer."""
    client, transport, session = room.connect()
    protocol: Any = client.protocol
    client.send(b"later\n")
    room_left = protocol.get_buffer(-1)
    room_left[:] = b"worse\n".ljust(len(room_left), b"x")
    protocol.buffer_updated(len(room_left))
    assert (session.is_ended, transport.events) == (True, ["pause_reading"])
    session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events) == (b"1;", ["pause_reading", "close"])


def test_ticks_follow_the_clock_that_is_passed_in(room: Room) -> None:
    client, transport, session = room.connect()
    room.loop.advance(0.99)
    assert session.ticks == []
    room.loop.advance(5.0)
    assert session.ticks == [BEAT_US, 2 * BEAT_US, 3 * BEAT_US]
    assert transport.take() == b"tick;" * 3
    client.close()


def test_a_tick_is_taken_back_with_the_connection(room: Room) -> None:
    client, _, session = room.connect()
    client.close()
    client.close()
    room.loop.advance(5.0)
    assert (session.ticks, session.was_lost) == ([], 1)


def test_a_last_response_is_not_taken_back_by_unread_bytes(room: Room) -> None:
    client, transport, session = room.connect()
    client.send(b"later\nbad\na\n")
    assert transport.events == []
    session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events) == (b"1;bye", ["write_eof"])
    client.send(b"more\n")
    assert transport.take() == b""
    room.loop.advance(1.9)
    assert transport.events == ["write_eof"]
    room.loop.advance(0.2)
    assert transport.events == ["write_eof", "abort"]


def test_the_end_of_input_lets_responses_go_out(room: Room) -> None:
    client, transport, session = room.connect()
    protocol: Any = client.protocol
    client.send(b"later\n")
    assert protocol.eof_received()
    session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events) == (b"1;", ["close"])


def test_a_stop_answers_what_was_asked_and_closes(room: Room) -> None:
    client, transport, session = room.connect()
    idle, idle_transport, _ = room.connect()
    client.send(b"later\n")
    room.stop()
    assert (transport.events, idle_transport.events) == ([], ["close"])
    client.send(b"a\n")
    session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events) == (b"1;", ["close"])
    idle.close()
    client.close()
    room.loop.turn()


def test_a_stop_waits_for_responses_after_quiet_times(room: Room) -> None:
    early, _, _ = room.connect()
    early.close()
    client, transport, session = room.connect()
    client.send(b"later\n")
    room.stop()
    assert transport.events == [], "there was a time without any client before: that is no reason to cut this one"
    session.later[0].fill((b"1;",))
    assert (transport.take(), transport.events) == (b"1;", ["close"])
    client.close()
    room.loop.turn()


def test_a_stop_cuts_who_does_not_read(room: Room) -> None:
    client, transport, _ = room.connect()
    client.send(b"later\n")
    room.stop()
    room.loop.advance(5.1)
    assert transport.events == ["abort"]
    client.close()


@pytest.mark.parametrize(("word", "events"), [(b"full", ["close"]), (b"", ["abort"])])
def test_a_client_that_may_not_stay_is_told_if_there_is_a_word(
    services: Services, word: bytes, events: list[str]
) -> None:
    with ScriptedLoop() as loop:
        client, transport, session = Room(loop, services, word).connect()
        assert (transport.take(), transport.events, session.was_lost) == (word, events, 1)
        client.close()
        assert session.was_lost == 1


def test_work_beside_a_connection_is_cancelled_with_it(room: Room) -> None:
    client, _, session = room.connect()
    done: list[asyncio.Future[str]] = []
    first, second = room.loop.create_future(), room.loop.create_future()
    session.connection.run(first, done.append)
    session.connection.run(second, done.append)
    first.set_result("done")
    room.loop.turn()
    assert [each.result() for each in done] == ["done"]
    client.close()
    room.loop.turn()
    assert second.cancelled() and len(done) == 1


class Written:
    """A sink that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[list[bytes]] = []

    def write(self, data: Any) -> None:
        self.writes.append([bytes(data)])

    def writelines(self, list_of_data: Any) -> None:
        self.writes.append([bytes(part) for part in list_of_data])


def test_small_responses_are_joined_and_large_ones_leave_in_pieces() -> None:
    sink, flushed = Written(), list[int]()
    soon: list[Callable[[], None]] = []
    counted: dict[Labels, float] = {("x",): 0.0}
    queue = ResponseQueue(joined_bytes=8, piece_bytes=100)
    queue.open(sink, counted, ("x",), soon.append, lambda: flushed.append(1))
    first, second = queue.slot(), queue.slot()
    second.fill((b"bc", b"de"))
    assert (sink.writes, queue.is_empty) == ([], False)
    first.fill((b"a",))
    first, second = queue.slot(), queue.slot()
    second.fill((b"12345",))
    first.fill((b"6789",))
    assert sink.writes == [[b"abcde"], [b"6789", b"12345"]]
    sink.writes.clear()
    queue.is_watched = True
    queue.add((b"x" * 150, b"y" * 60))
    queue.add((b"z",))
    assert sink.writes == [[b"x" * 100]]
    queue.block(True)
    soon.pop()()
    assert len(sink.writes) == 1 and not soon
    queue.block(False)
    assert sink.writes[1:] == [[b"x" * 50, b"y" * 50]] and not flushed
    soon.pop()()
    assert sink.writes[2:] == [[b"y" * 10, b"z"]] and flushed == [1] and queue.is_empty
    assert counted == {("x",): 225.0}
    queue.add((b"a",))
    queue.close()
    queue.slot().fill((b"b",))
    queue.push(b"c")
    assert sink.writes[3:] == [[b"a"]]
