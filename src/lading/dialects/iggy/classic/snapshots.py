"""Snapshots of a server for its operators: the parts that a client asks for, and the format of the archive.

Crates since 0.6.50 ask for them, in every generation by the same bytes (docs/reference/protocols/iggy-current.md#b3).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Final

from ....model.errors import MalformedMessage, Reason, Refusal
from .primitives import U8, Codec, map_values, read_bytes


class SnapshotCompression(IntEnum):
    """How the archive is packed."""

    STORED = 1
    DEFLATED = 2
    BZIP2 = 3
    ZSTD = 4
    LZMA = 5
    XZ = 6


class SnapshotPart(IntEnum):
    """A file of the archive: its name is this one in lower case and ``.txt``."""

    FILESYSTEM_OVERVIEW = 1
    PROCESS_LIST = 2
    RESOURCE_USAGE = 3
    TEST = 4
    SERVER_LOGS = 5
    SERVER_CONFIG = 6
    ALL = 100
    """Stands for all of them but TEST, and alone."""


_ALL: Final = tuple(part for part in SnapshotPart if part not in (SnapshotPart.TEST, SnapshotPart.ALL))


def choose_parts(parts: Sequence[SnapshotPart]) -> tuple[SnapshotPart, ...]:
    """Return which files an archive has, each once. Raises Refusal if ALL has others beside it."""
    if SnapshotPart.ALL not in parts:
        return tuple(dict.fromkeys(parts))
    if len(parts) > 1:
        raise Refusal(Reason.UNKNOWN_COMMAND, "a snapshot of everything names other parts; ask for all alone")
    return _ALL


def _to_compression(code: int) -> SnapshotCompression:
    try:
        return SnapshotCompression(code)
    except ValueError:
        raise MalformedMessage(f"a snapshot has no compression {code}", reason=Reason.UNKNOWN_COMMAND) from None


def _to_parts(raw: bytes) -> tuple[SnapshotPart, ...]:
    try:
        return tuple(map(SnapshotPart, raw))
    except ValueError as error:
        raise MalformedMessage(f"a snapshot has no such part: {error}", reason=Reason.UNKNOWN_COMMAND) from None


def _read_counted(data: memoryview, at: int) -> tuple[bytes, int]:
    count, at = U8.read(data, at)
    return read_bytes(data, at, count, "the parts of a snapshot")


COMPRESSION: Codec[SnapshotCompression] = map_values(U8, _to_compression, int)
"""``[compression u8]``."""
PARTS: Codec[tuple[SnapshotPart, ...]] = map_values(
    Codec(_read_counted, lambda raw: bytes((len(raw),)) + raw), _to_parts, bytes
)
"""``[n u8][part u8]*``."""
