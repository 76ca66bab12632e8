"""What is large is written from where it was received: same order, same answers, and nothing half."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lading.broker.broker import Broker
from lading.broker.core.append.append import BEFORE_IN_PLACE_BYTES, InPlace
from lading.broker.core.pending_append import Append
from lading.broker.core.settings import BrokerSettings
from lading.broker.core.topology import Partition
from lading.model.errors import Reason, Refusal
from tests.broker.room import NOW, append, opened, payloads, read, topic_of
from tests.broker.test_append import FailingDisk

LARGE = b"x" * 70_000
ROOM_BYTES = 200_000


def place(start: int = BEFORE_IN_PLACE_BYTES) -> InPlace:
    """Memory in which messages were received, with something before them."""
    return InPlace(np.full(start + ROOM_BYTES, 7, np.uint8), start)


def in_place(broker: Broker, partition: Partition, *what: bytes, start: int = BEFORE_IN_PLACE_BYTES) -> Append:
    return append(broker, partition, *what, source=place(start))


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_it_is_a_chunk_of_its_own_behind_what_waited(tmp_path: Path, durability: str) -> None:
    broker = (
        Broker.open(tmp_path, BrokerSettings(durability="os"), now_us=NOW) if durability == "os" else opened(tmp_path)
    )
    partition = topic_of(broker).partition(0)
    waiting = append(broker, partition, b"0", b"1")
    large = [in_place(broker, partition, LARGE, b"3"), in_place(broker, partition, b"4", LARGE, start=1000)]
    assert [(one.done, one.error, one.base_offset) for one in (waiting, *large)] == [
        (True, None, 0),
        (True, None, 2),
        (True, None, 4),
    ]
    last = append(broker, partition, b"6")
    broker.appender.flush()
    assert last.base_offset == 6
    expected = [b"0", b"1", LARGE, b"3", b"4", LARGE, b"6"]
    reading = read(broker, partition)
    assert payloads(reading) == expected
    assert [len(run.chunks) for run in reading.runs] == [4]
    assert (broker.counters.appends, broker.counters.messages_in, broker.counters.unsynced_bytes) == (4, 7, 0)
    broker.stop()
    again = opened(tmp_path)
    found = again.topology.topic("s", "t").partition(0)
    assert payloads(read(again, found)) == expected and not found.log.damaged_ranges(0, 7)
    again.stop()


def test_memory_before_the_envelope_is_left_alone(tmp_path: Path) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    received = place(500)
    append(broker, partition, LARGE, source=received)
    assert set(received.array[: 500 - BEFORE_IN_PLACE_BYTES].tolist()) == {7}
    broker.stop()


def test_it_waits_for_its_sync(tmp_path: Path) -> None:
    broker = Broker.open(tmp_path, BrokerSettings(), now_us=NOW)
    partition = topic_of(broker).partition(0)
    large = in_place(broker, partition, LARGE)
    assert (large.done, read(broker, partition).count) == (False, 0)
    broker.stop()
    assert (large.done, large.error) == (True, None)


@pytest.mark.parametrize("failing", ["write", "sync"])
def test_a_disk_that_fails_takes_nothing_of_it(tmp_path: Path, failing: str) -> None:
    disk = FailingDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    assert in_place(broker, partition, LARGE).done
    disk.failing = {failing}
    if failing == "write":
        with pytest.raises(Refusal) as refused:
            in_place(broker, partition, LARGE)
        assert refused.value.reason is Reason.READ_ONLY
    else:
        lost = in_place(broker, partition, LARGE)
        assert lost.done and lost.error is not None and lost.error.reason is Reason.READ_ONLY
    disk.failing = set()
    assert payloads(read(broker, partition)) == [LARGE]
    assert broker.counters.unsynced_bytes == 0
    broker.stop()


def test_where_a_chunk_before_it_is_lost_both_are(tmp_path: Path) -> None:
    disk = FailingDisk()
    broker = opened(tmp_path, disk=disk)
    partition = topic_of(broker).partition(0)
    assert in_place(broker, partition, LARGE).done
    waiting = append(broker, partition, b"waits")
    disk.failing = {"write"}
    with pytest.raises(Refusal):
        in_place(broker, partition, LARGE)
    assert waiting.done and waiting.error is not None
    disk.failing = set()
    assert payloads(read(broker, partition)) == [LARGE]
    broker.stop()
