"""Position of a reader in a topic, as Spark's checkpoint keeps it, and when it is lost (design.md Log).

The offsets document is meant to be read by people:
``{"flights": {"0": {"topic_id": "5f…", "epoch": 1, "offset": 4711}}}``; offsets are the next ones to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...model.errors import SettingError
from ...transports.interface import PartitionMeta, TopicMeta
from ...transports.losses import LogState, LossCause, ReaderPosition, find_log_loss

LAG = "lag"
"""The entry beside a topic's partitions that says what waits; readers of positions ignore it."""
OffsetsDocument = dict[str, dict[str, dict[str, Any]]]
"""Topic → partition → mark, as JSON."""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """A position that knows its log: the next offset, the epoch it was seen under, the topic's id in hex (or None).

    ``resumed_at`` is set if the range to this position does not begin at the position before: for a partition seen for
    the first time, and after a loss that was accepted. So ranges stay a pure function of the checkpoint.
    """

    topic_id: str | None
    epoch: int
    offset: int
    resumed_at: int | None = None

    def document(self) -> dict[str, Any]:
        """Return the position as the checkpoint has it, to be read by ``parse``."""
        row: dict[str, Any] = {"topic_id": self.topic_id, "epoch": self.epoch, "offset": self.offset}
        return row if self.resumed_at is None else row | {"resumed_at": self.resumed_at}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> PartitionOffset:
        """Parse what ``document`` returned. Raises SettingError for anything else."""
        try:
            topic_id, epoch, offset = document["topic_id"], int(document["epoch"]), int(document["offset"])
            resumed_at = None if document.get("resumed_at") is None else int(document["resumed_at"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SettingError(
                f"{document!r} is not a position; one has topic_id, epoch and offset, "
                'for example {"topic_id": "5f…", "epoch": 1, "offset": 4711}'
            ) from None
        return cls(topic_id, epoch, offset, resumed_at)


PartitionOffsets = dict[int, PartitionOffset]
"""Partition → position, for one topic."""


def document(topic: str, marks: PartitionOffsets) -> OffsetsDocument:
    """Return the offsets document of one topic."""
    return {topic: {str(number): mark.document() for number, mark in sorted(marks.items())}}


def parse_document(topic: str, offsets: Mapping[str, Any]) -> PartitionOffsets:
    """Return the positions of ``topic`` in an offsets document. Raises SettingError if it belongs to another topic."""
    if topic not in offsets:
        others = ", ".join(map(repr, offsets))
        raise SettingError(
            f"the checkpoint holds positions of topic {others}, not of {topic!r}; "
            "name that topic again or use a new checkpoint directory"
        )
    return {int(number): PartitionOffset.parse(mark) for number, mark in offsets[topic].items() if number != LAG}


def to_partition_offset(meta: TopicMeta, part: PartitionMeta, offset: int) -> PartitionOffset:
    """Return the position of ``offset`` in the log as it is now."""
    return PartitionOffset(meta.topic_id.hex() if meta.topic_id else None, part.epoch, offset)


@dataclass(frozen=True, slots=True)
class Loss:
    """Why messages after a position cannot be read any more, and the offset at which reading can continue."""

    cause: LossCause
    why: str
    resume: int

    def sentence(self, topic: str, partition: int, offset: int) -> str:
        """For people: which messages of which partition are lost, and what to do."""
        return (
            f"topic {topic!r}, partition {partition}: messages from offset {offset} and later are lost: {self.why}. "
            f"To continue at offset {self.resume} without them set failOnDataLoss=false"
        )


def find_loss(mark: PartitionOffset, meta: TopicMeta, part: PartitionMeta) -> Loss | None:
    """Return what a position has lost, or None if every message from it on can still be read.

    Messages are lost if the topic is another one, a recovery cut the log back, or retention has passed the position.
    """
    position = ReaderPosition(bytes.fromhex(mark.topic_id) if mark.topic_id else None, mark.epoch, mark.offset)
    lost = find_log_loss(position, LogState(meta.topic_id, part.epochs, part.first_offset, part.end_offset))
    if lost is None:
        return None
    why = {
        LossCause.OTHER_TOPIC: f"the topic was deleted and created again (id {(mark.topic_id or '')[:8]}… before)",
        LossCause.CUT_BACK: f"after a crash or a change of leaders the log went on at offset {lost.at} under epoch "
        f"{part.epoch}, the position is of epoch {mark.epoch}",
        LossCause.RETENTION: f"the first one kept has offset {lost.at}",
        LossCause.BEYOND_END: f"the partition ends at offset {lost.at}",
    }
    return Loss(lost.cause, why[lost.cause], lost.resume)
