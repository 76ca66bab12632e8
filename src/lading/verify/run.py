"""Comparing two topics: both are read at the same time, and their ranges are compared as they become complete."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import Any, Final

from ..model.errors import LocalError
from .difference import Difference, find_difference
from .settings import VerifySettings
from .side import DigestedRange, ResumePoint, TopicSide
from .state import PartitionState, VerifyState

LOOK_S: Final = 0.1
SAVE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class VerifyProgress:
    """Messages that were found equal since the run began, and about how many are left."""

    messages: int
    left: int


@dataclass(slots=True)
class VerifyReport:
    """Result of a run: the state of each partition, those of an earlier run included, and the first differences."""

    settings: VerifySettings
    partitions: dict[int, PartitionState]
    differences: list[Difference] = field(default_factory=list)
    is_stopped: bool = False
    resumed_messages: int = 0
    seconds: float = 0.0

    @property
    def messages(self) -> int:
        """Messages that were found equal, in this run and those before it."""
        return sum(one.messages for one in self.partitions.values())

    @property
    def is_equal(self) -> bool:
        """Whether the topics were compared to their ends, and are equal."""
        return not self.differences and not self.is_stopped

    def as_document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        a, b = self.settings.list_topics()
        new = self.messages - self.resumed_messages
        return {
            "event": "verified", "a": a.url, "b": b.url, **self.settings.describe_comparison(),
            "equal": self.is_equal, "stopped": self.is_stopped, "messages": self.messages,
            "resumed_messages": self.resumed_messages, "seconds": round(self.seconds, 3),
            "messages_per_s": round(new / max(self.seconds, 1e-9)),
            "partitions": [
                {"partition": number, "messages": one.messages, "digest": one.digest.hex()}
                for number, one in sorted(self.partitions.items())
            ],
            "differences": [one.as_document() for one in self.differences],
        }  # fmt: skip


def run_verification(
    settings: VerifySettings,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[VerifyProgress], None] = lambda now: None,
    a_options: Mapping[str, Any] | None = None,
    b_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Compare two topics, partition by partition, message by message in their order; return what was found.

    Both are compared up to their ends as they are now; if ``b`` has fewer messages, the run waits for the others up to
    the configured time. Offsets are not compared: those of a mirror differ. A partition is compared up to its first
    difference. Raises SettingError or LocalError if the topics cannot be compared.
    """
    settings.check()
    first, second = settings.list_topics()
    begun = time.monotonic()
    with ExitStack() as held:
        # open b first: if b is a mirror of a, all messages that it has by then are in a
        b = TopicSide(second, settings, b_options)
        held.callback(b.close)
        a = TopicSide(first, settings, a_options)
        held.callback(a.close)
        _require_same_partitions(a, b)
        pair = {"a": first.url, "b": second.url, **settings.describe_comparison()}
        ids = {
            name: None if id_ is None else id_.hex()
            for name, id_ in (("a_id", a.meta.topic_id), ("b_id", b.meta.topic_id))
        }
        state = VerifyState(settings.state, pair | ids)
        report = _Run(settings, a, b, state, is_stopped, on_progress).run()
    report.seconds = time.monotonic() - begun
    return report


def _require_same_partitions(a: TopicSide, b: TopicSide) -> None:
    if a.partitions != b.partitions:
        raise LocalError(
            f"{a.address.url} has {len(a.partitions)} partitions and {b.address.url} has {len(b.partitions)}: messages "
            "are compared partition by partition, in their order; compare topics with as many partitions, as "
            "lading mirror makes them"
        )


class _Run:
    """A comparison that is running."""

    def __init__(
        self,
        settings: VerifySettings,
        a: TopicSide,
        b: TopicSide,
        state: VerifyState,
        is_stopped: Callable[[], bool],
        on_progress: Callable[[VerifyProgress], None],
    ) -> None:
        self._settings, self._a, self._b, self._state = settings, a, b, state
        self._is_stopped, self._on_progress = is_stopped, on_progress
        self._whole = {number: state.partitions.get(number, PartitionState()) for number in a.partitions}
        """The partitions' states at borders of ranges, at which a later run continues."""
        self._done = dict(self._whole)
        self._waiting: dict[tuple[int, int], tuple[str, DigestedRange]] = {}
        self._different: dict[int, tuple[DigestedRange, DigestedRange]] = {}
        self._totals: dict[int, int] = {}
        """Number of messages in each partition of ``a`` that was read to its end."""
        self._ended = threading.Event()
        self._news: SimpleQueue[tuple[str, DigestedRange | BaseException | None]] = SimpleQueue()

    def run(self) -> VerifyReport:
        """Compare to the end, or until stopped."""
        resumed = sum(one.messages for one in self._whole.values())
        points = {number: one.points for number, one in self._whole.items()}
        left = self._a.count_left({number: pair[0] for number, pair in points.items()})
        threads = [
            threading.Thread(
                target=self._read, args=(name, side, {number: pair[at] for number, pair in points.items()})
            )
            for at, (name, side) in enumerate((("a", self._a), ("b", self._b)))
        ]
        for thread in threads:
            thread.start()
        try:
            is_complete = self._compare(left, resumed)
        finally:
            self._ended.set()
            for thread in threads:
                thread.join()
            self._state.save(self._whole)
        report = VerifyReport(self._settings, self._done, is_stopped=not is_complete, resumed_messages=resumed)
        for _, ranges in sorted(self._different.items()) if is_complete else ():
            found = find_difference(self._a, self._b, ranges, self._settings)
            if found is not None:
                report.differences.append(found)
                number = found.partition
                report.partitions[number] = replace(report.partitions[number], messages=found.number)
        return report

    def _compare(self, left: int, resumed: int) -> bool:
        """Compare ranges as they become complete; return False if the run was stopped before the end."""
        running, saved_at = 2, time.monotonic()
        while running:
            if self._is_stopped():
                return False
            try:
                side, found = self._news.get(timeout=LOOK_S)
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            if found is None:
                running -= 1
                continue
            self._compare_range(side, found)
            messages = sum(one.messages for one in self._done.values()) - resumed
            self._on_progress(VerifyProgress(messages, max(0, left - messages)))
            if time.monotonic() - saved_at >= SAVE_S:
                self._state.save(self._whole)
                saved_at = time.monotonic()
        return True

    def _compare_range(self, side: str, one: DigestedRange) -> None:
        place = (one.partition, one.number)
        if side == "a" and one.count < self._settings.range_messages:
            # the last range of its partition
            self._totals[one.partition] = one.number * self._settings.range_messages + one.count
        other = self._waiting.pop(place, None)
        if other is None:
            self._waiting[place] = (side, one)
            return
        if one.partition in self._different:
            return
        a, b = (one, other[1]) if side == "a" else (other[1], one)
        if (a.count, a.digest) == (b.count, b.digest):
            self._done[one.partition] = self._done[one.partition].add(a, b)
            if a.count == self._settings.range_messages:
                self._whole[one.partition] = self._done[one.partition]
        else:
            self._different[one.partition] = (a, b)

    def _read(self, name: str, side: TopicSide, points: Mapping[int, ResumePoint]) -> None:
        try:
            find_wanted = self._totals.get if name == "b" else None
            for one in side.iter_ranges(points, self._is_left_out, find_wanted):
                self._news.put((name, one))
            self._news.put((name, None))
        except BaseException as error:
            # raised by the thread that compares
            self._news.put((name, error))

    def _is_left_out(self, partition: int) -> bool:
        return self._ended.is_set() or partition in self._different
