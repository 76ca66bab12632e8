"""Topics read with kafka-python by name, without a group; one that finds nothing tells what its client knew.

``KafkaConsumer(topic)`` of kafka-python 3.0.12 asks for metadata twice as it begins: for no topic, then for its own. If
it comes to its topic while the first request is on its way, the answer to that clears the note that there is more to
ask: it has no partition, says nothing, and asks again after ``metadata_max_age_ms``, five minutes. It takes a process
that is busy for 100 ms; Apache Kafka's consumers of this kind wait just so (docs/reference/kafka.md#what-is-served).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
from kafka import KafkaConsumer

from lading.testing import BrokerProcess

METADATA_MAX_AGE_MS = 1000
"""So long a subscription may be forgotten."""
TIMEOUT_MS = 60_000


@contextmanager
def subscribed(broker: BrokerProcess, topic: str, **options: Any) -> Iterator[KafkaConsumer]:
    """A consumer of a topic from its first message on."""
    how = {"metadata_max_age_ms": METADATA_MAX_AGE_MS, "consumer_timeout_ms": TIMEOUT_MS, **options}
    consumer = KafkaConsumer(
        topic, bootstrap_servers=broker.endpoints["kafka"], auto_offset_reset="earliest", **how
    )  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


def next_record(broker: BrokerProcess, consumer: KafkaConsumer) -> Any:
    """The next record; AssertionError with what consumer and broker say of themselves if none comes."""
    try:
        return next(consumer)
    except StopIteration:
        raise AssertionError(f"no message came; {_describe(consumer)}; the broker: {_health(broker)}") from None


def _describe(consumer: KafkaConsumer) -> str:
    cluster = consumer._cluster
    positions = {str(place): state.position for place, state in consumer._subscription.assignment.items()}
    return (
        f"kafka-python: subscribed to {consumer.subscription()}, asks for {cluster._topics}, "
        f"knows {cluster._partitions}, wants to ask: {cluster.need_update}, positions {positions}, "
        f"asking: {cluster.metadata_refresh_in_progress}, fetching: {consumer._fetcher.in_flight_fetches()}, "
        f"connections {[str(one) for one in consumer._manager._conns.values()]}"
    )


def _health(broker: BrokerProcess) -> str:
    try:
        return httpx.get(f"http://{broker.endpoints['admin']}/health", timeout=10).text
    except httpx.HTTPError as error:
        return repr(error)
