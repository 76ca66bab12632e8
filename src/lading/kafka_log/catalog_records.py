"""Records of the topic ``__lading_catalog``: streams, and the stream, id and settings of each topic (docs, its page).

The topic is compacted; the last record of a key counts. Gateways write to it without a lock, and the order of the log
decides: a record whose id another stream, or another topic of the stream, has by then does not count, and the gateway
that wrote it, which reads it back, writes the next one with another id.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID, flat_name

LOG: Final = logging.getLogger("lading.store")
CATALOG_TOPIC: Final = "__lading_catalog"
VERSION: Final = 1
STREAM: Final = "stream:"
TOPIC: Final = "topic:"


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """A stream of Iggy."""

    name: str
    id: int
    created_us: int

    @property
    def key(self) -> str:
        """Its key."""
        return STREAM + self.name

    def pack(self) -> bytes:
        """Return the value."""
        return json.dumps({"version": VERSION, "id": self.id, "created_us": self.created_us}).encode()


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A topic: which one it is to Iggy. The cluster says whether it exists, and how many partitions it has."""

    stream: str
    topic: str
    id: int
    created_us: int
    settings: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The flat name, which is that of the Kafka topic."""
        return flat_name(self.stream, self.topic)

    @property
    def key(self) -> str:
        """Its key."""
        return TOPIC + self.name

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "stream": self.stream, "topic": self.topic, "id": self.id}
        return json.dumps({**document, "created_us": self.created_us, "settings": dict(self.settings)}).encode()


@dataclass(slots=True)
class CatalogRecords:
    """The streams and topics of the catalog topic's records, up to one offset."""

    streams: dict[str, StreamRecord] = field(default_factory=dict)
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    """By flat name."""

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Take the next record; one that is not of this kind is logged and left out."""
        name = "" if key is None else key.decode(errors="replace")
        try:
            if name.startswith(STREAM):
                self._apply_stream(name.removeprefix(STREAM), value)
            elif name.startswith(TOPIC):
                self._apply_topic(name.removeprefix(TOPIC), value)
            else:
                raise ValueError("its key is unknown")
        except (ValueError, KeyError, TypeError) as error:
            LOG.warning(
                "topic %s: a record with key %r is not of this version (%s) and is left out; is another program "
                "writing there?", CATALOG_TOPIC, name[:200], error,
            )  # fmt: skip

    def _apply_stream(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.streams.pop(name, None)
            return
        document = _parse(value)
        record = StreamRecord(name, int(document["id"]), int(document["created_us"]))
        if record.id != DEFAULT_STREAM_ID and all(
            one.id != record.id or one.name == name for one in self.streams.values()
        ):
            self.streams[name] = record

    def _apply_topic(self, name: str, value: bytes | None) -> None:
        if value is None:
            self.topics.pop(name, None)
            return
        document = _parse(value)
        record = TopicRecord(
            str(document["stream"]), str(document["topic"]), int(document["id"]), int(document["created_us"]),
            dict(document["settings"]),
        )  # fmt: skip
        if record.name != name:
            raise ValueError(f"its key is not the name {record.name!r}")
        others = (one for one in self.topics.values() if one.stream == record.stream and one.name != name)
        if all(one.id != record.id for one in others):
            self.topics[name] = record

    def stream_id(self, name: str) -> int | None:
        """Return the id of a stream, or None if it has no record."""
        if name == DEFAULT_STREAM:
            return DEFAULT_STREAM_ID
        record = self.streams.get(name)
        return None if record is None else record.id


def _parse(value: bytes) -> dict[str, Any]:
    document = json.loads(value)
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise ValueError("its value has another version")
    return document
