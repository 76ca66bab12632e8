"""``file://`` or a plain path: a broker's data directory, read without the broker, while it runs or not.

Read-only and without a lock. Readers stop at the offset in the watermark file, at most 100 ms after a running broker.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from ..chunk.runs import runs
from ..dialects.native.protocol import STORED
from ..dialects.registry import dialect
from ..log import watermark
from ..log.directory import TOPICS, TopicDescription, partition_path, read_description, read_descriptions
from ..log.reader import DirectoryReader
from ..model.errors import CorruptLog, LocalError
from ..model.run import Run
from ..model.scan_request import ScanRequest
from .fetched import FetchResult, missing
from .interface import Membership, PartitionMeta, SendResult, TopicMeta
from .lading.blocks import Compression
from .topics import unknown_topic_error

if TYPE_CHECKING:
    import pyarrow as pa

    from ..log.interface import Span

LOOK_S = 0.05
"""Interval at which a waiting reader checks for messages: half of the watermark's possible delay."""
MADE_S = 2.0
"""Time in which a partition may appear after its topic was described."""


class FilesTransport:
    """A data directory, one topic's directory in it, or one partition's. Raises LocalError for any other path."""

    idempotent = False
    capabilities = STORED

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = Path(unquote(urlsplit(url).path) if url.startswith("file://") else url)
        self._readers: dict[Path, DirectoryReader] = {}
        self._topics: dict[str, _Topic] = {}
        self._look()

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics with their partitions, or those whose flat name is wanted."""
        self._look()
        return [self._describe_topic(topic) for topic in self._topics.values() if wanted is None or wanted(topic.name)]

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with similar names if it does not exist."""
        self._look()
        return self._describe_topic(self._find_topic(name))

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Refused: a directory belongs to its broker."""
        raise self._read_only()

    def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_bytes: int = 1 << 20,
        max_messages: int | None = None,
        wait_ms: int = 0,
    ) -> FetchResult:
        """Return whole chunks of one segment, mapped, not copied; ``max_messages`` is ignored.

        Messages of a damaged chunk are among them if their dialect's own checks hold; ``damaged`` lists the others.
        """
        reader = self._open_reader(self._find_topic(topic), partition)
        deadline = time.monotonic() + wait_ms / 1000
        if offset >= reader.last_stable_offset:
            reader.refresh()
        while offset >= reader.last_stable_offset and (left_s := deadline - time.monotonic()) > 0:
            time.sleep(min(LOOK_S, left_s))
            reader.refresh()
        span = reader.read(offset, max_bytes) if offset < reader.last_stable_offset else None
        if span is not None:
            end = max(offset, min(span.end_offset, reader.last_stable_offset))
        else:
            # no message before the end can be read: a reader that waited here would wait for ever
            end = max(offset, reader.last_stable_offset)
        chunks = [] if span is None else _runs_of(span)
        return FetchResult(
            topic,
            partition,
            chunks,
            end_offset=end,
            first_offset=reader.first_offset,
            last_stable_offset=reader.last_stable_offset,
            topic_id=reader.topic_id,
            epoch=reader.epoch,
            epochs=tuple(reader.epochs),
            hidden=reader.unavailable_ranges(offset, end),
            aborted=[*reader.aborted_ranges(offset, end), *reader.control_ranges(offset, end)],
            damaged=missing(chunks, max(offset, reader.first_offset), end),
        )

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``."""
        reader = self._open_reader(self._find_topic(topic), partition)
        reader.refresh()
        at = reader.offset_at(timestamp_us)
        while at < reader.last_stable_offset:
            fetched = self.fetch(topic, partition, at)
            for part in fetched.decode(ScanRequest(at, fields=frozenset({"timestamp"})), states="all"):
                found = _first_since(part.columns["timestamp"], timestamp_us)
                if found is not None:
                    return int(part.columns["offset"][found].as_py())
            if fetched.end_offset <= at:
                break
            at = fetched.end_offset
        return reader.last_stable_offset

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Compression = None,
    ) -> SendResult:
        """Refused: a directory belongs to its broker."""
        raise self._read_only()

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Raise LocalError: only a broker knows which other readers there are."""
        raise LocalError(
            f"{self.url} is a directory, and a directory keeps no consumer groups; read without a group, "
            "or from the broker that owns it"
        )

    def close(self) -> None:
        """Close the files."""
        self._readers.clear()

    def _read_only(self) -> LocalError:
        return LocalError(
            f"{self.url} is a directory, and a directory is only read; "
            f"send to its broker: `lading serve --data {self._path}`, then lading://127.0.0.1:7070"
        )

    def _look(self) -> None:
        self._topics = {topic.name: topic for topic in _topics_at(self._path)}

    def _find_topic(self, name: str) -> _Topic:
        if name not in self._topics:
            raise unknown_topic_error(name, self._topics, self.url)
        return self._topics[name]

    def _open_reader(self, topic: _Topic, partition: int) -> DirectoryReader:
        path = topic.paths.get(partition)
        if path is None:
            numbers = ", ".join(map(str, topic.paths)) or "none"
            raise LocalError(f"topic {topic.name!r} at {self.url} has no partition {partition}; there are {numbers}")
        # a topic is described before its partitions are created
        deadline = time.monotonic() + MADE_S
        while path not in self._readers and not (path / watermark.FILE_NAME).exists() and time.monotonic() < deadline:
            time.sleep(LOOK_S)
        try:
            if path not in self._readers:
                self._readers[path] = DirectoryReader(path)
        except FileNotFoundError:
            raise CorruptLog(f"topic {topic.name!r} has a partition {partition}, but {path} is not there") from None
        return self._readers[path]

    def _describe_topic(self, topic: _Topic) -> TopicMeta:
        parts = []
        topic_id = b""
        for number, path in topic.paths.items():
            known = path in self._readers
            reader = self._open_reader(topic, number)
            if known:
                reader.refresh()
            topic_id = reader.topic_id
            span = (reader.first_offset, reader.last_stable_offset)
            parts.append(PartitionMeta(number, *span, reader.epoch, tuple(reader.epochs), _size_bytes(path)))
        settings = {} if topic.description is None else topic.description.settings
        return TopicMeta(topic.stream, topic.topic, topic.name, topic_id or None, tuple(parts), settings)


class _Topic:
    """A topic found on disk: its names and the directory of each partition."""

    def __init__(self, description: TopicDescription | None, paths: dict[int, Path], name: str = "") -> None:
        self.description = description
        self.paths = paths
        self.stream = "" if description is None else description.stream
        self.topic = name if description is None else description.topic
        self.name = name if description is None else description.name


def _topics_at(path: Path) -> Iterator[_Topic]:
    """Return the topics at ``path``: a data directory, a topic, or a partition with or without a topic around it."""
    if not path.is_dir():
        raise LocalError(
            f"directory {path} does not exist; a server is named with its scheme, like lading://127.0.0.1:7070"
        )
    if (path / TOPICS).is_dir():
        for found in read_descriptions(path):
            yield _Topic(found, {n: partition_path(path, found.uuid, n) for n in range(found.partitions)})
        return
    described = read_description(path)
    if described is not None:
        yield _Topic(described, {number: path / str(number) for number in range(described.partitions)})
        return
    if not (path / watermark.FILE_NAME).is_file():
        raise LocalError(
            f"{path} is not a log: it is neither a data directory of `lading serve` nor a topic or a partition in one; "
            "name one of these"
        )
    around = read_description(path.absolute().parent)
    number = int(path.name) if path.name.isdecimal() else 0
    yield _Topic(around, {number: path}, path.absolute().name)


def _size_bytes(path: Path) -> int:
    with os.scandir(path) as entries:
        return sum(
            entry.stat().st_size for entry in entries if entry.name.endswith(".log") and entry.name[:1].isdecimal()
        )


def _runs_of(span: Span) -> list[Run]:
    """Return the chunks of a span; for a damaged one, the messages that its dialect finds intact."""
    whole = runs(span.region, span.start, span.end, verify=False)
    return [dialect(run.dialect).salvage(run) for run in whole] if span.damaged else whole


def _first_since(timestamps: pa.Array[pa.TimestampScalar], timestamp_us: int) -> int | None:
    import numpy as np
    import pyarrow as pa

    later = np.flatnonzero(np.asarray(timestamps.cast(pa.int64())) >= timestamp_us)
    return int(later[0]) if later.size else None
