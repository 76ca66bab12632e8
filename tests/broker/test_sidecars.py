"""Files beside the segments are deleted, emptied or cut after a clean stop: readers see the same, or it is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lading.broker.broker import Broker
from lading.broker.core.append.append import WriteResult
from lading.broker.kafka.transactional_producer import Caller
from lading.dialects import codes
from lading.log.reader import DirectoryReader
from lading.model.errors import CorruptLog
from lading.model.state import State
from tests.broker.kafka_batches import committed, produce
from tests.broker.room import NOW, append_block, block, fill, opened, topic_of


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 72 * 36])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


DAMAGES = [delete, empty, cut, flip]


def written(path: Path) -> list[bytes]:
    """A topic with transactions of both kinds, committed and aborted, and a poisoned message; what readers see."""
    broker = opened(path)
    partition = topic_of(broker).partition(0)
    fill(broker, partition, 2, prefix="plain-")
    producer = broker.producers.init_producer_id("bank", 1_000_000, None, now_us=NOW).value
    assert producer is not None
    caller = Caller("bank", producer.producer_id, producer.epoch)
    for number, commit in enumerate((True, False, True, False)):
        broker.producers.add_partitions(caller, [partition], now_us=NOW)
        word = b"kept" if commit else b"aborted"
        produce(
            broker, partition, b"%s-%d" % (word, number), producer=producer.producer_id, epoch=producer.epoch,
            sequence=number, transactional=True,
        )  # fmt: skip
        broker.producers.end(caller, commit, now_us=NOW)
        broker.appender.flush()
        broker.tick(NOW + number)
    one, other = broker.native_transactions.begin(now_us=NOW), broker.native_transactions.begin(now_us=NOW)
    append_block(broker, partition, block(b"native-kept", transaction=one))
    append_block(broker, partition, block(b"native-aborted", transaction=other))
    broker.native_transactions.commit("key", [one], now_us=NOW)
    broker.native_transactions.abort([other], now_us=NOW)
    fill(broker, partition, 2, prefix="after-")
    broker.states.set(partition, [(0, 1)], State.POISONED, now_us=NOW)
    seen = committed(broker, partition)
    broker.stop()
    return seen


def seen_by_all(broker: Broker) -> list[bytes]:
    return committed(broker, broker.topology.topic("s", "t").partition(0))


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_aborted_transactions_stay_aborted_without_their_file(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    seen = written(tmp_path)
    assert not [one for one in seen if b"aborted" in one] and b"native-kept" in seen
    (states,) = tmp_path.glob("topics/*/0/states.log")
    damage(states)
    with pytest.raises(CorruptLog, match="is not what was synced last"):
        DirectoryReader(states.parent)
    for _ in range(2):
        broker = opened(tmp_path)
        told = [note for _, report in broker.recoveries() for note in report.notes]
        assert [one for one in seen_by_all(broker) if b"aborted" in one] == []
        assert set(seen) <= set(seen_by_all(broker))
        # killed before anything else is written
        broker.catalog.close()
        if "states.log" not in "".join(told):
            break
        assert "states" in told[0] and "lost" in told[0]
    DirectoryReader(states.parent)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", ["watermark", "writers.snapshot", "*.index"])
def test_right_answers_or_told(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    seen = written(tmp_path)
    (path,) = tmp_path.glob(f"topics/*/0/{name}")
    damage(path)
    broker = opened(tmp_path)
    assert seen_by_all(broker) == seen
    partition = broker.topology.topic("s", "t").partition(0)
    assert partition.log.unavailable_ranges(0, 1) == [(0, 1, State.POISONED)]
    told = [note for _, report in broker.recoveries() for note in report.notes]
    if name == "watermark" and damage in (delete, empty):
        assert "watermark" in told[0]
    if name == "*.index":
        assert path.stem in told[0]
    broker.stop()
    assert opened(tmp_path).recoveries() == []


def test_committed_transactions_stay_when_catalog_and_snapshot_are_lost(tmp_path: Path) -> None:
    seen = written(tmp_path)
    for path in [*tmp_path.glob("catalog.sqlite*"), *tmp_path.glob("topics/*/0/writers.snapshot")]:
        path.unlink()
    broker = opened(tmp_path)
    assert seen_by_all(broker) == seen
    # an id or number that was given before must not be given again
    assert broker.native_transactions.begin(now_us=NOW) > 2
    again = broker.producers.init_producer_id("bank", 1_000_000, None, now_us=NOW).value
    assert again is not None and again.producer_id >= 1000
    broker.stop()
    assert seen_by_all(opened(tmp_path)) == seen


def test_lost_postponed_messages_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = opened(tmp_path)
    partition = topic_of(broker).partition(0)
    data = block(b"later")

    def write(array: NDArray[np.uint8], at: int, base_offset: int) -> WriteResult:
        array[at : at + len(data)] = np.frombuffer(data, np.uint8)
        return WriteResult(len(data), 1, NOW, NOW)

    for due in (1, 10_000_000):
        broker.postponed.append(partition, NOW + due, codes.NATIVE, 0, len(data), write)
        broker.appender.flush()
    broker.tick(NOW + 2)
    broker.appender.flush()
    broker.tick(NOW + 1_000_000)
    broker.stop()
    (held,) = tmp_path.glob("topics/*/0/postponed")
    (log,) = held.glob("*.log")
    empty(log)
    again = opened(tmp_path)
    ((place, report),) = again.recoveries()
    assert str(place) == "s.t/0" and report.damage
    again.stop()
    for path in held.iterdir():
        path.unlink()
    held.rmdir()
    opened(tmp_path).stop()
    assert "delayed messages in it are lost" in caplog.text
