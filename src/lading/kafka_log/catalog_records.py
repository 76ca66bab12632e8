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
        """The key of the record."""
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
        """The key of the record."""
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
    _stream_of_id: dict[int, str] = field(default_factory=dict)
    _topics_of_stream: dict[str, dict[int, str]] = field(default_factory=dict)
    """Flat names by stream and id."""

    def copy(self) -> CatalogRecords:
        """Return the same streams and topics, for a reader in another thread; it takes no more records."""
        return CatalogRecords(dict(self.streams), dict(self.topics))

    def list_topic_ids(self, stream: str) -> Mapping[int, str]:
        """Return the flat name of each topic of a stream by its id."""
        return self._topics_of_stream.get(stream, {})

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
            self._forget_stream(name)
            return
        document = _parse(value)
        record = StreamRecord(name, int(document["id"]), int(document["created_us"]))
        if record.id != DEFAULT_STREAM_ID and self._stream_of_id.get(record.id, name) == name:
            self._forget_stream(name)
            self.streams[name] = record
            self._stream_of_id[record.id] = name

    def _forget_stream(self, name: str) -> None:
        if (record := self.streams.pop(name, None)) is not None:
            del self._stream_of_id[record.id]

    def _apply_topic(self, name: str, value: bytes | None) -> None:
        if value is None:
            self._forget_topic(name)
            return
        document = _parse(value)
        record = TopicRecord(
            str(document["stream"]), str(document["topic"]), int(document["id"]), int(document["created_us"]),
            dict(document["settings"]),
        )  # fmt: skip
        if record.name != name:
            raise ValueError(f"its key is not the name {record.name!r}")
        if self._topics_of_stream.get(record.stream, {}).get(record.id, name) == name:
            self._forget_topic(name)
            self.topics[name] = record
            self._topics_of_stream.setdefault(record.stream, {})[record.id] = name

    def _forget_topic(self, name: str) -> None:
        if (record := self.topics.pop(name, None)) is not None:
            of_stream = self._topics_of_stream[record.stream]
            del of_stream[record.id]
            if not of_stream:
                del self._topics_of_stream[record.stream]

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
