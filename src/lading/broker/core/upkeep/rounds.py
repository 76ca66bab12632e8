"""Rounds: work on each of many partitions, in turns between which clients are served."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ....runtime.turns import Turn, TurnCounter
from ..topology import Partition

ROUND_TURN_S: Final = 0.003
"""Length of a turn of a round, with a hundred or more partitions, before others have their turn."""


class Round:
    """A round of partitions: it begins at once, and continues in the next passes of the event loop."""

    def __init__(
        self, do: Callable[[Partition], None], call_at_end_of_pass: Callable[[Callable[[], None]], None]
    ) -> None:
        """``do`` is called with each partition and must not raise.

        ``call_at_end_of_pass`` calls back in this pass of the event loop or the next.
        """
        self._do = do
        self._call_at_end_of_pass = call_at_end_of_pass
        self._left: dict[Partition, None] = {}
        self._is_asked = False

    @property
    def is_under_way(self) -> bool:
        """Whether partitions wait for their turn."""
        return bool(self._left)

    def go(self, partitions: Iterable[Partition]) -> None:
        """Continue the present round, or begin one with these partitions."""
        if not self._left:
            # reversed, since removing the last entry of a dict is fastest
            self._left = dict.fromkeys(reversed(list(partitions)))
        self._continue_round()

    def leave_out(self, partition: Partition) -> None:
        """Leave out a partition whose turn has not come."""
        self._left.pop(partition, None)

    def _continue_round(self) -> None:
        turn, counter = Turn(ROUND_TURN_S), TurnCounter()
        while self._left:
            self._do(self._left.popitem()[0])
            if counter.is_over() and turn.is_over():
                break
        if self._left and not self._is_asked:
            self._is_asked = True
            self._call_at_end_of_pass(self._on_end_of_pass)

    def _on_end_of_pass(self) -> None:
        self._is_asked = False
        self._continue_round()
