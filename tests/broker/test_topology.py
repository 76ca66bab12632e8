"""Streams, topics, partitions: ids, names, refusals, and that all of it is there again after a restart."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import TopicSettings
from lading.log.directory import read_descriptions
from lading.model.errors import CorruptLog, Reason, Refusal, SettingError
from lading.model.names import DEFAULT_STREAM_ID
from tests.broker.room import CONSUMER, NOW, append, fill, opened, payloads, read, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    broker = opened(tmp_path)
    broker.at_once.create_stream(1, "str1", now_us=NOW)
    broker.at_once.create_topic(1, 1, "top1", 3, now_us=NOW)
    broker.at_once.create_topic(1, 2, "bare", 0, now_us=NOW)
    return broker


@pytest.mark.parametrize(
    ("reason", "act"),
    [
        # the codes the real server answers in the recorded exchanges, by their reasons (iggy.md A7)
        (Reason.STREAM_ID_EXISTS, lambda b: b.at_once.create_stream(1, "str2", now_us=NOW)),
        (Reason.STREAM_NAME_EXISTS, lambda b: b.at_once.create_stream(2, "str1", now_us=NOW)),
        (Reason.STREAM_ID_NOT_FOUND, lambda b: b.topology.stream(9)),
        (Reason.STREAM_NAME_NOT_FOUND, lambda b: b.topology.stream("nope")),
        (Reason.STREAM_NAME_NOT_FOUND, lambda b: b.topology.stream("STR1")),
        (Reason.TOPIC_ID_EXISTS, lambda b: b.at_once.create_topic(1, 1, "x", 1, now_us=NOW)),
        (Reason.TOPIC_NAME_EXISTS, lambda b: b.at_once.create_topic(1, 3, "top1", 1, now_us=NOW)),
        (Reason.TOPIC_ID_NOT_FOUND, lambda b: b.topology.topic(1, 9)),
        (Reason.TOPIC_NAME_NOT_FOUND, lambda b: b.topology.topic(1, "nope")),
        (Reason.STREAM_ID_NOT_FOUND, lambda b: b.topology.topic(9, 1)),
        (Reason.INVALID_STREAM_ID, lambda b: b.at_once.create_stream(0, "zero", now_us=NOW)),
        (Reason.INVALID_TOPIC_ID, lambda b: b.at_once.create_topic(1, 0, "zero", 1, now_us=NOW)),
        (Reason.INVALID_STREAM_NAME, lambda b: b.at_once.create_stream(2, "", now_us=NOW)),
        (Reason.INVALID_STREAM_NAME, lambda b: b.at_once.create_stream(2, "ä" * 128, now_us=NOW)),
        (Reason.INVALID_TOPIC_NAME, lambda b: b.at_once.create_topic(1, 3, "", 1, now_us=NOW)),
        (Reason.TOO_MANY_PARTITIONS, lambda b: b.at_once.create_topic(1, 3, "x", 100_001, now_us=NOW)),
        (Reason.TOO_MANY_PARTITIONS, lambda b: b.at_once.add_partitions(b.topology.topic(1, 1), 0)),
        (Reason.TOO_MANY_PARTITIONS, lambda b: b.at_once.delete_partitions(b.topology.topic(1, 1), 0)),
        (Reason.PARTITION_NOT_FOUND, lambda b: b.topology.topic(1, 1).partition(3)),
        (Reason.PARTITION_NOT_FOUND, lambda b: b.topology.topic(1, 1).partition(-1)),
        (Reason.NO_PARTITIONS, lambda b: b.topology.topic(1, 2).partition(0)),
        (Reason.TOPIC_NAME_NOT_FOUND, lambda b: b.topology.resolve("top1")),
    ],
)
def test_what_is_refused_has_its_reason_and_changes_nothing(
    broker: Broker, reason: Reason, act: Callable[[Broker], object]
) -> None:
    before = _shape(broker)
    with pytest.raises(Refusal) as refused:
        act(broker)
    assert refused.value.reason is reason
    assert str(refused.value) != reason.value
    assert _shape(broker) == before


def _shape(broker: Broker) -> list[tuple[int, str, list[tuple[int, str, bytes, int]]]]:
    return [
        (
            stream.id,
            stream.name,
            [(topic.id, topic.name, topic.uuid, len(topic.partitions)) for topic in stream.list_topics()],
        )
        for stream in broker.topology.streams()
    ]


def test_a_restart_finds_everything_as_it_was(tmp_path: Path, broker: Broker) -> None:
    broker.at_once.create_stream(None, "default", now_us=NOW)
    broker.at_once.create_topic("default", None, "kept", 2, now_us=NOW, settings=TopicSettings(retention_bytes=1 << 20))
    fill(broker, broker.topology.topic(1, 1).partition(2), 5)
    before = _shape(broker)
    broker.stop()
    again = opened(tmp_path)
    assert _shape(again) == before
    assert again.topology.topic("default", "kept").settings == TopicSettings(retention_bytes=1 << 20)
    assert payloads(read(again, again.topology.topic(1, 1).partition(2))) == [b"0", b"1", b"2", b"3", b"4"]
    again.stop()


def test_ids_are_the_clients_or_the_lowest_free(broker: Broker) -> None:
    assert broker.at_once.create_stream(7, "seven", now_us=NOW).id == 7
    assert broker.at_once.create_stream(None, "any", now_us=NOW).id == 2
    assert broker.at_once.create_topic(7, None, "a", 1, now_us=NOW).id == 1
    assert broker.at_once.create_topic(7, 0xFFFF_FFFF, "b", 1, now_us=NOW).id == 0xFFFF_FFFF


def test_default_takes_the_top_of_u32_and_is_not_there_before(broker: Broker) -> None:
    assert all(stream.name != "default" for stream in broker.topology.streams())
    assert broker.at_once.create_stream(None, "default", now_us=NOW).id == DEFAULT_STREAM_ID == 0xFFFF_FFFF


def test_a_flat_name_means_one_topic(broker: Broker) -> None:
    assert broker.topology.resolve("str1.top1") is broker.topology.topic("str1", "top1")
    broker.at_once.create_stream(None, "default", now_us=NOW)
    plain = broker.at_once.create_topic("default", None, "flights", 1, now_us=NOW)
    assert broker.topology.resolve("flights") is plain
    dotted = broker.at_once.create_topic("default", None, "a.b.c", 1, now_us=NOW)
    assert broker.topology.resolve("a.b.c") is dotted
    broker.at_once.create_stream(None, "a.b", now_us=NOW)
    broker.at_once.create_stream(None, "a", now_us=NOW)
    for stream, topic in (("a.b", "c"), ("a", "b.c")):
        with pytest.raises(Refusal) as refused:
            broker.at_once.create_topic(stream, None, topic, 1, now_us=NOW)
        assert refused.value.reason is Reason.AMBIGUOUS_NAME
    broker.at_once.delete_topic("default", "a.b.c")
    assert broker.topology.resolve("a.b.c") if broker.at_once.create_topic("a", None, "b.c", 1, now_us=NOW) else None
    with pytest.raises(Refusal) as refused:
        broker.at_once.create_topic("default", None, "a.b.c", 1, now_us=NOW)
    assert refused.value.reason is Reason.AMBIGUOUS_NAME


def test_delete_and_create_again_gives_another_topic(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    fill(broker, topic.partition(0), 3)
    broker.poller.store_position(topic, CONSUMER, None, 0, 2, now_us=NOW)
    broker.groups.create(topic, 4)
    broker.at_once.delete_topic(1, 1)
    fresh = broker.at_once.create_topic(1, 1, "top1", 3, now_us=NOW)
    assert fresh.uuid != topic.uuid
    assert read(broker, fresh.partition(0)).count == 0
    assert broker.poller.position(fresh, CONSUMER, 0) is None
    assert broker.groups.of_topic(fresh) == []
    broker.stop()
    again = opened(tmp_path)
    assert again.topology.topic(1, 1).uuid == fresh.uuid
    assert again.poller.position(again.topology.topic(1, 1), CONSUMER, 0) is None
    assert not list((tmp_path / "topics").glob("*.deleted"))
    again.stop()


def test_deleting_a_stream_takes_its_topics(tmp_path: Path, broker: Broker) -> None:
    version = broker.topology.version
    broker.at_once.delete_stream(1)
    assert broker.topology.streams() == []
    assert broker.topology.version > version
    broker.stop()
    again = opened(tmp_path)
    assert again.topology.streams() == []
    assert list((tmp_path / "topics").iterdir()) == []
    again.stop()


def test_partitions_come_and_go_with_the_highest_numbers(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    for partition in topic.partitions:
        fill(broker, partition, 2, prefix=f"p{partition.number}-")
        broker.poller.store_position(topic, CONSUMER, None, partition.number, 1, now_us=NOW)
    old_epoch = topic.partition(2).log.epoch
    broker.at_once.delete_partitions(topic, 1)
    broker.at_once.add_partitions(topic, 2)
    assert [partition.number for partition in topic.partitions] == [0, 1, 2, 3]
    assert payloads(read(broker, topic.partition(1))) == [b"p1-0", b"p1-1"]
    assert read(broker, topic.partition(2)).count == 0
    # a position in the old partition 2 must not look like one in the new
    assert topic.partition(2).log.epoch > old_epoch
    assert broker.poller.position(topic, CONSUMER, 2) is None
    assert broker.poller.position(topic, CONSUMER, 1) == 1
    broker.stop()
    again = opened(tmp_path)
    topic = again.topology.topic(1, 1)
    assert len(topic.partitions) == 4
    assert again.poller.position(topic, CONSUMER, 2) is None
    again.at_once.delete_partitions(topic, 100)
    assert topic.partitions == []
    again.stop()


def test_an_append_to_a_deleted_partition_fails_and_is_answered(broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    waiting = append(broker, topic.partition(2), b"late")
    woken: list[bool] = []
    topic.partition(2).add_visible_callback(lambda: woken.append(True))
    broker.at_once.delete_partitions(topic, 1)
    assert waiting.done
    assert waiting.error is not None
    assert waiting.error.reason is Reason.PARTITION_NOT_FOUND
    assert woken == [True]
    broker.appender.flush()


def test_a_delete_that_was_interrupted_is_finished(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    broker.stop()
    path = tmp_path / "topics" / topic.uuid.hex()
    path.rename(path.with_name(path.name + ".deleted"))
    again = opened(tmp_path)
    with pytest.raises(Refusal):
        again.topology.topic(1, 1)
    assert not path.with_name(path.name + ".deleted").exists()
    again.stop()


def test_a_partition_delete_that_was_interrupted_is_undone(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    fill(broker, topic.partition(2), 2)
    broker.stop()
    path = tmp_path / "topics" / topic.uuid.hex() / "2"
    path.rename(path.with_name("2.deleted"))
    again = opened(tmp_path)
    assert payloads(read(again, again.topology.topic(1, 1).partition(2))) == [b"0", b"1"]
    again.stop()


def test_a_create_that_was_interrupted_leaves_nothing(tmp_path: Path, broker: Broker) -> None:
    broker.stop()
    half = tmp_path / "topics" / ("ab" * 16)
    half.mkdir()
    again = opened(tmp_path)
    assert not half.exists()
    assert len(again.topology.stream(1).list_topics()) == 2
    again.stop()


def test_a_missing_topic_directory_is_named(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    broker.stop()
    path = tmp_path / "topics" / topic.uuid.hex()
    path.rename(tmp_path / "away")
    with pytest.raises(CorruptLog, match=f"'top1'.*{path}"):
        opened(tmp_path)


def test_without_the_catalog_the_directories_are_taken_in(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    fill(broker, topic.partition(1), 3)
    broker.stop()
    for file in tmp_path.glob("catalog.sqlite*"):
        file.unlink()
    again = opened(tmp_path)
    assert again.topology.resolve("str1.top1").uuid == topic.uuid
    assert payloads(read(again, again.topology.resolve("str1.top1").partition(1))) == [b"0", b"1", b"2"]
    assert len(again.topology.topic("str1", "bare").partitions) == 0
    again.stop()


def test_topic_json_is_for_readers_without_a_broker(tmp_path: Path, broker: Broker) -> None:
    topic = broker.topology.topic(1, 1)
    broker.at_once.add_partitions(topic, 1)
    found = {one.name: one for one in read_descriptions(tmp_path)}
    assert set(found) == {"str1.top1", "str1.bare"}
    assert (found["str1.top1"].uuid, found["str1.top1"].partitions) == (topic.uuid, 4)
    document = json.loads((tmp_path / "topics" / topic.uuid.hex() / "topic.json").read_text())
    assert document["version"] == 1
    assert document["id"] == topic.uuid.hex()
    broker.stop()


def test_many_partitions_are_one_setting(tmp_path: Path) -> None:
    broker = opened(tmp_path, partitions_per_topic_max=4)
    topic = topic_of(broker, 4)
    with pytest.raises(Refusal, match="partitions_per_topic_max"):
        broker.at_once.add_partitions(topic, 1)
    broker.stop()


@pytest.mark.parametrize("document", [{"retention_days": 1}, {"retention_bytes": "1"}, {"retention_age_us": 0}])
def test_topic_settings_are_checked(document: dict[str, object]) -> None:
    with pytest.raises(SettingError, match=next(iter(document))):
        TopicSettings.parse(document)
    assert TopicSettings.parse({"hide_states": True}).document() == {"hide_states": True}


def test_every_topic_setting_is_documented_and_nothing_else() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "topic-settings.md"
    documented = [line.split("`")[1] for line in page.read_text().splitlines() if line.startswith("| `")]
    # who has set one of them is kept beside it, and is no setting of clients
    assert {*documented, "dead_letter_setter"} == {field.name for field in fields(TopicSettings)}
    with pytest.raises(SettingError, match="unknown topic setting 'dead_letter_setter'"):
        TopicSettings().merge({"dead_letter_setter": 1})
