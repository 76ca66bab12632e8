"""What clients saw, held operation by operation against one order of all messages, the specification of a partition.

A partition is an append-only log, so its offsets name the order in which its appends took effect; a history is
linearizable exactly if that order agrees with what each client saw and when. So no search for an order is needed,
which is what makes checkers of arbitrary objects exponential.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class SentMessages:
    """An append: payloads, when it was first sent and when it was acknowledged (steps), and the offset it was told."""

    writer: str
    payloads: list[bytes]
    sent_step: int
    acknowledged_step: int | None = None
    base_offset: int | None = None


@dataclass(slots=True)
class SeenMessages:
    """A read of all from ``first``, at a step: the end that it reached, and (offset, payload) of what it found."""

    step: int
    first: int
    end: int
    rows: list[tuple[int, bytes]]


@dataclass(slots=True)
class SentTransaction:
    """Payloads of one transaction; ``is_committed`` is what its client was told, None if it was told nothing."""

    payloads: list[bytes] = field(default_factory=list)
    is_committed: bool | None = None
    begun_step: int = 0
    ended_step: int | None = None
    """When its client was told."""


@dataclass(slots=True)
class History:
    """All operations on one partition, in the order in which they ended."""

    sent: list[SentMessages] = field(default_factory=list)
    seen: list[SeenMessages] = field(default_factory=list)
    polled: list[list[int]] = field(default_factory=list)
    """Offsets of each poll of one consumer that goes on where its stored position is."""

    transactions: list[SentTransaction] = field(default_factory=list)
    last: SeenMessages | None = None
    """The read of everything at the end of a life."""

    def faults(self, log: dict[int, bytes]) -> list[str]:
        """Return what contradicts what is visible of the log in the end, by offset."""
        return [
            *self._lost_or_doubled(log), *self._out_of_order(), *self._misread(log), *self._skipped(log),
            *self._torn(log),
        ]  # fmt: skip

    def _lost_or_doubled(self, log: dict[int, bytes]) -> list[str]:
        found = Counter(log.values())
        faults = [f"{payload!r} is there {count} times" for payload, count in found.items() if count > 1]
        known = {payload for one in self.sent for payload in one.payloads}
        known |= {payload for one in self.transactions for payload in one.payloads}
        faults += [f"{payload!r} was never sent" for payload in found if payload not in known]
        for one in self.sent:
            if one.base_offset is None:
                continue
            there = [log.get(one.base_offset + at) for at in range(len(one.payloads))]
            if there != one.payloads:
                faults.append(f"{one.writer}: {one.payloads} acknowledged at {one.base_offset}, where {there} is")
        return faults

    def _out_of_order(self) -> list[str]:
        """What was acknowledged before something else was sent has to stand before it."""
        faults = []
        done = [one for one in self.sent if one.base_offset is not None and one.acknowledged_step is not None]
        for earlier in done:
            assert earlier.acknowledged_step is not None and earlier.base_offset is not None
            for later in done:
                assert later.base_offset is not None
                if earlier.acknowledged_step < later.sent_step and earlier.base_offset >= later.base_offset:
                    faults.append(f"{later.payloads} stands before {earlier.payloads}, which was acknowledged first")
        return faults

    def _misread(self, log: dict[int, bytes]) -> list[str]:
        faults = []
        done = [one for one in self.sent if one.base_offset is not None and one.acknowledged_step is not None]
        for one in self.seen:
            faults += [
                f"step {one.step}: {payload!r} was read at {offset}, where {log.get(offset)!r} is"
                for offset, payload in one.rows
                if log.get(offset) != payload
            ]
            # a power cut may spare a later write and not the one before, whose offsets are then never used
            reached = one.rows[-1][0] + 1 if one.rows else one.first
            if [offset for offset, _ in one.rows] != [offset for offset in range(one.first, reached) if offset in log]:
                faults.append(f"step {one.step}: a read from {one.first} has gaps")
            for append in done:
                assert append.base_offset is not None and append.acknowledged_step is not None
                if append.acknowledged_step < one.step and max(one.first, reached) <= append.base_offset < one.end:
                    faults.append(f"step {one.step}: a read from {one.first} misses {append.payloads}")
        return faults

    def _skipped(self, log: dict[int, bytes]) -> list[str]:
        """A consumer may see messages again after a crash, but never goes past one."""
        faults, reached = [], 0
        for offsets in self.polled:
            if offsets and any(offset in log for offset in range(reached, offsets[0])):
                faults.append(f"a consumer that was at {reached} goes on at {offsets[0]}")
            reached = max([reached, *(offset + 1 for offset in offsets)])
        return faults

    def _torn(self, log: dict[int, bytes]) -> list[str]:
        """A transaction is visible as a whole or not at all, and as its client was told."""
        faults, visible = [], set(log.values())
        for one in self.transactions:
            there = [payload for payload in one.payloads if payload in visible]
            if there and len(there) < len(one.payloads):
                faults.append(f"of the transaction {one.payloads} only {there} is visible")
            if one.is_committed is not None and one.payloads and bool(there) is not one.is_committed:
                faults.append(f"the transaction {one.payloads} has is_committed {one.is_committed}, visible is {there}")
        return faults
