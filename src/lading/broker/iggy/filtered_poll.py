"""Polls of members whose group has a filter: the messages that meet it, and the offset up to which a poll has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ...model.chunk_table import LAST_OFFSET
from ...model.protocol import VisibilityRule
from ...model.ranges import ranges_of_rising
from ...model.run import Run
from ..core.counters import Counters
from ..core.group_condition import GroupCondition, select_offsets
from ..core.position import PositionKey
from ..core.read import ReadResult, RunSlice, message_offsets, read
from ..core.topology import Partition, Topic

if TYPE_CHECKING:
    from ...filter.filter import Filter

LOOK_MESSAGES: Final = 1_024
"""A poll reads at most this many messages: on the event loop, in one to four milliseconds."""
LOOK_BYTES: Final = 1 << 19
"""The same limit for large messages."""
PASSED_MAX: Final = 10_000
"""Remembered ranges of all groups; without its range a group's next poll reads the messages again."""


class FilteredPolls:
    """The conditions of Iggy's groups, and the ranges in which their polls found nothing.

    A client stores its position itself, or a poll that found messages does. Without messages the client polls from the
    same offset again, and the next poll continues after the messages that the last one read.
    """

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self.conditions: dict[tuple[Topic, PositionKey], GroupCondition] = {}
        """The condition of each group that has one, by topic and group."""
        self._passed: dict[tuple[Partition, PositionKey], tuple[GroupCondition, int, int]] = {}
        """Ranges of offsets in which a condition selects no message."""

    def set_condition(self, topic: Topic, group: PositionKey, condition: GroupCondition | None) -> None:
        """Set the condition on the messages that members of a group get; None for all messages."""
        if condition is None:
            self.conditions.pop((topic, group), None)
        else:
            self.conditions[topic, group] = condition

    def forget_topic(self, topic: Topic) -> None:
        """Forget a deleted topic."""
        for place in [place for place in self.conditions if place[0] is topic]:
            del self.conditions[place]
        for known in [known for known in self._passed if known[0].topic is topic]:
            del self._passed[known]

    def read(
        self,
        partition: Partition,
        group: PositionKey,
        condition: GroupCondition,
        offset: int,
        *,
        reader: VisibilityRule,
        max_messages: int,
        max_bytes: int,
    ) -> ReadResult:
        """Read the next messages that meet the condition from ``offset`` on, at most ``max_messages``."""
        place = partition, group
        known, first, end = self._passed.get(place, (None, 0, 0))
        start = end if known is condition and first <= offset < end else offset
        reading = read(
            partition, start, reader=reader, max_messages=LOOK_MESSAGES, max_bytes=min(max_bytes, LOOK_BYTES),
            counters=self._counters,
        )  # fmt: skip
        self._counters.messages_out -= reading.count
        selected = _select(reading, condition.find_filter(partition.topic), max_messages)
        self._counters.messages_out += selected.count
        if not selected.count and selected.end_offset > start:
            self._passed.pop(place, None)
            if len(self._passed) >= PASSED_MAX:
                del self._passed[next(iter(self._passed))]
            self._passed[place] = condition, offset if start == offset else first, selected.end_offset
        return selected


def _select(reading: ReadResult, condition: Filter, max_messages: int) -> ReadResult:
    """Return a reading of the messages that meet a condition; if there are more than allowed, it ends after the last
    one.
    """
    selected = ReadResult([], reading.first_offset, reading.end_offset, 0, 0, reading.hidden)
    for run, first, end in reading.pieces:
        offsets = select_offsets(run, first, end, condition)
        if offsets is None:
            offsets = message_offsets(run, first, end)
        left = max_messages - selected.count
        for low, high in ranges_of_rising(offsets[:left]).tolist() if len(offsets) else ():
            at, last = np.searchsorted(run.chunks[:, LAST_OFFSET], (low, high - 1)).tolist()
            holding = Run(run.dialect, run.region, run.chunks[at : last + 1])
            selected.pieces.append(RunSlice(holding, low, high))
            selected.count += high - low
        if len(offsets) > left:
            selected.end_offset = int(offsets[left - 1]) + 1
            break
    if reading.count:
        selected.size_bytes = reading.size_bytes * selected.count // reading.count
    return selected
