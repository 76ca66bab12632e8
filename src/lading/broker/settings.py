"""What of the broker can be set; ``serve`` fills it from the settings file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, Self

from ..model.errors import SettingError

Durability = Literal["fsync", "os"]
"""``fsync``: acknowledged is on disk. ``os``: acknowledged is in the page cache; a power cut may take it."""


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Limits and times of one broker. Sizes in bytes, times in microseconds unless the name says otherwise."""

    durability: Durability = "fsync"
    segment_bytes: int = 256 << 20
    retention_age_us: int | None = None
    """Messages older than this go, a whole segment at a time, where the topic says nothing else."""
    retention_bytes: int | None = None
    """Per partition, where the topic says nothing else."""
    retention_check_us: int = 60_000_000
    partitions_per_topic_max: int = 1_000
    """The real Iggy server takes 100,000; each partition here is a directory with open files."""
    unsynced_bytes_max: int = 64 << 20
    """Above this the broker is congested: endpoints stop reading from sockets until the disk has caught up."""
    position_flush_us: int = 100_000
    """Positions are written together, at most this long after they were stored."""
    session_timeout_us: int = 30_000_000
    """A native group member that sends no heartbeat for this long has left."""
    transaction_timeout_us: int = 3_600_000_000
    """A transaction that is open for longer is aborted, unless it was begun with its own time."""
    transaction_memory_us: int = 30 * 86_400_000_000
    """Commit keys and settled transactions are remembered at least this long."""
    writer_window: int = 64
    """Blocks per writer whose repetition is answered with the offset they got."""
    writers_per_partition_max: int = 10_000
    """Writers whose sequence is remembered, the least recently used goes first."""


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What can be set for one topic; None means the broker's setting."""

    retention_age_us: int | None = None
    retention_bytes: int | None = None
    hide_states: bool = False
    """Whether Iggy polls leave out messages that are not available, instead of showing them with their state."""

    def document(self) -> dict[str, Any]:
        """As JSON, without what is not set."""
        return {name: value for name, value in asdict(self).items() if value not in (None, False)}

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Self:
        """The settings of a JSON document; SettingError names a key that is none or has the wrong type."""
        known = {field.name: bool if field.name == "hide_states" else int for field in fields(cls)}
        for name, value in document.items():
            if name not in known:
                raise SettingError(f"unknown topic setting {name!r}; there are {', '.join(known)}")
            if type(value) is not known[name] or (known[name] is int and value < 1):
                raise SettingError(f"topic setting {name} takes a {known[name].__name__} from 1, not {value!r}")
        return cls(**document)
