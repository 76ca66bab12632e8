"""Topics created, changed and deleted on the console's pages, as the broker's other clients see them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from lading import Producer, testing
from lading.transports.lading.transport import LadingTransport
from lading.transports.topics import UnknownTopic

from .conftest import TestClient


@pytest.fixture
def admin(broker: testing.BrokerProcess) -> Iterator[LadingTransport]:
    with closing(LadingTransport(broker.url)) as transport:
        yield transport


def change(page: TestClient, name: str, **document: Any) -> tuple[int, dict[str, Any]]:
    answer = page.post(f"/api/topic/{name}", json=document)
    return answer.status_code, answer.json()


def test_a_topic_has_the_partitions_and_settings_that_were_typed(page: TestClient, admin: LadingTransport) -> None:
    made = change(page, "create", topic="air.made", partitions=3, settings=["retention_age_us=7d"])
    assert made == (200, {"topic": "air.made", "partitions": 3})
    meta = admin.topic("air.made")
    assert (len(meta.partitions), meta.settings["retention_age_us"]) == (3, 7 * 86_400 * 1_000_000)
    status, changed = change(page, "settings", topic="air.made", settings=["retention_age_us=", "hide_states=true"])
    assert (status, changed["settings"].get("retention_age_us"), changed["settings"]["hide_states"]) == (
        200,
        None,
        True,
    )


def test_a_deleted_topic_is_gone_with_its_messages(
    page: TestClient, broker: testing.BrokerProcess, admin: LadingTransport
) -> None:
    with Producer(broker.url) as producer:
        producer.send("short-lived", b"x")
    assert change(page, "delete", topic="short-lived") == (200, {"deleted": "short-lived"})
    with pytest.raises(UnknownTopic):
        admin.topic("short-lived")


def test_an_emptied_topic_is_there_without_its_messages(
    page: TestClient, broker: testing.BrokerProcess, admin: LadingTransport
) -> None:
    with Producer(broker.url) as producer:
        producer.send("emptied", b"x")
    assert change(page, "empty", topic="emptied") == (200, {"emptied": "emptied", "deleted": 1})
    (part,) = admin.topic("emptied").partitions
    assert (part.first_offset, part.end_offset) == (1, 1)


@pytest.mark.parametrize(
    ("name", "document", "words"),
    [
        ("create", {"topic": "flights"}, "already"),
        ("create", {"topic": "none", "partitions": 0}, "1 to 100,000"),
        ("create", {"topic": "none", "partitions": True}, "int"),
        ("create", {"topic": "none", "settings": ["retention_age_us=7"]}, "unit"),
        ("create", {"topic": "none", "settings": ["no_such=1"]}, "no_such"),
        ("create", {"topic": "none", "settings": [7]}, "KEY=VALUE"),
        ("settings", {"topic": "flights"}, "settings"),
        ("settings", {"topic": "none", "settings": ["hide_states=true"]}, "none"),
        ("delete", {"topic": "none"}, "none"),
        ("delete", {}, "topic"),
        ("empty", {"topic": "none"}, "none"),
    ],
)
def test_what_cannot_be_changed_is_refused_in_a_sentence(
    page: TestClient, admin: LadingTransport, name: str, document: dict[str, Any], words: str
) -> None:
    status, told = change(page, name, **document)
    assert (status, words in told["error"]) == (400, True), told
    with pytest.raises(UnknownTopic):
        admin.topic("none")
