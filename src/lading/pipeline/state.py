"""State of a pipeline besides manifests: the names of tables in them, and the batch that the breaker rejected."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..model.errors import LocalError
from ..tables.commit.state import PipelineStateDirectory
from ..tables.plan.ranges import OffsetRange
from ..tables.storage.files import OWN, read_document, write_document
from .settings import PipelineSettings


def existing(settings: PipelineSettings) -> PipelineStateDirectory:
    """Return the state of a pipeline. Raises LocalError before its first run."""
    directory = Path(settings.state_directory)
    if not (directory / OWN / "pipeline.json").exists():
        raise LocalError(f"pipeline {settings.id!r} has not run yet: there is no state in {directory}; run it first")
    return PipelineStateDirectory.open(directory, settings.id, "pipeline")


def save_rejected_batch(
    state: PipelineStateDirectory, ranges: Sequence[OffsetRange], counts: Mapping[str, int]
) -> None:
    """Store the batch that was rejected, so that it, and no other, can be accepted."""
    write_document(
        state.own / "refused.json", {"ranges": [piece.document() for piece in ranges], "counts": dict(counts)}
    )


def read_rejected_batch(state: PipelineStateDirectory) -> tuple[Mapping[str, Any], ...]:
    """Return the ranges of the batch that was rejected last; empty if no batch was."""
    known = read_document(state.own / "refused.json")
    return () if known is None else tuple(known["ranges"])


def clear_rejected_batch(state: PipelineStateDirectory) -> None:
    """Delete the record of the rejected batch, which was published after all."""
    (state.own / "refused.json").unlink(missing_ok=True)
