"""Message states, set by offsets or ranges; an answer means they are on disk (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.errors import Reason, Refusal
from ..model.state import State
from .topology import Partition


def ranges_of(offsets: Iterable[int]) -> list[tuple[int, int]]:
    """Single offsets as ranges (first, end), joined where they touch."""
    ranges: list[tuple[int, int]] = []
    for offset in sorted(set(offsets)):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges


def set_states(partition: Partition, ranges: Sequence[tuple[int, int]], state: int, *, now_us: int) -> None:
    """Set the state of every offset in ``ranges``; refused as a whole where one is not kept or the state is none."""
    log = partition.log
    if state not in set(State):
        known = ", ".join(f"{one.word} {one.value}" for one in State)
        raise Refusal(Reason.INVALID_STATE, f"{state} is no message state; there are {known}")
    for first, end in ranges:
        if not log.first_offset <= first < end <= log.synced_end:
            raise Refusal(
                Reason.INVALID_OFFSET,
                f"partition {partition} holds offsets {log.first_offset} to {log.synced_end - 1}; "
                f"the state of {first} to {end - 1} cannot be set",
            )
    for first, end in ranges:
        log.set_state(first, end, state, now_us)
    log.sync_states()


def states(partition: Partition, first: int, end: int) -> list[tuple[int, int, int]]:
    """(first, end, state) of the ranges within ``first`` to ``end`` that are not available."""
    log = partition.log
    first, end = max(first, log.first_offset), min(end, log.next_offset)
    return log.hidden(first, end) if first < end else []
