"""Compaction as a part of the broker: which partition is cleaned when, and the steps that belong to the event loop."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from ....chunk.overlay import RangeKind
from ....log.interface import ClosedSegment
from ....log.retention import AgeClock
from ....model.errors import CorruptLog, Refusal
from ....runtime.clock import Dates
from ....runtime.turns import WorkerTurn
from ..callbacks import ignore
from ..component import SOON_US, Component
from ..counters import Counters
from ..maintenance import Attempts
from ..settings import COMPACT, DIRTY_SHARE_MIN, SEGMENT_AGE_US, TOMBSTONE_RETENTION_US, BrokerSettings
from ..topology import Partition, Topic
from ..upkeep.rounds import Round
from .cleaner import Cleaned, Cleaning, Replace, Step, clean
from .progress import CleaningProgress

LOG: Final = logging.getLogger("lading.broker")
FORGOTTEN_AT_ONCE: Final = 200
"""Ranges of a log that are dropped in one tick."""
AFTER_FAILURE_US: Final = 60_000_000
"""A partition that could not be cleaned waits this long."""

Outcome = tuple[Cleaned, CleaningProgress]
Work = Generator[Step, "bool | None", Outcome]


class CompactionRules(NamedTuple):
    """The rules of a topic, in microseconds and bytes; None for no limit."""

    lag_us_min: int = 0
    lag_us_max: int | None = None
    dirty_share_min: float = DIRTY_SHARE_MIN
    tombstones_kept_us: int = TOMBSTONE_RETENTION_US

    @classmethod
    def of(cls, topic: Topic) -> CompactionRules | None:
        """Return the rules of a topic, or None if it is not compacted."""
        own = topic.settings
        if own.cleanup_policy is None or COMPACT not in own.cleanup_policy:
            return None
        defaults = cls()
        return cls(
            own.compaction_lag_us_min or 0,
            own.compaction_lag_us_max,
            defaults.dirty_share_min if own.dirty_share_min is None else own.dirty_share_min,
            defaults.tombstones_kept_us if own.tombstone_retention_us is None else own.tombstone_retention_us,
        )


class CompactionState(NamedTuple):
    """The ``segments`` of a partition that can be cleaned, up to ``end``; ``dirty_bytes`` were never cleaned."""

    segments: list[ClosedSegment]
    end: int
    clean_bytes: int
    dirty_bytes: int
    oldest_dirty_us: int | None
    """The latest time in the first segment that was never cleaned; None if all were."""

    @property
    def dirty_share(self) -> float:
        """The share of the bytes that were never cleaned."""
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0


class CompactionStatus(NamedTuple):
    """How far a partition is compacted: before ``end`` every key has one message, cleaned last at ``cleaned_us``.

    ``dirty_share`` is the share of bytes in closed segments that can be cleaned and never were.
    """

    end: int
    cleaned_us: int
    dirty_share: float


class _Run:
    """The cleaning of one partition."""

    def __init__(self, partition: Partition, work: Work) -> None:
        self.partition = partition
        self.work = work
        self.is_cancelled = False
        self.future: Future[Replace | Outcome | None] | None = None
        self.is_replaced: bool | None = None


class Compactor(Component):
    """Looks once in ``compaction_check_us`` for what has to be cleaned, and cleans one partition at a time."""

    executor: ThreadPoolExecutor | None = None
    """Runs the slices; without one the event loop does, all of a partition at once: for tests and tools."""

    def __init__(
        self,
        settings: BrokerSettings,
        dates: Dates,
        counters: Counters,
        attempts: Attempts,
        topics: Callable[[], Iterable[Topic]],
        mark_active: Callable[[Partition], None],
        roll: Callable[[Partition], None],
        call_at_end_of_pass: Callable[[Callable[[], None]], None],
        now_us: int,
    ) -> None:
        """``mark_active`` is called with each partition whose log has to be maintained, ``roll`` closes a segment."""
        self.round = Round(self._attempt, call_at_end_of_pass)
        self._settings, self._dates, self._counters, self._attempts = settings, dates, counters, attempts
        self._topics, self._mark_active, self._roll = topics, mark_active, roll
        self._age_clock = AgeClock()
        self._due_us = now_us + settings.compaction_check_us
        self._age_us = self._now_us = 0
        self._progress: dict[Partition, CleaningProgress] = {}
        self._begun_us: dict[Partition, tuple[int, int]] = {}
        """For each partition the base offset of its active segment, and when messages were first seen in it."""
        self._failed_until_us: dict[Partition, int] = {}
        self._run: _Run | None = None
        self._candidates: list[tuple[float, int, Partition]] = []
        """The partitions that the present round has found; the one with the lowest number is cleaned first."""
        self._wanted: list[Partition] = []
        self._forgotten: deque[tuple[Partition, RangeKind, tuple[int, int]]] = deque()
        """Ranges of logs without a message that is left, to be dropped in the next ticks."""

    # ------------------------------------------------------------------------------------------ when

    def on_settings_changed(self, settings: BrokerSettings) -> None:
        """Apply other settings."""
        self._settings = settings

    def on_partition_deleted(self, partition: Partition) -> None:
        """Stop cleaning it; a thread that works on it ends at its next slice, and finds no directory."""
        self.round.leave_out(partition)
        self._candidates = [row for row in self._candidates if row[2] is not partition]
        self._forgotten = deque(row for row in self._forgotten if row[0] is not partition)
        for known in (self._progress, self._begun_us, self._failed_until_us):
            known.pop(partition, None)
        if partition in self._wanted:
            self._wanted.remove(partition)
        if self._run is not None and self._run.partition is partition:
            self._cancel(waits=False)

    def tick(self, now_us: int) -> None:
        """Carry out the steps of the cleaning that is under way, or look for the next partition when a look is due."""
        self._age_us = self._age_clock.now_us(self._dates.of(now_us), now_us)
        self._now_us = now_us
        self._forget_some()
        if self.round.is_under_way:
            # continue a cleaning that the passes of the event loop have not finished
            self.round.go(())
        elif now_us >= self._due_us and not self._wanted:
            self._due_us = now_us + self._settings.compaction_check_us
            self._look()
        self._continue_cleaning(now_us)

    @property
    def due_us(self) -> int:
        """The time at which there is work for ``tick``."""
        has_work = self._run is not None or self._wanted or self._candidates or self._forgotten
        return SOON_US if has_work or self.round.is_under_way else self._due_us

    def begin_round(self, now_us: int) -> None:
        """Look for what has to be cleaned now."""
        self._age_us = self._age_clock.now_us(self._dates.of(now_us), now_us)
        self._now_us = now_us
        self._look()
        self._continue_cleaning(now_us)
        self._forget_some()

    def close(self, now_us: int) -> None:
        """Stop cleaning; segments that were replaced so far stay replaced."""
        self._wanted, self._candidates = [], []
        self._cancel(waits=True)

    def _look(self) -> None:
        """Begin to look at all partitions that have to be closed or cleaned at some time."""
        self.round.go(
            partition
            for topic in self._topics()
            if topic.settings.segment_age_us is not None or CompactionRules.of(topic) is not None
            for partition in topic.partitions
        )

    def _attempt(self, partition: Partition) -> None:
        self._attempts.attempt(self._consider_partition, partition)

    def _consider_partition(self, partition: Partition) -> None:
        """Close the active segment if it is old; note the partition if it has to be cleaned."""
        rules = CompactionRules.of(partition.topic)
        self._roll_when_old(partition, rules)
        if rules is not None and self._failed_until_us.get(partition, 0) <= self._now_us:
            share = self._find_share(partition, rules)
            if share is not None:
                # the one with the largest share of new bytes first, as Apache Kafka chooses
                self._candidates.append((-share, len(self._candidates), partition))

    def _roll_when_old(self, partition: Partition, rules: CompactionRules | None) -> None:
        """Close the active segment if its first messages are older than the topic's limits."""
        log, own = partition.log, partition.topic.settings
        age_us = own.segment_age_us or (None if rules is None else SEGMENT_AGE_US)
        limits = [age_us, None if rules is None else rules.lag_us_max]
        limit_us = min((limit for limit in limits if limit is not None), default=None)
        base_offset = log.segments()[-1].base_offset
        begun = self._begun_us.get(partition)
        if begun is None or begun[0] != base_offset or log.next_offset == base_offset:
            # a start counts the age anew: messages do not say when the first of their segment was appended
            self._begun_us[partition] = (base_offset, self._age_us)
        elif limit_us is not None and self._age_us - begun[1] >= limit_us:
            self._roll(partition)

    def _find_share(self, partition: Partition, rules: CompactionRules) -> float | None:
        """Return the share of new bytes if the partition has to be cleaned, or None."""
        state = self.look_at(partition, rules)
        if state.oldest_dirty_us is None:
            return None
        is_late = rules.lag_us_max is not None and self._age_us - state.oldest_dirty_us > rules.lag_us_max
        return state.dirty_share if is_late or state.dirty_share >= rules.dirty_share_min else None

    def look_at(self, partition: Partition, rules: CompactionRules) -> CompactionState:
        """Return what can be cleaned of a partition."""
        log, progress = partition.log, self.progress_of(partition)
        limit = log.last_stable_offset
        uncopied = partition.first_uncopied_offset()
        if uncopied is not None:
            limit = min(limit, uncopied)
        if partition.writers is not None:
            # what its writers did before is kept beside the log, and need not be read from it again
            limit = min(limit, partition.writers.find_settled_end(log.high_watermark))
        segments: list[ClosedSegment] = []
        dirty_bytes, oldest_dirty_us = 0, None
        for segment in log.list_closed_segments():
            young = rules.lag_us_min and segment.max_timestamp_us > self._age_us - rules.lag_us_min
            if segment.end_offset > limit or (young and segment.end_offset > progress.end):
                break
            segments.append(segment)
            if segment.end_offset > progress.end:
                dirty_bytes += segment.size_bytes
                oldest_dirty_us = segment.max_timestamp_us if oldest_dirty_us is None else oldest_dirty_us
        size_bytes = sum(segment.size_bytes for segment in segments)
        end = segments[-1].end_offset if segments else progress.end
        return CompactionState(segments, end, size_bytes - dirty_bytes, dirty_bytes, oldest_dirty_us)

    def find_status(self, partition: Partition) -> CompactionStatus | None:
        """Return how far a partition is compacted, or None if its topic is not."""
        rules = CompactionRules.of(partition.topic)
        if rules is None:
            return None
        progress = self.progress_of(partition)
        share = self.look_at(partition, rules).dirty_share
        return CompactionStatus(progress.end, progress.cleaned_us, round(share, 4))

    def progress_of(self, partition: Partition) -> CleaningProgress:
        """Return how far a partition is cleaned."""
        progress = self._progress.get(partition)
        if progress is None:
            progress = self._progress[partition] = CleaningProgress.load(partition.log)
        return progress

    # ------------------------------------------------------------------------------------------ cleaning

    def _begin(self, partition: Partition, now_us: int) -> None:
        rules = CompactionRules.of(partition.topic)
        if rules is None:
            return
        state, log, progress = self.look_at(partition, rules), partition.log, self.progress_of(partition)
        if not state.segments:
            return
        first, end = state.segments[0].base_offset, state.end
        cleaning = Cleaning(
            state.segments,
            log.first_offset,
            progress.end,
            min(progress.find_due_end(self._age_us, rules.tombstones_kept_us), progress.end),
            log.aborted_ranges(first, end),
            log.control_ranges(first, end),
            [(low, high) for low, high, _ in log.unavailable_ranges(first, end)],
            self._settings.compaction_memory_bytes,
            log.segment_bytes,
        )
        self._run = _Run(partition, _clean_and_save(cleaning, progress, self._age_us, log.epoch))

    def _continue_cleaning(self, now_us: int) -> None:
        if self._candidates and not self.round.is_under_way:
            self._wanted = [partition for _, _, partition in sorted(self._candidates, key=lambda row: row[:2])]
            self._candidates = []
        while self._run is None and self._wanted:
            self._begin(self._wanted.pop(0), now_us)
            self._advance(now_us)
        if self._run is not None:
            self._advance(now_us)

    def _advance(self, now_us: int) -> None:
        """Carry out the steps that are ready; wait for slices that a thread works on."""
        run = self._run
        if run is None:
            return
        while True:
            try:
                if run.future is None:
                    if self.executor is not None:
                        run.future = self.executor.submit(_work_in_thread, run)
                        return
                    outcome = _clean_slices(run, ignore)
                elif run.future.done():
                    future, run.future = run.future, None
                    outcome = future.result()
                else:
                    return
                if isinstance(outcome, tuple) and not isinstance(outcome, Replace):
                    self._run = None
                    self._complete(run.partition, *outcome)
                    return
                if outcome is not None:
                    run.partition.cached_range = None
                    run.is_replaced = run.partition.log.replace_segment(outcome.rewritten)
            except (OSError, CorruptLog, Refusal) as error:
                self._run = None
                run.work.close()
                self._fail(run, error, now_us)
                return
            except BaseException:
                self._run = None
                self._failed_until_us[run.partition] = now_us + AFTER_FAILURE_US
                raise

    def _complete(self, partition: Partition, cleaned: Cleaned, progress: CleaningProgress) -> None:
        self._progress[partition] = progress
        if cleaned.is_interrupted:
            self._failed_until_us[partition] = self._now_us + AFTER_FAILURE_US
        self._counters.compaction_runs += 1
        self._counters.compaction_read_bytes += cleaned.read_bytes
        self._counters.compaction_removed_bytes += cleaned.removed_bytes
        self._counters.compaction_removed_messages += cleaned.removed_messages
        if cleaned.damage:
            partition.log.on_damage(cleaned.damage)
        for kind, ranges in cleaned.forgotten.items():
            self._forgotten += ((partition, kind, row) for row in ranges)

    def _forget_some(self) -> None:
        """Drop some ranges of logs: each moves those after it, and there may be many."""
        for _ in range(min(len(self._forgotten), FORGOTTEN_AT_ONCE)):
            partition, kind, row = self._forgotten.popleft()
            partition.log.forget_ranges(kind, [row])
            self._mark_active(partition)

    def _fail(self, run: _Run, error: Exception, now_us: int) -> None:
        """Report a partition that could not be cleaned; cleaning is tried again later, and no message is lost."""
        self._failed_until_us[run.partition] = now_us + AFTER_FAILURE_US
        if not isinstance(error, FileNotFoundError):
            self._counters.failed_compactions += 1
            LOG.warning("%s could not be compacted: %s; it is tried again in a minute", run.partition, error)

    def _cancel(self, *, waits: bool) -> None:
        """Stop what is under way; ``waits`` for the slice that a thread works on, which may sync a file."""
        run, self._run = self._run, None
        if run is None:
            return
        run.is_cancelled = True
        if run.future is None:
            run.work.close()
        elif waits:
            # its errors are of no use any more
            run.future.exception()


def _clean_and_save(cleaning: Cleaning, progress: CleaningProgress, now_us: int, epoch: int) -> Work:
    """Clean, and keep beside the log how far."""
    cleaned = yield from clean(cleaning)
    progress = progress.advance(cleaned.end, now_us)
    progress.save(cleaning.segments[0], epoch)
    return cleaned, progress


def _work_in_thread(run: _Run) -> Replace | Outcome | None:
    # made here: it takes the CPU time of its thread
    return _clean_slices(run, WorkerTurn().rest)


def _clean_slices(run: _Run, rest: Callable[[], None]) -> Replace | Outcome | None:
    """Do slices until the owner of the log has to carry out a step, or all is done; ``rest`` after each."""
    is_replaced, run.is_replaced = run.is_replaced, None
    try:
        while True:
            step = run.work.send(is_replaced)
            is_replaced = None
            if run.is_cancelled:
                run.work.close()
                return None
            if step is not None:
                return step
            rest()
    except StopIteration as end:
        outcome: Outcome = end.value
        return outcome
