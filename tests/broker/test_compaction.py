"""Compaction: topics that keep the last message of each key, whoever wrote it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.core.compaction.key_offsets import KeyOffsets
from lading.broker.core.settings import TopicSettings
from lading.broker.core.topology import Partition
from lading.dialects import codes, registry
from lading.dialects.carrier.carry import carry
from lading.dialects.iggy.classic import protocol as iggy_row
from lading.dialects.native import protocol as native_row
from lading.dialects.nsq import protocol as nsq_row
from lading.log.group_commit import SyncNow
from lading.model.batch import SCHEMA
from lading.model.scan_request import ScanRequest
from tests.broker.room import NOW, SECOND, opened, read, topic_of

CARRIED = {
    codes.IGGY_CLASSIC: iggy_row.POLLED, codes.IGGY_ZERO_COPY: iggy_row.POLLED, codes.IGGY_CURRENT: iggy_row.POLLED,
    codes.NSQ: nsq_row.DELIVERED,
}  # fmt: skip
Record = tuple[bytes | None, bytes | None]
"""Key and payload."""


def compacted(broker: Broker, **settings: Any) -> Partition:
    """The partition of a compacted topic; all of its new bytes are cleaned at once."""
    topic = topic_of(broker)
    topic.settings = TopicSettings(cleanup_policy="compact", **{"dirty_share_min": 0.0, **settings})
    return topic.partitions[0]


def to_batch(records: Sequence[Record], offset: int = 0, time_us: int = NOW) -> pa.RecordBatch:
    rows = [
        {
            "offset": offset + number, "state": 1, "timestamp": time_us + number * 1000, "key": key, "payload": payload,
            "headers": [{"key": "n", "kind": 1, "value": b"%d" % (offset + number)}],
        }
        for number, (key, payload) in enumerate(records)
    ]  # fmt: skip
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def put(broker: Broker, partition: Partition, *records: Record, code: int = codes.KAFKA, time_us: int = NOW) -> int:
    """Append records as one chunk of a dialect; the offset of the first."""
    base = partition.log.next_offset

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        batch = to_batch(records, base_offset, time_us)
        if code in CARRIED:
            # keys, and payloads that are null, are in a header of these messages
            carried = carry(batch, CARRIED[code])
            assert not carried.unholdable
            batch = carried.batch
        body = registry.dialect(code).encode(batch)
        array[at : at + len(body)] = np.frombuffer(body, np.uint8)
        return WriteResult(len(body), len(records), time_us, time_us + 1000 * (len(records) - 1))

    broker.appender.append(partition, code, 0, 1 << 20, write, None)
    broker.appender.flush()
    return base


def close_segment(broker: Broker, partition: Partition) -> None:
    broker.close_segment(partition)


def compact(broker: Broker, partition: Partition, now_us: int = NOW + SECOND) -> None:
    """Close the active segment and clean all others."""
    close_segment(broker, partition)
    broker.compaction.begin_round(now_us)


def contents(broker: Broker, partition: Partition, first: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and payload of each message that a reader sees."""
    found = []
    at = first
    while True:
        reading = read(broker, partition, at, native_row.ALL_STATES, max_bytes=2000)
        for run, low, high in reading.pieces:
            for part in registry.decode(run, ScanRequest(low, high)):
                rows = registry.to_batch(part)
                for row in rows.to_pylist():
                    assert row["headers"][0]["value"] == b"%d" % row["offset"]
                    found.append((row["offset"], row["key"], row["payload"]))
        if reading.end_offset <= at:
            return found
        at = reading.end_offset


def test_the_last_message_of_each_key_stays_with_its_offset(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    for number in range(50):
        put(broker, partition, *((b"%d" % (key % 7), b"%d-%d" % (number, key)) for key in range(20)))
    before = contents(broker, partition)
    latest = {key: row for row in before for key in [row[1]]}
    compact(broker, partition)
    after = contents(broker, partition)
    assert after == sorted(latest.values())
    assert partition.log.next_offset == 1000 and broker.counters.compaction_removed_messages == 993
    assert partition.log.size_bytes < 3000
    broker.stop()
    again = opened(tmp_path)
    assert all(not report.damage for _, report in again.recoveries())
    [topic] = again.topology.list_topics()
    assert contents(again, topic.partitions[0]) == after


def test_the_chunk_that_was_written_last_is_not_served_from_memory(tmp_path: Path) -> None:
    """A reader that waited keeps it in memory; offset 0 was served after compaction had removed it."""
    broker = opened(tmp_path)
    partition = compacted(broker)
    partition.add_visible_callback(lambda: None)
    put(broker, partition, (b"a", b"0"), (b"a", b"1"))
    assert contents(broker, partition) == [(0, b"a", b"0"), (1, b"a", b"1")]
    compact(broker, partition)
    assert contents(broker, partition) == [(1, b"a", b"1")]


DIALECTS = {
    "native": codes.NATIVE, "iggy classic": codes.IGGY_CLASSIC, "iggy zero copy": codes.IGGY_ZERO_COPY,
    "iggy current": codes.IGGY_CURRENT, "kafka": codes.KAFKA, "nsq": codes.NSQ,
}  # fmt: skip


class Model:
    """What compaction has to keep, by the sentences of Kafka's documentation and nothing else."""

    def __init__(self) -> None:
        self.records: dict[int, Record] = {}
        self.cleaned_us: dict[int, int] = {}
        """When a tombstone was first cleaned."""

    def clean(self, end: int, now_us: int, tombstones_kept_us: int) -> None:
        latest = {key: offset for offset, (key, _) in self.records.items() if offset < end and key is not None}
        for offset, (key, payload) in list(self.records.items()):
            if offset >= end or key is None:
                continue
            due_us = self.cleaned_us.get(offset, now_us + 1) + tombstones_kept_us
            if offset < latest[key] or (payload is None and due_us <= now_us):
                del self.records[offset]
            elif payload is None:
                self.cleaned_us.setdefault(offset, now_us)

    def rows(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [(offset, *record) for offset, record in sorted(self.records.items())]


@pytest.mark.parametrize("seed", range(2))
def test_what_is_kept_is_what_a_model_keeps(tmp_path: Path, seed: int, full: bool) -> None:
    random, model = Random(seed), Model()
    kept_us = 100 * SECOND
    now_us = NOW
    broker = opened(tmp_path, segment_bytes=1 << 14, durability="none")
    partition = compacted(broker, tombstone_retention_us=kept_us)
    for _ in range(80 if full else 8):
        for _ in range(random.randrange(8)):
            count = random.choice((1, 2, 12))
            payloads = (None, b"", b"x", random.randbytes(80), b"yy")
            records: list[Record] = [(b"k%d" % random.randrange(12), random.choice(payloads)) for _ in range(count)]
            if random.random() < 0.1:
                records[0] = (None, b"without a key")
            base = put(broker, partition, *records, code=random.choice(list(DIALECTS.values())), time_us=now_us)
            model.records |= {base + number: record for number, record in enumerate(records)}
        now_us += random.choice((1, 60)) * SECOND
        if random.random() < 0.7:
            close_segment(broker, partition)
        end = max((segment.end_offset for segment in partition.log.list_closed_segments()), default=0)
        before = broker.compaction.progress_of(partition).end
        broker.compaction.begin_round(now_us)
        if end > before:
            model.clean(end, now_us, kept_us)
        assert contents(broker, partition) == model.rows()
        if random.random() < 0.3:
            broker.stop()
            broker = Broker.open(tmp_path, broker.settings, now_us=now_us, commit=SyncNow())
            [topic] = broker.topology.list_topics()
            partition = topic.partitions[0]
            topic.settings = TopicSettings(
                cleanup_policy="compact", dirty_share_min=0.0, tombstone_retention_us=kept_us
            )
            assert contents(broker, partition) == model.rows()
    broker.stop()


@pytest.mark.parametrize("code", DIALECTS.values(), ids=DIALECTS)
def test_messages_of_every_dialect_keep_offset_headers_and_checksums(tmp_path: Path, code: int) -> None:
    broker = opened(tmp_path)
    partition = compacted(broker)
    for number in range(6):
        put(broker, partition, *((b"%d" % key, b"%d-%d" % (number, key)) for key in range(9)), code=code)
    put(broker, partition, *((b"%d" % key, b"6-%d" % key) for key in range(9) if key % 3), code=code)
    whole = whole_messages(broker, partition)
    compact(broker, partition)
    left = whole_messages(broker, partition)
    latest = {row["key"]: row for row in whole.values()}
    assert left == {row["offset"]: row for row in latest.values()}


def whole_messages(broker: Broker, partition: Partition) -> dict[int, dict[str, Any]]:
    """Each message with all that its dialect decodes of it, by offset."""
    found: dict[int, dict[str, Any]] = {}
    reading = read(broker, partition, reader=native_row.ALL_STATES)
    for run, low, high in reading.pieces:
        for part in registry.decode(run, ScanRequest(low, high)):
            found |= {row["offset"]: row for row in registry.to_batch(part).to_pylist()}
    return found


def test_segments_become_as_large_as_their_topic_says_but_not_tiny(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    topic = topic_of(broker)
    log = topic.partitions[0].log
    sizes = []
    for size_bytes in (1, 1 << 20, None):
        broker.at_once.alter_topic(topic, TopicSettings(segment_bytes=size_bytes))
        sizes.append(log.segment_bytes)
    assert sizes == [1 << 16, 1 << 20, 256 << 20]
    broker.at_once.alter_topic(topic, TopicSettings(segment_bytes=1 << 20))
    broker.at_once.add_partitions(topic, 1)
    assert topic.partitions[1].log.segment_bytes == 1 << 20
    broker.stop()
    [topic] = opened(tmp_path).topology.list_topics()
    assert [partition.log.segment_bytes for partition in topic.partitions] == [1 << 20] * 2


def test_configs_that_had_no_effect_before_are_settings_now() -> None:
    texts = {"segment.bytes": "1048576", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.1", "flush.ms": "1"}
    texts |= {"delete.retention.ms": "0", "min.compaction.lag.ms": str((1 << 63) - 1), "max.compaction.lag.ms": "x"}
    settings = TopicSettings.parse_stored({"cleanup_policy": "compact", "inert_configs": texts})
    assert settings.document() == {
        "cleanup_policy": "compact", "segment_bytes": 1 << 20, "segment_age_us": SECOND, "dirty_share_min": 0.1,
        "tombstone_retention_us": 0, "compaction_lag_us_min": 1 << 62, "inert_configs": {"flush.ms": "1"},
    }  # fmt: skip


def test_more_keys_than_fit_the_memory_take_several_passes(tmp_path: Path) -> None:
    broker = opened(tmp_path, compaction_memory_bytes=1, durability="none")
    partition = compacted(broker)
    for number in range(12):
        put(broker, partition, *((b"%d" % (key % 150), b"%d-%d" % (number, key)) for key in range(100)))
    before = contents(broker, partition)
    close_segment(broker, partition)
    sizes, ends = [partition.log.size_bytes], [0]
    while broker.compaction.progress_of(partition).end < partition.log.next_offset:
        broker.compaction.begin_round(NOW + SECOND)
        sizes.append(partition.log.size_bytes)
        ends.append(broker.compaction.progress_of(partition).end)
        assert ends[-1] >= min(ends[-2] + 64, partition.log.next_offset)
    # of 64 messages in a row no two have the same key, and the next one has another: 1200 / 64, rounded up
    assert len(ends) == 1 + 19 and sizes == sorted(sizes, reverse=True)
    assert contents(broker, partition) == sorted({row[1]: row for row in before}.values())


def test_keys_are_found_with_the_last_of_their_offsets_in_fixed_memory() -> None:
    keys, random = KeyOffsets(64 * 96), Random(3)
    expected: dict[bytes, int] = {}
    for offset in range(0, 3000, 10):
        names = [b"%d" % random.randrange(60) for _ in range(10)]
        offsets = np.arange(offset, offset + 10)
        assert keys.add(keys.digest(names), offsets) == 10
        expected |= dict(zip(names, offsets.tolist(), strict=True))
    assert keys.find(keys.digest(list(expected))).tolist() == list(expected.values())
    assert keys.find(keys.digest([b"", b"61"])).tolist() == [-1, -1] and len(keys) == len(expected)
    # equal first words are told apart by the second, as if two keys had met in them
    digests = np.array([[7, 1], [7, 2], [7, 3]], np.uint64)
    other = KeyOffsets(1)
    other.add(digests, np.array([1, 2, 3]))
    assert other.find(np.array([[7, 3], [7, 9], [7, 1], [8, 1]], np.uint64)).tolist() == [3, -1, 1, -1]


def test_a_thread_cleans_and_rests_and_a_deleted_topic_does_not_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lading.broker.core.compaction import compactor
    from lading.runtime.turns import WorkerTurn

    rests: list[float] = []
    monkeypatch.setattr(compactor, "WorkerTurn", lambda: WorkerTurn(sleep=rests.append))
    broker = opened(tmp_path)
    partition = compacted(broker)
    for number in range(30):
        put(broker, partition, *((b"%d" % key, b"%d" % number) for key in range(30)))
    close_segment(broker, partition)
    with ThreadPoolExecutor(1) as executor:
        broker.compaction.executor = executor
        broker.compaction.begin_round(NOW + SECOND)
        for tick in range(10_000):
            executor.submit(bool).result(30)
            broker.compaction.tick(NOW + SECOND + tick)
            if broker.counters.compaction_runs:
                break
        assert broker.counters.compaction_removed_messages == 870 and len(contents(broker, partition)) == 30
        assert rests and min(rests) >= 0
        # the thread is busy with something else: the topic goes at once, and the cleaning with it
        put(broker, partition, (b"1", b"last"))
        close_segment(broker, partition)
        held = Event()
        executor.submit(held.wait, 30)
        broker.compaction.begin_round(NOW + 2 * SECOND)
        broker.at_once.delete_topic("s", "t")
        held.set()
    assert broker.counters.failed_compactions == 0 and broker.counters.compaction_runs == 1
    broker.stop()
