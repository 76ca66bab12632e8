"""Compaction next to transactions, channels, states, readers of the directory, damage and a full disk."""

from __future__ import annotations

import errno
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.channels import partition_dispatcher
from lading.broker.channels.window import Window
from lading.broker.core.append.append import WriteResult
from lading.broker.core.topology import Partition
from lading.broker.core.writers import SNAPSHOT, SNAPSHOTS
from lading.broker.kafka.append import BatchSequence
from lading.broker.kafka.transactional_producer import Caller
from lading.chunk.runs import runs
from lading.dialects import codes, registry
from lading.dialects.kafka import protocol as kafka_row
from lading.dialects.kafka import sequenced_batches
from lading.dialects.kafka.encode import ProducerSequence, RecordEncoder
from lading.dialects.kafka.layout import ATTRIBUTES_AT, CRC_AT, TRANSACTIONAL
from lading.log.interface import RewrittenSegment
from lading.log.reader import DirectoryReader
from lading.model.scan_request import ScanRequest
from lading.model.state import State
from tests.broker.channel_room import Reader
from tests.broker.room import NOW, SECOND, opened, read
from tests.broker.test_channels import pump
from tests.broker.test_compaction import Record, close_segment, compact, compacted, contents, put, to_batch
from tests.broker.test_native_append import crashed
from tests.broker.test_producers import begin, end, named
from tests.faults.faulty import FaultyDisk, failing

A, B = b"a", b"b"


def send(broker: Broker, partition: Partition, caller: Caller, sequence: int, *records: Record) -> int:
    """A batch of a transaction, as the endpoint appends it; the offset of its first record."""
    who = BatchSequence(caller.producer_id, caller.epoch, sequence, len(records), True)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        rows = to_batch(records, base_offset)
        times = np.full(len(records), NOW)
        producer = ProducerSequence(caller.producer_id, caller.epoch, sequence)
        made = bytearray(RecordEncoder(rows, times, np.arange(base_offset, base_offset + len(records))).encode(
            0, len(records), producer
        ))  # fmt: skip
        made[ATTRIBUTES_AT + 1] |= TRANSACTIONAL
        made[CRC_AT : CRC_AT + 4] = google_crc32c.value(bytes(made[CRC_AT + 4 :])).to_bytes(4, "big")
        array[at : at + len(made)] = np.frombuffer(made, np.uint8)
        return WriteResult(len(made), len(records), NOW, NOW)

    base = partition.log.next_offset
    broker.producers.append(partition, who, 1 << 16, write, None)
    broker.appender.flush()
    return base


def kept(broker: Broker, partition: Partition) -> list[tuple[bytes | None, bytes | None]]:
    """Key and payload of what a reader of committed records sees."""
    reading = read(broker, partition, reader=kafka_row.COMMITTED)
    aborted = [range(*span) for span in partition.log.aborted_ranges(0, reading.end_offset)]
    found = []
    for run, low, high in reading.pieces:
        for part in registry.decode(run, ScanRequest(low, high)):
            rows = registry.to_batch(part).to_pylist()
            found += [
                (row["key"], row["payload"]) for row in rows if not any(row["offset"] in span for span in aborted)
            ]
    return found


def offsets_of_batches(partition: Partition) -> list[int]:
    """The base offsets of all record batches, those of control records too."""
    found, at = [], 0
    while (span := partition.log.read(at, 1 << 20)) is not None:
        for run in runs(span.region, span.start, span.end):
            found += [batch.base_offset for batch in sequenced_batches.iter_batches(run, 0) if batch.numbers]
        at = span.end_offset
    return found


def test_no_aborted_record_decides_and_markers_go_when_they_may(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker, tombstone_retention_us=10 * SECOND)
    put(broker, partition, (A, b"0"), (B, b"0"))
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, partition, caller, 0, (A, b"aborted"), (b"c", b"aborted"))
    end(broker, caller, commit=False)
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, partition, caller, 0, (B, b"committed"))
    end(broker, caller)
    compact(broker, partition)
    # offsets 0 and 1, 2 and 3 aborted, 4 the abort, 5 committed, 6 the commit
    assert kept(broker, partition) == [(A, b"0"), (B, b"committed")]
    assert offsets_of_batches(partition) == [0, 4, 5, 6]
    assert partition.log.aborted_ranges(0, 100) == [] and len(partition.log.control_ranges(0, 100)) == 2
    # past the time of tombstones the abort goes; the commit stays as long as its record does
    put(broker, partition, (b"d", b"0"))
    compact(broker, partition, NOW + 20 * SECOND)
    assert kept(broker, partition) == [(A, b"0"), (B, b"committed"), (b"d", b"0")]
    assert offsets_of_batches(partition) == [0, 5, 6, 7]
    assert partition.log.control_ranges(0, 100) == [(6, 7)]
    put(broker, partition, (B, b"later"))
    compact(broker, partition, NOW + 40 * SECOND)
    assert offsets_of_batches(partition) == [0, 7, 8]
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partitions[0]
    assert kept(broker, partition) == [(A, b"0"), (b"d", b"0"), (B, b"later")]
    assert partition.log.last_stable_offset == 9


def test_each_round_cleans_what_numbered_writers_sent_after_segments_were_merged(tmp_path: Path) -> None:
    """A merge and the next closed segment left the count of segments as it was: no snapshot, nothing was cleaned."""
    broker = opened(tmp_path)
    partition = compacted(broker)
    caller = named(broker)
    for number in range(3):
        begin(broker, caller, partition)
        send(broker, partition, caller, number, (A, b"%d" % number))
        end(broker, caller)
        # cleans, and merges, what was closed before
        broker.compaction.begin_round(NOW + number * SECOND)
        close_segment(broker, partition)
    broker.compaction.begin_round(NOW + 3 * SECOND)
    assert kept(broker, partition) == [(A, b"2")]
    assert broker.compaction.progress_of(partition).end == partition.log.next_offset


def test_an_open_transaction_is_not_touched_and_a_lost_snapshot_finds_the_same_outcomes(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    put(broker, partition, (A, b"0"))
    done, caller = named(broker, "done"), named(broker, "open")
    begin(broker, done, partition)
    send(broker, partition, done, 0, (A, b"1"))
    end(broker, done)
    close_segment(broker, partition)
    begin(broker, caller, partition)
    first = send(broker, partition, caller, 0, (A, b"2"))
    compact(broker, partition)
    compact(broker, partition)
    assert kept(broker, partition) == [(A, b"1")] and partition.log.last_stable_offset == first
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partitions[0]
    partition.log.forget_snapshot(SNAPSHOT)
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partitions[0]
    assert kept(broker, partition) == [(A, b"1")] and partition.log.last_stable_offset == first


def test_a_writer_that_sends_a_removed_batch_again_repeats_it(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    caller = named(broker)
    for sequence in range(3):
        begin(broker, caller, partition)
        send(broker, partition, caller, sequence, (A, b"%d" % sequence))
        end(broker, caller)
    compact(broker, partition)
    assert kept(broker, partition) == [(A, b"2")]
    begin(broker, caller, partition)
    end_before = partition.log.next_offset
    send(broker, partition, caller, 2, (A, b"2"))
    assert partition.log.next_offset == end_before and broker.counters.duplicate_blocks == 1


def test_states_of_removed_messages_go(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    put(broker, partition, (A, b"0"), (B, b"0"), (A, b"1"), (A, b"2"))
    partition.log.set_state(0, 1, State.POISONED, NOW)
    partition.log.set_state(1, 3, State.UNAVAILABLE, NOW)
    partition.log.set_state(3, 4, State.POISONED, NOW)
    partition.log.sync_states()
    compact(broker, partition)
    assert partition.log.unavailable_ranges(0, 10) == [(1, 3, State.UNAVAILABLE), (3, 4, State.POISONED)]
    for second in range(1, 5):
        broker.tick(NOW + second * SECOND)
    assert (tmp_path / "topics" / partition.topic.uuid.hex() / "0" / "states.log").stat().st_size == 2 * 36


def test_a_channel_passes_over_removed_messages_and_goes_on(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    channel = broker.channels.open(partition.topic, "ch")
    later = broker.channels.open(partition.topic, "later")
    reader = Reader().subscribe(channel, ready=2)
    put(broker, partition, (A, b"0"), (B, b"0"))
    pump(broker)
    assert reader.payloads() == [b"0", b"0"]
    put(broker, partition, *((A, b"%d" % number) for number in range(1, 9)))
    compact(broker, partition)
    # what a channel has read ahead it still delivers; a start reads anew
    broker.stop()
    broker = opened(tmp_path)
    topic = broker.topology.topic("s", "t")
    for name in (channel.name, later.name):
        other = broker.channels.open(topic, name)
        again = Reader().subscribe(other, ready=100)
        pump(broker, NOW + SECOND)
        assert sorted((offset, payload) for _, offset, payload, _ in again.got) == [(1, b"0"), (9, b"8")]
        again.finish_all()
        assert other.statistics().depth == 0


@pytest.mark.parametrize("in_the_map", [False, True])
def test_a_damaged_segment_is_left_alone_reported_and_removes_nothing(
    tmp_path: Path, in_the_map: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker, segment_bytes=1, tombstone_retention_us=0)
    for number in range(3):
        put(broker, partition, (A, b"%d" % number), (B, b"%d" % number))
        close_segment(broker, partition)
    segment = partition.log.list_closed_segments()[1 if in_the_map else 0]
    path = segment.directory / f"{segment.base_offset:020}.log"
    data = bytearray(path.read_bytes())
    for at in (60, 70, 90):
        data[at] ^= 0xFF
    path.write_bytes(data)
    partition.log.rest()
    if not in_the_map:
        put(broker, partition, (A, None))
    compact(broker, partition)
    put(broker, partition, (b"c", b"0"))
    compact(broker, partition, NOW + 10 * SECOND)
    assert path.read_bytes() == data
    assert "are damaged" in caplog.text
    rows = contents(broker, partition)
    if in_the_map:
        assert rows == [(4, A, b"2"), (5, B, b"2"), (6, b"c", b"0")]
    else:
        # the tombstone stays: what it removes may still be in the damaged segment
        assert rows == [(5, B, b"2"), (6, A, None), (7, b"c", b"0")]


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_disk_that_refuses_leaves_the_old_segment_and_is_tried_again(tmp_path: Path, operation: str) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    partition = compacted(broker)
    put(broker, partition, *((A, b"%d" % number) for number in range(9)))
    before = contents(broker, partition)
    close_segment(broker, partition)
    disk.fault = failing(operation, 0, at=".cleaned.tmp", error=errno.ENOSPC)
    compact(broker, partition)
    assert contents(broker, partition) == before and broker.counters.failed_compactions == 1
    assert partition.log.refusal is None
    assert not list(tmp_path.rglob("*.tmp"))
    compact(broker, partition, NOW + 2 * SECOND)
    assert broker.counters.failed_compactions == 1
    compact(broker, partition, NOW + 100 * SECOND)
    assert contents(broker, partition) == before[-1:]


def test_a_reader_of_the_directory_goes_on_over_segments_that_are_replaced_and_merged(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker, dirty_share_min=0.0)
    for number in range(6):
        put(broker, partition, *((b"%d" % key, b"%d" % number) for key in range(20)))
        close_segment(broker, partition)
    put(broker, partition, (b"end", b"0"))
    broker.tick(NOW + SECOND)
    directory = tmp_path / "topics" / partition.topic.uuid.hex() / "0"
    readers = [DirectoryReader(directory) for _ in range(5)]
    found: list[dict[int, bytes]] = [{} for _ in readers]
    positions = [0] * len(readers)

    def go_on(number: int, spans: int) -> None:
        for _ in range(spans):
            span = readers[number].read(positions[number], 1)
            if span is None:
                return
            for run in runs(span.region, span.start, span.end):
                for part in registry.decode(run, ScanRequest()):
                    rows = registry.to_batch(part).to_pylist()
                    found[number] |= {row["offset"]: row["payload"] for row in rows}
            positions[number] = span.end_offset

    for number in range(len(readers)):
        go_on(number, number)
    broker.compaction.begin_round(NOW + SECOND)
    assert partition.log.segments_count == 2
    latest = {100 + key: b"5" for key in range(20)} | {120: b"0"}
    for number in range(len(readers)):
        go_on(number, 100)
        assert latest.items() <= found[number].items(), number
        assert not readers[number].damaged_ranges(0, 121)
        assert all(found[number][offset] == b"%d" % (offset // 20) for offset in found[number] if offset < 120)


def test_a_poll_from_a_removed_offset_gives_the_next_message_and_passes_the_gap_at_the_end(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker, tombstone_retention_us=0)
    put(broker, partition, *((b"%d" % (number % 3), b"%d" % number) for number in range(30)))
    put(broker, partition, (b"gone", b"0"), (b"gone", None))
    compact(broker, partition)
    # the tombstone goes with the second cleaning, and leaves a gap before the end of the log
    close_segment(broker, partition)
    put(broker, partition, (b"1", b"30"))
    compact(broker, partition, NOW + 2 * SECOND)
    assert [row[:2] for row in contents(broker, partition)] == [(27, b"0"), (29, b"2"), (32, b"1")]
    for offset, expected in ((0, 27), (26, 27), (28, 29), (30, 32), (31, 32)):
        reading = read(broker, partition, offset, max_messages=1)
        [(run, low, high)] = reading.pieces
        [part] = registry.decode(run, ScanRequest(low, high))
        assert part.columns["offset"].to_pylist() == [expected] and reading.end_offset > expected
    # an aborted transaction at the end: its offsets are passed over, and a reader reaches the end
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, partition, caller, 0, (b"0", b"aborted"))
    end(broker, caller, commit=False)
    compact(broker, partition, NOW + 3 * SECOND)
    reading = read(broker, partition, 33)
    assert reading.count == 0 and reading.end_offset == partition.log.next_offset == 35


def test_a_reader_of_the_directory_sees_no_aborted_record_after_its_range_is_forgotten(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    put(broker, partition, (B, b"0"))
    caller = named(broker)
    begin(broker, caller, partition)
    send(broker, partition, caller, 0, (A, b"aborted"))
    end(broker, caller, commit=False)
    close_segment(broker, partition)
    put(broker, partition, (b"c", b"0"))
    broker.tick(NOW + SECOND)
    reader = DirectoryReader(tmp_path / "topics" / partition.topic.uuid.hex() / "0")
    span = reader.read(0, 1)
    assert span is not None and span.end_offset == 1 and reader.aborted_ranges(0, 9) == [(1, 2)]
    broker.compaction.begin_round(NOW + 2 * SECOND)
    for second in range(3, 7):
        broker.tick(NOW + second * SECOND)
    reader.refresh()
    assert reader.aborted_ranges(0, 9) == []
    found = []
    while (span := reader.read(span.end_offset, 1 << 20)) is not None:
        for run in runs(span.region, span.start, span.end):
            for part in registry.decode(run, ScanRequest(1)):
                found += [row["payload"] for row in registry.to_batch(part).to_pylist()]
    assert found == [b"0"]


def test_readers_go_on_in_a_segment_that_is_rewritten_before_the_sync_of_the_next_one(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    for number in range(50):
        put(broker, partition, (A, b"%d" % number * 50))
    # a sync thread still works on the name of the next segment
    assert partition.log.roll()
    broker.compaction.begin_round(NOW + SECOND)
    assert contents(broker, partition) == [(49, A, b"49" * 50)]


def test_a_chunk_that_cannot_be_decoded_keeps_only_its_segment_from_being_cleaned(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    put(broker, partition, (A, b"0"), (B, b"0"))
    close_segment(broker, partition)

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        array[at : at + 50] = 7
        return WriteResult(50, 1, NOW, NOW)

    broker.appender.append(partition, codes.KAFKA, 0, 50, write, None)
    broker.appender.flush()
    close_segment(broker, partition)
    put(broker, partition, (A, b"1"))
    compact(broker, partition)
    assert [segment.base_offset for segment in partition.log.list_closed_segments()] == [0, 2, 3]
    span = partition.log.read(0, 1)
    assert span is not None
    [run] = runs(span.region, span.start, span.end)
    [part] = registry.decode(run, ScanRequest())
    assert [row["key"] for row in registry.to_batch(part).to_pylist()] == [B]
    assert broker.compaction.progress_of(partition).end == 4


def test_a_cleaning_whose_segments_are_deleted_meanwhile_does_not_count(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker, tombstone_retention_us=0)
    put(broker, partition, (B, b"0"))
    close_segment(broker, partition)
    put(broker, partition, (A, b"0"))
    close_segment(broker, partition)
    replace_segment = partition.log.replace_segment

    def delete_before_replacing(rewritten: RewrittenSegment) -> bool:
        partition.log.truncate_before(1)
        return replace_segment(rewritten)

    put(broker, partition, (A, None))
    partition.log.replace_segment = delete_before_replacing  # type: ignore[method-assign]
    compact(broker, partition)
    partition.log.replace_segment = replace_segment  # type: ignore[method-assign]
    assert contents(broker, partition) == [(1, A, b"0"), (2, A, None)]
    # else the tombstone went before the message that it removes
    for minute in (2, 4):
        put(broker, partition, (b"%d" % minute, b"0"))
        compact(broker, partition, NOW + minute * 60 * SECOND)
    assert [row[1] for row in contents(broker, partition)] == [b"2", b"4"]


def test_a_channel_takes_few_messages_of_many_offsets_without_a_row_for_each_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_dispatcher, "LOOKAHEAD_MAX", 256)
    monkeypatch.setattr(partition_dispatcher, "PAGE_MESSAGES", 64)
    broker = opened(tmp_path)
    partition = compacted(broker)
    for key in range(5):
        put(broker, partition, (b"k%d" % key, b"%d" % key), *((A, b"old") for _ in range(400)))
    put(broker, partition, (A, b"last"))
    compact(broker, partition)
    channel = broker.channels.open(partition.topic, "ch")
    reader = Reader().subscribe(channel, ready=100)
    sizes: list[int] = []
    need = Window._make_room

    def note_need(window: Window, size: int) -> None:
        sizes.append(size)
        need(window, size)

    monkeypatch.setattr(Window, "_make_room", note_need)
    for second in range(4):
        pump(broker, NOW + second * SECOND)
    assert reader.payloads() == [b"0", b"1", b"2", b"3", b"4", b"last"]
    assert max(sizes) <= 512
    reader.finish_all()
    assert channel.statistics().depth == 0


def number(broker: Broker, partition: Partition, sequence: int, *records: Record) -> int:
    """Append a batch of producer 9, which has no transactions; it is not synced. Return its first offset."""
    base = partition.log.next_offset

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        rows = to_batch(records, base_offset)
        encoder = RecordEncoder(rows, np.full(len(records), NOW), np.arange(base_offset, base_offset + len(records)))
        made = encoder.encode(0, len(records), ProducerSequence(9, 0, sequence))
        array[at : at + len(made)] = np.frombuffer(made, np.uint8)
        return WriteResult(len(made), len(records), NOW, NOW)

    batch = BatchSequence(9, 0, sequence, len(records))
    broker.producers.append(partition, batch, 1 << 16, write, None)
    return base


def test_a_snapshot_under_load_that_a_crash_takes_back_costs_no_producer_its_numbers(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    for sequence in range(3):
        number(broker, partition, sequence, (A if sequence else B, b"%d" % sequence))
    broker.appender.flush()
    put(broker, partition, (A, b"later"))
    compact(broker, partition)
    assert contents(broker, partition) == [(0, B, b"0"), (3, A, b"later")]
    # what is not written yet is in the snapshot, and lost
    number(broker, partition, 3, (A, b"3"))
    broker._memory.snapshot(partition)
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partitions[0]
    number(broker, partition, 2, (A, b"2"))
    assert broker.counters.duplicate_blocks == 1 and partition.log.next_offset == 4
    assert number(broker, partition, 3, (A, b"3")) == 4


def test_a_batch_of_which_some_records_are_left_takes_as_many_numbers_as_before(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    number(broker, partition, 0, (A, b"0"), (B, b"0"), (A, b"1"), (b"c", b"0"))
    broker.appender.flush()
    put(broker, partition, (b"c", b"1"))
    compact(broker, partition)
    for name in SNAPSHOTS:
        partition.log.forget_snapshot(name)
    broker = crashed(tmp_path, broker)
    partition = broker.topology.topic("s", "t").partitions[0]
    assert number(broker, partition, 4, (A, b"2")) == 5
