"""A cluster whose quota is exhausted: it responds at once, without messages, and reads the connection again later.

So does Apache Kafka 4.3.1 with ``consumer_byte_rate`` and ``producer_byte_rate`` (KIP-219).
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest

from lading.dialects.kafka.commands import FetchResponse, parse_fetch
from lading.testing import BrokerProcess
from lading.testing.network_faults import FaultyProxy
from lading.transports.kafka.socket import KafkaSecurity, KafkaSocket
from lading.transports.open import open_transport
from tests.transports.test_kafka_unsure import make_batch

# kafka.protocol reads its schemas in a way that importlib.resources wants no more
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_response_without_messages_says_for_how_long() -> None:
    from kafka.protocol.consumer import FetchResponse as Answer

    from lading.dialects.kafka.commands import FETCH_VERSION

    answer = Answer(version=FETCH_VERSION, throttle_time_ms=1500, error_code=0, session_id=0, responses=[])
    answer.with_header(correlation_id=5)
    found = parse_fetch(memoryview(answer.encode(header=True)))
    assert (found.error, found.throttle_ms, found.start == found.end) == (0, 1500, True)


def test_a_reader_does_not_take_an_exhausted_quota_for_the_end(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Readers of a gateway saw the end of the partition where the quota ended."""
    receive, responses = KafkaSocket.receive_fetch, 0

    def throttle_first(socket: KafkaSocket, wait_ms: int) -> Any:
        nonlocal responses
        found = receive(socket, wait_ms)
        responses += 1
        return found if responses > 1 else (FetchResponse(0, -1, -1, -1, (), 0, 0, 20), np.zeros(1, np.uint8))

    with closing(open_transport(f"kafka://{broker.endpoints['kafka']}")) as transport:
        transport.create_topic("quota")
        transport.send("quota", 0, make_batch(1))
        monkeypatch.setattr(KafkaSocket, "receive_fetch", throttle_first)
        found = transport.fetch("quota", 0, 0)
    assert (len(found.runs), found.end_offset, responses) == (1, 1, 2)


def test_an_exhausted_quota_explains_silence(broker: BrokerProcess) -> None:
    with FaultyProxy() as proxy:
        proxy.start(broker.endpoints["kafka"])
        host, _, port = proxy.address.rpartition(":")
        connection = KafkaSocket(host, int(port), KafkaSecurity(), 0.3)
        try:
            connection.ask("Metadata", topics=[], allow_auto_topic_creation=False)
            with proxy.delaying(0.6):
                connection._note_throttle(1000)
                connection.ask("Metadata", topics=[], allow_auto_topic_creation=False)
            connection._note_throttle(0)
            connection._unread_until_s = 0.0
            with proxy.delaying(2.0), pytest.raises(TimeoutError):
                connection.ask("Metadata", topics=[], allow_auto_topic_creation=False)
        finally:
            connection.close()
