"""A process that ends with its parent: its standard input is a pipe that the parent holds open and never writes to.

However the parent ends, the kernel closes the pipe. (PR_SET_PDEATHSIG is bound to the thread that started the child,
which may end before its process does.)
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from typing import Final

log = logging.getLogger("lading")

STANDARD_INPUT: Final = 0
END_S: Final = 4.0
"""Time that a process may take to stop after its parent's end, before it is killed."""


def end_with_parent() -> None:
    """Stop this process gracefully when standard input ends, and kill it if that takes too long."""
    threading.Thread(target=_wait_for_end, name="lading-parent", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(STANDARD_INPUT, 4096):
        pass
    log.warning("standard input ended: so did the process that this one belongs to")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_S)
    os.kill(os.getpid(), signal.SIGKILL)
