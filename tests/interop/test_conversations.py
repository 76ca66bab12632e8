"""Ours answers as Apache Kafka does: some 200 right, wrong and late requests, recorded from version 4.3.1.

``coordinator``: groups, numbered batches and transactions; ``administration``: what tools ask.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lading.testing import BrokerProcess, broker
from tests.interop import administration, coordinator, kafka_broker
from tests.interop.kafka_clients import admin_of, wait_until_known

VECTORS = Path(__file__).parents[1] / "vectors"
TOPIC = "talk"

Converse = Callable[[str, str, str], list[list[Any]]]
both = pytest.mark.parametrize(
    ("topic", "converse"),
    [(TOPIC, coordinator.converse), (f"{TOPIC}-administration", administration.converse)],
    ids=["coordinator", "administration"],
)


@pytest.fixture(scope="module")
def ours() -> Iterator[BrokerProcess]:
    """Our broker, which has never seen any of it."""
    with broker() as running:
        yield running


def said(address: str, topic: str, converse: Converse) -> list[list[Any]]:
    """The whole conversation with a broker that has never seen it."""
    admin = admin_of.AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.create_topics([admin_of.NewTopic(topic, 2, 1)])[topic].result(20)
    wait_until_known(admin, topic)
    return converse(address, topic, "1" if topic == TOPIC else "-administration")


def differences(found: list[list[Any]], converse: Converse) -> list[Any]:
    """Steps that were answered otherwise than recorded."""
    recorded = json.loads((VECTORS / f"kafka_{converse.__module__.rsplit('.', 1)[1]}.json").read_text())
    assert [step for step, *_ in found] == [step for step, *_ in recorded]
    return [(here, there) for here, there in zip(found, recorded, strict=True) if here != there]


@pytest.mark.turns(2)
@both
def test_ours(ours: BrokerProcess, topic: str, converse: Converse) -> None:
    assert differences(said(ours.endpoints["kafka"], topic, converse), converse) == []


@pytest.mark.interop
@both
def test_apache_kafka(kafka: kafka_broker.RunningKafka, topic: str, converse: Converse) -> None:
    assert differences(said(kafka.address, topic, converse), converse) == []
