"""What an Iggy server answers to a poll, as a Run for the dialect to decode."""

from __future__ import annotations

from dataclasses import dataclass

from ...dialects.iggy_classic.layout import POLLED_HEAD_BYTES
from ...dialects.iggy_classic.messages import parse_polled_run
from ...model.chunk_table import BASE_OFFSET, COUNT, LAST_OFFSET, MIN_TIMESTAMP_US
from ...model.run import Run


@dataclass(frozen=True, slots=True)
class Polled:
    """The messages of one answer: none, or ``count`` of them from ``first`` to ``last``, both offsets included.

    ``size_bytes`` is what they take in it.
    """

    run: Run
    size_bytes: int

    @property
    def count(self) -> int:
        """How many messages."""
        return self._of(COUNT, 0)

    @property
    def first(self) -> int:
        """Offset of the first message, -1 where there is none."""
        return self._of(BASE_OFFSET, -1)

    @property
    def last(self) -> int:
        """Offset of the last message, -1 where there is none."""
        return self._of(LAST_OFFSET, -1)

    @property
    def first_timestamp_us(self) -> int:
        """Time of the earliest message, -1 where there is none."""
        return self._of(MIN_TIMESTAMP_US, -1)

    def _of(self, column: int, nothing: int) -> int:
        return int(self.run.chunks[0, column]) if len(self.run.chunks) else nothing


def parse_poll_response(body: bytearray) -> Polled:
    """The messages in the body of a poll's answer; MalformedMessage where they are none."""
    return Polled(parse_polled_run(body), len(body) - POLLED_HEAD_BYTES)
