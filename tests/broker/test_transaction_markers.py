"""Administrators end transactions: never against a decision, and never a part of one that goes on."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.pending_append import Append
from lading.broker.core.topology import Partition
from lading.broker.kafka.transactional_producer import ProducerIdAndEpoch, ProducerState
from lading.model.errors import Reason
from tests.broker.kafka_batches import as_kafka, committed, produce
from tests.broker.room import NOW, opened, topic_of
from tests.broker.test_native_append import crashed
from tests.broker.test_producers import begin, end, named, open_transaction, refused, send


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


def end_in(broker: Broker, partition: Partition, producer_id: int, epoch: int, commit: bool = False) -> Append | None:
    done = broker.producers.end_in_partition(partition, ProducerIdAndEpoch(producer_id, epoch), commit, now_us=NOW)
    broker.appender.flush()
    assert done is None or (done.done and done.error is None)
    return done


@pytest.mark.parametrize("after", ["", "crash"])
def test_an_open_transaction_is_aborted_as_a_whole(tmp_path: Path, broker: Broker, after: str) -> None:
    first, second = topic_of(broker, partitions=2).partitions
    caller = named(broker)
    begin(broker, caller, first, second)
    send(broker, caller, first, b"1", sequence=0)
    send(broker, caller, second, b"2", sequence=0)
    if after:
        broker = crashed(tmp_path, broker)
        first, second = broker.topology.topic("s", "t").partitions
    assert end_in(broker, first, caller.producer_id, caller.epoch) is not None
    assert broker.producers.rows()[0].state == ProducerState.ABORTED
    assert refused(lambda: broker.producers.end(caller, True, now_us=NOW)) is Reason.PRODUCER_FENCED
    assert refused(lambda: begin(broker, caller, first)) is Reason.PRODUCER_FENCED
    assert refused(lambda: send(broker, caller, first, b"3", sequence=1)) is Reason.PRODUCER_FENCED
    # who names both partitions, or the same again, is told no error, and nothing more is written
    for partition in (second, first):
        end_in(broker, partition, caller.producer_id, caller.epoch)
    for partition in (first, second):
        assert (partition.log.next_offset, partition.log.last_stable_offset) == (2, 2)
        assert committed(broker, partition) == as_kafka(broker, partition) == []
    again = named(broker)
    begin(broker, again, first)
    send(broker, again, first, b"4", sequence=0)
    end(broker, again)
    assert committed(broker, first) == [b"4"]


def test_a_commit_that_is_decided_is_not_aborted(tmp_path: Path) -> None:
    disk, broker, partition, caller = open_transaction(tmp_path, b"x")
    disk.failing, disk.errno = {"write"}, errno.ENOSPC
    end(broker, caller)
    for epoch in (caller.epoch, caller.epoch + 1):
        assert refused(lambda: end_in(broker, partition, caller.producer_id, epoch)) is Reason.TRANSACTION_NOT_OPEN  # noqa: B023
    # the other way round the disk has the word
    assert refused(lambda: end_in(broker, partition, caller.producer_id, caller.epoch, True)) is Reason.DISK_FULL
    assert committed(broker, partition) == []
    disk.failing = set()
    end_in(broker, partition, caller.producer_id, caller.epoch, True)
    assert committed(broker, partition) == as_kafka(broker, partition) == [b"x"]
    assert partition.log.next_offset == 2
    assert broker.producers.rows()[0].state == ProducerState.COMMITTED
    broker.tick(NOW)
    assert partition.log.next_offset == 2


def test_an_abort_that_is_decided_is_finished(tmp_path: Path) -> None:
    disk, broker, partition, caller = open_transaction(tmp_path, b"x")
    disk.failing, disk.errno = {"write"}, errno.ENOSPC
    assert refused(lambda: end_in(broker, partition, caller.producer_id, caller.epoch)) is Reason.DISK_FULL
    disk.failing = set()
    assert refused(lambda: end_in(broker, partition, caller.producer_id, caller.epoch, True))
    end_in(broker, partition, caller.producer_id, caller.epoch)
    assert (partition.log.last_stable_offset, committed(broker, partition)) == (2, [])
    assert broker.producers.rows()[0].state == ProducerState.ABORTED


def test_only_its_producer_commits(broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"x", sequence=0)
    assert refused(lambda: end_in(broker, partition, caller.producer_id, 0, True)) is Reason.TRANSACTION_NOT_OPEN
    send(broker, caller, partition, b"y", sequence=1, flush=False)
    answer = broker.producers.end(caller, True, now_us=NOW)
    assert refused(lambda: end_in(broker, partition, caller.producer_id, 0)) is Reason.TRANSACTION_IN_PROGRESS
    broker.appender.flush()
    broker.appender.flush()
    assert answer.done
    assert committed(broker, partition) == [b"x", b"y"]


def test_where_nothing_is_open_nothing_is_written(broker: Broker) -> None:
    first, second = topic_of(broker, partitions=2).partitions
    produce(broker, first, b"x", producer=7, epoch=3)
    for commit in (True, False):
        for epoch in (3, 4):
            assert end_in(broker, first, 7, epoch, commit) is None
        assert refused(lambda: end_in(broker, first, 7, 2, commit)) is Reason.PRODUCER_FENCED  # noqa: B023
        assert end_in(broker, second, 7, 0, commit) is None
    assert (first.log.next_offset, second.log.next_offset) == (1, 0)
    caller = named(broker)
    begin(broker, caller, first, second)
    send(broker, caller, first, b"y", sequence=0)
    assert end_in(broker, second, caller.producer_id, caller.epoch) is None
    end(broker, caller)
    assert committed(broker, first) == [b"x", b"y"]


def test_what_no_producer_knows_any_more_is_aborted(tmp_path: Path, broker: Broker) -> None:
    partition = topic_of(broker).partition(0)
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"x", sequence=0)
    broker.producers._table.remove([caller.name])
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partition(0)
    assert refused(lambda: end_in(broker, partition, caller.producer_id, 0, True)) is Reason.TRANSACTION_NOT_OPEN
    end_in(broker, partition, caller.producer_id, caller.epoch)
    broker.tick(NOW)
    assert (partition.log.next_offset, partition.log.last_stable_offset) == (2, 2)
    assert committed(broker, partition) == as_kafka(broker, partition) == []
