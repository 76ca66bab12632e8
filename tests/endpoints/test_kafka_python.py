"""kafka-python's lost subscription: forced by the order of its own steps, and found again by its setting."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from kafka.cluster import ClusterMetadata

import lading
from lading.testing import BrokerProcess
from tests.endpoints import kafka_python

ORDER_TIMEOUT_S = 20.0


class LostSubscription:
    """Has a consumer name its topic when the request for none is on its way, and its answer come after that."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[set[str]] = []
        """The topics of each metadata request."""
        self._is_sent, self._is_named = threading.Event(), threading.Event()
        self._request, self._name = ClusterMetadata.metadata_request, ClusterMetadata.set_topics
        self._update = ClusterMetadata.update_metadata
        monkeypatch.setattr(ClusterMetadata, "metadata_request", lambda cluster: self._on_request(cluster))
        monkeypatch.setattr(ClusterMetadata, "set_topics", lambda cluster, topics: self._on_name(cluster, topics))
        monkeypatch.setattr(
            ClusterMetadata, "update_metadata", lambda cluster, answer: self._on_answer(cluster, answer)
        )

    def _on_request(self, cluster: Any) -> Any:
        self.asked.append(set(cluster._topics))
        request = self._request(cluster)
        if len(self.asked) == 2:
            self._is_sent.set()
        return request

    def _on_name(self, cluster: Any, topics: Any) -> Any:
        assert self._is_sent.wait(ORDER_TIMEOUT_S), "kafka-python asks only once before it has a topic"
        try:
            return self._name(cluster, topics)
        finally:
            self._is_named.set()

    def _on_answer(self, cluster: Any, answer: Any) -> None:
        if len(self.asked) == 2:
            assert self._is_named.wait(ORDER_TIMEOUT_S)
        self._update(cluster, answer)


def test_a_lost_subscription_is_found_again(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with lading.Producer(broker.url) as producer:
        producer.send("lost-subscription", b"x")
    order = LostSubscription(monkeypatch)
    with kafka_python.subscribed(broker, "lost-subscription", consumer_timeout_ms=20_000) as consumer:
        assert kafka_python.next_record(broker, consumer).value == b"x"
    assert order.asked[:3] == [set(), set(), {"lost-subscription"}]


def test_what_a_consumer_says_that_finds_nothing(broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    with lading.Producer(broker.url) as producer:
        producer.send("never-found", b"x")
    LostSubscription(monkeypatch)
    never = {"metadata_max_age_ms": 300_000, "consumer_timeout_ms": 300}
    with (
        kafka_python.subscribed(broker, "never-found", **never) as consumer,
        pytest.raises(AssertionError, match=r"asks for \{'never-found'\}, knows \{\}, wants to ask: False") as said,
    ):
        kafka_python.next_record(broker, consumer)
    assert '"status"' in str(said.value)
