"""Messages that a topic refuses for their size when their batch is sent, after it was published.

The limit of a topic may be lowered after tasks have judged a batch by it, or be hidden from this login. Then a manifest
after that of the batch moves the refused messages to quarantine: it lists files of quarantined rows, and its counts
subtract them from their former count, so that good + routed + quarantined = read holds for all manifests together.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from ..client.outgoing import OUT_SCHEMA
from ..model.names import flat_name
from ..model.protocol import MessageBound
from ..tables.commit.staging import TableFiles, Target, staging_stem
from ..tables.commit.state import PipelineStateDirectory
from ..tables.commit.table_commit import StagedBatch, StagedRange, amend
from ..tables.formats.manifest import DataFile, Manifest
from ..tables.plan.ranges import OffsetRange
from ..tables.storage.files import table_location
from ..transports.fitting import find_oversized, find_refused
from ..transports.open import capabilities_of
from ..transports.topic_address import TopicAddress
from .plan import make_quarantine_schema
from .reasons import Failure
from .rows import COPY_SCHEMA, copies, quarantine_columns
from .settings import PipelineSettings
from .staged_messages import COPIES, COPIES_REFUSED, ORIGIN, StagedArrow, name_target, read_staged

Refused = tuple[str, str, int, str, str]
"""Common facts of refused messages: stream, topic, partition, the route or good that took them, and why."""


def leave_out(batches: Iterable[pa.RecordBatch], places: Collection[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches without the messages at these places, counted through all of them."""
    first = 0
    for batch in batches:
        rows = _rows_within(places, first, batch.num_rows)
        first += batch.num_rows
        yield batch.take(np.delete(np.arange(batch.num_rows), rows)) if rows else batch


def find_late_refusals(
    kind: str, batches: Iterable[pa.RecordBatch], known: Collection[int], address: TopicAddress, bound: MessageBound
) -> dict[int, str]:
    """Return the places of the messages above the bound of a topic, beside ``known`` ones, each with the sentence why.

    None is found among messages of a route that do not record the place they were read from: an earlier Lading staged
    them.
    """
    target = replace(capabilities_of(address.server), bound=bound)
    found: dict[int, str] = {}
    first = 0
    for batch in batches:
        if kind != COPIES and "destination" not in batch.schema.names:
            return {}
        for row, _ in find_oversized(batch, target, _rows_within(known, first, batch.num_rows)):
            destination = kind if kind == COPIES else batch.column("destination")[row].as_py()
            found[first + row] = Failure.too_large(destination, address, bound).sentence
        first += batch.num_rows
    return found


def _rows_within(places: Collection[int], first: int, rows: int) -> list[int]:
    return sorted(place - first for place in places if first <= place < first + rows)


def publish_refused(
    state: PipelineStateDirectory,
    manifest: Manifest,
    settings: PipelineSettings,
    refused: Mapping[str, Mapping[int, str]],
) -> Manifest:
    """Publish in the quarantine those messages of the last manifest that topics have refused; return the new manifest.

    ``refused`` is in the form of the sending record. Copies that the quarantine's topic has refused are only counted,
    as the quarantine's table has their messages.
    """
    counts: Counter[str] = Counter()
    groups: defaultdict[Refused, list[pa.RecordBatch]] = defaultdict(list)
    for name, messages in refused.items():
        kind, _, target = name.partition(" ")
        if kind == COPIES:
            counts[COPIES_REFUSED] += len(messages)
            continue
        files = [file for file in manifest.files if (file.kind, file.target) == (kind, target)]
        for why, row in _take(read_staged(state, files), messages):
            groups[why].append(row)
    writer = _LateQuarantine(state, manifest, settings, counts)
    for why, rows in sorted(groups.items()):
        writer.add(why, pa.Table.from_batches(rows).combine_chunks().to_batches()[0])
    return amend(state, StagedBatch(writer.finish()), resume_command=settings.command("--resume"))


def _take(batches: Iterable[pa.RecordBatch], messages: Mapping[int, str]) -> Iterator[tuple[Refused, pa.RecordBatch]]:
    first = 0
    for batch in batches:
        for row in _rows_within(messages, first, batch.num_rows):
            one = batch.slice(row, 1)
            stream, topic, destination, partition = (one.column(name)[0].as_py() for name in (*ORIGIN, "partition"))
            yield (stream, topic, partition, destination, messages[first + row]), one.select(OUT_SCHEMA.names)
        first += batch.num_rows


class _LateQuarantine:
    """Stages refused messages for the quarantine and its topic, a file for each partition that they were read from."""

    def __init__(
        self, state: PipelineStateDirectory, manifest: Manifest, settings: PipelineSettings, counts: Counter[str]
    ) -> None:
        self._state = state
        self._settings = settings
        self._ranges = {(piece.topic, piece.partition): piece for piece in manifest.ranges}
        # of a crash before a file of the same name may be left
        self._attempt = f"late-{secrets.token_hex(4)}"
        self._run = manifest.run
        self._counts = counts
        self._now_us = time.time_ns() // 1000
        self._files: dict[OffsetRange, TableFiles] = {}
        self._copies: dict[OffsetRange, StagedArrow] = {}

    def add(self, why: Refused, messages: pa.RecordBatch) -> None:
        """Stage messages of one partition, route and sentence."""
        stream, topic, partition, destination, sentence = why
        piece = self._ranges[flat_name(stream, topic), partition]
        failure = Failure("refused_by_target", destination, sentence)
        place: dict[str, str | int] = {"stream": stream, "topic": topic, "partition": partition}
        which = pa.repeat(pa.scalar(0), messages.num_rows)
        made = quarantine_columns(messages, [failure], which, place, self._now_us)
        self._table_files(piece).add(made)
        self._count(failure, messages.num_rows)
        if (address := self._settings.copies) is not None:
            copied = copies(made, piece.topic, self._settings.id)
            refused = [row for row, _ in find_refused(copied, capabilities_of(address.server))]
            self._counts[COPIES_REFUSED] += len(refused)
            self._copies_of(piece, address).add(next(leave_out([copied], refused)))

    def finish(self) -> Sequence[StagedRange]:
        """Close the files; the counts are with the first range."""
        staged: defaultdict[OffsetRange, list[tuple[int, DataFile]]] = defaultdict(list)
        for piece, files in self._files.items():
            staged[piece] += files.finish()
        for piece, file in self._copies.items():
            staged[piece].append((piece.start, file.close()))
        first = next(iter(staged), next(iter(self._ranges.values())))
        found = staged.pop(first, [])
        return [
            StagedRange(first, tuple(found), dict(self._counts)),
            *(StagedRange(piece, tuple(files), {}) for piece, files in staged.items()),
        ]

    def _count(self, failure: Failure, rows: int) -> None:
        destination = failure.header
        self._counts["good" if destination == "good" else "routed"] -= rows
        self._counts[f"to.{destination}"] -= rows
        self._counts["quarantined"] += rows
        self._counts[failure.counter] += rows

    def _stem_of(self, piece: OffsetRange) -> str:
        return staging_stem(self._run, piece, self._attempt)

    def _table_files(self, piece: OffsetRange) -> TableFiles:
        if piece not in self._files:
            options = self._settings.document.pipeline
            table = table_location("quarantine", self._settings.quarantine_table)
            target = Target(
                table, self._state.directory, make_quarantine_schema(), ("reason", "header", "detail"),
                int(options.file_size), options.compression,
            )  # fmt: skip
            self._files[piece] = TableFiles(target, piece.start, self._stem_of(piece))
        return self._files[piece]

    def _copies_of(self, piece: OffsetRange, address: TopicAddress) -> StagedArrow:
        if piece not in self._copies:
            name = f"{self._stem_of(piece)}-copies.arrow"
            self._copies[piece] = StagedArrow(self._state.directory, name, COPY_SCHEMA, COPIES, name_target(address))
        return self._copies[piece]
