"""The Kafka face beside Apache Kafka, under the same librdkafka clients, by turns in one run.

kcat sends and reads (librdkafka without Python around each message): what it can do bounds the rates, so CPU seconds
stand beside them. Latency is what confluent-kafka sees from ``produce`` to the delivery report at 1,000 messages/s.
"Synced" is our default durability against topics with ``flush.messages=1``; otherwise neither side syncs.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from bench.measure import anonymous_mb, kernels_loaded, median, threads_cpu_s
from lading import testing
from tests.interop import kafka_broker

QUESTION = "Kafka clients on our broker ÷ on Apache Kafka 4: librdkafka, 100 B + 3 headers, 4 partitions"
MESSAGES = 1_000_000
ROUNDS = 5
PARTITIONS = 4
CODECS = ("none", "lz4")
RATE_PER_S = 1000
LATENCY_S = 5
HEADERS = ["-H", "carrier=UA", "-H", "trace=0123456789abcdef", "-H", "delay=12345"]
_numbers = count(1)


@dataclass
class KafkaSide:
    """A broker and what was seen of it."""

    name: str
    address: str
    pid: int
    start_s: float
    config: dict[str, str]
    client: dict[str, str] = field(default_factory=dict)
    """Settings of librdkafka to reach it."""
    rates: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    cpu: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)

    def forget(self) -> None:
        """Begin again with the figures."""
        for figures in (self.rates, self.cpu, self.p50_us, self.p99_us):
            figures.clear()


def run(quick: bool) -> list[dict[str, Any]]:
    """Rows: durability, what, codec, figures of both sides, their ratio and CPU seconds per million; median of 5."""
    if shutil.which("kcat") is None:
        print("not measured: kcat is not installed (apt-get install kcat)", file=sys.stderr)
        return []
    messages, rounds = (MESSAGES // 10, 1) if quick else (MESSAGES, ROUNDS)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as directory:
        lines = write_lines(Path(directory) / "lines", messages)
        try:
            for synced in (False, True):
                with _sides(Path(directory) / f"synced-{synced}", synced=synced) as sides:
                    for number in range(rounds + 1):
                        if number == 1:  # what a JVM does in its first round is not what it does
                            for side in sides:
                                side.forget()
                        # what one leaves behind (pages to write, a collector at work) is not always the other's burden
                        turns = sides if number % 2 else sides[::-1]
                        for codec in CODECS:
                            for side in turns:
                                drive(side, codec, lines, messages)
                        for side in turns:
                            measure_latency(side)
                    rows += _rows(sides, synced=synced)
        except kafka_broker.Unavailable as missing:
            print(f"not measured: {missing}", file=sys.stderr)
    return rows


def write_lines(path: Path, count: int) -> Path:
    """Write one payload of 100 bytes a line: letters that lz4 finds something in, as in a row of text."""
    path.write_text("".join(f"{number:010d},{'EWR,IAH,UA,1545,N14228,' * 4}"[:100] + "\n" for number in range(count)))
    return path


@contextmanager
def _sides(directory: Path, *, synced: bool) -> Iterator[tuple[KafkaSide, KafkaSide]]:
    with ExitStack() as stack:
        begun = time.perf_counter()
        ours = stack.enter_context(testing.broker(durability="fsync" if synced else "os"))
        ready = time.perf_counter()
        theirs = stack.enter_context(kafka_broker.running(directory))
        started = time.perf_counter()
        kernels_loaded(ours)
        flush = {"flush.messages": "1"} if synced else {}
        yield (
            KafkaSide("lading", ours.endpoints["kafka"], ours.pid, ready - begun, {}),
            KafkaSide("kafka", theirs.address, theirs.pid, started - ready, flush),
        )


def _topic(side: KafkaSide) -> str:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    name = f"bench-{next(_numbers)}"
    topic = NewTopic(name, PARTITIONS, 1, config=side.config)
    admin = AdminClient({"bootstrap.servers": side.address, **side.client})
    admin.create_topics([topic])[name].result(20)
    return name


def drive(side: KafkaSide, codec: str, lines: Path, messages: int) -> None:
    """Produce and consume all lines once on a new topic; rates and CPU go into ``side``."""
    topic = _topic(side)
    common = ["kcat", "-b", side.address, "-q", *(f"-X{name}={value}" for name, value in side.client.items())]
    send = ["-P", "-t", topic, *HEADERS, "-z", codec, "-X", "linger.ms=5", "-X", "batch.size=1000000"]
    send += ["-X", "queue.buffering.max.messages=1000000", "-X", "acks=all", "-l", str(lines)]
    # by count: at the end of a topic the client would wait half a second for more, as long as all the reading takes
    read = ["-C", "-t", topic, "-o", "beginning", "-c", str(messages), "-f", "%o\\n"]
    read += ["-X", "queued.min.messages=10000000"]
    for what, arguments in (("produce", send), ("consume", read)):
        wall_s, broker_s = time.perf_counter(), threads_cpu_s(side.pid)
        done = subprocess.run([*common, *arguments], stdout=subprocess.PIPE, check=True, timeout=300)
        wall_s, broker_s = time.perf_counter() - wall_s, threads_cpu_s(side.pid) - broker_s
        if what == "consume" and done.stdout.count(b"\n") != messages:
            raise RuntimeError(f"{side.name}: {done.stdout.count(bytes([10]))} of {messages} messages were read")
        side.rates.setdefault((what, codec), []).append(messages / wall_s)
        side.cpu.setdefault((what, codec), []).append(broker_s / messages * 1e6)


def measure_latency(side: KafkaSide) -> None:
    """Send at a steady rate for a while; the middle and the slowest of a hundred delivery reports go into ``side``."""
    from confluent_kafka import Producer

    topic = _topic(side)
    producer = Producer({"bootstrap.servers": side.address, "linger.ms": 0, "acks": "all", **side.client})
    taken_us: list[float] = []

    def reported(sent_s: float, *_: Any) -> None:
        taken_us.append((time.perf_counter() - sent_s) * 1e6)

    begun = time.perf_counter()
    for number in range(RATE_PER_S * LATENCY_S):
        due = begun + number / RATE_PER_S
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        headers: list[tuple[str, Any]] = [("carrier", b"UA"), ("trace", b"0123456789abcdef"), ("delay", b"12345")]
        report = partial(reported, time.perf_counter())
        producer.produce(topic, b"x" * 100, headers=headers, on_delivery=report)
    producer.flush(30)
    # the first second is connections and metadata
    taken_us = sorted(taken_us[RATE_PER_S:])
    side.p50_us.append(taken_us[len(taken_us) // 2])
    side.p99_us.append(taken_us[len(taken_us) * 99 // 100])


def _rows(sides: tuple[KafkaSide, KafkaSide], *, synced: bool) -> list[dict[str, Any]]:
    ours, theirs = sides
    rows = []

    def add(what: str, codec: str | None, mine: float, other: float, digits: int = 0) -> dict[str, Any]:
        facts = {"synced": synced, "what": what, "codec": codec}
        row = {**facts, "lading": round(mine, digits), "kafka": round(other, digits), "ratio": round(mine / other, 2)}
        rows.append(row)
        return row

    for what, codec in ours.rates:
        mine, other = (median(side.rates[what, codec]) / 1000 for side in sides)
        row = add(f"{what}, k messages/s", codec, mine, other)
        used = [median(side.cpu[what, codec]) for side in sides]
        row["broker CPU s/M"] = f"{used[0]:.2f} / {used[1]:.2f} = {used[0] / used[1]:.2f}"
    for codec in CODECS:
        mine, other = (sum(median(side.cpu[what, codec]) for what in ("produce", "consume")) for side in sides)
        add("broker CPU s/M, there and back", codec, mine, other, 2)
    add(f"p50 at {RATE_PER_S:,}/s, us", None, median(ours.p50_us), median(theirs.p50_us))
    add(f"p99 at {RATE_PER_S:,}/s, us", None, median(ours.p99_us), median(theirs.p99_us))
    add("anonymous memory, MB", None, anonymous_mb(ours.pid), anonymous_mb(theirs.pid))
    add("ready after start, s", None, ours.start_s, theirs.start_s, 2)
    return rows
