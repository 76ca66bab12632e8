"""nsqd's half of a connection without one: what it writes is kept, and the time is what the test says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lading.broker.broker import Broker
from lading.endpoints.base.inbox import Inbox
from lading.endpoints.base.services import Services
from lading.endpoints.base.session import LayerFactory, Peer, ProtocolSession, ReceiveResult
from lading.endpoints.nsq.nsqd import node as nodes
from lading.endpoints.nsq.nsqd.handlers import NsqdHandlers
from lading.endpoints.nsq.nsqd.publish import Publisher
from lading.endpoints.nsq.nsqd.publish_coalescing import PublishCoalescer
from lading.endpoints.nsq.nsqd.session import NAME, NsqdSession
from lading.runtime.metrics import Metrics
from lading.settings.settings import Address, Settings
from tests.house.scripted import ScriptedLoop

SECOND_US = 1_000_000


def handlers_of(broker: Broker, workers: ThreadPoolExecutor) -> NsqdHandlers:
    """What all clients of a broker's nsqd share."""
    services = Services(broker, Settings(), Metrics(), workers)
    node = nodes.of(services)
    publisher = Publisher(node, NAME)
    requests = services.metrics.requests.values
    gathering = PublishCoalescer(publisher, NAME, requests, broker.appender.call_before_flush, lambda: None)
    return NsqdHandlers(services, node, publisher, gathering)


class NsqWire:
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

    def lend_soon(self, session: ProtocolSession) -> None:
        """There is no socket."""

    def count_lent(self) -> None:
        """Nothing is lent."""

    def change_session(self, session: ProtocolSession) -> None:
        raise NotImplementedError

    def proceed(self) -> None:
        self._receive()

    is_encrypted = False

    def acknowledge_at_once(self) -> None:
        """There is no system in between."""

    def start_tls(self) -> None:
        raise AssertionError("these clients stay plain")

    def insert_layer(self, new_layer: LayerFactory) -> None:
        raise AssertionError("these clients do not compress")

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


class WiredClient:
    """A client and its session; the time is what the test says."""

    def __init__(self, handlers: NsqdHandlers, loop: ScriptedLoop, now_us: int = SECOND_US) -> None:
        self.broker, self.loop = handlers.services.broker, loop
        self.now_us, self.result = now_us, ReceiveResult.DONE
        self.wire = NsqWire(handlers.services, self.receive)
        self.session = NsqdSession(handlers, self.wire)
        sent_bytes = handlers.services.metrics.sent_bytes.values
        self.session.responses.open(self.wire, sent_bytes, (NAME,), lambda callback: None, lambda: None)
        self.session.begin(Peer("127.0.0.1", 7, Address("127.0.0.1", 8)), now_us)

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
