"""The broker is killed while Iggy, Kafka and NSQ clients write at once (test 2 of the fault list).

What each of them was told is there afterwards, readable in one form, whoever wrote it.
"""

from __future__ import annotations

import struct
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

import lading
from lading import testing
from tests.endpoints.connection import Connection
from tests.endpoints.frames import Frames, message, to_partition

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

STREAM, TOPIC = 1, 1
PLACE = b"\1\4" + struct.pack("<I", STREAM) + b"\1\4" + struct.pack("<I", TOPIC)
TOPICS = {"iggy": "killed.iggy", "kafka": "killed-kafka", "nsq": "killed-nsq"}


class Writer(threading.Thread):
    """Sends numbers until the broker is gone; ``wait_acknowledged`` are those it confirmed."""

    def __init__(self, broker: testing.BrokerProcess, round_number: int) -> None:
        super().__init__(daemon=True)
        self.acknowledged: list[bytes] = []
        self.begun = threading.Event()
        self.failure: BaseException | None = None
        self._broker, self._round = broker, round_number
        self.start()

    def run(self) -> None:
        try:
            self.write()
        except (ConnectionError, TimeoutError):
            pass  # the kill
        except BaseException as error:
            self.failure = error

    def write(self) -> None:
        raise NotImplementedError

    def confirmed(self, bodies: Sequence[bytes]) -> None:
        self.acknowledged += bodies
        self.begun.set()

    def iter_batches(self, number: int) -> bytes:
        return b"%d-%d" % (self._round, number)


class Iggy(Writer):
    """Five messages a request."""

    def write(self) -> None:
        frames = Frames(self._broker.endpoints["iggy_tcp"])
        frames.ask(202, struct.pack("<I", STREAM) + b"killed")
        frames.ask(302, b"\1\4" + struct.pack("<III", STREAM, TOPIC, 1) + b"iggy")
        for first in range(0, 1 << 30, 5):
            bodies = [self.iter_batches(number) for number in range(first, first + 5)]
            request = PLACE + to_partition(1) + b"".join(map(message, bodies))
            status, body = frames.ask(101, request)
            assert status == 0, (status, body)
            self.confirmed(bodies)


class Kafka(Writer):
    """librdkafka with numbered batches; it would send again to the broker that comes next, so it ends with this one."""

    def write(self) -> None:
        facts = {"bootstrap.servers": self._broker.endpoints["kafka"], "enable.idempotence": True, "linger.ms": 1}
        producer = confluent.Producer({**facts, "log_level": 0, "error_cb": lambda error: None})
        number = 0
        while self._broker.process.poll() is None:
            for _ in range(20):
                body = self.iter_batches(number)
                producer.produce(TOPICS["kafka"], body, on_delivery=self._told(body))
                number += 1
            producer.poll(0.002)
        producer.poll(0.1)
        producer.purge()
        producer.flush(5)

    def _told(self, body: bytes) -> Callable[[Any, Any], None]:
        return lambda error, _: None if error else self.confirmed([body])


class Nsq(Writer):
    """PUB, one by one."""

    def write(self) -> None:
        connection = Connection(self._broker.endpoints["nsqd_tcp"])
        connection.socket.sendall(b"  V2")
        for number in range(1 << 30):
            body = self.iter_batches(number)
            connection.socket.sendall(b"PUB %s\n" % TOPICS["nsq"].encode() + struct.pack(">I", len(body)) + body)
            while (answer := self._answer(connection)) == b"_heartbeat_":
                connection.socket.sendall(b"NOP\n")
            assert answer == b"OK", answer
            self.confirmed([body])

    @staticmethod
    def _answer(connection: Connection) -> bytes:
        size, _ = struct.unpack(">II", connection.receive(8))
        return connection.receive(size - 4)


@pytest.mark.turns(2, part=1)
@pytest.mark.timeout(3600)
def test_what_was_acknowledged_in_any_protocol_survives(
    tmp_path: Path, full: bool, record_figures: Callable[..., None]
) -> None:
    random = Random(7)
    rounds = 200 if full else 3
    kinds: dict[str, type[Writer]] = {"iggy": Iggy, "kafka": Kafka, "nsq": Nsq}
    acknowledged: dict[str, list[bytes]] = {name: [] for name in kinds}
    ready_s: list[float] = []
    for number in range(rounds):
        with testing.broker(tmp_path, log__segment_bytes=200_000) as broker:
            ready_s.append(broker.started_s)
            writers = {name: kind(broker, number) for name, kind in kinds.items()}
            for writer in writers.values():
                assert writer.begun.wait(20), writer.failure
            writers["nsq"].join(random.uniform(0.05, 0.6))
            broker.kill()
            for name, writer in writers.items():
                writer.join(20)
                assert writer.failure is None and not writer.is_alive(), (name, writer.failure)
                acknowledged[name] += writer.acknowledged
    lost = twice = 0
    with testing.broker(tmp_path) as broker:
        for name, told in acknowledged.items():
            assert told, name
            table = lading.read_arrow(broker.url, TOPICS[name], columns="payload")
            found = Counter(table.column("payload").to_pylist())
            lost += sum(found[body] == 0 for body in told)
            twice += sum(found[body] > 1 for body in told)
    figures = {f"acknowledged_over_{name}": len(told) for name, told in acknowledged.items()}
    ready_s.sort()
    record_figures(
        "kill -9, three protocols",
        rounds=rounds,
        **figures,
        lost=lost,
        twice=twice,
        ready_p50_s=ready_s[len(ready_s) // 2],
    )
    assert (lost, twice) == (0, 0)
