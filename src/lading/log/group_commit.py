"""Group commit: one sync per log for all writes during the previous sync, in threads without the interpreter lock.

Every log has at most one sync in progress. Writes that are flushed meanwhile wait for the next one, so that the number
of syncs depends on the disk, not on the number of producers. With several threads the file system can combine the syncs
of many partitions.
"""

from __future__ import annotations

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from ..kernels import engine, sync_fallback
from .disk import File
from .interface import Syncable

LOG: Final = logging.getLogger("lading.log")
Done = Callable[[OSError | None], None]
_KERNEL: Final = "lading.kernels.sync"
_THREADS: Final = 8
_FILES_PER_TURN: Final = 8
"""A thread reports after this many files, so that few partitions do not wait for many."""
_RESULTS_AT_ONCE: Final = 4
"""Results of a thread that are taken in one pass of the loop: each ends a sync, begins the next one of its log and has
responses sent. The descriptor stays readable while more are left."""


class SyncNow:
    """Syncs in the calling thread: for tests, tools and disks without file descriptors."""

    instant = False
    running: Mapping[Syncable, object] = {}
    """No sync is ever in progress."""

    def submit(self, log: Syncable, done: Done | None = None) -> None:
        """Sync the log's files, one after the other."""
        failed: OSError | None = None
        files = log.begin_sync()
        try:
            for file in files:
                file.sync()
        except OSError as error:
            failed = error
            log.fail_sync(error)
        else:
            if files:
                log.complete_sync()
        if done is not None:
            done(failed)

    def fileno(self) -> int | None:
        """Return None: there is nothing to wait for."""
        return None

    def complete(self) -> None:
        """Do nothing: no sync is ever in progress."""

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Do nothing: no sync is ever in progress."""
        return True

    def close(self) -> None:
        """Do nothing: it has no threads."""


class _Job:
    """One sync of one log."""

    __slots__ = ("done", "failed", "files", "log", "open")

    def __init__(self, log: Syncable, files: Sequence[File], done: list[Done]) -> None:
        self.log, self.files, self.done = log, files, done
        self.open = len(files)
        self.failed: OSError | None = None


class _Thread:
    """A sync thread and its two pipes: descriptors go in, a byte for each comes back, in order."""

    def __init__(self, number: int) -> None:
        there, self._requests = os.pipe()
        self.answers, back = os.pipe()
        os.set_blocking(self.answers, False)
        self.waiting: deque[_Job] = deque()
        """The job of every file passed in and not reported yet."""
        self._thread = threading.Thread(target=_run, args=(there, back), name=f"sync-{number}", daemon=True)
        self._thread.start()

    def submit(self, job: _Job) -> None:
        numbers = np.array([file.fileno() for file in job.files], np.int32)
        self.waiting.extend([job] * len(numbers))
        os.write(self._requests, numbers.tobytes())

    def close(self) -> None:
        os.close(self._requests)
        self._thread.join(30)
        os.close(self.answers)


def _run(requests: int, answers: int) -> None:
    """Run the pure-Python fallback until the kernel is loaded, then the kernel, which returns when the pipe ends."""
    try:
        while (kernel := engine.get_loaded(_KERNEL)) is None:
            if not sync_fallback.sync_round(requests, answers, _FILES_PER_TURN):
                return
        rounds: Any = kernel.sync_rounds
        rounds(requests, answers, np.zeros(4 * _FILES_PER_TURN, np.uint8), np.zeros(_FILES_PER_TURN, np.uint8))
    finally:
        os.close(requests)
        os.close(answers)


class GroupCommit:
    """Sync threads for all logs of a process. The owner waits for ``fileno`` and calls ``complete``."""

    instant = False

    def __init__(self, threads: int = _THREADS) -> None:
        self._threads = [_Thread(number) for number in range(threads)]
        self._selector = selectors.DefaultSelector()
        for thread in self._threads:
            self._selector.register(thread.answers, selectors.EVENT_READ, thread)
        self.running: dict[Syncable, _Job] = {}
        """The sync in progress of each log that has one."""
        self._again: dict[Syncable, list[Done]] = {}

    def submit(self, log: Syncable, done: Done | None = None) -> None:
        """Sync the log now, or once more after the sync in progress."""
        if log in self.running:
            waiting = self._again.setdefault(log, [])
            if done is not None:
                waiting.append(done)
        else:
            self._start(log, [] if done is None else [done])

    def _start(self, log: Syncable, done: list[Done]) -> None:
        files = log.begin_sync()
        if not files:
            for callback in done:
                callback(None)
            return
        job = self.running[log] = _Job(log, files, done)
        min(self._threads, key=lambda thread: len(thread.waiting)).submit(job)

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when a sync has ended."""
        number = self._selector.fileno()
        return int(number)

    def complete(self) -> None:
        """Report some of the syncs that ended, and start those that waited for them; never blocks."""
        for key, _ in self._selector.select(0):
            self._take_results(key.data, _RESULTS_AT_ONCE)

    def _take_results(self, thread: _Thread, results_max: int) -> None:
        try:
            answers = os.read(thread.answers, results_max)
        except BlockingIOError:
            return
        for answer in answers:
            job = thread.waiting.popleft()
            if answer and job.failed is None:
                job.failed = OSError(answer, os.strerror(answer))
            job.open -= 1
            if not job.open:
                try:
                    self._complete_job(job)
                except Exception:
                    # the responses that follow in this read belong to other logs
                    LOG.exception("a callback of a sync failed")

    def _complete_job(self, job: _Job) -> None:
        log = job.log
        del self.running[log]
        try:
            self._finish(job)
        finally:
            self._start_again(log)

    def _finish(self, job: _Job) -> None:
        log = job.log
        if job.failed is None:
            # start the next sync before the callbacks of this one: they take time, and the disk would be idle
            tell, log.on_synced = log.on_synced, None
            try:
                log.complete_sync()
            finally:
                log.on_synced = tell
            self._start_again(log)
            if tell is not None:
                tell()
        else:
            log.fail_sync(job.failed)
        for callback in job.done:
            callback(job.failed)

    def _start_again(self, log: Syncable) -> None:
        if log not in self.running:
            waiting = self._again.pop(log, None)
            if waiting is not None:
                self._start(log, waiting)

    def drain(self, timeout_s: float = 30.0) -> bool:
        """Wait until no sync is in progress; return False if time ran out."""
        deadline = time.monotonic() + timeout_s
        while self.running:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self._selector.select(left):
                self._take_results(key.data, 4096)
        return True

    def close(self) -> None:
        """Drain and end the threads."""
        self.drain()
        for thread in self._threads:
            self._selector.unregister(thread.answers)
            thread.close()
        self._selector.close()
        self._threads = []


class WriteOnly(SyncNow):
    """``durability = "os"`` or ``"none"``: what is written is visible; the operating system syncs it at any time.

    With ``first``, that syncs the first write of each log, which is not visible before: after a power cut, a log whose
    messages are lost must not count as cleanly closed, so that a new epoch begins and readers notice. Without it
    nothing is synced.
    """

    instant = True

    def __init__(self, first: SyncNow | GroupCommit | None = None) -> None:
        self._first = first
        if first is not None:
            self.fileno, self.complete = first.fileno, first.complete  # type: ignore[method-assign]
            self.drain, self.close = first.drain, first.close  # type: ignore[method-assign]

    def submit(self, log: Syncable, done: Done | None = None) -> None:
        """Report everything as synced, unless it is the first write of a log."""
        first = self._first
        if first is not None and (not log.is_begun or log in first.running):
            first.submit(log, done)
            return
        if log.begin_sync():
            log.complete_sync()
        if done is not None:
            done(None)
