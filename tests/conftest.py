"""Fixtures every test room shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# a JVM of a test lives for seconds: optimising what it runs costs more CPU than it ever saves
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from tests.interop import kafka_broker


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether long suites run whole (``make test-full``) instead of as seeded samples."""
    return os.environ.get("LADING_TEST_FULL") == "1"


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka_broker.RunningKafka]:
    """One real Apache Kafka broker for all tests that ask for it."""
    try:
        with kafka_broker.running(tmp_path_factory.mktemp("kafka")) as broker:
            yield broker
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))
