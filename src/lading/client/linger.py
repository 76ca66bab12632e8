"""The thread that sends a producer's waiting messages, and what happens to them when the interpreter ends or forks.

This module keeps references to producers with waiting messages, so that they are sent even if their owner drops the
producer. Threads are daemons that run until the interpreter shuts down: they exist at exit, when no new thread can be
started.
"""

from __future__ import annotations

import atexit

# imported early: the first batch may need thread pools, whose module cannot be imported while the interpreter ends
import concurrent.futures.thread  # noqa: F401
import os
import sys
import threading
import time
import weakref
from typing import Final, Protocol

EXIT_FLUSH_S: Final = 10.0
"""Time that the end of the program waits for unsent messages, of all producers together."""


class Lingering(Protocol):
    """A producer as its thread sees it."""

    def flush_late(self) -> None:
        """Send all waiting messages; keep an error for the next call."""

    def describe_lost(self) -> str | None:
        """Return how many messages were not sent, their topics and the cause; None if all were."""

    def forget_in_child(self) -> None:
        """Make the producer unusable in a forked process: messages and connection belong to the parent."""


class Linger:
    """The background flush of one producer, ``linger_s`` after its first waiting message; None flushes only at exit."""

    def __init__(self, linger_s: float | None) -> None:
        self._linger_s = linger_s
        self._reset()

    def _reset(self) -> None:
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._waiting: Lingering | None = None
        self._due_s: float | None = None
        self._flushing = False
        self._stopped = False

    def begin(self, producer: Lingering, *, timed: bool = True) -> None:
        """Flush the waiting messages of ``producer`` when it is time, or with ``timed`` False only at exit."""
        with self._changed:
            if self._waiting is None:
                self._waiting = producer
                _WAITING.add(self)
            if timed and self._due_s is None and self._linger_s is not None:
                self._due_s = time.monotonic() + self._linger_s
                self._changed.notify_all()
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="lading-linger", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """Release the producer for garbage collection: it has no waiting messages any more."""
        with self._changed:
            self._waiting = self._due_s = None
            _WAITING.discard(self)

    def stop(self) -> None:
        """End the thread without sending waiting messages."""
        with self._changed:
            self._stopped = True
            self._waiting = None
            _WAITING.discard(self)
            self._changed.notify_all()

    def flush_now(self) -> None:
        """Have the thread flush at once."""
        with self._changed:
            self._due_s = 0.0
            self._changed.notify_all()

    def wait_flushed(self, deadline_s: float) -> Lingering | None:
        """Wait until the thread has flushed, up to the monotonic ``deadline_s``; return the producer if messages are
        left.
        """
        with self._changed:
            while self._waiting is not None and (self._due_s is not None or self._flushing):
                if not self._changed.wait(max(deadline_s - time.monotonic(), 0.0)):
                    break
            return self._waiting

    def forget_in_child(self) -> None:
        """Forget thread and messages in a forked process, whose copies of the locks may be held for ever."""
        producer = self._waiting
        self._reset()
        self._stopped = True
        if producer is not None:
            producer.forget_in_child()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (self._due_s is None or self._due_s > time.monotonic()):
                    self._changed.wait(None if self._due_s is None else self._due_s - time.monotonic())
                if self._stopped:
                    return
                producer, self._due_s, self._flushing = self._waiting, None, True
            if producer is not None:
                producer.flush_late()
            # an idle thread must not keep the producer from being collected
            del producer
            with self._changed:
                self._flushing = False
                self._changed.notify_all()


_WAITING: Final[set[Linger]] = set()
"""Lingers whose producers have waiting messages."""
_LINGERS: Final[weakref.WeakSet[Linger]] = weakref.WeakSet()
_PRODUCERS: Final[weakref.WeakSet[Lingering]] = weakref.WeakSet()


def watch(producer: Lingering, linger: Linger) -> None:
    """Flush a producer at exit, end its thread when it is collected, and make it unusable in forked processes."""
    _LINGERS.add(linger)
    _PRODUCERS.add(producer)
    weakref.finalize(producer, linger.stop).atexit = False


def _flush_at_exit() -> None:
    lingers = list(_WAITING)
    deadline_s = time.monotonic() + EXIT_FLUSH_S
    for linger in lingers:
        linger.flush_now()
    for linger in lingers:
        producer = linger.wait_flushed(deadline_s)
        lost = producer.describe_lost() if producer is not None else None
        if lost is not None and sys.stderr is not None:
            sys.stderr.write(f"lading: {lost}\n")


def _forget_in_child() -> None:
    for linger in list(_LINGERS):
        linger.forget_in_child()
    for producer in list(_PRODUCERS):
        producer.forget_in_child()
    _WAITING.clear()


atexit.register(_flush_at_exit)
os.register_at_fork(after_in_child=_forget_in_child)
