"""A spool: one topic in a data directory of its own, with one writer and any number of readers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from ..log.directory import DataDirectory, TopicDescription, read_descriptions
from ..log.disk import RealDisk
from ..log.formats import GATE
from ..log.group_commit import SyncNow
from ..log.partition import open_partition
from ..log.retention import find_expired_end
from ..model.errors import LocalError
from ..model.names import DEFAULT_STREAM
from ..runtime.owned_directory import own_directory
from ..runtime.private_files import make_private_directory

LOCK_FILE: Final = "spool.lock"
SEGMENT_BYTES: Final = 64 << 20
KEEP_S: Final = 86_400.0
"""Age at which messages that their reader is done with are deleted, in whole segments."""


class SpoolLocked(LocalError):
    """Another process writes this spool."""


class Spool:
    """The one partition of the topic, open for appending: messages are durable when ``append`` returns."""

    def __init__(self, directory: Path, topic: str, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        """Open the spool, or create it. Raises LocalError if the directory holds another topic."""
        make_private_directory(directory)
        GATE.check_directory(directory)
        home = DataDirectory(directory)
        found = list(read_descriptions(directory))
        if any(one.name != topic for one in found):
            raise LocalError(
                f"{directory} is the spool of topic {found[0].name!r}, not of {topic!r}; give each topic its own"
            )
        if not found:
            found = [TopicDescription(uuid.uuid4().bytes, DEFAULT_STREAM, topic, 1, 1, _now_us(), 1, {})]
            home.create(found[0].uuid, found[0].partitions)
            home.describe(found[0])
        self._log = open_partition(
            RealDisk(),
            home.partition(found[0].uuid, 0),
            found[0].uuid,
            segment_bytes=segment_bytes,
            now_us=_now_us(),
        )
        self._log.hold_last_stable_offset(None)
        self._log.maintain(_now_us())
        self._commit = SyncNow()

    @property
    def end(self) -> int:
        """The offset of the next message."""
        return self._log.next_offset

    def append(self, dialect: int, messages: Sequence[bytes], times_us: Sequence[int]) -> None:
        """Append messages as their dialect stores them; durable and readable on return. Raises Refusal if refused."""
        self._log.append(dialect, 0, b"".join(messages), len(messages), min(times_us), max(times_us))
        self._log.flush()
        self._commit.submit(self._log)
        if self._log.high_watermark < self._log.next_offset and self._log.refusal is not None:
            raise self._log.refusal
        self.maintain()

    def maintain(self) -> None:
        """Store the end up to which readers may read; called at intervals, also without new messages."""
        self._log.maintain(_now_us())

    def trim(self, done: int | None, keep_s: float) -> None:
        """Delete whole segments that are older than ``keep_s`` and end before offset ``done``.

        If ``done`` is None they are deleted whether or not they were read.
        """
        segments = [one for one in self._log.segments() if done is None or one.end_offset <= done]
        before = find_expired_end(segments, _now_us(), int(keep_s * 1e6), None)
        if before is not None:
            self._log.truncate_before(before)

    def close(self) -> None:
        """Close the log in order."""
        self._log.close()


def lock_spool(directory: Path) -> AbstractContextManager[None]:
    """Lock the spool for writing as long as the block runs.

    Raises SpoolLocked if another process has the lock, LocalError if the directory cannot be written to.
    """
    busy = f"spool {directory} is locked by another process; stop it or use another directory"
    return own_directory(directory, LOCK_FILE, what="the spool", busy=SpoolLocked(busy))


def _now_us() -> int:
    return time.time_ns() // 1000
