"""Groups on the console's pages: what Kafka's, NSQ's and Lading's clients left, moved and deleted there."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from lading import Consumer, testing

from .conftest import TestClient


def kafka(broker: testing.BrokerProcess, group: str) -> KafkaConsumer:
    return KafkaConsumer({"bootstrap.servers": broker.endpoints["kafka"], "group.id": group})


def commit(broker: testing.BrokerProcess, offsets: list[int], group: str = "shop") -> None:
    client = kafka(broker, group)
    places = [TopicPartition("read", number, offset) for number, offset in enumerate(offsets)]
    client.commit(offsets=places, asynchronous=False)
    client.close()


def committed(broker: testing.BrokerProcess, group: str = "shop") -> list[int]:
    """Return what Kafka's client is told of the group."""
    client = kafka(broker, group)
    found = client.committed([TopicPartition("read", number) for number in (0, 1)], 10)
    client.close()
    return [one.offset for one in found]


def change(page: TestClient, path: str, **document: Any) -> Any:
    answer = page.post(path, json={"protocol": "kafka", "group": "shop", **document})
    return answer.json() | {"status": answer.status_code}


def test_the_list_has_the_lag_and_can_be_searched(page: TestClient, broker: testing.BrokerProcess, read: str) -> None:
    commit(broker, [3, 1])
    found = page.get("/api/groups", params={"q": "SHO"}).json()
    assert [(row["protocol"], row["group"], row["lag"]) for row in found["groups"]] == [("kafka", "shop", 2)]
    assert found["found"] == 1 <= found["total"]
    assert page.get("/api/groups", params={"q": "no such"}).json()["groups"] == []


def test_one_group_has_its_positions_and_members(page: TestClient, broker: testing.BrokerProcess, read: str) -> None:
    commit(broker, [3, 1])
    found = page.get("/api/group", params={"protocol": "kafka", "group": "shop"}).json()
    rows = [(row["topic"], row["partition"], row["position"], row["end"], row["lag"]) for row in found["partitions"]]
    assert rows == [("read", 0, 3, 4, 1), ("read", 1, 1, 2, 1)]
    assert (found["topics"], found["partitions_count"], found["members"], found["lag"]) == (["read"], 2, [], 2)
    assert found["samples"][-1][1] == 2
    missing = page.get("/api/group", params={"protocol": "kafka", "group": "nobody"})
    assert (missing.status_code, "nobody" in missing.json()["error"]) == (400, True)


@pytest.mark.parametrize(
    ("how", "expected"),
    [({"to": "earliest"}, [0, 0]), ({"to": "latest"}, [4, 2]), ({"to": "2"}, [2, 2]), ({"to": "-1"}, [3, 1]),
     ({"shift": -2}, [1, 0]), ({"shift": 100}, [4, 2]), ({"to": "2999-01-01"}, [4, 2])],
)  # fmt: skip
def test_a_group_is_moved_after_a_dry_run(
    page: TestClient, broker: testing.BrokerProcess, read: str, how: dict[str, Any], expected: list[int]
) -> None:
    commit(broker, [3, 1])
    would = change(page, "/api/group/reset", **how)
    assert ([row["new_position"] for row in would["partitions"]], would["dry_run"]) == (expected, True)
    assert committed(broker) == [3, 1]
    assert change(page, "/api/group/reset", **how, dry_run=False)["status"] == 200
    assert committed(broker) == expected


def test_what_cannot_be_moved_is_refused_in_a_sentence(
    page: TestClient, broker: testing.BrokerProcess, read: str
) -> None:
    commit(broker, [3, 1])
    for how, words in (
        ({}, "say where the group goes on"),
        ({"to": "latest", "shift": 1}, "say where the group goes on"),
        ({"to": "yesterdayish"}, "yesterdayish"),
        ({"to": "latest", "topics": ["no-such-topic"]}, "no-such-topic"),
        ({"to": "latest", "topics": [7]}, "not a text"),
        ({"to": "latest", "group": "nobody"}, "nobody"),
    ):
        refused = change(page, "/api/group/reset", dry_run=False, **how)
        assert (refused["status"], words in refused["error"]) == (400, True), refused
    assert committed(broker) == [3, 1]


def test_a_group_with_members_stays_where_it_is(page: TestClient, broker: testing.BrokerProcess, read: str) -> None:
    with Consumer(broker.url, "read", group="busy") as reader:
        assert len(reader.poll(6, timeout_s=10.0)) > 0
        reader.commit()
        group = {"protocol": "native", "group": "busy"}
        found = page.get("/api/group", params=group).json()
        assert len(found["members"]) == 1
        assert change(page, "/api/group/reset", to="earliest", **group)["members"] == 1
        refused = change(page, "/api/group/reset", to="earliest", dry_run=False, **group)
        assert (refused["status"], "member" in refused["error"]) == (400, True)
        assert change(page, "/api/group/delete", **group)["status"] == 400


def test_a_deleted_group_is_off_the_list_at_once(page: TestClient, broker: testing.BrokerProcess, read: str) -> None:
    commit(broker, [1, 1], "gone")
    names = [row["group"] for row in page.get("/api/groups", params={"q": "gone"}).json()["groups"]]
    assert change(page, "/api/group/delete", group="gone") == {"deleted": "gone", "status": 200}
    assert page.get("/api/groups", params={"q": "gone"}).json()["groups"] == [], names
    assert committed(broker, "gone") == [-1001, -1001]
