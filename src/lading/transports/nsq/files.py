"""``nsq-files://``: the data path of a real nsqd, upstream's or the fork's, read without the server.

Read-only, while nsqd runs or not. Upstream's topics and channels have a queue each, ``TOPIC`` and ``TOPIC:CHANNEL``;
the fork's topics have one for each partition. nsqd writes the messages that it holds in memory when it stops.

Offsets in the fork's queues are its own counts. Upstream counts nothing: messages are numbered from the first existing
file, whose number is in the topic's id, so that no reader continues at a number that belongs to another message now.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import unquote

import numpy as np

from ...dialects.codes import NSQ
from ...dialects.nsq import disk
from ...dialects.nsq.protocol import DELIVERED
from ...model.errors import LocalError, MalformedMessage
from ...model.names import DEFAULT_STREAM
from ...model.run import Run
from ..fetched import FetchResult
from ..interface import Membership, PartitionMeta, SendResult, TopicMeta
from ..topics import unknown_topic_error

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger("lading.transports.nsq")
RECORDS_MAX: Final = 4096
"""Maximum number of records in one chunk."""
_SCHEME: Final = "nsq-files://"
_SEGMENT: Final = re.compile(r"(?P<queue>.+)\.diskqueue\.(?P<number>[0-9]{6,})\.dat")
_FORKED: Final = re.compile(r"(?P<topic>.+)-(?P<partition>[0-9]{1,4})")
_META: Final = re.compile(r"\s*-?[0-9]+\s+(?P<file>[0-9]+),(?P<at>[0-9]+)\s+[0-9]+,[0-9]+\s*")
_META_BYTES_MAX: Final = 4096


class QueuePosition(NamedTuple):
    """The start of the waiting messages of a queue: a segment, a byte in it, and the number of earlier messages (the
    fork's).
    """

    number: int = -1
    byte: int = 0
    messages_count: int = 0


class NsqFilesTransport:
    """The ``-data-path`` of an nsqd. Raises LocalError for any other directory.

    Torn tails, records that cannot be read and wrong meta files are reported in warnings, with file and byte.
    """

    idempotent = False
    capabilities = DELIVERED

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = Path(unquote(url[len(_SCHEME) :] if url.lower().startswith(_SCHEME) else url))
        self._queues: dict[str, dict[int, QueueFiles]] = {}
        self._look()
        if not self._queues and not any(self._path.glob("nsqd*.dat")):
            raise LocalError(
                f"{self._path} is not a data path of nsqd: it has no file *.diskqueue.NNNNNN.dat, and no nsqd.dat; "
                f"name the directory that nsqd has as -data-path, such as {_SCHEME}/var/lib/nsq"
            )

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all queues, or those wanted, by name: topics, and upstream's channels as ``TOPIC:CHANNEL``."""
        self._look()
        return [self._describe(name) for name in sorted(self._queues) if wanted is None or wanted(name)]

    def topic(self, name: str) -> TopicMeta:
        """Return the queue as it is now. Raises LocalError with similar names if it does not exist."""
        self._look()
        self._partitions_of(name)
        return self._describe(name)

    def create_topic(self, name: str, partitions: int = 1) -> TopicMeta:
        """Refused: a directory belongs to its server."""
        raise self._read_only_error()

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
        """Return messages of one segment, copied; no message arrives during a wait. ``damaged`` lists
        unreadable ones.
        """
        queue = self._find_queue(topic, partition)
        queue.look()
        runs, end, damaged = queue.read(offset, max_bytes)
        bounds = queue.first_offset, queue.end_offset
        return FetchResult(topic, partition, runs, end, *bounds, topic_id=queue.topic_id, damaged=damaged)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after a time, or the end offset."""
        return self._find_queue(topic, partition).find_time(timestamp_us)

    def send(
        self,
        topic: str,
        partition: int | None,
        batch: pa.RecordBatch,
        *,
        strict: bool = False,
        compression: Literal["lz4"] | None = None,
    ) -> SendResult:
        """Refused: a directory belongs to its server."""
        raise self._read_only_error()

    def join(self, group: str, topics: Sequence[str]) -> Membership:
        """Raise LocalError: only a server knows which other readers there are."""
        raise LocalError(f"{self.url} is a directory, and a directory keeps no channels' readers; read without a group")

    def close(self) -> None:
        """Release the files."""
        self._queues.clear()

    def _read_only_error(self) -> LocalError:
        return LocalError(f"{self.url} is a directory, and a directory is only read; send to a server: nsq://HOST:4150")

    def _look(self) -> None:
        if not self._path.is_dir():
            raise LocalError(f"directory {self._path} does not exist; name the -data-path of an nsqd")
        found: dict[str, dict[int, QueueFiles]] = {}
        for name, number, path, stem, forked in _list_queues(self._path):
            known = self._queues.get(name, {}).get(number)
            found.setdefault(name, {})[number] = known or QueueFiles(path, stem, forked=forked)
        self._queues = found

    def _describe(self, name: str) -> TopicMeta:
        parts = []
        topic_id = None
        for number, queue in sorted(self._queues[name].items()):
            queue.look()
            parts.append(PartitionMeta(number, queue.first_offset, queue.end_offset, size_bytes=queue.size_bytes))
            topic_id = queue.topic_id
        return TopicMeta(DEFAULT_STREAM, name, name, topic_id, tuple(parts))

    def _partitions_of(self, name: str) -> dict[int, QueueFiles]:
        if name not in self._queues:
            self._look()
        if name not in self._queues:
            raise unknown_topic_error(name, self._queues, self.url)
        return self._queues[name]

    def _find_queue(self, topic: str, partition: int) -> QueueFiles:
        partitions = self._partitions_of(topic)
        if partition not in partitions:
            numbers = ", ".join(map(str, sorted(partitions))) or "none"
            raise LocalError(f"topic {topic!r} at {self.url} has no partition {partition}; there are {numbers}")
        return partitions[partition]


class QueueSegment:
    """One ``.dat`` file: the positions of its records, as far as it was read."""

    def __init__(self, path: Path, number: int, *, forked: bool) -> None:
        self.path, self.number = path, number
        self.base_offset = 0
        self.starts: list[int] = []
        self.size_bytes = 0
        self.has_damage = False
        """Whether a record has an impossible length: later records of this file cannot be found."""
        self._forked = forked
        self._stop = 0
        self._region = memoryview(b"")
        self._reported: set[int] = set()

    @property
    def end_offset(self) -> int:
        """The offset after the last record; a record with an impossible length counts as one unreadable message."""
        return self.base_offset + len(self.starts) + self.has_damage

    def look(self, *, is_last: bool) -> None:
        """Find the records that were added since. Raises FileNotFoundError if nsqd has deleted the file."""
        size_bytes = self.path.stat().st_size
        if size_bytes != self.size_bytes and not self.has_damage:
            self.size_bytes = size_bytes
            self._region = np.memmap(self.path, np.uint8, "r").data if size_bytes else memoryview(b"")
            found = disk.find_records(self._region, self._stop)
            self.starts += found.starts
            self._stop = found.stop
        else:
            found = disk.RecordIndex([], self._stop, "", False)
        # the last record of the last file may be incomplete, as it is being written
        if found.problem and not (found.is_torn and is_last):
            self.has_damage = True
            self._tell(self._stop, f"{found.problem}; the {len(self.starts)} messages before it are read")

    def read(self, index: int, max_bytes: int) -> tuple[Run | None, int, list[tuple[int, int]]]:
        """Return about ``max_bytes`` of messages from an index on, the index at which to continue, and unreadable
        ranges.

        A run ends before an unreadable record, which is the next one then.
        """
        records: list[bytes] = []
        times_us: list[int] = []
        first, size_bytes = index, 0
        while index < len(self.starts) and size_bytes < max_bytes and len(records) < RECORDS_MAX:
            try:
                message = disk.read_record(self._region, self.starts[index], forked=self._forked)
            except MalformedMessage as error:
                self._tell(self.starts[index], str(error))
                if not records:
                    at = self.base_offset + index
                    return None, index + 1, [(at, at + 1)]
                break
            records.append(disk.to_record(message))
            times_us.append(message.time_ns // 1000)
            size_bytes += len(records[-1])
            index += 1
        if not records:
            end = len(self.starts) + self.has_damage
            is_damaged = self.has_damage and index < end
            return None, end, [(self.base_offset + len(self.starts), self.end_offset)] if is_damaged else []
        base = self.base_offset + first
        chunk = [0, size_bytes, base, len(records), base + len(records) - 1, min(times_us), max(times_us), 0]
        return Run(NSQ, np.frombuffer(b"".join(records), np.uint8), np.array([chunk], np.int64)), index, []

    def find_time(self, index: int, timestamp_us: int) -> int | None:
        """Return the first index at or after ``index`` whose timestamp is at or after a time; None if none has."""
        for at in range(index, len(self.starts)):
            # the timestamp follows the length, in nanoseconds
            start = self.starts[at] + 4
            if int.from_bytes(self._region[start : start + 8], "big", signed=True) >= timestamp_us * 1000:
                return at
        return None

    def _tell(self, byte: int, problem: str) -> None:
        if byte not in self._reported:
            self._reported.add(byte)
            LOG.warning("%s: at byte %d %s", self.path, byte, problem)


class QueueFiles:
    """The segments of one queue in order."""

    def __init__(self, path: Path, stem: str, *, forked: bool) -> None:
        self._path, self._stem, self._forked = path, stem, forked
        self._segments: list[QueueSegment] = []
        self._first_offset = 0
        self._told_meta = ""

    @property
    def first_offset(self) -> int:
        """The offset of the first message that waits in the queue."""
        return self._first_offset

    @property
    def end_offset(self) -> int:
        """The offset after the last message."""
        return self._segments[-1].end_offset if self._segments else self._first_offset

    @property
    def topic_id(self) -> bytes | None:
        """The id of the messages that offsets count; for upstream's queues it contains the first file."""
        if self._forked or not self._segments:
            return None
        return hashlib.sha256(f"{self._stem}/{self._segments[0].number}".encode()).digest()[:16]

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    def look(self) -> None:
        """Notice added messages, and files that nsqd has deleted."""
        start = self._read_start()
        known = {segment.number: segment for segment in self._segments}
        paths = sorted(
            (int(found["number"]), path)
            for path in self._path.glob("*.dat")
            if (found := _SEGMENT.fullmatch(path.name)) and found["queue"] == self._stem
        )
        segments: list[QueueSegment] = []
        for number, path in paths:
            if number < start.number:
                continue
            segment = known.get(number) or QueueSegment(path, number, forked=self._forked)
            try:
                segment.look(is_last=number == paths[-1][0])
            except FileNotFoundError:
                # nsqd has delivered all messages meanwhile
                continue
            segment.base_offset = self._base_offset(segment, segments, start)
            segments.append(segment)
        self._segments = segments
        if segments:
            self._first_offset = segments[0].base_offset + _count_passed(segments[0], start)

    def _base_offset(self, segment: QueueSegment, before: Sequence[QueueSegment], start: QueuePosition) -> int:
        if self._forked and (counted := self._count_before(segment.number)) is not None:
            return counted
        if before:
            return before[-1].end_offset
        if not self._forked:
            return 0
        return max(start.messages_count - _count_passed(segment, start), 0)

    def _count_before(self, number: int) -> int | None:
        """Return how many messages the fork's queue had when the previous segment was closed."""
        path = self._path / f"{self._stem}.diskqueue.{number - 1:06d}.dat.offsetmeta.dat"
        text = _read_text(path)
        return int(text.split()[0]) if text is not None and re.fullmatch(r"[0-9]+\s+[0-9]+,[0-9]+\s*", text) else None

    def _read_start(self) -> QueuePosition:
        name = f"{self._stem}.diskqueue.meta." + ("extra.dat" if self._forked else "dat")
        path = self._path / name
        text = _read_text(path)
        if text is None:
            return QueuePosition()
        start = _parse_forked_start(text) if self._forked else _parse_start(text)
        if start is None:
            if self._told_meta != text:
                self._told_meta = text
                LOG.warning("%s: not a position in a queue; all messages of its files are read", path)
            return QueuePosition()
        return start

    def read(self, offset: int, max_bytes: int) -> tuple[list[Run], int, list[tuple[int, int]]]:
        """Return runs of about ``max_bytes`` from an offset on, the offset at which to continue, and
        unreadable ranges.
        """
        for number, segment in enumerate(self._segments):
            if offset >= segment.end_offset:
                continue
            run, index, damaged = segment.read(max(offset - segment.base_offset, 0), max_bytes)
            end = segment.base_offset + index
            if end >= segment.end_offset and number + 1 < len(self._segments):
                # messages missing between two files of the fork are lost
                end = max(end, self._segments[number + 1].base_offset)
            return [] if run is None else [run], end, damaged
        return [], max(offset, 0), []

    def find_time(self, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after a time, or the end offset."""
        self.look()
        for segment in self._segments:
            found = segment.find_time(max(self._first_offset - segment.base_offset, 0), timestamp_us)
            if found is not None:
                return segment.base_offset + found
        return self.end_offset


def _count_passed(segment: QueueSegment, start: QueuePosition) -> int:
    """Return how many messages of a segment are before the start of the queue."""
    return bisect_left(segment.starts, start.byte) if segment.number == start.number else 0


def _list_queues(path: Path) -> Iterator[tuple[str, int, Path, str, bool]]:
    """Return the queues of a data path: name, partition, directory, prefix of the files, whether it is the fork's."""
    for stem in sorted(_find_stems(path)):
        yield stem, 0, path, stem, False
    for directory in sorted(each for each in path.iterdir() if each.is_dir()):
        for stem in sorted(_find_stems(directory)):
            found = _FORKED.fullmatch(stem)
            if found is not None and found["topic"] == directory.name:
                yield directory.name, int(found["partition"]), directory, stem, True


def _find_stems(path: Path) -> set[str]:
    return {found["queue"] for each in path.glob("*.dat") if (found := _SEGMENT.fullmatch(each.name))}


def _parse_start(text: str) -> QueuePosition | None:
    found = _META.fullmatch(text)
    return None if found is None else QueuePosition(int(found["file"]), int(found["at"]))


def _parse_forked_start(text: str) -> QueuePosition | None:
    try:
        document = json.loads(text)
        numbers = document["SegOffset"]["FileNum"], document["SegOffset"]["Pos"], document["TotalMsgCnt"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(type(number) is int and number >= 0 for number in numbers):
        return None
    return QueuePosition(*numbers)


def _read_text(path: Path) -> str | None:
    """Return the text of a small file, or None if the file does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(_META_BYTES_MAX).decode(errors="replace")
    except OSError:
        return None
