"""``python -m lading.spool URL TOPIC CHANNEL SPOOL [OPTIONS]``: fill a spool until standard input ends or SIGTERM.

OPTIONS is a JSON object: options of the transport, and ``keep_s``; with ``-`` it is the first line on standard input,
because it may contain secrets, and all users of a machine see the arguments of a command. Each further line is an
offset: readers are done with all messages before it, which may be deleted when they are old. One line of JSON on
standard output reports that all messages that waited at the start were taken (``{"event": "caught_up", "end": …}``),
that another process fills the spool (``taken``), or what went wrong.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from ..model.errors import LadingError
from .filler import fill_spool
from .spool_log import SpoolLocked, lock_spool

TAKEN_WAIT_S: Final = 3.0
TAKEN_LOOK_S: Final = 0.1


def main(arguments: list[str]) -> int:
    """Run until stopped; return 0, or 1 after an error."""
    url, topic, channel, directory = arguments[:4]
    options = _read_options(arguments[4]) if len(arguments) > 4 else {}
    ended: list[bool] = []
    parent = _CommandReader()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.append(True))

    def stopped() -> bool:
        # the parent holds the other end: when the parent ends, so does this process
        return bool(ended) or not parent.look()

    try:
        with ExitStack() as held:
            acquire_lock(held, Path(directory), stopped)
            fill_spool(
                url,
                topic,
                channel,
                Path(directory),
                is_stopped=stopped,
                caught_up=lambda end: _say(event="caught_up", end=end),
                done=lambda: parent.done,
                **options,
            )
    except SpoolLocked as taken:
        _say(event="taken", message=str(taken))
    except LadingError as error:
        _say(event="failed", message=str(error))
        return 1
    return 0


def _read_options(text: str) -> dict[str, Any]:
    if text != "-":
        return dict(json.loads(text))
    # unbuffered: what follows the line is read by select
    with open(sys.stdin.fileno(), "rb", buffering=0, closefd=False) as raw:
        return dict(json.loads(raw.readline()))


def acquire_lock(held: ExitStack, directory: Path, stopped: Callable[[], bool]) -> None:
    """Wait until the process that fills the spool has ended, and take its place.

    A stream that is restarted often begins before its predecessor has ended. Raises SpoolLocked if that does not end.
    """
    until = time.monotonic() + TAKEN_WAIT_S
    while True:
        try:
            held.enter_context(lock_spool(directory))
            return
        except SpoolLocked:
            if stopped() or time.monotonic() >= until:
                raise
            time.sleep(TAKEN_LOOK_S)


class _CommandReader:
    """Reader of the commands on standard input."""

    def __init__(self) -> None:
        self.done = 0
        self._rest = b""

    def look(self) -> bool:
        """Read the available commands; return False at the end of the input."""
        while select.select([sys.stdin], [], [], 0)[0]:
            data = os.read(sys.stdin.fileno(), 4096)
            if not data:
                return False
            *lines, self._rest = (self._rest + data).split(b"\n")
            self.done = max([self.done, *(int(line) for line in lines if line.isdigit())])
        return True


def _say(**document: Any) -> None:
    print(json.dumps(document), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
