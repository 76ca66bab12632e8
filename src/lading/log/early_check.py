"""The format gate's check of a large data directory, in a process beside the rest of a start.

With thousands of partitions the check takes as long as the imports that a start still has before it, and neither
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
"""Fewer topics are checked sooner than a process is made."""


@contextlib.contextmanager
def checking_early(data: Path, topics_min: int = TOPICS_MIN) -> Iterator[Callable[[], FoundFiles | None]]:
    """Begin the check; gives a function that waits for it and returns what was found.

    It returns None where the caller has to check the directory itself: a small one, and after any error, which the
    gate then raises where it is expected. The caller holds the lock of the directory, so that what was found stays
    true.
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
    """Return the id of the process that checks and the pipe for its result; None where no process can be made."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # it warns of locks that other threads hold: the child takes none, it only lists and reads files
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if not child:
        _check(data, writing)
    os.close(writing)
    return child, open(reading, "rb")


def _count_topics(data: Path) -> int:
    try:
        return len(os.listdir(data / "topics"))  # noqa: PTH208
    except OSError:
        return 0


def _check(data: Path, writing: int) -> None:
    """Write what the gate finds, and end this process: all else in it belongs to the one that it was made from."""
    try:
        # among them the lock of the directory, which would stay if the broker was killed meanwhile
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        # here, so that the process is made before NumPy is imported, which takes half as long as the check
        from .formats import GATE

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
