"""The batch that a run began last, stored before its tasks run, so that a retry reads the same messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...model.errors import CorruptLog
from ..formats.manifest import Manifest, same_ranges
from ..plan.offsets import OffsetsDocument, parse_document
from ..plan.ranges import OffsetRange, split_ranges
from ..storage.files import make_local_directory, read_document, write_document


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch by the positions before and after it; it is empty if these are the same."""

    start: OffsetsDocument
    end: OffsetsDocument

    @property
    def ranges(self) -> list[OffsetRange]:
        """The offset ranges of the batch, however tasks cut them."""
        return [
            piece
            for topic, marks in self.end.items()
            for piece in split_ranges(topic, _parse_marks(topic, self.start), parse_document(topic, {topic: marks}))
        ]

    def is_published_by(self, last: Manifest | None) -> bool:
        """Return whether ``last`` is the manifest of this batch, or the batch needs none."""
        ranges = self.ranges
        return not ranges or (last is not None and same_ranges(last.ranges, ranges))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The batch that was begun last, in a directory of its own."""

    directory: Path

    @property
    def path(self) -> Path:
        """The path of the document."""
        return self.directory / "batch.json"

    @property
    def exists(self) -> bool:
        """Whether any run has begun a batch."""
        return self.path.exists()

    @property
    def begun_s(self) -> float | None:
        """When the batch was begun, in seconds since 1970; None without one."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return None

    def read(self) -> PlannedBatch | None:
        """Return the batch, or None before the first. Raises CorruptLog if the document cannot be read."""
        try:
            known: Mapping[str, Any] | None = read_document(self.path)
        except CorruptLog as error:
            raise CorruptLog(
                f"{error}; to continue where the manifests end, rerun with --resume, which sets this checkpoint aside"
            ) from None
        if known is None:
            return None
        try:
            return PlannedBatch(known["start"], known["end"])
        except (KeyError, TypeError):
            raise CorruptLog(
                f"{self.path} is not a valid checkpoint; to continue where the manifests end, rerun with --resume"
            ) from None

    def begin(self, batch: PlannedBatch) -> None:
        """Store the batch that a restart repeats, unless a manifest lists it."""
        make_local_directory(self.directory)
        write_document(self.path, {"version": 1, "start": batch.start, "end": batch.end})

    def archive(self) -> None:
        """Rename the checkpoint's directory, so that the next run begins at the end of the manifests."""
        if self.directory.exists():
            names = (self.directory.with_name(f"{self.directory.name}-old-{count}") for count in range(1, 10_000))
            self.directory.rename(next(path for path in names if not path.exists()))


def _parse_marks(topic: str, positions: OffsetsDocument) -> Any:
    return parse_document(topic, {topic: positions.get(topic, {})})
