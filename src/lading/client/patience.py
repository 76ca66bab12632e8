"""Waiting for a server that is unreachable, for readers without a time-out."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from ..model.errors import LadingError, Reason, Refusal, Unreachable
from .interceptors import LOG

PAUSE_MIN_S: Final = 0.5
PAUSE_MAX_S: Final = 10.0


class Patience:
    """Doubling pauses while a server is unreachable, with a log line when that begins and one when it ends."""

    def __init__(self, server: str, sleep: Callable[[float], None] = time.sleep, log: logging.Logger = LOG) -> None:
        """``server`` is the start of the log lines; ``sleep`` may raise, which ends the waiting."""
        self._server = server
        self._sleep = sleep
        self._log = log
        self._pause_s = 0.0

    def wait(self, error: LadingError) -> None:
        """Pause before the next attempt. Raises ``error`` if waiting cannot help."""
        stopping = isinstance(error, Refusal) and error.reason is Reason.STOPPING
        if not isinstance(error, Unreachable) and not stopping:
            raise error
        if not self._pause_s:
            self._log.warning("%s is away; waiting until it is back (%s)", self._server, error)
        self._pause_s = min(max(2 * self._pause_s, PAUSE_MIN_S), PAUSE_MAX_S)
        self._sleep(self._pause_s)

    def reset(self) -> None:
        """Forget the pauses: the server responds again."""
        if self._pause_s:
            self._log.warning("%s is back; continuing", self._server)
            self._pause_s = 0.0
