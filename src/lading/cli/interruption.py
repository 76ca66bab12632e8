"""Ctrl-C and SIGTERM while Spark starts and works: no process is left running, no stack traces of the JVM appear."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from .output import print_note

if TYPE_CHECKING:
    from ..spark.session import SparkSession

Made = TypeVar("Made")
EXIT_CODE = 130
SIGNALS = (signal.SIGINT, signal.SIGTERM)
GIVEN_UP_WAIT_S = 2.0
"""Time for a call to the JVM to return after it was abandoned."""
SHOW_CURSOR = "\x1b[?25h"


def _say_starting() -> None:
    print_note("[dim]starting Spark …[/]")


class Interruption:
    """Raises KeyboardInterrupt while that is safe; once Spark runs, only sets ``is_requested``, to be polled.

    An exception in the middle of a call to the JVM, and PySpark's own handler, would leave pages of stack traces, or a
    JVM that waits for ever. The second signal ends the process at once, as a crash would: what is published by then is
    complete, and the next run continues from it.
    """

    def __init__(self) -> None:
        self.is_requested = False
        self._asked = False
        self._spark: SparkSession | None = None

    @contextmanager
    def install(self) -> Iterator[Interruption]:
        """Install the signal handlers while the context is active."""
        before = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal was received."""
        if self.is_requested:
            raise KeyboardInterrupt

    def run_interruptibly(self, work: Callable[[], Made]) -> Made:
        """Return or raise what ``work`` does. It runs in another thread, so that only the wait is interrupted."""
        self.check()
        done: list[Made] = []
        failed: list[BaseException] = []

        def do() -> None:
            try:
                self._activate()
                done.append(work())
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=do, name="lading waited", daemon=True)
        asked, self._asked = self._asked, False
        try:
            thread.start()
            thread.join()
        except KeyboardInterrupt:
            _give_up()
            thread.join(GIVEN_UP_WAIT_S)
            raise
        finally:
            self._asked = asked
        if failed:
            raise failed[0]
        return done[0]

    @contextmanager
    def spark(
        self, name: str, starts: Callable[[], None] = _say_starting, remote: str | None = None, **conf: Any
    ) -> Iterator[Callable[[], SparkSession]]:
        """Give a function that creates the Spark session, which takes seconds; the session is stopped at the end.

        With ``remote`` it is one of the Spark Connect server at this URL.

        From then on signals are only recorded: poll ``is_requested``, or use ``run_interruptibly`` for long work.
        """

        def start() -> SparkSession:
            from ..spark.session import connect, session

            return session(name, **conf) if remote is None else connect(remote)

        def started() -> SparkSession:
            if self._spark is None:
                starts()
                self._spark = self.run_interruptibly(start)
                self._activate()
                self._asked = True
            return self._spark

        try:
            yield started
        finally:
            # from here on an interruption only ends the stop of Spark
            self._asked = True
            spark, self._spark = self._spark, None
            try:
                if spark is not None:
                    spark.stop()
            except Exception:
                # a JVM that received the signal too has ended already
                if not self.is_requested:
                    raise
            finally:
                self._asked = False

    def _activate(self) -> None:
        if self._spark is not None:
            from ..spark.session import activate, is_connect

            if not is_connect(self._spark):
                activate(self._spark)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            _leave()
        self.is_requested = True
        # errors of calls to the JVM that were cut off
        logging.disable(logging.CRITICAL)
        if not self._asked:
            raise KeyboardInterrupt


def _give_up() -> None:
    if "pyspark" in sys.modules:
        from ..spark.jvm import kill_starting_jvms

        kill_starting_jvms()


def _leave() -> NoReturn:
    _give_up()
    if sys.stderr.isatty():
        sys.stderr.write(SHOW_CURSOR)
        sys.stderr.flush()
    os._exit(EXIT_CODE)


class StopSignal:
    """Ctrl-C and SIGTERM for work without Spark: the first asks it to end in order, the second ends the process."""

    def __init__(self) -> None:
        self.is_requested = False

    @contextmanager
    def install(self) -> Iterator[StopSignal]:
        """Install the signal handlers while the context is active."""
        before = {number: signal.signal(number, self._request) for number in SIGNALS}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.is_requested:
            raise KeyboardInterrupt
        self.is_requested = True
        print_note("[dim]stopping after the work in hand; once more ends at once[/]")
