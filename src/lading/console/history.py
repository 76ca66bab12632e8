"""Numbers over the last hour, as often as somebody looked: the process keeps them in memory."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

Subject = TypeVar("Subject", bound=Hashable)

SAMPLES_MAX: Final = 720
SAMPLE_S: Final = 5.0
"""The shortest time between two samples of a subject: 720 of them are an hour."""
HOUR_S: Final = SAMPLES_MAX * SAMPLE_S


class History(Generic[Subject]):
    """Samples of one number for each subject. Threads: the caller's lock."""

    def __init__(self, subjects_max: int, now_s: Callable[[], float] = time.time) -> None:
        self._subjects_max = subjects_max
        self._now_s = now_s
        self._samples: dict[Subject, deque[tuple[float, float]]] = {}

    def note(self, subject: Subject, value: float) -> None:
        """Add a sample, unless the last one is younger than ``SAMPLE_S``."""
        samples = self._samples.get(subject)
        if samples is None:
            if len(self._samples) >= self._subjects_max:
                # the subject that was looked at first goes
                del self._samples[next(iter(self._samples))]
            samples = self._samples[subject] = deque(maxlen=SAMPLES_MAX)
        now_s = self._now_s()
        if not samples or now_s - samples[-1][0] >= SAMPLE_S:
            samples.append((now_s, value))

    def of(self, subject: Subject) -> list[tuple[float, float]]:
        """Return (seconds since 1970, number) of the last hour, oldest first."""
        since_s = self._now_s() - HOUR_S
        return [one for one in self._samples.get(subject, ()) if one[0] >= since_s]
