"""What a gateway sees of a cluster's topics: those without leaders, and how many requests a first look takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pyarrow as pa
import pytest

from lading.kafka_log import cluster as cluster_module
from lading.kafka_log.catalog_records import CATALOG_TOPIC, TopicRecord
from lading.kafka_log.cluster import ClusterTopics, identify
from lading.model.errors import Refusal
from lading.transports.kafka.offsets import OffsetAndEpoch
from lading.transports.kafka.transport import KafkaTransport

ENDS = 7


class ScriptedCluster:
    """A cluster of topics with the leaders of their partitions, and a catalog topic; requests are counted."""

    def __init__(self, leaders: dict[str, list[int]]) -> None:
        self.leaders = leaders
        self.records: list[tuple[bytes, bytes | None]] = []
        self.sent_batches = 0
        self.asked_for_ends: list[str] = []
        self.cluster = self

    def metadata(self, topics: Any) -> Any:
        return SimpleNamespace(
            topics=[
                SimpleNamespace(
                    name=name, is_internal=False, error_code=0, topic_id=uuid_of(name),
                    partitions=[
                        SimpleNamespace(partition_index=number, leader_id=leader)
                        for number, leader in enumerate(leaders)
                    ],
                )
                for name, leaders in self.leaders.items()
            ]
        )  # fmt: skip

    def send(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        assert topic == CATALOG_TOPIC
        self.sent_batches += 1
        columns = batch.to_pydict()
        self.records += zip(columns["key"], columns["payload"], strict=True)

    def fetch(self, topic: str, partition: int, offset: int) -> Any:
        keys, values = zip(*self.records[offset:], strict=True)
        batch = pa.RecordBatch.from_pydict(
            {"key": pa.array(keys, pa.binary()), "payload": pa.array(values, pa.binary())}
        )
        part = SimpleNamespace(columns={"key": batch["key"], "payload": batch["payload"]})
        return SimpleNamespace(end_offset=len(self.records), decode=lambda request: [part])

    def list_offsets(self, _cluster: Any, places: list[tuple[str, int]], timestamp_ms: int) -> Any:
        if places == [(CATALOG_TOPIC, 0)]:
            return {(CATALOG_TOPIC, 0): OffsetAndEpoch(len(self.records), 0)}
        for name, number in places:
            assert self.leaders[name][number] >= 0, "a partition without a leader gives no end"
        self.asked_for_ends += [name for name, _ in places]
        return {place: OffsetAndEpoch(ENDS if timestamp_ms == -1 else 0, 0) for place in places}


def uuid_of(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16))


def open_topics(scripted: ScriptedCluster, monkeypatch: pytest.MonkeyPatch) -> ClusterTopics:
    monkeypatch.setattr(cluster_module, "list_offsets", scripted.list_offsets)
    return ClusterTopics(cast("KafkaTransport", scripted))


def test_a_new_topic_without_a_leader_waits_for_a_later_look(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedCluster({"legs": [1, 1], "hops": [1, -1]})
    topics = open_topics(scripted, monkeypatch)
    view = topics.look({})
    assert {name: found.partitions for name, found in view.topics.items()} == {"legs": ((0, ENDS), (0, ENDS))}
    # it gets no id before it can be read
    assert set(view.records.topics) == {"legs"}
    scripted.leaders["hops"] = [1, 2]
    assert set(topics.look({"legs": identify(uuid_of("legs").bytes, 2)}).topics) == {"legs", "hops"}


def test_a_known_topic_that_loses_its_leader_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedCluster({"legs": [1]})
    topics = open_topics(scripted, monkeypatch)
    topics.look({})
    scripted.leaders["legs"] = [-1]
    scripted.asked_for_ends.clear()
    view = topics.look({"legs": identify(uuid_of("legs").bytes, 1)})
    assert set(view.topics) == {"legs"} and scripted.asked_for_ends == []


def test_a_known_topic_that_grows_is_seen_when_its_new_partition_has_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedCluster({"legs": [1]})
    topics = open_topics(scripted, monkeypatch)
    known = {"legs": identify(uuid_of("legs").bytes, 1)}
    topics.look({})
    scripted.leaders["legs"] = [1, -1]
    assert len(topics.look(known).topics["legs"].partitions) == 1
    scripted.leaders["legs"] = [1, 2]
    assert len(topics.look(known).topics["legs"].partitions) == 2


def test_the_first_look_at_many_topics_writes_their_records_together(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"topic{number}" for number in range(300)]
    scripted = ScriptedCluster({name: [1] for name in names})
    view = open_topics(scripted, monkeypatch).look({})
    assert set(view.topics) == set(view.records.topics) == set(names)
    assert sorted(record.id for record in view.records.topics.values()) == list(range(1, 301))
    assert scripted.sent_batches == 1


def test_a_gateway_whose_ids_were_taken_meanwhile_takes_others(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedCluster({"legs": [1], "hops": [1]})
    send = scripted.send

    def send_after_another_gateway(topic: str, partition: int, batch: pa.RecordBatch) -> None:
        if not scripted.records:
            other = TopicRecord("default", "legs", 2, 0, {})
            scripted.records.append((other.key.encode(), other.pack()))
        send(topic, partition, batch)

    monkeypatch.setattr(scripted, "send", send_after_another_gateway)
    view = open_topics(scripted, monkeypatch).look({})
    assert len({record.id for record in view.records.topics.values()}) == 2


def test_records_of_a_later_version_are_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway of this version took such a topic for one of Kafka's tools, and wrote a record over its record."""
    cluster = ScriptedCluster({"legs": [1], "hops": [1]})
    cluster.records.append((b"topic:legs", b'{"version": 2, "whatever": 1}'))
    cluster.records.append((b"stream:air", b'{"version": 2}'))
    topics = open_topics(cluster, monkeypatch)
    assert set(topics.look({}).records.topics) == {"hops"}
    assert [key for key, _ in cluster.records].count(b"topic:legs") == 1
    with pytest.raises(Refusal, match=r"'stream:air' .* later version .*; update this gateway"):
        topics.put_stream("air", None, 5)
    # the gateway that wrote it deletes it
    cluster.records.append((b"topic:legs", None))
    assert set(topics.look({}).records.topics) == {"hops", "legs"}
