"""The circuit breaker: a batch of which too many messages fail is not published, as all of it is suspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.errors import LocalError
from ..tables.manifest import same_ranges
from ..tables.ranges import OffsetRange
from ..tables.state import PipelineStateDirectory
from .job import PipelineJob
from .reasons import reason_of
from .state import clear_rejected_batch, read_rejected_batch, save_rejected_batch

REASONS_SHOWN = 3


def check_failure_ratio(
    job: PipelineJob, state: PipelineStateDirectory, ranges: Sequence[OffsetRange], counts: Mapping[str, int]
) -> None:
    """Raise LocalError if more of a batch failed than the settings allow, unless it was accepted."""
    quality = job.settings.document.quality
    read, failed = counts.get("read", 0), counts.get("quarantined", 0)
    if read < quality.min_messages or failed <= quality.max_failure_ratio * read:
        if read_rejected_batch(state):
            clear_rejected_batch(state)
        return
    if job.accepted and same_ranges([OffsetRange.parse(row) for row in job.accepted], ranges):
        clear_rejected_batch(state)
        return
    save_rejected_batch(state, ranges, counts)
    raise LocalError(
        f"pipeline {job.settings.id!r} stopped before publishing: {failed:,} of {read:,} messages of this batch failed "
        f"({failed / read:.0%}; max_failure_ratio is {quality.max_failure_ratio:g}): {_most(counts)}. That looks "
        f"like a fault of all messages: correct the contract or the sender and run again, or publish this batch "
        f"unchanged with {job.accept_command}"
    )


def _most(counts: Mapping[str, int]) -> str:
    found = [(count, reason) for name, count in counts.items() if (reason := reason_of(name)) is not None]
    shown = [
        f"{reason} {header} {count:,}".replace("  ", " ")
        for count, (reason, header) in sorted(found, reverse=True)[:REASONS_SHOWN]
    ]
    return ", ".join(shown)
