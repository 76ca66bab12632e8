"""Commands of Iggy classic: one table for TCP and HTTP alike (iggy.md A3 and A8).

Sending and polling are apart, in ``send.py`` and ``poll.py``: they are the hot path.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ...broker.core.states import list_states
from ...dialects.iggy_classic import commands as c
from ...dialects.iggy_classic import later_commands as later
from ...dialects.iggy_classic import responses as r
from ...dialects.iggy_classic.state_commands import RANGES_MAX, GetStates, ListedStates, StateRange
from ...dialects.iggy_classic.validation import choose_name, normalise_name
from ...model.errors import Reason, Refusal
from ...model.state import State
from ...model.version import __version__
from ...turns import TurnCounter, Turns, finish_in_turns
from ..base.process import machine
from ..base.services import Services, now_us
from ..base.sizes import MeasuredStream, MeasuredTopic, measure_streams, measure_topics
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
from .poll import consumer_of
from .rights import require_command, topic_visibility, visible_streams
from .snapshot import snapshots_of
from .upkeep import UPKEEP_HANDLERS, rename_stream, update_topic
from .users import users_of

if TYPE_CHECKING:
    from ...broker.core.change import Change
    from ...broker.core.topology import Topic


R = TypeVar("R")
ROWS_INLINE: Final = 100
"""Answers of more rows are encoded in a worker."""


class IggyService:
    """Answers every command of the generation but send and poll."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._connected = clients_of(services)
        self._broker = services.broker
        self._machine = machine()
        self._users = users_of(services)
        self._snapshots = snapshots_of(services)

    def answer(self, command: Any, client: Client | None = None) -> Any:
        """Carry out a command and return its result, as ``commands.encode_response`` and the JSON dialect take it.

        ``client`` is the connection that asks. HTTP has none, and sends no command that needs one. Raises Refusal.
        """
        self._require(command, client)
        if (handle := UPKEEP_HANDLERS.get(type(command))) is not None:
            return handle(self._broker, command)
        return _HANDLERS[type(command)](self, command, client)

    def _require(self, command: Any, client: Client | None) -> None:
        """Refusal unless the client may give the command."""
        require_command(self._broker, None if client is None else client.principal, command)

    async def survey(self, command: c.Command, client: Client | None, encode: Callable[[Any], R]) -> R:
        """Answer one of ``SURVEYS`` in turns, as ``answer``; ``encode`` is called in a worker if it is long."""
        self._require(command, client)
        answer = await finish_in_turns(SURVEYS[type(command)](self, command, client))
        return await self._services.run_in_worker(_count_rows(answer), ROWS_INLINE, encode, answer)

    async def change(self, command: Any, client: Client | None, encode: Callable[[Any], R], first_id: int = 1) -> R:
        """Carry out one of ``CHANGES``, which wait for the disk, beside everything else; Refusal as ``answer``.

        ``encode`` is given what was created, None where nothing was; ``first_id`` is how the client counts.
        """
        if isinstance(command, later.USER_COMMANDS):
            # the first user is a case of its own
            return encode(await self._users.change(command, client, first_id))
        self._require(command, client)
        return encode(await self._make(command))

    async def make_snapshot(self, command: later.GetSnapshot, client: Client | None) -> bytes:
        """Return the archive that a command asks for, made in a worker; Refusal as ``answer``."""
        self._require(command, client)
        return await self._snapshots.make(command.compression, command.parts)

    async def _make(self, command: c.Command) -> Any:
        changes, make = self._broker.changes, self._services.changes.make
        match command:
            case c.CreateStream():
                name = normalise_name(command.name)
                stream = await make(changes.create_stream(command.stream_id, name, now_us=now_us()))
                return r.StreamDetails(describe_stream(stream, MeasuredStream([])), [])
            case c.DeleteStream():
                await make(changes.delete_stream(self._broker.topology.stream(command.stream)))
            case later.UpdateStream():
                stream = self._broker.topology.stream(command.stream)
                await rename_stream(self._services, stream, choose_name(stream.name, command.name))
            case later.UpdateTopic():
                topic = self.topic(command)
                name, settings = choose_name(topic.name, command.name), change_settings(topic, command)
                await update_topic(self._services, topic, name, settings)
            case c.CreateTopic():
                stream, name = self._broker.topology.stream(command.stream), normalise_name(command.name)
                count = command.partitions_count
                topic = await make(
                    changes.create_topic(
                        stream, command.topic_id, name, count, now_us=now_us(), settings=settings_of(command)
                    )
                )
                partitions = [describe_partition(partition) for partition in topic.partitions]
                return r.TopicDetails(describe_topic(MeasuredTopic(topic, 0, 0, count, count)), partitions)
            case c.CreateGroup() | c.DeleteGroup():
                groups, topic = self._broker.groups, self.topic(command)
                if isinstance(command, c.DeleteGroup):
                    await make(changes.write_catalog(partial(groups.delete, topic, command.group_id)))
                else:
                    called = None if command.name is None else normalise_name(command.name)
                    group = await make(changes.write_catalog(partial(groups.create, topic, command.group_id, called)))
                    return describe_group_with_members(group)
            case _:
                topic = self.topic(command)
                await self._services.changes.make_in_turn(topic, self._change_of(topic, command))
        return None

    def _change_of(self, topic: Topic, command: Any) -> Change[None]:
        changes = self._broker.changes
        match command:
            case c.CreatePartitions():
                return changes.add_partitions(topic, command.partitions_count)
            case c.DeletePartitions():
                return changes.delete_partitions(topic, command.partitions_count)
            case _:
                return changes.delete_topic(topic)

    def topic(self, command: Any) -> Topic:
        """Return the topic that a command names. Raises Refusal if it does not exist."""
        return self._broker.topology.topic(command.stream, command.topic)

    # -- the server

    def _kill(self, command: c.Kill, client: Client | None) -> None:
        raise Refusal(
            Reason.UNKNOWN_COMMAND, "this server is not to be killed by a client; send SIGTERM to its process"
        )

    def _ping(self, command: c.Ping, client: Client | None) -> None:
        return None

    def _stats(self, command: c.Stats, client: Client | None) -> Turns[r.StatsInfo]:
        process = self._services.process.figures()
        streams = yield from measure_streams(self._broker.topology.streams())
        topics = [topic for stream in streams.values() for topic in stream.topics]
        # the one text of all releases in which a client can find what it talks to, and for what it is taken
        served = "" if client is None else f" (Lading {__version__} for clients of {client.release.name})"
        disk = shutil.disk_usage(self._services.settings.data)
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
            # what other processes use is not looked at
            total_cpu_usage=process.cpu_percent,
            server_version=f"Lading {__version__}",
            threads_count=threading.active_count(),
            free_disk_space=disk.free,
            total_disk_space=disk.total,
        )

    def _me(self, command: c.Me, client: Client | None) -> r.ClientDetails:
        if client is None:
            raise Refusal(Reason.FEATURE_UNAVAILABLE, "a client without a connection of its own has no details")
        return self._client_details(client)

    def _client(self, command: c.GetClient, client: Client | None) -> r.ClientDetails:
        return self._client_details(self._connected.get(command.client_id))

    def _clients(self, command: c.GetClients, client: Client | None) -> Turns[list[r.ClientInfo]]:
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

    def _log_out(self, command: later.LogoutUser, client: Client | None) -> None:
        if client is not None:
            client.log_in(self._broker.access.admit(is_open=False), None)

    def _list_users(self, command: later.GetUsers, client: Client | None) -> list[r.UserInfo]:
        return self._users.list_users(client)

    def _user(self, command: later.GetUser, client: Client | None) -> r.UserDetails:
        return self._users.get(command.user, client, 1)

    def _tokens(self, command: later.GetTokens, client: Client | None) -> list[r.TokenInfo]:
        return self._users.tokens(client)

    def _cluster(self, command: later.GetClusterMetadata, client: Client | None) -> None:
        return None

    def _flush(self, command: later.FlushMessages, client: Client | None) -> None:
        # what is acknowledged is written already
        self.topic(command).partition(command.partition_id - 1)

    # -- streams, topics, partitions

    def _stream(self, command: c.GetStream, client: Client | None) -> Turns[r.StreamDetails]:
        measured = yield from measure_streams(
            [self._broker.topology.stream(command.stream)], topic_visibility(self._broker, client)
        )
        ((stream, size),) = measured.items()
        return r.StreamDetails(describe_stream(stream, size), [describe_topic(one) for one in size.topics])

    def _streams(self, command: c.GetStreams, client: Client | None) -> Turns[list[r.StreamInfo]]:
        measured = yield from measure_streams(
            visible_streams(self._broker, client), topic_visibility(self._broker, client)
        )
        return [describe_stream(stream, size) for stream, size in measured.items()]

    def _topic(self, command: c.GetTopic, client: Client | None) -> Turns[r.TopicDetails]:
        topic, turn = self.topic(command), TurnCounter()
        (measured,) = yield from measure_topics([topic])
        partitions = []
        for partition in list(topic.partitions):
            partitions.append(describe_partition(partition))
            if turn.is_over():
                yield
        return r.TopicDetails(describe_topic(measured), partitions)

    def _topics(self, command: c.GetTopics, client: Client | None) -> Turns[list[r.TopicInfo]]:
        topics = self._broker.topology.stream(command.stream).list_topics()
        measured = yield from measure_topics(topics, topic_visibility(self._broker, client))
        return [describe_topic(one) for one in measured]

    # -- positions and groups

    def _offset(self, command: c.GetOffset, client: Client | None) -> r.StoredOffset | None:
        # as a group neither membership nor existence is asked for (iggy.md M13)
        topic, number = self.topic(command), command.partition_id - 1
        consumer = consumer_of(command.consumer, topic, self._broker.groups)
        stored = self._broker.poller.position(topic, consumer, number)
        if stored is None and client is not None and client.release.is_missing_empty:
            return None
        end = topic.partition(number).log.high_watermark
        return r.StoredOffset(consumer.id, stored or 0, command.partition_id, max(end - 1, 0))

    def _store_offset(self, command: c.StoreOffset, client: Client | None) -> None:
        topic = self.topic(command)
        self._broker.poller.store_position(
            topic,
            consumer_of(command.consumer, topic, self._broker.groups),
            client.id if client else None,
            command.partition_id - 1,
            command.offset,
            now_us=now_us(),
        )

    def _group(self, command: c.GetGroup, client: Client | None) -> r.GroupDetails:
        return describe_group_with_members(self._broker.groups.get(self.topic(command), command.group_id))

    def _groups(self, command: c.GetGroups, client: Client | None) -> list[r.GroupInfo]:
        return [describe_group(group) for group in self._broker.groups.of_topic(self.topic(command))]

    def _join(self, command: c.JoinGroup, client: Client | None) -> None:
        self._broker.groups.join(self.topic(command), command.group_id, _member(client))

    def _leave(self, command: c.LeaveGroup, client: Client | None) -> None:
        self._broker.groups.leave(self.topic(command), command.group_id, _member(client))

    # -- message states; setting them waits for the disk and is apart, in ``states.py``

    def _states(self, command: GetStates, client: Client | None) -> ListedStates:
        partition = self.topic(command).partition(command.partition_id - 1)
        listed = list_states(partition, command.first, command.end)
        ranges = [StateRange(first, end, State(state)) for first, end, state in listed[:RANGES_MAX]]
        return ListedStates(ranges[-1].end if len(listed) > RANGES_MAX else command.end, ranges)


def _count_rows(answer: Any) -> int:
    match answer:
        case list():
            return len(answer)
        case r.StreamDetails():
            return len(answer.topics)
        case r.TopicDetails():
            return len(answer.partitions)
        case _:
            return 1


def _member(client: Client | None) -> int:
    if client is None:
        raise Refusal(Reason.FEATURE_UNAVAILABLE, "a client without a connection of its own cannot be a group member")
    return client.id


SURVEYS: Final[Mapping[type[Any], Callable[[IggyService, Any, Client | None], Turns[Any]]]] = {
    c.Stats: IggyService._stats,
    c.GetClients: IggyService._clients,
    c.GetStream: IggyService._stream,
    c.GetStreams: IggyService._streams,
    c.GetTopic: IggyService._topic,
    c.GetTopics: IggyService._topics,
}
"""Commands that look at many topics, partitions or clients: ``survey`` answers them."""

CHANGES: Final = (
    c.CreateStream,
    c.DeleteStream,
    c.CreateTopic,
    c.DeleteTopic,
    c.CreatePartitions,
    c.DeletePartitions,
    later.UpdateStream,
    later.UpdateTopic,
    c.CreateGroup,
    c.DeleteGroup,
    *later.USER_COMMANDS,
)
"""Commands that change the topology, the catalog or users: ``change`` carries them out."""

_HANDLERS: Final[Mapping[type[Any], Callable[[IggyService, Any, Client | None], Any]]] = {
    c.Kill: IggyService._kill,
    c.Ping: IggyService._ping,
    c.Me: IggyService._me,
    c.GetClient: IggyService._client,
    c.GetOffset: IggyService._offset,
    c.StoreOffset: IggyService._store_offset,
    c.GetGroup: IggyService._group,
    c.GetGroups: IggyService._groups,
    c.JoinGroup: IggyService._join,
    c.LeaveGroup: IggyService._leave,
    GetStates: IggyService._states,
    later.LogoutUser: IggyService._log_out,
    later.GetUser: IggyService._user,
    later.GetUsers: IggyService._list_users,
    later.GetTokens: IggyService._tokens,
    later.GetClusterMetadata: IggyService._cluster,
    later.FlushMessages: IggyService._flush,
}
"""The method of each command."""
