"""The topics of the cluster and its topic ``__lading_catalog``, read and changed by threads, not the event loop."""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from ..dialects.kafka import errors
from ..dialects.kafka.commands import EARLIEST, LATEST
from ..model.errors import LadingError, LocalError, Reason, Refusal
from ..model.names import DEFAULT_STREAM
from ..model.scan_request import ScanRequest
from ..transports.iggy.addresses import find_free_id
from ..transports.kafka.cluster import kafka_error
from ..transports.kafka.consumer_member import describe_members, require_consumer_groups
from ..transports.kafka.groups import delete_group
from ..transports.kafka.offsets import list_offsets
from ..transports.kafka.share import require_share_groups, set_group_configs
from ..transports.kafka.transport import TOPICS_WAIT
from .catalog_records import (
    ACCESS,
    CATALOG_TOPIC,
    GATEWAY,
    TOPIC,
    AccessTableRecord,
    CatalogRecords,
    ChannelRecord,
    GatewayRecord,
    GroupRecord,
    QueueRecord,
    StreamRecord,
    TopicRecord,
)
from .state_records import STATES_TOPIC

if TYPE_CHECKING:
    from ..transports.kafka.transport import KafkaTransport

LOG: Final = logging.getLogger("lading.store")
_TOPIC_RESOURCE: Final = 2
_COUNT_BYTES: Final = 4
LEAVE_LOOK_S: Final = 0.2
LEAVE_LOOKS_MAX: Final = 25
"""Limit of the checks whether the members of a deleted group have left: gateways learn of the deletion within a second
or two.
"""
NameGroup = Callable[[str], str]
"""Returns the Kafka group of a group of Iggy."""


CATALOG_CONFIGS: Final = {"cleanup.policy": "compact", "segment.ms": "3600000"}
"""Configs of the catalog topic. Segments last an hour, since only closed ones are compacted, and each gateway writes a
record every few seconds.
"""


class FoundTopic(NamedTuple):
    """A topic of the cluster, with (first offset, end offset) of each partition."""

    name: str
    uuid: bytes
    partitions: tuple[tuple[int, int], ...]


class ClusterView(NamedTuple):
    """The cluster's topics by name, and the records of the catalog topic, at one time."""

    topics: Mapping[str, FoundTopic]
    records: CatalogRecords


class ClusterTopics:
    """The topics of one cluster. For any thread but the event loop; a lock admits one at a time."""

    def __init__(self, transport: KafkaTransport) -> None:
        self._transport = transport
        self._cluster = transport.cluster
        self._lock = Lock()
        self._records = CatalogRecords()
        self._read_to = 0

    def open(self) -> None:
        """Create the topics of the catalog and of states if missing. Raises LocalError if one is not compacted."""
        for topic in (CATALOG_TOPIC, STATES_TOPIC):
            self._open_topic(topic)

    def _open_topic(self, topic: str) -> None:
        with self._lock:
            try:
                self._create(topic, 1, CATALOG_CONFIGS)
            except Refusal as refusal:
                if refusal.reason is not Reason.TOPIC_NAME_EXISTS:
                    raise
            wanted = {"resource_type": _TOPIC_RESOURCE, "resource_name": topic}
            answer = self._cluster.ask(
                "DescribeConfigs", resources=[{**wanted, "configuration_keys": ["cleanup.policy"]}],
                include_synonyms=False, include_documentation=False,
            )  # fmt: skip
            values = [one.value for row in answer.results for one in row.configs if one.name == "cleanup.policy"]
            if values and "compact" not in values[0].split(","):
                raise LocalError(
                    f"topic {topic!r} of {self._transport.url}: its cleanup.policy is {values[0]!r}, so that "
                    "streams, topics and states would be deleted with time; set it to compact"
                )

    def look(self, known: Mapping[str, bytes]) -> ClusterView:
        """Return the cluster as it is now; offsets are only requested for topics that differ from ``known``.

        A gateway that finds topics without a record writes one for each, so that all of them show the same ids.
        """
        with self._lock:
            self._read_catalog()
            self._restore_access()
            rows = {
                row.name: row
                for row in self._cluster.metadata(None).topics
                if not row.is_internal
                and not row.error_code
                and not row.name.startswith("__")
                # a new topic without leaders waits for a later check, and does not delay others
                and (_is_same(row, known) or _has_leaders(row))
            }
            self._write_missing(rows)
            new = [row for row in rows.values() if known.get(row.name) != _identify(row) and _has_leaders(row)]
            places = [(row.name, part.partition_index) for row in new for part in row.partitions]
            first = list_offsets(self._cluster, places, EARLIEST)
            end = list_offsets(self._cluster, places, LATEST)
            topics = {}
            for row in rows.values():
                at = (row.name, 0)
                # added partitions without leaders wait as a new topic does
                count = len(row.partitions) if at in first else _count_partitions(known[row.name])
                ends = tuple(
                    (first[row.name, one].offset, end[row.name, one].offset) if at in first else (0, 0)
                    for one in range(count)
                )
                topics[row.name] = FoundTopic(row.name, row.topic_id.bytes, ends)
            return ClusterView(topics, self._records.copy())

    def _restore_access(self) -> None:
        """Write users and rights again if another program has deleted or replaced them: the lock is held.

        Compaction keeps the last record alone, with which no gateway could start.
        """
        access = self._records.access
        if access is not None and self._records.access_problem is not None and ACCESS not in self._records.later:
            LOG.warning("topic %s: users and rights were replaced; they are written again", CATALOG_TOPIC)
            self._write(access.key, replace(access, serial=access.serial + 1).pack())
            self._read_catalog()

    def put_stream(self, name: str, ident: int | None, now_us: int) -> None:
        """Create a stream; without an id it takes one that is free. Refusal if the name or the id is taken."""
        with self._lock:
            self._read_catalog()
            while True:
                if name in self._records.streams:
                    raise Refusal(
                        Reason.STREAM_NAME_EXISTS, f"stream {name!r} already exists; use it, or choose another name"
                    )
                taken = {one.id for one in self._records.streams.values()}
                if ident in taken:
                    raise Refusal(Reason.STREAM_ID_EXISTS, f"stream id {ident} already exists; choose another id")
                wanted = StreamRecord(name, find_free_id(taken) if ident is None else ident, now_us)
                self._write(wanted.key, wanted.pack())
                self._read_catalog()
                if self._records.streams.get(name) == wanted:
                    return

    def delete_stream(self, name: str) -> None:
        """Delete a stream that has no topics."""
        with self._lock:
            self._write(StreamRecord(name, 0, 0).key, None)

    def put_topic(
        self, make: Callable[[int], TopicRecord], ident: int | None, partitions_count: int, configs: Mapping[str, str]
    ) -> None:
        """Create a topic, with its record first: a record without a topic is harmless, and counts when it is created.

        ``make`` returns the record with an id; without ``ident`` that is a free one. Refusal if the name is taken.
        """
        with self._lock:
            self._read_catalog()
            name = make(1).name
            (row,) = self._cluster.metadata([name]).topics
            if not row.error_code:
                raise Refusal(
                    Reason.TOPIC_NAME_EXISTS, f"topic {name!r} already exists in the cluster; choose another name"
                )
            self._write_topic(make, ident)
            self._create(name, partitions_count, configs)

    def delete_topic(self, name: str) -> None:
        """Delete a topic with its messages, then its record."""
        with self._lock:
            self._transport.delete_topic(name)
            self._write(_make_record(name, 0).key, None)
            for channel in self._records.channels.get(name, {}).values():
                self._write(channel.key, None)
            if (queue := self._records.queues.get(name)) is not None:
                self._write(queue.key, None)
            # the cluster forgets their positions with the topic
            for group in self._records.groups.get(name, {}).values():
                self._write(group.key, None)

    def put_channel(
        self, topic: str, name: str, group: str, now_us: int, find_configs: Callable[[bool], Mapping[str, str]]
    ) -> None:
        """Create a channel: configs of its share group first, then its record.

        ``find_configs`` is called with whether it is the topic's first channel. Raises Refusal if the cluster has no
        share groups.
        """
        with self._lock:
            self._read_catalog()
            names = self._records.channels.get(topic, {})
            if name not in names:
                require_share_groups(self._cluster, group)
                set_group_configs(self._cluster, group, find_configs(not names))
                record = ChannelRecord(topic, name, now_us)
                self._write(record.key, record.pack())
                self._read_catalog()

    def change_channel(self, topic: str, name: str, change: Callable[[ChannelRecord], ChannelRecord]) -> None:
        """Change the settings of a channel; does nothing if it was deleted meanwhile."""
        with self._lock:
            self._read_catalog()
            record = self._records.channels.get(topic, {}).get(name)
            if record is not None:
                self._write(record.key, change(record).pack())

    def change_queue(self, topic: str, topic_id: str, change: Callable[[QueueRecord], QueueRecord]) -> None:
        """Change the settings of a topic's queue."""
        with self._lock:
            self._read_catalog()
            record = self._records.queues.get(topic)
            if record is None or record.topic_id != topic_id:
                record = QueueRecord(topic, topic_id)
            self._write(record.key, change(record).pack())

    def delete_channel(self, topic: str, name: str) -> None:
        """Mark a channel as deleted, so that its readers leave its share group."""
        with self._lock:
            self._write(ChannelRecord(topic, name, 0).key, None)

    def finish_channel_deletion(self, topic: str, name: str, group: str) -> None:
        """Delete the share group of a deleted channel when its members have left. Raises Refusal if they do
        not leave.
        """
        for _ in range(LEAVE_LOOKS_MAX):
            with self._lock:
                self._read_catalog()
                if name in self._records.channels.get(topic, {}) or self._try_to_delete(group):
                    return
            time.sleep(LEAVE_LOOK_S)
        raise Refusal(
            Reason.GROUP_NOT_EMPTY,
            f"channel {name!r} of topic {topic!r}: it is deleted, but the cluster still has a reader of a gateway that "
            f"ended; a new channel of that name goes on with its messages unless group {group!r} is deleted in Kafka",
        )

    def list_ends(self, topic: str, partitions_count: int) -> tuple[int, ...]:
        """Return the end of each partition now."""
        with self._lock:
            places = [(topic, number) for number in range(partitions_count)]
            found = list_offsets(self._cluster, places, LATEST)
            return tuple(found[place].offset for place in places)

    def put_group(
        self, topic: str, topic_id: bytes, ident: int | None, name: str | None, now_us: int, name_in_kafka: NameGroup
    ) -> None:
        """Create a group of Iggy; without an id it takes the lowest that is free, without a name it is called by it.

        Refusal if name or id are taken, or the cluster still has members of a deleted group of that name.
        """
        with self._lock:
            self._read_catalog()
            while True:
                records = self._find_groups(topic, topic_id)
                taken = {one.id for one in records.values()}
                free = find_free_id(taken) if ident is None else ident
                wanted = GroupRecord(topic, topic_id.hex(), name or str(free), free, now_us)
                before = records.get(wanted.name)
                has_name = before is not None and not before.is_deleted
                if has_name or any(one.id == free and one is not before for one in records.values()):
                    raise Refusal(
                        Reason.GROUP_EXISTS,
                        f"group {wanted.name!r} already exists in topic {topic!r}; choose another name",
                    )
                group = name_in_kafka(wanted.name)
                require_consumer_groups(self._cluster, group)
                if before is not None and not self._try_to_delete(group):
                    raise Refusal(
                        Reason.GROUP_NOT_EMPTY,
                        f"group {wanted.name!r} of topic {topic!r}: it was deleted, and the cluster still has members "
                        "of a gateway that ended; create it again a minute later",
                    )
                self._write(wanted.key, wanted.pack())
                self._read_catalog()
                if self._find_groups(topic, topic_id).get(wanted.name) == wanted:
                    return

    def mark_group_deleted(self, topic: str, topic_id: bytes, name: str) -> None:
        """Mark a group of Iggy as deleted, so that its members leave."""
        with self._lock:
            self._read_catalog()
            record = self._find_groups(topic, topic_id).get(name)
            if record is not None:
                self._write(record.key, replace(record, is_deleted=True).pack())

    def finish_group_deletion(self, topic: str, topic_id: bytes, name: str, group: str) -> None:
        """Delete the Kafka group of a deleted group, with its positions, when its members have left.

        If that takes too long, it is left to a later group of that name.
        """
        for _ in range(LEAVE_LOOKS_MAX):
            with self._lock:
                self._read_catalog()
                record = self._find_groups(topic, topic_id).get(name)
                if record is None or not record.is_deleted:
                    return
                if self._try_to_delete(group):
                    self._write(record.key, None)
                    self._read_catalog()
                    return
            time.sleep(LEAVE_LOOK_S)

    def _find_groups(self, topic: str, topic_id: bytes) -> dict[str, GroupRecord]:
        records = self._records.groups.get(topic, {})
        return {name: record for name, record in records.items() if record.topic_id == topic_id.hex()}

    def _try_to_delete(self, group: str) -> bool:
        """Delete a Kafka group; return False if it has members."""
        try:
            delete_group(self._cluster, group)
        except Refusal as refusal:
            return refusal.reason is Reason.GROUP_NOT_FOUND
        return True

    def describe_members(self, group: str) -> Mapping[str, list[int]]:
        """Return the partitions of each member of a Kafka group by its id."""
        with self._lock:
            return describe_members(self._cluster, group)

    def read_access(self) -> AccessTableRecord | None:
        """Return users and rights as they are now. Raises LocalError if they cannot be read: everybody would have all
        rights.
        """
        with self._lock:
            self._read_catalog()
            if self._records.access is None and self._records.access_problem is not None:
                raise LocalError(
                    f"topic {CATALOG_TOPIC!r} of {self._transport.url}: its record of users and rights cannot be used "
                    f"({self._records.access_problem}); start a gateway of the version that wrote it, or write it again"
                )
            return self._records.access

    def put_access(self, record: AccessTableRecord) -> None:
        """Replace users and rights. Refusal if another gateway has changed them since."""
        with self._lock:
            self._read_catalog()
            before = 0 if self._records.access is None else self._records.access.serial
            if before == record.serial - 1:
                self._write(record.key, record.pack())
                self._read_catalog()
                first = self._records.access
                if first == record:
                    return
                if first is not None:
                    # compaction keeps the last record of a key, so the last one has to be valid
                    self._write(first.key, replace(first, serial=first.serial + 1).pack())
                    self._read_catalog()
        raise Refusal(
            Reason.STOPPING, "users and rights were changed through another gateway a moment ago; look, and try again"
        )

    def add_partitions(self, name: str, count: int) -> None:
        """Increase the partitions of a topic to ``count``."""
        with self._lock:
            answer = self._cluster.at_controller(
                "CreatePartitions", topics=[{"name": name, "count": count, "assignments": None}],
                validate_only=False, **TOPICS_WAIT,
            )  # fmt: skip
            for row in answer.results:
                if row.error_code:
                    raise kafka_error(f"topic {name!r} cannot grow", row.error_code, row.error_message)

    def put_gateway(self, record: GatewayRecord) -> None:
        """Write the record of a running gateway."""
        with self._lock:
            self._write(record.key, record.pack())

    def delete_gateway(self, ident: str) -> None:
        """Delete the record of a gateway that has ended."""
        with self._lock:
            self._write(GATEWAY + ident, None)

    # -- implementation; the lock is held

    def _create(self, name: str, partitions_count: int, configs: Mapping[str, str]) -> None:
        rows = [{"name": key, "value": value} for key, value in configs.items()]
        wanted = {"name": name, "num_partitions": partitions_count, "replication_factor": -1, "configs": rows}
        (row,) = self._cluster.at_controller("CreateTopics", topics=[wanted], **TOPICS_WAIT).topics
        if row.error_code:
            raise kafka_error(f"topic {name!r} cannot be created", row.error_code, row.error_message)
        self._cluster.retry(lambda: self._require_leaders(name))

    def _require_leaders(self, name: str) -> None:
        """Raise Retriable while a topic is so new that brokers do not know it yet."""
        from ..transports.kafka.cluster import raise_for_code

        (row,) = self._cluster.metadata([name]).topics
        leaderless = not row.error_code and any(part.leader_id < 0 for part in row.partitions)
        raise_for_code(f"topic {name!r}", errors.LEADER_NOT_AVAILABLE if leaderless else row.error_code)

    def _write_topic(self, make: Callable[[int], TopicRecord], ident: int | None = None) -> None:
        """Write the record of a topic; with another id as long as an earlier record has the same id."""
        while True:
            draft = make(1)
            taken = {
                one: name for one, name in self._records.list_topic_ids(draft.stream).items() if name != draft.name
            }
            if ident in taken:
                topic = self._records.topics[taken[ident]].topic
                raise Refusal(
                    Reason.TOPIC_ID_EXISTS,
                    f"topic id {ident} of stream {draft.stream!r} is {topic!r} already; choose another",
                )
            wanted = make(find_free_id(taken) if ident is None else ident)
            self._write(wanted.key, wanted.pack())
            self._read_catalog()
            if self._records.topics.get(wanted.name) == wanted:
                return

    def _write_missing(self, names: Iterable[str]) -> None:
        """Write records of topics that a Kafka program created, together; again while other records had
        their ids first.
        """
        known = self._records
        while missing := sorted(name for name in names if name not in known.topics and TOPIC + name not in known.later):
            taken = self._records.list_topic_ids(DEFAULT_STREAM)
            free = (ident for ident in itertools.count(1) if ident not in taken)
            records = [_make_record(name, next(free)) for name in missing]
            self._write_all([record.key for record in records], [record.pack() for record in records])
            self._read_catalog()

    def _write(self, key: str, value: bytes | None) -> None:
        self._write_all([key], [value])

    def _write_all(self, keys: Sequence[str], values: Sequence[bytes | None]) -> None:
        for key in keys:
            if key in self._records.later:
                raise Refusal(
                    Reason.FEATURE_UNAVAILABLE,
                    f"record {key!r} of topic {CATALOG_TOPIC!r} is of a later version than this gateway, which must "
                    "not replace it; update this gateway, or use another one",
                )
        columns = {
            "key": pa.array([key.encode() for key in keys], pa.binary()),
            "payload": pa.array(values, pa.binary()),
        }
        self._transport.send(CATALOG_TOPIC, 0, pa.RecordBatch.from_pydict(columns))

    def _read_catalog(self) -> None:
        """Apply the records up to the end of the topic."""
        end = list_offsets(self._cluster, [(CATALOG_TOPIC, 0)], LATEST)[CATALOG_TOPIC, 0].offset
        request = ScanRequest(fields=frozenset({"key", "payload"}))
        while self._read_to < end:
            found = self._transport.fetch(CATALOG_TOPIC, 0, self._read_to)
            if found.end_offset <= self._read_to:
                raise LadingError(f"topic {CATALOG_TOPIC!r}: offset {self._read_to} cannot be read; check the cluster")
            for part in found.decode(request._replace(first=self._read_to)):
                keys, values = part.columns["key"].to_pylist(), part.columns["payload"].to_pylist()
                for key, value in zip(keys, values, strict=True):
                    self._records.apply(key, value)
            self._read_to = found.end_offset


def _make_record(name: str, ident: int) -> TopicRecord:
    """Return the record of a topic that a program of Kafka created."""
    return TopicRecord(DEFAULT_STREAM, name, ident, 0, {})


def _is_same(row: Any, known: Mapping[str, bytes]) -> bool:
    """Return whether a topic is known and was not created again; it may have grown."""
    uuid: bytes = row.topic_id.bytes
    return known.get(row.name, b"")[: len(uuid)] == uuid


def _has_leaders(row: Any) -> bool:
    return all(part.leader_id >= 0 for part in row.partitions)


def _count_partitions(identity: bytes) -> int:
    return int.from_bytes(identity[-_COUNT_BYTES:])


def _identify(row: object) -> bytes:
    """Return bytes that change if a topic is created again, or grows."""
    return identify(row.topic_id.bytes, len(row.partitions))  # type: ignore[attr-defined]


def identify(uuid: bytes, partitions_count: int) -> bytes:
    """Return the bytes of ``_identify`` for a topic that a gateway has."""
    return uuid + partitions_count.to_bytes(_COUNT_BYTES)
