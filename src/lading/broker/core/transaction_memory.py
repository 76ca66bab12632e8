"""Transactions that were settled long ago are forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .component import Component
from .writer_state import WriterStateManager


class TransactionMemory(Component):
    """Has settled transactions forgotten once they are ``keep_us`` old."""

    def __init__(
        self, memory: WriterStateManager, forget: Sequence[Callable[[int], None]], keep_us: int, now_us: int
    ) -> None:
        """Each of ``forget`` drops what was settled before the time that it is given."""
        self._memory = memory
        self._forget = forget
        self._keep_us = keep_us
        self._due_us = now_us + keep_us

    def tick(self, now_us: int) -> None:
        """Forget once in ``keep_us``."""
        if now_us < self._due_us:
            return
        self._due_us = now_us + self._keep_us
        # after these snapshots no start has to ask for what was decided before them
        self._memory.snapshot_all()
        for forget in self._forget:
            forget(now_us - self._keep_us)
