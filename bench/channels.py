"""Channels: what a message costs from the log to a subscriber and finished, without sockets, stored as NSQ stores it.

Windows of 2500 (RDY) with the answers in bursts, but ``one by one``. ``tags``: half of the messages are for one of two
subscribers by their tag. The floor is a memcpy of the stored bytes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bench.measure import rounds
from lading.broker.broker import Broker
from lading.broker.channels import Channel, Delivery, Subscriber
from lading.broker.core.append.append import WriteResult
from lading.broker.core.settings import BrokerSettings
from lading.dialects import registry
from lading.kernels import engine
from lading.log.group_commit import WriteOnly
from lading.model.batch import SCHEMA

QUESTION = "channels: ns a message, from the log to a subscriber and finished; 100 B + 3 headers, durability os"
NOW_US = 1_700_000_000_000_000
BATCH = 1000
WINDOW = 2500


def run(quick: bool) -> list[dict[str, Any]]:
    """One row a case."""
    messages = 100_000 if quick else 1_000_000
    count = 3 if quick else 5
    rooms = ("broker.channels.kernels", "dialects.nsq.survey_kernels", "dialects.nsq.delivery_kernels")
    for home in (f"lading.{room}" for room in rooms):
        engine.load(home)
    with tempfile.TemporaryDirectory(prefix="lading-bench-") as directory:
        broker = _filled(Path(directory), messages)
        stored = broker.topology.topic("default", "t").size_bytes
        few = messages // 50
        cases = [
            ("1 subscriber", _case(broker, [""], WINDOW, messages), messages),
            ("4 subscribers", _case(broker, [""] * 4, WINDOW, messages), messages),
            ("tags, 2 subscribers", _case(broker, ["A", ""], WINDOW, messages), messages),
            ("one by one", _case(broker, [""], 1, few), few),
        ]
        floor_ns = _memcpy_s(stored, count) / messages * 1e9
        rows = []
        for name, case, size in cases:
            took_ns = rounds(case, count) / size * 1e9
            rows.append(
                {
                    "case": name,
                    "ns a message": round(took_ns, 1),
                    "M messages/s": round(1e3 / took_ns, 2),
                    "÷ memcpy": round(took_ns / floor_ns, 1),
                }
            )
        broker.stop()
    return rows


def _memcpy_s(size_bytes: int, count: int) -> float:
    source = np.ones(size_bytes, np.uint8)
    target = np.empty_like(source)
    return rounds(lambda: np.copyto(target, source), count)


def _filled(directory: Path, messages: int) -> Broker:
    """A broker whose one partition holds ``messages``; every second one has the tag ``A``."""
    broker = Broker.open(directory, BrokerSettings(), now_us=NOW_US, commit=WriteOnly())
    broker.at_once.create_stream(None, "default", now_us=NOW_US)
    partition = broker.at_once.create_topic("default", None, "t", 1, now_us=NOW_US).partition(0)
    nsq: Any = registry.dialect("nsq")
    for base in range(0, messages, BATCH):
        body = np.frombuffer(nsq.encode(_batch(base)), np.uint8)

        def write(array: NDArray[np.uint8], at: int, base_offset: int, body: NDArray[np.uint8] = body) -> WriteResult:
            array[at : at + len(body)] = body
            return WriteResult(len(body), BATCH, NOW_US, NOW_US)

        broker.appender.append(partition, nsq.code, 0, len(body), write)
    broker.appender.flush()
    broker.commit.complete()
    return broker


def _batch(base: int) -> pa.RecordBatch:
    texts = (("carrier", b"UA"), ("delay", b"12"))
    headers = [[*texts, ("##client_dispatch_tag", tag)] for tag in (b"A", b"B")]
    entries = [[{"key": key, "kind": 2, "value": value} for key, value in some] for some in headers]
    rows = [
        {"offset": base + at, "state": 1, "timestamp": NOW_US, "headers": entries[at % 2], "payload": bytes(100)}
        for at in range(BATCH)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _case(broker: Broker, tags: list[str], window: int, messages: int) -> Callable[[], None]:
    """The last ``messages`` through a channel of its own."""
    topic = broker.topology.topic("default", "t")

    def once() -> None:
        channel = broker.channels.open(topic, "c#ephemeral")
        channel.seek(0, topic.partition(0).log.last_stable_offset - messages)
        got: list[tuple[Subscriber, Delivery]] = []
        subscribers: list[Subscriber] = []
        for tag in tags:

            def take(delivery: Delivery, at: int = len(subscribers)) -> None:
                got.append((subscribers[at], delivery))

            subscribers.append(Subscriber(take, tag=tag))
            channel.subscribe(subscribers[-1])
            subscribers[-1].set_ready(window)
        finished = _drain(broker, channel, got)
        if finished != messages:
            raise AssertionError(f"{finished} messages were finished, not {messages}")
        for one in subscribers:
            channel.leave(one)

    return once


def _drain(broker: Broker, channel: Channel, got: list[tuple[Subscriber, Delivery]]) -> int:
    """Pump and finish until nothing comes any more; how many messages were finished."""
    finished = 0
    now_us = NOW_US
    while True:
        due_us = broker.channels.pump(now_us)
        if not got:
            if due_us is None:
                return finished
            now_us = due_us
        for subscriber, delivery in got:
            finished += channel.finish(subscriber, 0, delivery.offsets)
        got.clear()
