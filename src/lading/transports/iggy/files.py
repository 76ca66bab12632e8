"""``iggy-files://``: the data directory of a real Iggy server of 0.0.30 or 0.0.40, read without the server.

Read-only, and for a server that is stopped: a running one writes only every 30 s or 10,000 messages. The layout of its
directory is in iggy.md A9; streams and topics are found by the names in their ``.info`` files.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import unquote

import numpy as np

from ...dialects.iggy.classic.disk import find_damaged, list_pieces, read_piece, salvage_rest
from ...dialects.iggy.classic.protocol import POLLED
from ...dialects.registry import decode, dialect
from ...model.chunk_table import BODY_END, BODY_START, COUNT, LAST_OFFSET, MAX_TIMESTAMP_US
from ...model.errors import CorruptLog, LocalError, MalformedMessage
from ...model.names import flat_name
from ...model.run import Run
from ...model.scan_request import ScanRequest
from ..fetched import FetchResult, missing
from ..interface import Membership, PartitionMeta, SendResult, TopicMeta
from ..topics import unknown_topic_error

if TYPE_CHECKING:
    import pyarrow as pa

LOG: Final = logging.getLogger("lading.transports.iggy")
STREAMS: Final = "streams"
_INDEX_ENTRY_BYTES: Final = 4
_SCHEME: Final = "iggy-files://"


class IggyFilesTransport:
    """A data directory (``local_data`` of the server, which has ``streams`` in it). Raises LocalError for any other.

    A torn tail, damaged messages and unreadable files are reported in warnings with file, byte and offset.
    """

    idempotent = False
    capabilities = POLLED

    def __init__(self, url: str) -> None:
        self.url = url
        self._path = Path(unquote(url[len(_SCHEME) :] if url.lower().startswith(_SCHEME) else url))
        if not (self._path / STREAMS).is_dir():
            raise LocalError(
                f"{self._path} is not a data directory of an Iggy server: it has no directory {STREAMS!r}; "
                f"name the directory that has, such as {_SCHEME}/srv/iggy/local_data"
            )
        self._topics: dict[str, TopicDirectory] = {}
        self._look()

    def topics(self, wanted: Callable[[str], bool] | None = None) -> list[TopicMeta]:
        """Return all topics with their partitions, or those whose flat name is wanted."""
        self._look()
        return [topic.describe() for topic in self._topics.values() if wanted is None or wanted(topic.name)]

    def topic(self, name: str) -> TopicMeta:
        """Return the topic as it is now. Raises LocalError with similar names if it does not exist."""
        return self._find_topic(name).describe()

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
        """Return whole parts of one segment, mapped and not copied unless they have states; no message arrives during a
        wait.

        Messages whose CRC-32 does not match are among them, for the reader to check; ``damaged`` lists unreadable ones.
        """
        log = self._find_topic(topic).partition(partition)
        runs, end = log.read(offset, max_bytes)
        first, last = log.first_offset, log.end_offset
        damaged = missing(runs, max(offset, first), end)
        return FetchResult(topic, partition, runs, end, first, last, damaged=damaged)

    def offset_at(self, topic: str, partition: int, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after ``timestamp_us``, or the end offset."""
        return self._find_topic(topic).partition(partition).find_time(timestamp_us)

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
        raise LocalError(f"{self.url} is a directory, and a directory keeps no consumer groups; read without a group")

    def close(self) -> None:
        """Release the files."""
        self._topics.clear()

    def _read_only_error(self) -> LocalError:
        return LocalError(
            f"{self.url} is a directory, and a directory is only read; send to a server: iggy://HOST:8090"
        )

    def _look(self) -> None:
        found = {topic.name: topic for topic in _list_topics(self._path / STREAMS)}
        self._topics = {name: self._topics.get(name, topic) for name, topic in found.items()}

    def _find_topic(self, name: str) -> TopicDirectory:
        if name not in self._topics:
            self._look()
        if name not in self._topics:
            raise unknown_topic_error(name, self._topics, self.url)
        return self._topics[name]


class TopicDirectory:
    """A topic on disk: its names and partitions, counted from 0 as everywhere in transports."""

    def __init__(self, stream: str, topic: str, path: Path) -> None:
        self.name = flat_name(stream, topic)
        self._stream, self._find_topic = stream, topic
        numbers = sorted(int(found.name) for found in (path / "partitions").glob("[0-9]*") if found.is_dir())
        self._partitions = {number - 1: IggyPartitionFiles(path / "partitions" / str(number)) for number in numbers}

    def describe(self) -> TopicMeta:
        """Return the topic with the offsets that can be read."""
        partitions = tuple(
            PartitionMeta(number, log.first_offset, log.end_offset, size_bytes=log.size_bytes)
            for number, log in self._partitions.items()
        )
        return TopicMeta(self._stream, self._find_topic, self.name, None, partitions)

    def partition(self, number: int) -> IggyPartitionFiles:
        """Return a partition. Raises LocalError if it does not exist."""
        if number not in self._partitions:
            numbers = ", ".join(map(str, self._partitions)) or "none"
            raise LocalError(f"topic {self.name!r} has no partition {number}; there are {numbers}")
        return self._partitions[number]


class SegmentFile:
    """One ``.log`` file, mapped, and the parts of it that can be read."""

    def __init__(self, path: Path, end_offset: int | None) -> None:
        """Map a file; ``end_offset`` is the start of the next one, None for the last file, whose index has it."""
        self.path = path
        self.first_offset = int(path.stem)
        self.size_bytes = path.stat().st_size
        self.region = np.memmap(path, np.uint8, "r") if self.size_bytes else np.empty(0, np.uint8)
        self.has_states, self.chunks, self.stopped_at = list_pieces(self.region)
        self._reported: set[int] = set()
        index = path.with_suffix(".index")
        if end_offset is None and index.exists():
            end_offset = self.first_offset + index.stat().st_size // _INDEX_ENTRY_BYTES
        if end_offset is not None and self.has_states:
            rest = salvage_rest(self.region, self.stopped_at, self.end_offset, end_offset)
            self.chunks = np.concatenate([self.chunks, rest])

    @property
    def end_offset(self) -> int:
        """The offset after the last message, or the first one if the partition is empty."""
        return int(self.chunks[-1, LAST_OFFSET]) + 1 if len(self.chunks) else self.first_offset

    def read(self, number: int) -> list[Run]:
        """Return the messages of a part: one run, or none if they cannot be read; the fault is logged once."""
        piece = self.chunks[number]
        run = read_piece(self.region, piece, has_states=self.has_states)
        damaged = find_damaged(run)
        if not damaged:
            return [run]
        salvaged = self._salvage_messages(run)
        kept = salvaged is None
        for offset in damaged if number not in self._reported else ():
            what = "does not match its CRC-32" if kept else "is damaged and cannot be read"
            LOG.warning("%s: message %d, in the piece from byte %d on, %s", self.path, offset, piece[BODY_START], what)
        self._reported.add(number)
        return [run] if salvaged is None else salvaged

    @staticmethod
    def _salvage_messages(run: Run) -> list[Run] | None:
        """Return the intact messages of a part that cannot be decoded; None if it can, even with wrong payloads."""
        try:
            for _ in decode(run, ScanRequest(carrier=False)):
                pass
        except MalformedMessage:
            found = dialect(run.dialect).salvage(run)
            return [found] if len(found.chunks) else []
        return None


class IggyPartitionFiles:
    """The segments of a partition in order, opened when they are first asked for."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: list[SegmentFile] | None = None

    @property
    def first_offset(self) -> int:
        """The offset of the first message."""
        return self._segments[0].first_offset if self._segments else 0

    @property
    def end_offset(self) -> int:
        """The offset after the last message."""
        return self._segments[-1].end_offset if self._segments else 0

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def _segments(self) -> list[SegmentFile]:
        if self._opened is None:
            try:
                paths = sorted(self._path.glob("[0-9]*.log"))
                ends = [*(int(path.stem) for path in paths[1:]), None]
                self._opened = [SegmentFile(path, end) for path, end in zip(paths, ends, strict=True)]
            except OSError as error:
                raise CorruptLog(f"{self._path} cannot be read: {error.strerror or error}") from None
            self._tell_what_is_cut(self._opened)
        return self._opened

    def read(self, offset: int, max_bytes: int) -> tuple[list[Run], int]:
        """Return runs of about ``max_bytes`` from an offset on, and the offset at which to continue."""
        for number, segment in enumerate(self._segments):
            following = self._segments[number + 1] if number + 1 < len(self._segments) else None
            segment_end = segment.end_offset if following is None else following.first_offset
            if offset >= segment_end:
                continue
            runs: list[Run] = []
            end, size_bytes = offset, 0
            for piece in np.flatnonzero(segment.chunks[:, LAST_OFFSET] >= offset).tolist():
                if runs and size_bytes >= max_bytes:
                    return runs, end
                runs += segment.read(piece)
                end = int(segment.chunks[piece, LAST_OFFSET]) + 1
                size_bytes += int(segment.chunks[piece, BODY_END] - segment.chunks[piece, BODY_START])
            # messages missing before the next segment are lost
            return runs, max(end, segment_end)
        return [], max(offset, 0)

    def find_time(self, timestamp_us: int) -> int:
        """Return the first offset whose timestamp is at or after a time, or the end offset."""
        import pyarrow as pa

        for segment in self._segments:
            for piece in np.flatnonzero(segment.chunks[:, MAX_TIMESTAMP_US] >= timestamp_us).tolist():
                for run in segment.read(piece):
                    for part in decode(run, ScanRequest(fields=frozenset({"offset", "timestamp"}), carrier=False)):
                        times = np.asarray(part.columns["timestamp"].cast(pa.int64()))
                        later = np.flatnonzero(times >= timestamp_us)
                        if later.size:
                            found: int = part.columns["offset"][int(later[0])].as_py()
                            return found
        return self.end_offset

    @staticmethod
    def _tell_what_is_cut(segments: Sequence[SegmentFile]) -> None:
        """Warn of bytes that are not messages, except for zeros after the end, which servers skip as well."""
        for segment in segments:
            if segment.region[segment.stopped_at :].any():
                LOG.warning(
                    "%s: at byte %d a message is truncated or damaged; %d messages of the file are read",
                    segment.path,
                    segment.stopped_at,
                    int(segment.chunks[:, COUNT].sum()),
                )


def _list_topics(streams: Path) -> Iterator[TopicDirectory]:
    for stream in _list_numbered(streams):
        for topic in _list_numbered(stream / "topics"):
            yield TopicDirectory(_read_name(stream / "stream.info"), _read_name(topic / "topic.info"), topic)


def _list_numbered(path: Path) -> list[Path]:
    found = [each for each in path.glob("[0-9]*") if each.is_dir() and each.name.isdecimal()]
    return sorted(found, key=lambda each: int(each.name))


def _read_name(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptLog(f"{path} should hold a name, and cannot be read: {error}") from None
