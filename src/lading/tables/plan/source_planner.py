"""Planning of a source: one topic, or several that are named or match a pattern, planned together.

Several topics are looked at with the few requests that listing them takes, however many there are, and share one
connection. Positions are documents by topic, so that topics found later have positions of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from ...model.errors import DataLoss, SettingError
from ...transports.epochs import fill_epochs_of_all
from ...transports.interface import TopicMeta, Transport
from ...transports.topic_selection import list_names
from .offset_options import OffsetsOption, Word
from .offsets import OffsetsDocument, PartitionOffset, PartitionOffsets, document, parse_document
from .options import SourceOptions
from .planning import LOG, Planner, bytes_per_row, keep_unchanged
from .ranges import OffsetRange, limit_rows, split_ranges

ROW_BYTES_GUESS = 1024.0
"""Assumed size of a message if the server does not report sizes."""


class SourcePlanner:
    """Plans batches of the topics of one source. It may be pickled, without its connection, which is reopened."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.selection = options.selection
        self._connection = Planner(options)
        self._planners: dict[str, TopicPlanner] = {}
        self._has_waited = False
        self._deleted: set[str] = set()
        """Topics whose deletion was reported."""

    @property
    def transport(self) -> Transport:
        """The open transport; a queue's spool is filled while it is used."""
        return self._connection.transport

    @property
    def names(self) -> list[str]:
        """The flat names of the topics that were seen."""
        return list(self._planners) if self.options.has_several_topics else [self.options.topic]

    def resolve_name(self) -> None:
        """Read the one topic under its flat name from now on, however it was spelled; several have these already."""
        if not self.options.has_several_topics:
            self.options = replace(self.options, topic=self._connection.topic().name)
            self.selection = self.options.selection
            self._connection.options = self.options

    def look_at_topics(self, since: Mapping[str, PartitionOffsets] | None = None) -> dict[str, Planner]:
        """Return a planner for each topic as it is now, by flat name, for a reader at ``since``.

        The result is empty if nothing matches the pattern. Raises UnknownTopic for a name that does not exist.
        """
        if not self.options.has_several_topics:
            return {self.options.topic: self._connection}
        metas = self.selection.find(self.transport)
        if since is not None:
            epochs = {name: {number: mark.epoch for number, mark in marks.items()} for name, marks in since.items()}
            metas = fill_epochs_of_all(self.transport, metas, epochs)
        if not self._planners and metas:
            self._require_mentioned({meta.name for meta in metas})
        for meta in metas:
            if meta.name not in self._planners:
                self._planners[meta.name] = TopicPlanner(self._options_of(meta.name), self._connection)
            self._planners[meta.name].meta = meta
        return {meta.name: self._planners[meta.name] for meta in metas}

    def require_topics(self) -> dict[str, TopicMeta]:
        """Return the topics as they are now, by flat name. Raises UnknownTopic if nothing matches the pattern."""
        found = {name: planner.topic() for name, planner in self.look_at_topics().items()}
        if not found:
            raise self.selection.nothing_found_error(self.transport)
        return found

    def selects(self, topic: str) -> bool:
        """Return whether a topic, under its flat name, is one of the source, whether it exists or not."""
        return topic == self.options.topic or topic in self._planners or self.selection.matches(topic)

    def disconnect(self) -> None:
        """Close the connection; the next request opens a new one. A queue's spool is filled meanwhile."""
        self._connection.disconnect()

    def close(self) -> None:
        """Close the connection, and end the process that fills a queue's spool."""
        self._connection.close()

    def commit(self, positions: OffsetsDocument) -> None:
        """Mark everything before these positions as consumed: the spool of a queue may delete it."""
        if self.options.topic in positions:
            self._connection.commit(parse_document(self.options.topic, positions))

    def batch(self) -> list[OffsetRange]:
        """Return the ranges of a batch read: from startingOffsets to endingOffsets, resolved now.

        Raises UnknownTopic if nothing matches the pattern.
        """
        planners = self.look_at_topics()
        if not planners:
            raise self.selection.nothing_found_error(self.transport)
        return [piece for planner in planners.values() for piece in planner.batch()]

    def initial_offsets(self, known: Iterable[str] = ()) -> OffsetsDocument:
        """Return the offsets at which a reader without positions starts, for topics that are not ``known``.

        If some are known, another topic that matches the pattern was created since, and is read from its beginning.
        """
        planners = self.look_at_topics()
        self._note_waiting(planners)
        before = [name for name in known if self.selects(name)]
        created_later = bool(before) and self.options.topic_pattern is not None
        return _merge(
            {name: {}} if created_later else document(name, planner.initial_offsets())
            for name, planner in planners.items()
            if name not in before
        )

    def end_offsets(self) -> OffsetsDocument:
        """Return the present end of every topic."""
        return _merge(document(name, planner.end_offsets()) for name, planner in self.look_at_topics().items())

    def skip_losses(self, positions: OffsetsDocument) -> OffsetsDocument:
        """Return the positions, moved past messages that were deleted since. Raises DataLoss if that fails the read."""
        since = self.own_positions(positions)
        planners = self.look_at_topics(since)
        self._report_deleted(since, planners)
        moved = (document(name, one.skip_losses(since[name])) for name, one in planners.items() if name in since)
        return {**positions, **_merge(moved)}

    def next_offsets(
        self,
        positions: OffsetsDocument,
        rows_max: int | None,
        bytes_max: int | None,
        targets: OffsetsDocument | None,
    ) -> OffsetsDocument:
        """Return the end of the batch after ``positions``, within ``targets`` and the limits, by topic.

        A topic that was found since then begins at its first message. A deleted topic keeps its positions, so that a
        new one under the same name is noticed. Raises DataLoss if messages after a position were deleted, alone or with
        their topic, and losses fail.
        """
        since = self.own_positions(positions)
        planners = self.look_at_topics(since)
        self._note_waiting([*since, *planners])
        self._report_deleted(since, planners)
        if targets is not None:
            # what was created after the run began is for the next one
            planners = {name: planner for name, planner in planners.items() if name in targets}
        ends: dict[tuple[str, int], PartitionOffset] = {}
        for name, planner in planners.items():
            target = None if targets is None else parse_document(name, targets)
            reachable = planner.reachable_offsets(since.get(name, {}), target)
            ends |= {(name, number): mark for number, mark in reachable.items()}
        if bytes_max is not None:
            size_bytes = bytes_per_row(planner.topic() for planner in planners.values()) or ROW_BYTES_GUESS
            by_bytes = max(1, int(bytes_max / size_bytes))
            rows_max = by_bytes if rows_max is None else min(rows_max, by_bytes)
        if rows_max is not None:
            start = {(name, number): mark for name, marks in since.items() for number, mark in marks.items()}
            ends = limit_rows(start, ends, rows_max)
        by_topic: dict[str, PartitionOffsets] = {name: {} for name in planners}
        for (name, number), mark in ends.items():
            by_topic[name][number] = mark
        moved = _merge(document(name, keep_unchanged(since.get(name, {}), end)) for name, end in by_topic.items())
        return {**{name: positions[name] for name in since}, **moved}

    def ranges(self, start: OffsetsDocument, end: OffsetsDocument) -> list[OffsetRange]:
        """Return the ranges of this source between two positions of a checkpoint: a pure function of them."""
        since, rows_max = self.own_positions(start), self.options.max_rows_per_partition
        return [
            piece
            for name, marks in self.own_positions(end).items()
            for piece in split_ranges(name, since.get(name, {}), marks, rows_max)
        ]

    def own_positions(self, positions: OffsetsDocument) -> dict[str, PartitionOffsets]:
        """Return the positions of this source's topics. Raises SettingError if the one topic has none."""
        if not self.options.has_several_topics:
            return {self.options.topic: parse_document(self.options.topic, positions)}
        return {name: parse_document(name, positions) for name in positions if self.selects(name)}

    def require_own(self, positions: OffsetsDocument) -> None:
        """Raise SettingError for a checkpoint of other topics, of which none is this source's."""
        if positions and not self.own_positions(positions):
            raise SettingError(
                f"the checkpoint holds positions of {list_names(positions)}, and none of the {self.selection}; select "
                "these again or use a new checkpoint directory"
            )

    def _note_waiting(self, topics: Collection[str]) -> None:
        """Log once that nothing matches the pattern yet."""
        if not topics and not self._has_waited:
            self._has_waited = True
            LOG.warning("%s; waiting for the first one", self.selection.nothing_found_error(self.transport))

    def _report_deleted(self, since: Iterable[str], planners: Mapping[str, Planner]) -> None:
        for name in since:
            if name in planners:
                self._deleted.discard(name)
            elif name not in self._deleted:
                sentence = (
                    f"topic {name!r}: it was deleted, and messages after the last ones that were read may be lost; to "
                    "continue without them, set failOnDataLoss=false"
                )
                if self.options.fail_on_data_loss:
                    raise DataLoss(sentence)
                self._deleted.add(name)
                LOG.warning("%s (failOnDataLoss=false)", sentence)

    def _options_of(self, topic: str) -> SourceOptions:
        starting = _offsets_of(self.options.starting, topic, "earliest")
        ending = _offsets_of(self.options.ending, topic, "latest")
        return replace(self.options, topic=topic, topics=(), topic_pattern=None, starting=starting, ending=ending)

    def _require_mentioned(self, names: set[str]) -> None:
        """Raise SettingError for offsets by topic that name another topic, or that name none at all."""
        for option, value in (("startingOffsets", self.options.starting), ("endingOffsets", self.options.ending)):
            if isinstance(value, str | int) or "timestamp" in value:
                continue
            if other := next((name for name in value if name not in names), None):
                raise SettingError(
                    f"{option}: {other!r} is not one of the {self.selection}; write offsets of several topics by topic "
                    f'and partition, for example {{"{min(names)}": {{"0": 4711}}}}'
                )


class TopicPlanner(Planner):
    """Plans one topic of several: ``meta`` is set by the source, whose connection it uses."""

    meta: TopicMeta

    def __init__(self, options: SourceOptions, connection: Planner) -> None:
        super().__init__(options)
        self._connection = connection

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_connection": self._connection, "meta": self.meta}

    @property
    def transport(self) -> Transport:
        """The open transport of the source."""
        return self._connection.transport

    def topic(self) -> TopicMeta:
        """Return the topic as the source saw it last."""
        return self.meta


def _offsets_of(value: OffsetsOption, topic: str, other: Word) -> OffsetsOption:
    """Return the part of an option for one topic of several; topics that it does not mention begin or end there."""
    if isinstance(value, str | int) or "timestamp" in value:
        return value
    found = value.get(topic)
    return found if isinstance(found, Mapping) and found else other


def _merge(documents: Iterable[OffsetsDocument]) -> OffsetsDocument:
    return {name: marks for one in documents for name, marks in one.items()}
