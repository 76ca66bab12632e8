"""Tasks in processes of this machine: what Spark does for one machine, without Java and its seconds of starting."""

from __future__ import annotations

import multiprocessing
import os
import secrets
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import connection
from typing import Final

from ..model.errors import LocalError
from .commit.table_commit import StagedRange
from .executor import Stage, watch_thread
from .plan.ranges import OffsetRange

PRELOADED: Final = ("pyarrow.parquet", "lading.tables.commit.staging", "lading.pipeline.range_writer")
"""Modules that the process which workers are forked from has loaded."""


class LocalExecutor:
    """Runs each task in one of ``processes`` workers; a task that fails ends its batch, which the next run repeats."""

    def __init__(self, processes: int | None = None) -> None:
        """``processes``: as many as this process has cores, unless given."""
        self._processes = processes or len(os.sched_getaffinity(0))
        self._pool: ProcessPoolExecutor | None = None
        self._name = secrets.token_hex(4)
        self._attempts = 0

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        """Call ``stage`` with every range, in a worker each; raises the first error of a task as it was raised."""
        pool = self._start_workers()
        tasks: list[Future[StagedRange]] = []
        for piece in ranges:
            self._attempts += 1
            tasks.append(pool.submit(stage, piece, f"{self._name}-{self._attempts}"))
        done, waiting = wait(tasks, return_when=FIRST_EXCEPTION)
        for task in waiting:
            task.cancel()
        for task in done:
            if not task.cancelled() and (error := task.exception()) is not None:
                # no process stages files any more when those of this batch are deleted
                wait(waiting)
                raise error
        return [task.result() for task in tasks]

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        """Do ``work``; if ``on_poll`` raises, the workers are ended."""
        watch_thread(work, on_poll, self._end_workers)

    def original_error(self, error: Exception) -> Exception:
        """Return ``error`` unchanged, as tasks raise it here; for a worker that died, a LocalError."""
        if isinstance(error, BrokenProcessPool):
            return LocalError(
                "a worker process ended before its task did, by a signal or for want of memory; nothing of this batch "
                "was published: run it again, with fewer processes or fewer rows a batch if it was memory"
            )
        return error

    def close(self) -> None:
        """End the workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _start_workers(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # forked from a process without threads; what it loads is loaded once for all
            context = multiprocessing.get_context("forkserver")
            context.set_forkserver_preload(list(PRELOADED))
            # the process they are forked from has the environment of its own start, and with it older credentials
            self._pool = ProcessPoolExecutor(self._processes, context, _begin, (dict(os.environ),))
        return self._pool

    def _end_workers(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        processes = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            with suppress(OSError, ValueError):
                process.terminate()


def _begin(environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    end_with_parent()


def end_with_parent() -> None:
    """End this worker process when its parent has ended, even if that was killed; leave Ctrl-C to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        connection.wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="lading parent", daemon=True).start()
