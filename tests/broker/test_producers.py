"""Producers: each batch once, transactions seen as a whole or never, whatever is repeated, lost, killed or late."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lading.broker.broker import Broker
from lading.broker.core.append.append import BEFORE_IN_PLACE_BYTES, InPlace
from lading.broker.core.position import PositionKey, StoredPosition
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Partition
from lading.broker.kafka.append import writer_of
from lading.broker.kafka.group import KAFKA
from lading.broker.kafka.transactional_producer import ENDED, TRANSITIONS, Caller, ProducerIdAndEpoch, ProducerState
from lading.dialects.iggy.classic import protocol as iggy_row
from lading.dialects.kafka import protocol as kafka_row
from lading.dialects.kafka import sequenced_batches
from lading.dialects.native import protocol as native_row
from lading.dialects.nsq import protocol as nsq_row
from lading.log.reader import DirectoryReader
from lading.model.errors import Reason, Refusal
from tests.broker.kafka_batches import as_kafka, committed, produce
from tests.broker.room import NOW, SECOND, fill, opened, topic_of
from tests.broker.test_append import FailingDisk
from tests.broker.test_native_append import crashed

VECTORS = Path(__file__).parent.parent / "vectors" / "kafka_vectors.json"
KEY = PositionKey(KAFKA, "g")


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path)


@pytest.fixture
def partition(broker: Broker) -> Partition:
    return topic_of(broker).partition(0)


def refused(act: Callable[[], object]) -> Reason:
    with pytest.raises(Refusal) as refusal:
        act()
    return refusal.value.reason


def named(broker: Broker, name: str = "tx", timeout_s: int = 60, known: ProducerIdAndEpoch | None = None) -> Caller:
    answer = broker.producers.init_producer_id(name, timeout_s * SECOND, known, now_us=NOW)
    broker.appender.flush()
    return Caller(name, *answer.value)


def begin(broker: Broker, caller: Caller, *partitions: Partition, now_us: int = NOW) -> None:
    broker.producers.add_partitions(caller, partitions, now_us=now_us)


def send(
    broker: Broker, caller: Caller, partition: Partition, *payloads: bytes, sequence: int, flush: bool = True
) -> None:
    facts: Any = {"producer": caller.producer_id, "epoch": caller.epoch, "sequence": sequence}
    produce(broker, partition, *payloads, **facts, transactional=True, flush=flush)


def end(broker: Broker, caller: Caller, commit: bool = True) -> None:
    answer = broker.producers.end(caller, commit, now_us=NOW)
    broker.appender.flush()
    assert answer.done
    assert answer.value is None


def open_transaction(tmp_path: Path, payload: bytes) -> tuple[FailingDisk, Broker, Partition, Caller]:
    """A broker on a disk that can fail, with a message of a transaction that is open."""
    disk = FailingDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, payload, sequence=0)
    return disk, broker, partition, caller


def test_control_records_are_those_of_the_vectors() -> None:
    for vector in json.loads(VECTORS.read_text())["control_synthesised"]:
        commit = vector["name"] == "commit_marker"
        made = sequenced_batches.marker(writer_of(1001), 0, commit, 5, 0, 1_700_000_000_123_000)
        assert made.hex() == vector["batch_hex"]


def test_ids_are_never_given_twice(tmp_path: Path, broker: Broker) -> None:
    given = [broker.producers.init_producer_id(None, 0, None, now_us=NOW).value for _ in range(3)]
    given.append(broker.producers.init_producer_id("name", SECOND, None, now_us=NOW).value)
    broker = crashed(tmp_path, broker)
    given.append(broker.producers.init_producer_id(None, 0, None, now_us=NOW).value)
    assert len({one.producer_id for one in given}) == len(given)
    assert {one.epoch for one in given} == {0}


def test_a_batch_is_kept_once(broker: Broker, partition: Partition) -> None:
    for sequence in range(0, 20, 2):
        done = produce(broker, partition, b"a%d" % sequence, b"b", producer=7, sequence=sequence)
        assert (done.base_offset, done.duplicate) == (sequence, False)
    for sequence in range(10, 20, 2):
        again = produce(broker, partition, b"other", b"bytes", producer=7, sequence=sequence)
        assert (again.done, again.duplicate, again.base_offset) == (True, True, sequence)
    assert partition.log.next_offset == 20
    out = [(7, 0, 22), (7, 0, 19), (7, 1, 5)]
    for producer, epoch, sequence in out:
        facts: Any = {"producer": producer, "epoch": epoch, "sequence": sequence}
        assert refused(lambda facts=facts: produce(broker, partition, b"x", **facts)) is Reason.OUT_OF_SEQUENCE  # type: ignore[misc]
    assert produce(broker, partition, b"new epoch", producer=7, epoch=1, sequence=0).base_offset == 20
    assert refused(lambda: produce(broker, partition, b"x", producer=7, epoch=0, sequence=20)) is Reason.PRODUCER_FENCED


def test_sequences_begin_again(broker: Broker, partition: Partition) -> None:
    last = (1 << 31) - 2
    produce(broker, partition, b"a", b"b", b"c", producer=7, sequence=last)
    assert produce(broker, partition, b"d", producer=7, sequence=1).base_offset == 3
    assert produce(broker, partition, b"a", b"b", b"c", producer=7, sequence=last).duplicate


@pytest.mark.parametrize("segment_bytes", [1 << 30, 1 << 10])
def test_what_a_producer_wrote_is_known_after_a_crash(tmp_path: Path, segment_bytes: int) -> None:
    broker = opened(tmp_path, segment_bytes=segment_bytes)
    topic_of(broker)
    sequence = 0
    generator = random.Random(7)
    for _ in range(6):
        partition = broker.topology.topic("s", "t").partition(0)
        for _ in range(generator.randint(1, 9)):
            done = produce(broker, partition, b"x" * 100, b"y", producer=3, sequence=sequence)
            assert not done.duplicate
            sequence += 2
        broker.tick(NOW)
        broker = crashed(tmp_path, broker, segment_bytes=segment_bytes)
        partition = broker.topology.topic("s", "t").partition(0)
        again = produce(broker, partition, b"x" * 100, b"y", producer=3, sequence=sequence - 2)
        assert (again.duplicate, again.base_offset) == (True, sequence - 2)
        skipped: Any = {"producer": 3, "sequence": sequence + 2}
        assert refused(lambda: produce(broker, partition, b"gap", **skipped)) is Reason.OUT_OF_SEQUENCE  # noqa: B023
    assert partition.log.next_offset == sequence


def test_a_committed_transaction_is_seen_as_a_whole(tmp_path: Path, broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"1", b"2", sequence=0)
    fill(broker, partition, 1)
    send(broker, caller, partition, b"3", sequence=2)
    assert committed(broker, partition) == as_kafka(broker, partition) == []
    assert committed(broker, partition, kafka_row.UNCOMMITTED) == [b"1", b"2", b"0", b"3"]
    end(broker, caller)
    assert committed(broker, partition) == [b"1", b"2", b"0", b"3"]
    assert (partition.log.last_stable_offset, partition.log.control_ranges(0, 9)) == (5, [(4, 5)])
    end(broker, caller)
    assert refused(lambda: broker.producers.end(caller, False, now_us=NOW)) is Reason.TRANSACTION_NOT_OPEN
    broker.tick(NOW + SECOND)
    directory = DirectoryReader(next((tmp_path / "topics").glob("*/0")))
    assert (directory.last_stable_offset, directory.control_ranges(0, 9)) == (5, [(4, 5)])


def test_an_aborted_one_is_never_seen(broker: Broker, partition: Partition) -> None:
    one, two = named(broker, "one"), named(broker, "two")
    for caller in (one, two):
        begin(broker, caller, partition)
    send(broker, one, partition, b"a1", sequence=0)
    send(broker, two, partition, b"b1", sequence=0)
    send(broker, one, partition, b"a2", sequence=1)
    end(broker, one, commit=False)
    assert committed(broker, partition) == []
    end(broker, two)
    begin(broker, one, partition)
    send(broker, one, partition, b"a3", sequence=2)
    end(broker, one)
    assert committed(broker, partition) == [b"b1", b"a3"]
    for reader in (iggy_row.SHOWING, nsq_row.CHANNEL, native_row.AVAILABLE):
        assert committed(broker, partition, reader) == [b"b1", b"a3"]
    for first in range(partition.log.next_offset):
        seen = as_kafka(broker, partition, first)
        assert seen == [b"b1", b"a3"][(first > 1) + (first > 5) :]
    assert broker.producers.list_aborted(partition, 0, 9) == [(one.producer_id, 0)]
    assert partition.log.aborted_ranges(0, 9) == [(0, 1), (2, 3)]


def test_who_asks_for_the_name_shuts_out_who_had_it(broker: Broker, partition: Partition) -> None:
    old = named(broker)
    begin(broker, old, partition)
    send(broker, old, partition, b"lost", sequence=0)
    new = named(broker)
    assert (new.producer_id, new.epoch > old.epoch) == (old.producer_id, True)
    assert partition.log.aborted_ranges(0, 9) == [(0, 1)]
    assert refused(lambda: send(broker, old, partition, b"late", sequence=1)) is Reason.PRODUCER_FENCED
    assert refused(lambda: begin(broker, old, partition)) is Reason.PRODUCER_FENCED
    assert refused(lambda: broker.producers.end(old, True, now_us=NOW)) is Reason.PRODUCER_FENCED
    begin(broker, new, partition)
    send(broker, new, partition, b"kept", sequence=0)
    end(broker, new)
    assert committed(broker, partition) == as_kafka(broker, partition) == [b"kept"]


def test_an_identity_can_be_asked_for_again(broker: Broker) -> None:
    first = named(broker)
    known = ProducerIdAndEpoch(first.producer_id, first.epoch)
    second = named(broker, known=known)
    assert second.epoch == first.epoch + 1
    assert named(broker, known=known) == second
    named(broker)
    assert refused(lambda: named(broker, known=known)) is Reason.PRODUCER_FENCED
    assert refused(lambda: named(broker, timeout_s=0)) is Reason.INVALID_TRANSACTION_TIMEOUT
    assert refused(lambda: named(broker, timeout_s=901)) is Reason.INVALID_TRANSACTION_TIMEOUT


def test_epochs_run_out(broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    producer = broker.producers._names["tx"]
    broker.producers._put(producer, producer.transition(ProducerState.EMPTY, epoch=(1 << 15) - 2))
    renewed = named(broker)
    assert renewed.producer_id != caller.producer_id
    assert renewed.epoch == 0
    begin(broker, renewed, partition)
    send(broker, renewed, partition, b"x", sequence=0)
    end(broker, renewed)
    assert committed(broker, partition) == [b"x"]


def test_nothing_is_written_outside_of_a_transaction(broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    assert refused(lambda: send(broker, caller, partition, b"x", sequence=0)) is Reason.TRANSACTION_NOT_OPEN
    assert refused(lambda: broker.producers.end(caller, True, now_us=NOW)) is Reason.TRANSACTION_NOT_OPEN
    begin(broker, caller)
    assert refused(lambda: send(broker, caller, partition, b"x", sequence=0)) is Reason.TRANSACTION_NOT_OPEN
    plain: Any = {"producer": caller.producer_id, "epoch": caller.epoch}
    assert refused(lambda: produce(broker, partition, b"x", **plain)) is Reason.TRANSACTION_NOT_OPEN
    stranger: Any = {"producer": 999_999, "transactional": True}
    assert refused(lambda: produce(broker, partition, b"x", **stranger)) is Reason.PRODUCER_UNKNOWN
    assert refused(lambda: begin(broker, Caller("nobody", 1, 0))) is Reason.PRODUCER_UNKNOWN
    assert partition.log.next_offset == 0


def test_what_is_open_for_too_long_is_aborted(broker: Broker, partition: Partition) -> None:
    caller = named(broker, timeout_s=10)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"x", sequence=0)
    broker.tick(NOW + 9 * SECOND)
    assert partition.log.aborted_ranges(0, 9) == []
    broker.tick(NOW + 10 * SECOND)
    broker.appender.flush()
    assert partition.log.aborted_ranges(0, 9) == [(0, 1)]
    assert refused(lambda: broker.producers.end(caller, True, now_us=NOW)) is Reason.PRODUCER_FENCED
    assert named(broker).epoch > caller.epoch


def test_an_open_transaction_goes_on_after_a_crash(tmp_path: Path, broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"before", sequence=0)
    broker.producers.store_positions(caller, {(partition, KEY): StoredPosition(5, 1, b"m", NOW)})
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partition(0)
    broker.tick(NOW + SECOND)
    assert committed(broker, partition) == []
    assert broker.producers.waits(partition, KEY)
    assert KEY not in partition.positions
    send(broker, caller, partition, b"after", sequence=1)
    end(broker, caller)
    assert committed(broker, partition) == as_kafka(broker, partition) == [b"before", b"after"]
    assert partition.positions[KEY] == StoredPosition(5, 1, b"m", NOW)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("then", ["crash", "crash after a snapshot", "room", "failed sync"])
def test_a_decision_is_finished_later(tmp_path: Path, commit: bool, then: str) -> None:
    disk = FailingDisk()
    broker = opened(tmp_path, disk=disk)
    partitions = topic_of(broker, partitions=3).partitions
    caller = named(broker)
    begin(broker, caller, *partitions)
    for partition in partitions:
        send(broker, caller, partition, b"x", sequence=0)
    broker.producers.store_positions(caller, {(partitions[0], KEY): StoredPosition(5, None, None, NOW)})
    if "snapshot" in then:
        for partition in partitions:
            broker._memory.snapshot(partition)
    disk.failing, disk.errno = ({"sync"}, errno.EIO) if then == "failed sync" else ({"write"}, errno.ENOSPC)
    answer = broker.producers.end(caller, commit, now_us=NOW)
    broker.appender.flush()
    assert answer.done
    assert answer.value is None
    assert refused(lambda: begin(broker, caller, *partitions)) is Reason.TRANSACTION_IN_PROGRESS
    # a control record that is written and not synced takes no decision back
    shown = [[b"x"] if commit and then == "failed sync" else []] * 3
    assert [committed(broker, partition) for partition in partitions] == shown
    disk.failing = set()
    if then != "room":
        broker = crashed(tmp_path, broker)
        partitions = broker.topology.topic("s", "t").partitions
    broker.tick(NOW)
    broker.appender.flush()
    assert [committed(broker, partition) for partition in partitions] == [[b"x"] if commit else []] * 3
    assert [partition.log.last_stable_offset for partition in partitions] == [2, 2, 2]
    assert (KEY in partitions[0].positions) is commit
    # and the producer goes on
    end(broker, caller, commit)
    begin(broker, caller, partitions[0])


def test_killed_anywhere_it_ends_as_acknowledged(tmp_path: Path, full: bool) -> None:
    generator = random.Random(42)
    seen = {"commit": 0, "abort": 0, "open": 0, "rounds": 0}
    broker = opened(tmp_path)
    partitions = topic_of(broker, partitions=2).partitions
    expected: list[list[bytes]] = [[], []]
    caller, sequences = named(broker), [0, 0]
    for number in range(300 if full else 40):
        commit = generator.random() < 0.6
        begin(broker, caller, *partitions)
        sent: list[list[bytes]] = [[], []]
        for _ in range(generator.randint(1, 4)):
            at = generator.randint(0, 1)
            payload = b"%d" % number
            send(broker, caller, partitions[at], payload, sequence=sequences[at])
            sequences[at] += 1
            sent[at].append(payload)
        kill = generator.choice(["before", "during", "after", "no"])
        if kill == "before":
            seen["open"] += 1
            broker = crashed(tmp_path, broker)
            partitions = broker.topology.topic("s", "t").partitions
        answer = broker.producers.end(caller, commit, now_us=NOW)
        if kill != "during":
            broker.appender.flush()
            assert answer.done
        if kill in ("during", "after"):
            broker = crashed(tmp_path, broker)
            partitions = broker.topology.topic("s", "t").partitions
            broker.tick(NOW)
            broker.appender.flush()
        seen["commit" if commit else "abort"] += 1
        seen["rounds"] += 1
        for at in range(2) if commit else ():
            expected[at] += sent[at]
    for at, partition in enumerate(partitions):
        assert committed(broker, partition) == as_kafka(broker, partition) == expected[at]
        assert partition.log.last_stable_offset == partition.log.next_offset
    print(f"transactions killed: {seen}, lost 0, twice 0, seen though aborted 0")


@pytest.mark.parametrize("left", ["nothing", "an older one"])
def test_a_full_disk_stops_no_start_that_has_to_find_aborted_ranges_again(tmp_path: Path, left: str) -> None:
    """``states.log`` did not outlive a power cut, or ends before the last records; the log has what they said."""
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    caller = named(broker)
    states = next(tmp_path.rglob(f"{0:020}.log")).with_name("states.log")
    before = None
    for number, payload in enumerate((b"first", b"second")):
        begin(broker, caller, partition)
        send(broker, caller, partition, payload, sequence=number)
        end(broker, caller, False)
        before = before or states.read_bytes()
    produce(broker, partition, b"plain", producer=77, sequence=0)
    assert committed(broker, partition) == [b"plain"]
    disk = FailingDisk()
    disk.suffix, disk.failing, disk.errno = "", {"write"}, errno.ENOSPC
    states.write_bytes(before or b"") if left == "an older one" else states.unlink()
    broker = crashed(tmp_path, broker, disk=disk)
    partition = broker.topology.topic("s", "t").partition(0)
    broker.tick(NOW + SECOND)
    # nothing aborted is shown, and nothing behind what is not on disk
    assert committed(broker, partition) == [] == as_kafka(broker, partition)
    disk.failing = set()
    for at in range(2, 5):
        broker.tick(NOW + at * SECOND)
    assert committed(broker, partition) == [b"plain"] == as_kafka(broker, partition)
    # what is on disk now is found there by the next one
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partition(0)
    assert not partition.log.recovery.states_lost and committed(broker, partition) == [b"plain"]
    broker.stop()


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("then", ["goes on", "is killed"])
def test_an_end_that_states_log_cannot_take_is_written_once(tmp_path: Path, commit: bool, then: str) -> None:
    """Its control record is in the log: a snapshot without it would have the transaction open again after a crash."""
    disk, broker, partition, caller = open_transaction(tmp_path, b"first")
    disk.suffix, disk.failing, disk.errno = "states.log.tmp", {"write"}, errno.ENOSPC
    end(broker, caller, commit)
    # readers wait before what is not on disk: the control record, and what it takes back
    assert committed(broker, partition) == [b"first"] * commit == as_kafka(broker, partition)
    assert partition.log.last_stable_offset == int(commit)
    with pytest.raises(Refusal, match="disk is full"):
        broker._memory.snapshot(partition)
    disk.failing = set()
    if then == "is killed":
        broker = crashed(tmp_path, broker)
        partition = broker.topology.topic("s", "t").partition(0)
    for at in range(1, 4):
        broker.tick(NOW + at * SECOND)
    assert committed(broker, partition) == [b"first"] * commit == as_kafka(broker, partition)
    assert partition.log.control_ranges(0, 100) == [(1, 2)]
    assert partition.log.aborted_ranges(0, 100) == [(0, 1)] * (not commit)
    assert partition.log.next_offset == 2
    broker.stop()


def test_positions_wait_for_the_commit(broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    broker.producers.add_offsets(caller, now_us=NOW)
    for commit, offset in ((False, 3), (True, 5)):
        broker.producers.add_offsets(caller, now_us=NOW)
        broker.producers.store_positions(caller, {(partition, KEY): StoredPosition(offset, None, None, NOW)})
        assert broker.producers.waits(partition, KEY)
        end(broker, caller, commit)
        assert not broker.producers.waits(partition, KEY)
    assert partition.positions[KEY].offset == 5


def test_an_end_waits_for_what_is_on_its_way(broker: Broker, partition: Partition) -> None:
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, caller, partition, b"x", sequence=0, flush=False)
    answer = broker.producers.end(caller, True, now_us=NOW)
    assert not answer.done
    assert broker.producers.rows()[0].state == ProducerState.ONGOING
    assert refused(lambda: begin(broker, caller, partition)) is Reason.TRANSACTION_IN_PROGRESS
    broker.appender.flush()
    broker.appender.flush()
    assert answer.done
    assert committed(broker, partition) == [b"x"]


def test_a_deleted_topic_ends_nothing_else(broker: Broker, partition: Partition) -> None:
    other = topic_of(broker, name="other").partition(0)
    caller = named(broker)
    begin(broker, caller, partition, other)
    send(broker, caller, partition, b"x", sequence=0)
    send(broker, caller, other, b"y", sequence=0)
    broker.at_once.delete_topic("s", "other")
    end(broker, caller)
    assert committed(broker, partition) == [b"x"]


def test_idle_names_are_forgotten(tmp_path: Path, broker: Broker, partition: Partition) -> None:
    named(broker, "idle")
    busy = named(broker, "busy")
    begin(broker, busy, partition)
    broker.producers.forget_before(NOW + SECOND)
    assert [row.name for row in broker.producers.rows()] == ["busy"]
    broker = crashed(tmp_path, broker)
    assert [row.name for row in broker.producers.rows()] == ["busy"]


def test_the_table_of_states_is_whole() -> None:
    assert set(TRANSITIONS) == set(ProducerState)
    assert all(after in TRANSITIONS[before] for before, after in ENDED.items())
    assert np.all([after in ProducerState for afters in TRANSITIONS.values() for after in afters])


def alone() -> object:
    """A source that is read once in a pass of the loop."""
    return object()


def received() -> InPlace:
    """A source whose messages are written from where they lie."""
    return InPlace(np.zeros(4096, np.uint8), BEFORE_IN_PLACE_BYTES)


@pytest.mark.parametrize("written", [alone, received])
def test_who_is_written_at_once_is_known_after_a_crash(tmp_path: Path, written: Callable[[], object]) -> None:
    """With small segments nearly every batch makes a snapshot of the producers before its append returns."""
    broker = Broker.open(tmp_path, BrokerSettings(durability="os", segment_bytes=3000), now_us=NOW)
    partition = topic_of(broker).partition(0)
    source = written()
    for number in range(12):
        append = produce(broker, partition, bytes(900), producer=1, sequence=number, flush=False, source=source)
        assert append.done and append.base_offset == number and partition.log.high_watermark == number + 1
        repeated = produce(broker, partition, bytes(900), producer=1, sequence=number, flush=False, source=source)
        assert repeated.done and repeated.duplicate and repeated.base_offset == number
    assert refused(lambda: produce(broker, partition, b"gap", producer=1, sequence=13)) is Reason.OUT_OF_SEQUENCE
    broker = crashed(tmp_path, broker, segment_bytes=3000)
    partition = broker.topology.topic("s", "t").partition(0)
    again = produce(broker, partition, bytes(900), producer=1, sequence=11)
    assert again.duplicate and again.base_offset == 11
    assert produce(broker, partition, b"next", producer=1, sequence=12).base_offset == 12
    broker.stop()


@pytest.mark.parametrize("written", [alone, received])
def test_what_could_not_be_written_at_once_may_be_sent_again(tmp_path: Path, written: Callable[[], object]) -> None:
    disk = FailingDisk()
    disk.errno = errno.ENOSPC
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW, disk=disk)
    partition = topic_of(broker).partition(0)
    source = written()
    assert produce(broker, partition, b"0", producer=1, sequence=0, flush=False, source=source).done
    for producer, sequence in ((1, 1), (2, 0)):
        disk.failing = {"write"}
        send_one = partial(
            produce, broker, partition, b"lost", producer=producer, sequence=sequence, flush=False, source=source
        )
        assert refused(send_one) is Reason.DISK_FULL
        # a later one is no first of its producer, and leaves a gap
        disk.failing = set()
        later = partial(produce, broker, partition, b"later", producer=producer, sequence=sequence + 1, source=source)
        assert refused(later) is Reason.OUT_OF_SEQUENCE
        assert not send_one().duplicate
    assert committed(broker, partition) == [b"0", b"lost", b"lost"]
    broker.stop()


@pytest.mark.parametrize("written", [alone, received])
def test_what_belongs_to_a_transaction_is_not_seen_before_its_end(
    tmp_path: Path, written: Callable[[], object]
) -> None:
    broker = Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW)
    partition = topic_of(broker).partition(0)
    caller = named(broker)
    begin(broker, caller, partition)
    who = {"producer": caller.producer_id, "epoch": caller.epoch}
    append = produce(broker, partition, b"in", **who, transactional=True, flush=False, source=written())
    assert not append.done
    broker.appender.flush()
    assert append.done and partition.log.last_stable_offset == 0 < partition.log.high_watermark
    assert committed(broker, partition) == []
    broker.stop()
