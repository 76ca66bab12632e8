"""Operations of the current Iggy, except sends and polls (iggy-current.md B3, B6): one method for each.

A method is called with the fields of its operation by name and gives the body of the reply, or what is awaited for it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ....broker.core.settings import TopicSettings
from ....dialects.iggy_classic.primitives import Identifier
from ....dialects.iggy_current import limits, options, responses
from ....dialects.iggy_current.errors import CODE_OF, StatusError
from ....dialects.iggy_current.operations import ConsumerName
from ....dialects.iggy_current.options import Options
from ....dialects.iggy_current.versions import ProtocolVersion
from ....model.errors import Reason, Refusal
from ....turns import Turns, finish_in_turns
from ...base.process import machine
from ...base.services import Services, now_us
from ...base.sizes import MeasuredStream, MeasuredTopic, measure_streams, measure_topics
from ..clients import Client, clients_of
from ..rights import require_operation, topic_visibility, visible_streams
from ..snapshot import snapshots_of
from ..upkeep import delete_segments, purge_stream, purge_topic, rename_stream, update_topic
from .blocks import NOTHING, Outcome, describe_group, describe_stream, describe_topic, nothing_if_missing
from .blocks import describe_topic_with_partitions as describe_whole_topic
from .caller import CurrentCaller, from_wire, to_wire
from .patches import to_update
from .poll import consumer_of
from .send import RESOURCE_NOT_FOUND
from .topic_options import merge_options, refuse_count, refuse_options, refuse_partitions
from .users import USER_CHANGES, USER_HANDLERS, CurrentUsers

if TYPE_CHECKING:
    from ....broker.core.change import Change
    from ....broker.core.topology import Stream, Topic
    from ....broker.iggy.groups import IggyGroup
    from ....dialects.iggy_classic.snapshots import SnapshotCompression, SnapshotPart

_TOPIC_SCOPE, _LAST_SCOPE = 1, 3


class CurrentService:
    """Answers every operation but sends, polls and logins; one for all connections of an endpoint."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._broker = services.broker
        self._connected = clients_of(services)
        self._machine = machine()
        users = CurrentUsers(services)
        self._handlers: Mapping[str, Callable[..., Outcome]] = {
            **{name: partial(handler, self) for name, handler in _HANDLERS.items()},
            **{name: partial(handler, users) for name, handler in USER_HANDLERS.items()},
        }
        """Who answers which operation; those that are missing are refused."""

    def begin(self, name: str, caller: CurrentCaller, values: Mapping[str, Any]) -> Outcome:
        """Answer the operation of this name, or begin to. Raises Refusal if it is unknown or not allowed."""
        if name == "update_resource":
            name, values = to_update(**values)
        handler = self._handlers.get(name)
        if handler is None:
            raise Refusal(Reason.FEATURE_UNAVAILABLE, f"{name} is not offered here")
        # the first user is created while nobody has rights yet; who changes users asks for them
        if self._broker.access.is_enabled and name not in USER_CHANGES:
            fields = {key: from_wire(values[key]) for key in ("stream", "topic") if key in values}
            require_operation(self._broker, caller.client.principal, name, {**fields, "name": values.get("name")})
        return handler(caller, **values)

    def _topic(self, stream: Identifier, topic: Identifier) -> Topic:
        return self._broker.topology.topic(from_wire(stream), from_wire(topic))

    # -- the server

    def _ping(self, caller: CurrentCaller) -> Outcome:
        return NOTHING

    def _stats(self, caller: CurrentCaller) -> Outcome:
        return finish_in_turns(self._survey_stats(caller.version))

    def _survey_stats(self, version: ProtocolVersion) -> Turns[bytes]:
        process = self._services.process.figures()
        streams = yield from measure_streams(self._broker.topology.streams())
        topics = [topic for stream in streams.values() for topic in stream.topics]
        disk = shutil.disk_usage(self._services.settings.data)
        numbers = (
            process.pid, process.cpu_percent, process.cpu_percent, process.memory_bytes, process.total_memory_bytes,
            process.available_memory_bytes, process.run_time_s * 1_000_000, process.start_time_s * 1_000_000,
            process.read_bytes, process.written_bytes, sum(topic.size_bytes for topic in topics), len(streams),
            len(topics), sum(topic.partitions_count for topic in topics),
            sum(topic.segments_count for topic in topics), sum(topic.messages_count for topic in topics),
            len(self._connected), self._broker.groups.count(),
        )  # fmt: skip
        one = self._machine
        texts = one.hostname, one.os_name, one.os_version, one.kernel_version, version.server
        return responses.stats_block(
            numbers, texts, version.server_number, (threading.active_count(), disk.free, disk.total)
        )

    def _snapshot(
        self, caller: CurrentCaller, compression: SnapshotCompression, parts: tuple[SnapshotPart, ...]
    ) -> Outcome:
        return snapshots_of(self._services).make(compression, parts)

    def _cluster(self, caller: CurrentCaller) -> Outcome:
        here, transport = caller.client.here, caller.client.transport
        ports = [here.port if own == transport else 0 for own in (1, 2, 3, 4)]
        return responses.cluster_block(caller.version, "lading", here.host, ports)

    def _metadata_changes(self, caller: CurrentCaller, wanted: memoryview) -> Outcome:
        raise Refusal(Reason.FEATURE_UNAVAILABLE, "this broker keeps no log of changes to streams, topics and users")

    def _options(self, caller: CurrentCaller, scope: int) -> Outcome:
        if not _TOPIC_SCOPE <= scope <= _LAST_SCOPE:
            raise StatusError(CODE_OF[Reason.MALFORMED], f"options have no scope {scope}")
        return responses.describe_block(caller.version, options.DESCRIBED_OPTIONS if scope == _TOPIC_SCOPE else {})

    def _me(self, caller: CurrentCaller) -> Outcome:
        return self._client_details(caller.client)

    def _client(self, caller: CurrentCaller, client_id: int) -> Outcome:
        return self._client_details(self._connected.get(client_id))

    def _clients(self, caller: CurrentCaller) -> Outcome:
        return b"".join(map(self._client_block, self._connected))

    def _client_block(self, client: Client) -> bytes:
        groups_count = len(self._broker.groups.memberships(client.id))
        return responses.client_block(
            client.id, max(client.user_id - 1, 0), client.transport, client.address, groups_count
        )

    def _client_details(self, client: Client) -> bytes:
        groups = self._broker.groups.memberships(client.id)
        places = b"".join(responses.U32.pack(to_wire(ident)) for place in groups for ident in place)
        return self._client_block(client) + places

    # -- streams

    def _stream(self, caller: CurrentCaller, stream: Identifier) -> Outcome:
        try:
            found = self._broker.topology.stream(from_wire(stream))
        except Refusal as refusal:
            return nothing_if_missing(refusal)
        return finish_in_turns(self._survey_stream(caller, found))

    def _survey_stream(self, caller: CurrentCaller, stream: Stream) -> Turns[bytes]:
        version, is_visible = caller.version, topic_visibility(self._broker, caller.client)
        ((found, size),) = (yield from measure_streams([stream], is_visible)).items()
        return describe_stream(version, found, size) + b"".join(describe_topic(version, one) for one in size.topics)

    def _streams(self, caller: CurrentCaller) -> Outcome:
        return finish_in_turns(self._survey_streams(caller))

    def _survey_streams(self, caller: CurrentCaller) -> Turns[bytes]:
        version, client = caller.version, caller.client
        measured = yield from measure_streams(
            visible_streams(self._broker, client), topic_visibility(self._broker, client)
        )
        return b"".join(describe_stream(version, stream, size) for stream, size in measured.items())

    async def _create_stream(self, caller: CurrentCaller, name: str, options: Options) -> bytes:
        refuse_options(options, "streams")
        make = self._services.changes.make
        stream = await make(self._broker.changes.create_stream(None, name, now_us=now_us()))
        return describe_stream(caller.version, stream, MeasuredStream([]))

    async def _update_stream(
        self, caller: CurrentCaller, stream: Identifier, name: str | None, options: Options
    ) -> bytes:
        refuse_options(options, "streams")
        found = self._broker.topology.stream(from_wire(stream))
        await rename_stream(self._services, found, found.name if name is None else name)
        return NOTHING

    async def _delete_stream(self, caller: CurrentCaller, stream: Identifier) -> bytes:
        await self._services.changes.make(
            self._broker.changes.delete_stream(self._broker.topology.stream(from_wire(stream)))
        )
        return NOTHING

    def _purge_stream(self, caller: CurrentCaller, stream: Identifier) -> Outcome:
        purge_stream(self._broker.topology.stream(from_wire(stream)))
        return NOTHING

    # -- topics and partitions

    def _get_topic(self, caller: CurrentCaller, stream: Identifier, topic: Identifier) -> Outcome:
        try:
            found = self._topic(stream, topic)
        except Refusal as refusal:
            return nothing_if_missing(refusal)
        return finish_in_turns(self._survey_topic(caller.version, found))

    def _survey_topic(self, version: ProtocolVersion, topic: Topic) -> Turns[bytes]:
        (measured,) = yield from measure_topics([topic])
        return describe_whole_topic(version, measured)

    def _topics(self, caller: CurrentCaller, stream: Identifier) -> Outcome:
        try:
            topics = self._broker.topology.stream(from_wire(stream)).list_topics()
        except Refusal as refusal:
            nothing_if_missing(refusal)
            topics = []
        return finish_in_turns(self._survey_topics(caller, topics))

    def _survey_topics(self, caller: CurrentCaller, topics: list[Topic]) -> Turns[bytes]:
        version = caller.version
        measured = yield from measure_topics(topics, topic_visibility(self._broker, caller.client))
        return responses.U32.pack(len(measured)) + b"".join(describe_topic(version, one) for one in measured)

    async def _create_topic(
        self, caller: CurrentCaller, stream: Identifier, partitions_count: int, name: str, options: Options
    ) -> bytes:
        if partitions_count > limits.PARTITIONS_MAX:
            refuse_partitions(partitions_count)
        settings = merge_options(TopicSettings(), options, partitions_count)
        found = self._broker.topology.stream(from_wire(stream))
        change = self._broker.changes.create_topic(
            found, None, name, partitions_count, now_us=now_us(), settings=settings
        )
        topic = await self._services.changes.make(change)
        count = len(topic.partitions)
        return describe_whole_topic(caller.version, MeasuredTopic(topic, 0, 0, count, count))

    async def _update_topic(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, name: str | None, options: Options
    ) -> bytes:
        found = self._topic(stream, topic)
        settings = merge_options(found.settings, options, len(found.partitions))
        await update_topic(self._services, found, found.name if name is None else name, settings)
        return NOTHING

    async def _delete_topic(self, caller: CurrentCaller, stream: Identifier, topic: Identifier) -> bytes:
        found = self._topic(stream, topic)
        return await self._change(found, self._broker.changes.delete_topic(found))

    def _route(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, partition: int) -> Outcome:
        found = self._topic(stream, topic).partition(partition).topic
        return responses.route_block(found.created_us, len(found.partitions))

    def _purge_topic(self, caller: CurrentCaller, stream: Identifier, topic: Identifier) -> Outcome:
        purge_topic(self._topic(stream, topic))
        return NOTHING

    def _delete_segments(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, partition: int, segments_count: int
    ) -> Outcome:
        delete_segments(self._topic(stream, topic).partition(partition), segments_count)
        return NOTHING

    async def _create_partitions(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, count: int
    ) -> bytes:
        if not 1 <= count <= limits.PARTITIONS_MAX:
            refuse_partitions(count)
        found = self._topic(stream, topic)
        return await self._change(found, self._broker.changes.add_partitions(found, count))

    async def _delete_partitions(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, count: int
    ) -> bytes:
        if not 1 <= count <= limits.PARTITIONS_MAX:
            refuse_partitions(count)
        found = self._topic(stream, topic)
        if count > len(found.partitions):
            refuse_count(count, len(found.partitions))
        return await self._change(found, self._broker.changes.delete_partitions(found, count))

    async def _change(self, topic: Topic, change: Change[None]) -> bytes:
        await self._services.changes.make_in_turn(topic, change)
        return NOTHING

    def _flush(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, partition: int, fsync: bool
    ) -> Outcome:
        # what is acknowledged is written already, and on disk as the broker's durability says
        self._topic(stream, topic).partition(partition)
        return NOTHING

    # -- offsets

    def _get_offset(
        self, caller: CurrentCaller, consumer: ConsumerName, stream: Identifier, topic: Identifier,
        partition: int | None,
    ) -> Outcome:  # fmt: skip
        try:
            found = self._topic(stream, topic)
            reference = consumer_of(self._broker, found, consumer)
        except Refusal as refusal:
            return nothing_if_missing(refusal)
        number = partition or 0
        stored = self._broker.poller.position(found, reference, number)
        if stored is None:
            return NOTHING
        return responses.offset_block(number, max(found.partition(number).log.high_watermark - 1, 0), stored)

    def _store_offset(
        self, caller: CurrentCaller, consumer: ConsumerName, stream: Identifier, topic: Identifier,
        partition: int | None, offset: int, ack: int,
    ) -> Outcome:  # fmt: skip
        found = self._topic(stream, topic)
        reference = consumer_of(self._broker, found, consumer)
        self._broker.poller.store_position(
            found, reference, caller.client.id, partition or 0, offset, now_us=now_us(),
            names_partition=partition is not None,
        )  # fmt: skip
        return NOTHING

    def _delete_offset(
        self, caller: CurrentCaller, consumer: ConsumerName, stream: Identifier, topic: Identifier,
        partition: int | None, ack: int,
    ) -> Outcome:  # fmt: skip
        try:
            found = self._topic(stream, topic)
        except Refusal as refusal:
            nothing_if_missing(refusal)
            raise StatusError(RESOURCE_NOT_FOUND, str(refusal)) from None
        reference = consumer_of(self._broker, found, consumer)
        if not self._broker.poller.delete_position(found, reference, partition or 0):
            raise StatusError(_OFFSET_NOT_FOUND, "nothing is stored for this consumer")
        return NOTHING

    # -- groups

    def _group(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, group: Identifier) -> Outcome:
        # a missing stream or topic is an error by its own name; that of a group is the empty body
        of_topic = self._topic(stream, topic)
        try:
            found = self._broker.groups.get(of_topic, from_wire(group))
        except Refusal as refusal:
            return nothing_if_missing(refusal)
        members = [
            responses.U32.pack(member.id) + responses.numbers_block(member.partitions) for member in found.members
        ]
        return describe_group(found) + b"".join(members)

    def _groups(self, caller: CurrentCaller, stream: Identifier, topic: Identifier) -> Outcome:
        return b"".join(map(describe_group, self._broker.groups.of_topic(self._topic(stream, topic))))

    async def _create_group(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, name: str) -> bytes:
        create = partial(self._broker.groups.create, self._topic(stream, topic), None, name)
        return describe_group(await self._services.changes.make(self._broker.changes.write_catalog(create)))

    async def _delete_group(
        self, caller: CurrentCaller, stream: Identifier, topic: Identifier, group: Identifier
    ) -> bytes:
        delete = partial(self._broker.groups.delete, self._topic(stream, topic), from_wire(group))
        await self._services.changes.make(self._broker.changes.write_catalog(delete))
        return NOTHING

    def _join(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, group: Identifier) -> Outcome:
        self._broker.groups.join(self._topic(stream, topic), from_wire(group), caller.client.id)
        return NOTHING

    def _leave(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, group: Identifier) -> Outcome:
        found = self._find_group(stream, topic, group)
        found.member(caller.client.id)
        self._broker.groups.leave(found.topic, found.id, caller.client.id)
        return NOTHING

    def _sync(self, caller: CurrentCaller, stream: Identifier, topic: Identifier, group: Identifier) -> Outcome:
        try:
            found = self._find_group(stream, topic, group)
            member = found.member(caller.client.id)
        except Refusal as refusal:
            return nothing_if_missing(refusal, Reason.GROUP_MEMBER_NOT_FOUND)
        return responses.U64.pack(found.generation) + responses.numbers_block(member.partitions)

    def _find_group(self, stream: Identifier, topic: Identifier, group: Identifier) -> IggyGroup:
        return self._broker.groups.get(self._topic(stream, topic), from_wire(group))


_OFFSET_NOT_FOUND: Final = 3021

_HANDLERS: Final[Mapping[str, Callable[..., Outcome]]] = {
    "ping": CurrentService._ping,
    "get_stats": CurrentService._stats,
    "get_snapshot": CurrentService._snapshot,
    "get_cluster_metadata": CurrentService._cluster,
    "get_metadata_changes": CurrentService._metadata_changes,
    "describe_options": CurrentService._options,
    "get_me": CurrentService._me,
    "get_client": CurrentService._client,
    "get_clients": CurrentService._clients,
    "get_stream": CurrentService._stream,
    "get_streams": CurrentService._streams,
    "create_stream": CurrentService._create_stream,
    "update_stream": CurrentService._update_stream,
    "delete_stream": CurrentService._delete_stream,
    "purge_stream": CurrentService._purge_stream,
    "get_topic": CurrentService._get_topic,
    "get_topics": CurrentService._topics,
    "create_topic": CurrentService._create_topic,
    "update_topic": CurrentService._update_topic,
    "delete_topic": CurrentService._delete_topic,
    "purge_topic": CurrentService._purge_topic,
    "delete_segments": CurrentService._delete_segments,
    "create_partitions": CurrentService._create_partitions,
    "delete_partitions": CurrentService._delete_partitions,
    "get_partition_route": CurrentService._route,
    "flush_unsaved_buffer": CurrentService._flush,
    "get_consumer_offset": CurrentService._get_offset,
    "store_consumer_offset": CurrentService._store_offset,
    "delete_consumer_offset": CurrentService._delete_offset,
    "get_consumer_group": CurrentService._group,
    "get_consumer_groups": CurrentService._groups,
    "create_consumer_group": CurrentService._create_group,
    "delete_consumer_group": CurrentService._delete_group,
    "join_consumer_group": CurrentService._join,
    "leave_consumer_group": CurrentService._leave,
    "sync_consumer_group": CurrentService._sync,
}
"""The method of each operation."""
