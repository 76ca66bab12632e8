"""Clients of the failure scripts, one set a protocol: who publishes numbers without end, who reads, who behaves badly.

Kafka's are librdkafka with ``acks=all`` and idempotence, as its users have it; a reader is a group that commits what it
has read. NSQ's are plain sockets: a publisher repeats what was not answered, a reader finishes what it gets.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from bench._reliability_servers import FailingServer
from tests.endpoints.kafka_frames import KafkaFrames, fetch, one_batch, produce
from tests.endpoints.nsq_client import NsqClient, message_of, mpub, pub

TOPIC, GROUP, KEPT, SLOW, ROUND_TRIPS = "reliability", "live", "kept", "slow", "round-trips"
"""NSQ's topic has three channels: one is read all the while, one at the end, one by those that do not read."""
BODY_BYTES, LARGE_BYTES = 200, 10_000
BATCH = 10
READY = 200
QUIET_S = 3.0
SESSION_MS = 6_000
RETRY_S = 0.02
CONNECTION_ERRORS = (OSError, EOFError)
HALF = b"half a request".ljust(1_000)
LIBRDKAFKA = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Client(threading.Thread):
    """Works until it is told to stop."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self.address = address
        self.stopping = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        """Do it until ``stopping`` is set."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it. Raises what it failed with."""
        self.stopping.set()
        self.join(90)
        if self.failure is not None or self.is_alive():
            raise RuntimeError(f"{type(self).__name__} did not end in order: {self.failure!r}") from self.failure


class NumberPublisher(Client):
    """Publishes numbers; ``acknowledged`` are those that the server has confirmed."""

    def __init__(self, address: str, body_bytes: int = BODY_BYTES, rest_s: float = 0.0) -> None:
        """``rest_s`` is between two batches."""
        super().__init__(address)
        self.acknowledged: set[int] = set()
        self._rest_s = rest_s
        self._bodies = (b"%d" % number for number in range(1 << 40))
        self._body_bytes = body_bytes

    def next_body(self) -> bytes:
        return next(self._bodies).ljust(self._body_bytes, b" ")


class LiveReader(Client):
    """Reads what is published, and finishes or commits it."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self.finished: set[int] = set()
        self.seen: set[int] = set()
        self.redelivered = 0
        """Messages that came again after they were finished, or after their commit was answered."""
        self.served_s: list[float] = []

    def receive(self, numbers: list[int]) -> None:
        self.served_s.append(time.monotonic())
        self.redelivered += sum(number in self.finished for number in numbers)
        self.seen.update(numbers)

    def served_again_s(self, since_s: float, timeout_s: float) -> float | None:
        """Wait for the first message after ``since_s``; return how long it took, None if none came in time."""
        deadline = since_s + timeout_s
        while time.monotonic() < deadline:
            if self.served_s and self.served_s[-1] >= since_s:
                return next(at for at in self.served_s if at >= since_s) - since_s
            time.sleep(0.005)
        return None

    def wait_quiet(self) -> None:
        """Return when nothing is left of what was received before."""
        deadline = time.monotonic() + 10
        while self.served_s and time.monotonic() - self.served_s[-1] < 0.3 and time.monotonic() < deadline:
            time.sleep(0.02)


class ProtocolClients(ABC):
    """What the scripts need of the clients of one protocol."""

    protocol: str
    publisher: type[NumberPublisher]
    reader: type[LiveReader]

    def __init__(self, server: FailingServer) -> None:
        self.server = server

    @abstractmethod
    def create(self, topic: str) -> None:
        """Create a topic."""

    @abstractmethod
    def drain(self) -> Counter[int]:
        """Read all messages from the first to the last."""

    @abstractmethod
    def round_trips(self) -> Iterator[float]:
        """Publish and read one message after the other on a topic of their own; yield the seconds of each."""

    @abstractmethod
    def send_half(self) -> socket.socket:
        """Send half a request that publishes."""

    @abstractmethod
    def read_nothing(self) -> socket.socket:
        """Ask for all there is, and read none of it."""

    def start_victim(self) -> subprocess.Popen[bytes]:
        """Start a process that takes messages and finishes none; return when it has READY of them."""
        command = [sys.executable, "-m", "bench._reliability_clients", self.protocol, self.server.address]
        victim = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        assert victim.stdout is not None
        if victim.stdout.readline() != b"taken\n":
            victim.kill()
            raise RuntimeError("the client that is to be killed got no messages")
        return victim


# -- Kafka


class KafkaNumberPublisher(NumberPublisher):
    """librdkafka with numbered batches; a new producer where a power cut took the numbers that one had come to."""

    def work(self) -> None:
        from confluent_kafka import KafkaException

        producer = self._begin()
        while not self.stopping.is_set():
            try:
                self._publish(producer)
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                producer = self._begin()
        producer.flush(30)

    def _begin(self) -> Any:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": self.address, "enable.idempotence": True, "acks": "all", "linger.ms": 1}
        return Producer({**settings, "message.timeout.ms": 60_000, **LIBRDKAFKA})

    def _publish(self, producer: Any) -> None:
        if len(producer) < 2_000:
            for _ in range(BATCH):
                body = self.next_body()
                with suppress(BufferError):
                    producer.produce(TOPIC, body, on_delivery=self._told(int(body)))
        producer.poll(0.001)
        time.sleep(self._rest_s)

    def _told(self, number: int) -> Callable[[Any, Any], None]:
        return lambda error, _: None if error else self.acknowledged.add(number)


class KafkaLiveReader(LiveReader):
    """A group of one member; what a commit was answered for is finished."""

    def work(self) -> None:
        from confluent_kafka import KafkaException

        consumer = _consumer(self.address)
        consumer.subscribe([TOPIC])
        while not self.stopping.is_set():
            numbers = [int(one.value()) for one in consumer.consume(1_000, 0.05) if not one.error()]
            if not numbers:
                continue
            self.receive(numbers)
            with suppress(KafkaException):
                consumer.commit(asynchronous=False)
                self.finished.update(numbers)
        consumer.close()


def _consumer(address: str, group: str = GROUP, **settings: Any) -> Any:
    from confluent_kafka import Consumer

    common = {"bootstrap.servers": address, "group.id": group, "enable.auto.commit": False}
    timed = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000, "fetch.wait.max.ms": 50}
    return Consumer({**common, **timed, "auto.offset.reset": "earliest", **LIBRDKAFKA, **settings})


class KafkaClients(ProtocolClients):
    """librdkafka, and frames by hand for what it would never send."""

    protocol, publisher, reader = "kafka", KafkaNumberPublisher, KafkaLiveReader

    def create(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.server.address, **LIBRDKAFKA})
        admin.create_topics([NewTopic(topic, 1, 1, config=self.server.config)])[topic].result(30)

    def drain(self) -> Counter[int]:
        from confluent_kafka import TopicPartition

        consumer = _consumer(self.server.address, "drain", **{"enable.partition.eof": True})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        found: Counter[int] = Counter()
        deadline, is_over = time.monotonic() + 60, False
        while not is_over:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.server.name}: the end of the topic was not reached")
            for message in consumer.consume(1_000, 0.5):
                if message.error() is None:
                    found[int(message.value())] += 1
                else:
                    is_over = message.error().name() == "_PARTITION_EOF"
        consumer.close()
        return found

    def round_trips(self) -> Iterator[float]:
        from confluent_kafka import Producer, TopicPartition

        settings = {"bootstrap.servers": self.server.address, "acks": "all", "linger.ms": 0, **LIBRDKAFKA}
        producer, consumer = Producer(settings), _consumer(self.server.address, ROUND_TRIPS)
        consumer.assign([TopicPartition(ROUND_TRIPS, 0, 0)])
        try:
            while True:
                begun_s = time.monotonic()
                producer.produce(ROUND_TRIPS, b"x")
                producer.flush(30)
                _required(consumer.poll(30))
                yield time.monotonic() - begun_s
        finally:
            consumer.close()

    def send_half(self) -> socket.socket:
        connection = KafkaFrames(self.server.address)
        frame = connection.request("Produce", 9, **produce(TOPIC, one_batch(HALF)))
        connection.socket.sendall(struct.pack(">i", len(frame)) + frame[: len(frame) // 2])
        return connection.socket

    def read_nothing(self) -> socket.socket:
        connection = KafkaFrames(self.server.address)
        much = fetch(TOPIC, 0, max_bytes=50 << 20, partition_bytes=50 << 20)
        for _ in range(4):
            connection.send(connection.request("Fetch", 11, **much))
        return connection.socket


def _required(message: Any) -> None:
    if message is None or message.error() is not None:
        raise TimeoutError("a message that was published did not come")


# -- NSQ


class NsqNumberPublisher(NumberPublisher):
    """PUB and MPUB in turn; what was not answered is sent again."""

    def work(self) -> None:
        client: NsqClient | None = None
        bodies: list[bytes] = []
        while not self.stopping.is_set():
            bodies = bodies or [self.next_body() for _ in range(BATCH)]
            try:
                client = client or NsqClient(self.address)
                if int(bodies[0]) % (2 * BATCH):
                    answers = [client.ask(mpub(TOPIC, *bodies))]
                else:
                    client.send(b"".join(pub(TOPIC, body) for body in bodies))
                    answers = [client.frame()[1] for _ in bodies]
            except CONNECTION_ERRORS:
                client = None
                time.sleep(RETRY_S)
                continue
            if answers == [b"OK"] * len(answers):
                self.acknowledged.update(map(int, bodies))
                bodies = []
                time.sleep(self._rest_s)
            else:
                # refused: nsqd then closes the connection of a PUB that failed
                time.sleep(RETRY_S)


class NsqLiveReader(LiveReader):
    """One connection that finishes what it gets at once."""

    def work(self) -> None:
        while not self.stopping.is_set():
            try:
                self._read(_subscribed(self.address, GROUP))
            except CONNECTION_ERRORS:
                time.sleep(RETRY_S)

    def _read(self, client: NsqClient) -> None:
        while not self.stopping.is_set():
            try:
                kind, data = client.frame(0.1)
            except TimeoutError:
                continue
            if kind == 2:
                message = message_of(data, extended=False)
                self.receive([int(message.body)])
                client.fin(message)
                self.finished.add(int(message.body))
        client.close()


def _subscribed(address: str, channel: str, topic: str = TOPIC, ready: int = READY) -> NsqClient:
    client = NsqClient(address)
    client.send(b"SUB %s %s\n" % (topic.encode(), channel.encode()))
    if (told := client.frame()[1]) != b"OK":
        raise OSError(told.decode())
    client.send(b"RDY %d\n" % ready)
    return client


class NsqClients(ProtocolClients):
    """Plain sockets."""

    protocol, publisher, reader = "nsq", NsqNumberPublisher, NsqLiveReader

    def create(self, topic: str) -> None:
        for channel in (GROUP, KEPT, SLOW):
            _subscribed(self.server.address, channel, topic, 0).close()

    def drain(self) -> Counter[int]:
        client, found = _subscribed(self.server.address, KEPT, ready=2_500), Counter[int]()
        with suppress(TimeoutError):
            while True:
                kind, data = client.frame(QUIET_S)
                if kind == 2:
                    message = message_of(data, extended=False)
                    found[int(message.body)] += 1
                    client.fin(message)
        client.close()
        return found

    def round_trips(self) -> Iterator[float]:
        publisher = NsqClient(self.server.address)
        reader = _subscribed(self.server.address, GROUP, ROUND_TRIPS, 1)
        while True:
            begun_s = time.monotonic()
            if (told := publisher.ask(pub(ROUND_TRIPS, b"x"))) != b"OK":
                raise RuntimeError(told.decode())
            reader.fin(reader.message())
            yield time.monotonic() - begun_s

    def send_half(self) -> socket.socket:
        client, request = NsqClient(self.server.address), pub(TOPIC, HALF)
        client.send(request[: len(request) // 2])
        return client._socket

    def read_nothing(self) -> socket.socket:
        return _subscribed(self.server.address, SLOW, ready=2_500)._socket


CLIENTS: dict[str, type[ProtocolClients]] = {"kafka": KafkaClients, "nsq": NsqClients}


def _take_and_wait(protocol: str, address: str) -> None:
    """Take READY messages, finish none of them, and wait for the kill."""
    if protocol == "kafka":
        consumer, have = _consumer(address), 0
        consumer.subscribe([TOPIC])
        while have < READY:
            have += sum(one.error() is None for one in consumer.consume(READY, 0.1))
    else:
        client = _subscribed(address, GROUP)
        for _ in range(READY):
            client.message()
    print("taken", flush=True)
    time.sleep(600)


if __name__ == "__main__":
    _take_and_wait(*sys.argv[1:])
