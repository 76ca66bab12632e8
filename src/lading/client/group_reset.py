"""New positions of a group: from a user's specification to one offset per partition."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from ..model.errors import LocalError
from ..transports.interface import Transport
from .read_bounds import OffsetSpec, resolve_offset


class PlannedPosition(NamedTuple):
    """A partition, the group's present position in it (None without one), and its new one."""

    topic: str
    partition: int
    position: int | None
    new_position: int


def plan_group_reset(
    transport: Transport,
    group: dict[str, Any],
    to: OffsetSpec | None,
    *,
    shift: int = 0,
    topics: Sequence[str] = (),
    partitions: Collection[int] = (),
) -> list[PlannedPosition]:
    """Return the positions that a group would get; nothing is changed.

    ``group`` is the group's description from the admin endpoint. ``to`` is a bound as for a ``Consumer``; without it
    the position is moved by ``shift``, and partitions without a position are left out. An offset before the first
    message of a partition becomes its first offset, one after the last message its next offset. Without ``topics``, all
    partitions with a position of the group are planned. Raises LocalError if that leaves none.
    """
    stored = {(row["topic"], row["partition"]): int(row["position"]) for row in group["partitions"]}
    planned = []
    for meta in map(transport.topic, topics or dict.fromkeys(topic for topic, _ in stored)):
        for part in meta.partitions:
            position = stored.get((meta.name, part.number))
            if partitions and part.number not in partitions:
                continue
            if position is None and (not topics or to is None):
                continue
            wanted = (position or 0) + shift if to is None else resolve_offset(transport, meta, part, to)
            new_position = min(max(wanted, part.first_offset), part.end_offset)
            planned.append(PlannedPosition(meta.name, part.number, position, new_position))
    if not planned:
        raise LocalError(
            f"group {group['group']!r} has no position there to be reset; "
            "name a topic that it is to read with --topic, and a position with --to"
        )
    missing = set(partitions) - {one.partition for one in planned}
    if missing:
        raise LocalError(
            f"partition {min(missing)} is none of those of group {group['group']!r} that can be reset; "
            "see lading group show"
        )
    return planned
