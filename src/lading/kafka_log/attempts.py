"""When a request of a thread that serves many partitions is tried again, so that it holds up none of the others."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Final

from ..dialects.kafka.errors import RETRIABLE
from ..model.errors import Unreachable

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
"""The pause before the next attempt doubles up to this."""


@dataclass(slots=True)
class ClusterAttempts:
    """The attempts of one request."""

    due_s: float = 0.0
    """When it is tried next."""
    _pause_s: float = FIRST_PAUSE_S
    _end_s: float = 0.0
    """When trying ends; 0 before the first failure."""

    def begin_anew(self) -> None:
        """Note that the cluster has done a part of the request."""
        self._pause_s, self._end_s = FIRST_PAUSE_S, 0.0

    def put_off(self, error: Exception, patience_s: float) -> bool:
        """Set ``due_s``, and return whether to try again: not if the error does not pass, or has lasted too long."""
        now_s = time.monotonic()
        self._end_s = self._end_s or now_s + patience_s
        passes = isinstance(error, Unreachable) or getattr(error, "code", None) in RETRIABLE
        if not passes or now_s >= self._end_s:
            return False
        self.due_s = now_s + self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True
