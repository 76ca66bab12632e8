"""Catalog and directories contradict each other: nothing is left out, made anew beside old data, or kept quiet."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.log.directory import read_descriptions
from lading.model.errors import CorruptLog
from tests.broker.room import fill, opened, payloads, read, topic_of

CATALOG = "catalog.sqlite"


def stopped(path: Path, partitions: int = 1, name: str = "t") -> Path:
    """A topic with two messages in each partition, closed; its directory."""
    broker = opened(path)
    topic = topic_of(broker, partitions, name)
    for partition in topic.partitions:
        fill(broker, partition, 2)
    broker.stop()
    return path / "topics" / topic.uuid.hex()


def kept(path: Path) -> None:
    """A copy of the catalog, to be put back."""
    shutil.copy(path / CATALOG, path / "old")


def put_back(path: Path) -> None:
    (path / "old").replace(path / CATALOG)


def told(broker: Broker) -> str:
    return "\n".join(broker.notes)


def test_a_start_that_finds_all_as_it_was_says_nothing(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    broker = opened(tmp_path)
    assert broker.notes == []
    broker.stop()
    broker = opened(tmp_path)
    fill(broker, broker.topology.resolve("s.t").partition(0), 2)
    # as a kill leaves it
    shutil.copytree(tmp_path, tmp_path.with_name("killed"))
    assert opened(tmp_path.with_name("killed")).notes == []


@pytest.mark.parametrize("content", [b"", b"{", b'{"version": 1}', b"\x00" * 300])
def test_a_damaged_description_of_a_listed_topic_is_written_anew(tmp_path: Path, content: bytes) -> None:
    path = stopped(tmp_path)
    (path / "topic.json").write_bytes(content)
    broker = opened(tmp_path)
    assert payloads(read(broker, broker.topology.resolve("s.t").partition(0))) == [b"0", b"1"]
    assert "topic.json" in told(broker) and "rewritten" in told(broker)
    assert [one.name for one in read_descriptions(tmp_path)] == ["s.t"]
    broker.stop()


def test_an_old_catalog_keeps_partitions_that_were_added_since(tmp_path: Path) -> None:
    stopped(tmp_path)
    kept(tmp_path)
    broker = opened(tmp_path)
    broker.at_once.add_partitions(broker.topology.resolve("s.t"), 2)
    for partition in broker.topology.resolve("s.t").partitions[1:]:
        fill(broker, partition, 3)
    broker.stop()
    put_back(tmp_path)
    broker = opened(tmp_path)
    assert [payloads(read(broker, one))[-1] for one in broker.topology.resolve("s.t").partitions] == [b"1", b"2", b"2"]
    assert "the catalog says 1 partitions" in told(broker) and "older one" in told(broker)
    broker.stop()
    assert opened(tmp_path).notes == []


def test_an_old_catalog_does_not_bring_back_partitions_that_were_deleted(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    kept(tmp_path)
    broker = opened(tmp_path)
    broker.at_once.delete_partitions(broker.topology.resolve("s.t"), 2)
    broker.stop()
    put_back(tmp_path)
    broker = opened(tmp_path)
    assert len(broker.topology.resolve("s.t").partitions) == 1
    assert "the catalog says 3 partitions" in told(broker)
    broker.stop()


def test_a_missing_partition_is_named_and_not_made_anew(tmp_path: Path) -> None:
    path = stopped(tmp_path, 3)
    (path / "1").rename(tmp_path / "away")
    with pytest.raises(CorruptLog, match=f"partition 1 of topic 't' has no directory {path / '1'}"):
        opened(tmp_path)
    (path / "1").mkdir()
    broker = opened(tmp_path)
    assert str(path / "1") in told(broker) and "is lost" in told(broker)
    assert broker.topology.resolve("s.t").partition(1).log.epoch > 1
    broker.stop()


def test_messages_without_a_name_stop_the_start(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    (path / "topic.json").unlink()
    (tmp_path / CATALOG).unlink()
    with pytest.raises(CorruptLog, match=f"{path} holds messages of a topic that is not in the catalog"):
        opened(tmp_path)


def test_two_directories_of_one_name_stop_the_start(tmp_path: Path) -> None:
    first = stopped(tmp_path)
    first.rename(tmp_path / "away")
    (tmp_path / CATALOG).unlink()
    second = stopped(tmp_path)
    (tmp_path / "away").rename(first)
    with pytest.raises(CorruptLog, match="both belong to it") as refused:
        opened(tmp_path)
    assert str(first) in str(refused.value) and str(second) in str(refused.value)


def test_a_topic_id_that_is_taken_becomes_another(tmp_path: Path) -> None:
    path = stopped(tmp_path)
    path.rename(tmp_path / "away")
    (tmp_path / CATALOG).unlink()
    stopped(tmp_path, name="other")
    (tmp_path / "away").rename(path)
    broker = opened(tmp_path)
    assert {topic.name: topic.id for topic in broker.topology.stream("s").list_topics()} == {"other": 1, "t": 2}
    assert json.loads((path / "topic.json").read_text())["topic_id"] == 2
    assert payloads(read(broker, broker.topology.resolve("s.t").partition(0))) == [b"0", b"1"]
    broker.stop()


def test_an_empty_topic_that_the_catalog_lost_is_taken_in(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic_of(broker, 2)
    broker.stop()
    (tmp_path / CATALOG).write_bytes(b"")
    broker = opened(tmp_path)
    assert len(broker.topology.resolve("s.t").partitions) == 2
    assert "was emptied" in told(broker) and "added from" in told(broker)
    broker.stop()


def test_a_flipped_bit_in_a_description_gives_no_other_name(tmp_path: Path) -> None:
    """The catalog is lost, so that ``topic.json`` alone has name and settings."""
    path = stopped(tmp_path) / "topic.json"
    (tmp_path / CATALOG).unlink()
    content = path.read_bytes()
    at = content.index(b'"t"') + 1
    path.write_bytes(content[:at] + b"u" + content[at + 1 :])
    with pytest.raises(CorruptLog, match=r"topic\.json.*checksum does not match"):
        opened(tmp_path)
    path.write_bytes(content)
    broker = opened(tmp_path)
    assert payloads(read(broker, broker.topology.resolve("s.t").partition(0))) == [b"0", b"1"]
    broker.stop()


def test_a_flipped_bit_in_a_page_of_the_catalog_sets_it_aside(tmp_path: Path) -> None:
    stopped(tmp_path, 50)
    data = bytearray((tmp_path / CATALOG).read_bytes())
    # the number of cells of a page
    data[4096 + 3] ^= 0x7F
    (tmp_path / CATALOG).write_bytes(data)
    broker = opened(tmp_path)
    assert "was damaged" in told(broker) and "is now catalog.sqlite.damaged-1" in told(broker)
    assert len(broker.topology.resolve("s.t").partitions) == 50
    broker.stop()


@pytest.mark.timeout(900)
def test_a_flipped_bit_in_a_row_of_the_catalog_gives_no_other_name(tmp_path: Path, full: bool) -> None:
    """A start ends in no error of SQLite and takes no topic for another one: it sets the catalog aside, or reads it."""
    names = [f"topic{number}" for number in range(4)]
    broker = opened(tmp_path / "whole")
    for number, name in enumerate(names):
        fill(broker, topic_of(broker, 2, name, "s" if number % 2 else "other").partition(0), 2)
    topics = sorted(topic.flat_name for topic in broker.topology.topics())
    broker.stop()
    content = (tmp_path / "whole" / CATALOG).read_bytes()
    # the pages of streams and topics, and of their indexes
    pages = [first for first in range(0, len(content), 4096) if b"topic0" in content[first : first + 4096]]
    places = [place for first in pages for place in range(first, first + 4096) if content[place]]
    set_aside = 0
    for place in random.Random(17).sample(places, min(len(places), 300 if full else 24)):
        data = bytearray(content)
        data[place] ^= 1 << place % 8
        shutil.copytree(tmp_path / "whole", tmp_path / "flipped")
        (tmp_path / "flipped" / CATALOG).write_bytes(data)
        broker = opened(tmp_path / "flipped")
        set_aside += "was damaged" in told(broker)
        assert sorted(topic.flat_name for topic in broker.topology.topics()) == topics, place
        broker.stop()
        shutil.rmtree(tmp_path / "flipped")
    assert set_aside
