"""What all simulated lives of a broker have: its disk and its clock, crashes, and the next start on what is left."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random

from lading.broker.broker import Broker
from lading.broker.core.settings import BrokerSettings
from lading.log.group_commit import WriteOnly
from lading.log.store import LocalLogStore
from tests.broker.room import NOW
from tests.faults.power import MemoryDisk
from tests.simulation.disk import SimulatedDisk
from tests.simulation.stepped_commit import SteppedCommit

SEGMENT_BYTES = 2_000


class SimulatedLife:
    """A broker from one seed; its clients and what has to hold of them are those of a subclass."""

    def __init__(self, seed: int, data: Path) -> None:
        self.random = Random(seed)
        self.data = data
        self.now_us, self.shift_us, self.step = NOW, 0, 0
        self.disk = SimulatedDisk(data, self.random)
        self.crashes = self.failures = 0
        self._numbers = 0
        self.open()

    def run(self) -> None:
        """Live, heal, and hold what clients saw against what is there. Raises AssertionError for what does not fit."""
        raise NotImplementedError

    def lose_connections(self) -> None:
        """Have clients notice that the broker has crashed: nobody knows what became of the requests under way."""
        raise NotImplementedError

    def open(self) -> None:
        """Start a broker on what is there."""
        self.commit = self.make_commit()
        store = LocalLogStore(self.data, self.commit, segment_bytes=SEGMENT_BYTES, disk=self.disk)
        self.broker = Broker(store, BrokerSettings(segment_bytes=SEGMENT_BYTES), now_us=self.now_us)

    def make_commit(self) -> SteppedCommit | WriteOnly:
        """Return what brings files to the disk, or says that they are there."""
        return SteppedCommit(self.random.randrange)

    def settle(self) -> None:
        """Bring everything to the disk."""
        self.disk.failure = None
        self.broker.appender.flush()
        self.commit.drain()
        self.now_us += 1_000_000
        self.tick()
        self.commit.drain()

    def tick(self) -> None:
        """Do what is due, by a clock that is never set and one that is."""
        self.broker.tick(self.now_us, self.now_us + self.shift_us)

    def set_clock(self) -> None:
        """Somebody sets the machine's clock."""
        self.shift_us = self.random.randint(-(10**10), 10**10)

    def fail_disk(self) -> None:
        """Have the next operation of one kind fail."""
        self.failures += 1
        self.disk.failure = self.random.choice(
            (("write", errno.ENOSPC), ("write", errno.EIO), ("sync", errno.EIO), ("resize", errno.ENOSPC))
        )

    def crash(self, *, power_is_cut: bool) -> None:
        """End the broker as a kill or a power cut does, and start the next one on what is left."""
        self.crashes += 1
        # SQLite's files are as a killed process leaves them: a close would write them again
        kept = {path: path.read_bytes() for path in self.data.glob("catalog.sqlite*") if not path.name.endswith("-shm")}
        self.broker.catalog.close()
        for path in self.data.glob("catalog.sqlite*"):
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)
        left: MemoryDisk = self.disk.crash(power_is_cut=power_is_cut)
        self.disk = SimulatedDisk(self.data, self.random, left)
        self.lose_connections()
        self.now_us += self.random.randrange(1, 5_000_000)
        self.open()

    def make_payload(self) -> bytes:
        """Return a payload that no other message has, of one of a few sizes."""
        self._numbers += 1
        return f"{self._numbers}".encode().ljust(self.random.choice((1, 20, 300)), b".")
