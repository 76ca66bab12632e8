"""Tasks that run in the process of the test."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lading.tables.commit.table_commit import StagedRange
from lading.tables.executor import Stage
from lading.tables.plan.ranges import OffsetRange


class DirectExecutor:
    """Runs tasks in this process."""

    def write(self, stage: Stage, ranges: Sequence[OffsetRange]) -> list[StagedRange]:
        return [stage(piece, str(at)) for at, piece in enumerate(ranges)]

    def run_watched(self, work: Callable[[], None], on_poll: Callable[[], None]) -> None:
        work()
        on_poll()

    def original_error(self, error: Exception) -> Exception:
        return error

    def close(self) -> None:
        pass
