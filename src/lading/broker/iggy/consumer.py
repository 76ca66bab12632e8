"""The consumer of a poll, as Iggy names it: a consumer, or a group of its topic."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple, Self

from ...dialects.iggy.classic import protocol as iggy_row
from ...dialects.iggy.classic.group_keeper import keeper_number
from ..core.position import PositionKey

IGGY: Final = iggy_row.PROTOCOL.name


class IggyConsumerKind(Enum):
    """A consumer, which names its partition, or a group, whose members get theirs assigned."""

    CONSUMER = "consumer"
    GROUP = "group"


class ConsumerRef(NamedTuple):
    """The consumer of a poll: its kind, and the consumer's or group's id."""

    kind: IggyConsumerKind
    id: int

    @classmethod
    def keeper_of(cls, group: str) -> Self:
        """Return the consumer that stores a group's positions for members that use Lading's own client."""
        return cls(IggyConsumerKind.CONSUMER, keeper_number(group))

    @property
    def key(self) -> PositionKey:
        """The key under which its position is stored."""
        return PositionKey(IGGY, f"{self.kind.value}/{self.id}")
