"""Commands of Iggy in all releases: one entrance and one table for connections and HTTP (iggy.md A3 and A8).

Sends and polls, the hot path, are in ``send.py`` and ``poll.py``. A handler returns its result, or is a generator that
works in turns, or a coroutine that waits for the disk; callers treat all three alike.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...broker.core.states import list_states
from ...broker.core.upkeep.record_deletion import delete_all, delete_before
from ...dialects.iggy.classic import commands as c
from ...dialects.iggy.classic import later_commands as later
from ...dialects.iggy.classic import responses as r
from ...dialects.iggy.classic.errors import StatusError
from ...dialects.iggy.classic.state_commands import (
    RANGES_MAX,
    GetStates,
    ListedStates,
    SetStates,
    SetStatesWhere,
    StateRange,
    StatesProgress,
)
from ...dialects.iggy.current import commands as current
from ...dialects.iggy.current.options import DESCRIBED_OPTIONS, option_flags
from ...model.errors import NotLoaded, Reason, Refusal
from ...model.state import State
from ...model.version import __version__
from ...runtime.turns import TurnCounter, Turns, finish_in_turns, map_in_turns, take_turn
from ..base.append_wait import wait_for_result
from ..base.loaded_read import read_when_loaded
from ..base.process import DiskFigures, machine, measure_disk
from ..base.request_budget import ROW_BYTES
from ..base.services import Services, now_us
from ..base.sizes import MeasuredStream, MeasuredTopic, count_listed, measure_streams, measure_topics
from ..http_shared.states import StateRequests, StatesDocument
from .clients import Client, clients_of
from .entities import (
    change_settings,
    describe_group,
    describe_group_with_members,
    describe_partition,
    describe_stream,
    describe_topic,
    settings_of,
)
from .poll import consumer_of, partition_of
from .rights import require_command, topic_visibility, visible_streams
from .snapshot import snapshots_of
from .topic_options import refuse_options
from .users import users_of

if TYPE_CHECKING:
    from ...broker.core.change import Change
    from ...broker.core.settings import TopicSettings
    from ...broker.core.topology import Partition, Stream, Topic
    from ...broker.iggy.consumer import ConsumerRef

R = TypeVar("R")
ROWS_INLINE: Final = 100
"""Responses of more rows are encoded in a worker."""
INVALID_PARTITIONS_COUNT: Final = 2019
_TOPIC_SCOPE, _LAST_SCOPE = 1, 3
_TRANSPORTS: Final = (1, 2, 3, 4)
"""Names of TCP, QUIC, HTTP and WebSocket in responses to clients."""


class IggyService:
    """Carries out every command but sends, polls and logins."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._segment_bytes = int(services.settings.log.segment_bytes)
        self._connected = clients_of(services)
        self._broker = services.broker
        self._machine = machine()
        self._users = users_of(services)
        self._snapshots = snapshots_of(services)
        self._states = StateSetter(services)

    def answer(self, command: Any, client: Client, encode: Callable[[Any], R]) -> R | Awaitable[R]:
        """Carry out a command, or begin to; return its result as encoded by ``encode``, or an awaitable of it.

        ``client`` is the caller's connection, or a stand-in for one. A long result is encoded in a worker. Raises
        Refusal, now or when awaited.
        """
        if not isinstance(command, later.USER_COMMANDS):
            # the first user is created before anybody has rights, so the code that changes users checks them itself
            normalise = client.release.rules.normalise_name
            require_command(self._broker, client.principal, command, normalise)
        try:
            result = HANDLERS[type(command)](self, command, client)
        except NotLoaded:
            result = self._carry_out_when_loaded(command, client)
        if isinstance(result, Generator):
            return self._finish_in_turns(result, encode)
        if isinstance(result, Coroutine):
            return _encode_later(result, encode)
        return encode(result)

    async def _carry_out_when_loaded(self, command: Any, client: Client) -> Any:
        result = await read_when_loaded(partial(HANDLERS[type(command)], self, command, client))
        return await result if isinstance(result, Coroutine) else result

    async def parse_in_worker(self, parse: Callable[[], R]) -> R:
        """Return the result of ``parse`` for a long command: rights in 100,000 streams kept the loop for 0.8 s."""
        return await asyncio.get_running_loop().run_in_executor(self._services.workers, parse)

    async def _finish_in_turns(self, work: Turns[Any], encode: Callable[[Any], R]) -> R:
        """Return the response of work in turns, which waits for memory after its first turn, as it may list
        everything.
        """
        await asyncio.sleep(0)
        try:
            take_turn(work)
        except StopIteration as end:
            return await self._encode_rows(end.value, encode)
        rows_count = count_listed(self._broker) + len(self._connected)
        reservation = await self._services.requests.wait_for(ROW_BYTES * rows_count)
        try:
            return await self._encode_rows(await finish_in_turns(work), encode)
        finally:
            reservation.release()

    async def _encode_rows(self, result: Any, encode: Callable[[Any], R]) -> R:
        return await self._services.run_in_worker(_count_rows(result), ROWS_INLINE, encode, result)

    def topic(self, command: Any) -> Topic:
        """Return the topic that a command names. Raises Refusal if it does not exist."""
        return self._broker.topology.topic(command.stream, command.topic)

    def _consumer_of(self, command: Any, topic: Topic, client: Client) -> ConsumerRef:
        return consumer_of(command.consumer, topic, self._broker.groups, client.release.rules)

    # -- the server

    def _kill(self, command: c.Kill, client: Client) -> None:
        raise Refusal(
            Reason.UNKNOWN_COMMAND, "this server is not to be killed by a client; send SIGTERM to its process"
        )

    def _ping(self, command: c.Ping, client: Client) -> None:
        return None

    def _get_stats(self, command: c.Stats, client: Client) -> Turns[r.StatsInfo]:
        process = self._services.process.figures()
        streams = yield from measure_streams(self._broker.topology.streams())
        topics = [topic for stream in streams.values() for topic in stream.topics]
        # the only text in all releases that shows a client which server it uses, and which release the server takes it
        # for
        served = f" (Lading {__version__} for clients of {client.release.name})"
        disk = measure_disk(self._services.settings.data) or DiskFigures(0, 0)
        return r.StatsInfo(
            process_id=process.pid,
            cpu_usage=process.cpu_percent,
            memory_usage=process.memory_bytes,
            total_memory=process.total_memory_bytes,
            available_memory=process.available_memory_bytes,
            run_time=process.run_time_s,
            start_time=process.start_time_s,
            read_bytes=process.read_bytes,
            written_bytes=process.written_bytes,
            messages_size_bytes=sum(topic.size_bytes for topic in topics),
            streams_count=len(streams),
            topics_count=len(topics),
            partitions_count=sum(topic.partitions_count for topic in topics),
            segments_count=sum(topic.segments_count for topic in topics),
            messages_count=sum(topic.messages_count for topic in topics),
            clients_count=len(self._connected),
            groups_count=self._broker.groups.count(),
            hostname=self._machine.hostname,
            os_name=self._machine.os_name,
            os_version=self._machine.os_version,
            kernel_version=self._machine.kernel_version + served,
            # the usage of other processes is not read
            total_cpu_usage=process.cpu_percent,
            server_version=f"Lading {__version__}",
            threads_count=threading.active_count(),
            free_disk_space=disk.free_bytes,
            total_disk_space=disk.total_bytes,
            kernel=self._machine.kernel_version,
        )

    def _get_snapshot(self, command: later.GetSnapshot, client: Client) -> Coroutine[Any, Any, bytes]:
        return self._snapshots.make(command.compression, command.parts)

    def _get_cluster(self, command: later.GetClusterMetadata, client: Client) -> r.ClusterInfo:
        here, own = client.here, client.transport
        tcp, quic, http, websocket = (here.port if own == transport else 0 for transport in _TRANSPORTS)
        return r.ClusterInfo("single-node", [r.NodeInfo("lading", here.host, (tcp, quic, http, websocket))])

    def _metadata_changes(self, command: current.GetMetadataChanges, client: Client) -> None:
        raise Refusal(
            Reason.FEATURE_UNAVAILABLE,
            "this broker keeps no log of changes to streams, topics and users; read their lists again",
        )

    def _describe_options(self, command: current.DescribeOptions, client: Client) -> list[current.OptionInfo]:
        if not _TOPIC_SCOPE <= command.scope <= _LAST_SCOPE:
            raise Refusal(Reason.MALFORMED, f"scope of options is {_TOPIC_SCOPE} to {_LAST_SCOPE}, not {command.scope}")
        return [
            current.OptionInfo(key, spec.kind, spec.default, spec.description, option_flags(key))
            for key, spec in (DESCRIBED_OPTIONS.items() if command.scope == _TOPIC_SCOPE else ())
        ]

    def _get_me(self, command: c.Me, client: Client) -> r.ClientDetails:
        return self._client_details(client)

    def _get_client(self, command: c.GetClient, client: Client) -> r.ClientDetails:
        return self._client_details(self._connected.get(command.client_id))

    def _get_clients(self, command: c.GetClients, client: Client) -> Turns[list[r.ClientInfo]]:
        turn, found = TurnCounter(), []
        for one in list(self._connected):
            found.append(self._client_info(one))
            if turn.is_over():
                yield
        return found

    def _client_info(self, client: Client) -> r.ClientInfo:
        groups_count = len(self._broker.groups.memberships(client.id))
        return r.ClientInfo(client.id, client.transport, client.address, groups_count, client.user_id)

    def _client_details(self, client: Client) -> r.ClientDetails:
        groups = [
            r.ConsumerGroupInfo(group_id, topic_id, stream_id)
            for stream_id, topic_id, group_id in self._broker.groups.memberships(client.id)
        ]
        return r.ClientDetails(self._client_info(client), groups)

    def _log_out(self, command: later.LogoutUser, client: Client) -> None:
        client.log_in(self._broker.access.admit(is_open=False), None)

    def _list_users(self, command: later.GetUsers, client: Client) -> Turns[list[r.UserInfo]]:
        return self._users.list_users(client)

    def _get_user(self, command: later.GetUser, client: Client) -> Turns[r.UserDetails]:
        return self._users.get(command.user, client, client.release.first_id)

    def _get_tokens(self, command: later.GetTokens, client: Client) -> Turns[list[r.TokenInfo]]:
        return self._users.list_tokens(client)

    async def _change_users(self, command: Any, client: Client) -> Any:
        refuse_options(getattr(command, "options", None), "users")
        return await self._users.change(command, client, client.release.first_id)

    # -- streams, topics, partitions

    def _get_stream(self, command: c.GetStream, client: Client) -> Turns[r.StreamDetails]:
        measured = yield from measure_streams(
            [self._broker.topology.stream(command.stream)], topic_visibility(self._broker, client)
        )
        ((stream, size),) = measured.items()
        return r.StreamDetails(describe_stream(stream, size), [describe_topic(one) for one in size.topics])

    def _get_streams(self, command: c.GetStreams, client: Client) -> Turns[list[r.StreamInfo]]:
        measured = yield from measure_streams(
            visible_streams(self._broker, client), topic_visibility(self._broker, client)
        )
        return [describe_stream(stream, size) for stream, size in measured.items()]

    def _get_topic(self, command: c.GetTopic, client: Client) -> Turns[r.TopicDetails]:
        topic, turn = self.topic(command), TurnCounter()
        (measured,) = yield from measure_topics([topic])
        partitions = []
        for partition in list(topic.partitions):
            partitions.append(describe_partition(partition))
            if turn.is_over():
                yield
        return r.TopicDetails(describe_topic(measured), partitions)

    def _get_topics(self, command: c.GetTopics, client: Client) -> Turns[list[r.TopicInfo]]:
        topics = self._broker.topology.stream(command.stream).list_topics()
        measured = yield from measure_topics(topics, topic_visibility(self._broker, client))
        return [describe_topic(one) for one in measured]

    async def _create_stream(self, command: c.CreateStream, client: Client) -> r.StreamDetails:
        refuse_options(command.options, "streams")
        name = client.release.rules.normalise_name(command.name)
        change = self._broker.changes.create_stream(command.stream_id, name, now_us=now_us())
        stream = await self._services.changes.make(change)
        return r.StreamDetails(describe_stream(stream, MeasuredStream([])), [])

    async def _update_stream(self, command: later.UpdateStream, client: Client) -> None:
        refuse_options(command.options, "streams")
        stream = self._broker.topology.stream(command.stream)
        await rename_stream(self._services, stream, _choose_name(stream.name, command.name, client))

    async def _delete_stream(self, command: c.DeleteStream, client: Client) -> None:
        stream = self._broker.topology.stream(command.stream)
        await self._services.changes.make(self._broker.changes.delete_stream(stream))

    async def _purge_stream(self, command: later.PurgeStream, client: Client) -> None:
        stream = self._broker.topology.stream(command.stream)
        await map_in_turns(_purge, [one for topic in stream.topics.values() for one in topic.partitions])

    async def _create_topic(self, command: c.CreateTopic, client: Client) -> r.TopicDetails:
        rules, count = client.release.rules, command.partitions_count
        if count > rules.partitions_max:
            raise _partitions_refusal(count, rules.partitions_max)
        settings = settings_of(command, self._segment_bytes)
        stream, name = self._broker.topology.stream(command.stream), rules.normalise_name(command.name)
        change = self._broker.changes.create_topic(
            stream, command.topic_id, name, count, now_us=now_us(), settings=settings
        )
        topic = await self._services.changes.make(change)
        partitions = [describe_partition(partition) for partition in topic.partitions]
        return r.TopicDetails(describe_topic(MeasuredTopic(topic, 0, 0, count, count)), partitions)

    async def _update_topic(self, command: later.UpdateTopic, client: Client) -> None:
        topic = self.topic(command)
        settings = change_settings(topic, command, self._segment_bytes)
        await update_topic(self._services, topic, _choose_name(topic.name, command.name, client), settings)

    async def _delete_topic(self, command: c.DeleteTopic, client: Client) -> None:
        topic = self.topic(command)
        await self._change_topic(topic, self._broker.changes.delete_topic(topic))

    async def _purge_topic(self, command: later.PurgeTopic, client: Client) -> None:
        await map_in_turns(_purge, self.topic(command).partitions)

    async def _create_partitions(self, command: c.CreatePartitions, client: Client) -> None:
        count = _require_count(command.partitions_count, client)
        topic = self.topic(command)
        await self._change_topic(topic, self._broker.changes.add_partitions(topic, count))

    async def _delete_partitions(self, command: c.DeletePartitions, client: Client) -> None:
        count = _require_count(command.partitions_count, client)
        topic = self.topic(command)
        if count > len(topic.partitions) and not client.release.rules.deletes_all_partitions:
            sentence = f"a topic of {len(topic.partitions)} partitions cannot lose {count}"
            raise StatusError(INVALID_PARTITIONS_COUNT, sentence)
        await self._change_topic(topic, self._broker.changes.delete_partitions(topic, count))

    async def _change_topic(self, topic: Topic, change: Change[None]) -> None:
        await self._services.changes.make_in_turn(topic, change)

    def _delete_segments(self, command: later.DeleteSegments, client: Client) -> None:
        delete_segments(self.topic(command).partition(command.partition_id - 1), command.segments_count)

    def _flush(self, command: later.FlushMessages, client: Client) -> None:
        # an acknowledged change is written already, and on disk as the broker's durability requires
        self.topic(command).partition(command.partition_id - 1)

    def _get_route(self, command: current.GetPartitionRoute, client: Client) -> current.PartitionRoute:
        topic = self.topic(command).partition(command.partition_id - 1).topic
        return current.PartitionRoute(topic.created_us, 0, 0, len(topic.partitions), 0)

    # -- positions and groups

    def _get_offset(self, command: c.GetOffset, client: Client) -> r.StoredOffset | None:
        # until 0.10 neither membership nor the group's existence is checked (iggy.md M13)
        topic, number = self.topic(command), partition_of(command)
        consumer = self._consumer_of(command, topic, client)
        stored = self._broker.poller.position(topic, consumer, number)
        if stored is None and client.release.is_missing_empty:
            return None
        end = topic.partition(number).log.high_watermark
        return r.StoredOffset(consumer.id, stored or 0, number + 1, max(end - 1, 0))

    def _store_offset(self, command: c.StoreOffset, client: Client) -> Coroutine[Any, Any, None] | None:
        topic = self.topic(command)
        pending = self._broker.poller.store_position(
            topic,
            self._consumer_of(command, topic, client),
            client.id,
            partition_of(command),
            command.offset,
            now_us=now_us(),
            names_partition=command.partition_id is not None and client.release.rules.has_strict_groups,
        )
        return None if pending is None else wait_for_result(pending)

    def _delete_offset(self, command: later.DeleteOffset, client: Client) -> Coroutine[Any, Any, None] | None:
        topic, number = self.topic(command), partition_of(command)
        consumer = self._consumer_of(command, topic, client)
        if not self._broker.poller.delete_position(topic, consumer, number):
            raise Refusal(Reason.OFFSET_NOT_FOUND, "nothing is stored for this consumer; store an offset first")
        pending = self._broker.poller.confirm_position(topic, consumer, number)
        return None if pending is None else wait_for_result(pending)

    async def _group(self, command: c.GetGroup, client: Client) -> r.GroupDetails:
        group = self._broker.groups.get(self.topic(command), command.group_id)
        members = await self._services.changes.make(self._broker.groups.list_members(group))
        return describe_group_with_members(group, members)

    def _get_groups(self, command: c.GetGroups, client: Client) -> Turns[list[r.GroupInfo]]:
        turn, groups = TurnCounter(), []
        for group in self._broker.groups.of_topic(self.topic(command)):
            groups.append(describe_group(group, len(group.members)))
            if turn.is_over():
                yield
        return groups

    async def _create_group(self, command: c.CreateGroup, client: Client) -> r.GroupDetails:
        topic = self.topic(command)
        name = None if command.name is None else client.release.rules.normalise_name(command.name)
        group = await self._services.changes.make(self._broker.groups.begin_create(topic, command.group_id, name))
        return describe_group_with_members(group, group.members)

    async def _delete_group(self, command: c.DeleteGroup, client: Client) -> None:
        await self._services.changes.make(self._broker.groups.begin_delete(self.topic(command), command.group_id))

    def _join(self, command: c.JoinGroup, client: Client) -> Coroutine[Any, Any, None] | None:
        pending = self._broker.groups.join(self.topic(command), command.group_id, client.id)
        return None if pending is None else wait_for_result(pending)

    def _leave(self, command: c.LeaveGroup, client: Client) -> None:
        topic, groups = self.topic(command), self._broker.groups
        if client.release.rules.has_strict_groups:
            groups.get(topic, command.group_id).member(client.id)
        groups.leave(topic, command.group_id, client.id)

    def _sync(self, command: current.SyncGroup, client: Client) -> current.GroupAssignment:
        group = self._broker.groups.get(self.topic(command), command.group_id)
        partitions = group.member(client.id).partitions
        return current.GroupAssignment(group.generation, [number + 1 for number in partitions])

    # -- message states

    async def _set_states(self, command: SetStates | SetStatesWhere, client: Client) -> StatesProgress:
        return await self._states.set(command, client)

    def _list_states(self, command: GetStates, client: Client) -> Turns[ListedStates]:
        partition, turn, ranges = self.topic(command).partition(command.partition_id - 1), TurnCounter(), []
        listed = yield from list_states(partition, command.first, command.end, RANGES_MAX + 1)
        for first, end, state in listed[:RANGES_MAX]:
            ranges.append(StateRange(first, end, State(state)))
            if turn.is_over():
                yield
        return ListedStates(ranges[-1].end if len(listed) > RANGES_MAX else command.end, ranges)


def _count_rows(answer: Any) -> int:
    match answer:
        case list():
            return len(answer)
        case r.StreamDetails():
            return len(answer.topics)
        case r.TopicDetails():
            return len(answer.partitions)
        case r.UserDetails():
            streams = answer.permissions.streams if answer.permissions else {}
            return len(streams) + sum(len(one.topics) for one in streams.values())
        case ListedStates():
            return len(answer.ranges)
        case _:
            return 1


async def _encode_later(work: Coroutine[Any, Any, Any], encode: Callable[[Any], R]) -> R:
    return encode(await work)


def _choose_name(name: str, wanted: str | None, client: Client) -> str:
    """Return the name that a stream or topic will have; an unchanged name stays as another protocol gave it."""
    return name if wanted is None or wanted == name else client.release.rules.normalise_name(wanted)


def _require_count(count: int, client: Client) -> int:
    """Return a number of partitions to create or delete. Raises Refusal if it is too large for one request."""
    partitions_max = client.release.rules.partitions_max
    if not 1 <= count <= partitions_max:
        raise _partitions_refusal(count, partitions_max)
    return count


def _partitions_refusal(count: int, partitions_max: int) -> Refusal:
    return Refusal(Reason.TOO_MANY_PARTITIONS, f"{count} partitions at once; {partitions_max} are possible")


HANDLERS: Final[Mapping[type[Any], Callable[[IggyService, Any, Client], Any]]] = {
    c.Kill: IggyService._kill,
    c.Ping: IggyService._ping,
    c.Stats: IggyService._get_stats,
    later.GetSnapshot: IggyService._get_snapshot,
    later.GetClusterMetadata: IggyService._get_cluster,
    current.GetMetadataChanges: IggyService._metadata_changes,
    current.DescribeOptions: IggyService._describe_options,
    c.Me: IggyService._get_me,
    c.GetClient: IggyService._get_client,
    c.GetClients: IggyService._get_clients,
    later.LogoutUser: IggyService._log_out,
    later.GetUser: IggyService._get_user,
    later.GetUsers: IggyService._list_users,
    later.GetTokens: IggyService._get_tokens,
    **dict.fromkeys(later.USER_COMMANDS, IggyService._change_users),
    c.GetStream: IggyService._get_stream,
    c.GetStreams: IggyService._get_streams,
    c.CreateStream: IggyService._create_stream,
    later.UpdateStream: IggyService._update_stream,
    c.DeleteStream: IggyService._delete_stream,
    later.PurgeStream: IggyService._purge_stream,
    c.GetTopic: IggyService._get_topic,
    c.GetTopics: IggyService._get_topics,
    c.CreateTopic: IggyService._create_topic,
    later.UpdateTopic: IggyService._update_topic,
    c.DeleteTopic: IggyService._delete_topic,
    later.PurgeTopic: IggyService._purge_topic,
    c.CreatePartitions: IggyService._create_partitions,
    c.DeletePartitions: IggyService._delete_partitions,
    later.DeleteSegments: IggyService._delete_segments,
    later.FlushMessages: IggyService._flush,
    current.GetPartitionRoute: IggyService._get_route,
    c.GetOffset: IggyService._get_offset,
    c.StoreOffset: IggyService._store_offset,
    later.DeleteOffset: IggyService._delete_offset,
    c.GetGroup: IggyService._group,
    c.GetGroups: IggyService._get_groups,
    c.CreateGroup: IggyService._create_group,
    c.DeleteGroup: IggyService._delete_group,
    c.JoinGroup: IggyService._join,
    c.LeaveGroup: IggyService._leave,
    current.SyncGroup: IggyService._sync,
    GetStates: IggyService._list_states,
    SetStates: IggyService._set_states,
    SetStatesWhere: IggyService._set_states,
}
"""The handler of each command; a generator works in turns, a coroutine waits for the disk."""


class StateSetter:
    """Sets message states by Lading's own commands, as the HTTP endpoints do."""

    def __init__(self, services: Services) -> None:
        self._broker = services.broker
        self._requests = StateRequests(services)

    async def set(self, command: SetStates | SetStatesWhere, client: Client) -> StatesProgress:
        """Set the states and return the progress once it is on disk. Raises Refusal or FilterError."""

        def find() -> Partition:
            return self._broker.topology.topic(command.stream, command.topic).partition(command.partition_id - 1)

        reason = command.reason or None
        if isinstance(command, SetStates):
            progress = await self._requests.set_ranges(find, command.ranges, command.state, reason, command.dry_run)
        else:
            document = StatesDocument(
                state=command.state.word, where=command.where, first=command.first, end=command.end,
                reason=reason, dry_run=command.dry_run,
            )  # fmt: skip
            progress = await self._requests.set(find, document, client.user or client.address.rpartition(":")[0])
        return StatesProgress(progress.seen, progress.matched, progress.changed, progress.first, progress.end)


def rename_stream(services: Services, stream: Stream, name: str) -> Awaitable[None]:
    """Rename a stream as a client requests."""
    broker = services.broker
    return services.changes.make_in_turn(stream, broker.renames.rename_stream(stream, name), broker.access)


def update_topic(services: Services, topic: Topic, name: str, settings: TopicSettings) -> Awaitable[None]:
    """Change the name and the settings of a topic as a client requests."""
    broker = services.broker
    if name == topic.name:
        return services.changes.make_in_turn(topic, broker.changes.alter_topic(topic, settings))

    def change() -> Change[None]:
        yield from broker.renames.rename_topic(topic, name)
        yield from broker.changes.alter_topic(topic, settings)

    return services.changes.make_in_turn(topic, change(), broker.access)


def _purge(partition: Partition) -> None:
    """Delete all messages of a partition that can be seen, unless it was deleted itself in a turn of others."""
    topic, number = partition.topic, partition.number
    if topic.stream.topics.get(topic.id) is topic and topic.partitions[number : number + 1] == [partition]:
        delete_all(partition)


def delete_segments(partition: Partition, count: int) -> None:
    """Delete the ``count`` oldest segments of a partition, but never the one that is being written."""
    closed = partition.log.segments()[:-1]
    end = max((segment.end_offset for segment in islice(closed, count)), default=0)
    # undecided messages are kept, as in every other deletion
    delete_before(partition, min(end, partition.log.last_stable_offset))
