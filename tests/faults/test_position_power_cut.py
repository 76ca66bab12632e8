"""The power is cut after positions were stored: what was stored a moment before is there, of every protocol."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from lading.broker.broker import Broker
from lading.broker.core.upkeep.upkeep import SYNC_US
from lading.log.disk import RealDisk
from tests.broker.channel_room import Reader, put
from tests.broker.room import CONSUMER, NOW, SECOND, opened, topic_of
from tests.faults.faulty import FaultyDisk, failing

CATALOG = "catalog.sqlite"


class CatalogDisk(RealDisk):
    """Keeps the catalog as a power cut leaves it: as it was when its log was synced last."""

    def __init__(self, data: Path, durable: Path) -> None:
        self._data, self._durable = data, durable
        self.syncs = 0

    def keep(self) -> None:
        """Copy the catalog, which is synced now."""
        self.syncs += 1
        for path in self._data.glob(f"{CATALOG}*"):
            if not path.name.endswith("-shm"):
                shutil.copy(path, self._durable)

    def open(self, path: Path | str, *, write: bool = False) -> Any:
        disk, file = self, super().open(path, write=write)

        class Syncing:
            def sync(self) -> None:
                file.sync()
                if str(path).endswith("-wal"):
                    disk.keep()

            def __getattr__(self, name: str) -> Any:
                return getattr(file, name)

        return Syncing()


def begin(tmp_path: Path) -> tuple[Broker, CatalogDisk]:
    """A broker with one topic and a channel; all of that is durable."""
    (tmp_path / "durable").mkdir()
    disk = CatalogDisk(tmp_path / "data", tmp_path / "durable")
    broker = opened(tmp_path / "data", disk=disk)
    broker.channels.open(topic_of(broker), "c")
    put(broker, broker.topology.topic("s", "t").partition(0), *(b"%d" % number for number in range(10)))
    broker.tick(NOW)
    disk.keep()
    return broker, disk


def cut_power(tmp_path: Path, broker: Broker) -> Broker:
    """End the broker and start one on what is left of the catalog; the log is synced."""
    broker.catalog.close()
    for path in (tmp_path / "data").glob(f"{CATALOG}*"):
        path.unlink()
    for path in (tmp_path / "durable").glob(f"{CATALOG}*"):
        shutil.copy(path, tmp_path / "data")
    return opened(tmp_path / "data")


def test_what_was_finished_on_a_channel_stays_so(tmp_path: Path) -> None:
    broker, _ = begin(tmp_path)
    reader = Reader().subscribe(broker.channels.open(broker.topology.topic("s", "t"), "c"), 8)
    broker.channels.pump(NOW)
    assert reader.finish(*range(6)) == 6
    broker.tick(NOW + SYNC_US)
    broker = cut_power(tmp_path, broker)
    channel = broker.channels.find(broker.topology.topic("s", "t"), "c")
    assert channel is not None
    again = Reader().subscribe(channel, 20)
    broker.channels.pump(NOW)
    assert again.payloads() == [b"6", b"7", b"8", b"9"]
    broker.stop()


def test_the_position_of_an_iggy_consumer_stays(tmp_path: Path) -> None:
    broker, _ = begin(tmp_path)
    topic = broker.topology.topic("s", "t")
    broker.poller.store_position(topic, CONSUMER, None, 0, 4, now_us=NOW)
    broker.tick(NOW + SYNC_US)
    broker = cut_power(tmp_path, broker)
    found = broker.poller.position(broker.topology.topic("s", "t"), CONSUMER, 0)
    assert found == 4
    broker.stop()


def test_many_stores_share_a_sync_and_without_one_there_is_none(tmp_path: Path) -> None:
    broker, disk = begin(tmp_path)
    topic, before = broker.topology.topic("s", "t"), disk.syncs
    for number in range(40):
        # one second, a tick every 25 ms
        broker.poller.store_position(topic, CONSUMER, None, 0, number % 10, now_us=NOW)
        broker.tick(NOW + number * SECOND // 40)
    assert 5 <= disk.syncs - before <= 10
    broker.tick(NOW + 2 * SECOND)
    before = disk.syncs
    for number in range(40):
        broker.tick(NOW + (3 + number) * SECOND)
    assert disk.syncs == before
    broker.stop()


def test_a_sync_in_the_background_that_failed_is_told_and_mended(tmp_path: Path) -> None:
    disk = FaultyDisk()
    broker = opened(tmp_path, disk=disk)
    topic = topic_of(broker)
    put(broker, topic.partition(0), b"0")
    broker.tick(NOW)
    disk.fault = failing("sync", 0, at="-wal")
    broker.poller.store_position(topic, CONSUMER, None, 0, 0, now_us=NOW)
    broker.tick(NOW + SECOND)
    assert "could not be synced" in str(broker.catalog.problem)
    broker.tick(NOW + 3 * SECOND)
    assert broker.catalog.problem is None
    broker.stop()
