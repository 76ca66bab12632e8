"""A process that appends as fast as it can and says on standard output what was acknowledged; it is killed."""

from __future__ import annotations

import os
import selectors
import sys
from pathlib import Path

from lading.log.group_commit import GroupCommit
from lading.log.partition import DiskPartitionLog
from tests.log.messages import NOW, add, opened


def main(home: Path, partitions: int) -> None:
    """Append to all partitions until the end, one line ``partition end_offset`` per acknowledgement."""
    logs = [opened(home / str(number), segment_bytes=200_000, now_us=NOW) for number in range(partitions)]
    commit = GroupCommit(threads=2)
    selector = selectors.DefaultSelector()
    selector.register(commit.fileno() or 0, selectors.EVENT_READ)

    def append(log: DiskPartitionLog, number: int) -> None:
        for _ in range(3):
            add(log, 5)
        log.flush()
        end = log.next_offset

        def done(error: OSError | None) -> None:
            assert error is None
            os.write(1, f"{number} {end}\n".encode())
            append(log, number)

        commit.submit(log, done)

    for number, log in enumerate(logs):
        append(log, number)
    turn = 0
    while True:
        selector.select(1)
        commit.complete()
        turn += 1
        for log in logs:
            log.maintain(NOW + turn * 50_000)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
