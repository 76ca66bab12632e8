"""A call in a second process, for work that threads could not do at the same time."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import warnings
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, TypeVar

T = TypeVar("T")


@contextlib.contextmanager
def calling_in_fork(call: Callable[[], T]) -> Iterator[Callable[[], T | None]]:
    """Begin ``call`` in a fork of this process; yields a function that waits for its result.

    The result is None after any error, and if no process can be created: the caller then makes the call itself and gets
    the error in its own process. The fork ends with the block, and keeps only the standard streams open.
    """
    begun = _begin(call)
    if begun is None:
        yield lambda: None
        return
    child, pipe = begun
    try:
        yield lambda: _load(pipe.read())
    finally:
        pipe.close()
        # the process has ended, or its result is not wanted any more
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _begin(call: Callable[[], object]) -> tuple[int, BinaryIO] | None:
    """Return the id of the process and the pipe for its result; None if no process can be created."""
    reading, writing = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python warns that other threads may hold locks: the child's call takes no locks
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        return None
    if not child:
        _write_result(call, writing)
    os.close(writing)
    return child, open(reading, "rb")


def _write_result(call: Callable[[], object], writing: int) -> None:
    """Write the call's result, and end this process at once: everything else in it belongs to its parent."""
    try:
        # close inherited files: otherwise file locks would remain if the parent is killed meanwhile
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        with open(writing, "wb") as pipe:
            pipe.write(pickle.dumps(call(), pickle.HIGHEST_PROTOCOL))
    finally:
        # also after an error: the caller makes the call itself then, and gets the same error
        os._exit(0)


def _load(data: bytes) -> Any:
    try:
        return pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return None
