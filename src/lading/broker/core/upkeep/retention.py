"""Retention: old segments are deleted by age and size, by the settings of the topic or the broker (never because of
damage).

Messages are first marked as ``marked_for_deletion``, which readers can see; a later round deletes marked messages that
are due. Marks are never removed: a message that is made available again is marked again when it is due.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple

from ....log.interface import ReadableLog, SegmentInfo
from ....log.retention import AgeClock, find_expired_end
from ....model.ranges import subtract_ranges
from ....model.state import State
from ....runtime.clock import Dates
from ..component import SOON_US, Component
from ..counters import Counters
from ..maintenance import Attempts
from ..settings import COMPACT, NO_CLEANUP, BrokerSettings
from ..topology import Partition, Topic
from .rounds import Round


class RetentionPolicy(NamedTuple):
    """The limits of a topic; messages are marked ``mark_us`` before they are due."""

    age_us: int | None
    size_bytes: int | None
    mark_us: int

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is ever deleted."""
        return self.age_us is None and self.size_bytes is None


class Enforced(NamedTuple):
    """Messages that were marked, offsets that were deleted."""

    marked: int
    deleted: int


class ExpiringRange(NamedTuple):
    """Offsets ``first`` to ``end`` that are deleted together; ``due_us`` is the earliest time, ``why`` the reason.

    ``held``: an open transaction, or missing copies in a dead letter topic, keep them for now.
    """

    first: int
    end: int
    size_bytes: int
    youngest_us: int
    due_us: int
    why: Literal["age", "size"]
    marked: bool
    held: bool


def rule_of(topic: Topic, settings: BrokerSettings) -> RetentionPolicy:
    """Return the topic's own rule, completed by the broker's."""
    own = topic.settings
    mark_us = settings.retention_mark_us if own.retention_mark_us is None else own.retention_mark_us
    if own.cleanup_policy in (COMPACT, NO_CLEANUP):
        # with compaction, age or size could delete the last message of a key
        return RetentionPolicy(None, None, settings.retention_check_us)
    return RetentionPolicy(
        settings.retention_age_us if own.retention_age_us is None else own.retention_age_us,
        settings.retention_bytes if own.retention_bytes is None else own.retention_bytes,
        # messages that will be due before the next round must be marked in this one
        settings.retention_check_us if mark_us is None else mark_us,
    )


def enforce(partition: Partition, settings: BrokerSettings, now_us: int) -> Enforced:
    """Delete due messages that were marked before, a whole segment at a time; mark those that will be due.

    Keeps messages at or after an open transaction, and those still to be copied to a dead letter topic.
    """
    rule = rule_of(partition.topic, settings)
    if rule.keeps_all:
        return Enforced(0, 0)
    first = partition.log.first_offset
    _delete(partition, rule, now_us)
    return Enforced(_mark(partition, rule, now_us), partition.log.first_offset - first)


def _delete(partition: Partition, rule: RetentionPolicy, now_us: int) -> None:
    log = partition.log
    segments = log.segments()
    due_end = find_expired_end(segments, now_us, rule.age_us, rule.size_bytes)
    if due_end is None:
        return
    before = log.first_offset
    for segment in segments:
        if segment.end_offset > min(due_end, _first_needed_offset(partition)) or not _is_marked(
            log, before, segment.end_offset
        ):
            break
        before = segment.end_offset
    if before > log.first_offset:
        log.truncate_before(before)
        # a cached chunk may keep a deleted segment mapped, and its space in use
        partition.cached_range = None


def _mark(partition: Partition, rule: RetentionPolicy, now_us: int) -> int:
    log = partition.log
    end = find_expired_end(log.segments(), now_us + rule.mark_us, rule.age_us, rule.size_bytes)
    if end is None:
        return 0
    marked = 0
    # copied before the call: marking changes the hidden ranges
    for start, stop in _list_available(log, log.first_offset, min(end, log.last_stable_offset)):
        log.set_state(start, stop, State.MARKED_FOR_DELETION, now_us)
        marked += stop - start
    if marked:
        log.sync_states()
    return marked


def forecast(partition: Partition, settings: BrokerSettings, now_us: int, within_us: int) -> list[ExpiringRange]:
    """Return what will be deleted or due within this time, the earliest first."""
    rule = rule_of(partition.topic, settings)
    log = partition.log
    segments = log.segments()
    excess = sum(segment.size_bytes for segment in segments) - (rule.size_bytes or 0)
    going: list[ExpiringRange] = []
    due_us = 0
    for segment in segments:
        if segment.base_offset == segment.end_offset:
            break
        large = rule.size_bytes is not None and excess >= segment.size_bytes and segment is not segments[-1]
        by_age_us = None if rule.age_us is None else segment.aged_us + rule.age_us + 1
        if not large and (by_age_us is None or by_age_us > now_us + within_us):
            break
        by_size = large and (by_age_us is None or by_age_us > now_us)
        due_us = max(due_us, now_us if by_size or by_age_us is None else by_age_us)
        first = max(segment.base_offset, log.first_offset)
        going.append(_describe_expiring(partition, segment, first, due_us, "size" if by_size else "age"))
        excess -= segment.size_bytes
    return going


def _describe_expiring(
    partition: Partition, segment: SegmentInfo, first: int, due_us: int, why: Literal["age", "size"]
) -> ExpiringRange:
    return ExpiringRange(
        first,
        segment.end_offset,
        segment.size_bytes,
        segment.max_timestamp_us,
        due_us,
        why,
        _is_marked(partition.log, first, segment.end_offset),
        segment.end_offset > _first_needed_offset(partition),
    )


def _first_needed_offset(partition: Partition) -> int:
    uncopied = partition.first_uncopied_offset()
    return partition.log.last_stable_offset if uncopied is None else min(partition.log.last_stable_offset, uncopied)


def _is_marked(log: ReadableLog, first: int, end: int) -> bool:
    return not _list_available(log, first, end)


def _list_available(log: ReadableLog, first: int, end: int) -> list[tuple[int, int]]:
    return subtract_ranges(log.unavailable_ranges(first, end), first, end) if first < end else []


class RetentionEnforcer(Component):
    """Enforces retention in every partition of a topic with limits, once in ``retention_check_us``."""

    def __init__(
        self,
        settings: BrokerSettings,
        dates: Dates,
        counters: Counters,
        attempts: Attempts,
        topics: Callable[[], Iterable[Topic]],
        mark_active: Callable[[Partition], None],
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
        now_us: int,
    ) -> None:
        """``mark_active`` is called with every partition in which something was marked or deleted."""
        self._settings = settings
        self._dates = dates
        self._counters = counters
        self._attempts = attempts
        self._topics = topics
        self.round = Round(self._attempt, call_at_end_of_pass)
        self._round_us = 0
        """The time from which the present round measures ages."""
        self._mark_active = mark_active
        self._age_clock = AgeClock()
        self._due_us = now_us + settings.retention_check_us

    def on_settings_changed(self, settings: BrokerSettings) -> None:
        """Check by the new settings at the next tick."""
        self._settings, self._due_us = settings, SOON_US
        self.on_due()

    def tick(self, now_us: int) -> None:
        """Enforce retention when a check is due."""
        # called at every tick: it notices by how much the machine's clock was set
        age_us = self._age_clock.now_us(self._dates.of(now_us), now_us)
        if self.round.is_under_way:
            # continue a round that the passes of the event loop have not finished
            self.round.go(())
        elif now_us >= self._due_us:
            self._due_us = now_us + self._settings.retention_check_us
            self.begin_round(age_us)

    def begin_round(self, now_us: int) -> None:
        """Begin a round: delete marked messages that are beyond the limits, and mark those that will be."""
        self._round_us = now_us
        self.round.go(self._iterate_limited())

    def on_partition_deleted(self, partition: Partition) -> None:
        """Leave a deleted partition out of the present round."""
        self.round.leave_out(partition)

    def _iterate_limited(self) -> Iterator[Partition]:
        for topic in self._topics():
            if not rule_of(topic, self._settings).keeps_all:
                yield from topic.partitions

    def _attempt(self, partition: Partition) -> None:
        self._attempts.attempt(self._enforce_rules, partition)

    def _enforce_rules(self, partition: Partition) -> None:
        marked, deleted = enforce(partition, self._settings, self._round_us)
        if marked or deleted:
            self._mark_active(partition)
        self._counters.retention_marked_messages += marked
        self._counters.retention_deleted_offsets += deleted
