"""A disk in memory that remembers which writes were synced, and builds what a power cut could leave of the others."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lading.log.disk import sync_each
from lading.log.interface import NEVER_US
from lading.model.errors import CorruptLog

DIRECTORY = 0
"""The inode that stands for all directories: their changes last in order."""
TEARS = (1, 512, 4096)
"""A torn write leaves this many of its first bytes."""


class Content:
    """The bytes of one file."""

    def __init__(self, data: bytes = b"") -> None:
        self.size = self.written = 0
        self.array = np.zeros(0, np.uint8)
        if data:
            self.write(data, 0)

    def write(self, data: bytes, at: int) -> None:
        self.resize(max(self.size, at + len(data)))
        self.written = max(self.written, at + len(data))
        self.array[at : at + len(data)] = np.frombuffer(data, np.uint8)

    def resize(self, size: int) -> None:
        if size > self.array.size:
            grown = np.zeros(-(-size // 4096) * 4096, np.uint8)
            grown[: self.size] = self.array[: self.size]
            self.array = grown
        self.array[size:] = 0
        self.size, self.written = size, min(self.written, size)

    def copy(self) -> Content:
        new = Content()
        new.array, new.size, new.written = self.array.copy(), self.size, self.written
        return new


@dataclass(frozen=True)
class Op:
    """One change: of a file's bytes (``inode``) or of the directory."""

    kind: str
    inode: int = -1
    at: int = 0
    data: bytes = b""
    path: str = ""
    target: str = ""


class MemoryFile:
    """An open file or, for syncing, a directory."""

    def __init__(self, disk: MemoryDisk, path: Path | str, inode: int) -> None:
        self.disk, self.path, self.inode = disk, path, inode

    def size(self) -> int:
        return self.disk.contents[self.inode].size

    def data_end(self) -> int:
        content = self.disk.contents[self.inode]
        return min(content.size, content.written)

    def write(self, data: Any, at: int) -> None:
        self.disk.change(Op("write", self.inode, at, bytes(data)))

    def read(self, at: int, size: int) -> bytes:
        content = self.disk.contents[self.inode]
        return content.array[at : min(at + size, content.size)].tobytes()

    def map(self, size: int) -> NDArray[np.uint8]:
        content = self.disk.contents[self.inode]
        if size > content.size:
            raise CorruptLog(f"inode {self.inode} has fewer bytes than were written to it; it was truncated")
        view = content.array[:size]
        view.flags.writeable = False
        return view

    def resize(self, size: int) -> None:
        self.disk.change(Op("resize", self.inode, size))

    def sync(self) -> None:
        self.disk.change(Op("sync", self.inode))

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no number")

    def close(self) -> None:
        pass


@dataclass
class MemoryDisk:
    """Files in one flat directory tree; every change is kept in ``log``, ``before`` may raise before one is made."""

    contents: dict[int, Content] = field(default_factory=dict)
    names_: dict[str, int] = field(default_factory=dict)
    log: list[Op] | None = None
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    before: Any = None
    is_durable: bool = True

    def change(self, op: Op) -> None:
        if self.before is not None:
            self.before(op)
        if self.log is not None:
            self.log.append(op)
        apply(op, self.contents, self.names_)

    def open(self, path: Path | str, *, write: bool = False) -> MemoryFile:
        name = str(path)
        if name in self.names_:
            return MemoryFile(self, path, self.names_[name])
        if self.is_directory(path):
            return MemoryFile(self, path, DIRECTORY)
        if not write:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        inode = next(self.numbers)
        self.change(Op("create", inode, path=name))
        return MemoryFile(self, path, inode)

    def sync_paths(self, paths: Sequence[Path]) -> None:
        sync_each(self, paths)

    def is_directory(self, path: Path | str) -> bool:
        """Return whether ``path`` is the one directory that a partition's tests have."""
        return Path(path).name == "p"

    def names(self, directory: Path | str) -> list[str]:
        prefix = f"{directory}/"
        return [name[len(prefix) :] for name in self.names_ if name.startswith(prefix)]

    def mtime_us(self, path: Path) -> int:
        """Unknown: the messages' own times decide."""
        return NEVER_US

    def make_directory(self, directory: Path) -> None:
        pass

    def rename(self, source: Path, target: Path) -> None:
        self.change(Op("rename", path=str(source), target=str(target)))

    def remove(self, path: Path) -> None:
        if str(path) in self.names_:
            self.change(Op("remove", path=str(path)))


def apply(op: Op, contents: dict[int, Content], names: dict[str, int]) -> None:
    """Make a change."""
    match op.kind:
        case "write":
            contents[op.inode].write(op.data, op.at)
        case "resize":
            contents[op.inode].resize(op.at)
        case "create":
            contents.setdefault(op.inode, Content())
            names[op.path] = op.inode
        case "rename":
            names[op.target] = names.pop(op.path)
        case "remove":
            names.pop(op.path, None)


@dataclass
class Cut:
    """What a power cut left: a disk, and how it came about."""

    disk: MemoryDisk
    after: int
    """Operations that were made before it."""
    how: str


class PowerCuts:
    """Every state that a cut after each operation may leave, from the log of a recording disk.

    Synced bytes stay. Of the unsynced writes and resizes of each file any one may be lost, kept or torn while the
    others are all kept, all lost, or kept up to it. Changes of directories last in their order, up to any of
    them, as a journal does it; a file whose creation did not last is gone whatever was synced in it.
    """

    def __init__(self, log: list[Op]) -> None:
        self.log = log

    def plans(self) -> Iterator[tuple[int, tuple[tuple[int, int], ...], int, str]]:
        """(after, what is kept of each pending byte operation, directory operations kept, how): cheap to make."""
        pending: list[int] = []
        directory: list[int] = []
        for after in range(len(self.log) + 1):
            if after:
                op = self.log[after - 1]
                if op.kind == "sync":
                    if op.inode:
                        pending = [i for i in pending if self.log[i].inode != op.inode]
                    else:
                        directory = []
                elif op.kind in ("write", "resize"):
                    pending.append(after - 1)
                else:
                    directory.append(after - 1)
            for kept in range(len(directory) + 1):
                for choice, how in self._choices(pending, full=kept == len(directory)):
                    yield after, choice, kept, f"{how}, {kept} of {len(directory)} directory changes"

    def _choices(self, pending: list[int], *, full: bool) -> Iterator[tuple[tuple[tuple[int, int], ...], str]]:
        everything = dict.fromkeys(pending, -1)
        yield tuple(everything.items()), "all kept"
        if not pending:
            return
        yield (), "all lost"
        if not full:
            return
        for number, i in enumerate(pending):
            others = {
                "all others kept": everything,
                "all others lost": {},
                "kept up to": dict.fromkeys(pending[:number], -1),
            }
            fates = [("lost", 0), ("kept", -1)]
            if self.log[i].kind == "write":
                fates += [(f"torn at {tear}", tear) for tear in TEARS if tear < len(self.log[i].data)]
            for (said, rest), (fate, part) in itertools.product(others.items(), fates):
                chosen = {**rest, i: part}
                if part == 0:
                    chosen.pop(i)
                yield tuple(sorted(chosen.items())), f"operation {i} {fate}, {said}"

    def build(self, after: int, choice: tuple[tuple[int, int], ...], kept: int, how: str) -> Cut:
        """The disk after such a cut."""
        contents, names, pending, directory = self._durable(after)
        contents = {inode: content.copy() for inode, content in contents.items()}
        names = dict(names)
        for i in directory[:kept]:
            apply(self.log[i], contents, names)
        parts = dict(choice)
        for i in pending:
            if i in parts:
                op = self.log[i]
                contents.setdefault(op.inode, Content())
                part = parts[i]
                apply(op if part < 0 else Op("write", op.inode, op.at, op.data[:part]), contents, names)
        live = set(names.values())
        contents = {inode: content for inode, content in contents.items() if inode in live}
        for inode in live:
            contents.setdefault(inode, Content())
        return Cut(MemoryDisk(contents, names, numbers=itertools.count(1_000_000)), after, how)

    _cache: tuple[int, dict[int, Content], dict[str, int], list[int], list[int]] | None = None

    def _durable(self, after: int) -> tuple[dict[int, Content], dict[str, int], list[int], list[int]]:
        """(synced bytes, lasting names, pending byte operations, pending directory operations) after so many."""
        if self._cache is None or self._cache[0] > after:
            self._cache = (0, {}, {}, [], [])
        at, contents, names, pending, directory = self._cache
        for i in range(at, after):
            op = self.log[i]
            if op.kind == "sync" and op.inode:
                for j in pending:
                    if self.log[j].inode == op.inode:
                        contents.setdefault(op.inode, Content())
                        apply(self.log[j], contents, names)
                pending = [j for j in pending if self.log[j].inode != op.inode]
            elif op.kind == "sync":
                for j in directory:
                    apply(self.log[j], contents, names)
                directory = []
            elif op.kind in ("write", "resize"):
                pending = [*pending, i]
            else:
                directory = [*directory, i]
        self._cache = (after, contents, names, pending, directory)
        return contents, names, pending, directory
