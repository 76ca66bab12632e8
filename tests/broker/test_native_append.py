"""Native blocks: each once by writer, epoch and sequence, whatever is repeated, lost or restarted."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any

import pytest

from lading.broker.broker import Broker
from lading.broker.core.topology import Partition
from lading.dialects import registry
from lading.model.errors import MalformedMessage, Reason, Refusal
from lading.model.scan_request import ScanRequest
from tests.broker.room import NOW, SECOND, append_block, block, fill, opened, payloads, read, topic_of
from tests.broker.test_append import FailingDisk

WRITER = b"w" * 16
OTHER = b"o" * 16


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path, writer_window=4)


@pytest.fixture
def partition(broker: Broker) -> Partition:
    return topic_of(broker).partition(0)


def crashed(path: Path, broker: Broker, **settings: Any) -> Broker:
    """The same directory as after ``kill -9``: nothing of the old process is written at its end."""
    broker.catalog.close()
    return opened(path, **settings)


def refused(broker: Broker, partition: Partition, data: bytes, reason: Reason = Reason.OUT_OF_SEQUENCE) -> str:
    before = partition.log.next_offset
    with pytest.raises(Refusal) as refusal:
        broker.native_appender.append(partition, memoryview(data), now_us=NOW)
    assert refusal.value.reason is reason
    assert partition.log.next_offset == before
    return str(refusal.value)


def test_blocks_without_a_writer_are_simply_appended(broker: Broker, partition: Partition) -> None:
    for _ in range(2):
        done = append_block(broker, partition, block(b"a", b"b"))
        assert (done.done, done.duplicate, done.count) == (True, False, 2)
    assert payloads(read(broker, partition)) == [b"a", b"b", b"a", b"b"]


def test_a_repeated_block_gets_the_offset_it_had(broker: Broker, partition: Partition) -> None:
    first = append_block(broker, partition, block(b"a", b"b", writer=WRITER))
    second = append_block(broker, partition, block(b"c", writer=WRITER, sequence=1))
    for sequence, known, contents in ((0, first, (b"a", b"b")), (1, second, (b"c",))):
        again = append_block(broker, partition, block(*contents, writer=WRITER, sequence=sequence))
        assert (again.done, again.duplicate, again.base_offset) == (True, True, known.base_offset)
    assert payloads(read(broker, partition)) == [b"a", b"b", b"c"]
    assert broker.counters.duplicate_blocks == 2


@pytest.mark.parametrize("end", ["none", "stop", "crash", "crash after a snapshot"])
def test_a_repeated_number_with_other_content_is_refused(
    tmp_path: Path, broker: Broker, partition: Partition, end: str
) -> None:
    append_block(broker, partition, block(b"a", writer=WRITER))
    append_block(broker, partition, block(b"b", writer=WRITER, sequence=1))
    if end == "stop":
        broker.stop()
        broker = opened(tmp_path, writer_window=4)
    elif end.startswith("crash"):
        if end != "crash":
            broker._memory.snapshot_all()
        broker = crashed(tmp_path, broker, writer_window=4)
    partition = broker.topology.topic("s", "t").partition(0)
    for sequence, other in ((0, b"c"), (1, b"a")):
        told = refused(broker, partition, block(other, writer=WRITER, sequence=sequence), Reason.WRITER_ID_REUSED)
        assert "writer id reused" in told and WRITER.hex() in told
    # a copy of the first block's bytes is a repetition, whatever time the broker has written into it
    assert append_block(broker, partition, block(b"a", writer=WRITER), NOW + SECOND).duplicate
    assert payloads(read(broker, partition)) == [b"a", b"b"]
    broker.stop()


def test_a_block_of_the_brokers_own_is_known_by_its_number_alone(broker: Broker, partition: Partition) -> None:
    for content in (b"a", b"b"):
        done = broker.native_appender.append_remade(partition, memoryview(block(content, writer=WRITER)), now_us=NOW)
        broker.appender.flush()
    assert (done.duplicate, done.base_offset) == (True, 0)
    assert payloads(read(broker, partition)) == [b"a"]


def test_a_repeated_block_waits_for_the_sync_of_the_first(broker: Broker, partition: Partition) -> None:
    data = memoryview(block(b"a", writer=WRITER))
    first = broker.native_appender.append(partition, data, now_us=NOW)
    again = broker.native_appender.append(partition, data, now_us=NOW)
    assert (first.done, again.done, again.duplicate) == (False, False, True)
    broker.appender.flush()
    assert (first.done, again.done, again.error) == (True, True, None)


def test_what_does_not_follow_is_refused(broker: Broker, partition: Partition) -> None:
    assert "must be 0" in refused(broker, partition, block(b"x", writer=WRITER, sequence=3))
    for sequence in range(6):
        append_block(broker, partition, block(b"x", writer=WRITER, sequence=sequence, epoch=1))
    assert "gap" in refused(broker, partition, block(b"x", writer=WRITER, sequence=7, epoch=1))
    assert "taken over" in refused(broker, partition, block(b"x", writer=WRITER, sequence=6, epoch=0))
    assert "starts at block 0" in refused(broker, partition, block(b"x", writer=WRITER, sequence=6, epoch=2))
    assert "last 4" in refused(broker, partition, block(b"x", writer=WRITER, sequence=1, epoch=1))
    append_block(broker, partition, block(b"y", writer=WRITER, sequence=0, epoch=2))
    append_block(broker, partition, block(b"z", writer=OTHER))
    assert payloads(read(broker, partition)) == [b"x"] * 6 + [b"y", b"z"]


def test_a_request_of_many_blocks_is_judged_before_any_is_appended(broker: Broker, partition: Partition) -> None:
    blocks = [block(str(number).encode(), writer=WRITER, sequence=number) for number in range(4)]
    assert "does not follow" in refused(broker, partition, blocks[0] + blocks[2])
    with pytest.raises(MalformedMessage):
        broker.native_appender.append(partition, memoryview(blocks[0] + blocks[1][:-3]), now_us=NOW)
    with pytest.raises(MalformedMessage):
        broker.native_appender.append(partition, memoryview(b""), now_us=NOW)
    assert partition.log.next_offset == 0
    assert append_block(broker, partition, blocks[0] + blocks[1]).base_offset == 0
    # half of it is there already
    mixed = append_block(broker, partition, blocks[1] + blocks[2] + blocks[3])
    assert (mixed.base_offset, mixed.count, mixed.duplicate) == (1, 3, False)
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2", b"3"]


def test_a_null_timestamp_is_the_append_time(broker: Broker, partition: Partition) -> None:
    append_block(broker, partition, block(b"a"), now_us=NOW)
    append_block(broker, partition, block(b"b", timestamp_us=NOW - 5 * SECOND), now_us=NOW + SECOND)
    times: list[int] = []
    for run, first, end in read(broker, partition).pieces:
        for part in registry.dialect(run.dialect).decode(run, ScanRequest(first=first, end=end)):
            column: Any = part.columns["timestamp"]
            times += column.cast("int64").to_pylist()
    assert times == [NOW, NOW - 5 * SECOND]


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_sequences_are_known_after_a_restart(tmp_path: Path, broker: Broker, partition: Partition, end: str) -> None:
    first = append_block(broker, partition, block(b"a", writer=WRITER))
    fill(broker, partition, 3)
    append_block(broker, partition, block(b"b", writer=WRITER, sequence=1))
    if end == "stop":
        broker.stop()
        again = opened(tmp_path, writer_window=4)
    else:
        again = crashed(tmp_path, broker, writer_window=4)
    found = again.topology.topic("s", "t").partition(0)
    repeated = append_block(again, found, block(b"a", writer=WRITER))
    assert (repeated.duplicate, repeated.base_offset) == (True, first.base_offset)
    assert append_block(again, found, block(b"c", writer=WRITER, sequence=2)).duplicate is False
    refused(again, found, block(b"x", writer=WRITER, sequence=9))
    assert payloads(read(again, found)) == [b"a", b"0", b"1", b"2", b"b", b"c"]
    again.stop()


def test_a_start_reads_only_what_comes_after_the_snapshot(tmp_path: Path) -> None:
    broker = opened(tmp_path, segment_bytes=1 << 16)
    partition = topic_of(broker).partition(0)
    noise = random.Random(1).randbytes
    for sequence in range(60):
        last = block(noise(10_000), writer=WRITER, sequence=sequence)
        append_block(broker, partition, last)
    assert partition.log.segments_count > 2
    snapshot = partition.log.load_snapshot("writers")
    assert snapshot is not None
    assert snapshot.end_offset > 0
    again = crashed(tmp_path, broker, segment_bytes=1 << 16)
    found = again.topology.topic("s", "t").partition(0)
    assert append_block(again, found, last).duplicate
    assert append_block(again, found, block(b"x", writer=WRITER, sequence=60)).base_offset == 60
    again.stop()


def test_the_least_recently_used_writer_is_forgotten(tmp_path: Path) -> None:
    broker = opened(tmp_path, writers_per_partition_max=2)
    partition = topic_of(broker).partition(0)
    for number in range(3):
        append_block(broker, partition, block(b"x", writer=bytes([number + 1]) * 16))
    refused(broker, partition, block(b"x", writer=bytes([1]) * 16, sequence=1))
    assert not append_block(broker, partition, block(b"x", writer=bytes([3]) * 16, sequence=1)).duplicate


def test_a_block_that_the_full_disk_took_back_can_be_sent_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    append_block(broker, partition, block(b"0", writer=WRITER))
    disk.failing = {"write"}
    lost = append_block(broker, partition, block(b"1", writer=WRITER, sequence=1))
    assert lost.error is not None
    assert lost.error.reason is Reason.DISK_FULL
    disk.failing = set()
    kept = append_block(broker, partition, block(b"1", writer=WRITER, sequence=1))
    assert (kept.duplicate, kept.error) == (False, None)
    assert payloads(read(broker, partition)) == [b"0", b"1"]
    broker.stop()
