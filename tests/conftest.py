"""Fixtures every test room shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

# a JVM of a test lives for seconds: optimising what it runs costs more CPU than it ever saves
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

from lading import testing
from tests.interop import kafka_broker


@pytest.fixture(scope="session")
def full() -> bool:
    """Whether long suites run whole (``make test-full``) instead of as seeded samples."""
    return os.environ.get("LADING_TEST_FULL") == "1"


@pytest.fixture(scope="session")
def kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[kafka_broker.RunningKafka]:
    """One real Apache Kafka broker for all tests that ask for it; ours for those that ask for ``lading``.

    A module that holds both to the same answers says ``parametrize("kafka", ["apache", "lading"], indirect=True)``.
    """
    if getattr(request, "param", "apache") == "lading":
        quick = {"broker.member_session_min_ms": 1000}
        with testing.broker(data_dir=tmp_path_factory.mktemp("lading") / "data", settings=quick) as ours:
            yield kafka_broker.RunningKafka(ours.endpoints["kafka"], ours.pid)
        return
    try:
        with kafka_broker.running(tmp_path_factory.mktemp("kafka")) as broker:
            yield broker
    except kafka_broker.Unavailable as reason:
        pytest.skip(str(reason))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that start Spark first: few tests, minutes long, at the end they would keep one process waiting."""
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
