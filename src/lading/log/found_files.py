"""The files that a start has found in a data directory, so that its later steps need not list and read them again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class LogFiles(NamedTuple):
    """The files in the directory of a log, with the contents that were read so far."""

    names: Sequence[str]
    watermark: bytes | None = None
    """The content of its watermark file; None if it is missing or was not read yet."""
    sizes_bytes: Mapping[str, int] | None = None
    """Sizes of its segments by file name, unused space included; None if they were not looked up yet."""

    def size_bytes(self, name: str) -> int | None:
        """Return the size of a segment, or None if it was not looked up yet."""
        return None if self.sizes_bytes is None else self.sizes_bytes.get(name)


@dataclass(slots=True)
class FoundFiles:
    """The directories of topics and partitions, by their paths below ``topics``."""

    names: dict[str, Sequence[str]] = field(default_factory=dict)
    """Entries of the directory of a topic."""
    descriptions: dict[str, object] = field(default_factory=dict)
    """The content of each ``topic.json``, None if it is not JSON; a topic without the file has no entry."""
    partitions: dict[str, LogFiles] = field(default_factory=dict)
    """Files by ``TOPIC/NUMBER``, and by ``TOPIC/NUMBER/postponed``."""
