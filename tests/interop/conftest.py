"""Fixtures of several files that test gateways over a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lading import testing
from lading.testing import BrokerProcess
from tests.interop.kafka_broker import RunningKafka


@pytest.fixture(scope="module")
def gateways(kafka: RunningKafka) -> Iterator[list[BrokerProcess]]:
    """Two, on one cluster."""
    with testing.broker(settings={"store": kafka.url}) as one, testing.broker(settings={"store": kafka.url}) as other:
        yield [one, other]
