"""When a request of a thread that serves many partitions is tried again, so that it holds up none of the others."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

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

    def put_off(self, error: Exception, patience_s: float, passing_codes: Collection[int] = RETRIABLE) -> bool:
        """Set ``due_s``, and return whether to try again: not if the error does not pass, or has lasted too long."""
        now_s = time.monotonic()
        self._end_s = self._end_s or now_s + patience_s
        passes = isinstance(error, Unreachable) or getattr(error, "code", None) in passing_codes
        if not passes or now_s >= self._end_s:
            return False
        self.due_s = now_s + self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
        return True


class TriedWork(Protocol):
    """Work that may be tried more than once."""

    attempts: ClusterAttempts


Key = TypeVar("Key")
Work = TypeVar("Work", bound=TriedWork)


class StalledWork(Generic[Key, Work]):
    """Work that waits to be tried again, by the partition or group whose order it keeps. The caller holds a lock."""

    def __init__(self, patience_s: float, passing_codes: Collection[int] = RETRIABLE) -> None:
        """``patience_s`` is how long work is tried that ends with one of these codes, or without a response."""
        self._patience_s = patience_s
        self._passing_codes = passing_codes
        self._waiting: dict[Key, Work] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def put_off(self, key: Key, work: Work, error: Exception) -> bool:
        """Have work tried again later, and return whether: not if the error does not pass, or has lasted too long."""
        if not work.attempts.put_off(error, self._patience_s, self._passing_codes):
            return False
        self._waiting[key] = work
        return True

    def discard(self, key: Key) -> None:
        """Forget the work of a key, if it has any."""
        self._waiting.pop(key, None)

    def take_due(self) -> Work | None:
        """Remove the work that is due first and return it, or None if its time has not come."""
        key = self._find_first()
        if key is None or self._waiting[key].attempts.due_s > time.monotonic():
            return None
        return self._waiting.pop(key)

    def measure_wait_s(self) -> float | None:
        """Return the time until the next work is due, or None if nothing waits."""
        key = self._find_first()
        return None if key is None else max(self._waiting[key].attempts.due_s - time.monotonic(), 0.0)

    def _find_first(self) -> Key | None:
        return min(self._waiting, key=lambda key: self._waiting[key].attempts.due_s, default=None)
