"""What a start costs grows with what it has to look at, not with what nobody uses: no syncs, no files left open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log import disk as disk_room
from lading.log.disk import File, RealDisk
from tests.broker.room import NOW, fill, opened, payloads, read, topic_of


class CountingDisk(RealDisk):
    """Counts the files that are opened, those that are opened to be written to, and the directories that are listed."""

    def __init__(self) -> None:
        self.looked_at: list[Path] = []
        self.written_to: list[Path] = []
        self.listed: list[Path] = []

    def names(self, directory: Path | str) -> list[str]:
        self.listed.append(Path(directory))
        return super().names(directory)

    def open(self, path: Path | str, *, write: bool = False) -> File:
        path = Path(path)
        if "topics" in path.parts:
            (self.written_to if write else self.looked_at).append(path)
        return super().open(path, write=write)


def stopped(path: Path, topics_count: int) -> None:
    """Topics with a partition that holds messages and one that does not, closed in order."""
    broker = opened(path)
    for number in range(topics_count):
        fill(broker, topic_of(broker, 2, f"t{number}").partition(0), 2)
    broker.stop()


def count_syncs(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How often a start and a stop of this directory wait for the disk."""
    with counted_syncs(monkeypatch) as syncs:
        opened(path).stop()
    return len(syncs)


@contextmanager
def counted_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A list to which each wait for the disk in the block is added."""
    syncs: list[int] = []

    def noting(real: Callable[[int], None]) -> Callable[[int], None]:
        def sync(handle: int) -> None:
            syncs.append(handle)
            real(handle)

        return sync

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", noting(os.fsync))
        patch.setattr(disk_room, "_sync_data", noting(disk_room._sync_data))
        yield syncs


def test_a_start_after_a_clean_stop_does_not_wait_for_the_disk_once_per_topic(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few, many = tmp_path / "few", tmp_path / "many"
    stopped(few, 1)
    stopped(many, 12)
    assert count_syncs(many, monkeypatch) == count_syncs(few, monkeypatch) > 0


def test_a_broker_for_tests_never_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with counted_syncs(monkeypatch) as syncs:
        for name in ("t0", "t1"):
            broker = Broker.open(tmp_path, BrokerSettings(durability="none"), now_us=NOW)
            fill(broker, topic_of(broker, 2, name).partition(0), 2)
            assert broker.catalog.rows("PRAGMA synchronous") == [(0,)]
            broker.stop()
    assert syncs == []
    broker = opened(tmp_path)
    for name in ("t0", "t1"):
        assert payloads(read(broker, broker.topology.resolve(f"s.{name}").partition(0))) == [b"0", b"1"]
    broker.stop()


def test_a_start_after_a_clean_stop_opens_no_file_of_a_partition_to_write(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    disk = CountingDisk()
    broker = opened(tmp_path, disk=disk)
    assert disk.written_to == []
    partition = broker.topology.resolve("s.t1").partition(0)
    fill(broker, partition, 1)
    assert {path.parent.name for path in disk.written_to} == {"0"}
    assert payloads(read(broker, partition)) == [b"0", b"1", b"0"]
    broker.stop()
    assert opened(tmp_path).topology.resolve("s.t1").partition(0).log.recovery.clean


def test_a_start_lists_each_directory_of_a_partition_once(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    disk = CountingDisk()
    opened(tmp_path, disk=disk).stop()
    partitions = [path for path in disk.listed if path.parent.parent.name == "topics"]
    assert len(partitions) == len(set(partitions)) == 3 * 2


def test_a_start_opens_the_files_of_a_partition_without_messages_once(tmp_path: Path) -> None:
    stopped(tmp_path, 3)
    disk = CountingDisk()
    opened(tmp_path, disk=disk).stop()
    empty = [path for path in disk.looked_at if path.parent.name == "1"]
    assert len(empty) == len(set(empty)) == 3 * len(("watermark", "00000000000000000000.log"))
    assert len([path for path in disk.looked_at if path.name == "topic.json"]) == 3


def test_files_that_came_after_the_start_are_seen(tmp_path: Path) -> None:
    stopped(tmp_path, 1)
    broker = opened(tmp_path)
    topic = broker.topology.resolve("s.t0")
    fill(broker, topic.partition(1), 2)
    broker.at_once.delete_partitions(topic, 1)
    broker.at_once.add_partitions(topic, 1)
    assert payloads(read(broker, topic.partition(1))) == []
    broker.stop()
