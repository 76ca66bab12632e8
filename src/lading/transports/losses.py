"""Losses of a reader: whether its position is lost, which payload is wrong, which messages were requested.

Consumer, bulk reading and tables use these functions, and add their own remedy to the text.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ..model.ranges import merge_ranges
from ..model.run import Decoded, Located

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import pyarrow as pa

    from ..model.ranges import OffsetSpan

RANGES_NAMED_MAX = 20
"""At most this many ranges are named in a sentence; a failing disk may have thousands."""
Epochs = tuple[tuple[int, int], ...]
"""(Epoch, its first offset), as servers report them."""


class LossCause(Enum):
    """Why messages at a position cannot be read any more."""

    OTHER_TOPIC = "another topic has the name"
    CUT_BACK = "a recovery, or another leader, truncated the log below the position"
    RETENTION = "retention passed the position"
    BEYOND_END = "the log ends below the position"


class LostRange(Enum):
    """Messages that a reader requested and did not get, with the reason as text."""

    CUT = "were lost when the broker recovered after a crash, or another one took over that did not have them"
    DELETED = "were deleted by retention"
    DAMAGED = "are damaged in the log and cannot be read"


class LogLoss(NamedTuple):
    """A loss, found at the offset ``at``, and the offset at which reading can continue."""

    cause: LossCause
    at: int
    resume: int


class ReaderPosition(NamedTuple):
    """Position of a reader: the next offset, the epoch that it was read under, the id of the topic.

    None stands for unknown values, which are not compared. Without ``offset`` only the topic is compared.
    """

    topic_id: bytes | None
    epoch: int | None
    offset: int | None


class LogState(NamedTuple):
    """The log as a server shows it now; ``end_offset`` is None if the response does not contain it."""

    topic_id: bytes | None
    epochs: Epochs
    first_offset: int
    end_offset: int | None = None


def find_log_loss(position: ReaderPosition, log: LogState) -> LogLoss | None:
    """Return why messages at a position are lost, None if they are not.

    A newer epoch alone is not a loss. If the system has no epochs, messages are lost if the end is below the position.
    """
    first = log.first_offset
    if position.topic_id and log.topic_id and position.topic_id != log.topic_id:
        return LogLoss(LossCause.OTHER_TOPIC, first, first)
    if position.offset is None:
        return None
    cut = None if position.epoch is None else next_epoch_start(position.epoch, log.epochs)
    if cut is not None and position.offset > cut:
        return LogLoss(LossCause.CUT_BACK, cut, max(cut, first))
    if position.offset < first:
        return LogLoss(LossCause.RETENTION, first, first)
    if not log.epochs and log.end_offset is not None and position.offset > log.end_offset:
        return LogLoss(LossCause.BEYOND_END, log.end_offset, first)
    return None


def describe_lost_range(topic: str, partition: int, first: int, end: int, what: LostRange) -> str:
    """Return the sentence about messages from ``first`` up to, not including, ``end``."""
    return f"topic {topic!r}, partition {partition}: offsets {first} to {end - 1} {what.value}"


def describe_damage(damaged: Mapping[int, Iterable[OffsetSpan]], partitions_count: int) -> str:
    """Return one sentence about damaged ranges by partition, "" without damage.

    Partitions are named if the topic has several.
    """
    ranges = [(number, *one) for number, spans in sorted(damaged.items()) for one in merge_ranges(spans)]
    if not ranges:
        return ""
    count = sum(end - first for _, first, end in ranges)
    named = ", ".join(
        (f"{first}" if end - first == 1 else f"{first} to {end - 1}")
        + (f" of partition {number}" if partitions_count > 1 else "")
        for number, first, end in ranges[:RANGES_NAMED_MAX]
    )
    if (left := len(ranges) - RANGES_NAMED_MAX) > 0:
        named += f" and {left:,} other range{'s' * (left != 1)}"
    if count == 1:
        return f"1 message could not be read: offset {named} is damaged"
    return f"{count:,} messages could not be read: offsets {named} are damaged"


def describe_other_topic(topic: str) -> str:
    """Return the sentence about a name that now belongs to another topic."""
    return f"topic {topic!r} was deleted and created again since it was read"


def select_damage(damaged: Iterable[tuple[int, int]], first: int, end: int) -> list[tuple[int, int]]:
    """Return the damaged ranges in the messages from ``first`` up to ``end``."""
    return [one for one in damaged if one[1] > first and one[0] < end]


def next_epoch_start(epoch: int, epochs: Epochs) -> int | None:
    """Return the first offset of the epoch that follows ``epoch``, or None."""
    return next((first for number, first in sorted(epochs) if number > epoch), None)


def find_wrong_payload(parts: Iterable[Decoded]) -> int | None:
    """Return the offset of the first message whose payload does not match its checksum."""
    from .checksums import mismatches

    for part in parts:
        rows = mismatches(part.columns["payload"], part.columns["checksum"])
        if rows.size:
            offset: int = part.columns["offset"][int(rows[0])].as_py()
            return offset
    return None


def select_messages(decoded: Decoded, keep: pa.BooleanArray) -> Decoded:
    """Return the messages for which ``keep``, which has no nulls, is true."""
    count = keep.true_count
    if count == decoded.count:
        return decoded
    rows = keep.to_numpy(zero_copy_only=False)
    return Decoded(
        count,
        {name: column.filter(keep) for name, column in decoded.columns.items()},
        {key: Located(at.data, at.start[rows], at.length[rows], at.kind[rows]) for key, at in decoded.located.items()},
    )
