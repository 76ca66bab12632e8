"""A plain Kafka client in the demo: it sends flights of its own, and reads one that an Iggy client sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from ..model.errors import LocalError
from ..model.kinds import decode_value

TIMEOUT_MS = 60_000
"""A busy machine took more than ten seconds for the first message, with a hundred thousand before it in flight."""
SHARE, MOST = 20, 3_000
"""The Kafka client sends one flight in SHARE, at most MOST: it sends one message at a time."""


def share(flights: int) -> int:
    """Return how many of the flights the Kafka client sends."""
    return min(-(-flights // SHARE), MOST)


def send(address: str, topic: str, batch: pa.RecordBatch) -> None:
    """Send messages with kafka-python, their headers as text, and wait until all are acknowledged."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=address, acks="all", linger_ms=5, max_block_ms=TIMEOUT_MS)
    try:
        waiting = [producer.send(topic, payload, headers=headers) for headers, payload in _as_text(batch)]
        for future in waiting:
            future.get(TIMEOUT_MS / 1000)
    finally:
        producer.close()


def first(address: str, topic: str, timeout_ms: int = TIMEOUT_MS) -> list[tuple[str, bytes | None]]:
    """Return the headers of the first message of the topic, as kafka-python reads them.

    Raises LocalError if none arrives in time.
    """
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=address, auto_offset_reset="earliest", enable_auto_commit=False,
        consumer_timeout_ms=timeout_ms,
    )  # fmt: skip
    try:
        consumer.assign([TopicPartition(topic, 0)])
        record = next(iter(consumer), None)
        if record is None:
            raise LocalError(
                f"kafka://{address}: no message of {topic!r} arrived in {timeout_ms / 1000:g} s, "
                "as if the machine were very busy; try lading demo again"
            )
        return list(record.headers)
    finally:
        consumer.close()


def _as_text(batch: pa.RecordBatch) -> Iterator[tuple[list[tuple[str, bytes]], bytes]]:
    """Yield headers as Kafka clients write them; kafka-python cannot write nulls."""
    for message in batch.to_pylist():
        held: list[Any] = message["headers"]
        yield (
            [
                (header["key"], str(decode_value(header["kind"], header["value"])).encode())
                for header in held
                if header["value"] is not None
            ],
            message["payload"],
        )
