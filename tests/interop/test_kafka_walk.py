"""Every API and version, the same bytes to Apache Kafka and to Lading: a table has what differs, with its reason."""

from __future__ import annotations

import os

import pytest

from lading import testing
from lading.dialects.kafka.versions import (
    GET_TELEMETRY_SUBSCRIPTIONS,
    PUSH_TELEMETRY,
    SASL_AUTHENTICATE,
    SERVED,
)
from tests.interop import kafka_broker, kafka_walk

ELSEWHERE = {
    SASL_AUTHENTICATE: "needs a listener with logins: tests/interop/test_login_clients.py",
    GET_TELEMETRY_SUBSCRIPTIONS: "Kafka has it with a plugin alone: tests/endpoints/test_kafka_client_metrics.py",
    PUSH_TELEMETRY: "Kafka has it with a plugin alone: tests/endpoints/test_kafka_client_metrics.py",
}
SHARE_GROUPS = frozenset({76, 77, 78, 79, 90, 91, 92})
"""Walked by their own tests."""


@pytest.mark.interop
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_each_api_and_version_responds_as_apache_kafka(kafka: kafka_broker.RunningKafka) -> None:
    prefix = f"walk{os.getpid()}"
    with testing.broker() as ours:
        found = kafka_walk.compare(
            kafka_walk.open_world(ours.endpoints["kafka"], prefix), kafka_walk.open_world(kafka.address, prefix)
        )
    unexplained = [row for row in found if (row.api, row.step, row.field) not in kafka_walk.DIFFERENCES]
    assert not unexplained, "\n".join(map(str, unexplained))
    # a reason without its difference is out of date
    assert {(row.api, row.step, row.field) for row in found} == set(kafka_walk.DIFFERENCES)


def test_each_api_that_is_served_is_walked() -> None:
    walked = {step.key for step in kafka_walk.STEPS}
    assert walked | ELSEWHERE.keys() | SHARE_GROUPS >= SERVED.keys()
