"""Manifests: one per batch, which define the messages in the published files (docs/reference/spark.md)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from ...model.errors import CorruptLog
from ...model.ranges import merge_ranges as merge_intervals
from ..plan.offsets import OffsetsDocument, PartitionOffset
from ..plan.ranges import OffsetRange, merge_ranges
from ..storage.files import document_text, read_document, write_document
from ..storage.object_path import TablePath

VERSION = 1
HASH_NAME = "xxh3-128"
SUFFIX = ".json"
CHECKSUM = "checksum"

Intervals = list[tuple[int, int]]
Covered = dict[str, dict[str, Intervals]]
"""Topic id (``-`` and the name if the system has no ids) → partition → offset intervals that are published."""
Schemas = Mapping[str, Mapping[str, str]]
"""Table (relative to the state directory) → column → type."""
TABLE = "table"
"""The kind of a file that is published by renaming it into its table."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """One file of a batch: its table (relative to the state directory), staged and published name, what it holds.

    A file of another ``kind`` than table is never published: it stays staged until what it holds has been done, at
    ``target``.
    """

    table: str
    staged: str
    name: str
    rows: int
    size_bytes: int
    hash: str
    kind: str = TABLE
    target: str = ""
    partition: str = ""
    """The partition of the table that the rows belong to, such as ``carrier=UA``; empty for a table without."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON; without a partition as Lading wrote it before there were any."""
        held = {name: getattr(self, name) for name in DataFile.__slots__}
        return held if self.partition else {name: value for name, value in held.items() if name != "partition"}


@dataclass(frozen=True, slots=True)
class Manifest:
    """Record of what one batch published: its source ranges (whole, however tasks cut them), files and counts.

    ``covered`` and ``positions`` include all manifests before it, so that the last one alone says what is published and
    at which positions to continue.
    """

    pipeline: str
    number: int
    run: str
    ranges: Sequence[OffsetRange]
    files: Sequence[DataFile]
    counts: Mapping[str, int]
    schemas: Schemas
    covered: Covered
    positions: OffsetsDocument
    written_us: int = 0
    replaces: Sequence[OffsetRange] = ()
    """Ranges of messages whose rows the files take the place of, in every table; a manifest of a batch has none."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "version": VERSION,
            "pipeline": self.pipeline,
            "number": self.number,
            "run": self.run,
            "written_us": self.written_us,
            "counts": dict(self.counts),
            "ranges": [piece.document() for piece in self.ranges],
            "files": [file.document() for file in self.files],
            "schemas": {table: dict(columns) for table, columns in self.schemas.items()},
            "positions": self.positions,
            "covered": self.covered,
            **({"replaces": [piece.document() for piece in self.replaces]} if self.replaces else {}),
        }

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Manifest:
        """Return the manifest that ``document`` wrote. Raises KeyError or TypeError for anything else."""
        covered = {
            topic: {number: [(low, high) for low, high in intervals] for number, intervals in parts.items()}
            for topic, parts in document["covered"].items()
        }
        plain = ("pipeline", "number", "run", "counts", "schemas", "positions", "written_us")
        return cls(
            ranges=[OffsetRange.parse(row) for row in document["ranges"]],
            files=[DataFile(**row) for row in document["files"]],
            covered=covered,
            replaces=[OffsetRange.parse(row) for row in document.get("replaces", ())],
            **{name: document[name] for name in plain},
        )


@dataclass(frozen=True)
class Manifests:
    """The manifests of one pipeline, in number order: ``DIRECTORY/<pipeline>-<number>.json``."""

    directory: Path
    pipeline: str

    def path(self, number: int) -> Path:
        """Return the path of a manifest."""
        return self.directory / f"{self.pipeline}-{number:08d}{SUFFIX}"

    def numbers(self) -> list[int]:
        """Return the numbers of all manifests, ascending."""
        lead = f"{self.pipeline}-"
        names = [path.name[len(lead) : -len(SUFFIX)] for path in self.directory.glob(f"{lead}*{SUFFIX}")]
        return sorted(int(name) for name in names if name.isdigit())

    def read(self, number: int) -> Manifest:
        """Return one manifest. Raises CorruptLog if it cannot be read."""
        return read_manifest(self.path(number))

    def last(self) -> Manifest | None:
        """Return the newest manifest, or None before the first batch."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def write(self, manifest: Manifest) -> None:
        """Publish a manifest: from then on its batch counts as done, whatever happens."""
        write_manifest(self.path(manifest.number), manifest)


def write_manifest(path: TablePath, manifest: Manifest) -> None:
    """Write a manifest, with its checksum, in place of what was there; it is on disk when this returns."""
    write_document(path, _with_checksum(manifest))


def manifest_text(manifest: Manifest) -> str:
    """Return a manifest as it is written, with its checksum."""
    return document_text(_with_checksum(manifest))


def _with_checksum(manifest: Manifest) -> dict[str, Any]:
    document = manifest.document()
    return {**document, CHECKSUM: checksum_of(document)}


def read_manifest(path: TablePath) -> Manifest:
    """Return the manifest in a file. Raises CorruptLog if it cannot be read."""
    document = read_document(path)
    _require_whole(document, path)
    try:
        if document["version"] != VERSION:
            raise CorruptLog(f"{path} has version {document['version']}; this Lading reads {VERSION}")
        return Manifest.parse(document)
    except (KeyError, TypeError) as error:
        raise CorruptLog(f"{path} is not a valid manifest: {error!r}") from None


def checksum_of(document: Mapping[str, Any]) -> str:
    """Return the checksum of a document's members, whatever their order and spaces."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    return f"{HASH_NAME}:{xxhash.xxh3_128_hexdigest(text.encode())}"


def _require_whole(document: Any, path: TablePath) -> None:
    """Raise CorruptLog if the document has a checksum (older versions have none) that does not match."""
    if isinstance(document, dict) and CHECKSUM in document:
        held = {name: value for name, value in document.items() if name != CHECKSUM}
        if checksum_of(held) != document[CHECKSUM]:
            raise CorruptLog(f"manifest {path}: its checksum does not hold, it was changed or damaged; restore it")


def same_ranges(first: Sequence[OffsetRange], second: Sequence[OffsetRange]) -> bool:
    """Return whether two batches have the same messages, however tasks cut them and epochs have grown since."""
    return [_place_of(piece) for piece in merge_ranges(first)] == [_place_of(piece) for piece in merge_ranges(second)]


def overlap(covered: Covered, ranges: Sequence[OffsetRange]) -> OffsetRange | None:
    """Return the first range with messages already published. A range resumed after a loss is new, however low."""
    for piece in ranges:
        if not piece.resumed and any(
            low < piece.end and piece.start < high
            for low, high in covered.get(_log(piece), {}).get(str(piece.partition), ())
        ):
            return piece
    return None


def cover(covered: Covered, ranges: Sequence[OffsetRange]) -> Covered:
    """Return ``covered`` with these ranges added; adjacent intervals become one."""
    made = {topic: dict(parts) for topic, parts in covered.items()}
    for piece in ranges:
        parts = made.setdefault(_log(piece), {})
        intervals = parts.get(str(piece.partition), [])
        if piece.resumed:
            # what a recovery cut off was published under offsets that others have now
            intervals = [(low, min(high, piece.start)) for low, high in intervals if low < piece.start]
        parts[str(piece.partition)] = merge_intervals([*intervals, (piece.start, piece.end)])
    return made


def advance(positions: OffsetsDocument, ranges: Sequence[OffsetRange]) -> OffsetsDocument:
    """Return ``positions`` after these ranges."""
    made = {topic: dict(parts) for topic, parts in positions.items()}
    for piece in merge_ranges(ranges):
        mark = PartitionOffset(piece.topic_id, piece.epoch, piece.end)
        made.setdefault(piece.topic, {})[str(piece.partition)] = mark.document()
    return made


def _log(piece: OffsetRange) -> str:
    return piece.topic_id or f"-{piece.topic}"


def _place_of(piece: OffsetRange) -> tuple[str, str | None, int, int, int]:
    return piece.topic, piece.topic_id, piece.partition, piece.start, piece.end
