"""The circuit breaker: which batches are not published.

A batch is not published if too many of its messages fail, because all of it is suspect then, or if a message violates
an expectation whose ``else`` is fail.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..model.errors import LocalError
from ..tables.commit.state import PipelineStateDirectory
from ..tables.formats.manifest import same_ranges
from ..tables.plan.ranges import OffsetRange
from .job import PipelineJob
from .reasons import BY_CHOICE, reason_of
from .state import clear_rejected_batch, read_rejected_batch, save_rejected_batch

REASONS_SHOWN = 3


def check_failure_ratio(
    job: PipelineJob, state: PipelineStateDirectory, ranges: Sequence[OffsetRange], counts: Mapping[str, int]
) -> None:
    """Raise LocalError if more of a batch failed than the settings allow, unless it was accepted.

    Messages that routes take to quarantine are not failures: the settings ask for it. One message that violates an
    expectation whose ``else`` is fail is enough, however small the batch is.
    """
    quality = job.settings.document.quality
    read = counts.get("read", 0)
    failed = counts.get("quarantined", 0) - _count_routed(counts)
    violated = [one for one in job.plan.expectations if one.otherwise == "fail" and counts.get(one.counter)]
    if not violated and (read < quality.min_messages or failed <= quality.max_failure_ratio * read):
        if read_rejected_batch(state):
            clear_rejected_batch(state)
        return
    if job.accepted and same_ranges([OffsetRange.parse(row) for row in job.accepted], ranges):
        clear_rejected_batch(state)
        return
    save_rejected_batch(state, ranges, counts)
    if violated:
        first = violated[0]
        raise LocalError(
            f"pipeline {job.settings.id!r} stopped before publishing: the expectation {first.name!r} does not hold for "
            f"{counts[first.counter]:,} of {read:,} messages of this batch: {first.filter}. Correct the sender or the "
            f"expectation and run again, or publish this batch unchanged with {job.accept_command}"
        )
    raise LocalError(
        f"pipeline {job.settings.id!r} stopped before publishing: {failed:,} of {read:,} messages of this batch failed "
        f"({failed / read:.0%}; max_failure_ratio is {quality.max_failure_ratio:g}, in batches of "
        f"min_messages = {quality.min_messages:,} or more): {_describe_most_frequent(counts)}. That looks "
        f"like a fault of all messages: correct the contract or the sender and run again, or publish this batch "
        f"unchanged with {job.accept_command}"
    )


def _count_routed(counts: Mapping[str, int]) -> int:
    found = ((count, reason_of(name)) for name, count in counts.items())
    return sum(count for count, reason in found if reason is not None and reason[0] == BY_CHOICE)


def _describe_most_frequent(counts: Mapping[str, int]) -> str:
    found = [(count, reason) for name, count in counts.items() if (reason := reason_of(name)) is not None]
    found = [(count, reason) for count, reason in found if reason[0] != BY_CHOICE]
    shown = [
        f"{reason} {header} {count:,}".replace("  ", " ")
        for count, (reason, header) in sorted(found, reverse=True)[:REASONS_SHOWN]
    ]
    return ", ".join(shown)
