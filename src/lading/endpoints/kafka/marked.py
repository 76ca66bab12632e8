"""Messages that are not available, for Kafka readers of a topic that shows them: a header has their state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from ...broker.core.state_header import add_state
from ...model.ranges import split_by_mark

if TYPE_CHECKING:
    from ...broker.core.topology import Topic

SHOWN: Final = "shown"
"""Value of the topic setting ``kafka_states``."""

Change = Callable[[pa.RecordBatch], pa.RecordBatch]


def shows_states(topic: Topic) -> bool:
    """Return whether Kafka readers of the topic get messages that are not available."""
    return topic.settings.kafka_states == SHOWN


def split_by_state(
    hidden: Sequence[tuple[int, int, int]], first: int, end: int
) -> Iterator[tuple[int, int, Change | None]]:
    """Yield the ranges of ``first`` to ``end`` in order, and what is done to messages of a marked one."""
    for start, stop, state in split_by_mark(hidden, first, end):
        yield start, stop, None if state is None else partial(add_state, state)
