"""The format gate's look at a large data directory, in a process beside the rest of a start.

With thousands of partitions the look takes as long as the imports that a start still has before it, and neither
needs what the other finds. Threads would not help: they take turns at one interpreter.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from .found_files import FoundFiles

TOPICS_MIN: Final = 200
"""Fewer topics are looked at sooner than a process is made."""


@contextlib.contextmanager
def checking_early(data: Path, topics_min: int = TOPICS_MIN) -> Iterator[Callable[[], FoundFiles | None]]:
    """Begin the look; gives what waits for it and returns what was found, or None where the caller has to look.

    That is so in a small directory, and after any error: the gate then raises it where it is expected. The caller
    holds the lock of the directory, so that what was found stays true.
    """
    begun = _begin(data) if _count_topics(data) >= topics_min else None
    if begun is None:
        yield lambda: None
        return
    child, pipe = begun
    try:
        yield lambda: _load(pipe.read())
    finally:
        pipe.close()
        # it has ended, or nobody wants to know any more
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _begin(data: Path) -> tuple[int, BinaryIO] | None:
    """Return the id of the process that looks and what it is going to say; None where no process can be made."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # of threads that hold locks: the child takes none, it only lists and reads files
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if not child:
        _look(data, writing)
    os.close(writing)
    return child, open(reading, "rb")


def _count_topics(data: Path) -> int:
    try:
        return len(os.listdir(data / "topics"))  # noqa: PTH208
    except OSError:
        return 0


def _look(data: Path, writing: int) -> None:
    """Write what the gate finds, and end this process: all else in it belongs to the one that it was made from."""
    try:
        # here, so that the process is made before NumPy is imported, which takes half as long as the look
        from .formats import GATE

        # among them the lock of the directory, which would stay if the broker was killed meanwhile
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        with open(writing, "wb") as pipe:
            pipe.write(pickle.dumps(GATE.check_directory(data), pickle.HIGHEST_PROTOCOL))
    finally:
        # also after an error, which the broker will meet itself
        os._exit(0)


def _load(data: bytes) -> FoundFiles | None:
    try:
        found = pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return None
    assert isinstance(found, FoundFiles)
    return found
