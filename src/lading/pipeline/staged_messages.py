"""Messages that a task stages for topics: whole, as Arrow files in the state directory, sent after the manifest."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ..client.outgoing import OUT_SCHEMA
from ..model.errors import CorruptLog
from ..model.run import Decoded
from ..runtime.private_files import open_private
from ..tables.commit.state import PipelineStateDirectory
from ..tables.commit.table_commit import staging_path
from ..tables.formats.data_files import HashingFile
from ..tables.formats.manifest import DataFile
from ..tables.storage.files import OWN, STAGED, make_local_directory
from ..transports.fitting import find_oversized, find_unholdable
from ..transports.topic_address import TopicAddress
from .classification import ClassifiedBatch
from .job import PipelineJob
from .plan import Plan
from .rows import COPY_SCHEMA

COPIES, MESSAGES, STATES, PASSED = "copies", "messages", "states", "passed"
"""Kinds of staged files that belong to no table: copies for the quarantine topic, messages for the topics of routes and
good, states to set at the source, messages for SQL steps."""
COPIES_REFUSED = "copies_refused"
"""The count of quarantined messages that the quarantine topic cannot hold, so that they are in the table alone."""
ORIGIN = ("stream", "topic", "destination")
"""Columns of a message for a topic that are not sent: the place it was read from, and the route or good that takes
it."""
MESSAGE_SCHEMA = pa.schema([*COPY_SCHEMA, *(pa.field(name, pa.string()) for name in ORIGIN)])


class StagedTopics:
    """The messages of one range for the topics of its destinations, a file for each topic."""

    def __init__(self, job: PipelineJob, stem: str) -> None:
        self._job = job
        self._stem = stem
        self._files: dict[TopicAddress, StagedArrow] = {}

    def take(self, plan: Plan, decoded: Decoded, judged: ClassifiedBatch, place: Mapping[str, str | int]) -> None:
        """Stage the messages that go to topics. Those that a topic cannot hold fail in ``judged``, which is changed."""
        for at, address in plan.topics.items():
            rows = np.flatnonzero(judged.destination == at)
            if not rows.size:
                continue
            batch = _to_messages(decoded, rows, {**place, "destination": plan.destinations[at].name})
            capabilities = self._job.capabilities_at(address)
            refused = [row for row, _ in find_unholdable(batch, capabilities)]
            too_large = [row for row, _ in find_oversized(batch, capabilities, refused)]
            if refused or too_large:
                judged.failure[rows[too_large]] = plan.destinations[at].too_large
                judged.failure[rows[refused]] = plan.destinations[at].refused
                judged.destination[rows[refused + too_large]] = -1
                batch = batch.take(np.delete(np.arange(rows.size), refused + too_large))
            if batch.num_rows:
                self._open_file(address).add(batch)

    def finish(self) -> Iterator[DataFile]:
        """Close the files."""
        for file in self._files.values():
            yield file.close()

    def _open_file(self, address: TopicAddress) -> StagedArrow:
        if address not in self._files:
            name = f"{self._stem}-{MESSAGES}-{len(self._files)}.arrow"
            state, target = Path(self._job.state), name_target(address)
            self._files[address] = StagedArrow(state, name, MESSAGE_SCHEMA, MESSAGES, target)
        return self._files[address]


class StagedArrow:
    """A staged Arrow file in the state directory."""

    def __init__(self, state: Path, name: str, schema: pa.Schema, kind: str, target: str) -> None:
        directory = state / OWN / STAGED
        make_local_directory(directory)
        self._name, self._kind, self._target = name, kind, target
        self._sink = HashingFile(open(directory / name, "xb", buffering=0, opener=open_private))  # noqa: SIM115
        self._writer = pa.ipc.new_stream(self._sink, schema)
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._rows += batch.num_rows

    def close(self) -> DataFile:
        self._writer.close()
        self._sink.sync()
        self._sink.close()
        return DataFile(
            os.curdir, self._name, self._name, self._rows, self._sink.size_bytes, self._sink.hash, self._kind,
            self._target,
        )  # fmt: skip


def name_target(address: TopicAddress) -> str:
    """Return a topic as manifests name the target of a staged file."""
    return f"{address.topic} {address.server}"


def name_address(target: str) -> TopicAddress:
    """Return the topic that ``name_target`` named."""
    topic, _, server = target.partition(" ")
    return TopicAddress(server, topic)


def read_staged(state: PipelineStateDirectory, files: Iterable[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield what staged Arrow files hold. Raises CorruptLog if one cannot be read."""
    for file in files:
        path = staging_path(state, file)
        try:
            with pa.OSFile(str(path), "rb") as source, pa.ipc.open_stream(source) as reader:
                yield from reader
        except (FileNotFoundError, pa.ArrowInvalid) as error:
            raise CorruptLog(
                f"{path} holds {file.rows} {file.kind} that are not delivered yet, and cannot be read: {error}"
            ) from None


def _to_messages(decoded: Decoded, rows: Any, place: Mapping[str, str | int]) -> pa.RecordBatch:
    """Return rows in MESSAGE_SCHEMA; ``place`` is what all of them have in common."""
    columns: list[Any] = [pa.repeat(pa.scalar(place["partition"], pa.int32()), decoded.count)]
    columns += [decoded.columns[field.name].cast(field.type) for field in OUT_SCHEMA]
    columns += [pa.repeat(pa.scalar(place[name], pa.string()), decoded.count) for name in ORIGIN]
    made = pa.RecordBatch.from_arrays(columns, schema=MESSAGE_SCHEMA)
    return made if rows.size == decoded.count else made.take(pa.array(rows))
