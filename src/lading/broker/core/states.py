"""Message states, set by offsets, ranges or a filter; a response means they are on disk (design.md Log).

Any state may follow any other: Iggy defines the four states and no order among them. A request that changes nothing
writes nothing, so it may be repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import Final, NamedTuple

import numpy as np

from ...columns.contract import parse_columns
from ...filter.parse import parse
from ...log.interface import Commit
from ...model.errors import Reason, Refusal
from ...model.ranges import ranges_of_rising, split_by_mark
from ...model.state import State
from ...payloads.form import JSON_FORM, PayloadForm
from ...runtime.turns import TurnCounter, Turns, finish, sort_in_turns
from .counters import Counters
from .dead_letters import DeadLetters
from .query import Query, select_in_turns
from .read import ReadResult, read
from .topology import Partition

Ranges = Sequence[tuple[int, int]]
RANGES_AT_ONCE: Final = 128
"""Ranges that are set in one go: about a millisecond."""
LISTED_AT_ONCE: Final = 500
"""Ranges that are listed between two looks at the clock: about half a millisecond."""


LOG: Final = logging.getLogger("lading.broker")


class States:
    """Setting and listing the states of one broker's messages."""

    def __init__(
        self, dead_letters: DeadLetters, commit: Commit, counters: Counters, touched: Callable[[Partition], None]
    ) -> None:
        """``touched`` is called with every partition in which a state was set."""
        self._dead_letters = dead_letters
        self._commit = commit
        self._counters = counters
        self._touched = touched

    def set(self, partition: Partition, ranges: Ranges, state: int, *, reason: str | None = None, now_us: int) -> int:
        """Set the state of every offset in ``ranges``; returns how many messages it changed.

        Refuses the whole request if an offset is not kept or the state is unknown.
        """
        changed = finish(find_changes(partition, ranges, state))
        if not changed:
            partition.log.sync_states()
            return 0
        with self._dead_letters.marking(partition, changed, state, reason, now_us):
            self._write(partition, changed, state, now_us)
            partition.log.sync_states()
        return self._count_changes(partition, changed)

    def set_soon(
        self,
        partition: Partition,
        ranges: Ranges,
        state: int,
        *,
        done: Callable[[Refusal | None], None],
        reason: str | None = None,
        now_us: int,
    ) -> int:
        """Set states as ``set`` does, but share the sync with other changes that wait for one.

        ``done`` is called when it is on disk.
        """
        changed = finish(find_changes(partition, ranges, state))
        with ExitStack() as stack:
            if changed:
                stack.enter_context(self._dead_letters.marking(partition, changed, state, reason, now_us))
                self._write(partition, changed, state, now_us)
            # also if nothing changes: what another request set may not be on disk yet
            marking = stack.pop_all()

        def synced(error: OSError | None) -> None:
            refusal = None if error is None else Refusal(Reason.READ_ONLY, str(partition.log.refusal or error))
            try:
                with marking:
                    if refusal is not None:
                        raise refusal
            except Refusal as caught:
                # the catalog's refusal of the following writes comes here too
                refusal = caught
            except Exception as fault:
                # the client that set the state must not wait for ever
                LOG.exception("setting states of %s failed after their sync", partition)
                refusal = Refusal(
                    Reason.READ_ONLY,
                    f"the states are set, and their dead letters are not: {fault}; see the log, then set them again",
                )
            done(refusal)

        self._commit.submit(partition.log, synced)
        return self._count_changes(partition, changed) if changed else 0

    def _write(self, partition: Partition, changed: Ranges, state: int, now_us: int) -> None:
        for first, end in changed:
            partition.log.set_state(first, end, state, now_us)

    def _count_changes(self, partition: Partition, changed: Ranges) -> int:
        count = sum(end - first for first, end in changed)
        self._counters.states_set += count
        self._touched(partition)
        return count


def portions(ranges: Ranges) -> list[Ranges]:
    """``ranges`` in pieces of ``RANGES_AT_ONCE``, so that nothing else waits long."""
    rest = iter(ranges)
    return list(iter(lambda: list(islice(rest, RANGES_AT_ONCE)), []))


def find_changes(partition: Partition, ranges: Ranges, state: int) -> Turns[list[tuple[int, int]]]:
    """Return the parts of ``ranges`` that have another state now, in turns; they may change at each of them.

    Raises Refusal if an offset is not kept or the state does not exist.
    """
    log, turn = partition.log, TurnCounter()
    if state not in set(State):
        known = ", ".join(f"{one.word} {one.value}" for one in State)
        raise Refusal(Reason.INVALID_STATE, f"{state} is not a message state; states are {known}")
    for first, end in ranges:
        if not log.first_offset <= first < end <= log.high_watermark:
            raise Refusal(
                Reason.INVALID_OFFSET,
                f"partition {partition} holds offsets {log.first_offset} to {log.high_watermark - 1}; "
                f"the state of {first} to {end - 1} cannot be set",
            )
        if turn.is_over():
            yield
    changed: list[tuple[int, int]] = []
    end_offset = -1
    for first, end in (yield from sort_in_turns(ranges)):
        # ranges may overlap: each offset once
        first, end_offset = max(first, end_offset), max(end, end_offset)
        for start, stop, was in split_by_mark((yield from _list_ranges(partition, first, end)), first, end):
            if state != (State.AVAILABLE if was is None else was):
                if changed and changed[-1][1] == start:
                    start = changed.pop()[0]
                changed.append((start, stop))
        if turn.is_over():
            yield
    return changed


def list_states(
    partition: Partition, first: int, end: int, count_max: int | None = None
) -> Turns[list[tuple[int, int, int]]]:
    """Return (first, end, state) of the ranges within ``first`` to ``end`` that are not available, in turns.

    Of more than ``count_max`` ranges it is the first. A state that is set meanwhile may be in the list or not.
    """
    log = partition.log
    first, end = max(first, log.first_offset), min(end, log.next_offset)
    return (yield from _list_ranges(partition, first, end, count_max))


def _list_ranges(
    partition: Partition, first: int, end: int, count_max: int | None = None
) -> Turns[list[tuple[int, int, int]]]:
    found: list[tuple[int, int, int]] = []
    while first < end and (count_max is None or len(found) < count_max):
        wanted = LISTED_AT_ONCE if count_max is None else min(LISTED_AT_ONCE, count_max - len(found))
        ranges = partition.log.unavailable_ranges(first, end, wanted)
        found += ranges
        if len(ranges) < wanted:
            break
        first = ranges[-1][1]
        yield
    return found


class SearchResult(NamedTuple):
    """Result of a search with a filter: offset ranges, number of messages checked, and the offset to continue at."""

    ranges: list[tuple[int, int]]
    seen: int
    matched: int
    end_offset: int


def selecting(where: str, form: PayloadForm = JSON_FORM) -> Query:
    """Return the query of a Search, with payloads read in ``form``. Raises FilterError if ``where`` is invalid.

    It may take long: not in the event loop.
    """
    return Query(parse(where, closed=False, form=form), parse_columns("offset"), "all")


class Search:
    """The messages of a partition that a filter selects, whatever their state, a bounded piece at a time.

    ``look`` in the event loop, ``find`` in any thread, ``holds`` in the event loop before what was found is acted on.
    """

    def __init__(self, query: Query, first: int, end: int) -> None:
        self._query = query
        self.at = first
        self._end = end

    def look(self, partition: Partition, *, max_messages: int, max_bytes: int, counters: Counters) -> ReadResult | None:
        """Return the next messages before the end that were not searched yet, or None after the last."""
        end = min(self._end, partition.log.last_stable_offset)
        if self.at >= end:
            return None
        reading = read(
            partition,
            self.at,
            reader=self._query.reader,
            max_messages=min(max_messages, end - self.at),
            max_bytes=max_bytes,
            counters=counters,
        )
        return reading if reading.end_offset > self.at else None

    def find(self, reading: ReadResult, partition: Partition) -> Turns[SearchResult]:
        """Return the matching messages, in turns. Raises MalformedMessage if bytes are not what their dialect says."""
        selected = yield from select_in_turns(reading, self._query, partition, end=self._end)
        offsets = [batch.column("offset").to_numpy() for batch in selected.batches]
        together = np.concatenate(offsets) if offsets else np.empty(0, np.int64)
        seen = min(reading.count, self._end - self.at)
        matching = [(first, end) for first, end in ranges_of_rising(together).tolist()]
        return SearchResult(matching, seen, len(together), max(selected.end_offset, self.at))

    def holds(self, reading: ReadResult, partition: Partition, first: int, end: int) -> bool:
        """Return whether the states of ``first`` to ``end`` are still as the filter saw them, if it did."""
        if self._query.filter is None or "state" not in self._query.filter.fields:
            return True
        seen = [
            (max(start, first), min(stop, end), state)
            for start, stop, state in reading.hidden
            if start < end and stop > first
        ]
        return partition.log.unavailable_ranges(first, end) == seen
