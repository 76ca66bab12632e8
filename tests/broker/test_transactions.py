"""Transactions: seen all at once or never, committed once by key, decided for good before anybody reads past them."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.topology import Partition
from lading.broker.core.writers import Writers
from lading.dialects.kafka import protocol as kafka_row
from lading.dialects.protocols import VISIBILITY
from lading.log.reader import DirectoryReader
from lading.model.errors import Reason, Refusal
from tests.broker.room import NOW, SECOND, append, append_block, block, fill, opened, payloads, read, rows, topic_of
from tests.broker.test_append import FailingDisk
from tests.broker.test_native_append import WRITER, crashed


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


@pytest.fixture
def partition(broker: Broker) -> Partition:
    return topic_of(broker).partition(0)


def reason(act: object) -> Reason:
    with pytest.raises(Refusal) as refused:
        act()  # type: ignore[operator]
    return refused.value.reason


def test_nobody_sees_an_open_transaction_or_what_lies_behind_it(broker: Broker, partition: Partition) -> None:
    fill(broker, partition, 1, prefix="before-")
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"in", transaction=one))
    fill(broker, partition, 1, prefix="behind-")
    woken: list[int] = []
    partition.add_visible_callback(lambda: woken.append(partition.log.last_stable_offset))
    for reader in VISIBILITY:
        expected = 3 if reader in (kafka_row.UNCOMMITTED, kafka_row.UNCOMMITTED_SHOWING) else 1
        assert read(broker, partition, reader=reader).count == expected, reader
    result = broker.native_transactions.commit("key", [one], now_us=NOW)
    assert result == ((one,), False)
    assert payloads(read(broker, partition)) == [b"before-0", b"in", b"behind-0"]
    assert woken == [3]
    assert broker.counters.transactions_open == 0


def test_a_commit_is_made_once_by_its_key(broker: Broker, partition: Partition) -> None:
    one, loser = (broker.native_transactions.begin(scope="batch 7", now_us=NOW) for _ in range(2))
    append_block(broker, partition, block(b"lost", transaction=loser))
    append_block(broker, partition, block(b"won", transaction=one))
    assert broker.native_transactions.commit("q/7", [one], now_us=NOW) == ((one,), False)
    assert payloads(read(broker, partition)) == [b"won"]
    # the same work done again after a crash of the driver
    late = broker.native_transactions.begin(scope="batch 7", now_us=NOW)
    append_block(broker, partition, block(b"again", transaction=late))
    assert broker.native_transactions.commit("q/7", [late], now_us=NOW) == ((one,), True)
    assert broker.native_transactions.commit("q/7", [one], now_us=NOW) == ((one,), True)
    assert payloads(read(broker, partition)) == [b"won"]
    assert broker.counters.transactions_open == 0
    assert reason(lambda: append_block(broker, partition, block(b"x", transaction=late))) is Reason.TRANSACTION_NOT_OPEN


def test_a_commit_with_one_that_is_not_open_commits_none(broker: Broker, partition: Partition) -> None:
    one, aborted = (broker.native_transactions.begin(now_us=NOW) for _ in range(2))
    append_block(broker, partition, block(b"in", transaction=one))
    broker.native_transactions.abort([aborted, 999], now_us=NOW)
    assert (
        reason(lambda: broker.native_transactions.commit("key", [one, aborted], now_us=NOW))
        is Reason.TRANSACTION_NOT_OPEN
    )
    assert read(broker, partition).count == 0
    assert broker.native_transactions.commit("key", [one], now_us=NOW) == ((one,), False)
    assert read(broker, partition).count == 1
    assert reason(lambda: broker.native_transactions.commit("", [], now_us=NOW)) is Reason.MALFORMED


def test_an_empty_commit_remembers_its_key(tmp_path: Path, broker: Broker) -> None:
    assert broker.native_transactions.commit("nothing to do", [], now_us=NOW) == ((), False)
    assert broker.native_transactions.commit("nothing to do", [], now_us=NOW) == ((), True)
    broker.stop()
    again = opened(tmp_path)
    assert again.native_transactions.commit("nothing to do", [], now_us=NOW) == ((), True)
    again.stop()


def test_appends_that_are_not_acknowledged_cannot_be_committed(broker: Broker, partition: Partition) -> None:
    one = broker.native_transactions.begin(now_us=NOW)
    broker.native_appender.append(partition, memoryview(block(b"in", transaction=one)), now_us=NOW)
    assert reason(lambda: broker.native_transactions.commit("key", [one], now_us=NOW)) is Reason.TRANSACTION_NOT_OPEN
    broker.appender.flush()
    assert broker.native_transactions.commit("key", [one], now_us=NOW) == ((one,), False)
    assert payloads(read(broker, partition)) == [b"in"]


def test_aborted_blocks_are_passed_over(broker: Broker, partition: Partition) -> None:
    one, two = (broker.native_transactions.begin(now_us=NOW) for _ in range(2))
    append_block(broker, partition, block(b"a1", b"a2", transaction=one))
    append_block(broker, partition, block(b"b1", transaction=two))
    fill(broker, partition, 2, prefix="plain-")
    append_block(broker, partition, block(b"a3", transaction=one))
    append(broker, partition, b"last")
    broker.appender.flush()
    broker.native_transactions.abort([one], now_us=NOW)
    assert read(broker, partition).count == 0
    broker.native_transactions.commit("key", [two], now_us=NOW)
    assert rows(read(broker, partition)) == [(2, b"b1"), (3, b"plain-0"), (4, b"plain-1"), (6, b"last")]
    assert partition.log.aborted_ranges(0, 100) == [(0, 2), (5, 6)]
    reading = read(broker, partition, max_messages=2)
    assert (reading.count, reading.end_offset) == (2, 4)
    listed = read(broker, partition, reader=kafka_row.COMMITTED)
    assert (listed.count, list(listed.aborted)) == (7, [(0, 2), (5, 6)])


def test_what_is_open_too_long_is_aborted(tmp_path: Path) -> None:
    broker = opened(tmp_path, transaction_timeout_us=10 * SECOND)
    partition = topic_of(broker).partition(0)
    one = broker.native_transactions.begin(now_us=NOW)
    longer = broker.native_transactions.begin(timeout_us=60 * SECOND, now_us=NOW)
    append_block(broker, partition, block(b"in", transaction=one))
    fill(broker, partition, 1)
    broker.tick(NOW + 10 * SECOND - 1)
    assert read(broker, partition).count == 0
    broker.tick(NOW + 10 * SECOND)
    assert payloads(read(broker, partition)) == [b"0"]
    assert reason(lambda: broker.native_transactions.commit("key", [one], now_us=NOW)) is Reason.TRANSACTION_NOT_OPEN
    assert broker.native_transactions.commit("key", [longer], now_us=NOW) == ((longer,), False)


def test_a_transaction_spans_partitions(broker: Broker) -> None:
    topic = topic_of(broker, 2)
    one = broker.native_transactions.begin(now_us=NOW)
    for partition in topic.partitions:
        append_block(broker, partition, block(b"in", transaction=one, writer=WRITER))
    assert [read(broker, partition).count for partition in topic.partitions] == [0, 0]
    broker.native_transactions.commit("key", [one], now_us=NOW)
    assert [read(broker, partition).count for partition in topic.partitions] == [1, 1]


def test_mixed_requests_are_refused(broker: Broker, partition: Partition) -> None:
    one = broker.native_transactions.begin(now_us=NOW)
    data = block(b"in", transaction=one) + block(b"out")
    assert reason(lambda: broker.native_appender.append(partition, memoryview(data), now_us=NOW)) is Reason.MALFORMED
    assert partition.log.next_offset == 0


@pytest.mark.parametrize("end", ["stop", "crash"])
def test_decisions_and_open_transactions_survive_a_restart(
    tmp_path: Path, broker: Broker, partition: Partition, end: str
) -> None:
    committed, aborted, open_ = (broker.native_transactions.begin(now_us=NOW) for _ in range(3))
    append_block(broker, partition, block(b"committed", transaction=committed))
    append_block(broker, partition, block(b"aborted", transaction=aborted))
    append_block(broker, partition, block(b"open", transaction=open_, writer=WRITER))
    fill(broker, partition, 1, prefix="behind-")
    broker.native_transactions.commit("key", [committed], now_us=NOW)
    broker.native_transactions.abort([aborted], now_us=NOW)
    if end == "stop":
        broker.stop()
        again = opened(tmp_path)
    else:
        again = crashed(tmp_path, broker)
    found = again.topology.topic("s", "t").partition(0)
    assert payloads(read(again, found)) == [b"committed"]
    assert again.native_transactions.commit("key", [committed], now_us=NOW) == ((committed,), True)
    append_block(again, found, block(b"more", transaction=open_, writer=WRITER, sequence=1))
    assert again.native_transactions.begin(now_us=NOW) > open_
    again.native_transactions.commit("other", [open_], now_us=NOW)
    assert payloads(read(again, found)) == [b"committed", b"open", b"behind-0", b"more"]
    again.stop()


def test_a_crash_between_decision_and_overlay_shows_nothing_aborted(
    tmp_path: Path, broker: Broker, partition: Partition
) -> None:
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"aborted", transaction=one))
    fill(broker, partition, 1)
    broker.catalog.settle(None, (), [one], NOW)
    again = crashed(tmp_path, broker)
    found = again.topology.topic("s", "t").partition(0)
    assert payloads(read(again, found)) == [b"0"]
    assert found.log.aborted_ranges(0, 10) == [(0, 1)]
    again.stop()


def test_keys_are_forgotten_only_after_their_time(tmp_path: Path) -> None:
    broker = opened(tmp_path, transaction_memory_us=100 * SECOND)
    partition = topic_of(broker).partition(0)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"in", transaction=one))
    broker.native_transactions.commit("key", [one], now_us=NOW + 50 * SECOND)
    broker.tick(NOW + 101 * SECOND)
    assert broker.native_transactions.commit("key", [], now_us=NOW).repeated
    broker.tick(NOW + 202 * SECOND)
    assert not broker.native_transactions.commit("key", [], now_us=NOW).repeated
    # the log no longer asks for it: after a crash the message is still there
    again = crashed(tmp_path, broker)
    assert payloads(read(again, again.topology.topic("s", "t").partition(0))) == [b"in"]
    again.stop()


def test_a_deleted_topic_takes_its_share_of_a_transaction(broker: Broker, partition: Partition) -> None:
    other = topic_of(broker, 1, "u").partition(0)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"gone", transaction=one))
    append_block(broker, other, block(b"kept", transaction=one))
    broker.at_once.delete_topic("s", "t")
    broker.native_transactions.commit("key", [one], now_us=NOW)
    assert payloads(read(broker, other)) == [b"kept"]


def test_a_directory_reader_hears_of_a_late_commit(tmp_path: Path, broker: Broker, partition: Partition) -> None:
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"in", transaction=one))
    for tick in range(100):
        broker.tick(NOW + tick * 50_000)
    (path,) = tmp_path.glob("topics/*/0")
    assert DirectoryReader(path).last_stable_offset == 0
    broker.native_transactions.commit("key", [one], now_us=NOW + 10 * SECOND)
    broker.tick(NOW + 10 * SECOND)
    broker.tick(NOW + 10 * SECOND + 100_000)
    assert DirectoryReader(path).last_stable_offset == 1


ENDS = ("abort", "time-out", "still open", "commit")


@pytest.mark.parametrize("restart", ["none", "stop", "crash"])
@pytest.mark.parametrize("end", ENDS)
def test_a_transaction_makes_no_block_of_another_one_a_repetition(tmp_path: Path, end: str, restart: str) -> None:
    """A writer whose name repeats, as that of a client that was started again: what it sends must be there."""
    broker = opened(tmp_path, transaction_timeout_us=10 * SECOND)
    partition = topic_of(broker).partition(0)
    first = broker.native_transactions.begin(timeout_us=60 * SECOND, now_us=NOW)
    if end == "time-out":
        first = broker.native_transactions.begin(now_us=NOW)
    for sequence in range(3):
        append_block(broker, partition, block(b"%d" % sequence, transaction=first, writer=WRITER, sequence=sequence))
    if end == "abort":
        broker.native_transactions.abort([first], now_us=NOW)
    elif end == "time-out":
        broker.tick(NOW + 10 * SECOND)
    elif end == "commit":
        broker.native_transactions.commit("first", [first], now_us=NOW)
    if restart == "stop":
        broker.stop()
        broker = opened(tmp_path)
    elif restart == "crash":
        broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partition(0)
    second = broker.native_transactions.begin(now_us=NOW)
    for sequence in range(3):
        data = block(b"%d" % sequence, transaction=second, writer=WRITER, sequence=sequence)
        assert not append_block(broker, partition, data).duplicate
        # within its transaction it is a repetition
        assert append_block(broker, partition, data).duplicate
    broker.native_transactions.commit("second", [second], now_us=NOW)
    if end == "still open":
        # two processes of one name, the first of which comes late: it cannot continue after the second one began
        late = memoryview(block(b"3", transaction=first, writer=WRITER, sequence=3))
        assert reason(lambda: broker.native_appender.append(partition, late, now_us=NOW)) is Reason.WRITER_ID_REUSED
        broker.native_transactions.abort([first], now_us=NOW)
    found = payloads(read(broker, partition))
    assert found == [b"0", b"1", b"2"] * (2 if end == "commit" else 1)
    broker.stop()


def test_numbers_may_continue_over_transactions(broker: Broker, partition: Partition) -> None:
    for sequence in range(4):
        one = broker.native_transactions.begin(now_us=NOW)
        append_block(broker, partition, block(b"%d" % sequence, transaction=one, writer=WRITER, sequence=sequence))
        if sequence % 2:
            broker.native_transactions.commit(f"key {sequence}", [one], now_us=NOW)
        else:
            broker.native_transactions.abort([one], now_us=NOW)
    assert payloads(read(broker, partition)) == [b"1", b"3"]


def test_a_number_that_was_used_in_a_transaction_is_refused_outside_of_it(broker: Broker, partition: Partition) -> None:
    one = broker.native_transactions.begin(now_us=NOW)
    data = block(b"x", transaction=one, writer=WRITER)
    append_block(broker, partition, data)
    broker.native_transactions.abort([one], now_us=NOW)
    plain = memoryview(block(b"x", writer=WRITER))
    assert reason(lambda: broker.native_appender.append(partition, plain, now_us=NOW)) is Reason.WRITER_ID_REUSED
    assert read(broker, partition).count == 0


def test_a_full_disk_takes_back_that_a_writer_started_again(tmp_path: Path) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    first, second = (broker.native_transactions.begin(now_us=NOW) for _ in range(2))
    for sequence in range(2):
        append_block(broker, partition, block(b"old", transaction=first, writer=WRITER, sequence=sequence))
    disk.failing = {"write"}
    data = block(b"new", transaction=second, writer=WRITER)
    assert append_block(broker, partition, data).error is not None
    disk.failing = set()
    assert not append_block(broker, partition, data).duplicate
    more = block(b"more", transaction=second, writer=WRITER, sequence=1)
    assert append_block(broker, partition, more).error is None
    broker.native_transactions.commit("key", [second], now_us=NOW)
    broker.native_transactions.abort([first], now_us=NOW)
    assert payloads(read(broker, partition)) == [b"new", b"more"]
    broker.stop()


def test_a_lost_catalog_assigns_no_transaction_id_again(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    one = broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"a", transaction=one, writer=WRITER))
    broker.native_transactions.commit("key", [one], now_us=NOW)
    broker._memory.snapshot_all()
    broker.stop()
    for path in tmp_path.glob("catalog.sqlite*"):
        path.unlink()
    again = opened(tmp_path)
    assert again.native_transactions.begin(now_us=NOW) > one
    again.stop()


def test_a_snapshot_of_version_1_knows_blocks_without_their_transaction() -> None:
    document = {
        "version": 1,
        "writers": [[WRITER.hex(), 0, 2, [[0, 10, 11, 1], [1, 11, 12, 1]]]],
        "transactions": [[7, [[11, 12]]]],
    }
    writers = Writers(64, 100)
    writers.load(json.dumps(document).encode(), "writers.snapshot")
    plain = writers.find(WRITER, 0, 0, {}, digest=5)
    assert plain is not None and plain.base_offset == 10
    repeated = writers.find(WRITER, 0, 1, {}, transaction_id=7, digest=5)
    assert repeated is not None and repeated.base_offset == 11
    assert reason(lambda: writers.find(WRITER, 0, 0, {}, transaction_id=7)) is Reason.WRITER_ID_REUSED
    assert writers.find(WRITER, 0, 0, {}, transaction_id=8) is None
    again = Writers(64, 100)
    again.load(writers.dump(), "writers.snapshot")
    assert list(again.items()) == list(writers.items())
