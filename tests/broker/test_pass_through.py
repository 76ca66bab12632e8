"""Whole chunks as they lie are the messages that the reader of everything gives, and outlive what they lay in."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.append.pass_through import Ahead, Whole, whole_chunks
from lading.broker.core.topology import Partition
from lading.broker.core.upkeep import record_deletion
from lading.dialects import codes
from lading.dialects.kafka import batch_slicing
from lading.dialects.kafka import protocol as kafka_row
from lading.model.protocol import VisibilityRule
from lading.model.state import State
from tests.broker.kafka_batches import produce
from tests.broker.room import NOW, append, opened, read, topic_of
from tests.broker.test_damage import flipped, place_of

READERS = (kafka_row.COMMITTED, kafka_row.UNCOMMITTED)
LOGS, LOGS_FULL = 10, 150
READS = 60


def whole(
    broker: Broker,
    partition: Partition,
    offset: int,
    *,
    max_bytes: int = 1 << 20,
    reader: VisibilityRule = kafka_row.COMMITTED,
    ahead_bytes: int = 0,
    max_chunks: int = 1000,
) -> Whole | None:
    return whole_chunks(
        partition,
        offset,
        reader=reader,
        dialect=codes.KAFKA,
        max_bytes=max_bytes,
        max_chunks=max_chunks,
        ahead=Ahead(ahead_bytes),
        counters=broker.counters,
    )


def as_they_lie(broker: Broker, partition: Partition, found: Whole, offset: int, reader: VisibilityRule) -> bytes:
    """The batches of the same offsets by way of ``Broker.read``, which knows nothing of what was read before."""
    recent, partition.cached_range = partition.cached_range, None
    reading = read(broker, partition, offset, reader=reader)
    partition.cached_range = recent
    parts = []
    at = offset
    for run, first, end in reading.pieces:
        assert first == at and run.dialect == codes.KAFKA
        passed = batch_slicing.slice_stored(run, first, min(end, found.end_offset), 1 << 30, force=True)
        parts += list(passed.parts)
        at = passed.end_offset
        if at == found.end_offset:
            break
    assert at == found.end_offset
    return b"".join(parts)


class Log:
    """A log in which anything may stand, made by chance."""

    def __init__(self, broker: Broker, chance: random.Random) -> None:
        self.broker, self.chance = broker, chance
        self.partition = topic_of(broker).partition(0)
        self.sequence = 0

    def grow(self) -> None:
        chance, log = self.chance, self.partition.log
        match chance.randrange(12):
            case 0:
                append(self.broker, self.partition, b"of another dialect")
                self.broker.appender.flush()
            case 1 if log.next_offset > log.first_offset:
                first = chance.randrange(log.first_offset, log.next_offset)
                state = chance.choice((State.POISONED, State.AVAILABLE))
                end = min(first + chance.randint(1, 4), log.next_offset)
                self.broker.states.set(self.partition, [(first, end)], state, now_us=NOW)
            case 2 if log.last_stable_offset > log.first_offset:
                log.hold_last_stable_offset(chance.choice((None, chance.randrange(log.first_offset, log.next_offset))))
            case 3 if log.last_stable_offset > log.first_offset:
                record_deletion.delete_before(self.partition, chance.randint(log.first_offset, log.last_stable_offset))
            case _:
                for _ in range(chance.randint(1, 3)):
                    payloads = [
                        bytes([chance.randrange(256)]) * chance.randrange(300) for _ in range(chance.randint(1, 5))
                    ]
                    produce(self.broker, self.partition, *payloads, producer=7, sequence=self.sequence, flush=False)
                    self.sequence += len(payloads)
                self.broker.appender.flush()


def test_they_are_what_the_reader_of_everything_gives(tmp_path: Path, full: bool) -> None:
    given = asked = 0
    for number in range(LOGS_FULL if full else LOGS):
        chance = random.Random(number)
        broker = opened(tmp_path / str(number), segment_bytes=8000)
        log = Log(broker, chance)
        offset = 0
        for _ in range(READS):
            for _ in range(chance.randrange(3)):
                log.grow()
            reader = chance.choice(READERS)
            if chance.random() < 0.4:
                offset = chance.randrange(log.partition.log.next_offset + 2)
            max_bytes = chance.choice((0, 100, 700, 3000, 1 << 20))
            found = whole(
                broker, log.partition, offset, max_bytes=max_bytes, reader=reader, ahead_bytes=chance.choice((0, 6000))
            )
            asked += 1
            if found is None:
                reading = read(broker, log.partition, offset, reader=reader, max_bytes=max(max_bytes, 1))
                offset = reading.end_offset
                continue
            given += 1
            data = b"".join(found.bodies)
            assert 0 < len(data) == found.size_bytes <= max_bytes
            assert found.messages_count == found.end_offset - offset > 0
            assert data == as_they_lie(broker, log.partition, found, offset, reader)
            offset = found.end_offset
        broker.stop()
    assert given > asked / 10


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return opened(tmp_path, segment_bytes=3000)


def chunks_of(broker: Broker, count: int) -> Partition:
    """Chunks of one batch with one message of 1,000 bytes each."""
    partition = topic_of(broker).partition(0)
    for number in range(count):
        produce(broker, partition, bytes([number]) * 1000, producer=1, sequence=number)
    return partition


def test_bytes_stay_when_their_segment_is_deleted_and_the_broker_ends(broker: Broker) -> None:
    partition = chunks_of(broker, 10)
    found = [whole(broker, partition, offset) for offset in range(10)]
    bodies = [bytes(one.bodies[0]) for one in found if one is not None]
    assert len(bodies) == 10 and all(bytes([number]) * 1000 in bodies[number] for number in range(10))
    record_deletion.delete_before(partition, 9)
    assert partition.log.first_offset == 9 and partition.log.segments_count == 1 and partition.cached_range is None
    assert whole(broker, partition, 0) is None
    produce(broker, partition, bytes(2000), producer=1, sequence=10)
    broker.stop()
    assert [bytes(one.bodies[0]) for one in found if one is not None] == bodies


def test_what_was_read_ahead_is_served_and_what_comes_later_too(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = chunks_of(broker, 19)
    asked = set()
    for offset in range(0, 18, 2):
        found = whole(broker, partition, offset, max_bytes=2500, ahead_bytes=1 << 20)
        assert found is not None and found.end_offset == offset + 2
        asked.add(id(partition.cached_range))
    assert len(asked) <= 2
    produce(broker, partition, b"later", producer=1, sequence=19)
    rest = whole(broker, partition, 18)
    assert rest is not None and rest.end_offset == 20
    assert whole(broker, partition, 0, max_chunks=3, max_bytes=1 << 20) == whole(broker, partition, 0, max_bytes=3400)
    broker.stop()


def test_a_damaged_chunk_is_left_to_the_reader_of_everything(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = chunks_of(broker, 4)
    broker.stop()
    broker, partition = flipped(tmp_path, place_of(tmp_path, bytes([2]) * 1000) + 500)
    before = whole(broker, partition, 0)
    assert before is not None and before.end_offset == 2
    assert whole(broker, partition, 2) is None
    behind = whole(broker, partition, 3)
    assert behind is not None and behind.end_offset == 4
    broker.stop()
