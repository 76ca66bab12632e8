"""Our coordinator answers as Apache Kafka's does: 131 right, wrong and late requests, recorded from version 4.3.1."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from lading.testing import broker
from tests.interop import coordinator, kafka_broker

RECORDED = Path(__file__).parents[1] / "vectors" / "kafka_coordinator.json"
TOPIC = "talk"


def said(address: str) -> list[list[Any]]:
    """The whole conversation with a broker that has never seen it."""
    admin_of = pytest.importorskip("confluent_kafka.admin")
    admin = admin_of.AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.create_topics([admin_of.NewTopic(TOPIC, 2, 1)])[TOPIC].result(20)
    until = time.monotonic() + 20
    while TOPIC not in admin.list_topics(timeout=5).topics:
        assert time.monotonic() < until
    return coordinator.converse(address, TOPIC, "1")


def differences(found: list[list[Any]]) -> list[Any]:
    """Steps that were answered otherwise than recorded."""
    recorded = json.loads(RECORDED.read_text())
    assert [step for step, *_ in found] == [step for step, *_ in recorded]
    return [(here, there) for here, there in zip(found, recorded, strict=True) if here != there]


def test_ours() -> None:
    with broker() as running:
        assert differences(said(running.endpoints["kafka"])) == []


@pytest.mark.interop
def test_apache_kafka(kafka: kafka_broker.RunningKafka) -> None:
    assert differences(said(kafka.address)) == []
