"""What the broker does by itself goes on although the disk refuses some of it, and is made up for later."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.model.errors import Reason, Refusal
from tests.broker.room import CONSUMER, NOW, SECOND, append_block, block, fill, opened, payloads, read, topic_of
from tests.broker.test_append import FailingDisk


def full(broker: Broker, pages: int | None = None) -> None:
    """No more pages than the catalog has, or ``pages``."""
    database = broker._catalog._db
    database.execute(f"PRAGMA max_page_count = {pages or database.execute('PRAGMA page_count').fetchone()[0]}")


def test_positions_wait_for_a_catalog_that_can_be_written(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 8)
    for partition in topic.partitions:
        fill(broker, partition, 1)
    full(broker)
    for number in range(3000):
        broker.poller.store_position(topic, CONSUMER._replace(id=number + 1), None, number % 8, 0, now_us=NOW)
    broker.tick(NOW + SECOND)
    assert (broker.counters.failed_duties, broker.counters.positions_written) == (1, 0)
    full(broker, 100_000)
    broker.tick(NOW + 2 * SECOND)
    assert (broker.counters.failed_duties, broker.counters.positions_written) == (1, 3000)
    broker.stop()
    again = opened(tmp_path)
    assert again.poller.position(again.topic("s", "t"), CONSUMER._replace(id=2999), 2998 % 8) == 0
    again.stop()


def test_a_create_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic_of(broker)
    full(broker)
    with pytest.raises(Refusal) as refused:
        for number in range(200):
            broker.create_topic("s", None, f"topic {number} " + "x" * 200, 1, now_us=NOW)
    assert refused.value.reason is Reason.DISK_FULL
    count = len(broker.topics("s"))
    assert len(list((tmp_path / "topics").iterdir())) == count
    full(broker, 100_000)
    broker.create_topic("s", None, "later", 1, now_us=NOW)
    broker.stop()
    again = opened(tmp_path)
    assert len(again.topics("s")) == count + 1
    again.stop()


def test_an_aborted_range_that_cannot_be_written_stays_held_back(tmp_path: Path) -> None:
    class States(FailingDisk):
        suffix = "states.log"

    disk = States()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    one = broker.begin(now_us=NOW)
    append_block(broker, partition, block(b"aborted", transaction=one))
    fill(broker, partition, 1)
    disk.failing = {"write", "sync"}
    broker.abort([one], now_us=NOW)
    assert read(broker, partition).count == 0
    broker.tick(NOW + 1)
    assert read(broker, partition).count == 0
    disk.failing = set()
    broker.tick(NOW + 2)
    assert payloads(read(broker, partition)) == [b"0"]
    broker.stop()


def test_what_recovery_found_is_told(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    assert broker.recoveries() == []
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 3)
    broker._catalog.close()
    again = opened(tmp_path)
    ((found, report),) = again.recoveries()
    assert (found.number, report.end_offset) == (0, 3)
    again.stop()
