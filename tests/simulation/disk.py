"""A simulated disk: slow, full, failing, and cut off by a power loss, all as one generator decides."""

from __future__ import annotations

import errno
import itertools
from pathlib import Path
from random import Random
from typing import Any

from lading.log.disk import RealDisk
from tests.faults.power import DIRECTORY, MemoryDisk, Op, PowerCuts


class SimulatedDisk(MemoryDisk):
    """The files of partitions in memory; everything else, such as the catalog, on the disk of this machine."""

    def __init__(self, data: Path, random: Random, before: MemoryDisk | None = None) -> None:
        """``before`` is the disk that a crash left: what is on it is durable."""
        super().__init__(log=[], numbers=itertools.count(1))
        self._root, self._random = f"{data}/topics/", random
        self.failure: tuple[str, int] | None = None
        """The kind of operation that fails next, and its error."""
        for name, inode in (before.names_ if before is not None else {}).items():
            assert before is not None
            content = before.contents[inode]
            number = next(self.numbers)
            for op in (
                Op("create", number, path=name),
                Op("write", number, 0, content.array[: content.written].tobytes()),
                Op("resize", number, content.size),
                Op("sync", number),
            ):
                self.change(op)
        self.change(Op("sync", DIRECTORY))

    def change(self, op: Op) -> None:
        if self.failure is not None and self.failure[0] == op.kind and op.inode != DIRECTORY:
            (_, number), self.failure = self.failure, None
            raise OSError(number, errno.errorcode[number])
        super().change(op)

    def crash(self, *, power_is_cut: bool) -> MemoryDisk:
        """Return what is left: all that was written, or what a power cut spares of what was not synced."""
        assert self.log is not None
        cuts = PowerCuts(self.log)
        after = len(self.log)
        _, _, pending, directory = cuts._durable(after)
        kept = len(directory)
        choice = dict.fromkeys(pending, -1)
        if power_is_cut:
            kept = self._random.randint(0, kept)
            fate = self._random.choice(("kept", "lost", "mixed"))
            if fate == "lost":
                choice = {}
            elif fate == "mixed":
                choice = {number: self._fate(self.log[number]) for number in pending if self._random.random() < 0.7}
        return cuts.build(after, tuple(sorted(choice.items())), kept, "simulated").disk

    def _fate(self, op: Op) -> int:
        """Return how much of a write is on the disk: all (-1), or whole sectors."""
        if op.kind != "write" or self._random.random() < 0.5:
            return -1
        part: int = self._random.choice((1, *range(512, len(op.data), 512)))
        return part

    def open(self, path: Path | str, *, write: bool = False) -> Any:
        name = str(path)
        if not name.startswith(self._root) or Path(path).name == "topic.json":
            return RealDisk().open(path, write=write)
        return super().open(path, write=write)

    def is_directory(self, path: Path | str) -> bool:
        return Path(path).is_dir()

    def names(self, directory: Path | str) -> list[str]:
        return [*RealDisk().names(directory), *(name for name in super().names(directory) if "/" not in name)]

    def make_directory(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)

    def rename(self, source: Path, target: Path) -> None:
        if str(source) in self.names_:
            super().rename(source, target)
        else:
            RealDisk().rename(source, target)
