"""System calls of the broker on its files fail, one a run: what it acknowledged is there after a restart, once.

A library that stands before libc (failing_calls.c, compiled here) has the n-th call of a name fail with EIO or ENOSPC,
or write half of the bytes. A first run without a fault lists the calls that there are: each with each error is a point,
and one that its run meets counts (632 on 26 November 2026). The long suites take POINTS of them by a seed, at 2.5 s
each; LADING_TEST_CALLS=2000 takes all.
"""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest

import lading
from lading import testing
from lading.model.errors import LadingError, LocalError
from tests.endpoints.frames import Frames, message, to_partition

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

SOURCE = Path(__file__).with_name("failing_calls.c")
PLACE = b"\1\4" + struct.pack("<I", 1) + b"\1\4" + struct.pack("<I", 1)
HALF = 0
POINTS = 100
ERRORS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "half": HALF}
GROUP, KAFKA, IGGY = "g", "kafka", "failing.iggy"


class Fault(NamedTuple):
    """The ``number``-th call of ``name``, from 1, and what becomes of it: an errno, or HALF."""

    name: str
    number: int
    error: int


@dataclass(slots=True)
class Told:
    """What clients sent, what they were told of it, and the position that was confirmed last."""

    sent: dict[str, list[bytes]] = field(default_factory=lambda: {IGGY: [], KAFKA: []})
    acknowledged: dict[str, list[bytes]] = field(default_factory=lambda: {IGGY: [], KAFKA: []})
    position: int | None = None
    positions_sent: list[int] = field(default_factory=list)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library; skips where no compiler is."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    path = tmp_path_factory.mktemp("failing") / "failing_calls.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", path, SOURCE, "-ldl"], check=True, timeout=60)
    return path


def send_iggy(broker: testing.BrokerProcess, told: Told) -> None:
    """Send twelve messages in four requests; a request that fails is not sent again."""
    frames = Frames(broker.endpoints["iggy_tcp"])
    try:
        frames.ask(202, struct.pack("<I", 1) + b"failing")
        frames.ask(302, b"\1\4" + struct.pack("<III", 1, 1, 1) + b"iggy")
        for first in range(0, 12, 3):
            bodies = [b"iggy-%d" % number for number in range(first, first + 3)]
            told.sent[IGGY] += bodies
            status, _ = frames.ask(101, PLACE + to_partition(1) + b"".join(map(message, bodies)))
            if status == 0:
                told.acknowledged[IGGY] += bodies
    finally:
        frames.close()


def send_kafka(broker: testing.BrokerProcess, told: Told) -> None:
    """Send twelve messages by an idempotent producer, which sends again, and commit two positions."""
    address = {"bootstrap.servers": broker.endpoints["kafka"], "log_level": 0, "error_cb": lambda error: None}
    limits = {"delivery.timeout.ms": 3000, "request.timeout.ms": 1000, "retry.backoff.ms": 20}
    producer = confluent.Producer({**address, **limits, "enable.idempotence": True})

    def on_delivery(body: bytes) -> Callable[[Any, Any], None]:
        return lambda error, _: None if error else told.acknowledged[KAFKA].append(body)

    for number in range(12):
        body = b"kafka-%d" % number
        told.sent[KAFKA].append(body)
        producer.produce(KAFKA, body, on_delivery=on_delivery(body))
        if number % 4 == 3:
            producer.flush(4)
    producer.purge()
    producer.flush(1)
    consumer = confluent.Consumer({**address, "group.id": GROUP})
    try:
        for position in (3, 7):
            told.positions_sent.append(position)
            place = confluent.TopicPartition(KAFKA, 0, position)
            committed = consumer.commit(offsets=[place], asynchronous=False)
            if not any(each.error for each in committed):
                told.position = position
    except confluent.KafkaException:
        pass  # refused, which is an answer
    finally:
        consumer.close()


def run(home: Path, library: Path, fault: Fault | None, patch: pytest.MonkeyPatch) -> tuple[Told, list[list[str]]]:
    """Have one broker meet the fault; returns what clients were told and the calls on its files."""
    told, log = Told(), home / "calls.log"
    with patch.context() as environment:
        environment.setenv("LD_PRELOAD", str(library))
        environment.setenv("FAILING_UNDER", str(home / "data"))
        environment.setenv("FAILING_LOG", str(log))
        if fault is not None:
            environment.setenv("FAILING_CALL", f"{fault.name}:{fault.number}:{fault.error}")
        try:
            with testing.broker(home / "data", log__segment_bytes=200_000, timeout_s=20) as broker:
                for send in (send_iggy, send_kafka):
                    # the broker may end itself; what it had confirmed counts
                    with suppress(ConnectionError, TimeoutError, confluent.KafkaException):
                        send(broker, told)
        except LocalError:
            pass  # refused to start, or said at its end what it could not write
    calls = [line.split(" ", 3) for line in log.read_text().splitlines()] if log.exists() else []
    return told, calls


def compare(home: Path, told: Told) -> tuple[int, int]:
    """Start again without a fault; returns how much is lost and how much is doubled or was never sent."""
    lost = doubled = 0
    with testing.broker(home / "data") as broker:
        for topic, sent in told.sent.items():
            found: Counter[bytes | None] = Counter()
            # the topic itself was refused, or what was acknowledged cannot be read and counts as lost
            with suppress(LadingError):
                found.update(lading.read_arrow(broker.url, topic, columns="payload").column("payload").to_pylist())
            lost += sum(found[body] == 0 for body in told.acknowledged[topic])
            doubled += sum(count - int(body in sent) for body, count in found.items())
        if told.position is not None:
            consumer = confluent.Consumer({"bootstrap.servers": broker.endpoints["kafka"], "group.id": GROUP})
            (place,) = consumer.committed([confluent.TopicPartition(KAFKA, 0)], 10)
            consumer.close()
            lost += place.offset not in told.positions_sent or place.offset < told.position
    return lost, doubled


@pytest.mark.timeout(120)
@pytest.mark.turns(2, part=0)
def test_a_disk_that_lies_is_found_out(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch, record_figures: Callable[..., None]
) -> None:
    """The check of this page sees what is lost: nothing without a fault, each message whose write was only claimed."""
    honest, lying = tmp_path / "honest", tmp_path / "lying"
    for home in (honest, lying):
        home.mkdir()
    told, _ = run(honest, library, None, monkeypatch)
    assert told.sent == told.acknowledged and compare(honest, told) == (0, 0)
    with monkeypatch.context() as environment:
        environment.setenv("FAILING_LIE", ".log")
        told, _ = run(lying, library, None, monkeypatch)
    acknowledged = sum(map(len, told.acknowledged.values()))
    lost, doubled = compare(lying, told)
    record_figures("a disk that claims its writes", acknowledged=acknowledged, lost=lost, doubled=doubled)
    assert acknowledged and (lost, doubled) == (acknowledged, 0)


def faults_of(calls: list[list[str]]) -> list[Fault]:
    """Every call that there was, with every error that it can meet."""
    counts = Counter(name for name, *_ in calls)
    return [
        Fault(name, number, error)
        for name, count in sorted(counts.items())
        for number, error in itertools.product(range(1, count + 1), ERRORS.values())
        if error != HALF or "write" in name
    ]


@pytest.mark.timeout(7200)
def test_what_was_acknowledged_survives_each_failing_call(
    tmp_path: Path,
    library: Path,
    full: bool,
    monkeypatch: pytest.MonkeyPatch,
    record_figures: Callable[..., None],
) -> None:
    if not full:
        pytest.skip("two starts of a broker a call; set LADING_TEST_FULL=1")
    home = tmp_path / "without"
    home.mkdir()
    told, calls = run(home, library, None, monkeypatch)
    assert told.sent == told.acknowledged and told.position == 7
    assert compare(home, told) == (0, 0)
    faults = faults_of(calls)
    sample = int(os.environ.get("LADING_TEST_CALLS", POINTS))
    met = 0
    wrong: dict[Fault, tuple[int, int, str]] = {}
    for fault in Random(16).sample(faults, min(sample, len(faults))):
        home = tmp_path / "-".join(map(str, fault))
        home.mkdir()
        told, calls = run(home, library, fault, monkeypatch)
        hit = [path for _, _, is_hit, path in calls if is_hit == "1"]
        met += len(hit)
        result = compare(home, told)
        if result != (0, 0):
            wrong[fault] = (*result, "".join(hit))
        shutil.rmtree(home)
    lost, doubled = sum(bad[0] for bad in wrong.values()), sum(bad[1] for bad in wrong.values())
    record_figures("failing system calls", points=met, lost=lost, doubled=doubled)
    assert met and not wrong, wrong
