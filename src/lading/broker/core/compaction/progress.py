"""How far a partition is cleaned, and since when: kept beside its log as ``compaction.snapshot``, which may be lost."""

from __future__ import annotations

import json
from typing import Final, NamedTuple, Self

from ....log import snapshots
from ....log.formats import COMPACTION
from ....log.interface import ClosedSegment, KeptLog

SNAPSHOT: Final = "compaction"
_TIMES_MAX: Final = 64
"""Times that are kept; beyond that the oldest two become one, with the later time."""


class CleaningProgress(NamedTuple):
    """Every key has one message before ``end``, but for those in segments with damage.

    ``times`` are (offset, time in microseconds since 1970), ascending: what is before the offset was cleaned by then.
    """

    end: int = 0
    times: tuple[tuple[int, int], ...] = ()
    cleaned_us: int = 0
    """When it was cleaned last; 0 for never."""

    @classmethod
    def load(cls, log: KeptLog) -> Self:
        """Return what is kept beside a log; cleaning begins anew if it is missing, damaged or of another version."""
        snapshot = log.load_snapshot(SNAPSHOT)
        if snapshot is None:
            return cls()
        try:
            document = json.loads(snapshot.data)
            if document["version"] not in COMPACTION.reads:
                return cls()
            times = tuple((int(offset), int(time_us)) for offset, time_us in document["times"])
            return cls(min(int(document["end"]), snapshot.end_offset), times, int(document["cleaned_us"]))
        except (ValueError, KeyError, TypeError):
            return cls()

    def save(self, segment: ClosedSegment, epoch: int) -> None:
        """Keep it beside the log of a segment; from any thread. Raises OSError if the disk refuses that."""
        document = {"version": COMPACTION.written, "end": self.end, "times": self.times, "cleaned_us": self.cleaned_us}
        snapshots.save(segment.disk, segment.directory, SNAPSHOT, epoch, self.end, json.dumps(document).encode())

    def find_due_end(self, now_us: int, kept_us: int) -> int:
        """Return the offset before which tombstones were cleaned ``kept_us`` ago or earlier."""
        return max((offset for offset, time_us in self.times if time_us <= now_us - kept_us), default=0)

    def advance(self, end: int, now_us: int) -> Self:
        """Return the progress after a cleaning up to ``end``."""
        times = [*self.times, (end, now_us)] if end > self.end else list(self.times)
        while len(times) > _TIMES_MAX:
            # a tombstone may then stay longer, never shorter
            times[:2] = [times[1]]
        return self._replace(end=max(end, self.end), times=tuple(times), cleaned_us=now_us)
