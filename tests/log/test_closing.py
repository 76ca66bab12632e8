"""Logs that close together wait for the disk as often as one does, and each knows its own errors."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log import disk, file_system_sync
from lading.log.closing import close_logs
from lading.log.disk import RealDisk
from lading.log.group_commit import SyncNow
from lading.log.partition import DiskPartitionLog, open_partition
from tests.broker.room import append_block, block
from tests.faults.faulty import FaultyDisk
from tests.log.messages import NOW, TOPIC, add, opened
from tests.log.test_file_system_sync import Calls

PARTITIONS, WRITER = 40, b"w" * 16


class CountedSyncs:
    """Counts the syncs of single files, and of whole file systems."""

    def __init__(self) -> None:
        self.files_count = 0
        self.file_systems = Calls()

    def sync_file(self, descriptor: int) -> None:
        os.fstat(descriptor)
        self.files_count += 1

    @property
    def count(self) -> int:
        return self.files_count + len(self.file_systems.synced)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> CountedSyncs:
    """An ext4, whose syncs are counted and not made."""
    counted = CountedSyncs()
    monkeypatch.setattr(disk, "_sync_data", counted.sync_file)
    monkeypatch.setattr(file_system_sync, "_CALLS", (counted.file_systems.fstatfs, counted.file_systems.syncfs))
    return counted


def open_written(disk: RealDisk, directory: Path) -> list[DiskPartitionLog]:
    """Return logs with a message each, which is on disk."""
    logs, commit = [], SyncNow()
    for number in range(PARTITIONS):
        log = open_partition(disk, directory / str(number), TOPIC, segment_bytes=1 << 20, now_us=NOW)
        add(log, 1)
        log.flush()
        commit.submit(log)
        logs.append(log)
    return logs


def list_clean(directory: Path) -> list[int]:
    """Return the numbers of the logs that were closed cleanly; each has its message."""
    clean = []
    for number in range(PARTITIONS):
        log = opened(directory / str(number))
        assert log.high_watermark == 1
        if log.recovery.clean:
            clean.append(number)
        log.drop()
    return clean


@pytest.mark.parametrize("are_resting", [False, True], ids=["written to", "at rest"])
def test_many_logs_wait_for_the_disk_twice(tmp_path: Path, syncs: CountedSyncs, are_resting: bool) -> None:
    """A sync each, one after the other: 5,000 partitions on a disk of 10 ms did not stop for 100 s."""
    logs = open_written(RealDisk(), tmp_path)
    if are_resting:
        for log in logs:
            log.maintain(NOW)
            assert log.rest()
    before = syncs.count
    close_logs(logs)
    assert syncs.count - before == 2
    assert list_clean(tmp_path) == list(range(PARTITIONS))


def test_a_broker_that_stops_waits_for_its_partitions_together(tmp_path: Path, syncs: CountedSyncs) -> None:
    counts = []
    for partitions_count in (1, PARTITIONS):
        broker = Broker.open(tmp_path / str(partitions_count), BrokerSettings(), now_us=NOW, commit=SyncNow())
        stream = broker.topology.ensure_stream("default", now_us=NOW)
        topic = broker.at_once.create_topic(stream.id, None, "t", partitions_count, now_us=NOW)
        for partition in topic.partitions:
            append_block(broker, partition, block(b"a", writer=WRITER))
        before = syncs.count
        broker.stop()
        counts.append(syncs.count - before)
    # few files are synced one by one
    assert counts[1] <= counts[0]


@pytest.mark.parametrize("name", ["watermark", ".log"])
def test_a_file_that_cannot_be_synced_leaves_the_other_logs_clean(tmp_path: Path, name: str) -> None:
    faulty = FaultyDisk()
    logs = open_written(faulty, tmp_path)

    def fail(operation: str, path: Path, data: object) -> object:
        if operation == "sync" and path.parent.name == "7" and path.name.endswith(name):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return data

    faulty.fault = fail
    close_logs(logs)
    # of a watermark file that was written and not synced nobody knows whether it says "clean"
    assert set(list_clean(tmp_path)) | {7} == set(range(PARTITIONS))
    assert name == "watermark" or 7 not in list_clean(tmp_path)


def test_logs_that_close_together_keep_few_files_open(tmp_path: Path) -> None:
    def count_open() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    class Noting(RealDisk):
        def sync_paths(self, paths: Sequence[Path]) -> None:
            opened_counts.append(count_open())

    opened_counts: list[int] = []
    logs = open_written(Noting(), tmp_path)
    for log in logs:
        log.maintain(NOW)
        log.rest()
    before = count_open()
    opened_counts.clear()
    close_logs(logs)
    assert opened_counts == [before, before]
