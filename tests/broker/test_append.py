"""Append: chosen partitions, one write per pass, acknowledged when synced, nothing half."""

from __future__ import annotations

import errno
import os
import select
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import Balanced, ByHash, ByNumber, WriteResult, choose_partition
from lading.broker.core.pending_append import Append
from lading.broker.core.read import newest
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Partition
from lading.dialects.nsq import protocol as nsq_row
from lading.log.disk import File, RealDisk, RealFile, sync_each
from lading.log.group_commit import SyncNow
from lading.model.errors import MalformedMessage, Reason, Refusal
from lading.model.state import State
from tests.broker.room import NOW, append, fill, opened, payloads, read, rows, topic_of


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


def test_an_append_is_done_and_seen_when_it_is_synced(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    answered: list[tuple[int, int, Refusal | None]] = []
    seen: list[int] = []
    first = append(broker, partition, b"a", b"b")
    second = append(broker, partition, b"c")
    for one in (first, second):
        one.add_done_callback(lambda done: answered.append((done.base_offset, done.count, done.error)))
    partition.add_visible_callback(lambda: seen.append(partition.log.last_stable_offset))
    assert (first.done, read(broker, partition).count, answered) == (False, 0, [])
    broker.appender.flush()
    assert answered == [(0, 2, None), (2, 1, None)]
    assert seen == [3]
    assert rows(read(broker, partition)) == [(0, b"a"), (1, b"b"), (2, b"c")]
    late: list[Append] = []
    first.add_done_callback(late.append)
    assert late == [first]


def test_appends_of_one_sync_are_finished_in_several_passes(broker: Broker) -> None:
    """The responses of 200 connections in one pass kept the loop for 35 ms; readers see the messages at once."""
    partition = topic_of(broker).partition(0)
    passes: list[Callable[[], None]] = []
    broker.appender.completions.call_soon = passes.append
    finished: list[int] = []

    def append_many(count: int) -> None:
        for _ in range(count):
            append(broker, partition, b"x").add_done_callback(lambda done: finished.append(done.base_offset))
        broker.appender.flush()

    append_many(100)
    assert (len(finished), partition.log.last_stable_offset, broker.counters.unsynced_bytes) == (20, 100, 0)
    # appends of a later sync keep their order
    append_many(1)
    assert len(finished) == 20
    while passes:
        before = len(finished)
        passes.pop()()
        assert len(finished) - before <= 20
    assert finished == list(range(101))
    append_many(100)
    broker.stop()
    assert finished == list(range(201))


def test_those_that_wait_for_one_sync_of_the_catalog_are_called_in_several_passes(broker: Broker) -> None:
    """So do clients that store their positions."""
    passes: list[Callable[[], None]] = []
    broker.appender.completions.call_soon = passes.append
    called: list[int] = []
    for number in range(100):
        broker.catalog_commit.confirm().add_done_callback(lambda done, number=number: called.append(number))  # type: ignore[misc]
    broker.appender.flush()
    assert len(called) == 20
    while passes:
        before = len(called)
        passes.pop()()
        assert len(called) - before <= 20
    assert called == list(range(100))


def test_a_pass_of_the_loop_is_asked_for_once_and_shares_a_chunk(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    asked: list[bool] = []
    broker.appender.on_pending = lambda: asked.append(True)
    for _ in range(10):
        append(broker, topic.partition(0), b"x")
        append(broker, topic.partition(1), b"y")
    assert asked == [True]
    broker.appender.flush()
    reading = read(broker, topic.partition(0))
    assert [len(run.chunks) for run in reading.runs] == [1]
    append(broker, topic.partition(0), b"x")
    assert asked == [True, True]


@pytest.mark.parametrize("error", [MalformedMessage("bad"), Refusal(Reason.EMPTY_PAYLOAD, "bad")])
def test_what_a_writer_refuses_is_not_there(broker: Broker, error: Exception) -> None:
    partition = topic_of(broker).partition(0)
    before = append(broker, partition, b"before")

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        array[at : at + 100] = 1
        raise error

    with pytest.raises(type(error)):
        broker.appender.append(partition, 2, 0, 100, write)
    append(broker, partition, b"after")
    broker.appender.flush()
    assert before.error is None
    assert payloads(read(broker, partition)) == [b"before", b"after"]


def test_balanced_takes_turns_and_a_hash_chooses_by_count(broker: Broker) -> None:
    topic = topic_of(broker, 3)
    turns = [choose_partition(topic, Balanced()).number for _ in range(7)]
    assert turns == [0, 1, 2, 0, 1, 2, 0]
    assert choose_partition(topic, ByNumber(2)).number == 2
    assert choose_partition(topic, ByHash(lambda count: 7 % count)).number == 1
    broker.at_once.delete_partitions(topic, 2)
    assert [choose_partition(topic, Balanced()).number for _ in range(2)] == [0, 0]
    broker.at_once.delete_partitions(topic, 1)
    for choice in (Balanced(), ByNumber(0), ByHash(lambda count: 1 // count)):
        with pytest.raises(Refusal) as refused:
            choose_partition(topic, choice)
        assert refused.value.reason is Reason.NO_PARTITIONS


def test_too_much_on_its_way_to_the_disk_is_congestion(tmp_path: Path) -> None:
    broker = opened(tmp_path, unsynced_bytes_max=1000)
    partition = topic_of(broker).partition(0)
    relieved: list[bool] = []
    append(broker, partition, b"x" * 500)
    assert not broker.appender.congested
    append(broker, partition, b"x" * 500)
    assert broker.appender.congested
    broker.appender.call_when_uncongested(lambda: relieved.append(True))
    assert relieved == []
    broker.appender.flush()
    assert not broker.appender.congested
    assert relieved == [True]
    assert broker.counters.unsynced_bytes == 0
    broker.appender.call_when_uncongested(lambda: relieved.append(True))
    assert relieved == [True, True]


class FailingFile(RealFile):
    """A file of a FailingDisk."""

    def __init__(self, path: Path, flags: int, disk: FailingDisk) -> None:
        super().__init__(path, flags)
        self.disk = disk

    def sync(self) -> None:
        self._meet("sync")
        super().sync()

    def write(self, data: bytes | bytearray | memoryview, at: int) -> None:
        self._meet("write")
        super().write(data, at)

    def _meet(self, what: str) -> None:
        if what in self.disk.failing and Path(self.path).name.endswith(self.disk.suffix):
            raise OSError(self.disk.errno, "injected", str(self.path))


class FailingDisk(RealDisk):
    """The real disk, with errors to come: ``failing`` holds ``sync`` or ``write``; other files than these work."""

    suffix: str | tuple[str, ...] = "0.log"

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self.errno = errno.EIO

    def open(self, path: Path | str, *, write: bool = False) -> File:
        return FailingFile(Path(path), os.O_RDWR | os.O_CREAT if write else os.O_RDONLY, self)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        sync_each(self, paths)


def test_a_sync_that_fails_acknowledges_nothing_and_ends_writing(tmp_path: Path) -> None:
    disk = FailingDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 3)
    disk.failing = {"sync"}
    lost = append(broker, partition, b"lost")
    broker.appender.flush()
    assert lost.done
    assert lost.error is not None
    assert lost.error.reason is Reason.READ_ONLY
    disk.failing = set()
    with pytest.raises(Refusal) as refused:
        append(broker, partition, b"after")
    assert refused.value.reason is Reason.READ_ONLY
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2"]
    assert broker.counters.unsynced_bytes == 0


def test_a_full_disk_refuses_and_recovers_by_itself(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 3)
    disk.failing = {"write"}
    lost = [append(broker, partition, b"lost"), append(broker, partition, b"too")]
    broker.appender.flush()
    assert [one.error.reason for one in lost if one.error is not None] == [Reason.DISK_FULL, Reason.DISK_FULL]
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2"]
    disk.failing = set()
    kept = append(broker, partition, b"kept")
    broker.appender.flush()
    assert (kept.base_offset, kept.error) == (3, None)
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2", b"kept"]
    assert broker.counters.unsynced_bytes == 0


@pytest.mark.parametrize("how", ["full disk", "deleted topic"])
def test_who_waits_for_the_disk_goes_on_when_what_was_on_its_way_has_failed(tmp_path: Path, how: str) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk, unsynced_bytes_max=1000)
    topic = topic_of(broker)
    passes: list[bool] = []
    relieved: list[bool] = []
    broker.appender.on_pending = partial(passes.append, True)
    lost = append(broker, topic.partition(0), b"x" * 2000)
    broker.appender.call_when_uncongested(lambda: relieved.append(broker.appender.congested))
    # nothing is synced after this: the failure itself has to tell them
    disk.failing = {"write"}
    if how == "deleted topic":
        broker.at_once.delete_topic("s", "t")
    else:
        passes.pop()
        broker.appender.flush()
    assert lost.error is not None
    assert (passes, relieved) == ([True], []), "they go on in a pass of their own"
    broker.appender.flush()
    assert relieved == [False]


def test_a_fault_behind_one_sync_keeps_nobody_waiting(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    first, second = topic.partition(0), topic.partition(1)
    seen: list[int] = []

    def fail(partition: Partition) -> None:
        if partition is first:
            raise RuntimeError("a fault of ours")

    broker._sync_callbacks.append(fail)
    appends = [append(broker, first, b"a"), append(broker, second, b"b")]
    for one in (first, second):
        one.add_visible_callback(partial(seen.append, one.number))
    broker.appender.flush()
    assert ([one.done for one in appends], seen) == ([True, True], [0, 1])


def _note(order: list[int], number: int, append: Append) -> None:
    order.append(number)


def test_the_group_commit_acknowledges_in_order(tmp_path: Path) -> None:
    broker = Broker.open(tmp_path, BrokerSettings(), now_us=NOW)
    topic = topic_of(broker, 4)
    order: list[int] = []
    done = []
    for number in range(40):
        one = append(broker, topic.partition(number % 4), str(number).encode())
        one.add_done_callback(partial(_note, order, number))
        done.append(one)
        if number % 8 == 7:
            broker.appender.flush()
            broker.commit.complete()
    broker.stop()
    assert all(one.done and one.error is None for one in done)
    assert [one % 4 for one in order].count(0) == 10
    for number in range(4):
        mine = [one for one in order if one % 4 == number]
        assert mine == sorted(mine)
    again = opened(tmp_path)
    assert payloads(read(again, again.topology.topic("s", "t").partition(1)))[:3] == [b"1", b"5", b"9"]
    again.stop()


def test_durability_os_acknowledges_without_a_sync(tmp_path: Path) -> None:
    disk = FailingDisk()
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW, disk=disk)
    partition = topic_of(broker).partition(0)
    disk.failing = {"sync"}
    done = append(broker, partition, b"a")
    broker.appender.flush()
    broker.commit.complete()
    assert (done.done, done.error) == (True, None)
    disk.failing = set()
    broker.stop()


def test_who_is_alone_is_written_at_once_where_nobody_waits_for_the_disk(tmp_path: Path) -> None:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW)
    asked: list[bool] = []
    broker.appender.on_pending = lambda: asked.append(True)
    partition = topic_of(broker).partition(0)
    seen: list[int] = []
    partition.add_visible_callback(lambda: seen.append(partition.log.last_stable_offset))
    one = append(broker, partition, b"0", b"1", source="a")
    assert (one.done, one.base_offset, one.end_offset, seen) == (True, 0, 2, [2])
    assert append(broker, partition, b"2", source="a").done
    assert not asked
    # whoever comes second in a pass makes it one that is shared
    shared = [append(broker, partition, b"3", source="b"), append(broker, partition, b"4", source="a")]
    assert ([one.done for one in shared], asked) == ([False, False], [True])
    broker.appender.flush()
    assert all(one.done for one in shared)
    assert append(broker, partition, b"5", source="b").done
    assert not append(broker, partition, b"6").done
    broker.appender.flush()
    assert payloads(read(broker, partition)) == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [len(run.chunks) for run in read(broker, partition).runs] == [5]
    assert (broker.counters.appends, broker.counters.messages_in, broker.counters.unsynced_bytes) == (6, 7, 0)
    broker.stop()
    again = opened(tmp_path)
    assert len(payloads(read(again, again.topology.topic("s", "t").partition(0)))) == 7
    again.stop()


def test_what_is_to_happen_before_a_flush_shares_it(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    asked: list[bool] = []
    broker.appender.on_pending = lambda: asked.append(True)
    partition = topic_of(broker).partition(0)
    late: list[Append] = []
    append(broker, partition, b"a")
    broker.appender.call_before_flush(lambda: late.append(append(broker, partition, b"b")))
    assert (len(asked), late) == (1, [])
    broker.appender.flush()
    broker.commit.complete()
    assert (len(asked), late[0].done) == (1, True)
    assert [len(run.chunks) for run in read(broker, partition).runs] == [1]

    def fail() -> None:
        raise ZeroDivisionError

    # what fails takes nothing of others with it, and does not come back
    broker.appender.call_before_flush(fail)
    broker.appender.call_before_flush(lambda: late.append(append(broker, partition, b"behind it")))
    done = append(broker, partition, b"c")
    broker.appender.flush()
    broker.commit.complete()
    assert late[1].done
    assert (len(asked), done.done, done.error) == (2, True, None)
    append(broker, partition, b"d")
    assert len(asked) == 3
    broker.appender.flush()
    broker.commit.complete()
    assert payloads(read(broker, partition)) == [b"a", b"b", b"c", b"behind it", b"d"]
    broker.stop()


def test_who_waits_reads_from_memory_what_lies_in_the_log_and_only_when_it_lasts(tmp_path: Path) -> None:
    broker = Broker.open(tmp_path, BrokerSettings(), now_us=NOW)
    partition = topic_of(broker).partition(0)
    log = partition.log
    fill(broker, partition, 2)
    assert log.tail is None
    partition.add_visible_callback(lambda: None)
    append(broker, partition, b"a", b"b")
    broker.appender.flush()
    assert log.tail is not None
    handle = broker.commit.fileno()
    assert handle is not None
    seen = []
    while log.high_watermark < 4:
        seen.append(len(rows(read(broker, partition, 2))))
        assert select.select([handle], [], [], 10)[0]
        broker.commit.complete()
    assert set(seen) == {0}
    partition.cached_range = None
    kind, counters = nsq_row.CHANNEL, broker.counters
    told, whole = newest(partition, 2, kind, 2, counters), read(broker, partition, 2, kind)
    assert told is not None
    assert told.pieces == whole.pieces == [(log.tail, 2, 4)]
    assert (
        (told.end_offset, told.count, told.size_bytes) == (whole.end_offset, whole.count, whole.size_bytes) != (4, 2, 0)
    )
    assert [newest(partition, *wrong, counters) for wrong in ((1, kind, 9), (3, kind, 9), (2, kind, 1))] == 3 * [None]
    partition.cached_range = None
    hidden = broker.states.set(partition, [(3, 4)], State.POISONED, now_us=NOW)
    assert (hidden, newest(partition, 2, kind, 9, counters)) == (1, None)
    broker.states.set(partition, [(3, 4)], State.AVAILABLE, now_us=NOW)
    from_memory = [rows(read(broker, partition, offset)) for offset in (2, 3)]
    region = read(broker, partition, 2).pieces[0].run.region
    partition.cached_range = log.tail = None
    assert read(broker, partition, 2).pieces[0].run.region.size > region.size
    assert from_memory == [[(2, b"a"), (3, b"b")], [(3, b"b")]]
    assert [rows(read(broker, partition, offset)) for offset in (2, 3)] == from_memory
    assert newest(partition, 2, kind, 9, counters) is None
    assert rows(read(broker, partition)) == [(0, b"0"), (1, b"1"), *from_memory[0]]
    broker.stop()


def test_nobody_is_written_at_once_who_is_promised_a_sync(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    one = append(broker, partition, b"a", source="a")
    assert (one.done, read(broker, partition).count) == (False, 0)
    broker.appender.flush()
    assert one.done


def test_what_cannot_be_written_at_once_is_refused_and_not_there(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW, disk=disk)
    partition = topic_of(broker).partition(0)
    assert append(broker, partition, b"0", source="a").done
    disk.failing = {"write"}
    with pytest.raises(Refusal) as refused:
        append(broker, partition, b"lost", source="a")
    assert refused.value.reason is Reason.DISK_FULL
    disk.failing = set()

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        raise MalformedMessage("bad")

    for source in (None, "a"):
        with pytest.raises(MalformedMessage):
            broker.appender.append(partition, 2, 0, 100, write, source)
    assert append(broker, partition, b"1", source="a").base_offset == 1
    assert payloads(read(broker, partition)) == [b"0", b"1"]
    broker.stop()


def test_counters_add_up(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 5)
    read(broker, partition, 2)
    counters = broker.counters
    assert (counters.appends, counters.messages_in, counters.messages_out, counters.reads) == (1, 5, 3, 1)
    assert counters.bytes_in > 5 * 45


def test_syncing_in_place_needs_no_file_number(broker: Broker) -> None:
    assert SyncNow().fileno() is None
    assert broker.commit.fileno() is None
