"""What the broker does by itself goes on although the disk refuses some of it, and is made up for later."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core import positions
from lading.broker.core.upkeep import rounds
from lading.broker.kafka.group import JoinGroupRequest
from lading.broker.kafka.group_rebalancer import GroupRebalancer
from lading.log import watermark
from lading.log.partition import DiskPartitionLog
from lading.model.errors import Reason, Refusal
from lading.runtime.turns import ROWS_AT_ONCE
from tests.broker.room import CONSUMER, NOW, SECOND, append, append_block, block, fill, opened, payloads, read, topic_of
from tests.broker.test_append import FailingDisk


def full(broker: Broker, pages: int | None = None) -> None:
    """No more pages than the catalog has, or ``pages``."""
    database = broker.catalog._db
    database.execute(f"PRAGMA max_page_count = {pages or database.execute('PRAGMA page_count').fetchone()[0]}")


def test_positions_wait_for_a_catalog_that_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 8)
    for partition in topic.partitions:
        fill(broker, partition, 1)
    full(broker)
    for number in range(3000):
        broker.poller.store_position(topic, CONSUMER._replace(id=number + 1), None, number % 8, 0, now_us=NOW)
    with monkeypatch.context() as here:
        # all in one transaction, however slow the machine: the first few would find room in the pages that there are
        here.setattr(positions, "WRITE_S", 60.0)
        broker.tick(NOW + SECOND)
    assert (broker.counters.failed_maintenance, broker.counters.positions_written) == (1, 0)
    full(broker, 100_000)
    broker.tick(NOW + 2 * SECOND)
    for _ in range(3000 // ROWS_AT_ONCE):
        # a pass of the event loop each
        broker.appender.flush()
    assert (broker.counters.failed_maintenance, broker.counters.positions_written) == (1, 3000)
    broker.stop()
    again = opened(tmp_path)
    assert again.poller.position(again.topology.topic("s", "t"), CONSUMER._replace(id=2999), 2998 % 8) == 0
    again.stop()


def test_a_channel_that_the_disk_refuses_is_not_stored_later(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    full(broker)
    with pytest.raises(Refusal):
        for number in range(200):
            broker.channels.open(topic, f"channel {number} " + "x" * 200)
    made = [channel.name for channel in broker.channels.of_topic(topic)]
    full(broker, 100_000)
    broker.tick(NOW + SECOND)
    broker.stop()
    again = opened(tmp_path)
    assert [channel.name for channel in again.channels.of_topic(again.topology.topic("s", "t"))] == made
    assert sorted(row.consumer for row in again.catalog.positions()) == made
    again.stop()


def test_a_create_that_the_disk_refuses_leaves_nothing(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic_of(broker)
    full(broker)
    with pytest.raises(Refusal) as refused:
        for number in range(200):
            broker.at_once.create_topic("s", None, f"topic {number} " + "x" * 200, 1, now_us=NOW)
    assert refused.value.reason is Reason.DISK_FULL
    count = len(broker.topology.stream("s").list_topics())
    assert len(list((tmp_path / "topics").iterdir())) == count
    full(broker, 100_000)
    broker.at_once.create_topic("s", None, "later", 1, now_us=NOW)
    broker.stop()
    again = opened(tmp_path)
    assert len(again.topology.stream("s").list_topics()) == count + 1
    again.stop()


def test_an_aborted_range_that_cannot_be_written_stays_held_back(tmp_path: Path) -> None:
    class States(FailingDisk):
        # as a record, and as a whole file that takes the place of the one before
        suffix = ("states.log", "states.log.tmp")

    disk = States()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"aborted", transaction=one))
    fill(broker, partition, 1)
    disk.failing = {"write", "sync"}
    broker.native_transactions.abort([one], now_us=NOW)
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
    broker.catalog.close()
    again = opened(tmp_path)
    ((found, report),) = again.recoveries()
    assert (found.number, report.end_offset) == (0, 3)
    again.stop()


TICK = 50_000
"""So often the broker wants to be asked while it has something to watch."""
QUIET = 250_000


def marked_end(path: Path) -> int:
    """Where readers of the only partition's directory are told that it ends."""
    (file,) = path.glob(f"topics/*/0/{watermark.FILE_NAME}")
    mark = watermark.unpack(file.read_bytes())
    assert mark is not None
    return mark.high_watermark


def test_a_broker_that_nothing_happens_in_is_asked_seldom(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    calls: list[str] = []
    broker.on_due = lambda: calls.append("due")
    partition = topic_of(broker).partition(0)
    now = NOW
    assert broker.tick(now) == now + QUIET
    # once, however much happens before it is asked again
    fill(broker, partition, 1)
    fill(broker, partition, 1)
    assert calls == ["due"]
    now += TICK
    due = broker.tick(now)
    assert marked_end(tmp_path) == 2
    # the index is written a second later at most, then there is nothing left to do
    asked = []
    while due - now < QUIET:
        asked.append(due - NOW)
        now = due
        due = broker.tick(now)
    assert len(asked) <= SECOND // TICK and due == now + QUIET
    (index,) = tmp_path.glob("topics/*/0/*.index")
    assert index.stat().st_size
    calls.clear()
    broker.poller.store_position(partition.topic, CONSUMER, None, 0, 1, now_us=now)
    assert calls == ["due"]
    assert broker.tick(now) == now + 100_000
    assert broker.tick(now + 100_000) == now + 100_000 + QUIET
    assert broker.counters.positions_written == 1
    broker.stop()


def test_while_something_may_time_out_it_is_asked_often(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    calls: list[str] = []
    broker.on_due = lambda: calls.append("due")
    assert broker.tick(NOW) == NOW + QUIET
    broker.channels.open(topic, "c")
    assert calls == ["due"] and broker.tick(NOW) == NOW + TICK
    broker.channels.delete(broker.channels.open(topic, "c"))
    assert broker.tick(NOW + SECOND) == NOW + SECOND + QUIET
    transaction = broker.native_transactions.begin(now_us=NOW + SECOND)
    assert broker.tick(NOW + SECOND) == NOW + SECOND + TICK
    broker.native_transactions.abort([transaction], now_us=NOW + SECOND)
    assert broker.tick(NOW + 2 * SECOND) == NOW + 2 * SECOND + QUIET
    broker.stop()


def test_a_log_is_maintained_though_the_clock_is_set_back(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 1)
    broker.tick(NOW)
    fill(broker, partition, 1)
    for turn in range(3):
        broker.tick(NOW - 3600 * SECOND + turn * TICK)
    assert marked_end(tmp_path) == 2
    broker.stop()


def test_one_log_that_cannot_be_maintained_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker, 3)
    for partition in topic.partitions:
        fill(broker, partition, 1)
    broker.tick(NOW)
    for partition in topic.partitions:
        fill(broker, partition, 1)

    def fail(now_us: int) -> None:
        raise RuntimeError("this log is broken")

    monkeypatch.setattr(topic.partition(0).log, "maintain", fail)
    broker.tick(NOW + TICK)
    marks = [watermark.unpack(one.read_bytes()) for one in sorted(tmp_path.glob(f"topics/*/*/{watermark.FILE_NAME}"))]
    assert [mark.high_watermark for mark in marks if mark is not None][1:] == [2, 2]
    assert broker.counters.failed_maintenance == 1
    assert "this log is broken" in caplog.text
    monkeypatch.undo()
    broker.stop()


def test_time_outs_of_a_group_go_on_after_one_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = opened(tmp_path)
    groups = broker.coordinated_groups
    groups.join(JoinGroupRequest("g", "", "consumer", (("range", b""),), 10 * SECOND, 10 * SECOND), now_us=NOW)
    broker.tick(NOW + SECOND)
    group = groups.find("g")
    assert group is not None and len(group.members) == 1
    monkeypatch.setattr(GroupRebalancer, "expire", lambda self, group, now_us: 1 / 0)
    broker.tick(NOW + 12 * SECOND)
    monkeypatch.undo()
    assert len(group.members) == 1
    for second in range(13, 30):
        broker.tick(NOW + second * SECOND)
    assert not group.members
    broker.stop()


def test_one_callback_that_fails_keeps_no_other_append_from_its_answer(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    woken: list[str] = []

    def fail(_: object = None) -> None:
        raise ZeroDivisionError

    partition.add_visible_callback(fail)
    partition.add_visible_callback(lambda: woken.append("reader"))
    appends = [append(broker, partition, b"one"), append(broker, partition, b"two")]
    appends[0].add_done_callback(fail)
    appends[0].add_done_callback(lambda _: woken.append("first"))
    appends[1].add_done_callback(lambda _: woken.append("second"))
    broker.appender.flush()
    assert sorted(woken) == ["first", "reader", "second"]
    broker.stop()


def test_others_have_their_turn_while_many_logs_are_maintained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start marks all partitions: 5,000 of them kept the loop for 100 ms."""
    broker = opened(tmp_path)
    topic_of(broker, 100)
    broker.stop()
    broker = opened(tmp_path)
    maintained: list[DiskPartitionLog] = []
    maintain = DiskPartitionLog.maintain

    def counted(log: DiskPartitionLog, now_us: int) -> int | None:
        maintained.append(log)
        return maintain(log, now_us)

    monkeypatch.setattr(DiskPartitionLog, "maintain", counted)
    # every turn is over at the first look at the clock
    monkeypatch.setattr(rounds, "ROUND_TURN_S", 0)
    broker.tick(NOW)
    assert len(maintained) == ROWS_AT_ONCE
    # one in each pass of the event loop, or in each tick where those fail
    broker.appender.flush()
    assert len(maintained) == 2 * ROWS_AT_ONCE
    broker.tick(NOW + SECOND)
    assert len(maintained) == 3 * ROWS_AT_ONCE
    broker.appender.flush()
    broker.appender.flush()
    broker.appender.flush()
    assert len(maintained) == len(set(maintained)) == 100
    broker.stop()
