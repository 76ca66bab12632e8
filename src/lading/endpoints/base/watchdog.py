"""A thread that ends the process when the event loop hangs: after a restart clients are served again.

Time is counted in steps that the watchdog has slept through itself. A process that was stopped, suspended or swapped
out as a whole has taken one step, however long that lasted, so that only a loop that hangs while this thread runs is
ended.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

STALLED_EXIT_CODE: Final = 70
"""EX_SOFTWARE: a fault of the program, not of its settings or its surroundings."""
STEPS: Final = 12
"""The time-out is this many steps without a sign of the loop."""
LAST_WORDS_S: Final = 5
"""How long writing the stacks may take: an unread standard error must not keep the process alive."""


class Watchdog:
    """Asks the loop for a sign in every step, and calls ``on_stall`` once after ``STEPS`` steps without one."""

    def __init__(self, ask: Callable[[Callable[[], None]], object], on_stall: Callable[[], None]) -> None:
        """``ask`` has a callback run by the loop, from any thread."""
        self._ask = ask
        self._on_stall = on_stall
        self._silent_steps = 0
        self._answered = True

    def step(self) -> None:
        """Take note that one step of the clock has passed, and ask for a sign or count a silent step.

        ``on_stall`` is called once, at the silent step with the number ``STEPS``.
        """
        if self._answered:
            self._answered = False
            self._silent_steps = 0
            self._ask(self._note_pass)
            return
        self._silent_steps += 1
        if self._silent_steps == STEPS:
            self._on_stall()

    def _note_pass(self) -> None:
        self._answered = True


@contextmanager
def watch_loop(loop: asyncio.AbstractEventLoop, stall_timeout_ms: int) -> Iterator[None]:
    """Watch ``loop`` until the end of the block, unless ``stall_timeout_ms`` is 0."""
    if not stall_timeout_ms:
        yield
        return
    ended = threading.Event()
    dog = Watchdog(loop.call_soon_threadsafe, lambda: end_process(stall_timeout_ms))

    def walk() -> None:
        while not ended.wait(stall_timeout_ms / 1e3 / STEPS):
            dog.step()

    thread = threading.Thread(target=walk, name="lading-watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def end_process(stall_timeout_ms: int) -> None:
    """Write the stacks of all threads to standard error and leave at once, as a crash would: nothing is flushed."""
    # its default action ends the process, whatever the writes below wait for
    signal.alarm(LAST_WORDS_S)
    handle = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
    sentence = (
        f"event loop: stood still for {stall_timeout_ms} ms (broker.stall_timeout_ms), the process ends with code "
        f"{STALLED_EXIT_CODE}; report these stacks and start it again\n"
    )
    try:
        os.write(handle, sentence.encode())
        faulthandler.dump_traceback(handle, all_threads=True)
    finally:
        os._exit(STALLED_EXIT_CODE)
