"""Running a mirror: read a stretch, store which messages are about to be sent, send them, move the positions."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ..client.patience import Patience
from ..model.errors import DataLoss, LadingError, LocalError, Reason, Refusal
from ..transports.interface import ReconnectingTransport, TopicMeta, Transport
from ..transports.losses import describe_other_topic
from ..transports.open import is_queue, open_transport
from ..transports.topics import UnknownTopic
from .fidelity import Fidelity
from .marks import drop_returned, mark_origin
from .offsets import find_offsets, map_offsets, partition_ends
from .sending import TopicTarget, UnmirroredMessage
from .settings import MirrorSettings, as_document, default_state
from .source import LogSource, QueueSource, Stretch, TopicSource
from .state import MappedRange, MirrorState, Range, Work, is_running, lock_state, remove_if_unused, require_intact_log
from .topics import choose_topics, find_at_target, require_partitions

WORK_BYTES: Final = 32 << 20
"""A work has about this many bytes of messages in memory, if the target takes works as a whole."""
WAIT_MS: Final = 250
RECONNECTS_MAX: Final = 4
"""Retries after which a mirror that follows reports that a server is away, and checks whether it is to stop."""
LOOK_S: Final = 10.0
"""Interval at which a mirror that follows looks for new topics."""
REFUSALS_MAX: Final = 10
"""At most this many refused messages of a topic are named in a report; all are counted."""


@dataclass(slots=True)
class TopicFigures:
    """Counts of one topic."""

    topic: str
    target: str
    partitions: int
    delivery: str
    messages: int = 0
    returned: int = 0
    """Messages that had come from the target, and were left out."""
    refused: int = 0
    refusals: list[str] = field(default_factory=list)
    """The first refused messages: their place at the source, and why."""

    def add_refused(self, messages: Sequence[UnmirroredMessage]) -> None:
        """Count messages that the target refused, and name the first."""
        self.refused += len(messages)
        named = messages[: max(0, REFUSALS_MAX - len(self.refusals))]
        self.refusals += [f"partition {one.partition}, offset {one.offset}: {one.sentence}" for one in named]

    def as_document(self) -> dict[str, Any]:
        """Return the figures for a report."""
        return {
            "topic": self.topic,
            "target": self.target,
            "partitions": self.partitions,
            "delivery": self.delivery,
            "messages": self.messages,
            "returned": self.returned,
            "refused": self.refused,
            "refusals": self.refusals,
        }


@dataclass(frozen=True, slots=True)
class MirrorProgress:
    """Progress of a mirror since it began: messages sent, known to be left, refused by the target, and topics."""

    messages: int
    left: int
    refused: int = 0
    topics: int = 0


@dataclass(slots=True)
class MirrorReport:
    """Result of a run."""

    topics: list[TopicFigures]
    fidelity: Fidelity
    seconds: float
    settings: MirrorSettings

    @property
    def messages(self) -> int:
        """Return how many messages were sent."""
        return sum(one.messages for one in self.topics)

    def as_document(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        document = as_document(self.settings) | {
            "messages": self.messages,
            "seconds": round(self.seconds, 3),
            "messages_per_s": round(self.messages / max(self.seconds, 1e-9)),
            "topics": [one.as_document() for one in self.topics],
        }
        return document | ({"fidelity": self.fidelity.rows()} if self.settings.counts_fidelity else {})


@dataclass(slots=True)
class _PreparedStretch:
    """Messages of one partition as they are sent; ``plain`` are those that ``originals`` are to plain readers.

    Both are empty if what survives is not counted. ``returned`` messages had come from the target; ``refused`` ones it
    cannot hold. They count once the stretch is sent: one that meets an outage is prepared again.
    """

    stretch: Stretch
    originals: list[pa.RecordBatch]
    plain: list[pa.RecordBatch]
    returned: int
    refused: list[UnmirroredMessage]
    refused_batches: list[pa.RecordBatch]

    def leave_out(self, offsets: Collection[int]) -> list[pa.RecordBatch]:
        """Remove the messages that the target refused, and return them."""
        left = pa.array(sorted(offsets), pa.int64())

        def select(batches: Sequence[pa.RecordBatch], *, refused: bool) -> list[pa.RecordBatch]:
            masks = [pc.is_in(batch.column("offset"), left) for batch in batches]
            return [
                batch.filter(mask if refused else pc.invert(mask)) for batch, mask in zip(batches, masks, strict=True)
            ]

        lost = select(self.originals, refused=True)
        self.originals, self.plain = select(self.originals, refused=False), select(self.plain, refused=False)
        kept = select(self.stretch.batches, refused=False)
        self.stretch = replace(self.stretch, batches=[batch for batch in kept if batch.num_rows])
        return lost


@dataclass(slots=True)
class _MirroredTopic:
    figures: TopicFigures
    source: TopicSource
    target: TopicTarget
    stretches: Iterator[Stretch] | None = None


def run_mirror(
    settings: MirrorSettings,
    *,
    is_stopped: Callable[[], bool] = lambda: False,
    on_progress: Callable[[MirrorProgress], None] = lambda now: None,
    on_look: Callable[[MirrorProgress], None] = lambda now: None,
    on_away: Callable[[LadingError], None] = lambda error: None,
    source_options: dict[str, Any] | None = None,
    target_options: dict[str, Any] | None = None,
) -> MirrorReport:
    """Copy topics until their ends as they are now, or with ``follow`` until ``is_stopped``; return what was done.

    ``on_progress`` is called after each work that was sent, ``on_look`` after each look at the ends of the topics and
    whenever nothing is left to send, ``on_away`` before each wait for a server that is away.

    A run continues after the last one with the same state, however that one ended. Raises SettingError or LocalError if
    something cannot be mirrored, before any of it is sent. A run that is refused removes the state that it created.
    """
    settings.check()
    with ExitStack() as held:
        directory = settings.state_directory
        was_missing = not directory.exists()
        held.enter_context(lock_state(directory))
        held.push(partial(_remove_after_error, directory, was_missing))
        _require_no_loop(settings)
        require_intact_log(directory)
        state = MirrorState(directory)
        held.callback(state.close)
        state.require_pair(settings.source_mark, settings.target_mark)
        source = open_transport(settings.source, **(source_options or {}))
        held.callback(source.close)
        target = open_transport(settings.target, **(target_options or {}))
        held.callback(target.close)
        for transport in (source, target):
            if settings.follow and isinstance(transport, ReconnectingTransport):
                transport.limit_reconnects(RECONNECTS_MAX)
        run = _Run(settings, state, source, target, _Callbacks(is_stopped, on_progress, on_look, on_away))
        held.callback(run.close)
        return run.run()


def _remove_after_error(
    directory: Path, was_missing: bool, kind: type[BaseException] | None, _error: object, _trace: object
) -> bool:
    """Remove the state after a run that ended with an error before it sent anything; the error is raised again."""
    if kind is not None:
        remove_if_unused(directory, with_directory=was_missing)
    return False


def _require_no_loop(settings: MirrorSettings) -> None:
    back = default_state(settings.target, settings.source)
    if settings.follow and not settings.two_way and is_running(back):
        raise LocalError(
            f"a mirror from {settings.target_mark} to {settings.source_mark} is running: messages would go round and "
            "round; run both with --two-way, which marks where messages come from"
        )


class _Callbacks(NamedTuple):
    is_stopped: Callable[[], bool]
    on_progress: Callable[[MirrorProgress], None]
    on_look: Callable[[MirrorProgress], None]
    on_away: Callable[[LadingError], None]


class _Run:
    def __init__(
        self,
        settings: MirrorSettings,
        state: MirrorState,
        source: Transport,
        target: Transport,
        callbacks: _Callbacks,
    ) -> None:
        self._settings = settings
        self._state = state
        self._source = source
        self._target = target
        self._is_stopped = callbacks.is_stopped
        self._callbacks = callbacks
        self._reads_queue = is_queue(settings.source)
        self._fills_queue = is_queue(settings.target)
        self._topics: dict[str, _MirroredTopic] = {}
        self._fidelity = Fidelity()
        self._patience = Patience(
            f"source or target of the mirror from {settings.source_mark} to {settings.target_mark}", self._sleep
        )

    def run(self) -> MirrorReport:
        began = look_at = time.monotonic()
        was_away = False
        while not self._is_stopped():
            try:
                if was_away:
                    self._reopen()
                    was_away = False
                if time.monotonic() >= look_at:
                    self._open_topics()
                    self._callbacks.on_look(self._measure_progress())
                    look_at = time.monotonic() + LOOK_S
                moved = self._round()
                self._patience.reset()
            except LadingError as error:
                if not self._settings.follow:
                    raise
                self._callbacks.on_away(error)
                self._patience.wait(error)
                was_away, look_at = True, 0.0
                continue
            if not moved and not self._settings.follow:
                break
            if not moved:
                self._callbacks.on_look(self._measure_progress())
                self._wait()
        figures = [one.figures for one in self._topics.values()]
        return MirrorReport(figures, self._fidelity, time.monotonic() - began, self._settings)

    def close(self) -> None:
        """Close the topics of the source."""
        for one in self._topics.values():
            one.source.close()

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._is_stopped() and (left_s := until - time.monotonic()) > 0:
            time.sleep(min(left_s, 0.1))

    # topics

    def _open_topics(self) -> None:
        metas = choose_topics(self._settings, self._source)
        fresh = [meta for meta in metas if meta.name not in self._topics]
        for meta in fresh:
            find_at_target(self._settings, self._target, meta)
        for meta in metas:
            if meta.name in self._topics:
                self._topics[meta.name].source.notice(meta)
        for meta in fresh:
            self._topics[meta.name] = self._open(meta)

    def _open(self, meta: TopicMeta, figures: TopicFigures | None = None) -> _MirroredTopic:
        name = self._settings.target_topic(meta.name)
        partitions = len(meta.partitions)
        there = self._target_topic(name, partitions)
        require_partitions(self._settings, meta, there)
        target = TopicTarget(self._target, there.name, self._settings, self._state.id, is_queue=self._fills_queue)
        figures = figures or TopicFigures(meta.name, there.name, partitions, target.promise)
        if self._reads_queue:
            figures.delivery = "at least once"
        one = _MirroredTopic(figures, self._open_source(meta), target)
        self._repeat_begun_work(one)
        return one

    def _target_topic(self, name: str, partitions: int) -> TopicMeta:
        try:
            # a queue says of any name that it is there
            if not self._fills_queue:
                return self._target.topic(name)
        except UnknownTopic:
            pass
        try:
            return self._target.create_topic(name, partitions)
        except Refusal as refusal:
            if refusal.reason is not Reason.TOPIC_NAME_EXISTS:
                raise
            return self._target.topic(name)

    def _open_source(self, meta: TopicMeta) -> TopicSource:
        if self._reads_queue:
            return QueueSource(self._source, meta.name, self._settings)
        if meta.topic_id is not None:
            known = self._state.fact(f"topic {meta.name}", meta.topic_id.hex())
            if known != meta.topic_id.hex():
                raise DataLoss(f"{describe_other_topic(meta.name)}; to mirror it as well, name another --state")
        return LogSource(self._source, meta, self._settings, self._state.positions(meta.name))

    def _reopen(self) -> None:
        """Drop messages that were read and not sent: continue at the positions in the state."""
        self.close()
        for name, former in self._topics.items():
            # messages that are sent again now were not counted before
            self._topics[name] = self._open(self._source.topic(name), former.figures)

    def _repeat_begun_work(self, one: _MirroredTopic) -> None:
        """Repeat the work that an earlier run has begun, with the same ranges, so that the target recognises it."""
        topic = one.figures.topic
        work = self._state.find_begun(topic)
        if work is None:
            return
        stretches = [one.source.reread(each) for each in work.ranges]
        self._send(one, work, stretches, is_repeated=True)

    # messages

    def _round(self) -> bool:
        """Send one work of each topic that has something new; return whether there was any."""
        moved = False
        for one in self._topics.values():
            if self._is_stopped():
                break
            stretches = self._gather(one)
            if not stretches:
                continue
            moved = True
            work = self._begin(one, stretches)
            self._send(one, work, stretches, is_repeated=False)
            self._callbacks.on_progress(self._measure_progress())
        return moved

    def _measure_progress(self) -> MirrorProgress:
        topics = self._topics.values()
        sent, refused = (sum(one.figures.messages for one in topics), sum(one.figures.refused for one in topics))
        return MirrorProgress(sent, sum(one.source.lag for one in topics), refused, len(topics))

    def _gather(self, one: _MirroredTopic) -> list[Stretch]:
        """Return the content of one work: a stretch of one partition, or of several if they appear together."""
        found: dict[int, Stretch] = {}
        size_bytes = 0
        one.stretches = one.stretches or one.source.stretches()
        while size_bytes < WORK_BYTES:
            stretch = next(one.stretches, None)
            if stretch is None:
                one.stretches = None
                break
            before = found.get(stretch.partition)
            if before is not None:
                stretch = replace(stretch, first=before.first, batches=[*before.batches, *stretch.batches])
            found[stretch.partition] = stretch
            size_bytes = sum(each.size_bytes for each in found.values())
            if not (one.target.is_exact and one.source.repeatable):
                break
        return list(found.values())

    def _begin(self, one: _MirroredTopic, stretches: Sequence[Stretch]) -> Work:
        ends = {} if self._fills_queue else partition_ends(self._target, one.target.topic)
        ranges = [
            Range(each.partition, each.first, each.end, ends.get(each.partition), each.epoch) for each in stretches
        ]
        if one.source.repeatable:
            return self._state.begin(one.figures.topic, ranges)
        return replace(self._state.begin(one.figures.topic, []), ranges=tuple(ranges))

    def _send(self, one: _MirroredTopic, work: Work, stretches: Sequence[Stretch], *, is_repeated: bool) -> None:
        prepared = [self._prepare(one, each) for each in stretches]
        if work.refused:
            known = [UnmirroredMessage(*place, "the target refused it in the run before") for place in work.refused]
            self._leave_out(one, prepared, known)
        ready = [each.stretch for each in prepared]
        if any(each.count for each in ready):
            refused = one.target.send(
                work,
                ready,
                is_repeated=is_repeated,
                note_refused=lambda rows: self._state.note_refused(work, [(row.partition, row.offset) for row in rows]),
            )
            if refused:
                self._leave_out(one, prepared, refused)
                ready = [each.stretch for each in prepared]
        for each in prepared:
            one.figures.returned += each.returned
            one.figures.add_refused(each.refused)
            for batch in each.refused_batches:
                self._fidelity.add_refused(batch)
            for original, plain in zip(each.originals, each.plain, strict=True):
                self._fidelity.add(original, plain, original if self._settings.carrier == "on" else plain)
        mapped = {} if self._fills_queue or self._reads_queue else self._map(one, work, ready)
        kept = work if one.source.repeatable else replace(work, ranges=())
        self._state.finish(one.figures.topic, kept, mapped)
        for stretch in stretches:
            one.source.finish(stretch)
        one.figures.messages += sum(each.count for each in ready)

    def _leave_out(
        self, one: _MirroredTopic, prepared: Sequence[_PreparedStretch], refused: Sequence[UnmirroredMessage]
    ) -> None:
        """Count the messages that the target refused when they were sent, and drop them."""
        one.figures.add_refused(refused)
        for each in prepared:
            lost = each.leave_out({row.offset for row in refused if row.partition == each.stretch.partition})
            for batch in lost:
                self._fidelity.add_refused(batch)

    def _prepare(self, one: _MirroredTopic, stretch: Stretch) -> _PreparedStretch:
        """Return the messages as they are sent, without those that the target cannot hold."""
        settings = self._settings
        batches, originals, plain = [], [], []
        returned, unmirrored, refused_batches = 0, list[UnmirroredMessage](), []
        for batch in stretch.batches:
            kept = drop_returned(batch, settings.target_mark)
            returned += batch.num_rows - kept.num_rows
            if settings.on_refused == "skip":
                kept, refused, sentences = one.target.split_refused(kept)
                offsets: list[Any] = refused.column("offset").to_pylist()
                unmirrored += [
                    UnmirroredMessage(stretch.partition, offset, sentence)
                    for offset, sentence in zip(offsets, sentences, strict=True)
                ]
                if settings.counts_fidelity:
                    refused_batches.append(refused)
            if settings.counts_fidelity:
                originals.append(kept)
                plain.append(one.target.show(kept))
                kept = kept if settings.carrier == "on" else plain[-1]
            if settings.two_way:
                kept = mark_origin(kept, settings.source_mark)
            batches.append(kept)
        return _PreparedStretch(
            replace(stretch, batches=[batch for batch in batches if batch.num_rows]), originals, plain, returned,
            unmirrored, refused_batches,
        )  # fmt: skip

    def _map(self, one: _MirroredTopic, work: Work, stretches: Sequence[Stretch]) -> dict[int, list[MappedRange]]:
        ends = partition_ends(self._target, one.target.topic)
        found = {}
        befores = {each.partition: each.target_end for each in work.ranges}
        for each in stretches:
            before = befores[each.partition]
            if each.count and before is not None:
                after = ends[each.partition]
                sent = find_offsets(self._target, one.target.topic, each.partition, before, after, each.count)
                found[each.partition] = map_offsets(each.batches, sent, before)
        return found

    def _wait(self) -> None:
        if not self._topics:
            self._sleep(WAIT_MS / 1000)
        for one in self._topics.values():
            one.source.wait(max(1, WAIT_MS // len(self._topics)))
