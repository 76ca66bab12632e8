"""Records of the topic ``__lading_catalog``: streams, the stream, id and settings of each topic, groups of Iggy, and
channels of NSQ.

The topic is compacted; the last record of a key counts. Gateways write to it without a lock, and the order of the log
decides: a record whose id another stream, or another topic of the stream, has by then does not count, and the gateway
that wrote it, which reads it back, writes the next one with another id.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ..broker.core.access.users import AccessTable
from ..broker.core.siblings import SiblingAddress
from ..model.errors import Refusal
from ..model.names import DEFAULT_STREAM, DEFAULT_STREAM_ID, flat_name

LOG: Final = logging.getLogger("lading.store")
CATALOG_TOPIC: Final = "__lading_catalog"
VERSION: Final = 1
STREAM: Final = "stream:"
TOPIC: Final = "topic:"
CHANNEL: Final = "channel:"
GATEWAY: Final = "gateway:"
GROUP: Final = "group:"
QUEUE: Final = "queue:"
ACCESS: Final = "access"
"""The key of the one record of users and rights."""
ID_MAX: Final = 0xFFFF_FFFF
PORT_MAX: Final = 0xFFFF
NUMBER_MAX: Final = (1 << 63) - 1
CLOCK_S: Final = 5.0
"""Clocks of gateways that are further apart are reported."""
GATEWAY_S: Final = 30.0
"""A gateway whose last record is older than this counts as ended."""


class LaterVersion(ValueError):
    """A record was written by a gateway of a later version."""


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
    """A topic's stream, id and settings. Whether it exists, and its partitions, come from the cluster itself."""

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


@dataclass(frozen=True, slots=True)
class ChannelRecord:
    """A channel of NSQ and an operator's settings for it. Its messages are those of its share group."""

    topic: str
    """The flat name."""
    channel: str
    created_us: int
    is_paused: bool = False
    topic_id: str = ""
    """The cluster's id of the topic that ``emptied`` is about, in hexadecimal."""
    emptied: tuple[int, ...] = ()
    """The end of each partition at the time at which the channel was emptied: messages before it are finished."""

    @property
    def key(self) -> str:
        """Its key: names of topics have no slash."""
        return f"{CHANNEL}{self.topic}/{self.channel}"

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "created_us": self.created_us, "is_paused": self.is_paused}
        return json.dumps({**document, "topic_id": self.topic_id, "emptied": self.emptied}).encode()


@dataclass(frozen=True, slots=True)
class QueueRecord:
    """The queue of a topic before its channels of NSQ: whether it is paused, and the beginning of the first."""

    topic: str
    """The flat name."""
    topic_id: str
    is_paused: bool = False
    emptied: tuple[int, ...] = ()
    """The ends at which the queue was emptied, as in ``ChannelRecord``."""

    @property
    def key(self) -> str:
        """Its key."""
        return QUEUE + self.topic

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "topic_id": self.topic_id, "is_paused": self.is_paused}
        return json.dumps({**document, "emptied": self.emptied}).encode()


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The record that a consumer group of Iggy exists, with its number. Members and positions are in a Kafka group."""

    topic: str
    """The flat name."""
    topic_id: str
    """The cluster's id of the topic, in hexadecimal: a topic that is created again has no groups of the earlier one."""
    name: str
    id: int
    created_us: int
    is_deleted: bool = False
    """Whether it was deleted, but the cluster may still have its members and positions."""

    @property
    def key(self) -> str:
        """Its key: names of topics have no slash."""
        return f"{GROUP}{self.topic}/{self.name}"

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "topic_id": self.topic_id, "id": self.id, "created_us": self.created_us}
        return json.dumps({**document, "is_deleted": self.is_deleted}).encode()


@dataclass(frozen=True, slots=True)
class GatewayRecord:
    """A gateway that runs, with its address for clients of NSQ. It repeats the record every few seconds."""

    id: str
    address: SiblingAddress
    written_us: int

    @property
    def key(self) -> str:
        """Its key."""
        return GATEWAY + self.id

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "written_us": self.written_us, "nsqd": list(self.address)}
        return json.dumps(document).encode()


@dataclass(frozen=True, slots=True)
class AccessTableRecord:
    """Users and rights of all gateways, as one document. Of two with the same number the first counts."""

    serial: int
    """The number of its change."""
    document: Mapping[str, Any]
    table: AccessTable = field(default_factory=AccessTable, compare=False)
    """The content of the document; parsed in the thread that reads the record, as 10,000 users take 0.1 s."""

    @property
    def key(self) -> str:
        """Its key."""
        return ACCESS

    def pack(self) -> bytes:
        """Return the value."""
        document = {"version": VERSION, "serial": self.serial, "document": dict(self.document)}
        return json.dumps(document).encode()


@dataclass(slots=True)
class CatalogRecords:
    """The streams, topics, groups and channels of the catalog topic's records, up to one offset."""

    streams: dict[str, StreamRecord] = field(default_factory=dict)
    topics: dict[str, TopicRecord] = field(default_factory=dict)
    """Topics by flat name."""
    channels: dict[str, dict[str, ChannelRecord]] = field(default_factory=dict)
    """Groups by the topic's flat name and their own; each inner dictionary is replaced as a whole."""
    queues: dict[str, QueueRecord] = field(default_factory=dict)
    """Queues by flat name of the topic."""
    groups: dict[str, dict[str, GroupRecord]] = field(default_factory=dict)
    """Groups, kept like ``channels``."""
    access: AccessTableRecord | None = None
    """Users and rights; None before the first change."""
    access_problem: str | None = None
    """Why the last record of users and rights cannot be used, or None."""
    later: set[str] = field(default_factory=set)
    """Keys whose records are of a later version: gateways of this one must not replace them."""
    gateways: dict[str, tuple[SiblingAddress, float]] = field(default_factory=dict)
    """Gateways by id, with this machine's time at which the last record of each was read."""
    _ahead: set[str] = field(default_factory=set)
    """Gateways whose clocks were reported as ahead."""
    _stream_of_id: dict[int, str] = field(default_factory=dict)
    _topics_of_stream: dict[str, dict[int, str]] = field(default_factory=dict)
    """Flat names by stream and id."""

    def copy(self) -> CatalogRecords:
        """Return a copy of the streams and topics, for a reader in another thread; no records are applied to it."""
        return CatalogRecords(
            dict(self.streams),
            dict(self.topics),
            dict(self.channels),
            dict(self.queues),
            dict(self.groups),
            self.access,
            gateways=dict(self.gateways),
        )

    def list_topic_ids(self, stream: str) -> Mapping[int, str]:
        """Return the flat name of each topic of a stream by its id."""
        return self._topics_of_stream.get(stream, {})

    def apply(self, key: bytes | None, value: bytes | None) -> None:
        """Apply the next record; one of another kind is logged and left out."""
        name = "" if key is None else key.decode(errors="replace")
        self.later.discard(name)
        try:
            if name.startswith(STREAM):
                self._apply_stream(name.removeprefix(STREAM), value)
            elif name.startswith(TOPIC):
                self._apply_topic(name.removeprefix(TOPIC), value)
            elif name.startswith(CHANNEL):
                self._apply_channel(name.removeprefix(CHANNEL), value)
            elif name.startswith(QUEUE):
                self._apply_queue(name.removeprefix(QUEUE), value)
            elif name.startswith(GROUP):
                self._apply_group(name.removeprefix(GROUP), value)
            elif name == ACCESS:
                self._apply_access(value)
            elif name.startswith(GATEWAY):
                self._apply_gateway(name.removeprefix(GATEWAY), value)
            else:
                raise ValueError("its key is unknown")
        except LaterVersion as error:
            self.later.add(name)
            LOG.warning(
                "topic %s: the record %r is left out: %s; update this gateway",
                CATALOG_TOPIC, name[:200], error,
            )  # fmt: skip
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
        record = StreamRecord(name, _read_number(document, "id", ID_MAX), _read_number(document, "created_us"))
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
            str(document["stream"]), str(document["topic"]), _read_number(document, "id", ID_MAX),
            _read_number(document, "created_us"),
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

    def _apply_channel(self, name: str, value: bytes | None) -> None:
        topic, slash, channel = name.partition("/")
        if not (topic and slash and channel):
            raise ValueError("its key is not TOPIC/CHANNEL")
        known = {one: record for one, record in self.channels.get(topic, {}).items() if one != channel}
        if value is not None:
            document = _parse(value)
            known[channel] = ChannelRecord(
                topic, channel, _read_number(document, "created_us"), bool(document.get("is_paused", False)),
                str(document.get("topic_id", "")), tuple(map(int, document.get("emptied", ()))),
            )  # fmt: skip
        self.channels[topic] = known

    def _apply_queue(self, topic: str, value: bytes | None) -> None:
        if value is None:
            self.queues.pop(topic, None)
            return
        document = _parse(value)
        self.queues[topic] = QueueRecord(
            topic,
            str(document["topic_id"]),
            bool(document["is_paused"]),
            tuple(_require_number("emptied", offset, NUMBER_MAX) for offset in document["emptied"]),
        )

    def _apply_group(self, name: str, value: bytes | None) -> None:
        topic, slash, group = name.partition("/")
        if not (topic and slash and group):
            raise ValueError("its key is not TOPIC/GROUP")
        others = {one: record for one, record in self.groups.get(topic, {}).items() if one != group}
        if value is not None:
            document = _parse(value)
            record = GroupRecord(
                topic, str(document["topic_id"]), group, _read_number(document, "id", ID_MAX),
                _read_number(document, "created_us"), bool(document["is_deleted"]),
            )  # fmt: skip
            if any((one.topic_id, one.id) == (record.topic_id, record.id) for one in others.values()):
                return
            others[group] = record
        if others:
            self.groups[topic] = others
        else:
            self.groups.pop(topic, None)

    def _apply_access(self, value: bytes | None) -> None:
        try:
            self._replace_access(value)
            self.access_problem = None
        except (ValueError, KeyError, TypeError) as error:
            self.access_problem = str(error)
            raise

    def _replace_access(self, value: bytes | None) -> None:
        if value is None:
            # deleting all users at once would let everybody in
            raise ValueError("users and rights are never deleted")
        parsed = _parse(value)
        document = dict(parsed["document"])
        try:
            table = AccessTable.parse(document)
        except (AttributeError, Refusal) as error:
            raise ValueError(f"users and rights: {error}") from None
        record = AccessTableRecord(_read_number(parsed, "serial"), document, table)
        if self.access is None or record.serial > self.access.serial:
            self.access = record

    def _apply_gateway(self, ident: str, value: bytes | None) -> None:
        if value is None:
            self.gateways.pop(ident, None)
            return
        document = _parse(value)
        hostname, host, tcp_port, http_port = document["nsqd"]
        ports = [_require_number("port", port, PORT_MAX) for port in (tcp_port, http_port)]
        address = SiblingAddress(str(hostname), str(host), *ports)
        is_old = time.time() - _read_number(document, "written_us") / 1e6 > GATEWAY_S
        # clocks may differ: the first record read of a gateway may look expired, later ones are read as they are
        # written
        ahead_s = _read_number(document, "written_us") / 1e6 - time.time()
        if ahead_s > CLOCK_S and ident not in self._ahead:
            # the gateway with the earlier clock sees this, however late it reads
            self._ahead.add(ident)
            LOG.warning(
                "the clock of the gateway at %s:%d is %.0f s ahead of this one's: delayed messages come early or late; "
                "set both clocks", address.host, address.tcp_port, ahead_s,
            )  # fmt: skip
        read_s = -math.inf if is_old and ident not in self.gateways else time.monotonic()
        self.gateways[ident] = address, read_s

    def list_gateways(self, own: str) -> list[SiblingAddress]:
        """Return all running gateways except one."""
        since_s = time.monotonic() - GATEWAY_S
        return [address for ident, (address, read_s) in self.gateways.items() if read_s >= since_s and ident != own]

    def stream_id(self, name: str) -> int | None:
        """Return the id of a stream, or None if it has no record."""
        if name == DEFAULT_STREAM:
            return DEFAULT_STREAM_ID
        record = self.streams.get(name)
        return None if record is None else record.id


def _read_number(document: Mapping[str, Any], name: str, number_max: int = NUMBER_MAX) -> int:
    return _require_number(name, document[name], number_max)


def _require_number(name: str, value: Any, number_max: int) -> int:
    """Return a number that fits the fields of Iggy's clients, and the files of a gateway."""
    if type(value) is not int or not 0 <= value <= number_max:
        raise ValueError(f"its {name} is not a number from 0 to {number_max}")
    return value


def _parse(value: bytes) -> dict[str, Any]:
    try:
        document = json.loads(value)
    except RecursionError:
        raise ValueError("its value is nested too deeply") from None
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is int and version > VERSION:
        raise LaterVersion(f"it is of version {version}, and this gateway knows {VERSION}")
    if version != VERSION:
        raise ValueError("its value has another version")
    assert isinstance(document, dict), "it has a version"
    return document
