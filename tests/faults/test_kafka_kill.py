"""The broker is killed while Kafka clients send: numbered batches and transactions are there once, or not at all."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pytest

from lading import testing
from lading.testing import FREE_PORT, BrokerProcess
from lading.testing.held_ports import PortHolder
from tests.listeners import listen_only

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
admin_of = pytest.importorskip("confluent_kafka.admin")

PARTITIONS = 2
QUIET = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


class Killed:
    """A broker at one address that is killed and started again on the same directory."""

    def __init__(self, home: Path, ports: PortHolder) -> None:
        self.address = ports.hold()
        self._home = home
        self.recovery_s: list[float] = []
        self._running = self._start()

    def _start(self) -> BrokerProcess:
        wanted = {**listen_only(kafka=self.address, admin=FREE_PORT), "log.segment_bytes": 200_000}
        return testing.start(self._home / "data", wanted, self._home / "stderr.log")

    def again(self) -> None:
        self.close()
        self._running = self._start()
        self.recovery_s.append(self._running.started_s)

    def close(self) -> None:
        self._running.kill()
        if self._running.process.stdout is not None:
            self._running.process.stdout.close()


class Idempotent(threading.Thread):
    """Sends numbers without end; ``wait_acknowledged`` are those the broker has confirmed."""

    def __init__(self, address: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.acknowledged: list[int] = []
        self.sent = 0
        self._topic = topic
        self._producer = confluent.Producer(
            {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 2, **QUIET}
        )
        self.start()

    def run(self) -> None:
        def told(number: int) -> Callable[[Any, Any], None]:
            return lambda error, _: None if error else self.acknowledged.append(number)

        while not self.stopping.is_set():
            if len(self._producer) > 5000:
                self._producer.poll(0.05)
                continue
            for _ in range(20):
                self._producer.produce(
                    self._topic, b"%d" % self.sent, partition=self.sent % PARTITIONS, on_delivery=told(self.sent)
                )
                self.sent += 1
            self._producer.poll(0.002)
        self._producer.flush(30)


class Transactional(threading.Thread):
    """Transactions of one number over all partitions; ``decided`` has what was confirmed, True for a commit."""

    def __init__(self, address: str, topic: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.decided: dict[int, bool] = {}
        self.unknown: set[int] = set()
        """A commit was asked for, and the answer never came."""
        self._address, self._topic, self._random = address, topic, Random(seed)
        self.start()

    def run(self) -> None:
        number, producer = 0, self._begin()
        while not self.stopping.is_set():
            commit = self._random.random() < 0.7
            asked = False
            try:
                producer.begin_transaction()
                for partition in range(PARTITIONS):
                    producer.produce(self._topic, b"%d" % number, partition=partition)
                producer.flush(20)
                asked = commit
                (producer.commit_transaction if commit else producer.abort_transaction)(20)
                self.decided[number] = commit
            except confluent.KafkaException as error:
                if asked:
                    self.unknown.add(number)
                if error.args[0].txn_requires_abort():
                    producer.abort_transaction(20)
                else:
                    producer = self._begin()
            number += 1

    def _begin(self) -> Any:
        settings = {"bootstrap.servers": self._address, "transactional.id": "one", **QUIET}
        producer = confluent.Producer({**settings, "transaction.timeout.ms": 60_000})
        producer.init_transactions(30)
        return producer


def read(address: str, topic: str) -> list[list[int]]:
    """What a reader of what is committed gets, by partition, up to the end."""
    consumer = confluent.Consumer(
        {"bootstrap.servers": address, "group.id": "check", "isolation.level": "read_committed",
         "enable.partition.eof": True, "enable.auto.commit": False, **QUIET}
    )  # fmt: skip
    consumer.assign([confluent.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    until = time.monotonic() + 60
    while len(ended) < PARTITIONS:
        assert time.monotonic() < until
        for message in consumer.consume(1000, 0.5):
            if message.error():
                ended.add(message.partition())
            else:
                found[message.partition()].append(int(message.value()))
    consumer.close()
    return found


@pytest.mark.timeout(1200)
@pytest.mark.turns(3, part=0)
def test_kill_9_of_the_broker_in_the_middle_of_sends(
    tmp_path: Path, ports: PortHolder, full: bool, record_figures: Callable[..., None]
) -> None:
    random = Random(5)
    broker = Killed(tmp_path, ports)
    try:
        admin = admin_of.AdminClient({"bootstrap.servers": broker.address, **QUIET})
        for future in admin.create_topics(
            [admin_of.NewTopic(name, PARTITIONS, 1) for name in ("plain", "tx")]
        ).values():
            future.result(20)
        plain, transactional = Idempotent(broker.address, "plain"), Transactional(broker.address, "tx", 5)
        for _ in range(60 if full else 3):
            plain_done = len(plain.acknowledged) + random.randint(1, 2000)
            decided_done = len(transactional.decided) + random.randint(1, 30)
            until = time.monotonic() + 20
            while len(plain.acknowledged) < plain_done or len(transactional.decided) < decided_done:
                assert time.monotonic() < until, (transactional.is_alive(), plain.is_alive())
                time.sleep(0.001)
            broker.again()
        for one in (plain, transactional):
            one.stopping.set()
            one.join(60)
            assert not one.is_alive()
        got = read(broker.address, "plain")
        counts = Counter(number for some in got for number in some)
        lost = len(set(plain.acknowledged) - counts.keys())
        twice = sum(count - 1 for count in counts.values())
        disorder = sum(later < earlier for some in got for earlier, later in pairwise(some))
        assert (lost, twice, disorder, counts.keys() <= set(range(plain.sent))) == (0, 0, 0, True)
        assert len(plain.acknowledged) > 100

        parts = [Counter(some) for some in read(broker.address, "tx")]
        committed = {number for number, commit in transactional.decided.items() if commit}
        aborted = transactional.decided.keys() - committed
        assert all(set(part.values()) <= {1} for part in parts)
        assert all(part.keys() == parts[0].keys() for part in parts)
        assert not committed - parts[0].keys()
        assert not parts[0].keys() & aborted
        assert parts[0].keys() <= committed | transactional.unknown
        assert len(committed) > 5
    finally:
        broker.close()
    recovery_ms = sorted(1e3 * one for one in broker.recovery_s)
    record_figures(
        "kill -9 of the broker under Kafka clients",
        kills=len(recovery_ms),
        acknowledged=len(plain.acknowledged),
        lost=lost,
        twice=twice,
        out_of_order=disorder,
        committed=len(committed),
        aborted=len(aborted),
        answer_lost=len(transactional.unknown),
        committed_lost=0,
        half_committed=0,
        aborted_seen=0,
        ready_again_p50_ms=round(recovery_ms[len(recovery_ms) // 2]),
    )
