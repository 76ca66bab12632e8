"""The file that keeps up to which messages two topics are equal, so that a later run continues there."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ..model.checked_document import is_intact, pack_document
from ..model.errors import LocalError
from ..runtime.private_files import write_private_file
from .side import DigestedRange, ResumePoint

VERSION: Final = 1
EMPTY_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """A partition whose first ranges are equal in both topics, and the digest over their digests."""

    ranges: int = 0
    messages: int = 0
    a_offset: int | None = None
    b_offset: int | None = None
    digest: bytes = EMPTY_DIGEST

    def add(self, a: DigestedRange, b: DigestedRange) -> PartitionState:
        """Return the state after one more equal range."""
        digest = hashlib.sha256(self.digest + a.digest).digest()
        return PartitionState(self.ranges + 1, self.messages + a.count, a.end, b.end, digest)

    @property
    def points(self) -> tuple[ResumePoint, ResumePoint]:
        """The points from which both topics are read."""
        return ResumePoint(self.ranges, self.a_offset), ResumePoint(self.ranges, self.b_offset)


class VerifyState:
    """The file of a verification; without a path nothing is kept."""

    def __init__(self, path: Path | None, pair: Mapping[str, Any]) -> None:
        """``pair`` names the two topics and the compared parts. Raises LocalError for the file of another pair."""
        self._path = path
        self._pair = dict(pair)
        self.partitions: dict[int, PartitionState] = {}
        if path is not None and path.exists():
            self._load(path)

    def _load(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except OSError as error:
            raise LocalError(f"{path}: cannot be read: {error.strerror}; name another file with --state") from None
        if not is_intact(data):
            raise LocalError(f"{path}: is damaged, or no state of lading verify; delete it, and the run begins anew")
        document = json.loads(data)
        pair = document.get("pair")
        if not isinstance(pair, dict):
            raise LocalError(f"{path}: is another document of Lading, no state of lading verify; name another file")
        if document.get("version") != VERSION or pair != self._pair:
            raise LocalError(
                f"{path}: is the state of another comparison ({pair.get('a')} with {pair.get('b')}, or other facts); "
                "name another file with --state"
            )
        for row in document["partitions"]:
            self.partitions[row["partition"]] = PartitionState(
                row["ranges"], row["messages"], row["a_offset"], row["b_offset"], bytes.fromhex(row["digest"])
            )

    def save(self, complete: Mapping[int, PartitionState]) -> None:
        """Store the states of partitions at borders of ranges. Raises LocalError if the file cannot be written."""
        if self._path is None:
            return
        rows = [
            {
                "partition": number, "ranges": one.ranges, "messages": one.messages, "a_offset": one.a_offset,
                "b_offset": one.b_offset, "digest": one.digest.hex(),
            }
            for number, one in sorted(complete.items())
        ]  # fmt: skip
        try:
            write_private_file(self._path, pack_document({"version": VERSION, "pair": self._pair, "partitions": rows}))
        except OSError as error:
            raise LocalError(
                f"{self._path}: the state cannot be written: {error.strerror}; name another file with --state"
            ) from None
