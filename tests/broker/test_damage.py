"""Damage on the disk: what is intact is served, the rest is passed over and counted, nothing wrong is handed out."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from pathlib import Path

import pytest

from lading.broker.broker import Broker
from lading.broker.core.chunks import read_chunks
from lading.broker.core.offsets_for_times import offset_at
from lading.broker.core.topology import Partition
from lading.broker.iggy.poll import Timestamp
from lading.chunk.envelope import ENVELOPE_BYTES
from lading.dialects.protocols import VISIBILITY
from lading.model.errors import Refusal
from lading.transports.files import FilesTransport
from tests.broker.room import NOW, append, fill, opened, payloads, read, rows, topic_of
from tests.faults.faulty import FaultyDisk


def written(path: Path, chunks: int = 5, messages: int = 4) -> Broker:
    """Chunks of messages ``chunk-message`` with long payloads, so that most bytes are payload."""
    broker = opened(path)
    partition = topic_of(broker).partition(0)
    for chunk in range(chunks):
        append(broker, partition, *(f"{chunk}-{message}".encode() * 20 for message in range(messages)))
        broker.appender.flush()
    return broker


def flipped(path: Path, at: int) -> tuple[Broker, Partition]:
    """The broker on the directory ``path``, with two bits of its log turned: more than the log can mend."""
    (log,) = path.glob("topics/*/0/*.log")
    data = bytearray(log.read_bytes())
    data[at] ^= 3
    log.write_bytes(data)
    broker = opened(path)
    return broker, broker.topology.topic("s", "t").partition(0)


def place_of(path: Path, text: bytes) -> int:
    (log,) = path.glob("topics/*/0/*.log")
    return log.read_bytes().index(text)


def test_a_damaged_payload_costs_one_message(tmp_path: Path) -> None:
    written(tmp_path).stop()
    broker, partition = flipped(tmp_path, place_of(tmp_path, b"2-1" * 20) + 7)
    reading = read(broker, partition)
    found = rows(reading)
    assert [offset for offset, _ in found] == [offset for offset in range(20) if offset != 9]
    assert all(payload == f"{offset // 4}-{offset % 4}".encode() * 20 for offset, payload in found)
    assert list(reading.damaged) == [(9, 10)]
    assert (reading.count, reading.end_offset) == (19, 20)
    assert broker.counters.damaged_messages == 1
    assert [offset for offset, _ in rows(read(broker, partition, 8, max_messages=2))] == [8, 10]
    assert offset_at(partition, NOW) == 0
    append(broker, partition, b"new")
    broker.appender.flush()
    assert rows(read(broker, partition, 20)) == [(20, b"new")]
    broker.stop()


def test_a_poll_by_time_in_a_damaged_chunk_gives_no_earlier_chunk(tmp_path: Path) -> None:
    written(tmp_path).stop()
    broker, partition = flipped(tmp_path, place_of(tmp_path, b"0-0" * 20))
    topic = partition.topic
    from tests.broker.room import CONSUMER

    polled = broker.poller.poll(topic, CONSUMER, None, 0, Timestamp(NOW), 3, False, max_bytes=1 << 20, now_us=NOW)
    assert payloads(polled.reading)[0] in (b"0-1" * 20, b"1-0" * 20)
    broker.stop()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.turns(3)
def test_any_flipped_bit_gives_right_messages_or_none(tmp_path: Path, full: bool, seed: int) -> None:
    written(tmp_path / "good").stop()
    (log,) = (tmp_path / "good").glob("topics/*/0/*.log")
    data = log.read_bytes()
    expected = {offset: f"{offset // 4}-{offset % 4}".encode() * 20 for offset in range(20)}
    size = len(data.rstrip(b"\0"))
    last_chunk = data.index(b"4-0" * 20) - 45 - ENVELOPE_BYTES
    places = range(size) if full and seed == 0 else random.Random(seed).sample(range(size), 25)
    served = 0
    for at in places:
        broken = bytearray(data)
        broken[at] ^= 1 << random.Random(at).randrange(8)
        log.write_bytes(broken)
        broker = opened(tmp_path / "good")
        partition = broker.topology.topic("s", "t").partition(0)
        found = rows(read(broker, partition))
        wrong = {offset: payload for offset, payload in found if expected[offset] != payload}
        assert not wrong, at
        # a chunk between whole neighbours is mended; of the last one nobody else tells where it ends
        assert len(found) >= (20 if at < last_chunk else 16), at
        served += len(found)
        broker.stop()
        # what a start may have noted or cut is put back for the next bit
        for file in log.parent.iterdir():
            if file != log:
                file.unlink()
        log.write_bytes(data)
        opened(tmp_path / "good").stop()
    print(f"{len(places)} flipped bits, {served} messages served, 0 wrong")


def test_a_damaged_native_chunk_is_passed_over_as_a_whole(tmp_path: Path) -> None:
    from tests.broker.room import append_block, block

    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2)
    append_block(broker, partition, block(b"here it is", b"second"))
    fill(broker, partition, 2)
    broker.stop()
    (log,) = tmp_path.glob("topics/*/0/*.log")
    place = log.read_bytes().index(b"ARROW") if b"ARROW" in log.read_bytes() else place_of(tmp_path, b"payload")
    broker, partition = flipped(tmp_path, place)
    reading = read(broker, partition)
    assert [offset for offset, _ in rows(reading)] == [0, 1, 4, 5]
    assert list(reading.damaged) == [(2, 4)]
    broker.stop()


def destroyed(path: Path, first_chunk: int) -> Broker:
    """The broker on a log of which nothing from this chunk on can be read."""
    (log,) = path.glob("topics/*/0/*.log")
    data = bytearray(log.read_bytes())
    at = 0
    for _ in range(first_chunk):
        at += 8 + int.from_bytes(data[at : at + 4], "little")
    data[at:] = b"\xff" * (len(data) - at)
    log.write_bytes(data)
    return opened(path)


@pytest.mark.parametrize("first_chunk", [0, 3])
def test_readers_are_moved_on_from_a_tail_that_cannot_be_read(tmp_path: Path, first_chunk: int) -> None:
    written(tmp_path).stop()
    broker = destroyed(tmp_path, first_chunk)
    partition = broker.topology.topic("s", "t").partition(0)
    at = 4 * first_chunk
    for reader in VISIBILITY:
        reading = read(broker, partition, at, reader=reader)
        assert (reading.count, reading.end_offset, list(reading.damaged)) == (0, 20, [(at, 20)]), reader
    chunks = read_chunks(partition, at, max_bytes=1 << 20, counters=broker.counters)
    assert (len(chunks.data), chunks.end_offset) == (0, 20)
    append(broker, partition, b"new")
    broker.appender.flush()
    assert rows(read(broker, partition, 20)) == [(20, b"new")]
    broker.stop()
    files = FilesTransport(str(tmp_path))
    fetched = files.fetch("s.t", 0, at)
    while not fetched.runs:
        assert fetched.end_offset > at
        fetched = files.fetch("s.t", 0, fetched.end_offset)
    assert fetched.end_offset == 21


def test_damage_that_reading_finds_is_told_once_with_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    written(tmp_path).stop()
    broker, partition = flipped(tmp_path, place_of(tmp_path, b"2-1" * 20) + 7)
    assert broker.damages.sentences() == {} and not caplog.records
    for _ in range(3):
        read(broker, partition)
    (told,) = caplog.records
    assert "s.t/0" in told.getMessage() and "offsets 8 to 11 are damaged" in told.getMessage()
    assert broker.damages.sentences() == {
        "s.t/0": "offsets 8 to 11 are damaged on the disk; what is intact of them is served"
    }
    partition.log.truncate_before(12)
    assert broker.damages.sentences() == {}
    broker.stop()


@pytest.mark.parametrize(("error", "word"), [(errno.ENOSPC, "the disk is full"), (errno.EIO, "is read-only")])
def test_a_partition_that_refuses_is_told_once_by_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: int, word: str
) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 1)

    def fault(operation: str, path: Path, data: object) -> object:
        if operation == "write" and path.name.endswith(".log"):
            raise OSError(error, os.strerror(error), str(path))
        return data

    healthy, disk.fault = disk.fault, fault
    for _ in range(3):
        with contextlib.suppress(Refusal):
            append(broker, partition, b"refused")
            broker.appender.flush()
    (told,) = [record.getMessage() for record in caplog.records if "accepts no messages" in record.getMessage()]
    assert told.startswith("s.t/0 accepts no messages") and word in told
    assert partition.log.refusal is not None
    disk.fault = healthy
    with caplog.at_level("INFO"), contextlib.suppress(Refusal):
        append(broker, partition, b"again")
        broker.appender.flush()
    assert ("s.t/0 accepts messages again" in caplog.text) == (error == errno.ENOSPC)
    broker.stop()
