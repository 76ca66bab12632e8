"""``lading`` in a process that kills itself: ``python -m tests.pipeline.killed_redrive STEPS_FILE STEP ARGUMENT...``.

A step is each request sent, each piece of a response received, each file put in its place, before and after. How many
there were is in STEPS_FILE; the process is gone at STEP, as by ``kill -9``; 0 lets it end.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lading.cli.main import main

PLACES: tuple[tuple[Any, str], ...] = (
    (socket.socket, "sendall"), (socket.socket, "recv_into"), (socket.socket, "recv"), (os, "replace"),
)  # fmt: skip


class StepCounter:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, file: Path, last: int) -> None:
        self._file, self._last, self._done = file, last, 0

    def note_step(self) -> None:
        self._done += 1
        if self._done == self._last:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self) -> None:
        self._file.write_text(str(self._done))

    def wrap(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            self.note_step()
            answer = call(*arguments, **named)
            self.note_step()
            return answer

        return counted


if __name__ == "__main__":
    counter = StepCounter(Path(sys.argv[1]), int(sys.argv[2]))
    for owner, name in PLACES:
        setattr(owner, name, counter.wrap(getattr(owner, name)))
    sys.argv[1:] = sys.argv[3:]
    try:
        main()
    finally:
        counter.write()
