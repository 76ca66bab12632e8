"""Who sees what: one table that every read path obeys (DESIGN 5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class ReaderKind(Enum):
    """The kinds of readers that see different things."""

    IGGY = "iggy"
    IGGY_HIDING = "iggy_hiding"
    """An Iggy poll of a topic whose settings hide states."""
    KAFKA_COMMITTED = "kafka_committed"
    KAFKA_UNCOMMITTED = "kafka_uncommitted"
    NSQ = "nsq"
    NATIVE = "native"
    """Raw chunks, directories, ``states=all``: the reader is told the states and decides."""
    NATIVE_AVAILABLE = "native_available"


class Aborted(Enum):
    """What becomes of aborted and control records."""

    SKIPPED = "skipped"
    LISTED = "listed"
    """The reader gets them with their list, as Kafka does."""


class Hidden(Enum):
    """What becomes of messages that are not available."""

    SHOWN = "shown with their state"
    HIDDEN = "hidden"


@dataclass(frozen=True, slots=True)
class Sight:
    """One row: what a reader sees. Nobody sees what is not synced."""

    open_transactions: bool
    aborted: Aborted
    states: Hidden


VISIBILITY: Final[Mapping[ReaderKind, Sight]] = MappingProxyType(
    {
        ReaderKind.IGGY: Sight(False, Aborted.SKIPPED, Hidden.SHOWN),
        ReaderKind.IGGY_HIDING: Sight(False, Aborted.SKIPPED, Hidden.HIDDEN),
        ReaderKind.KAFKA_COMMITTED: Sight(False, Aborted.LISTED, Hidden.HIDDEN),
        ReaderKind.KAFKA_UNCOMMITTED: Sight(True, Aborted.LISTED, Hidden.HIDDEN),
        ReaderKind.NSQ: Sight(False, Aborted.SKIPPED, Hidden.HIDDEN),
        ReaderKind.NATIVE: Sight(False, Aborted.SKIPPED, Hidden.SHOWN),
        ReaderKind.NATIVE_AVAILABLE: Sight(False, Aborted.SKIPPED, Hidden.HIDDEN),
    }
)
