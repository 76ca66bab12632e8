"""One simulated life of a broker under NSQ's clients: sessions without sockets, by a clock that the seed turns."""

from __future__ import annotations

import asyncio
import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import ModuleType
from unittest.mock import patch
from uuid import UUID

from lading.broker.core.topics import namespace
from lading.model.names import DEFAULT_STREAM
from lading.runtime.clock import now_us
from tests.endpoints.nsq_client import message_of, mpub, pub, sized
from tests.endpoints.nsq_wire import WiredClient, handlers_of
from tests.house.scripted import ScriptedLoop
from tests.simulation.life import SimulatedLife
from tests.simulation.nsq_model import ChannelModel, Finished

NSQ_FROM = 2_000_000
"""Seeds from here on are lives under NSQ's clients."""
STEPS = 160
CHANNELS = ("a", "b")
PUBLISHERS, SUBSCRIBERS, PARTITIONS = 2, 3, 2
DELAYS_MS = (1, 40, 700, 3_000)
ALL_READY = 2_500
FAR_US = 4 * 3_600 * 1_000_000
"""Longer than any delay and any step of the machine's clock."""
FEW = {
    "partition_dispatcher.LOOKAHEAD_MAX": 6,
    "partition_dispatcher.PAGE_MESSAGES": 4,
    "partition_dispatcher.SPILL": 2,
    "partition_dispatcher.RESOLVE": 2,
    "in_flight.OUT_OF_WINDOW_MAX": 8,
}
"""Bounds of a channel, so small that a life of a hundred messages reaches them."""


class NsqPublisher:
    """A connection that publishes; ``waiting`` is what was not answered yet."""

    def __init__(self, client: WiredClient) -> None:
        self.client = client
        self.waiting: deque[list[bytes]] = deque()


class NsqSubscriber:
    """A connection that reads one channel; ``numbers`` are ids that it was given and has not answered."""

    def __init__(self, client: WiredClient, channel: ChannelModel, timeout_us: int) -> None:
        self.client, self.channel, self.timeout_us = client, channel, timeout_us
        self.ready, self.is_blocked = 0, False
        self.numbers: list[bytes] = []


class NsqWorld(SimulatedLife):
    """A broker, NSQ's clients, and what has to hold of all they see."""

    def __init__(self, seed: int, data: Path) -> None:
        self.models = [ChannelModel(name) for name in CHANNELS]
        self.published: set[bytes] = set()
        self.acknowledged: set[bytes] = set()
        self.delayed: dict[bytes, tuple[int, int]] = {}
        """When delayed messages are due that are not yet: by the broker's clock, and by date."""
        self.delayed_ever: set[bytes] = set()
        self.doubled: set[bytes] = set()
        """Delayed messages that may come twice, since one may have entered the log when the broker crashed."""
        self._date_shift_us = 0
        self.deliveries = 0
        with ExitStack() as stack:
            for module in _clocked_modules():
                stack.enter_context(patch.object(module, "now_us", lambda: self.now_us))
            stack.callback(asyncio._set_running_loop, None)
            super().__init__(seed, data)
            if self.random.random() < 0.5:
                for name, value in FEW.items():
                    stack.enter_context(patch(f"lading.broker.channels.{name}", value))
            self._begin()
            self._changes = stack.pop_all()

    def _begin(self) -> None:
        self.broker.at_once.create_stream(None, DEFAULT_STREAM, now_us=self.now_us)
        with patch(f"{namespace.__name__}.uuid4", lambda: UUID(int=self.random.getrandbits(128), version=4)):
            self.broker.at_once.create_topic(DEFAULT_STREAM, None, "t", PARTITIONS, now_us=self.now_us)
        self.settle()
        for model in self.models:
            self._subscribe(model)
        self._greet()

    # -- the broker

    def open(self) -> None:
        super().open()
        self._date_shift_us = 0
        self.handlers = handlers_of(self.broker, _workers())
        # until the next start: sessions and channels ask for the running loop whenever they are called
        self.loop = ScriptedLoop().__enter__()
        self.publishers: list[NsqPublisher] = []
        self.subscribers: list[NsqSubscriber] = []
        if self.step:
            self._greet()

    def _greet(self) -> None:
        while len(self.publishers) < PUBLISHERS:
            self.publishers.append(NsqPublisher(self._connect(b"")))
        while len(self.subscribers) < SUBSCRIBERS:
            self._subscribe(self.random.choice(self.models))

    def _connect(self, data: bytes) -> WiredClient:
        client = WiredClient(self.handlers, self.loop, self.now_us)
        client.begin(b"  V2" + data, self.now_us)
        return client

    def _subscribe(self, model: ChannelModel) -> NsqSubscriber:
        timeout_ms = self.random.choice((1_000, 3_000, 60_000))
        identify = sized(b"IDENTIFY\n", b'{"msg_timeout":%d}' % timeout_ms)
        client = self._connect(identify + b"SUB t %s\n" % model.name.encode())
        assert client.wire.take().endswith(b"OK")
        self.subscribers.append(NsqSubscriber(client, model, timeout_ms * 1_000))
        return self.subscribers[-1]

    def lose_connections(self) -> None:
        for model in self.models:
            model.crash()
        self.doubled |= self.delayed_ever
        # the next process begins its clock at the date
        self.now_us += self.shift_us
        self.shift_us = 0
        self.delayed = {body: (date_us, date_us) for body, (_, date_us) in self.delayed.items()}

    def tick(self) -> None:
        for model in self.models:
            model.tick(self.now_us)
        super().tick()
        self._date_shift_us = self.shift_us
        self.delayed = {body: due for body, due in self.delayed.items() if due[0] > self.now_us}

    def _pass(self, elapsed_us: int) -> None:
        """Let time pass."""
        self.now_us += elapsed_us
        self._turn(lambda: self.loop.advance(elapsed_us / 1e6))
        self._turn(self.tick)

    def _turn(self, work: Callable[[], None]) -> None:
        """Do something, and see what clients were sent."""
        work()
        self._receive()

    # -- what clients get

    def _receive(self) -> None:
        for publisher in self.publishers:
            for kind, data in _frames(publisher.client.wire.take()):
                assert kind in (0, 1) and publisher.waiting, data
                bodies = publisher.waiting.popleft()
                if kind == 0:
                    assert data == b"OK", data
                    self.acknowledged.update(bodies)
        for subscriber in self.subscribers:
            for kind, data in _frames(subscriber.client.wire.take()):
                assert kind == 2, data
                self._deliver(subscriber, data)
        for publisher in [one for one in self.publishers if one.client.session.is_ended]:
            self._lose_publisher(publisher)

    def _deliver(self, subscriber: NsqSubscriber, data: bytes) -> None:
        message = message_of(data, extended=False)
        body, model = message.body, subscriber.channel
        assert body in self.published, f"{body!r} was never published"
        assert body not in self.delayed, f"{body[:8]!r} comes {self.delayed[body][0] - self.now_us} us early"
        assert not subscriber.is_blocked, "a client that does not read is sent messages"
        model.deliver(subscriber, message.id, body, message.attempts, self.now_us, subscriber.timeout_us)
        held = len(model.held_by(subscriber))
        assert held <= subscriber.ready, f"{held} messages are with a client of RDY {subscriber.ready}"
        subscriber.numbers.append(message.id)
        self.deliveries += 1

    # -- what clients do

    def publish(self) -> None:
        publisher = self.random.choice(self.publishers)
        bodies = [self.make_payload() for _ in range(self.random.randint(1, 4))]
        self.published.update(bodies)
        chance, at = self.random.random(), self.now_us
        if chance < 0.5:
            publisher.waiting.extend([body] for body in bodies)
            request = b"".join(pub("t", body) for body in bodies)
        elif chance < 0.8:
            publisher.waiting.append(bodies)
            request = mpub("t", *bodies)
        else:
            delay_ms = self.random.choice(DELAYS_MS)
            due_us = at + delay_ms * 1_000
            self.delayed.update(dict.fromkeys(bodies, (due_us, due_us + self._date_shift_us)))
            self.delayed_ever.update(bodies)
            publisher.waiting.extend([body] for body in bodies)
            request = b"".join(sized(b"DPUB t %d\n" % delay_ms, body) for body in bodies)
        self._say(publisher.client, request)

    def _say(self, client: WiredClient, data: bytes) -> None:
        """Send it in two parts."""
        cut = self.random.randint(0, len(data))
        for part in (data[:cut], data[cut:]):
            self._turn(lambda part=part: client.begin(part, self.now_us))  # type: ignore[misc]

    def answer(self) -> None:
        """A subscriber says something of messages that it was given; what it is told has to be what the model says."""
        subscriber = self.random.choice(self.subscribers)
        self.random.shuffle(subscriber.numbers)
        some = [subscriber.numbers.pop() for _ in range(min(self.random.randint(1, 6), len(subscriber.numbers)))]
        chance = self.random.random()
        if chance < 0.65:
            self._finish(subscriber, some)
        elif chance < 0.85:
            for number in some[:2]:
                self._requeue(subscriber, number)
            subscriber.numbers += some[2:]
        else:
            for number in some[:2]:
                is_taken = subscriber.channel.touch(subscriber, number, subscriber.timeout_us, self.now_us)
                self._command(subscriber, b"TOUCH", number, b"TOUCH %s\n" % number, is_taken)
            subscriber.numbers += some

    def _finish(self, subscriber: NsqSubscriber, numbers: list[bytes]) -> None:
        refused = [number for number in numbers if not subscriber.channel.finish(subscriber, number, self.now_us)]
        told = self._ask(subscriber, b"".join(b"FIN %s\n" % number for number in numbers))
        assert [data.split()[2] for data in told] == refused, (told, refused)
        assert all(data.startswith(b"E_FIN_FAILED") for data in told), told

    def _requeue(self, subscriber: NsqSubscriber, number: bytes) -> None:
        delay_ms = self.random.choice((0, *DELAYS_MS))
        told = self._ask(subscriber, b"REQ %s %d\n" % (number, delay_ms))
        if told and b"Too much deferred" in told[0]:
            subscriber.numbers.append(number)
            return
        is_taken = subscriber.channel.requeue(subscriber, number, delay_ms * 1_000, self.now_us)
        assert is_taken is not bool(told), (number, is_taken, told)

    def _command(self, subscriber: NsqSubscriber, name: bytes, number: bytes, data: bytes, is_taken: bool) -> None:
        told = self._ask(subscriber, data)
        assert is_taken is not bool(told), (name, number, is_taken, told)

    def _ask(self, subscriber: NsqSubscriber, data: bytes) -> list[bytes]:
        """Send commands and return the errors that answer them; nothing is delivered before the loop turns."""
        cut = self.random.randint(0, len(data))
        for part in (data[:cut], data[cut:]):
            subscriber.client.begin(part, self.now_us)
        frames = list(_frames(subscriber.client.wire.take()))
        assert all(kind == 1 for kind, _ in frames), frames
        return [answer for _, answer in frames]

    def change(self) -> None:
        """A subscriber takes more, or less, stops reading, or leaves; another one comes."""
        subscriber, chance = self.random.choice(self.subscribers), self.random.random()
        if chance < 0.6:
            subscriber.ready = self.random.choice((0, 1, 3, 10))
            assert not self._ask(subscriber, b"RDY %d\n" % subscriber.ready)
        elif chance < 0.75:
            subscriber.is_blocked = not subscriber.is_blocked
            self._turn(lambda: subscriber.client.session.block(subscriber.is_blocked))
        elif chance < 0.95:
            subscriber.channel.leave(subscriber)
            self.subscribers.remove(subscriber)
            self._turn(subscriber.client.session.lose)
            self._turn(self._greet)
        else:
            self._lose_publisher(self.random.choice(self.publishers))

    def _lose_publisher(self, publisher: NsqPublisher) -> None:
        self.publishers.remove(publisher)
        self._turn(publisher.client.session.lose)
        self._turn(self._greet)

    # -- what happens

    def happen(self) -> None:
        """One step."""
        self.step += 1
        chance = self.random.random()
        if chance < 0.15:
            self.publish()
        elif chance < 0.27:
            self._turn(self.broker.appender.flush)
        elif chance < 0.40:
            for _ in range(self.random.randint(1, 4)):
                self._turn(self.commit.complete)
        elif chance < 0.53:
            self._turn(self.loop.turn)
        elif chance < 0.71:
            self.answer()
        elif chance < 0.81:
            self.change()
        elif chance < 0.96:
            if self.random.random() < 0.2:
                self.set_clock()
            self._pass(self.random.choice((1_000, 5_000, 50_000, 150_000, 2_000_000)))
        elif chance < 0.98:
            self.fail_disk()
        else:
            self.disk.failure = None
            self.crash(power_is_cut=self.random.random() < 0.6)

    def run(self) -> None:
        with self._changes:
            for _ in range(STEPS):
                self.happen()
            self.disk.failure = None
            self.crash(power_is_cut=True)
            self._drain()
            self._require_all()

    def _drain(self) -> None:
        """Read both channels to their ends, past everything that is put off."""
        readers = [self._subscribe(model) for model in self.models]
        for reader in readers:
            reader.ready = ALL_READY
            assert not self._ask(reader, b"RDY %d\n" % ALL_READY)
        quiet = 0
        while quiet < 4:
            before = self.deliveries
            self._turn(self.settle)
            for _ in range(3):
                self._turn(self.loop.turn)
                for reader in readers:
                    numbers, reader.numbers = reader.numbers, []
                    self._finish(reader, numbers)
            self._pass(FAR_US)
            quiet = quiet + 1 if self.deliveries == before else 0
            self.step += 1
            assert self.step < 10 * STEPS, "deliveries do not end"

    def _require_all(self) -> None:
        for model in self.models:
            lost = model.missing(self.acknowledged)
            assert not lost, f"{model.name}: of what was acknowledged {sorted(lost)[:4]} was never delivered"
            bodies = [one.body for one in model.messages.values() if one.finished is not Finished.NEVER]
            twice = {body for body in bodies if bodies.count(body) > 1} - self.doubled
            assert not twice, f"{model.name}: {sorted(twice)[:4]} has two ids"
            channel = self.broker.channels.find(self.broker.topology.resolve("t"), model.name)
            assert channel is not None
            left = channel.statistics()
            assert (left.depth, left.in_flight, left.deferred) == (0, 0, 0), left


@cache
def _clocked_modules() -> list[ModuleType]:
    """The modules of the endpoints that read the clock by this name."""
    found = [module for name, module in sys.modules.items() if name.startswith("lading.endpoints.")]
    return [module for module in found if getattr(module, "now_us", None) is now_us]


@cache
def _workers() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1)


def _frames(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Kind and data of each frame that is no heartbeat."""
    at = 0
    while at < len(data):
        size, kind = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 4 + size] != b"_heartbeat_":
            yield kind, data[at + 8 : at + 4 + size]
        at += 4 + size
